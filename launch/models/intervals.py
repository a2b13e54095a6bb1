"""The interval of a prediction: between which times a run is expected in 95 of 100 cases.

Three things are not known, each taken by itself, and together as errors that do not depend on each
other:

- **residuals**: how far measured whole programs were from their predictions, which the machine file
  keeps (``[model.residuals]``; ``drbench calibrate`` measures them), or for models of published
  constants how far published times were (:data:`PUBLISHED`);
- **assumed constants** (``assumed`` in the file): the case is predicted again with all of them at
  their faster end, and with all at their slower: seconds and elements by :data:`GUESSED`, rates and
  shares by :data:`RATED`, unless the file says by how much. That is wider than if they were wrong
  one without the other, and two simulations instead of two for each;
- **arbitration**: of models that assume something the case is predicted under the other rule of who
  waits for whom at a busy link, too.
"""

from collections.abc import Iterable
from itertools import chain
from math import exp, hypot, log
from typing import NamedTuple

from drbench.common import parse_transport
from drbench.model.fit import spread
from drbench.model.machine import ARBITRATIONS, Machine

#: Assumed seconds and elements may be so many times as small or as large: of h100x8 a launch turned
#: out to be three times as long as assumed, the ramp along k as assumed, the edge none.
GUESSED = 2.0
#: Rates and shares rest on data sheets, or on measurements elsewhere: of h100x8 the sustained rate
#: turned out to be 1.08 times what was assumed.
RATED = 1.1
#: Residuals of a model of published constants whose file has none: published over predicted times
#: of DTensor on h100x8, whose constants were not fitted to them but for the level.
PUBLISHED = (
    *(1.002, 1.021, 0.991, 0.994, 1.039, 0.991, 1.000, 0.970),
    *(0.990, 0.992, 0.997, 1.041, 0.964, 1.003, 0.998, 1.031),
)
_RATES, _SHARES = ("_per_s", "_flops"), ("_efficiency", "sustained")


class Interval(NamedTuple):
    """Factors of the predicted time.

    Attributes
    ----------
    low, high : float
        ``low <= 1 <= high``.
    """

    low: float
    high: float


def residuals_of(machine: Machine, transport: str) -> list[float]:
    """The residuals of a machine that tell most about a transport: its own, those of ``any``, those
    of all others together, or, where constants are assumed, :data:`PUBLISHED`.

    Examples
    --------
    >>> from drbench.model.gemm import Compute
    >>> machine = Machine("t", Compute(1e12), residuals={"rma": [1.0, 1.1], "direct": [0.9, 1.0]})
    >>> residuals_of(machine, "rma"), residuals_of(machine, "throttled:1,5")
    ([1.0, 1.1], [1.0, 1.1, 0.9, 1.0])
    """
    known, kind = machine.residuals, parse_transport(transport).kind
    if kind == "auto" and "transports" in machine.sources and not machine.links:
        kind = "direct"
    found = known.get(kind) or known.get("any") or [*chain.from_iterable(known.values())]
    return found or ([*PUBLISHED] if machine.assumed else [])


def doubted(machine: Machine) -> list[Machine]:
    """The machine with all assumed constants at their faster end, and with all at their slower one;
    none if it assumes nothing.

    Examples
    --------
    >>> machine = Machine.from_dict(
    ...     {
    ...         "compute": {"peak_flops": 1e12, "sustained": 0.95},
    ...         "fence_s": 1.0,
    ...         "packets": 3,
    ...         "assumed": ["fence_s", "packets", "compute.sustained"],
    ...     }
    ... )
    >>> [(end.fence_s, end.packets, round(end.compute.sustained, 3)) for end in doubted(machine)]
    [(0.5, 2, 1.0), (2.0, 6, 0.864)]
    """
    if not machine.assumed:
        return []
    return [_moved(machine, slower) for slower in (False, True)]


def otherwise(machine: Machine) -> list[Machine]:
    """The machine with links that are shared by the other rule, where that was assumed: calibrated
    residuals have it in them.

    Examples
    --------
    >>> from launch.cases.machine_models import find_machine
    >>> [other.arbitration for other in otherwise(find_machine("h100x8,arbitration=fifo"))]
    ['fair']
    """
    others = [each for each in ARBITRATIONS if each != machine.arbitration]
    return [machine.with_value("arbitration", each) for each in others if machine.assumed]


def alternatives(machine: Machine) -> tuple[list[Machine], list[Machine]]:
    """What a machine may be instead: with other constants, and with links shared otherwise."""
    return doubted(machine), otherwise(machine)


def _moved(machine: Machine, slower: bool) -> Machine:
    for path in machine.assumed:
        rate, share = path.endswith(_RATES), path.endswith(_SHARES)
        by = machine.factors.get(path) or (RATED if rate or share else GUESSED)
        by = by if slower != (rate or share) else 1 / by
        machine = machine.with_value(
            path, lambda value, by=by, share=share: _times(value, by, share)
        )
    return machine


def _times(value: float, by: float, share: bool) -> float:
    if isinstance(value, int):
        return max(1, round(value * by))
    return min(1.0, value * by) if share else value * by


def combined(
    residuals: Iterable[float], time_s: float, others: Iterable[Iterable[float]]
) -> Interval | None:
    """The interval of a time by residuals, and by what it is where something else is assumed.

    Parameters
    ----------
    residuals : iterable of float
        Measured over predicted times; with fewer than two they say nothing.
    time_s : float
    others : iterable of iterable of float
        Seconds, those together which rest on different values of the same thing.

    Returns
    -------
    Interval or None
        None if nothing is known of either.

    Examples
    --------
    >>> combined([], 2.0, [[1.8, 2.4]]), combined([], 1.0, [])
    (Interval(low=0.9, high=1.2), None)
    >>> combined([1.0, 1.0, 1.0], 1.0, [])
    Interval(low=1.0, high=1.0)
    """
    residuals = list(residuals)
    ends = [spread(residuals)] if len(residuals) > 1 else []
    for each in others:
        shares = [1.0, *(seconds / time_s for seconds in each)]
        ends += [(min(shares), max(shares))] if len(shares) > 1 else []
    if not ends:
        return None
    low, high = (hypot(*(log(pair[at]) for pair in ends)) for at in (0, 1))
    return Interval(exp(-low), exp(high))
