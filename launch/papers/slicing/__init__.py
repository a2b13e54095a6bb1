"""The paper's claims P1-P12 about Figures 2 and 3, checked on records: what must hold is stated
once, in general terms.

Shared terms, the same for every claim and machine:

- a *line* is what the figure draws: the best replication factor at each batch size, in the better
  of Stationary C and B;
- the *height* of a line is its mean over the batch sizes; the *best two* lines are the two highest;
- the *spread* of a figure is (highest - lowest line) / highest line, mean over the batch sizes;
- *competitive* means at least 95 % of the other (the paper's "within 5%"); a difference *counts* if
  it is larger than that;
- *much* smaller means at most half; *because of* means that it makes at least half of a difference;
- *almost always* means in nine cases of ten;
- *some* lines are at least two;
- a line *moves B* if it is drawn with another matrix in place than B;
- *aligned* tiles nest: along every axis no boundary of one matrix lies inside a tile of the other
  and beside its own, but for rounding.
"""

from collections.abc import Iterator
from functools import cache
from operator import attrgetter
from pathlib import Path
from statistics import mean

from pandas import DataFrame, Series, concat

from drbench.measure.record import Record
from drbench.model.machine import Machine
from drbench.program.problem import Problem
from launch.cases.case import Case
from launch.cases.machine_models import find_machine, machine_names
from launch.models.simulate_sweeps import Variant, legend_cases, run_variants
from plots.select.records import frame, read_published, read_records, rows
from plots.select.selection import select

from ..claims import Changed, Claim, Paper, Rows, named

#: (machine, layer) of the figures.
_PVC_1, _PVC_2 = ("pvc12", "mlp1"), ("pvc12", "mlp2")
_H100_1, _H100_2 = ("h100x8", "mlp1"), ("h100x8", "mlp2")
_COMPETITIVE, _ALMOST_ALWAYS, _MUCH = 0.95, 0.9, 0.5
#: What sets cases apart that differ in their schedule only.
_CASE = attrgetter(
    *"machine ranks m n k a b c stationary prefetch chunk transport".split(),
)

#: DTensor's published lines.
_DTENSOR = ["DT - Row", "DT - Column"]
#: What claims ask of single cases.
_OF_A_CASE = "preset stationary a c m factors best_s phase_gemm_s percent_of_peak".split()


class Figure:
    """The lines of one layer on one machine by name, as ``Inner Prod.``, and the cases behind them.

    Attributes
    ----------
    values : DataFrame
        Percent of peak by batch size and line.
    """

    def __init__(self, name: tuple[str, str], cases):
        self.name = name
        self.lines = {
            line.name.removeprefix("UA - "): line
            for line in select(cases, name[1])
            if line.points and line.name.startswith("UA")
        }
        self.values = self._of_points(attrgetter("value"))
        # of a hundred columns these: whatever selects rows copies each of them
        ours = cases.loc[cases.moved_bytes > 0, _OF_A_CASE]
        #: ``mixed``: whether C's factor differs from that of A and B; None where those differ.
        self.cases = ours.assign(mixed=[a != c if a == b else None for a, b, c in ours.factors])
        self.batches = sorted(self.cases.m.unique())

    def _of_points(self, value):
        """A value of each point, by batch size and line."""
        lines = self.lines.items()
        return DataFrame({name: {p.m: value(p) for p in line.points} for name, line in lines})

    def heights(self):
        """Mean of each line, highest first.

        Raises
        ------
        KeyError
            If not all six lines are there.
        """
        if len(self.lines) < 6:
            raise KeyError("some lines of {1} on {0}".format(*self.name))
        return _falling(self.values.mean())

    def spreads(self):
        highest = self.values.max(axis="columns")
        return 100 * (highest - self.values.min(axis="columns")) / highest

    def best(self, line: str, **fixed):
        """The fastest case of a line's partitioning at each batch size, with some columns fixed;
        empty where there is none."""
        found = self.cases
        for column, value in {"preset": line.lower().split()[0], **fixed}.items():
            found = found[found[column] == value]
        fastest = found.sort_values("best_s", kind="stable").drop_duplicates("m")
        return fastest.set_index("m").reindex(self.batches)

    def fastest(self, line: str, **fixed):
        """Seconds of the faster of Stationary C and B at each batch size; nan where there is
        none."""
        found = [self.best(line, stationary=stationary, **fixed).best_s for stationary in "CB"]
        return concat(found, axis="columns").min(axis="columns")

    def factors(self):
        """The A,B factor of each line at each batch size."""
        return self._of_points(lambda point: point.factors[0])


