"""The interval of a prediction: it contains the time of a run in 95 of 100 cases.

It combines three sources of error as independent ones:

- **residuals**: measured over predicted times of whole programs, from the machine file
  (``[model.residuals]``, measured by ``drbench calibrate``), or for models of published constants
  published over predicted times (:data:`PUBLISHED`);
- **assumed constants** (``assumed`` in the file), and the kernels and collectives that were held
  against measurements (``intervals``): the case is predicted again with all of them at their faster
  end, and with all at their slower: assumed seconds and elements by :data:`GUESSED`, rates and
  shares by :data:`RATED`, unless the file has factors. This is wider than with independent errors,
  and needs two simulations instead of two per constant;
- **arbitration**: a model with assumed constants also predicts the case under the other rule of
  sharing a busy link.
"""

from collections.abc import Iterable
from functools import partial
from itertools import chain
from math import exp, hypot, log
from typing import NamedTuple

from drbench.mappings import remembered
from drbench.model.fit import spread
from drbench.model.machine import ARBITRATIONS, Machine
from drbench.transport import parse_transport

#: Factor by which assumed seconds and elements may be too large or small: on h100x8 a launch was
#: three times as long as assumed, the ramp along k as assumed, and there was no edge effect.
GUESSED = 2.0
#: The same for rates and shares, from data sheets or measurements elsewhere: the sustained rate of
#: h100x8 was 1.08 times the assumed one.
RATED = 1.1
#: Residuals of a model of published constants without its own: published over predicted times of
#: DTensor on h100x8, to which only the level of the constants was fitted.
PUBLISHED = (
    *(0.992, 1.009, 0.979, 0.981, 1.038, 0.988, 0.997, 0.958),
    *(0.989, 0.990, 0.994, 1.038, 0.955, 1.001, 0.996, 1.028),
)
_RATES, _SHARES = ("_per_s", "_flops", "_share"), ("_efficiency", "sustained")


class FactorInterval(NamedTuple):
    """Factors of the predicted time.

    Attributes
    ----------
    low, high : float
        ``low <= 1 <= high``.
    """

    low: float
    high: float


def residuals_of(machine: Machine, transport: str) -> list[float]:
    """The best residuals of a machine for a transport: its own, else those of ``any``, else those
    of all others together, or, if constants are assumed, :data:`PUBLISHED`.

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
    ratios = known.get(kind) or known.get("any") or [*chain.from_iterable(known.values())]
    return ratios or ([*PUBLISHED] if machine.assumed else [])


def vary_assumed(machine: Machine) -> list[Machine]:
    """The machine with all assumed constants and measured times at their faster end, and with all
    at their slower one; none if it has neither.

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
    >>> [
    ...     (end.fence_s, end.packets, round(end.compute.sustained, 3))
    ...     for end in vary_assumed(machine)
    ... ]
    [(0.5, 2, 1.0), (2.0, 6, 0.864)]
    """
    fitted = machine.sources and machine.at_end("low") != machine  # not made without a file
    if not machine.assumed and not fitted:
        return []
    return [_vary(machine, slower) for slower in (False, True)]


def swap_arbitration(machine: Machine) -> list[Machine]:
    """The machine with the other rule of sharing links, if constants are assumed: calibrated
    residuals include this error.

    Examples
    --------
    >>> from drbench.launch.cases.machine_models import find_machine
    >>> [other.arbitration for other in swap_arbitration(find_machine("h100x8,arbitration=fifo"))]
    ['fair']
    """
    others = [rule for rule in ARBITRATIONS if rule != machine.arbitration]
    return [machine.with_value("arbitration", rule) for rule in others if machine.assumed]


def alternatives(machine: Machine) -> tuple[list[Machine], list[Machine]]:
    """Alternatives of a machine: with other constants, and with the other rule of sharing links.
    They are made once for each machine."""
    make = lambda: (vary_assumed(machine), swap_arbitration(machine))
    return remembered(machine.known, "alternatives", make)


def _vary(machine: Machine, slower: bool) -> Machine:
    values = {}
    for path in machine.assumed:
        share = path.endswith(_SHARES)
        rate = share or path.endswith(_RATES)
        by = machine.factors.get(path) or (RATED if rate else GUESSED)
        values[path] = partial(_scale, by=by if slower != rate else 1 / by, share=share)
    return machine.with_values(values).at_end("high" if slower else "low")


def _scale(value: float, by: float, share: bool) -> float:
    if isinstance(value, int):
        return max(1, round(value * by)) if value else 0
    return min(1.0, value * by) if share else value * by


def combine_errors(
    residuals: Iterable[float], time_s: float, others: Iterable[Iterable[float]]
) -> FactorInterval | None:
    """The interval of a time from residuals and from times under other assumptions.

    Parameters
    ----------
    residuals : iterable of float
        Measured over predicted times; fewer than two are ignored.
    time_s : float
    others : iterable of iterable of float
        Seconds, grouped by the assumption that was changed.

    Returns
    -------
    FactorInterval or None
        None without any of them.

    Examples
    --------
    >>> combine_errors([], 2.0, [[1.8, 2.4]]), combine_errors([], 1.0, [])
    (FactorInterval(low=0.9, high=1.2), None)
    >>> combine_errors([1.0, 1.0, 1.0], 1.0, [])
    FactorInterval(low=1.0, high=1.0)
    """
    residuals = list(residuals)
    ends = [spread(residuals)] if len(residuals) > 1 else []
    for times in filter(None, map(list, others)):
        shares = [1.0, *(seconds / time_s for seconds in times)]
        ends.append((min(shares), max(shares)))
    if not ends:
        return None
    low, high = (hypot(*map(log, side)) for side in zip(*ends))
    return FactorInterval(exp(-low), exp(high))
