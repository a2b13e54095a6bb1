"""The paper's claims P1-P12 about Figures 2 and 3, checked on records: the conditions are stated
once, in general terms.

Shared terms, the same for every claim and machine:

- "we consider only partitionings that do not entirely eliminate communication" (§5.2.1): a case
  with A and B on all ranks is left out of figures and claims;
- a *line* is what the figure draws: the best replication factor at each batch size, in the better
  of Stationary C and B;
- the *height* of a line is its mean over the batch sizes; the *best two* lines are the two highest;
- the *spread* of a figure is (highest - lowest line) / highest line, mean over the batch sizes;
- *competitive* means at least 95 % of the other (the paper's "within 5%"); a difference *counts* if
  it is larger than that;
- *much* smaller means at most half; *because of* means that it makes at least half of a difference;
- *almost always* means in nine cases of ten;
- *some* lines are at least two;
- where the paper gives no batch size, a statement is about the mean over the batch sizes;
- the paper gives Xe Link 20 GB/s (§5.2) and 26.5 GB/s (Table 2): a claim about PVC has a verdict
  with each, and holds only if both do (P11, about schedules, has those of §5.2 alone);
- a line *moves B* if it is drawn with another matrix in place than B;
- *aligned* tiles nest: along every axis no boundary of one matrix is inside a tile of the other
  unless it is also its own, except for rounding.
"""

from dataclasses import replace
from functools import cache, cached_property
from pathlib import Path

from pandas import DataFrame, Series, concat

from drbench.launch.cases.case import Case
from drbench.launch.cases.machine_models import find_machine
from drbench.launch.models.simulate_sweeps import legend_cases, predict_on
from drbench.measure.record import Record
from drbench.model.machine import Machine
from drbench.plots.select.records import frame, read_published, read_records, rows
from drbench.plots.select.selection import communicates, select
from drbench.program.problem import Problem

from .claims import Changed, Paper, ResultRows, join_verdicts, name_values, read_claims

#: The machines of the figures; and (machine, layer) of these.
MACHINES = ("pvc12", "h100x8")
Plot = tuple[str, str]
#: The label of records of PVC with Table 2's rate of Xe Link.
TABLE_2 = "pvc12-table2"
_PVC_1, _PVC_2 = ("pvc12", "mlp1"), ("pvc12", "mlp2")
_H100_1, _H100_2 = ("h100x8", "mlp1"), ("h100x8", "mlp2")
COMPETITIVE, ALMOST_ALWAYS, MUCH = 0.95, 0.9, 0.5
#: Columns with equal values in cases that differ in their schedule only.
CASE = "label ranks m n k a b c stationary prefetch chunk transport".split()
LOWERINGS = ("greedy", "cost", "exhaustive")

#: DTensor's published lines.
_DTENSOR = ["DT - Row", "DT - Column"]
#: What claims ask of single cases.
_OF_A_CASE = "preset stationary a c m factors best_s phase_gemm_s percent_of_peak".split()


class LayerFigure:
    """The lines of one layer on one machine by name, as ``Inner Prod.``, and the cases behind them.

    Attributes
    ----------
    values : DataFrame
        Percent of peak by batch size and line.
    cases : DataFrame
        ``mixed``: whether C's factor differs from that of A and B; None where those differ.
    """

    def __init__(self, name: Plot, cases):
        self.name = name
        self.lines = {
            line.name.removeprefix("UA - "): line
            for line in select(cases, name[1])
            if line.points and line.name.startswith("UA")
        }
        self.values = self._of_points("value")
        # of a hundred columns these: whatever selects rows copies each of them
        ours = cases.loc[communicates(cases), _OF_A_CASE]
        self.cases = ours.assign(mixed=[a != c if a == b else None for a, b, c in ours.factors])

    def _of_points(self, field: str):
        """A value of each point, by batch size and line."""
        lines = self.lines.items()
        return DataFrame({name: {p.m: getattr(p, field) for p in of.points} for name, of in lines})

    def heights(self):
        """Mean of each line, highest first.

        Raises
        ------
        KeyError
            If not all six lines are there.
        """
        if len(self.lines) < 6:
            raise KeyError("some lines of {1} on {0}".format(*self.name))
        return self.values.mean().sort_values(ascending=False, kind="stable")

    def best(self, line: str, stationary: str):
        """The fastest case of a line's partitioning at each batch size with a matrix in place;
        empty where there is none."""
        cases = self.cases[self.cases.stationary == stationary]
        cases = cases[cases.preset == line.lower().split()[0]]
        fastest = cases.sort_values("best_s", kind="stable").drop_duplicates("m")
        return fastest.set_index("m").reindex(sorted(self.cases.m.unique()))

    def factors(self):
        """The A,B factor of each line at each batch size."""
        return self._of_points("factors").map(lambda factors: factors[0], na_action="ignore")