class Figures(Rows):
    """Records, and the figures that are drawn of them, by machine and layer."""

    def __init__(self, table):
        super().__init__(table)
        self._figures: dict = {}

    def __getitem__(self, name: tuple[str, str]) -> Figure:
        if name not in self._figures:
            found = self._simulated(name, algorithm="universal")
            self._figures[name] = Figure(name, found[found.schedule.fillna("direct") == "direct"])
        return self._figures[name]

    def _simulated(self, name: tuple[str, str], mode: str = "simulated", **values):
        machine, layer = name
        return self.where(mode=mode, status="ok", machine=machine, layer=layer, **values)

    def dtensor(self, name: tuple[str, str], mode: str = "simulated"):
        """Percent of peak of DTensor by batch size and line, simulated or published."""
        simulated = mode == "simulated"
        found = self._simulated(name, mode, algorithm=["dtensor_mm"] if simulated else _DTENSOR)
        found = found[found.schedule.fillna("direct") == "direct"]
        line = "DT - " + found.a.str.capitalize() if simulated else found.algorithm
        return found.groupby(["m", line.rename("line")]).percent_of_peak.max().unstack()


def _falling(values):
    return values.sort_values(ascending=False, kind="stable")


def _row(values) -> str:
    return " ".join(f"{value:.1f}" for value in values if value == value)  # nan: no such case


def _best_two(figure, *names):
    heights = figure.heights()
    return set(heights.index[:2]) == set(names), f"mean % of peak: {named(heights)}"


def _p2(f):
    """Without replication both code paths are one program (B stays, too): drawn is C, the first."""
    figure = f[_PVC_1]
    drawn = {name: figure.lines[name].stationary for name in ("Column", "Inner Prod.")}
    column = figure.cases[figure.cases.preset == "column"]
    alone = column.factors == (1, 1, 1)
    ours, others = (each.groupby("m").best_s.min() for each in (column[alone], column[~alone]))
    factors = ", ".join(point.factor for point in figure.lines["Column"].points)
    return (
        set(drawn.values()) == {"C"} and not (others.reindex(ours.index) <= ours).any(),
        f"{', '.join(f'{name} S-{each}' for name, each in drawn.items())}; Column's best factors "
        f"{factors}",
    )


def _p2a(f):
    """By local GEMMs that count as faster, and by at least half of the difference in time."""
    figure, cases = f[_PVC_1], []
    for name, a in (("Column", "column"), ("Inner", "row")):
        cases.append(figure.best(name, stationary="C", a=a, c="column"))
    fast, slow = (1e3 * each.phase_gemm_s for each in cases)
    column, inner = (1e3 * each.best_s for each in cases)
    gemms = ", ".join(f"{x:.1f}/{y:.1f}" for x, y in zip(fast, slow))
    times = ", ".join(f"{x:.1f}/{y:.1f}" for x, y in zip(column, inner))
    drawn = figure.values["Column"] > figure.values["Inner Prod."]
    because = slow - fast >= _MUCH * (inner - column)
    return (
        (drawn & (column < inner) & (fast < _COMPETITIVE * slow) & because).all(),
        f"Column/Inner, unreplicated: {times} ms, their local GEMMs {gemms} ms",
    )


def _p3(f):
    block, column = (f[_PVC_1].values[name] for name in ("Block", "Column"))
    return (
        block.is_monotonic_increasing and block.iloc[-1] > block.iloc[0] and (block < column).all(),
        f"Block {_row(block)} %, Column {_row(column)} %",
    )


def _p4(f):
    """Of the lines below the best two, as they are drawn."""
    figure = f[_PVC_1]
    found, text = 0, []
    for name in figure.heights().index[2:]:
        line = figure.lines[name]
        factors = [point.factor for point in line.points]
        found += line.stationary != "B" and any(factor != "1" for factor in factors)
        text.append(f"{name} S-{line.stationary} {' '.join(factors)}")
    return found > 1, f"drawn: {', '.join(text)}; {found} of them with B moved are replicated"


def _spreads(f, layer):
    """The spreads on both machines, and both as text."""
    pvc, h100 = (f[machine, layer].spreads() for machine in ("pvc12", "h100x8"))
    return (pvc, h100), (
        f"spread {h100.mean():.0f} % on h100x8, {pvc.mean():.0f} % on pvc12 "
        f"({_row(h100)} against {_row(pvc)})"
    )


