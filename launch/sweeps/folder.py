"""The folder of many cases while someone works in it: held against others, cleared up after a
crash, taken up where it was left."""

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from rich.console import Console

from drbench.errors import UsageError
from launch.host.files import made_folder
from launch.host.processes import interruptible

from .lock import hold_folder
from .store import Store

#: What a disk says that takes nothing more.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)


@contextmanager
def opened(
    folder: str | os.PathLike,
    name: str,
    ranks: int,
    wanted: Iterable[str],
    say: Console,
    *,
    fresh: bool = False,
    retry: bool = False,
) -> Iterator[Store]:
    """The store of a folder, made if need be. Whoever ends this process meanwhile means its ranks.

    Parameters
    ----------
    wanted : iterable of str
        Ids of the cases. The rows of others are moved out of the way.
    fresh, retry : bool
        Move earlier results aside; or rows of cases that were not ok.

    Raises
    ------
    UsageError
        If the folder cannot be made, is in use, or holds something else.
    """
    folder = made_folder(folder)
    warn = partial(say.print, style="yellow", markup=False)
    with _said_in_one_line(folder), interruptible(), hold_folder(folder, warn):
        store = Store(folder)
        aside = store.set_aside(all_of_it=fresh) if fresh or retry else None
        if aside is not None:
            what = "" if fresh else "cases that were not ok run again; the "
            say.print(f"{what}earlier {'results' if fresh else 'rows'}: {aside}", markup=False)
        store.open(name, ranks, list(wanted))
        for note in store.notes:
            say.print(note, markup=False)
        yield store


@contextmanager
def _said_in_one_line(folder: Path) -> Iterator[None]:
    """That the folder cannot be written to any more, whatever was to be written."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        raise UsageError(
            f"{folder}: {error.strerror}. No finished case is lost; make room, or let it be "
            "written to, and run the same command again."
        ) from None
