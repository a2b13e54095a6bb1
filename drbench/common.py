"""What every layer uses: the one clock, the choice of transport, and when a step ran."""

from __future__ import annotations

import fcntl
import os
import stat
import struct
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from operator import index
from typing import TYPE_CHECKING, Any, NamedTuple, Self, SupportsIndex

from .errors import DrbenchError, UnsupportedError, UsageError

if TYPE_CHECKING:
    import numpy as np


#: Folder of the shared memory of a node's windows.
SHARED_MEMORY = "/dev/shm"

#: Phases a repeat is divided into. ``get_wait`` is time idle for operands, ``collective_wait`` idle
#: for shifts and collectives, ``accumulate`` adding (and idle for adds), ``fence`` idle at a Fence,
#: ``pack`` copying fragments into and out of the buffers of collectives; the remainder is the
#: executor's own cost.
PHASES = ("get_wait", "collective_wait", "gemm", "accumulate", "fence", "pack")
#: Phases in which a rank computes, and does not wait.
COMPUTING = ("gemm", "accumulate", "pack")


def address_of(array) -> int:
    """The address of the first element of a NumPy array."""
    return array.__array_interface__["data"][0]


class ClosedTogether:
    """What all ranks close together, at the end of ``with``; also after an error that all ranks
    raise. After any other error one rank failed alone: the others do not close, and closing would
    wait for them."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest) -> None:
        if kind is None or issubclass(kind, DrbenchError):
            self.close()
        else:
            self._let_go()

    def close(self) -> None:
        """Free it (collective)."""

    def _let_go(self) -> None:
        """Free what needs no other rank."""


def grouped(items: Iterable, key: Callable) -> dict[Any, list]:
    """Items by what a function gives for each, in the order of the first of each group.

    Examples
    --------
    >>> grouped([3, 1, 4, 5], lambda number: number % 2)
    {1: [3, 1, 5], 0: [4]}
    """
    found: dict[Any, list] = {}
    for each in items:
        found.setdefault(key(each), []).append(each)
    return found


def remembered(known: dict, key, make: Callable) -> Any:
    """What is known under a key, made the first time."""
    if key not in known:
        known[key] = make()
    return known[key]


def shared_memory_free() -> int | None:
    """Bytes free in the shared memory of a node's windows; None if that folder does not exist."""
    if not os.path.isdir(SHARED_MEMORY):
        return None
    found = os.statvfs(SHARED_MEMORY)
    return found.f_bavail * found.f_frsize


#: How long a launcher may take to read what a rank has written, and to forward it.
_READ_S, _PASSED_ON_S = 10.0, 0.1
#: Seconds that MPI may take to end all ranks.
_ABORT_S = 5.0


def until_heard() -> None:
    """Wait until the launcher has read what this rank wrote: output that it has not read when it
    ends all ranks is lost. Only a pipe reports how many bytes are unread; its reader gets a moment
    to forward them."""
    sys.stderr.flush()
    end = time.monotonic() + _READ_S
    while _unread(1) + _unread(2) and time.monotonic() < end:
        time.sleep(0.002)
    time.sleep(_PASSED_ON_S)


def end_ranks(comm, code: int) -> None:
    """End all ranks with an exit code, once the launcher has read what this one wrote; this rank
    alone if MPI does not: a hanging call may hold its lock."""
    until_heard()
    last = threading.Timer(_ABORT_S, os._exit, [code])
    last.daemon = True
    last.start()
    comm.Abort(code)
    os._exit(code)  # MPICH may return from it


def _unread(handle: int) -> int:
    """Unread bytes in a pipe; 0 for any other file.

    Examples
    --------
    >>> ours, theirs = os.pipe()
    >>> os.write(theirs, b"some"), _unread(theirs), os.read(ours, 4), _unread(theirs)
    (4, 4, b'some', 0)
    >>> os.close(ours), os.close(theirs)
    (None, None)
    """
    try:
        if not stat.S_ISFIFO(os.fstat(handle).st_mode):
            return 0
        return struct.unpack("i", fcntl.ioctl(handle, termios.FIONREAD, b"    "))[0]
    except OSError:  # it was closed, or cannot tell
        return 0