def _p5(f):
    (pvc, h100), text = _spreads(f, "mlp1")
    return h100.mean() <= _MUCH * pvc.mean() and (h100 < pvc).all(), text


def _p6(f):
    names = ["Column", "Inner Prod."]
    best, text = _best_two(f[_H100_1], *names)
    values = f[_H100_1].values
    lead = values[names].mean(axis="columns") - values.drop(columns=names).mean(axis="columns")
    smallest, largest = lead.iloc[0], lead.iloc[-1]
    return (
        best and smallest > largest,
        f"{text}; lead over the others {smallest:.1f} points at the smallest batch, {largest:.1f} "
        "at the largest",
    )


def _p7(f):
    figure, names = f[_PVC_2], ("Outer Prod.", "Block")
    best, text = _best_two(figure, *names)
    outer, block = (figure.lines[name].stationary for name in names)
    stays = Series(
        {
            name: figure.best(name, stationary="B").percent_of_peak.mean(skipna=False)
            for name in figure.lines
        }
    )
    return (
        best and outer == block == "B",
        f"{text}; Outer drawn S-{outer}, Block S-{block}; with B in place (S-B): "
        f"{named(_falling(stays.dropna()))}",
    )


def _p8(f):
    """Factors of each line by batch size; and what a factor of C's own gains over the best equal
    factors, each in the better of Stationary C and B, at every line and batch size."""
    low, high = f[_PVC_1].factors().align(f[_PVC_2].factors(), join="inner")
    gains = []
    for name in f[_PVC_2].lines:
        own, equal = (f[_PVC_2].fastest(name, mixed=mixed) for mixed in (True, False))
        gains += [gain for gain in equal / own if gain == gain]  # nan: no such case
    better = mean(gain > 1 / _COMPETITIVE for gain in gains)
    usual, more = (each.mean(axis="columns") for each in (low, high))
    return (
        (low <= high).all(axis=None) and (usual < more).all() and better > 0.5,
        f"mean A,B factor {_row(usual)} in MLP-1, {_row(more)} in MLP-2, lower in "
        f"{(low > high).sum().sum()} of {low.size} points; with C's own more than 5 % faster than "
        f"with equal ones in {100 * better:.0f} % of the points",
    )


def _p9(f):
    """As the line is drawn: between no replication, where local GEMMs are slower, and the highest
    factor, where the rest takes longer. Beside it, with B in place."""
    line = f[_PVC_2].lines["Outer Prod."]
    held, text, forced = [], [], []
    for point in sorted(line.points, key=lambda point: point.m):
        cases = f[_PVC_2].cases
        outer = cases[(cases.preset == "outer") & (cases.m == point.m)]
        drawn, stays_b = (
            rows(outer[outer.stationary == stationary]) for stationary in (line.stationary, "B")
        )
        none, best, most = _ends(drawn)
        held.append(
            1 < best.factors[0] < most.factors[0]
            and _COMPETITIVE * none.phase_gemm_s > max(best.phase_gemm_s, most.phase_gemm_s)
            and _COMPETITIVE * _rest(most) > _rest(best)
        )
        text.append("{}-{}".format(*best.factors[1:]))
        forced.append(
            "m={}: best {}-{}; local GEMMs {:.1f} ms unreplicated, {:.1f} best, {:.1f} most; the "
            "rest {:.1f}, {:.1f}, {:.1f} ms".format(
                point.m,
                *_ends(stays_b)[1].factors[1:],
                *(1e3 * each.phase_gemm_s for each in _ends(stays_b)),
                *(1e3 * _rest(each) for each in _ends(stays_b)),
            )
        )
    return all(held), (
        f"drawn S-{line.stationary} with factors {', '.join(text)}; with B in place: "
        f"{'; '.join(forced)}"
    )


def _ends(cases: list) -> tuple:
    """The case without replication, the fastest, and the one with the highest factors, equal ones
    if there are."""
    none = next(case for case in cases if case.factors == (1, 1, 1))
    most = max(cases, key=lambda case: (len(set(case.factors)) == 1, case.factors))
    return none, min(cases, key=lambda case: case.best_s), most


def _rest(case) -> float:
    """Seconds that are no local GEMM."""
    return case.best_s - case.phase_gemm_s