class Figures(ResultRows):
    """Records, and the figures that are drawn of them, by machine and layer."""

    def __init__(self, table):
        super().__init__(table)
        self._figure = cache(
            lambda name: LayerFigure(name, self._direct(name, "simulated", ["universal"]))
        )

    def __getitem__(self, name: Plot) -> LayerFigure:
        return self._figure(name)

    @cached_property
    def rates(self) -> dict[str, "Figures"]:
        """The figures with each of the paper's two rates of Xe Link.

        Raises
        ------
        KeyError
            If there are no records with the second one.
        """
        label = self.table.label
        if not (label == TABLE_2).any():
            raise KeyError("rows with Table 2's rate of Xe Link")
        other = self.table[label != MACHINES[0]].replace({"label": {TABLE_2: MACHINES[0]}})
        return {"§5.2": self, "Table 2": Figures(other)}

    def _direct(self, name: Plot, mode: str, algorithms: list[str]):
        """The cases of a figure by algorithms, but for those that were lowered."""
        of = dict(zip(("label", "layer"), name))
        cases = self.where(mode=mode, status="ok", algorithm=algorithms, **of)
        return cases[cases.schedule.fillna("direct") == "direct"]

    def dtensor(self, name: Plot, mode: str = "simulated"):
        """Percent of peak of DTensor by batch size and line, simulated or published."""
        cases = self._direct(name, mode, ["dtensor_mm", *_DTENSOR])
        line = "DT - " + cases.a.str.capitalize() if mode == "simulated" else cases.algorithm
        return cases.groupby(["m", line.rename("line")]).percent_of_peak.max().unstack()


def _row(values, digits: int = 1) -> str:
    return " ".join(f"{value:.{digits}f}" for value in values if value == value)  # nan: no case


def _at_both_rates(f, check, *query):
    for rate, figures in f.rates.items():
        holds, text = join_verdicts(check(figures, *query))
        yield holds, f"{rate}: {text}"


def _best_two(f, name: Plot, line: str, other: str, stationary: str = ""):
    """That two lines are the two highest, and drawn with a matrix in place."""
    figure, names = f[name], {line, other}
    heights = figure.heights()
    drawn = {figure.lines[name].stationary for name in names}
    return {*heights.index[:2]} == names and drawn <= {*(stationary or "BC")}, (
        f"mean % of peak: {name_values(heights)}"
        + f"; drawn S-{', S-'.join(sorted(drawn))}" * bool(stationary)
    )


def _p2(f):
    """Without replication both code paths are one program, also with B stationary: the first, C, is
    drawn."""
    figure = f[_PVC_1]
    drawn = [figure.lines[name].stationary for name in ("Column", "Inner Prod.")]
    column = figure.cases[figure.cases.preset == "column"]
    times = column.groupby(["m", column.factors == (1, 1, 1)]).best_s.min().unstack()
    more = times[False] / times[True]
    return drawn == ["C", "C"] and not (more <= 1).any(), (
        f"Column S-{drawn[0]}, Inner Prod. S-{drawn[1]}; with replication Column takes by batch "
        f"size {_row(more, 2)} times as long"
    )


