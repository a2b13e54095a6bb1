"""The tables of ``drbench peers``, from records alone."""

from __future__ import annotations

import statistics
from collections import defaultdict
from dataclasses import dataclass

from drbench.measure.record import Record

from .peer_bench import PARTITIONINGS, case_name

__all__ = ["Line", "best_settings", "libraries", "lines", "summary", "table_rows"]

_HEADER = (
    "shape",
    "who",
    "setting",
    "best",
    "median",
    "GFLOP/s",
    "of its own roof",
    "of drbench's roof",
    "note",
)


@dataclass(frozen=True)
class Line:
    """One contender on one shape, over all rounds.

    Attributes
    ----------
    best_s, median_s : float or None
        Over all repeats of all rounds; None if no round was ok.
    gflops : float or None
        Of the best repeat.
    own_roof, own_low, own_high : float or None
        Percent of the roof of its own BLAS: the median of the rounds' medians, and the range of all
        pairs.
    roof : float or None
        Percent of drbench's roof in the same round (median repeat), median over the rounds.
    own_gflops : float or None
        The roof of its own BLAS, all ranks together.
    moved : int or None
        Bytes moved by all ranks in one multiplication; None if not told.
    reason : str
        Why there is nothing else.
    """

    shape: str
    who: str
    label: str
    best_s: float | None = None
    median_s: float | None = None
    gflops: float | None = None
    own_roof: float | None = None
    own_low: float | None = None
    own_high: float | None = None
    roof: float | None = None
    own_gflops: float | None = None
    moved: int | None = None
    blas: str = ""
    threads: int | None = None
    reason: str = ""


def lines(records: list[Record]) -> list[Line]:
    """One line for each shape and contender, in the order of the records."""
    groups, roofs = defaultdict(list), defaultdict(list)
    for record in records:
        name = case_name(record)
        if name is None:
            continue
        turn, shape, who, label = name
        groups[shape, who, label].append((turn, record))
        if who == "drbench" and record.roof_gflops:
            roofs[turn, shape].append(record.roof_gflops)
    return [_line(shape, who, label, group, roofs) for (shape, who, label), group in groups.items()]


def _line(shape, who, label, group, roofs) -> Line:
    ok = [(turn, record) for turn, record in group if record.status == "ok"]
    if not ok:
        last = group[-1][1]
        return Line(shape, who, label, reason=f"{last.status}: {last.reason}")
    samples = [sample for _, record in ok for sample in record.samples_s]
    first = ok[0][1]
    flops = 2 * first.m * first.n * first.k
    own = [record for _, record in ok if record.percent_of_roof is not None]
    ratios = [
        100 * flops / record.median_s / 1e9 / statistics.median(roofs[turn, shape])
        for turn, record in ok
        if roofs.get((turn, shape))
    ]
    counts = [
        getattr(first, f"{kind}_bytes")
        for kind in ("get", "direct", "put", "accumulate", "collective", "replica")
    ]
    failed = [record for _, record in group if record.status != "ok"]
    return Line(
        shape,
        who,
        label,
        min(samples),
        statistics.median(samples),
        flops / min(samples) / 1e9,
        statistics.median(record.percent_of_roof for record in own) if own else None,
        min((record.percent_of_roof_min for record in own), default=None),
        max((record.percent_of_roof_max for record in own), default=None),
        statistics.median(ratios) if ratios else None,
        statistics.median(record.roof_gflops for record in own) if own else None,
        sum(count or 0 for count in counts) if any(count is not None for count in counts) else None,
        f"{first.blas or ''} {first.blas_kernel or ''}".strip(),
        first.threads,
        f"{len(failed)} of {len(group)} rounds: {failed[0].status}: {failed[0].reason}"
        if failed
        else "",
    )


def table_rows(chosen: list[Line]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Header and cells: shape, who, setting, times, rate and ratios as text."""
    rows = []
    for line in chosen:
        if line.best_s is None:
            rows.append((line.shape, line.who, line.label, *[""] * 5, line.reason))
            continue
        own = (
            f"{line.own_roof:.1f} % ({line.own_low:.0f}-{line.own_high:.0f})"
            if line.own_roof is not None
            else "unknown"
        )
        rows.append(
            (
                line.shape,
                line.who,
                line.label,
                f"{1000 * line.best_s:.4g} ms",
                f"{1000 * line.median_s:.4g} ms",
                f"{line.gflops:.4g}",
                own,
                f"{line.roof:.1f} %" if line.roof is not None else "",
                "; ".join(filter(None, (line.reason, "moves nothing" if line.moved == 0 else ""))),
            )
        )
    return _HEADER, rows


def libraries(found: list[Line]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Who multiplies locally with which BLAS and kernels, on how many threads, and how fast that is
    alone: the largest roof of all shapes."""
    groups: dict[tuple[str, str, int | None], list[float]] = {}
    for line in found:
        if line.best_s is not None:
            roofs = groups.setdefault((line.who, line.blas, line.threads), [])
            roofs += [line.own_gflops] if line.own_gflops else []
    rows = [
        (who, blas, str(threads), f"{max(roofs):.4g}" if roofs else "unknown")
        for (who, blas, threads), roofs in groups.items()
    ]
    return ("who", "BLAS and kernels", "threads a rank", "largest roof, GFLOP/s"), rows


def best_settings(found: list[Line]) -> list[Line]:
    """For each shape and library the setting with the smallest median, of those that are known to
    move something or do not tell.

    A partitioning that moves no bytes (an operand already everywhere) is another problem, and
    competes with nobody.
    """
    best: dict[tuple[str, str], Line] = {}
    for line in found:
        if line.median_s is None or line.moved == 0:
            continue
        key = line.shape, line.who
        if key not in best or line.median_s < best[key].median_s:
            best[key] = line
    return list(best.values())


def summary(found: list[Line]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """For each shape: drbench's best, median and worst of its five partitionings, the first setting
    of each peer, and which of these are as fast as drbench's median partitioning or faster.

    Cells are percent of drbench's roof, and of the contender's own roof; partitionings are ordered
    by their median time.
    """
    shapes = list(dict.fromkeys(line.shape for line in found))
    whos = [who for who in dict.fromkeys(line.who for line in found) if who != "drbench"]
    header = (
        "shape",
        "drbench best",
        "drbench median of five",
        "drbench worst",
        *whos,
        "ahead of the median",
    )
    rows = []
    for shape in shapes:
        five = sorted(
            (
                line
                for line in found
                if (line.shape, line.who) == (shape, "drbench")
                and line.label in PARTITIONINGS
                and line.median_s
            ),
            key=lambda line: line.median_s,
        )
        middle = five[len(five) // 2] if five else None
        cells, ahead = (
            [_cell(five[0], True), _cell(middle), _cell(five[-1], True)] if five else [""] * 3,
            [],
        )
        for who in whos:
            first = next((line for line in found if (line.shape, line.who) == (shape, who)), None)
            cells.append(_cell(first, True) if first else "")
            if (
                first
                and middle
                and first.median_s is not None
                and first.median_s <= middle.median_s
            ):
                ahead.append(who)
        rows.append((shape, *cells, ", ".join(ahead) or "nobody"))
    return header, rows


def _cell(line: Line, named: bool = False) -> str:
    if line.median_s is None:
        return line.reason.partition(":")[0]
    roof = f"{line.roof:.1f} %" if line.roof is not None else "?"
    own = (
        f", own {line.own_roof:.1f} %"
        if line.own_roof is not None and line.who != "drbench"
        else ""
    )
    return roof + own + (f" ({line.label})" if named else "")