def _p10(f):
    (pvc, h100), text = _spreads(f, "mlp2")
    figure = f[_H100_2]
    best = figure.lines[figure.values.iloc[-1].idxmax()].stationary
    return h100.mean() < pvc.mean() and best == "C", f"{text}; best line S-{best}"


def _p10a(f):
    figure = f[_H100_2]
    slow, fast = (
        figure.best("Outer", stationary=stationary).percent_of_peak.fillna(0) for stationary in "BC"
    )
    drawn = figure.lines["Outer Prod."].stationary
    return (
        drawn == "C" and (slow < _COMPETITIVE * fast).all(),
        f"Outer drawn S-{drawn}; S-B {_row(slow)}, S-C {_row(fast)} %",
    )


def aligned(record: Record) -> bool:
    """Whether the tiles of a case nest along every axis, so that a rank's products are all of one
    size.

    Examples
    --------
    >>> def case(*texts, ranks=12):
    ...     return Record(
    ...         mode="simulated",
    ...         status="failed",
    ...         reason="-",
    ...         m=1024,
    ...         n=4096,
    ...         k=4096,
    ...         ranks=ranks,
    ...         **dict(zip("abc", texts)),
    ...     )
    >>> (
    ...     aligned(case("row", "row", "row")),
    ...     aligned(case("block", "block", "block")),
    ...     aligned(case("block", "block", "block", ranks=8)),
    ... )
    (True, False, True)
    """
    problem = Problem(record.m, record.n, record.k, record.ranks, record.a, record.b, record.c)
    for axis in "mnk":
        extent = problem.extent(axis)
        coarse, fine = sorted(
            (operand.cuts(axis, 0, extent) for operand in problem.operands if axis in operand.axes),
            key=len,
        )
        # tiles are rounded up, so that boundaries drift apart by an element a tile
        rounding = min(len(fine), extent / len(fine) / 4)
        if any(min(abs(cut - other) for other in fine) > rounding for cut in coarse):
            return False
    return True


def _p11(f):
    """On all cases almost always; and misaligned tiles are where a schedule matters more often.

    The optimal schedule is the best lowering of a case. Where the exhaustive search was beyond its
    limit that is only a bound: direct execution that loses to it has lost, one that does not is
    undecided and counts for neither.
    """
    found: dict = {}
    ran = f.where(status=["ok", "unsupported"], mode="simulated", algorithm="universal")
    for r in rows(ran[ran.schedule.notna()]):
        found.setdefault(_CASE(r), {})[r.schedule] = r
    shares: dict = {}  # kind of case -> (direct's time over that of the best lowering)
    undecided = 0
    for each in found.values():
        times = {name: r.best_s for name, r in each.items() if r.status == "ok"}
        if "exhaustive" in each and "direct" in times and len(times) > 1:
            ratio = times.pop("direct") / min(times.values())
            if "exhaustive" not in times and ratio <= 1 / _COMPETITIVE:
                undecided += 1
                continue
            kinds = ["all", "aligned" if aligned(each["direct"]) else "misaligned"]
            kinds += ["of the figures"] * (each["direct"].preset is not None)
            for kind in kinds:
                shares.setdefault(kind, []).append(ratio)
    if not {"aligned", "misaligned"} <= set(shares):
        return (
            None,
            "no records with schedule direct and exhaustive of the same case, of aligned and of "
            "misaligned tiles",
        )
    good = {
        kind: mean(ratio <= 1 / _COMPETITIVE for ratio in ratios) for kind, ratios in shares.items()
    }
    text = [
        f"{kind}: competitive with the best lowering in {100 * good[kind]:.1f} % of "
        f"{len(shares[kind])} cases, at worst {max(shares[kind]):.2f} times its time"
        for kind in ("all", "of the figures", "aligned", "misaligned")
        if kind in shares
    ]
    most = (good["all"] * len(shares["all"]) + undecided) / (len(shares["all"]) + undecided)
    text.append(
        f"undecided, exhaustive being beyond its limit, {undecided}: with them at most "
        f"{100 * most:.1f} %"
    )
    holds = good["all"] >= _ALMOST_ALWAYS and good["misaligned"] < good["aligned"]
    return holds, "; ".join(text)


