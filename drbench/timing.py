"""The one clock: what time it is, and where a repeat spent it."""

from __future__ import annotations

import time

__all__ = ["PHASES", "Clock"]

#: Phases a repeat is divided into. ``get_wait`` is time idle for operands, ``collective_wait`` idle
#: for shifts and collectives, ``accumulate`` adding (and idle for adds), ``fence`` idle at a Fence,
#: ``pack`` copying pieces into and out of the buffers of collectives; what is left over is the
#: executor's own cost.
PHASES = ("get_wait", "collective_wait", "gemm", "accumulate", "fence", "pack")


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
