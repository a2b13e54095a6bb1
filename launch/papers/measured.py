"""Statements of the documentation about committed measurements, as claims. A check gets the folder
with the records of one machine."""

from collections.abc import Callable
from pathlib import Path

from pandas import read_csv

from drbench.launch.studies.libraries import compare_contenders
from drbench.plots.select.records import read_records

from .claims import Claim, Paper

#: Largest time of a case with look-ahead over the larger of its compute and its transfers.
OVERLAPPED = 1.10
#: Bounds of the time of drbench's fastest over the best library's in the same rounds, for the ends
#: of the 95 % intervals: below 1 for default settings; a limit for the fastest settings.
AHEAD, AS_FAST = 1.0, 1 / 0.98


def _performance(folder: Path, table: str):
    """A file of the bars of docs/results/core.md."""
    return read_csv(folder / f"performance/{table}.csv")


def _at_bar(folder: Path, table: str, rows: str):
    """Whether the rows of a performance table reach their bars, as far as the busiest rank
    allows."""
    cases = _performance(folder, table).query(rows)
    bars = 100 * cases.bar * cases.balance_limit.fillna(1)
    margin = (cases.percent_of_gemm_only - bars).sort_values(kind="stable")
    lowest = cases.loc[margin.index[0]]
    return (
        margin.iloc[0] >= 0,
        f"{(margin >= 0).sum()} of {len(cases)} cases; smallest margin: {lowest.case}, "
        f"{lowest.percent_of_gemm_only:.1f} % of GEMM-only speed, bar {bars[margin.index[0]]:.0f}",
    )


def _overlap(folder: Path):
    cases = _performance(folder, "overlap").query("prefetch == 1 and case.str.endswith('S-C')")
    worst = cases.loc[cases.ratio.idxmax()]
    return (
        worst.ratio <= OVERLAPPED,
        f"{len(cases)} cases; the longest: {worst.case}, transfers "
        f"{worst.transfers_over_compute:g} of the compute, {worst.ratio:.2f} of the larger",
    )


def _planned(folder: Path):
    cases = _performance(folder, "planning")
    share = cases.most_s / cases.bar_s
    return share.max() <= 1, f"at most {share.max():.2f} of the bar in {len(cases)} cases"


def _libraries(folder: Path):
    for line in compare_contenders(read_records([folder / "peers-p2"])):
        if line.best and line.who == "drbench" and line.rounds >= 9:
            high, low = line.ratio.high, line.best_ratio.low
            yield (
                None not in (high, low) and high < AHEAD and low <= AS_FAST,
                f"{line.shape}: {line.ratio.middle:.2f} of {line.reference}, at most {high:.2f}; "
                f"{line.best_ratio.middle:.2f} of {line.best_reference}",
            )


_MISALIGNED = "case.str.startswith('misaligned')"


def _claim(
    name: str, text: str, check: Callable, threshold: str, file: str, see: str = "", query=()
) -> Claim:
    """One of our own claims, without a paper's number."""
    records, bar = f"results/measured/epyc-2core/{file}", "none: a bar of our own"
    return Claim(name, text, check, bar, threshold, records, see, query, "measured")


_ONE_NODE = "performance/one_node.csv"
CLAIMS = (
    _claim(
        "S4",
        "4096³, aligned tiles read in place: at the bar (98 % of GEMM-only speed S-C, 97 % S-B)",
        _at_bar,
        "each case at its bar",
        _ONE_NODE,
        query=("one_node", f"table == 'cube' and not {_MISALIGNED}"),
    ),
    _claim(
        "S5",
        "4096³, misaligned tiles, in place and over RMA: at the bar",
        _at_bar,
        "each case at its bar",
        _ONE_NODE,
        see="docs/results/core.md#what-is-not-met-and-why",
        query=("one_node", _MISALIGNED),
    ),
    _claim(
        "S6",
        "MLP shapes, Stationary C: 95 % of GEMM-only speed",
        _at_bar,
        "each case at its bar",
        _ONE_NODE,
        query=("one_node", "table == 'mlp' and case.str.endswith('S-C')"),
    ),
    _claim(
        "S7",
        "MLP shapes, Stationary B: 95 % of GEMM-only speed",
        _at_bar,
        "each case at its bar",
        _ONE_NODE,
        query=("one_node", "table == 'mlp' and case.str.endswith('S-B')"),
    ),
    _claim(
        "S8",
        "4096³, aligned tiles over RMA on one node: 85 % of GEMM-only speed",
        _at_bar,
        "each case at its bar",
        _ONE_NODE,
        query=("one_node", f"table == 'rma' and not {_MISALIGNED}"),
    ),
    _claim(
        "S9",
        "4096³, every rank remote over TCP: 80 % of GEMM-only speed",
        _at_bar,
        "each case at its bar",
        "performance/remote.csv",
        query=("remote", "progress == 'poll'"),
    ),
    _claim(
        "S10",
        "overlap on throttled links: Stationary C within 10 % of the larger of the two",
        _overlap,
        f"at most {OVERLAPPED:.2f} times the larger of compute and transfers",
        "performance/overlap.csv",
    ),
    _claim(
        "S11",
        "planning stays below its bars",
        _planned,
        "each case at most at its bar",
        "performance/planning.csv",
        see="docs/results/core.md#what-is-not-met-and-why",
    ),
    _claim(
        "S12",
        "2 ranks: ahead of the best library's default, and not behind its best setting",
        _libraries,
        "the 95 % intervals of the time ratio: below 1, and from at most 1 / 0.98",
        "peers-p2/records.csv",
    ),
)


PAPER = Paper(
    "statements of the documentation about measurements",
    CLAIMS,
    lambda folder: folder.parent / "measured/epyc-2core",
)