def _pairs(f, figure) -> tuple:
    """Percent of peak at each batch size: of our best line, and of DTensor's better one as
    simulated by the same constants; both as text."""
    theirs = f.dtensor(figure).max(axis="columns")
    ours = f[figure].values.max(axis="columns").reindex(theirs.index)
    pairs = " ".join(f"{x:.1f}/{y:.1f}" for x, y in zip(ours, theirs))
    return ours, theirs, "{} {}, ours/DTensor simulated: {}".format(*figure, pairs)


def _p12(f):
    """No DTensor lines are published for PVC, so the simulated ones."""
    ours, theirs, text = _pairs(f, _PVC_2)
    ratio = (ours / theirs).mean()
    return _COMPETITIVE <= ratio < 1, f"{text}; mean ratio {ratio:.2f}"


def _p12a(f):
    """Our best line is one of the two that the paper names as the best."""
    ours, theirs, text = _pairs(f, _PVC_1)
    best = f[_PVC_1].values.idxmax(axis="columns")
    return (
        (ours > theirs).all() and best.isin(["Column", "Inner Prod."]).all(),
        f"{text}; best line {', '.join(best)}",
    )


def _p12b(f):
    """And that the simulated lines of DTensor are like the published ones, in level and order: else
    the comparison means nothing."""
    held, numbers = [], []
    for figure in (_H100_1, _H100_2):
        ours, theirs, text = _pairs(f, figure)
        lines = f.dtensor(figure, "published").reindex(theirs.index)
        simulated = f.dtensor(figure)
        held += [
            *(ours >= _COMPETITIVE * theirs),
            *(ours >= _COMPETITIVE * lines.max(axis="columns")),
        ]
        off = (lines / simulated - 1).abs().mean(axis=None)
        held.append(off <= 1 - _COMPETITIVE)
        row, column = lines["DT - Row"], lines["DT - Column"]
        apart = lines.min(axis="columns") < _COMPETITIVE * lines.max(axis="columns")
        order = (row < column) == (simulated["DT - Row"] < simulated["DT - Column"])
        held += [
            *order[apart],
            *(simulated.min(axis="columns") < simulated.max(axis="columns"))[apart],
        ]
        numbers.append(
            f"{text}; ours/published: "
            + " ".join(f"{x:.1f}/{y:.1f}" for x, y in zip(ours, lines.max(axis="columns")))
            + f"; DTensor's simulated lines off by {100 * off:.1f} % on average, in the published "
            f"order at {order[apart].sum()} of {apart.sum()} batch sizes"
        )
    return all(held), "; ".join(numbers)


_PAGE = "docs/reproduction.md#"


def _of(*figures: str) -> str:
    return ", ".join(f"results/simulated/{each}.csv" for each in figures)


