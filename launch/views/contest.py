"""Compare contenders by ratios of times of the same round: algorithms on the same tiles, or drbench
and libraries on the same problem."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from drbench.measure.noise import doubts
from drbench.measure.record import Record, by_balance
from launch.cases.peaks import arithmetic
from launch.host.units import plural, seconds
from launch.libraries import LIBRARIES, ON_DRBENCH
from launch.sweeps.rounds import RankedCase, pooled, rank_cases

from .tables import Column, Table, layout, name_of

_PHASES = ("get_wait", "collective_wait", "gemm", "accumulate", "fence", "pack")
#: Most contenders named as no slower than the fastest, and most cases named without a time.
_SHOWN = 6


def contest_tables(
    runs: Sequence[Mapping[int, Record]], tiles: bool, compared: bool = True
) -> list[Table]:
    """A table for each problem, or with ``tiles`` for each problem and layout: the smallest ratio
    to the fastest first, noisy ones last.

    A case that moves nothing is another problem, unless the tiles are the same, and is not
    compared. Without ``compared`` the records are only listed, one per run.
    """
    from plots.select.cases import form

    groups: dict[tuple, list[Mapping[int, Record]]] = {}
    for run in filter(None, runs):
        first = next(iter(run.values()))
        multiplication = " ".join(filter(None, (f"{first.m}x{first.n}x{first.k}", form(first))))
        elements = arithmetic(str(first.dtype), first.compute)
        at = f"{multiplication} {elements}, {plural(first.ranks, 'rank')}"
        where = ", ".join(map(" ".join, zip("ABC", layout(first))))
        groups.setdefault(f"{at}: {where}" if tiles else at, []).append(run)
    found, without = [], []
    for at, group in groups.items():
        every = [record for run in group for record in run.values()]
        ranked = _ranked(group, tiles) if compared else list(map(RankedCase, every))
        failed = [each.record for each in ranked if each.record.status != "ok"]
        without += [f"{name_of(each, tiles)}: {each.status}: {each.reason}" for each in failed]
        timed = sorted((each for each in ranked if each.record.status == "ok"), key=_order)
        if timed:
            mixed = len({each.record.dtype for each in timed}) > 1
            rows = [_row(each, tiles, mixed) for each in timed]
            lines = _verdict(timed, tiles) if compared else []
            found.append(Table(at, _COLUMNS if compared else _LISTED, rows, lines))
    if without and found:
        found[-1].lines.extend(_some(without, "{} more that did not run: see the records"))
    return found


def _some(words: list[str], more: str) -> list[str]:
    """The first of some words, and the number of the others."""
    left = len(words) - _SHOWN
    return words[:_SHOWN] + [more.format(left)] * (left > 0)


def _ranked(group: Sequence[Mapping[int, Record]], tiles: bool) -> list[RankedCase]:
    """Rank the cases that are compared. A noisy one is not the fastest, unless the pairs of the
    rounds distinguish it from all others."""
    moves = [tiles or not _moves_nothing(next(iter(run.values()))) for run in group]
    competing = iter(rank_cases([run for run, moving in zip(group, moves) if moving]))
    found = [
        next(competing) if moving else RankedCase(pooled(run.values()))
        for run, moving in zip(group, moves)
    ]
    timed = [each for each in found if each.ratio]
    apart = [each.ratio.apart for each in timed if not each.fastest]
    noisy = any(each.fastest and each.record.noisy for each in timed)
    if noisy and not (apart and all(apart)):
        return [replace(each, fastest=False) for each in found]
    return found


def _moves_nothing(record: Record) -> bool:
    return record.moved_bytes == 0 and (record.ranks or 1) > 1


def _order(entry: RankedCase) -> tuple:
    record, ratio = entry.record, entry.ratio
    size = ratio.middle if ratio else record.time_s
    return ratio is None, not entry.fastest, bool(record.noisy), size


def _row(entry: RankedCase, tiles: bool, mixed: bool) -> dict:
    """A row of the table; ``mixed`` marks the type of C, which differs between contenders."""
    record, ratio = entry.record, entry.ratio
    roof = record.percent_of_roof if not record.oversubscribed else None
    marks, where = doubts(record), layout(record)
    if mixed:
        marks = [f"C in {str(record.dtype).rpartition(':')[2]}", *marks]
    if not tiles and _moves_nothing(record):
        marks = ["moves nothing", *marks]
    text = str(entry)
    if record.mode == "simulated" and ratio and not entry.fastest:
        text = str(ratio)  # one pair, without noise
    return {
        "contender": name_of(record, tiles),
        "median_s": record.time_s,
        **entry.to_json_dict(),
        "to_the_fastest": text or None,
        "percent_of_roof": roof,
        "roof": None if roof is None else f"{roof:.1f}{by_balance(record)}",
        "layout": ", ".join(dict.fromkeys(where) if len({*where}) == 1 else where),
        "how": name_of(record, True),
        "gflops": record.gflops,
        "transport": record.transport,
        "moved_bytes": record.moved_bytes,
        "in_doubt": ", ".join(marks) or None,
        **{f"{name}_s": getattr(record, f"phase_{name}_s") for name in _PHASES},
        "blas": record.blas,
    }


_COLUMNS = (
    Column("contender", "~"),
    Column("median_s", ">median", lambda row: seconds(row["median_s"])),
    Column("in_doubt", "~in doubt"),
    Column("to_the_fastest", ">~to the fastest"),
    Column("roof", ">% of roof"),
    Column("moved_bytes", ">moved MiB", lambda row: f"{row['moved_bytes'] / 2**20:.1f}"),
)
_LISTED = (
    _COLUMNS[1]._replace(heading=">time"),
    _COLUMNS[2],
    Column("roof", ">% of roof"),
    Column("layout", "~A, B, C"),
    Column("how", "~algorithm"),
    Column("gflops", ">GFLOP/s", lambda row: f"{row['gflops']:.4g}"),
    _COLUMNS[-1],
    Column("transport", "transport"),
)


def _verdict(ranked: Sequence[RankedCase], tiles: bool) -> list[str]:
    """Lines with the fastest and those not distinguishable from it; with drbench and libraries also
    the ratio of the best of the other side."""
    timed = [each for each in ranked if each.ratio]
    if not timed:
        return []
    if not any(each.fastest for each in timed):
        return ["the first is noisy and not distinguishable: no fastest one"]
    first, *others = timed
    alike = [
        each
        for each in others
        if not (each.ratio.apart or each.given_up or each.record.mode == "simulated")
    ]
    names = [name_of(each.record, tiles) for each in alike]
    more = f"; not distinguishable from it: {', '.join(_some(names, '{} more'))}" if names else ""
    lines = [f"fastest: {name_of(first.record, tiles)}{more}"]
    ours = lambda each: each.record.algorithm not in LIBRARIES
    rivals = [
        each
        for each in others
        if ours(each) != ours(first) and each.record.algorithm not in ON_DRBENCH
    ]
    if rivals and not tiles and first.record.algorithm not in ON_DRBENCH:
        whose = "drbench's" if ours(rivals[0]) else "the libraries'"
        ratio = rivals[0].ratio if first.record.mode == "simulated" else rivals[0]
        lines.append(
            f"{whose} fastest, {name_of(rivals[0].record, tiles)}, takes {ratio} of its time"
        )
    return lines