def _p2a(f):
    """By local GEMMs that count as faster, and by at least half of the difference in time."""
    figure = f[_PVC_1]
    alone = figure.cases[(figure.cases.factors == (1, 1, 1)) & (figure.cases.stationary == "C")]
    gemms, times = (
        1e3 * alone.pivot_table(value, "m", "preset", aggfunc="min")
        for value in ("phase_gemm_s", "best_s")
    )
    fast, slow = gemms["column"], gemms["inner"]
    behind = times["inner"] - times["column"]
    drawn = figure.values["Column"] > figure.values["Inner Prod."]
    holds = drawn & (behind > 0) & (fast < COMPETITIVE * slow) & (slow - fast >= MUCH * behind)
    return holds.all(), (
        f"local GEMMs of Column {_row(fast)} ms, of Inner {_row(slow)}; Inner takes {_row(behind)} "
        "ms longer"
    )


def _p3(f):
    block, column = (f[_PVC_1].values[name] for name in ("Block", "Column"))
    return (
        block.is_monotonic_increasing and block.iloc[-1] > block.iloc[0] and (block < column).all(),
        f"Block {_row(block)} %, Column {_row(column)} %",
    )


def _p4(f):
    """Of the lines below the best two, as they are drawn."""
    figure, count, text = f[_PVC_1], 0, []
    for name in figure.heights().index[2:]:
        line = figure.lines[name]
        factors = [point.factor for point in line.points]
        count += line.stationary != "B" and {*factors} != {"1"}
        text.append(f"{name} S-{line.stationary} {' '.join(factors)}")
    return count > 1, f"drawn: {', '.join(text)}; {count} of them with B moved are replicated"


def _spreads(f, layer: str):
    """The spreads on both machines, and both as text."""
    ends = (f[machine, layer].values.agg(["min", "max"], axis="columns") for machine in MACHINES)
    pvc, h100 = (100 * (1 - range_["min"] / range_["max"]) for range_ in ends)
    return (
        *(pvc, h100),
        f"spread {h100.mean():.0f} % on h100x8, {pvc.mean():.0f} % on pvc12 ({_row(h100)} against "
        f"{_row(pvc)})",
    )


def _p5(f):
    """The lines are "closer together", but column and inner "particularly" lead "for lower batch
    sizes" (§5.2.1): so on average, not at each batch size."""
    pvc, h100, text = _spreads(f, "mlp1")
    return h100.mean() <= MUCH * pvc.mean(), text


def _p6(f):
    names = ["Column", "Inner Prod."]
    best, text = _best_two(f, _H100_1, *names)
    values = f[_H100_1].values
    lead = values[names].mean(axis="columns") - values.drop(columns=names).mean(axis="columns")
    return best and lead.iloc[0] > lead.iloc[
        -1
    ], f"{text}; lead over the others {_row(lead)} points"


def _p8(f):
    """Factors of each line by batch size; and what a factor of C's own gains over the best equal
    factors, each in the better of Stationary C and B, at every line and batch size."""
    low, high = f[_PVC_1].factors().align(f[_PVC_2].factors(), join="inner")
    times = f[_PVC_2].cases.groupby(["preset", "m", "mixed"]).best_s.min().unstack().dropna()
    better = (times[False] / times[True] > 1 / COMPETITIVE).mean()
    usual, more = (factors.mean(axis="columns") for factors in (low, high))
    return (
        (low <= high).all(axis=None) and (usual < more).all() and better > 0.5,
        f"mean A,B factor {_row(usual)} in MLP-1, {_row(more)} in MLP-2, lower in "
        f"{(low > high).sum().sum()} of {low.size} points; with C's own more than 5 % faster than "
        f"with equal ones in {100 * better:.0f} % of the points",
    )


def _p9(f):
    """As the line is drawn: between no replication, where local GEMMs are slower, and the highest
    factor (equal ones if there are), where the rest takes longer."""
    line, cases = f[_PVC_2].lines["Outer Prod."], f[_PVC_2].cases
    of_line = cases[(cases.preset == "outer") & (cases.stationary == line.stationary)]
    for m, of_m in of_line.groupby("m"):
        every = rows(of_m.sort_values("best_s"))
        none = next(case for case in every if case.factors == (1, 1, 1))
        most = max(every, key=lambda case: (len({*case.factors}) == 1, case.factors))
        best = every[0]
        rest = [case.best_s - case.phase_gemm_s for case in (best, most)]
        holds = (
            1 < best.factors[0] < most.factors[0]
            and COMPETITIVE * none.phase_gemm_s > max(best.phase_gemm_s, most.phase_gemm_s)
            and COMPETITIVE * rest[1] > rest[0]
        )
        gemms = [1e3 * case.phase_gemm_s for case in (none, best, most)]
        yield (
            holds,
            (
                f"m={m} S-{line.stationary}: best {best.factors[1]}-{best.factors[2]}; local GEMMs "
                f"{_row(gemms)} ms unreplicated, best, most; the rest {1e3 * rest[0]:.1f} best, "
                f"{1e3 * rest[1]:.1f} most"
            ),
        )


