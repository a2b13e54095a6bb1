"""Files and folders that the user names: small files, replaced atomically; result files that can be
appended to."""

import errno
import json
import os
import stat
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from drbench.errors import EXIT_CODES, CaseFailed, UsageError
from drbench.measure.record import Record, RecordError
from drbench.measure.record_file import append_csv, is_other_form, read_csv

#: The folder that holds drbench: the checkout, or site-packages of an installation.
ROOT = Path(__file__).parents[3]
#: Errors of a full disk.
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
#: The checkout whose records and scripts are used: that of these packages, or for installed
#: packages the current folder.
CHECKOUT = ROOT if (ROOT / "results").is_dir() else Path.cwd()


def write_whole(path: Path, text: str) -> None:
    """Replace a file by ``text`` atomically: readers see the old or the new file, also after a
    crash."""
    new = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        with open(new, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
    finally:
        new.unlink(missing_ok=True)
    sync_folder(path.parent)


def write_json(path: Path, value) -> None:
    """Replace a file by a value as JSON, like :func:`write_whole`."""
    write_whole(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable, if the file system supports it."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    finally:
        os.close(handle)


@contextmanager
def refuse_os_errors(where: str, remedy: str) -> Iterator[None]:
    """A context in which an OSError becomes a UsageError, or that of a full disk a CaseFailed, of
    ``where``, or the file that it names."""
    try:
        yield
    except OSError as error:
        full = error.errno in FULL
        kind, remedy = (CaseFailed, "Free some space.") if full else (UsageError, remedy)
        texts = filter(None, (where or error.filename, str(error.strerror or error)))
        raise kind(f"{': '.join(texts)}. {remedy}") from None


def make_folder(path: str | os.PathLike) -> Path:
    """The folder of ``--out``, created if needed.

    Raises
    ------
    UsageError
        If it cannot be created.
    """
    with refuse_os_errors(f"--out {path}", "Use a folder that can be made."):
        Path(path).mkdir(parents=True, exist_ok=True)
    _lend(path)
    return Path(path)


def _lend(folder: str | os.PathLike) -> None:
    """Let a folder of results hold temporary files where no other folder can be written."""
    try:
        tempfile.gettempdir()
    except FileNotFoundError:
        os.environ["TMPDIR"] = os.path.abspath(folder)


def check_output(option: str, path: str | None) -> None:
    """Check, before any work, that the file of an option can be written; None is no file.

    Raises
    ------
    UsageError
    """
    if not path:
        return
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise UsageError(f"{option} {path}: no folder {folder}. Make it first.")
    if os.path.isdir(path):
        raise UsageError(f"{option} {path}: it is a folder. Use the name of a file.")
    _lend(folder)
    with refuse_os_errors(f"{option} {path}", "Use another name."):
        try:
            kind = os.stat(path).st_mode
        except FileNotFoundError:  # not created here: another run may append to it
            tempfile.TemporaryFile(dir=os.path.dirname(os.path.realpath(path))).close()
            return
        if stat.S_ISREG(kind):
            os.close(os.open(path, os.O_WRONLY | os.O_APPEND))
        elif not os.access(path, os.W_OK):  # not opened: a pipe would wait for its reader
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def write_output(option: str, path: str | os.PathLike, text: str) -> None:
    """Write the file of an option.

    Raises
    ------
    UsageError
        If it cannot be written; a CaseFailed if the disk is full.
    """
    with refuse_os_errors(f"{option} {path}", "Use a file that can be written."):
        Path(path).write_text(text, encoding="utf-8", errors="replace", newline="")


def write_table(path: str | os.PathLike, rows: list[dict]) -> None:
    """Write rows as CSV to the file of ``--csv``.

    Raises
    ------
    UsageError
    """
    from .show import csv_text

    write_output("--csv", path, csv_text(rows))


def check_csv(path: str | None) -> None:
    """Check that a result file can be appended to, and is empty or has records; None is no file.

    Raises
    ------
    UsageError
    """
    check_output("--csv", path)
    if not path or not os.path.exists(path):
        return
    if not os.path.isfile(path):
        raise UsageError(f"--csv: {path} is not a file that can be appended to. Use another name.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a torn last line; reported when it is removed
            read_csv(path)
            if is_other_form(path):
                raise RecordError(
                    f"{path} has the header of an older schema or of a spreadsheet. Use another "
                    "file name: both files are read."
                )
    except (OSError, RecordError) as error:
        raise UsageError(f"--csv: {error}") from None


def rows_before(path: str, read: Callable[[list[str]], list]) -> list:
    """The rows of the file of ``--csv``, none if it does not exist; ``read`` reads files.

    Raises
    ------
    UsageError
        If it is a file of another type.
    """
    try:
        return read([path]) if Path(path).exists() else []
    except (OSError, ValueError) as error:
        raise UsageError(f"--csv {path}: {error}") from None


def add_records(path: str | None, *records: Record) -> None:
    """Append records to a result file; None is no file.

    Raises
    ------
    UsageError
    """
    if not path:
        return
    try:
        with (
            warnings.catch_warnings(record=True) as warned,
            refuse_os_errors(f"--csv {path}", "Use a file that can be written."),
        ):
            warnings.simplefilter("always")
            append_csv(path, *records)
    except RecordError as error:
        raise UsageError(f"--csv: {error}") from None
    for warning in warned:  # about a torn last line
        sys.stderr.write(f"drbench: {warning.message}\n")


def output_record(record: Record, csv_path: str | None, form: str | None) -> int:
    """Print the record of a command's only case, as JSON, as a line (``brief``), in words, or with
    all that is known (``verbose``); append it, and return its exit code."""
    try:
        if form == "json":
            print(json.dumps(record.to_json_dict()), flush=True)
        else:
            from .show import brief_record, show_record

            if form == "brief":
                print(brief_record(record), flush=True)
            else:
                show_record(record, bool(form))
    finally:  # last, so that the record is printed even if this fails; and the other way round
        add_records(csv_path, record)
    return EXIT_CODES[record.status]