class Clock:
    """Seconds since an arbitrary point, and seconds spent per phase.

    Examples
    --------
    >>> clock = Clock()
    >>> with clock.phase("gemm"):
    ...     pass
    >>> clock.seconds["gemm"] > 0, clock.seconds["fence"]
    (True, 0.0)
    """

    now = staticmethod(time.perf_counter)
    cpu = staticmethod(time.process_time)

    @staticmethod
    def date() -> str:
        """The current date and time in UTC, in ISO 8601 format."""
        return time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime())

    def __init__(self):
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self._phases = {name: _Phase(self.seconds, name) for name in PHASES}

    def reset(self) -> None:
        """Forget all phases."""
        for name in PHASES:
            self.seconds[name] = 0.0

    def phase(self, name: str) -> _Phase:
        """Context manager that adds the time inside to one phase. The same phase does not nest."""
        return self._phases[name]


class _Phase:
    __slots__ = ("_seconds", "_name", "_start")

    def __init__(self, seconds, name):
        self._seconds, self._name = seconds, name

    def __enter__(self):
        self._start = time.perf_counter()

    def __exit__(self, *exc):
        self._seconds[self._name] += time.perf_counter() - self._start


class StepTime(NamedTuple):
    """One step of one rank: on which track, its place in the program, and when, in seconds from the
    start of the repeat."""

    rank: int
    track: str
    index: int  # type: ignore[assignment]  # hides tuple.index
    name: str
    start_s: float
    stop_s: float


@dataclass(frozen=True)
class TransportChoice:
    """The transport that the user chose.

    Attributes
    ----------
    kind : str
        ``"auto"`` (in place where another rank's memory can be reached, RMA elsewhere),
        ``"direct"`` (all in place, else unsupported), ``"rma"`` (RMA even on the node) or
        ``"throttled"``.
    bandwidth_bytes_per_s, latency_s : float or None
        Of each rank's link, one direction; throttled only.
    """

    kind: str
    bandwidth_bytes_per_s: float | None = None
    latency_s: float | None = None

    def __str__(self) -> str:
        if self.kind != "throttled":
            return self.kind
        gbps, us = self.bandwidth_bytes_per_s / 1e9, self.latency_s * 1e6  # type: ignore[operator]
        return f"throttled:{gbps:g},{us:g}"


def parse_transport(text: str) -> TransportChoice:
    """Read ``auto``, ``direct``, ``rma`` or ``throttled:GBps,us``.

    Examples
    --------
    >>> parse_transport("throttled:20,5")
    TransportChoice(kind='throttled', bandwidth_bytes_per_s=20000000000.0, latency_s=5e-06)
    """
    kind, _, numbers = text.strip().partition(":")
    if kind in ("auto", "direct", "rma") and not numbers:
        return TransportChoice(kind)
    if kind == "throttled":
        try:
            bandwidth, latency = (float(x) for x in numbers.split(","))
            if 0 < bandwidth < float("inf") and 0 <= latency < float("inf"):
                return TransportChoice(kind, bandwidth * 1e9, latency / 1e6)
        except ValueError:
            pass
        raise UsageError(
            f"throttled needs a bandwidth in GB/s and a latency in us, got {text!r}. "
            "Use for example throttled:20,5."
        )
    raise UsageError(f"transport must be auto, direct, rma or throttled:GBps,us, got {text!r}.")


def as_int(value: object) -> int | None:
    """A whole number as an int; None for anything else: a float, a text, True, an array.

    Examples
    --------
    >>> import numpy as np
    >>> [as_int(value) for value in (3, np.int64(3), 3.0, True, "3")]
    [3, 3, None, None, None]
    """
    if isinstance(value, bool) or not isinstance(value, SupportsIndex):
        return None
    try:
        return index(value)
    except TypeError:  # an array of several elements, or of floats
        return None


def numpy_type(name: str) -> np.dtype:
    """The NumPy type of a name; bfloat16 is that of the package ml_dtypes.

    Raises
    ------
    UnsupportedError
        If the name is bfloat16 and ml_dtypes is missing.
    """
    import numpy as np

    if name == "bfloat16":
        try:
            import ml_dtypes
        except ImportError:
            raise UnsupportedError(
                "bfloat16 elements need the package ml_dtypes. pip install ml_dtypes."
            ) from None
        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)
