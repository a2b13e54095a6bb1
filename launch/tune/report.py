"""The answer of a search in words: the cost of the current layouts, the best, and whether changing
pays."""

from dataclasses import replace

from drbench.launch.cases.case import case_keys
from drbench.launch.cases.command_line import describe
from drbench.launch.host.show import predicted_text
from drbench.measure.record import Record
from drbench.texts import bytes_text, layouts_text, plural, time_text

from .request import TuneRequest
from .result import Moving, Place, SearchResult

#: The largest optimality gap that helps to decide.
_TELLING = 0.25
#: The linear layers of Megatron's sequence-parallel MLP, by strategy and layouts of A, B and C.
_MEGATRON = {
    ("columns", ("row", "column", "column")): "column-parallel",
    ("partial", ("column", "row", "row")): "row-parallel",
}


def name_of(place: Place) -> str:
    """The algorithm and options of a place, in short.

    Examples
    --------
    >>> from drbench.launch.cases.case import Case
    >>> case = Case(8, 8, 8, c="R", options={"stationary": "C", "replicate_result": True})
    >>> name_of(Place(case, 0, Moving(), ("row", "column", "R")))
    'universal S-C'
    """
    record, layer = place.record, None
    if place.case.algorithm == "dtensor_mm":
        layer = _MEGATRON.get((place.case.options.get("strategy"), place.layouts))
    if record is None:
        options = place.case.options | {"replicate_result": None}
        keys = case_keys(replace(place.case, options=options))
        record = Record(**keys, mode="simulated", status="failed", reason="-")
    return describe(record) + (f" (Megatron {layer})" if layer else "")


def redistribution_text(moving: Moving) -> str:
    """The time of the redistribution to a place, and the bytes that it moves."""
    time = "" if moving.seconds is None else f"{time_text(moving.seconds)}, "
    return f"{time}{bytes_text(moving.moved_bytes)}"


def answer(result: SearchResult, request: TuneRequest) -> list[str]:
    """The lines of the answer: the cost of the current layouts, the best, and after how many
    multiplications changing pays."""
    best, lines, today = result.ranking[0], [], any(request.today)
    if result.mine:
        lines.append(f"You:  {_costs(result.mine)}.")
    elif result.why_not:
        lines.append(f"You:  {result.why_not}")
    ends = []
    if times := result.times_better:
        ends.append(f"{times:.2f} times {'as fast' if best.record else 'fewer bytes'}")
    if near := result.within(request.multiplications):
        least = "at least " * (len(near) + 1 == len(result.ranking) == request.top)
        ends.append(f"tied with {least}{plural(len(near), 'other')}")
    if unknown := tell_doubt(result):
        ends.append(unknown)
    if result.mine and not result.better:
        within = plural(request.multiplications, "multiplication")
        doubt = f" ({unknown})" if unknown else ""
        lines.append(f"Keep them: no change pays within {within}{doubt}.")
    else:
        by = "" if best.record else " by bytes"
        lines.append(f"Best{by}: {_costs(best)}{''.join(f'; {end}' for end in ends)}.")
    if result.why_not or result.better:
        lines.append(_price(result, request))
    elif not today:
        lines.append("Give your layouts (--a, --b, --c or --preset) to see whether changing pays.")
    return lines


def _costs(place: Place) -> str:
    """The layouts of a place, its cost, and its program."""
    named, record, counts = layouts_text(place.layouts), place.record, place.counts
    if record is not None:
        percent = f"{record.percent_of_gemm_only:.0f} % of GEMM-only speed"
        return f"{named}: {predicted_text(record)} predicted, {percent}, {name_of(place)}"
    moves = bytes_text(counts.loads.busiest_bytes)
    uneven = f", one rank has {counts.share:.2f} times its share of the work"
    work = "" if round(counts.share, 2) <= 1 else uneven
    return f"{named}: at most {moves} in or out of a rank{work}, {name_of(place)}"


def _price(result: SearchResult, request: TuneRequest) -> str:
    """The cost of redistributing the matrices to the first place, and when that pays."""
    best, after = result.ranking[0], result.pays_after
    moving, today = best.moving, zip("ABC", request.today, best.layouts)
    changed = [name for name, mine, its in today if mine and mine != its]
    inputs = " and ".join(name for name in changed if name != "C")
    parts = [inputs] * bool(inputs) + ["C back"] * ("C" in changed)
    what = f"redistributing {', and '.join(parts) or 'nothing'}, once"
    if not moving.moved_bytes:
        return f"Changing is free: {what} moves nothing."
    cost = redistribution_text(moving)
    if moving.seconds is None:
        cost = f"{bytes_text(moving.busiest_bytes)} in or out of a rank, {cost} in all"
    price = f"Changing costs {cost} ({what})"
    if after is None:
        return f"{price}."
    first = result.ranking[0].record
    if first and first.median_high_s and result.mine.cost <= first.median_high_s:
        return f"{price}, and gains less than the model's error."
    by = "" if moving.seconds is not None else ", by bytes of the busiest rank"
    return f"{price}: it pays after {plural(after, 'multiplication')}{by}."


def tell_doubt(result: SearchResult) -> str:
    """What is not known about the first place, in words: the optimality gap where it is small, or
    that the effort ended; empty if everything was searched, or if the gap is within the interval of
    the first.

    Examples
    --------
    >>> record = Record(mode="simulated", status="ok", best_s=1.0, median_low_s=0.95)
    >>> ranking = [Place(None, 0, Moving(), (), record)]
    >>> for gap in (0.04, 0.2, 5.0):
    ...     print(tell_doubt(SearchResult(ranking, left=9, gap=gap)))
    <BLANKLINE>
    optimality gap at most 20 % in this model
    effort exhausted, so others may be better
    """
    if not result.in_doubt:
        return ""
    if result.gap <= _TELLING:
        return f"optimality gap at most {100 * result.gap:.0f} % in this model"
    return "effort exhausted, so others may be better"