CLAIMS = (
    Claim(
        "P1",
        "PVC MLP-1: Column and Inner Prod. are the best two",
        lambda f: _best_two(f[_PVC_1], "Column", "Inner Prod."),
        "the highest performing partitionings",
        "the two lines with the highest means over the batch sizes",
        _of("mlp1-pvc12"),
    ),
    Claim(
        "P2",
        "PVC MLP-1: both fastest with Stationary C; Column gains nothing by replication",
        _p2,
        "Stationary C; no benefit from replication",
        "both lines are drawn with Stationary C; Column is slower with any replication "
        "at each batch size",
        _of("mlp1-pvc12"),
    ),
    Claim(
        "P2a",
        "PVC MLP-1: Column beats Inner Prod., its local GEMMs being faster",
        _p2a,
        "local GEMMs of Column are more efficient",
        "at each batch size Column is higher, its local GEMMs take more than 5 % less "
        "time, and that is at least half of the difference",
        _of("mlp1-pvc12"),
    ),
    Claim(
        "P3",
        "PVC MLP-1: Block improves with the batch but stays below Column",
        _p3,
        "improves, but is held back",
        "Block rises with the batch size and is below Column at each",
        _of("mlp1-pvc12"),
    ),
    Claim(
        "P4",
        "PVC MLP-1: some of the others, drawn with B moved, are best with replication > 1",
        _p4,
        "some of the poorly performing partitionings",
        "at least two lines below the best two",
        _of("mlp1-pvc12"),
        see=_PAGE + "why-p4-does-not-hold",
    ),
    Claim(
        "P5",
        "H100 MLP-1: much smaller differences than on PVC",
        _p5,
        "much smaller",
        "the mean spread is at most half; it is smaller at each batch size",
        _of("mlp1-pvc12", "mlp1-h100x8"),
        see=_PAGE + "why-p5-does-not-hold",
    ),
    Claim(
        "P6",
        "H100 MLP-1: Column and Inner Prod. are the best two, most at small batches",
        _p6,
        "best, particularly at lower batch sizes",
        "the two highest means; their lead is larger at the smallest batch size than at "
        "the largest",
        _of("mlp1-h100x8"),
    ),
    Claim(
        "P7",
        "PVC MLP-2: Outer Prod. and Block are the best two, with B in place",
        _p7,
        "perform best; both avoid moving B",
        "the two highest means, both drawn with Stationary B",
        _of("mlp2-pvc12"),
        see=_PAGE + "why-p7-does-not-hold-and-what-decides-it",
    ),
    Claim(
        "P8",
        "PVC MLP-2: higher factors than in MLP-1; with C's own it is faster",
        _p8,
        "higher replication factors; another factor for C is better",
        "the A,B factor of no line is lower at any batch size, and their mean is higher "
        "at each; C's own factor gains more than 5 % in more than half of the points",
        _of("mlp1-pvc12", "mlp2-pvc12"),
    ),
    Claim(
        "P9",
        "PVC MLP-2, Outer Prod.: the factor in the plot is between slow local GEMMs and slow "
        "accumulates",
        _p9,
        "a happy medium between those two extremes",
        "at each batch size the drawn A,B factor is between 1 and the highest; local "
        "GEMMs without replication count as slower, the rest with the highest factor as longer",
        _of("mlp2-pvc12"),
        see=_PAGE + "why-p9-does-not-hold",
    ),
    Claim(
        "P10",
        "H100 MLP-2: smaller differences than on PVC; Stationary C wins",
        _p10,
        "a smaller difference; Stationary C winning out",
        "the mean spread is smaller; the best line is drawn with Stationary C",
        _of("mlp2-pvc12", "mlp2-h100x8"),
        see=_PAGE + "why-p10-does-not-hold-and-what-it-rests-on",
    ),
    Claim(
        "P10a",
        "H100 MLP-2: Outer Prod. performs poorly with Stationary B",
        _p10a,
        "poorly",
        "drawn with Stationary C, and more than 5 % below that with Stationary B at each "
        "batch size",
        _of("mlp2-h100x8"),
        see=_PAGE + "why-p10-does-not-hold-and-what-it-rests-on",
    ),
    Claim(
        "P11",
        "direct execution is almost always as good as the optimal schedule; misaligned tiles are "
        "where one matters",
        _p11,
        "almost always",
        "within 5 % in nine cases of ten, and less often where tiles are misaligned",
        _of("lowering-pvc12", "lowering-h100x8"),
        see=_PAGE + "lowering-p11",
    ),
    Claim(
        "P12",
        "PVC MLP-2: the best partitioning does not quite match DTensor, coming within 5 %",
        _p12,
        "within 5 %, behind",
        "mean over the batch sizes of ours / DTensor simulated at least 0.95, below 1",
        _of("mlp2-pvc12"),
        see=_PAGE + "why-p12-does-not-hold",
    ),
    Claim(
        "P12a",
        "PVC MLP-1: the best partitioning outperforms DTensor",
        _p12a,
        "even outperforming it for our best-performing partitioning",
        "at each batch size above DTensor simulated, by Column or Inner Prod.",
        _of("mlp1-pvc12"),
        see=_PAGE + "why-p12-does-not-hold",
    ),
    Claim(
        "P12b",
        "H100, both layers: the best partitioning generally matches or exceeds DTensor",
        _p12b,
        "16 points of DTensor; matching or exceeding",
        "at each batch size at least 95 % of DTensor, simulated and published; its "
        "simulated lines within 5 % of the published ones on average, and in their order where "
        "these are more than 5 % apart",
        _of("mlp1-h100x8", "mlp2-h100x8") + ", results/published/h100.csv",
    ),
)


#: The machines of the figures. Batch sizes that are simulated on others by layer: MLP-2 has six
#: times as many cases, so of it the smallest and the largest.
MACHINES = ("pvc12", "h100x8")
BATCHES = {"mlp1": (1024, 2048, 4096, 8192), "mlp2": (1024, 8192)}
#: C is in at most so many replicas, or in as many as A and B: no line is drawn with more as long as
#: A and B may be on all ranks, and the simulations take three quarters of the time.
MOST_OF_C = 4