def _p10(f):
    pvc, h100, text = _spreads(f, "mlp2")
    figure = f[_H100_2]
    best = figure.lines[figure.values.iloc[-1].idxmax()].stationary
    smaller = pvc.mean() - h100.mean() > 100 * (1 - COMPETITIVE)
    return smaller and best == "C", f"{text}; best line S-{best}"


def _p10a(f):
    slow, fast = (
        f[_H100_2].best("Outer", stationary=stationary).percent_of_peak.fillna(0)
        for stationary in "BC"
    )
    drawn = f[_H100_2].lines["Outer Prod."].stationary
    return (
        drawn == "C" and (slow < COMPETITIVE * fast).all(),
        f"Outer drawn S-{drawn}; S-B {_row(slow)}, S-C {_row(fast)} %",
    )


def aligned(record: Record) -> bool:
    """Whether the tiles of a case nest along every axis, so that all local GEMMs of a rank have one
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
    ran = f.ours(status=["ok", "unsupported"], algorithm="universal")
    ran = ran.assign(case=ran.groupby(CASE, dropna=False).ngroup())
    tried = ran.case[ran.schedule == "exhaustive"]
    times = ran[ran.status == "ok"].pivot_table("best_s", "case", "schedule")
    times = times.reindex(columns=["direct", *LOWERINGS]).loc[lambda table: table.index.isin(tried)]
    ratio = (times.direct / times[[*LOWERINGS]].min(axis="columns")).dropna()
    good = ratio <= 1 / COMPETITIVE
    undecided = good & times.exhaustive.isna().reindex(ratio.index)
    direct = ran[ran.schedule == "direct"].drop_duplicates("case", keep="last")
    description = direct.set_index("case").loc[ratio.index]
    nested = Series(map(aligned, rows(description)), ratio.index, dtype=bool)
    kinds = {"all": good == good, "of the figures": description.preset.notna()}
    kinds |= {"aligned": nested, "misaligned": ~nested}
    decided = {name: good[of & ~undecided] for name, of in kinds.items()}
    if decided["aligned"].empty or decided["misaligned"].empty:
        return (
            None,
            "no records with schedule direct and exhaustive of the same case, of aligned and of "
            "misaligned tiles",
        )
    text = [
        f"{name}: competitive in {100 * of.mean():.1f} % of {len(of)} cases, at worst "
        f"{ratio[of.index].max():.2f} times the time of the best lowering"
        for name, of in decided.items()
        if len(of)
    ]
    text.append(
        f"undecided, exhaustive being beyond its limit, {undecided.sum()}: with them at most "
        f"{100 * good.mean():.1f} %"
    )
    almost_always = decided["all"].mean() >= ALMOST_ALWAYS
    return almost_always and decided["misaligned"].mean() < decided["aligned"].mean(), "; ".join(
        text
    )


def _against(f, name: Plot, mode: str = "simulated") -> tuple:
    """Percent of peak at each batch size: of our best line, and of DTensor's better one, simulated
    by the same constants or published; and both as text."""
    theirs = f.dtensor(name, mode).max(axis="columns")
    ours = f[name].values.max(axis="columns").reindex(theirs.index)
    pairs = " ".join(f"{x:.1f}/{y:.1f}" for x, y in zip(ours, theirs))
    return ours, theirs, f"{' '.join(name)}, ours/DTensor {mode}: {pairs}"


def _p12(f):
    """No DTensor lines are published for PVC, so the simulated ones."""
    ours, theirs, text = _against(f, _PVC_2)
    ratio = (ours / theirs).mean()
    return COMPETITIVE <= ratio < 1, f"{text}; mean ratio {ratio:.3f}"


def _p12a(f):
    """Our best line is one of the two that the paper names as the best."""
    ours, theirs, text = _against(f, _PVC_1)
    ratio, best = (ours / theirs).mean(), f[_PVC_1].heights().index[0]
    return (
        ratio > 1 and best in ("Column", "Inner Prod."),
        f"{text}; mean ratio {ratio:.3f}; best line {best}",
    )


def _p12b(f):
    """And that the simulated lines of DTensor are like the published ones, in level and order: else
    the comparison means nothing."""
    for name in (_H100_1, _H100_2):
        for mode in ("simulated", "published"):
            ours, theirs, text = _against(f, name, mode)
            yield (ours >= COMPETITIVE * theirs).all(), text
        simulated, lines = f.dtensor(name), f.dtensor(name, "published")
        off = (lines / simulated - 1).abs().mean(axis=None)
        different = lines.min(axis="columns") < COMPETITIVE * lines.max(axis="columns")
        order = (simulated.rank(axis=1) == lines.rank(axis=1)).all(axis="columns")[different]
        yield (
            off <= 1 - COMPETITIVE and order.all(),
            (
                f"DTensor's simulated lines off by {100 * off:.1f} % on average, in the published "
                f"order at {order.sum()} of {len(order)} batch sizes"
            ),
        )


CLAIMS = read_claims(
    "slicing",
    {
        "P1": (_at_both_rates, _best_two, _PVC_1, "Column", "Inner Prod."),
        "P2": (_at_both_rates, _p2),
        "P2a": (_at_both_rates, _p2a),
        "P3": (_at_both_rates, _p3),
        "P4": (_at_both_rates, _p4),
        "P5": (_at_both_rates, _p5),
        "P6": (_p6,),
        "P7": (_at_both_rates, _best_two, _PVC_2, "Outer Prod.", "Block", "B"),
        "P8": (_at_both_rates, _p8),
        "P9": (_at_both_rates, _p9),
        "P10": (_at_both_rates, _p10),
        "P10a": (_p10a,),
        "P11": (_p11,),
        "P12": (_at_both_rates, _p12),
        "P12a": (_at_both_rates, _p12a),
        "P12b": (_p12b,),
    },
)


#: C is in at most so many replicas, or in as many as A and B: no line is drawn with more, and the
#: simulations take less time.
MOST_OF_C = 4


def cases_for_claims(layer: str, ranks: int, **how) -> list[Case]:
    """The cases of a figure without those with A and B on all ranks, and with C in more replicas
    (:data:`MOST_OF_C`); ``how`` as in :func:`~drbench.launch.models.simulate_sweeps.legend_cases`.

    Examples
    --------
    >>> len(cases_for_claims("mlp2", 12)), len(cases_for_claims("mlp1", 8))
    (1016, 152)
    """
    factor = lambda text: int(text.partition("/c")[2] or 1)
    return [
        case
        for case in legend_cases(layer, ranks, **how)
        if ranks > factor(case.a) and factor(case.c) in (*range(MOST_OF_C + 1), factor(case.a))
    ]


def simulate(changed: Changed) -> list[Record]:
    """Both figures on both machines, some of them changed; on PVC with both rates of Xe Link."""
    return [
        record
        for name in MACHINES
        for record in (_records(changed[name]) if name in changed else _as_it_is(name))
    ]


@cache
def _as_it_is(name: str) -> list[Record]:
    return _records(find_machine(name))


def _records(machine: Machine) -> list[Record]:
    cases, machines = [], [machine]
    for layer in ("mlp1", "mlp2"):
        cases += cases_for_claims(layer, machine.devices)
    if machine.name == MACHINES[0]:
        faster = machine.vary("links.xe.bandwidth_bytes_per_s", 26.5 / 20)
        machines.append(replace(faster, name=TABLE_2))
    return sum(predict_on(machines, cases, machine.devices), [])


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
    machines=dict.fromkeys(MACHINES, ()),
    simulate=simulate,
)
