"""The ledger: every measured or published number that a model predicts, with the prediction made
for it; and what became worse since the last release.

==================  ==============================================================================
group               numbers
==================  ==============================================================================
dtensor-h100        the 16 published times of DTensor (:mod:`..published_dtensor`)
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
from launch.models.explained import case_of_timeline
from launch.models.predict import predict, with_interval

from .. import papers
from ..claims import Claim, Paper
from ..overlap import PAPER as OVERLAP
from ..overlap import ends_of_ratios
from ..overlap.study import FLUX_SHAPES
from ..published_dtensor import cases
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
    points : int
    mean, median, most : float
        Of the absolute errors, percent.
    bias : float
        Median of the errors with their signs, percent.
    held : float or None
        Share of the numbers that lie in their intervals, of those that were not fitted; None
        without intervals.
    half_width : float or None
        Median of half the intervals, percent of the predictions.
    """

    points: int
    mean: float
    median: float
    most: float
    bias: float
    held: float | None
    half_width: float | None

    @property
    def text(self) -> str:
        """In words."""
        held = "" if self.held is None else f", {100 * self.held:.1f} % in their intervals"
        return f"mean error {self.mean:.1f} %, largest {self.most:.1f} %{held}"


def summed(rows: Iterable) -> Sum:
    """The sum of some points.

    Examples
    --------
    >>> from launch.papers.ledger.rows import LedgerRow
    >>> point = ("1", "g", "measured", "here", 2, "w", 8, 8, 8, 1024.0, "s", 1.0)
    >>> rows = [LedgerRow(*point, 1.1, 0.9, 1.3, 0, "f"), LedgerRow(*point, 0.8, 0.7, 0.9, 0, "f")]
    >>> found = summed(rows)
    >>> round(found.mean, 6), found.held, round(found.half_width, 3)
    (15.0, 0.5, 15.341)
    """
    rows = list(rows)
    errors = [100 * row.error for row in rows]
    sizes = [abs(error) for error in errors]
    judged = [row for row in rows if row.held is not None and not row.fitted]
    return Sum(
        len(rows),
        fmean(sizes),
        median(sizes),
        max(sizes),
        median(errors),
        fmean(row.held for row in judged) if judged else None,
        100 * median(row.half_width for row in judged) if judged else None,
    )


def by_group(rows: Iterable) -> dict[str, list]:
    """The rows of each group, in their order."""
    found: dict[str, list] = {}
    for row in rows:
        found.setdefault(row.group, []).append(row)
    return found


def worse(before: Iterable, now: Iterable) -> list[str]:
    """What became worse on the points of a ledger, a line each: error, coverage, width, or more
    than half of a group gone. A point goes when the program that was measured is made no more.
    Points that the ledger has not count for nothing.

    Examples
    --------
    >>> from launch.papers.ledger.rows import LedgerRow
    >>> make = lambda what, predicted: LedgerRow(
    ...     *("1", "g", "measured", "here", 2, what, 8, 8, 8, 1024.0, "s", 1.0),
    ...     *(predicted, 0.9, 1.1, 0, "f"),
    ... )
    >>> worse([make("a", 1.0)], [make("a", 1.004), make("new", 9.0)])
    []
    >>> worse([make("a", 1.0)], [make("a", 1.006)])
    ['g: the mean error is 0.60 %, it was 0.00 %']
    """
    found, fresh = [], by_group(now)
    for group, rows in by_group(before).items():
        known = {row.what: row for row in fresh.get(group, ())}
        lost = [row.what for row in rows if row.what not in known]
        if 2 * len(lost) > len(rows):
            found.append(f"{group}: {len(lost)} of {len(rows)} points are gone, first {lost[0]}")
        kept = [row for row in rows if row.what in known]
        if not kept:
            continue
        old, new = summed(kept), summed(known[row.what] for row in kept)
        if new.mean > old.mean + MOST_GROWTH:
            found.append(f"{group}: the mean error is {new.mean:.2f} %, it was {old.mean:.2f} %")
        if old.held is None:
            continue
        if new.held is None:
            found.append(f"{group}: its predictions have no intervals any more")
            continue
        if new.held < min(LEAST_HELD, old.held):
            found.append(f"{group}: {100 * new.held:.1f} % lie in their intervals")
        if new.half_width > (1 + MOST_WIDER) * old.half_width:
            found.append(
                f"{group}: half an interval is {new.half_width:.1f} %, it was "
                f"{old.half_width:.1f} %"
            )
    return found


def dealt(program: str) -> bool:
    """Which half a program is dealt to: a coin that falls the same for ever.

    Examples
    --------
    >>> [dealt(f"program {number}") for number in range(6)]
    [False, True, True, True, True, True]
    """
    return bool(sha256(program.encode()).digest()[0] % 2)


