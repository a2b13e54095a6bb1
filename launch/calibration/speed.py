"""Speed normalisation of a machine during calibration: a fixed probe is timed before and after
every measurement.

A shared machine is slow for seconds at a time, and an eighth faster or slower from one minute to
the next. Every measurement is scaled by the probes around it, so that GEMMs and whole programs
refer to one speed, and drift does not change their ratios.
"""

import statistics
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import TypeVar

import numpy as np

from drbench.errors import CaseFailed
from drbench.host.blas import load_blas
from drbench.measure.noise import Timed, cores_had
from drbench.measure.roof import timed

_Found = TypeVar("_Found")
#: Edge of the GEMM of the probe, and its repeats.
_EDGE, _TIMES = 512, 8
#: A machine whose speed changes by more than this drifts: predictions cannot know its speed.
DRIFT = 0.10


def square_gemm(edge: int) -> Callable[[], None]:
    """A function that multiplies two matrices of this edge on the cores of a rank."""
    blas, operands = load_blas(), [np.ones((edge, edge), "f4") for _ in range(3)]
    return lambda: blas.gemm(*operands, 1.0)


class SpeedNormalisation:
    """The speed of a machine during calibration.

    Parameters
    ----------
    probe : callable
        Times fixed work, which takes equally long on a machine of constant speed.
    due : float or None
        The share of a core that a rank can have (:func:`cores_had`).

    Examples
    --------
    A machine that becomes half as fast when the first program has run:

    >>> ran = []
    >>> slow = lambda: 2.0 if ran else 1.0
    >>> run = lambda: (slow() * 3.0, ran.append(1))[0]
    >>> speed = SpeedNormalisation(lambda: Timed(slow(), 0.0))
    >>> found = [speed.around(run) for _ in range(3)]
    >>> found
    [(3.0, 1.5), (6.0, 2.0), (6.0, 2.0)]
    >>> speed.usual, speed.median(found)
    (2.0, 6.0)
    """

    def __init__(self, probe: Callable[[], Timed], due: float | None = None):
        self._probe, self._due = probe, due
        self._probes: list[Timed] = []

    @classmethod
    def of_cores(cls, comm, due: float | None) -> "SpeedNormalisation":
        """The normalisation by GEMMs on the cores of all ranks at once (its methods are
        collective)."""
        gemm = square_gemm(_EDGE)

        def multiply():
            for _ in range(_TIMES):
                gemm()

        multiply()
        return cls(lambda: timed(comm, multiply), due)

    def refuse_other_work(self) -> None:
        """Raise a CaseFailed, on every rank, if the ranks lacked their cores during the probes:
        other processes falsified the measurements."""
        count = len(self._probes)
        if not count:
            return
        had = cores_had([(probe,) for probe in self._probes], range(count), self._due)
        if had.lacking:
            raise CaseFailed(
                f"the ranks had {100 * had.core_share:.0f} % of their cores, and "
                f"{had.disturbed} of {count} speed probes were disturbed: other "
                "processes run. Calibrate when nothing else runs (drbench doctor)."
            )

    def drift(self) -> tuple[float, float]:
        """How much faster and slower than usual the machine was: the range of factors on times that
        contains 8 of 10 probes; (1, 1) if that is within :data:`DRIFT`.

        Examples
        --------
        >>> def drifting(*took):
        ...     speed = SpeedNormalisation(iter([Timed(seconds, 0.0) for seconds in took]).__next__)
        ...     for _ in took:
        ...         speed.begin()
        ...     return speed.drift()
        >>> drifting(1.0, 1.02, 1.0, 1.0, 1.01), drifting(1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 1.0)
        ((1.0, 1.0), (1.0, 2.0))
        """
        if len(self._probes) < 2:
            return 1.0, 1.0
        seconds = [probe.seconds for probe in self._probes]
        ends = statistics.quantiles(seconds, n=10, method="inclusive")
        low, high = ends[0] / self.usual, ends[-1] / self.usual
        return (min(low, 1.0), max(high, 1.0)) if high > (1 + DRIFT) * low else (1.0, 1.0)

    @cached_property
    def usual(self) -> float:
        """The median of the probes until the first call; constant from then on, so that all times
        refer to one speed."""
        return statistics.median(probe.seconds for probe in self._probes)

    def begin(self) -> float:
        """Time the probe; needed only if other work than :meth:`around` has run."""
        self._probes.append(self._probe())
        return self._probes[-1].seconds

    def around(self, run: Callable[[], _Found]) -> tuple[_Found, float]:
        """(result of ``run()``, seconds of the probe: the mean of before and after)."""
        before = self._probes[-1].seconds if self._probes else self.begin()
        result = run()
        return result, (before + self.begin()) / 2

    def median(self, times: Iterable[tuple[float, float]]) -> float:
        """The median of (seconds, probe seconds), normalised to the usual speed."""
        return statistics.median(seconds * self.usual / speed for seconds, speed in times)

    def seconds(self, run: Callable[[], float], trials: int) -> float:
        """The median seconds of ``trials`` trials at the usual speed, after a warm-up.

        Examples
        --------
        >>> took = iter([9.0, 2.0, 8.0, 3.0])
        >>> SpeedNormalisation(lambda: Timed(1.0, 0.0)).seconds(lambda: next(took), 3)
        3.0
        """
        run()
        self.begin()
        return self.median([self.around(run) for _ in range(trials)])
