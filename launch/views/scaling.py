"""Speed-up and efficiency over numbers of ranks, each round compared with the same round of the
fewest ranks."""

from collections.abc import Mapping, Sequence
from statistics import median

from drbench.launch.host.show import predicted_text
from drbench.launch.sweeps.rounds import pool_records
from drbench.measure.decision import over
from drbench.measure.noise import doubts, median_interval
from drbench.measure.record import Record, by_balance
from drbench.texts import number, plural, time_text

from .tables import Column, Table, find_varying, name_of

#: Middle, low and high.
_SPREAD = ("", "_low", "_high")
_AS_RECORDED = "ranks m n k time_s percent_of_gemm_only percent_of_peak".split()


def scaling_tables(runs: Sequence[Mapping[int, Record]]) -> list[Table]:
    """A table for each series: the n-th case of a contender for each number of ranks.

    Examples
    --------
    >>> what = {"mode": "simulated", "status": "ok", "algorithm": "universal"}
    >>> make = lambda ranks, *seconds: {
    ...     round_index: Record(**what, best_s=s, m=8, n=8, k=8, ranks=ranks)
    ...     for round_index, s in enumerate(seconds)
    ... }
    >>> (found,) = scaling_tables([make(1, 8.0, 9.0), make(4, 4.0, 3.0)])
    >>> found.rows[1]["speedup"], found.rows[1]["efficiency_percent_low"]
    (2.5, 50.0)
    """
    series: dict[tuple, list] = {}
    seen: dict[tuple, int] = {}
    for run in filter(None, runs):
        first = next(iter(run.values()))
        who = (first.algorithm, first.preset or (first.a, first.b, first.c), first.dtype)
        at = seen[who, first.ranks] = seen.get((who, first.ranks), -1) + 1
        series.setdefault((who, at), []).append(run)
    first = [next(iter(run.values())) for run in runs if run]
    distinct = find_varying(
        first, [(name_of(r, False), r.dtype, r.ranks, r.m, r.n, r.k) for r in first]
    )
    return [_table(members, distinct) for members in series.values()]


def _table(runs: list[Mapping[int, Record]], distinct: Sequence[str]) -> Table:
    rows, lines, base = [], [], None
    for run in sorted(runs, key=lambda run: next(iter(run.values())).ranks):
        record = pool_records(run.values())
        if record.status != "ok":
            lines.append(f"not on {plural(record.ranks, 'rank')}: {record.status}: {record.reason}")
            continue
        rates = {
            round_index: record.m * record.n * record.k / record.time_s
            for round_index, record in run.items()
        }
        base = base or (record.ranks, rates)
        ratios = over(rates, base[1])
        ends = median_interval(ratios) or (min(ratios), max(ratios))
        row = {name: getattr(record, name) for name in [*_AS_RECORDED, *distinct]}
        for end, value in zip(_SPREAD, (median(ratios), *ends)):
            row[f"speedup{end}"] = value
            row[f"efficiency_percent{end}"] = 100 * base[0] / record.ranks * value
        text = predicted_text(record) if record.mode == "simulated" else time_text(record.time_s)
        percent = record.percent_of_gemm_only
        rows.append(
            row
            | {
                "time_s_low": record.median_low_s,
                "time_s_high": record.median_high_s,
                "time": text,
                "gemm_only": None if percent is None else f"{percent:.0f}{by_balance(record)}",
                "in_doubt": ", ".join(doubts(record)) or None,
            }
        )
    first = pool_records(runs[0].values())
    if base is not None:
        rounds = max(map(len, runs))
        spread = f"; in brackets: over {rounds} rounds" if rounds > 1 else ""
        against = f"Speed-up and efficiency are relative to {plural(base[0], 'rank')}{spread}."
        lines.insert(0, against)
    columns = _COLUMNS[:1] + tuple(Column(name, f"!{name}") for name in distinct) + _COLUMNS[1:]
    return Table(f"{name_of(first, False)}, {first.dtype}", columns, rows, lines)


def _spread(key: str, unit: str = ""):
    def text(row: dict) -> str:
        middle, low, high = (number(row[key + end]) for end in _SPREAD)
        return f"{middle}{unit}" + (f" ({low}-{high})" if low != high else "")

    return text


_COLUMNS = (
    Column("ranks", ">ranks"),
    Column("time", ">time"),
    Column("in_doubt", "~in doubt"),
    Column("speedup", ">speed-up", _spread("speedup")),
    Column("efficiency_percent", ">efficiency", _spread("efficiency_percent", " %")),
    Column("gemm_only", ">% of GEMM-only"),
    Column("m", ">m x n x k", lambda row: f"{row['m']}x{row['n']}x{row['k']}"),
    Column("percent_of_peak", ">% of peak", lambda row: f"{row['percent_of_peak']:.0f}"),
)