class _Maker:
    """Rows of one group."""

    def __init__(self, release: str, group: str, results: Path, source: str):
        self.release, self.group, self.source = release, group, source
        self.path = results / source

    def row(self, machine: str, ranks: int, what: str, shape, flops: float, **more):
        given = {"mode": "measured", "unit": "s", "low": None, "high": None, "fitted": 0} | more
        about = {"release": self.release, "group": self.group, "source": self.source}
        of = {"machine": machine, "ranks": ranks, "what": what, "flops": flops}
        return LedgerRow(**about, **of, **dict(zip("mnk", shape)), **given)

    def of_case(self, case, machine: Machine, ranks: int, value: float, what: str, **more):
        """The row of a case that is predicted now; None where the machine refuses it. In ``unit``
        ``%`` the value is of its roof."""
        record = with_interval(predict(case, machine, ranks), case, machine, ranks)
        if record.status != "ok":
            return None
        of = {"value": value, "predicted": record.best_s}
        ends = {"low": record.median_low_s, "high": record.median_high_s}
        if more.get("unit") == "%":
            of["predicted"] = record.percent_of_roof
            ends = {"low": record.percent_of_roof_low, "high": record.percent_of_roof_high}
        shape = case.m, case.n, case.k
        flops = 2.0 * prod(shape) * case.options.get("topk", 1)
        return self.row(machine.name, ranks, what, shape, flops, **of, **ends, **more)


def _dtensor(release: str, results: Path) -> Iterator:
    maker = _Maker(release, "dtensor-h100", results, "published/h100.csv")
    machine = find_machine("h100x8")
    for layer, series, case, took in cases(maker.path):
        what = f"{layer} {series} m={case.m}"
        yield maker.of_case(case, machine, 8, took, what, mode="published", fitted=1)


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
        case = _case(record)
        now = predict(case, machine, record.ranks)
        if (now.steps, now.moved_bytes) == (record.steps, record.moved_bytes):
            found.setdefault(_what(record), (record, case, now))
    return list(found.values())


def _what(record: Record) -> str:
    layouts = " ".join(filter(None, (record.a, record.b, record.c)))
    ways = [record.transport, record.dtype, record.compute, f"p={record.ranks}"]
    shape = f"{record.m}x{record.n}x{record.k}"
    return " ".join(filter(None, (shape, layouts, describe(record), *ways)))


def _case(record: Record) -> Case:
    about = {name: getattr(record, name) for name in record.__slots__}
    if record.nodes and record.nodes > 1:  # a model of several knows how its ranks reach each other
        about |= {"transport": "auto"}
    if record.backend == "cupy":  # a model has one transport, and knows no backends
        about |= {"transport": "auto", "backend": None, "get": None}
        about |= dict.fromkeys(("max_gemms", "max_accumulates", "accumulate_blocks", "compute"))
    return case_of_timeline(about)


def _studied(
    machine: str, transport: str, of_roof: bool = False
) -> Callable[[str, Path], Iterator]:
    def rows(release: str, results: Path) -> Iterator:
        folder = f"measured/{machine}-2core/model/{transport}"
        maker = _Maker(release, f"{machine}-{transport}", results, f"{folder}/measured.csv")
        model = find_machine(str(maker.path.parent / "here.toml"))
        found = _measured(maker.path, model, of_roof)
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
            judge = judges[half(record)]
            value, unit = (record.percent_of_roof, "%") if of_roof else (record.time_s, "s")
            yield maker.of_case(case, judge, record.ranks, value, _what(record), unit=unit)

    return rows


def _mlp(release: str, results: Path) -> Iterator:
    """Read in place. The file has no residuals, and those over RMA say nothing of this: the machine
    was in another mood that day."""
    machine = find_machine(str(results / _ON_THIS_MACHINE / "model/rma/here.toml"))
    for layer in ("mlp1", "mlp2"):
        source = f"{_ON_THIS_MACHINE}/{layer}-h1536-p2/records.csv"
        maker = _Maker(release, "spr-mlp", results, source)
        for record, case, _ in _measured(maker.path, machine):
            what = f"{layer} {_what(record)}"
            yield maker.of_case(case, machine, record.ranks, record.time_s, what)


def _one_rank(release: str, results: Path) -> Iterator:
    machine = find_machine("h100x8measured")
    for path in sorted((results / _ONE_H100).glob("one-rank-*.csv")):
        maker = _Maker(release, "h100-one-rank", results, f"{_ONE_H100}/{path.name}")
        record = read_csv(path)[0]
        if record.dtype == machine.dtype and record.compute == "fp32":  # the model's peak
            yield maker.of_case(_case(record), machine, 1, record.time_s, _what(record))


