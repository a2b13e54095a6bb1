"""Small files that are either the old or the new one, whatever is killed when."""

from __future__ import annotations

import os
from pathlib import Path

from drbench.errors import UsageError

__all__ = ["ROOT", "free_name", "made_folder", "sync_folder", "write_whole"]

#: Where drbench and its sister packages lie: the checkout, or the site-packages of an installation.
ROOT = Path(__file__).parents[2]


def write_whole(path: Path, text: str) -> None:
    """Replace a file by ``text``: a reader sees the old file or the new one, and so does whoever
    comes after a crash."""
    new = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        with open(new, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
    finally:
        new.unlink(missing_ok=True)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def free_name(folder: Path, stem: str) -> Path:
    """The first of ``stem-1``, ``stem-2``, … that does not exist."""
    return next(
        path
        for path in (folder / f"{stem}-{number}" for number in range(1, 1_000_000))
        if not path.exists()
    )


def made_folder(path: str | os.PathLike, option: str = "--out") -> Path:
    """A folder that someone asked for, made if it is not there.

    Raises
    ------
    UsageError
        If it cannot be made.
    """
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"{option} {os.fspath(path)}: {error.strerror}. Use a folder that can be made."
        ) from None
    return Path(path)