def cases_for_claims(layer: str, ranks: int, **fields) -> list[Case]:
    """The cases of a figure but for those with C in more replicas (:data:`MOST_OF_C`); fields as in
    :func:`~launch.models.simulate_sweeps.legend_cases`.

    Examples
    --------
    >>> len(cases_for_claims("mlp2", 12)), len(cases_for_claims("mlp1", 8))
    (1256, 200)
    """
    factor = lambda text: int(text.partition("/c")[2] or 1)
    return [
        case
        for case in legend_cases(layer, ranks, **fields)
        if factor(case.c) <= MOST_OF_C or factor(case.c) == factor(case.a)
    ]


def simulate(changed: Changed) -> list[Record]:
    """Both figures on both machines, some of them changed."""
    return [
        record
        for name in MACHINES
        for record in (_records(changed[name]) if name in changed else _as_it_is(name))
    ]


@cache
def _as_it_is(name: str) -> list[Record]:
    return _records(Variant(find_machine(name)))


def _records(variant: Variant) -> list[Record]:
    ranks = variant.machine.devices
    cases = [
        case
        for layer, batches in BATCHES.items()
        for case in cases_for_claims(layer, ranks, batches=batches)
    ]
    return run_variants(cases, [variant], ranks)[0]


def changes() -> Iterator[tuple[str, Changed]]:
    """What of the machines may be entirely otherwise: of both at once, and of each.

    Examples
    --------
    >>> [(words, *changed) for words, changed in changes()][3:6]
    [('bandwidth x 10', 'pvc12', 'h100x8'), ('no overlap', 'pvc12', 'h100x8'), \
('links swapped', 'pvc12', 'h100x8')]
    """
    machines = [find_machine(name) for name in MACHINES]

    def both(change) -> Changed:
        return {machine.name: change(machine) for machine in machines}

    for factor in (0.1, 0.5, 2, 10):
        yield f"bandwidth x {factor:g}", both(lambda machine: _faster_links(machine, factor))
    yield "no overlap", both(lambda machine: Variant(machine, {"prefetch": 0}))
    yield "links swapped", both(lambda machine: _with_links(machine, *machines))
    for machine in machines:
        for words, value in _of_one(machine):
            yield words, {machine.name: Variant(value)}


def _faster_links(machine: Machine, factor: float) -> Variant:
    for link in machine.links:
        machine = machine.vary(f"links.{link.name}.bandwidth_bytes_per_s", factor)
    return Variant(machine)


def _with_links(machine: Machine, *machines: Machine) -> Variant:
    (other,) = (each for each in machines if each.name != machine.name)
    sources = machine.sources | {"links": other.sources["links"], "assumed": ()}
    return Variant(Machine.from_dict(sources, machine.name))


def _of_one(machine: Machine) -> Iterator[tuple[str, Machine]]:
    """Links that are shared by devices or slower, local GEMMs as measured, slower accumulates."""
    far = next((link for link in machine.links if not link.within), None)
    for link in machine.links:
        path = f"links.{link.name}"
        if link.shared == "pair" and not link.within:
            yield f"{path}.shared = device", machine.with_value(f"{path}.shared", "device")
        if link.within and far:
            slow = far.bandwidth_bytes_per_s
            words = f"{path} as slow as {far.name} (no two ranks of a replica on one GPU)"
            yield words, machine.with_value(f"{path}.bandwidth_bytes_per_s", slow)
    measured = f"{machine.name}measured"
    if measured in machine_names():
        words = f"products, and accumulates beside them, as measured ({measured})"
        yield words, Machine.from_dict(find_machine(measured).sources, machine.name)
    if machine.accumulate_slowdown:
        for constant, value in (("slowdown", 0.0), ("efficiency", 0.2)):
            constant = f"accumulate_{constant}"
            yield f"{constant} = {value:g}", machine.with_value(constant, value)
        for times in (2, 4):
            words = f"accumulate_slowdown x {times}"
            yield words, machine.vary("accumulate_slowdown", times)


def read(folder: Path):
    """The simulated records in a folder."""
    return read_records(sorted(folder.glob("*-*.csv")))


def judged(records, results: Path) -> Figures:
    """Simulated records with the published ones, DTensor's lines."""
    theirs = frame(read_published(results / "published/h100.csv"))
    return Figures(concat([frame(records), theirs], ignore_index=True))


PAPER = Paper(
    "Slicing Is All You Need",
    CLAIMS,
    read,
    judged,
    machines=MACHINES,
    changes=changes,
    simulate=simulate,
)