def _meshslice(group: str, file: str, study: str) -> Callable:
    def rows(release: str, results: Path) -> Iterator:
        read = papers()["meshslice"].rows.read
        of = attrgetter("study", "model", "chips", "algorithm")
        # what is published of Table 3 says whether anything overlaps, of Figure 9 its source
        name = lambda row: (*of(row), row.variant if study == "slice4x4" else "")
        ran = read([results / f"simulated/tpuv4-llm/{study}.csv"])
        known = {
            name(row): row
            for row in ran
            if row.layer == "all" and (study == "slice4x4" or not row.variant)
        }
        maker = _Maker(release, group, results, f"published/meshslice/{file}")
        for row in read([maker.path]):
            found = known[name(row)]
            peak = find_machine(f"{found.machine}-4x4").compute.peak_flops * row.chips
            what = f"{row.model} {row.algorithm} p={row.chips}"
            yield maker.row(
                found.machine,
                row.chips,
                f"{what} {row.variant}".strip() if study == "slice4x4" else what,
                (0, 0, 0),
                found.seconds * peak * found.utilization_percent / 100,
                mode="published",
                unit="%",
                value=row.utilization_percent,
                predicted=found.utilization_percent,
            )

    return rows


def _flux_ratios(release: str, results: Path) -> Iterator:

    maker = _Maker(release, "flux-ratios", results, "published/overlap/ranges.csv")
    rows = OVERLAP.judged(OVERLAP.read(results / "simulated"), results)
    for each, name, number, ours in ends_of_ratios(rows):
        quantity = each.quantity.replace("_", " ")
        yield maker.row(
            each.machine,
            each.ranks,
            f"{each.study} {quantity}, {name} end p={each.ranks}",
            (0, 0, 0),
            2.0 * each.most_m * prod(FLUX_SHAPES["ag"]),
            mode="published",
            unit="x",
            value=number,
            predicted=ours,
        )


def _overlap(group: str, file: str, unit: str, value: Callable, flux: bool = False) -> Callable:
    def rows(release: str, results: Path) -> Iterator:
        maker = _Maker(release, group, results, f"published/overlap/{file}")
        of = attrgetter("study", "ranks", "product", "m", "n", "k", "method")
        name = lambda row: (*of(row), row.variant if "table" in row.study else "")
        published = [
            row for row in OVERLAP.rows.read([maker.path]) if (row.method == "flux") == flux
        ]
        known = {}
        for study in dict.fromkeys(row.study for row in published):
            for row in OVERLAP.rows.read([results / f"simulated/overlap/{study}.csv"]):
                known[name(row)] = row
        for row in published:
            found = known.get(name(row))
            if found is None or value(row) is None or value(found) is None:
                continue
            what = f"{row.study} {row.product} {row.m}x{row.n}x{row.k} {row.method} {row.variant}"
            yield maker.row(
                row.machine,
                row.ranks,
                f"{what.strip()} p={row.ranks}",
                (row.m, row.n, row.k),
                2.0 * row.m * row.n * row.k,
                mode="published",
                unit=unit,
                value=value(row),
                predicted=value(found),
            )

    return rows


#: Group -> its rows, of a release's name and the folder of results; and those whose predictions
#: are made anew.
GROUPS: dict[str, Callable[[str, Path], Iterator]] = {
    "dtensor-h100": _dtensor,
    "epyc-rma": _studied("epyc", "rma"),
    "epyc-throttled": _studied("epyc", "throttled"),
    "epyc-mixed": _studied("epyc", "mixed", of_roof=True),
    "epyc-network": _studied("epyc", "network", of_roof=True),
    "spr-rma": _studied("spr", "rma"),
    "spr-throttled": _studied("spr", "throttled"),
    "spr-mlp": _mlp,
    "h100-one-rank": _one_rank,
    "meshslice": _meshslice("meshslice", "utilization.csv", "weak"),
    "meshslice-table3": _meshslice("meshslice-table3", "table3.csv", "slice4x4"),
    "td-experts": _overlap("td-experts", "moe.csv", "s", attrgetter("seconds")),
    "td-speedups": _overlap("td-speedups", "speedups.csv", "x", attrgetter("speedup")),
    "td-flux": _overlap("td-flux", "speedups.csv", "x", attrgetter("speedup"), flux=True),
    "flux-ratios": _flux_ratios,
}


def predicted_now(release: str, results: Path, groups: Sequence[str] = tuple(GROUPS)) -> list:
    """The rows of some groups as they are predicted today; of points in the same words the second
    is told so."""
    found, seen = [], Counter()
    for group in groups:
        for row in filter(None, GROUPS[group](release, results)):
            seen[group, row.what] += 1
            again = seen[group, row.what]
            found.append(row if again == 1 else row._replace(what=f"{row.what} ({again})"))
    return found


def _no_worse(group: str) -> Callable:
    def check(results: Path) -> tuple[bool, str]:
        before = by_group(ROWS.read([results / "ledger.csv"])).get(group, [])
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
