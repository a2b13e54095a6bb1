"""Compare records of drbench with other libraries, for the pages: those of the rounds of the sweeps
``libraries`` and ``placements``, or cases that are named ``round | shape | who | label``."""

import re
from collections.abc import Iterable, Mapping
from statistics import median
from typing import NamedTuple

from drbench.launch.libraries import LIBRARIES, ON_DRBENCH
from drbench.launch.sweeps.rounds import pool_records, round_of
from drbench.measure.decision import decide, is_noisy_run, over, seconds_of
from drbench.measure.noise import Ratio, ratio_of
from drbench.measure.record import Record
from drbench.partitions import PRESETS
from drbench.texts import layouts_text

#: DTensor itself, and DTensor executed by drbench.
STOCK, OURS = "dtensor", "dtensor+drbench"
_NAME = re.compile(r"^(\d+) \| (.+) \| (.+) \| (.+)")
_OF_SWEEP = re.compile(r"^\d+ \| [0-9a-f]{16}$")


class ContenderLine(NamedTuple):
    """A contender on a shape, over all its rounds; None means unknown.

    Attributes
    ----------
    shape, who, label : str
    median_s : float or None
        Over all repeats.
    ratio : Ratio
        Its time over that of the best library's default in the same round: the median over the
        rounds, and its 95 % interval (from six rounds on).
    reference : str or None
        The name of that library.
    best_ratio, best_reference
        The same for the best setting of any library.
    rounds : int
        The number of rounds in which it was ok.
    noisy : bool
        Whether most of its rounds are noisy.
    moved_bytes : int or None
        Total over all ranks in one multiplication.
    best : bool
        Whether it is the best setting of its library on this shape, of those that move bytes or do
        not report them: a multiplication that moves nothing is another problem.
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
    best: bool


#: The records of a contender by round.
Runs = Mapping[int, Record]


def compare_contenders(records) -> list[ContenderLine]:
    """One line per shape and contender, in the order of the records (a table of
    :func:`drbench.plots.select.records.read_records`, or Records); none for cases with other
    names."""
    from drbench.plots.select.records import frame, rows

    shapes: dict[str, dict[tuple[str, str], dict[int, Record]]] = {}
    for record in rows(frame(records)):
        if contender := contender_of(record):
            round_index, shape, *who = contender
            shapes.setdefault(shape, {}).setdefault(tuple(who), {})[round_index] = record
    return [line for shape, runs in shapes.items() for line in _lines(shape, runs)]


def contender_of(record: Record) -> tuple[int, str, str, str] | None:
    """The round, the shape, the library and its setting of a record; None for other cases.

    Examples
    --------
    >>> made = dict(mode="measured", status="ok", best_s=1.0, m=64, n=64, k=64, a="row", b="row")
    >>> contender_of(Record(**made, c="row", case="2 | 0123456789abcdef", algorithm="heat"))
    (1, '64 × 64 × 64', 'heat', 'row')
    """
    from drbench.plots.select.cases import configuration, shape_name

    if match := _NAME.match(record.case or ""):
        round_index, shape, who, label = match.groups()
        return int(round_index), shape, who, label
    if not _OF_SWEEP.match(record.case or ""):
        return None
    shape, who = shape_name((record.m, record.n, record.k)), record.algorithm
    if who not in LIBRARIES:
        label, who = record.preset or who, "drbench"
    elif record.block or record.options or not record.a:
        label = configuration(record) or "its own choice"
    else:
        texts = record.a, record.b, record.c
        presets = {preset.operands: name for name, preset in PRESETS.items()}
        label = presets.get(texts) or layouts_text(texts)
    return round_of(record.case), shape, who, label


def _lines(shape: str, runs: Mapping[tuple, Runs]) -> Iterable[ContenderLine]:
    ok = {
        who: {round_index: record for round_index, record in run.items() if record.status == "ok"}
        for who, run in runs.items()
    }
    libraries = [who for who in runs if who[0] not in ("drbench", *ON_DRBENCH)]
    defaults = {who[0]: who for who in reversed(libraries)}.values()
    moving = [who for who in runs if _moved(ok[who]) != 0]
    references = [_best_of(ok, defaults), _best_of(ok, [who for who in moving if who in libraries])]
    best = {_best_of(ok, [who for who in moving if who[0] == name]) for name, _ in moving}
    for who, mine in ok.items():
        compared = []
        for reference in references:
            ratios = over(seconds_of(mine), seconds_of(ok.get(reference, {})))
            compared += [ratio_of(ratios), " ".join(reference)] if ratios else [Ratio(None), None]
        samples = [time for record in mine.values() for time in record.samples_s or [record.time_s]]
        yield ContenderLine(
            shape,
            *who,
            median(samples) if samples else None,
            *compared,
            len(mine),
            is_noisy_run(mine.values()),
            _moved(mine),
            who in best,
        )


def _best_of(ok: Mapping[tuple, Runs], among: Iterable[tuple]) -> tuple:
    """The best of some contenders, an unreliable one only without another; empty without any."""
    timed = [who for who in among if ok[who]]
    decisions = zip(timed, decide([ok[who] for who in timed]))
    best = [(not decision.ranked, who) for who, decision in decisions if decision.best]
    return min(best)[1] if best else ()


def _moved(run: Runs) -> int | None:
    return next(
        (record.moved_bytes for record in run.values() if record.moved_bytes is not None), None
    )


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


def compare_placements(
    records: Iterable[Record], stock: str = STOCK, ours: str = OURS
) -> list[Placed]:
    """One line per multiplication by two contenders, from the records of all rounds."""
    multiplications: dict[tuple, dict[str, dict[int, Record]]] = {}
    for r in records:
        multiplication = multiplications.setdefault((r.m, r.n, r.k, r.a, r.b, r.c), {})
        multiplication.setdefault(r.algorithm, {})[round_of(r.case)] = r
    placed = []
    for (*_, a, b, c), runs in multiplications.items():
        if {stock, ours} <= runs.keys():
            both = runs[stock], runs[ours]
            pools, ratios = [pool_records(run.values()) for run in both], [None, None]
            if all(pool.status == "ok" for pool in pools):
                ratios = [ratio_of(over(*map(of, both))) for of in (seconds_of, _cpu_seconds_of)]
            placed.append(Placed((a, b, c), *pools, *ratios, min(map(len, both))))
    return placed


def _cpu_seconds_of(run: Runs) -> dict[int, float]:
    return {round_index: record.cpu_s for round_index, record in run.items()}
