"""Compare committed records of drbench with other libraries, for the pages: cases are named ``round
| shape | who | label``, or are those of the sweep ``placements``."""

import re
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import NamedTuple

from drbench.measure.noise import Ratio, ratio_of
from drbench.measure.record import Record
from launch.libraries import ON_DRBENCH
from launch.sweeps.rounds import fastest_of, over, pooled, round_of, seconds_of

#: DTensor itself, and DTensor executed by drbench.
STOCK, OURS = "dtensor", "dtensor+drbench"
_NAME = re.compile(r"^(\d+) \| (.+) \| (.+) \| (.+)")


class Line(NamedTuple):
    """A contender on a shape, over all its rounds; None means unknown.

    Attributes
    ----------
    shape, who, label : str
    median_s : float or None
        Over all repeats.
    ratio : Ratio
        Its time over that of the best library's default in the same round: the median over the
        rounds, and its 95 % interval (from six rounds on). The best library's default is the one
        with the smallest median time on this shape.
    reference : str or None
        The name of that library.
    best_ratio, best_reference
        The same for the fastest setting of any library that was run in every round.
    rounds : int
        The number of rounds in which it was ok.
    noisy : bool
        Whether most of its rounds are noisy.
    moved_bytes : int or None
        Total over all ranks in one multiplication.
    """

    shape: str
    who: str
    label: str
    median_s: float | None
    ratio: Ratio
    reference: str | None
    best_ratio: Ratio
    best_reference: str | None
    rounds: int
    noisy: bool
    moved_bytes: int | None


#: The records of a contender by round.
Runs = Mapping[int, Record]


def lines(records) -> list[Line]:
    """One line per shape and contender, in the order of the records (a table of
    :func:`plots.select.records.read_records`, or Records); none for cases with other names."""
    from plots.select.records import frame, rows

    shapes: dict[str, dict[tuple[str, str], dict[int, Record]]] = {}
    for record in rows(frame(records)):
        if found := _NAME.match(record.case or ""):
            round_index, shape, *who = found.groups()
            shapes.setdefault(shape, {}).setdefault(tuple(who), {})[int(round_index)] = record
    return [line for shape, runs in shapes.items() for line in _lines(shape, runs)]


def _lines(shape: str, runs: Mapping[tuple, Runs]) -> Iterable[Line]:
    ok = {
        who: {round_index: each for round_index, each in run.items() if each.status == "ok"}
        for who, run in runs.items()
    }
    most = max(map(len, ok.values()))
    libraries = [who for who in runs if who[0] not in ("drbench", *ON_DRBENCH)]
    defaults = {who[0]: who for who in reversed(libraries)}.values()
    moving = [who for who in libraries if len(ok[who]) == most and _moved(ok[who]) != 0]
    times = {
        who: {round_index: each.time_s for round_index, each in run.items()}
        for who, run in ok.items()
        if run
    }
    among = ({who: times[who] for who in chosen if who in times} for chosen in (defaults, moving))
    references = [fastest_of(each) if each else () for each in among]
    for who, mine in ok.items():
        compared = []
        for reference in references:
            ratios = over(times.get(who, {}), times.get(reference, {}))
            compared += [ratio_of(ratios), " ".join(reference)] if ratios else [Ratio(None), None]
        samples = [time for each in mine.values() for time in each.samples_s or [each.time_s]]
        yield Line(
            shape,
            *who,
            median(samples) if samples else None,
            *compared,
            len(mine),
            2 * sum(bool(each.noisy) for each in mine.values()) > len(mine),
            _moved(mine),
        )


def _moved(run: Runs) -> int | None:
    return next((each.moved_bytes for each in run.values() if each.moved_bytes is not None), None)


def best_settings(found: Sequence[Line]) -> list[Line]:
    """For each shape and library the setting with the smallest median time, among those that move
    bytes or do not report them; a noisy one only if there is no other; only those that were run in
    every round, if there are several.

    A partitioning that moves no bytes (with a replicated operand) is another problem, and is not
    compared.
    """
    groups: dict[tuple, list[Line]] = {}
    for line in found:
        if line.median_s is not None and line.moved_bytes != 0:
            groups.setdefault((line.shape, line.who), []).append(line)
    best = []
    for each in groups.values():
        whole = [line for line in each if line.rounds == max(other.rounds for other in each)]
        competing = whole if len(whole) > 1 else each
        best.append(min(competing, key=lambda line: (line.noisy, line.median_s)))
    return best


class Placed(NamedTuple):
    """A multiplication of DTensors by torch and by drbench.

    Attributes
    ----------
    placements : (str, str, str)
    stock, ours : Record
        Over all rounds.
    time, cpu : Ratio or None
        Stock over drbench, paired in rounds: above 1 drbench is faster, or uses less CPU time.
    rounds : int
    """

    placements: tuple
    stock: Record
    ours: Record
    time: Ratio | None
    cpu: Ratio | None
    rounds: int


def placement_lines(records: Iterable[Record]) -> list[Placed]:
    """One line per multiplication, from the records of all rounds."""
    multiplications: dict[tuple, dict[str, dict[int, Record]]] = {}
    for r in records:
        multiplication = multiplications.setdefault((r.m, r.n, r.k, r.a, r.b, r.c), {})
        multiplication.setdefault(r.algorithm, {})[round_of(r.case)] = r
    found = []
    for (*_, a, b, c), runs in multiplications.items():
        if {STOCK, OURS} <= runs.keys():
            both = runs[STOCK], runs[OURS]
            pools, ratios = [pooled(run.values()) for run in both], [None, None]
            if all(pool.status == "ok" for pool in pools):
                ratios = [ratio_of(over(*map(of, both))) for of in (seconds_of, _cpu_seconds_of)]
            found.append(Placed((a, b, c), *pools, *ratios, min(map(len, both))))
    return found


def _cpu_seconds_of(run: Runs) -> dict[int, float]:
    return {round_index: record.cpu_s for round_index, record in run.items()}
