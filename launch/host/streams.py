"""The standard streams of the command line: UTF-8 whatever the locale, and one error where standard
output cannot be written."""

import io
import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from drbench.errors import CaseFailed, DrbenchError

#: The form of printed tables: md or csv; else text.
FORM: ContextVar[str | None] = ContextVar("form", default=None)


class ReaderGone(DrbenchError):
    """The reader of standard output has ended, as ``head`` does: not a failure."""

    status = "ok"


class _Stream(io.FileIO):
    """A stream that fails once, if it is not standard error, and then discards everything."""

    def write(self, data) -> int:
        try:
            while (count := super().write(data)) is None:  # another program made it non-blocking
                select.select([], [self], [])
            return count
        except OSError as error:
            lost = error
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, self.fileno())
        os.close(null)
        if self.fileno() == 2:
            return len(data)
        if isinstance(lost, BrokenPipeError):
            raise ReaderGone("what reads standard output has ended")
        raise CaseFailed(f"standard output cannot be written: {lost.strerror}. Send it elsewhere.")


def stream(handle: int) -> io.TextIOWrapper:
    """A stream of text on an open file. If it is not standard error, the first line that cannot be
    written raises CaseFailed, or :class:`ReaderGone`."""
    raw = io.BufferedWriter(_Stream(handle, "w", closefd=False))
    return io.TextIOWrapper(raw, "utf-8", "backslashreplace", line_buffering=True)


@contextmanager
def diverted() -> Iterator[None]:
    """A context in which what libraries print goes to standard error."""
    output = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(output, 1)
        os.close(output)


def open_streams() -> None:
    """Open standard output and standard error as :func:`stream`, also where they are closed. Where
    the locale is not UTF-8, start this program again in Python's UTF-8 mode."""
    if sys.getfilesystemencoding() != "utf-8":
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])
    for handle in range(3):
        try:
            os.fstat(handle)
        except OSError:  # no other file may get this number; what is written here fails
            os.set_inheritable(os.open(os.devnull, os.O_RDONLY), True)
    sys.stdout, sys.stderr = stream(1), stream(2)
