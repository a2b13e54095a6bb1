"""What the documentation says of committed measurements, as claims."""

from collections.abc import Callable
from pathlib import Path

from pandas import read_csv

from launch.cases.machine_models import find_machine
from launch.studies.peers import best_settings, lines
from plots.select.records import read_records

from .accuracy import concordance, with_predictions
from .claims import Claim, Paper

#: Of pairs of cases measured more than 10 % apart the model has so many in the right order.
CONCORDANT = 0.97
#: The model's median error, of median times; and of the error of one time for all cases of a shape,
#: the best of those, which knows nothing of layouts.
NEAR, OF_ONE_TIME = 0.06, 0.5
#: With look-ahead a case takes at most so much of the larger of its compute and its transfers.
OVERLAPPED = 1.10
#: Times of drbench's fastest over the best peer's in the same rounds, to the ends of their 95 %
#: intervals: below 1 as the peer comes; with the fastest of its settings, what may not be exceeded.
AHEAD, AS_FAST = 1.0, 1 / 0.98


class _Measured:
    """The committed records of one machine, read when they are asked for."""

    def __init__(self, folder: Path):
        self.folder, self._predicted = folder, {}

    def table(self, name: str):
        return read_records([self.folder / name])

    def performance(self, table: str):
        """A table of docs/performance.md."""
        return read_csv(self.folder / f"performance/{table}.csv")

    def predicted(self, transport: str):
        """The cases of the model's study, measured and predicted, which takes a while."""
        if transport not in self._predicted:
            place = self.folder / "model" / transport
            machine = find_machine(str(next(place.glob("*.toml"))))
            measured = self.table(f"model/{transport}/measured.csv")
            self._predicted[transport] = with_predictions(measured, machine)
        return self._predicted[transport]


def _order(measured: _Measured):
    for transport in ("throttled", "rma"):
        pairs = measured.predicted(transport)
        share, total = concordance(zip(pairs.time_s, pairs.predicted_s))
        yield share >= CONCORDANT, f"{transport}: {share:.3f} of {total} pairs"


def _error(measured: _Measured, transport: str):
    pairs = measured.predicted(transport)
    ours = pairs.error.abs().median()
    one_time = pairs.groupby(["m", "n", "k"]).time_s.transform("median")
    usual = (one_time / pairs.time_s - 1).abs().median()
    return (
        ours <= NEAR and ours <= OF_ONE_TIME * usual,
        f"median error {100 * ours:.1f} %, bias {100 * pairs.error.median():+.1f} %; of one time "
        f"for each shape {100 * usual:.1f} %",
    )


def _at_bar(measured: _Measured, table: str, rows: str):
    """That the rows of a performance table reach their bars, as far as the busiest rank allows."""
    found = measured.performance(table).query(rows)
    bars = 100 * found.bar * found.balance_limit.fillna(1)
    margin = (found.percent_of_roof - bars).sort_values(kind="stable")
    lowest = found.loc[margin.index[0]]
    return (
        margin.iloc[0] >= 0,
        f"{(margin >= 0).sum()} of {len(found)} cases; smallest margin: {lowest.case}, "
        f"{lowest.percent_of_roof:.1f} % of the roof, bar {bars[margin.index[0]]:.0f}",
    )


def _overlap(measured: _Measured):
    found = measured.performance("overlap").query("prefetch == 1 and case.str.endswith('S-C')")
    worst = found.loc[found.time_over_max.idxmax()]
    return (
        worst.time_over_max <= OVERLAPPED,
        f"{len(found)} cases; the longest: {worst.case}, transfers "
        f"{worst.transfers_over_compute:g} of the compute, {worst.time_over_max:.2f} of the larger",
    )


def _planned(measured: _Measured):
    found = measured.performance("planning")
    share = found.most_s / found.bar_s
    return share.max() <= 1, f"at most {share.max():.2f} of the bar in {len(found)} cases"


def _peers(measured: _Measured):
    for line in best_settings(lines(measured.table("peers-p2"))):
        if line.who != "drbench" or line.rounds < 9:
            continue
        high, low = line.ratio.high, line.best_ratio.low
        held = None not in (high, low) and high < AHEAD and low <= AS_FAST
        yield (
            held,
            (
                f"{line.shape}: {line.ratio.middle:.2f} of {line.reference}, at most {high:.2f}; "
                f"{line.best_ratio.middle:.2f} of {line.best_reference}"
            ),
        )


_MISALIGNED = "case.str.startswith('misaligned')"


def _claim(
    name: str, text: str, check: Callable, threshold: str, files: str, see: str = "", query=()
) -> Claim:
    """A claim of ours: there is no paper's number."""
    records = ", ".join(f"results/measured/epyc-2core/{each}" for each in files.split())
    bar = "none: a bar of our own"
    return Claim(name, text, check, bar, threshold, records, see, query, "measured")


_ONE_NODE = "performance/one_node.csv"
_NEAR = f"median error at most {100 * NEAR:.0f} %, and half of that of one time for each shape"
CLAIMS = (
    _claim(
        "S1",
        "the model has the order of this machine's times right, throttled and RMA",
        _order,
        f"{100 * CONCORDANT:.0f} % of the pairs that are more than 10 % apart, by each transport",
        "model/throttled/measured.csv model/rma/measured.csv",
    ),
    _claim(
        "S2",
        "the model's median error on throttled links is at most 6 %",
        _error,
        _NEAR,
        "model/throttled/measured.csv",
        query=("throttled",),
    ),
    _claim(
        "S3",
        "the model's median error over RMA is at most 6 %",
        _error,
        _NEAR,
        "model/rma/measured.csv",
        query=("rma",),
    ),
    _claim(
        "S4",
        "4096³, aligned tiles read in place: at the bar (98 % of the roof S-C, 97 % S-B)",
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
        see="docs/performance.md#one-node-tiles-read-in-place",
        query=("one_node", _MISALIGNED),
    ),
    _claim(
        "S6",
        "MLP shapes, Stationary C: 95 % of the roof",
        _at_bar,
        "each case at its bar",
        _ONE_NODE,
        query=("one_node", "table == 'mlp' and case.str.endswith('S-C')"),
    ),
    _claim(
        "S7",
        "MLP shapes, Stationary B: 95 % of the roof",
        _at_bar,
        "each case at its bar",
        _ONE_NODE,
        query=("one_node", "table == 'mlp' and case.str.endswith('S-B')"),
    ),
    _claim(
        "S8",
        "4096³, aligned tiles over RMA on one node: 85 % of the roof",
        _at_bar,
        "each case at its bar",
        _ONE_NODE,
        query=("one_node", f"table == 'rma' and not {_MISALIGNED}"),
    ),
    _claim(
        "S9",
        "4096³, every rank remote over TCP: 80 % of the roof",
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
        see="docs/performance.md#planning-and-the-executors-own-cost",
    ),
    _claim(
        "S12",
        "2 ranks: ahead of the best peer as it comes, and not behind its best setting",
        _peers,
        "the 95 % intervals of the time ratio: below 1, and from at most 1 / 0.98",
        "peers-p2/records.csv",
    ),
)


PAPER = Paper(
    "what the documentation says of measurements",
    CLAIMS,
    lambda folder: folder.parent / "measured/epyc-2core",
    lambda folder, results: _Measured(folder),
)
