"""What to do with the layouts one has: the best algorithm for them, and whether another layout pays
for the redistribution."""

from dataclasses import dataclass, replace
from math import ceil
from typing import NamedTuple

from drbench.errors import OutOfMemory
from drbench.model.machine import Machine
from launch.cases.case import bound
from launch.cases.peaks import Peaks, with_peak
from launch.host.environment import processor_name

from .candidates import TuneRequest
from .tune import Place, beyond_interval, tune


@dataclass(frozen=True)
class Advice:
    """What :func:`advise` found.

    Attributes
    ----------
    mine : Place or None
        The best on the layouts of today; None if none were named, or nothing fits the memory there.
    better : Place or None
        The best on other layouts, the redistribution being shared by the products asked for; None
        if none is better.
    why_not : str
        Why there is no ``mine``.
    gap : float
        How much better than the answer what was not searched could be, at most, where that is more
        than its interval; else 0.
    """

    mine: Place | None
    better: Place | None
    why_not: str = ""
    gap: float = 0.0

    @property
    def times_better(self) -> float | None:
        """How many times as fast the other layout is, or how many times fewer bytes its busiest
        rank moves; None if it moves none, or there is nothing to compare."""
        if self.mine is None or self.better is None:
            return None
        mine, other = cost(self.mine), cost(self.better)
        return mine / other if other else None

    @property
    def pays_after(self) -> int | None:
        """Products after which the redistribution has paid, in time or in bytes of the busiest
        rank; None if it never does."""
        if self.mine is None or self.better is None:
            return None
        gain, moving = cost(self.mine) - cost(self.better), self.better.moving
        price = moving.busiest_bytes if moving.seconds is None else moving.seconds
        return max(1, ceil(price / gain)) if gain > 0 else None


class Sure(NamedTuple):
    """How far an answer can be trusted: ``counted``, ``calibrated``, ``beyond`` (what was not
    calibrated: more ranks, other products or messages), ``elsewhere`` (calibrated on another
    processor) or ``published`` (a model made of published constants), and why in words."""

    level: str
    text: str


def cost(place: Place) -> float:
    """Seconds, or without a model bytes that the busiest rank sends or receives."""
    return place.loads.busiest_bytes if place.record is None else place.record.best_s


def advise(
    request: TuneRequest, machine: Machine | None = None, peaks: Peaks | None = None
) -> Advice:
    """The best for the layouts of today, ``request.today``, and the best of all layouts once A and
    B are brought there, and C back, for ``request.products`` products.

    Raises
    ------
    UsageError
        If the request makes no sense.
    OutOfMemory
        If nothing fits the memory on any layout.
    UnsupportedError
        If no algorithm of the request takes any layout.

    Examples
    --------
    Everything by rows, with 1000 products to come: A everywhere is worth it.

    >>> from launch.cases.case import Case
    >>> case = Case(512, 512, 512)
    >>> found = advise(TuneRequest(case, 4, today=("row", "row", "row"), products=1000))
    >>> found.mine.loads.busiest_bytes, found.better.loads.busiest_bytes, found.pays_after
    (786432, 0, 1)
    """
    a, b, c = request.today
    request = replace(request, top=1)
    mine, why_not = None, "no layouts were named"
    if any(request.today):
        fixed = replace(request.case, a=a, b=b, c=c)
        try:
            mine = tune(replace(request, case=fixed, today=(None,) * 3), machine).ranking[0]
        except OutOfMemory as error:
            why_not = str(error)
    found = tune(request, machine)
    better = found.ranking[0]
    gap = found.gap if found.left and beyond_interval(found) else 0.0
    if mine is not None and not (
        cost(better) < cost(mine) and _partitions(better, request) != _partitions(mine, request)
    ):
        better = None
    mine, better = (place and _with_peak(place, machine, peaks) for place in (mine, better))
    return Advice(mine, better, "" if mine else why_not, gap)


def _partitions(place: Place, request: TuneRequest) -> list:
    _, problem, _ = bound(place.case, request.ranks)
    return [operand.stored for operand in problem.operands]


def _with_peak(place: Place, machine: Machine | None, peaks: Peaks | None) -> Place:
    """A place whose record has percent of the peak of a machine file, as far as it is known."""
    if place.record is None or not peaks or place.record.percent_of_peak is not None:
        return place
    cores = {"backend": "numpy", "threads": machine.calibrated.get("threads")}
    found = with_peak(replace(place.record, **cores), peaks)
    percent = {"percent_of_peak": found.percent_of_peak}
    told = {"peak_gflops": found.peak_gflops, "peak_source": found.peak_source}
    return replace(place, record=replace(place.record, **percent, **told))


def how_sure(machine: Machine | None, ranks: int, needed: str | None = None) -> Sure:
    """How far predictions on a machine can be trusted for so many ranks; ``needed`` is what of
    them was beyond its calibration, in words (:func:`~launch.models.beyond.beyond`).

    Examples
    --------
    >>> from launch.cases.machine_models import find_machine
    >>> how_sure(None, 4).level, how_sure(find_machine("h100x8"), 4).level
    ('counted', 'published')
    """
    if machine is None:
        return Sure(
            "counted",
            "bytes and FLOPs are counted exactly; what they cost is not known without a machine "
            "model",
        )
    known = machine.calibrated
    if not known and not machine.compute.peak_measured:
        count = len(machine.assumed)
        return Sure(
            "published",
            f"{machine.name} is a model made of published constants, {count} of them assumed; it "
            "was not measured here",
        )
    on = f" on {known['ranks']} ranks" if "ranks" in known else ""
    when = f"calibrated{on}, {known['date']}" if known else "calibrated"
    if needed:
        needed = f"beyond that are {needed}"
    if known.get("processor", processor_name()) != processor_name():
        told = f"{when}, on another processor ({known['processor']})"
        if machine.assumed:
            told += f"; {len(machine.assumed)} constants are assumed"
        return Sure("elsewhere", f"{told}; {needed}" if needed else told)
    if not on:
        return Sure("beyond", "calibrated, but the file does not say on how many ranks")
    if ranks > known["ranks"]:
        return Sure("beyond", f"{when}: {needed or f'{ranks} ranks are beyond that'}")
    return (
        Sure("beyond", f"{when}: {needed}")
        if needed
        else Sure("calibrated", f"{when}, on this processor")
    )
