"""The one clock: seconds, the phases that they are spent in, and when a step ran."""

import time
from typing import NamedTuple

#: Phases a repeat is divided into. ``get_wait`` is time idle for operands, ``collective_wait`` idle
#: for shifts and collectives, ``accumulate`` adding (and idle for adds), ``fence`` idle at a Fence,
#: ``pack`` copying fragments into and out of the buffers of collectives; the remainder is the
#: executor's own cost.
PHASES = ("get_wait", "collective_wait", "gemm", "accumulate", "fence", "pack")
#: Phases in which a rank computes, and does not wait.
COMPUTING = ("gemm", "accumulate", "pack")


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

    def phase(self, name: str) -> "_Phase":
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
