"""The ledger: every measured or published number that a model predicts, with the prediction made
for it; and what became worse since the last release.

==================  ==============================================================================
group               numbers
==================  ==============================================================================
dtensor-h100        the 16 published times of DTensor (Figure 3 of "Slicing Is All You Need")
epyc-rma            the model's study on an EPYC, over RMA: programs are dealt to two halves, and
                    the interval of each is made of the residuals of the other half
epyc-throttled      likewise, on throttled links
epyc-mixed          likewise, on two virtual nodes of two ranks each, which share cores: percent of
                    the roof, for this machine is not always as fast as when it was calibrated
epyc-network        likewise, with one rank a node
spr-rma, -throttled as those of the EPYC, on a Sapphire Rapids
spr-mlp             both MLP shapes on this machine, read in place: none was used to calibrate
h100-one-rank       products on one H100
meshslice           utilisations that MeshSlice's text gives
meshslice-table3    those of its Table 3, which were measured
td-experts          Tables 4 and 5 of Triton-distributed
td-speedups         its Figures 11 to 14, 17 and 18, its own programs
td-flux             FLUX in them
flux-ratios         ends of FLUX's speedups over Transformer Engine and PyTorch, as its text has
                    them (Figures 11 to 15)
==================  ==============================================================================

COSMA's published points on H100 are in no group: no program here is its own. FLUX's efficiencies
are claims (F1, F9 to F12), and in no group: near 0 and below it an error has no share.

Rows are those of :class:`launch.papers.ledger.rows.LedgerRow`. The last six compare what simulated
studies have committed, which ``drbench artifact`` makes again; the others are predicted anew in
seconds.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from hashlib import sha256
from math import prod
from operator import attrgetter
from pathlib import Path
from statistics import fmean, median
from typing import NamedTuple

from drbench.measure.record import Record
from drbench.measure.record_file import read_csv
from drbench.model.machine import Machine
from launch.cases.case import Case
from launch.cases.command_line import describe
from launch.cases.machine_models import find_machine
from launch.models.predict import predict, with_interval
from launch.models.simulate_sweeps import dtensor_case
from plots.select.records import read_published

from .. import papers
from ..accuracy import case_of
from ..claims import Claim, Paper
from ..overlap import PAPER as OVERLAP
from ..overlap import ends_of_ratios
from ..overlap.study import FLUX_SHAPES
from .rows import ROWS, LedgerRow

#: What fails: the mean error of a group grows by so many percentage points, fewer of its numbers
#: lie in their intervals, or these widen by more than that share.
MOST_GROWTH, LEAST_HELD, MOST_WIDER = 0.5, 0.90, 0.10
_ON_THIS_MACHINE = "measured/spr-2core"
_ONE_H100 = "measured/h100-80gb"


class Sum(NamedTuple):
    """What there is to say of a group.

    Attributes
    ----------
    mean, most : float
        Of the absolute errors, percent.
    held : float or None
        Share of the numbers that lie in their intervals, of those that were not fitted; None
        without intervals.
    half_width : float or None
        Median of half the intervals, percent of the predictions.
    """

    mean: float
    most: float
    held: float | None
    half_width: float | None

    @property
    def text(self) -> str:
        """In words."""
        held = "" if self.held is None else f", {100 * self.held:.1f} % in their intervals"
        return f"mean error {self.mean:.1f} %, largest {self.most:.1f} %{held}"


def summed(rows: Iterable[LedgerRow]) -> Sum:
    """The sum of some points.

    Examples
    --------
    >>> point = ("1", "g", "measured", "here", 2, "w", 8, 8, 8, 1024.0, "s", 1.0)
    >>> rows = [LedgerRow(*point, 1.1, 0.9, 1.3, 0, "f"), LedgerRow(*point, 0.8, 0.7, 0.9, 0, "f")]
    >>> found = summed(rows)
    >>> round(found.mean, 6), found.held, round(found.half_width, 3)
    (15.0, 0.5, 15.341)
    """
    rows = list(rows)
    sizes = [100 * abs(row.error) for row in rows]
    judged = [row for row in rows if row.held is not None and not row.fitted]
    return Sum(
        fmean(sizes),
        max(sizes),
        fmean(row.held for row in judged) if judged else None,
        100 * median(row.half_width for row in judged) if judged else None,
    )


def worse(before: Sequence[LedgerRow], now: Iterable[LedgerRow]) -> list[str]:
    """What became worse on the points of a group, a line each: error, coverage, width, or more than
    half of the group gone. A point goes when the program that was measured is made no more. Points
    that were not there before count for nothing.

    Examples
    --------
    >>> make = lambda what, predicted: LedgerRow(
    ...     *("1", "g", "measured", "here", 2, what, 8, 8, 8, 1024.0, "s", 1.0),
    ...     *(predicted, 0.9, 1.1, 0, "f"),
    ... )
    >>> worse([make("a", 1.0)], [make("a", 1.004), make("new", 9.0)])
    []
    >>> worse([make("a", 1.0)], [make("a", 1.006)])
    ['the mean error is 0.60 %, it was 0.00 %']
    """
    known, found = {row.what: row for row in now}, []
    kept = [row for row in before if row.what in known]
    if 2 * len(kept) < len(before):
        found.append(f"{len(before) - len(kept)} of {len(before)} points are gone")
    if not kept:
        return found
    old, new = summed(kept), summed(known[row.what] for row in kept)
    if new.mean > old.mean + MOST_GROWTH:
        found.append(f"the mean error is {new.mean:.2f} %, it was {old.mean:.2f} %")
    if old.held is None:
        return found
    if new.held is None:
        return [*found, "its predictions have no intervals any more"]
    if new.held < min(LEAST_HELD, old.held):
        found.append(f"{100 * new.held:.1f} % lie in their intervals")
    if new.half_width > (1 + MOST_WIDER) * old.half_width:
        found.append(f"half an interval is {new.half_width:.1f} %, it was {old.half_width:.1f} %")
    return found


def dealt(program: str) -> bool:
    """Which half a program is dealt to: a coin that falls the same for ever.

    Examples
    --------
    >>> [dealt(f"program {number}") for number in range(6)]
    [False, True, True, True, True, True]
    """
    return bool(sha256(program.encode()).digest()[0] % 2)


def _row(
    source: str, machine: str, ranks: int, what: str, shape, flops: float, **more
) -> LedgerRow:
    """A row; its release and group are set where groups are joined."""
    given = {"release": "", "group": "", "mode": "measured", "unit": "s", "fitted": 0}
    given |= {"low": None, "high": None, "source": source, **dict(zip("mnk", shape))}
    return LedgerRow(**given | more, machine=machine, ranks=ranks, what=what, flops=flops)


def _of_case(
    source: str, case: Case, machine: Machine, ranks: int, value: float, what: str, **more
) -> LedgerRow | None:
    """The row of a case that is predicted now; None where the machine refuses it. In ``unit`` ``%``
    the value is of its roof."""
    record = with_interval(predict(case, machine, ranks), case, machine, ranks)
    if record.status != "ok":
        return None
    fields = ("best_s", "median_low_s", "median_high_s")
    if more.get("unit") == "%":
        fields = ("percent_of_roof", "percent_of_roof_low", "percent_of_roof_high")
    found = (getattr(record, name) for name in fields)
    of = dict(zip(("predicted", "low", "high"), found), value=value)
    shape = case.m, case.n, case.k
    flops = 2.0 * prod(shape) * case.options.get("topk", 1)
    return _row(source, machine.name, ranks, what, shape, flops, **of | more)


def dtensor_cases(path: Path) -> Iterator[tuple[str, Case, float]]:
    """(words, case, published seconds) of each of the 16 points."""
    for row in read_published(path):
        if row.algorithm.startswith("DT - "):
            case = dtensor_case(row.m, row.n, row.k, row.algorithm.rpartition(" ")[2].lower())
            layer = "mlp1" if row.n > row.k else "mlp2"
            seconds = 2 * row.m * row.n * row.k / (row.gflops * 1e9)
            yield f"{layer} {row.algorithm} m={row.m}", case, seconds


def _dtensor(results: Path) -> Iterator:
    source, machine = "published/h100.csv", find_machine("h100x8")
    for what, case, took in dtensor_cases(results / source):
        yield _of_case(source, case, machine, 8, took, what, mode="published", fitted=1)


def _measured(
    path: Path, machine: Machine, of_roof: bool = False
) -> list[tuple[Record, Case, Record]]:
    """Cases of ours that ran quietly, each once, and what they are predicted to take; as far as the
    programs that ran are those that would run today. ``of_roof`` also those that were disturbed or
    shared cores: the roof beside them was, and did, too."""
    found = {}
    for record in read_csv(path):
        disturbed = record.noisy or record.oversubscribed
        if record.status != "ok" or (disturbed and not of_roof):
            continue
        case = case_of(record)
        now = predict(case, machine, record.ranks)
        if (now.steps, now.moved_bytes) == (record.steps, record.moved_bytes):
            found.setdefault(_what(record), (record, case, now))
    return list(found.values())


def _what(record: Record) -> str:
    layouts = " ".join(filter(None, (record.a, record.b, record.c)))
    ways = [record.transport, record.dtype, record.compute, f"p={record.ranks}"]
    shape = f"{record.m}x{record.n}x{record.k}"
    return " ".join(filter(None, (shape, layouts, describe(record), *ways)))


def _studied(machine: str, transport: str, of_roof: bool = False) -> Callable:
    def rows(results: Path) -> Iterator:
        source = f"measured/{machine}-2core/model/{transport}/measured.csv"
        path = results / source
        model = find_machine(str(path.parent / "here.toml"))
        found = _measured(path, model, of_roof)
        # on two ranks blocks are columns, so that several cases are one program
        same = lambda record: "column" if record.ranks == 2 else "block"
        half = lambda record: dealt(_what(record).replace("block", same(record)))
        ratios: dict[bool, list[float]] = {False: [], True: []}
        for record, _, now in found:
            ratio = record.time_s / now.best_s
            if of_roof:
                ratio = now.percent_of_roof / record.percent_of_roof
            ratios[half(record)].append(ratio)
        judges = {
            each: replace(model, residuals={"any": ratios[not each]}) for each in (False, True)
        }
        for record, case, _ in found:
            value, unit = (record.percent_of_roof, "%") if of_roof else (record.time_s, "s")
            judge, what = judges[half(record)], _what(record)
            yield _of_case(source, case, judge, record.ranks, value, what, unit=unit)

    return rows


def _mlp(results: Path) -> Iterator:
    """Read in place. The file has no residuals, and those over RMA say nothing of this: the machine
    was in another mood that day."""
    machine = find_machine(str(results / _ON_THIS_MACHINE / "model/rma/here.toml"))
    for layer in ("mlp1", "mlp2"):
        source = f"{_ON_THIS_MACHINE}/{layer}-h1536-p2/records.csv"
        for record, case, _ in _measured(results / source, machine):
            what = f"{layer} {_what(record)}"
            yield _of_case(source, case, machine, record.ranks, record.time_s, what)


def _one_rank(results: Path) -> Iterator:
    machine = find_machine("h100x8measured")
    for path in sorted((results / _ONE_H100).glob("one-rank-*.csv")):
        record, source = read_csv(path)[0], f"{_ONE_H100}/{path.name}"
        if record.dtype == machine.dtype and record.compute == "fp32":  # the model's peak
            yield _of_case(source, case_of(record), machine, 1, record.time_s, _what(record))


def _pairs(results: Path, paper: str, source: str, *fields: str) -> Iterator[tuple]:
    """Published rows of a paper, each with the simulated row of the same fields; of a table also of
    the same variant."""
    of, rows = attrgetter("study", *fields), papers()[paper].rows
    name = lambda row: (*of(row), row.variant if row.study in _TABLES else "")
    published = rows.read([results / source])
    folder = results / "simulated" / papers()[paper].folder
    files = [folder / f"{study}.csv" for study in dict.fromkeys(row.study for row in published)]
    known = {name(row): row for row in rows.read(files)}
    return ((row, known[name(row)]) for row in published if name(row) in known)


#: Studies whose rows differ in their variants alone.
_TABLES = ("slice4x4", "td-table4", "td-table5")


def _meshslice(file: str) -> Callable:
    def rows(results: Path) -> Iterator:
        source = f"published/meshslice/{file}"
        fields = ("model", "chips", "algorithm", "layer")
        for row, found in _pairs(results, "meshslice", source, *fields):
            peak = find_machine(f"{found.machine}-4x4").compute.peak_flops * row.chips
            # what is published of Figure 9 has its source as variant
            variant = row.variant if row.study in _TABLES else ""
            what = f"{row.model} {row.algorithm} p={row.chips} {variant}".strip()
            share = found.utilization_percent
            flops = found.seconds * peak * share / 100
            about = {"mode": "published", "unit": "%"}
            about |= {"value": row.utilization_percent, "predicted": share}
            yield _row(source, found.machine, row.chips, what, (0, 0, 0), flops, **about)

    return rows


def _flux_ratios(results: Path) -> Iterator:
    rows = OVERLAP.judged(OVERLAP.read(results / "simulated"), results)
    for each, name, number, ours in ends_of_ratios(rows):
        quantity = each.quantity.replace("_", " ")
        what = f"{each.study} {quantity}, {name} end p={each.ranks}"
        flops = 2.0 * each.most_m * prod(FLUX_SHAPES["ag"])
        about = {"mode": "published", "unit": "x", "value": number, "predicted": ours}
        source = "published/overlap/ranges.csv"
        yield _row(source, each.machine, each.ranks, what, (0, 0, 0), flops, **about)


def _overlap(file: str, column: str, flux: bool = False) -> Callable:
    def rows(results: Path) -> Iterator:
        source = f"published/overlap/{file}"
        for row, found in _pairs(results, "overlap", source, *"ranks product m n k method".split()):
            value, ours = (getattr(each, column) for each in (row, found))
            if (row.method == "flux") != flux or None in (value, ours):
                continue
            shape = row.m, row.n, row.k
            size = "{}x{}x{}".format(*shape)
            what = f"{row.study} {row.product} {size} {row.method} {row.variant}".strip()
            what += f" p={row.ranks}"
            about = {"mode": "published", "unit": "s" if column == "seconds" else "x"}
            about |= {"value": value, "predicted": ours}
            yield _row(source, row.machine, row.ranks, what, shape, 2.0 * prod(shape), **about)

    return rows


#: Group -> its rows, of the folder of results.
GROUPS: dict[str, Callable[[Path], Iterator]] = {
    "dtensor-h100": _dtensor,
    "epyc-rma": _studied("epyc", "rma"),
    "epyc-throttled": _studied("epyc", "throttled"),
    "epyc-mixed": _studied("epyc", "mixed", of_roof=True),
    "epyc-network": _studied("epyc", "network", of_roof=True),
    "spr-rma": _studied("spr", "rma"),
    "spr-throttled": _studied("spr", "throttled"),
    "spr-mlp": _mlp,
    "h100-one-rank": _one_rank,
    "meshslice": _meshslice("utilization.csv"),
    "meshslice-table3": _meshslice("table3.csv"),
    "td-experts": _overlap("moe.csv", "seconds"),
    "td-speedups": _overlap("speedups.csv", "speedup"),
    "td-flux": _overlap("speedups.csv", "speedup", flux=True),
    "flux-ratios": _flux_ratios,
}


def predicted_now(release: str, results: Path, groups: Sequence[str] = tuple(GROUPS)) -> list:
    """The rows of some groups as they are predicted today; of points in the same words the second
    is told so."""
    found, seen = [], Counter()
    for group in groups:
        for row in filter(None, GROUPS[group](results)):
            seen[group, row.what] += 1
            again = seen[group, row.what]
            what = row.what if again == 1 else f"{row.what} ({again})"
            found.append(row._replace(release=release, group=group, what=what))
    return found


def _no_worse(group: str) -> Callable:
    def check(results: Path) -> tuple[bool, str]:
        before = [row for row in ROWS.read([results / "ledger.csv"]) if row.group == group]
        now = predicted_now("", results, [group])
        lines = worse(before, now)
        return not lines, "; ".join([summed(now).text, *lines])

    return check


CLAIMS = tuple(
    Claim(
        f"A.{group}",
        f"accuracy of predictions: {group}",
        _no_worse(group),
        "none: the last release",
        f"of the points of results/ledger.csv the mean error grew by at most {MOST_GROWTH} points, "
        f"{LEAST_HELD:.0%} lie in their intervals, these widened by at most {MOST_WIDER:.0%}",
        "results/ledger.csv",
    )
    for group in GROUPS
)
PAPER = Paper(
    "accuracy of predictions",
    CLAIMS,
    lambda folder: folder.parent,
)
