"""Errors with the exit code and the record status that belong to them.

One table for the whole suite: the command line exits with ``exit_code``, a record carries
``status``, and every rank agrees on the largest code before any of them exits.
"""

import errno
from collections.abc import Iterable
from difflib import get_close_matches

#: Exit code of each record status; ``usage`` never becomes a record.
EXIT_CODES = {
    "ok": 0,
    "wrong": 1,
    "usage": 2,
    "unsupported": 3,
    "timeout": 4,
    "failed": 5,
    "out_of_memory": 6,
}


class DrbenchError(Exception):
    """An error a user can act on: its text is one line with the problem, the value that was given,
    and the remedy."""

    status = "failed"

    @property
    def exit_code(self) -> int:
        """The process exit code of this error (see :data:`EXIT_CODES`)."""
        return EXIT_CODES[self.status]


class UsageError(DrbenchError):
    """The request is invalid (a layout that does not fit, a negative size)."""

    status = "usage"


class UnsupportedError(DrbenchError):
    """The algorithm, or drbench's implementation of it, refuses this case."""

    status = "unsupported"


class MissingError(DrbenchError):
    """The case needs what this machine lacks (an MPI, a library, a GPU)."""

    status = "unsupported"


class CaseTimeout(DrbenchError):
    """The case ran past its time limit."""

    status = "timeout"


class CaseFailed(DrbenchError):
    """The case raised, crashed or was killed, or the disk is full."""


class OutOfMemory(DrbenchError):
    """The case needs more memory than is free, or than a limit allows."""

    status = "out_of_memory"


def as_ours(error: BaseException) -> DrbenchError | None:
    """An exception as one of drbench: its own, or that memory ran out; else None.

    Examples
    --------
    >>> as_ours(OSError(errno.ENOMEM, "Cannot allocate memory")).exit_code, as_ours(ValueError())
    (6, None)
    """
    if isinstance(error, DrbenchError):
        return error
    text, of_mpi = " ".join(str(error).split())[-200:], "Out of memory"
    text = of_mpi if text.endswith(of_mpi) else text
    known = isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM
    if not known and text != of_mpi:
        return None
    return OutOfMemory(
        f"the system gives no more memory ({text or type(error).__name__}). Use smaller matrices "
        "or more nodes, or raise the limit (ulimit -v, or of the job)."
    )


def exit_code_of(error: BaseException) -> int:
    """Exit code of any exception.

    Examples
    --------
    >>> exit_code_of(OutOfMemory("needs 3 GiB, 1 GiB is free")), exit_code_of(ValueError())
    (6, 5)
    """
    ours = as_ours(error)
    return ours.exit_code if ours else EXIT_CODES["failed"]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: the similar known name, if there is one.

    Examples
    --------
    >>> did_you_mean("pvc21", ["h100x8", "pvc12"]), did_you_mean("abacus", ["h100x8", "pvc12"])
    (' Did you mean pvc12?', '')
    """
    name = {"roof": "gemm_only", "model": "machine"}.get(name, name)  # older names
    close = get_close_matches(name, known, n=1)
    return f" Did you mean {close[0]}?" if close else ""


def shown(value: object) -> str:
    """A value as an error shows it: in one line, cut where it is long.

    Examples
    --------
    >>> shown("x"), len(shown("x" * 1000)), shown(1 << 100_000)
    ("'x'", 80, 'a number of more than 4300 digits')
    """
    try:
        text = repr(value)
    except ValueError:  # Python writes no longer numbers
        return "a number of more than 4300 digits"
    return text if len(text) <= 80 else f"{text[:77]}..."
