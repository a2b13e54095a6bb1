"""Statements of the documentation about committed measurements, as claims. A check gets the folder
with the records of one machine."""

from pathlib import Path

from pandas import read_csv

from drbench.launch.studies.libraries import compare_contenders
from drbench.plots.select.records import read_records

from .claims import Paper, read_claims

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


CLAIMS = read_claims(
    "measured",
    {
        "S4": (_at_bar, "one_node", f"table == 'cube' and not {_MISALIGNED}"),
        "S5": (_at_bar, "one_node", _MISALIGNED),
        "S6": (_at_bar, "one_node", "table == 'mlp' and case.str.endswith('S-C')"),
        "S7": (_at_bar, "one_node", "table == 'mlp' and case.str.endswith('S-B')"),
        "S8": (_at_bar, "one_node", f"table == 'rma' and not {_MISALIGNED}"),
        "S9": (_at_bar, "remote", "progress == 'poll'"),
        "S10": (_overlap,),
        "S11": (_planned,),
        "S12": (_libraries,),
    },
)


PAPER = Paper(
    "statements of the documentation about measurements",
    CLAIMS,
    lambda folder: folder.parent / "measured/epyc-2core",
)
