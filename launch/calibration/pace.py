"""How fast a machine is while it is calibrated: something that takes as long every time, timed
before and after all that is measured.

A shared machine is slow for seconds at a time, and an eighth faster or slower from one minute to
the next. What was measured is scaled by what it was like beside it, so that products and whole
programs are all of one pace, and their ratios are those of the programs.
"""

import statistics
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import TypeVar

import numpy as np

from drbench.host.blas import load_blas
from drbench.measure.roof import timed

_Found = TypeVar("_Found")
#: Edge of the product that is timed beside the rest, and how often it is made.
_EDGE, _TIMES = 512, 8


class Pace:
    """The pace of a machine.

    Parameters
    ----------
    beside : callable
        Seconds of what takes as long every time on a machine that is always as fast.

    Examples
    --------
    A machine that becomes half as fast when the first program has run:

    >>> ran = []
    >>> slow = lambda: 2.0 if ran else 1.0
    >>> run = lambda: (slow() * 3.0, ran.append(1))[0]
    >>> pace = Pace(slow)
    >>> found = [pace.around(run) for _ in range(3)]
    >>> found
    [(3.0, 1.5), (6.0, 2.0), (6.0, 2.0)]
    >>> pace.usual, pace.median(found)
    (2.0, 6.0)
    """

    def __init__(self, beside: Callable[[], float]):
        self._beside = beside
        self._last: float | None = None
        self._all: list[float] = []

    @classmethod
    def of_cores(cls, comm) -> "Pace":
        """That of products on the cores of all ranks at once (its methods are collective)."""
        blas = load_blas()
        a, b, c = (np.ones((_EDGE, _EDGE), "f4") for _ in range(3))

        def product():
            for _ in range(_TIMES):
                blas.gemm(a, b, c, 1.0)

        product()
        return cls(lambda: timed(comm, product).seconds)

    @cached_property
    def usual(self) -> float:
        """The median of all that was timed until this was asked for the first time; the same from
        then on, so that all that is scaled by it is of one pace."""
        return statistics.median(self._all)

    def begin(self) -> float:
        """Look at the pace; needed only once something else than :meth:`around` has passed."""
        self._last = self._beside()
        self._all.append(self._last)
        return self._last

    def around(self, run: Callable[[], _Found]) -> tuple[_Found, float]:
        """What ``run()`` gives, and the pace meanwhile: the mean of before and after."""
        before = self.begin() if self._last is None else self._last
        found = run()
        return found, (before + self.begin()) / 2

    def median(self, found: Iterable[tuple[float, float]]) -> float:
        """The median of (seconds, pace), as if the pace had been the usual one."""
        return statistics.median(seconds * self.usual / pace for seconds, pace in found)

    def seconds(self, run: Callable[[], float], trials: int) -> float:
        """The median seconds of so many trials at the usual pace, after one that does not count.

        Examples
        --------
        >>> took = iter([9.0, 2.0, 8.0, 3.0])
        >>> Pace(lambda: 1.0).seconds(lambda: next(took), 3)
        3.0
        """
        run()
        self.begin()
        return self.median([self.around(run) for _ in range(trials)])
