"""The paper's claims P1-P12 about Figures 2 and 3, checked on records: what must hold is stated
once, in general terms.

Shared terms, the same for every claim and machine:

- a *line* is what the figure draws: the best replication factor at each batch size, in the better
  of Stationary C and B;
- the *height* of a line is its mean over the batch sizes; the *best two* lines are the two highest;
- the *spread* of a figure is (highest - lowest line) / highest line, mean over the batch sizes;
- *competitive* means at least 95 % of the other (the paper's "within 5%");
- *almost always* means in nine cases of ten;
- *aligned* tiles nest: along every axis no boundary of one matrix lies inside a tile of the other
  and beside its own, but for rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from statistics import mean

from drbench.measure.record import Record
from drbench.program.problem import Problem

from .verdicts import Verdict, verdicts

__all__ = ["CLAIMS", "aligned", "check_claims"]

_PVC, _H100 = "pvc12", "h100x8"
_COMPETITIVE, _ALMOST_ALWAYS = 0.95, 0.9


class _Figures:
    """The lines of both layers on both machines, and the cases behind them."""

    def __init__(self, records: Iterable[Record]):
        from plots.select.records import frame
        from plots.select.selection import select

        self.records = list(records)
        table, self.lines, self.cases = frame(self.records), {}, {}
        direct = table[table.schedule.isna() | (table.schedule == "direct")]
        simulated = direct[(direct["mode"] == "simulated") & (direct.status == "ok")]
        for figure, cases in simulated.groupby(["machine", "layer"]):
            self.lines[figure] = {
                line.name: line
                for line in select(cases, figure[1])
                if line.points and line.name.startswith("UA")
            }
            moving = cases[(cases.algorithm == "universal") & (cases.moved_bytes > 0)]
            self.cases[figure] = [self.records[at] for at in moving.index]
        published = table[(table["mode"] == "published") & table.algorithm.str.startswith("DT")]
        self.published = published.groupby(["machine", "layer", "m"]).percent_of_peak.max()

    def values(self, machine, layer, name) -> list[float]:
        return [point.value for point in self.lines[machine, layer][name].points]

    def heights(self, machine, layer) -> dict[str, float]:
        """Mean of each line, highest first.

        Raises
        ------
        KeyError
            If not all six lines are there.
        """
        if len(self.lines[machine, layer]) < 6:
            raise KeyError(f"some lines of {layer} on {machine}")
        found = {
            name: mean(self.values(machine, layer, name)) for name in self.lines[machine, layer]
        }
        return dict(sorted(found.items(), key=lambda item: -item[1]))

    def spreads(self, machine, layer) -> list[float]:
        columns = list(
            zip(*(self.values(machine, layer, name) for name in self.lines[machine, layer]))
        )
        return [(max(column) - min(column)) / max(column) for column in columns]

    def best(self, machine, layer, preset, m, **fixed) -> Record | None:
        """The fastest case of a partitioning at one batch size with some columns fixed."""
        found = [
            r
            for r in self.cases[machine, layer]
            if r.preset == preset and r.m == m and all(getattr(r, k) == v for k, v in fixed.items())
        ]
        return min(found, key=lambda r: r.best_s, default=None)

    def batches(self, machine, layer) -> list[int]:
        return sorted({r.m for r in self.cases[machine, layer]})


def _told(heights: dict[str, float]) -> str:
    return ", ".join(f"{name.removeprefix('UA - ')} {value:.1f}" for name, value in heights.items())


def _best_two(figures, machine, layer, names):
    heights = figures.heights(machine, layer)
    return set(list(heights)[:2]) == {
        f"UA - {name}" for name in names
    }, f"mean % of peak: {_told(heights)}"


def _p1(f):
    return _best_two(f, _PVC, "mlp1", ("Column", "Inner Prod."))


def _p2(f):
    lines = f.lines[_PVC, "mlp1"]
    column, inner = lines["UA - Column"], lines["UA - Inner Prod."]
    factors = [point.factor for point in column.points]
    return (
        column.stationary == inner.stationary == "C" and set(factors) == {"1"},
        f"Column S-{column.stationary}, Inner S-{inner.stationary}; Column's best factors "
        f"{', '.join(factors)}",
    )


def _p2a(f):
    column, inner = (f.values(_PVC, "mlp1", f"UA - {name}") for name in ("Column", "Inner Prod."))
    gemm = []
    for m in f.batches(_PVC, "mlp1"):
        pair = [
            f.best(_PVC, "mlp1", preset, m, stationary="C", a=a, c="column")
            for preset, a in (("column", "column"), ("inner", "row"))
        ]
        gemm.append([1e3 * r.phase_gemm_s for r in pair if r])
    faster = all(len(pair) == 2 and pair[0] < pair[1] for pair in gemm)
    return (
        all(x > y for x, y in zip(column, inner)) and faster,
        "Column "
        + _row(column)
        + " against Inner "
        + _row(inner)
        + " %; products "
        + ", ".join("/".join(f"{x:.1f}" for x in pair) for pair in gemm)
        + " ms",
    )


def _row(values) -> str:
    return " ".join(f"{value:.1f}" for value in values)


def _p3(f):
    block, column = f.values(_PVC, "mlp1", "UA - Block"), f.values(_PVC, "mlp1", "UA - Column")
    return block == sorted(block) and block[-1] > block[0] and all(
        x < y for x, y in zip(block, column)
    ), f"Block {_row(block)} %, Column {_row(column)} %"


def _p4(f):
    """Of the partitionings below the best two: with a stationary matrix other than B, B moves."""
    heights = f.heights(_PVC, "mlp1")
    found, told = False, []
    for name in list(heights)[2:]:
        preset = name.removeprefix("UA - ").lower().split()[0]
        best = [f.best(_PVC, "mlp1", preset, m, stationary="C") for m in f.batches(_PVC, "mlp1")]
        factors = [r.c.partition("/c")[2] or "1" for r in best if r]
        found |= any(factor != "1" for factor in factors)
        told.append(
            f"{name.removeprefix('UA - ')} S-C {' '.join(factors)} (drawn: "
            f"S-{f.lines[_PVC, 'mlp1'][name].stationary} "
            f"{' '.join(point.factor for point in f.lines[_PVC, 'mlp1'][name].points)})"
        )
    return found, "best factors where B moves: " + "; ".join(told)


def _smaller_spread(f, layer):
    pvc, h100 = f.spreads(_PVC, layer), f.spreads(_H100, layer)
    return (
        mean(h100) < mean(pvc),
        f"spread {100 * mean(h100):.0f} % on h100x8, {100 * mean(pvc):.0f} % on pvc12 "
        f"({_row(100 * x for x in h100)} against {_row(100 * x for x in pvc)})",
    )


def _p6(f):
    best, told = _best_two(f, _H100, "mlp1", ("Column", "Inner Prod."))
    lines = f.lines[_H100, "mlp1"]
    lead = []
    for at in (0, -1):
        ours = mean(lines[f"UA - {name}"].points[at].value for name in ("Column", "Inner Prod."))
        lead.append(
            ours
            - mean(
                line.points[at].value
                for name, line in lines.items()
                if name not in ("UA - Column", "UA - Inner Prod.")
            )
        )
    return (
        best and lead[0] > lead[1],
        f"{told}; lead over the others {lead[0]:.1f} points at the smallest batch, {lead[1]:.1f} "
        "at the largest",
    )


def _p7(f):
    best, told = _best_two(f, _PVC, "mlp2", ("Outer Prod.", "Block"))
    lines = f.lines[_PVC, "mlp2"]
    still = [lines[f"UA - {name}"].stationary for name in ("Outer Prod.", "Block")]
    stays = {}
    for name in lines:
        preset = name.removeprefix("UA - ").lower().split()[0]
        best_b = [f.best(_PVC, "mlp2", preset, m, stationary="B") for m in f.batches(_PVC, "mlp2")]
        if all(best_b):
            stays[name] = mean(r.percent_of_peak for r in best_b)
    stays = dict(sorted(stays.items(), key=lambda item: -item[1]))
    return (
        best and still == ["B", "B"],
        f"{told}; Outer drawn S-{still[0]}, Block S-{still[1]}; with B in place (S-B): "
        f"{_told(stays)}",
    )


def _factors(line):
    from plots.select.cases import factors

    return [factors(point.record) for point in line.points]


def _p8(f):
    first = mean(a for line in f.lines[_PVC, "mlp1"].values() for a, _, _ in _factors(line))
    second = [x for line in f.lines[_PVC, "mlp2"].values() for x in _factors(line)]
    mixed = mean(a != c for a, _, c in second)
    return (
        mean(a for a, _, _ in second) > first and mixed > 0.5,
        f"mean A,B factor {first:.1f} in MLP-1, {mean(a for a, _, _ in second):.1f} in MLP-2; "
        f"C's differs in {100 * mixed:.0f} % of the points",
    )


def _p9(f):
    """Stationary B, equal factors and mixed: the best is between none and the highest, which lose
    for the named reasons."""
    from plots.select.cases import factors

    held, told = [], []
    for m in f.batches(_PVC, "mlp2"):
        cases = [
            r
            for r in f.cases[_PVC, "mlp2"]
            if r.preset == "outer" and r.stationary == "B" and r.m == m
        ]
        best = min(cases, key=lambda r: r.best_s)
        none = next(r for r in cases if factors(r) == (1, 1, 1))
        most = max(cases, key=lambda r: (len(set(factors(r))) == 1, factors(r)))
        waits = lambda r: r.best_s - r.phase_gemm_s
        a, _, c = factors(best)
        held.append(
            1 < a < 12 and none.phase_gemm_s > best.phase_gemm_s and waits(most) > waits(best)
        )
        told.append(
            f"m={m}: best {a}-{c}; products {1e3 * none.phase_gemm_s:.1f} ms unreplicated, "
            f"{1e3 * best.phase_gemm_s:.1f} best, {1e3 * most.phase_gemm_s:.1f} most; "
            f"the rest {1e3 * waits(none):.1f}, {1e3 * waits(best):.1f}, {1e3 * waits(most):.1f} ms"
        )
    return all(held), "; ".join(told)


def _p10(f):
    smaller, told = _smaller_spread(f, "mlp2")
    line = f.lines[_H100, "mlp2"]["UA - Outer Prod."]
    pairs = []
    for m in f.batches(_H100, "mlp2"):
        pairs.append(
            [
                r.percent_of_peak if r else 0.0
                for r in (f.best(_H100, "mlp2", "outer", m, stationary=s) for s in "BC")
            ]
        )
    best = max(f.lines[_H100, "mlp2"].values(), key=lambda each: each.points[-1].value)
    return (
        smaller
        and line.stationary == "C"
        and all(b < c for b, c in pairs)
        and best.stationary == "C",
        f"{told}; Outer S-B {_row(b for b, _ in pairs)}, S-C {_row(c for _, c in pairs)} %; best "
        f"line S-{best.stationary}. RESTS ON AN ASSUMPTION: accumulate_slowdown",
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
    """On the partitionings of the figures almost always; and misaligned tiles are where a schedule
    matters more often."""
    found: dict = {}
    for r in f.records:
        if (
            r.schedule
            and r.status in ("ok", "unsupported")
            and r.mode == "simulated"
            and r.algorithm == "universal"
        ):
            key = (
                r.machine,
                r.ranks,
                r.m,
                r.n,
                r.k,
                r.a,
                r.b,
                r.c,
                r.stationary,
                r.prefetch,
                r.chunk,
                r.transport,
            )
            found.setdefault(key, {})[r.schedule] = r
    shares: dict = {}  # kind of case -> (direct's time over that of the best lowering)
    refused = 0
    for each in found.values():
        times = {name: r.best_s for name, r in each.items() if r.status == "ok"}
        if "exhaustive" in each and "direct" in times and len(times) > 1:
            refused += "exhaustive" not in times
            kinds = ["aligned" if aligned(each["direct"]) else "misaligned"] + [
                "of the figures"
            ] * (each["direct"].preset is not None)
            ratio = times.pop("direct") / min(times.values())
            for kind in kinds:
                shares.setdefault(kind, []).append(ratio)
    if not {"of the figures", "misaligned"} <= set(shares):
        return (
            None,
            "no records with schedule direct and exhaustive of the same case, of a partitioning "
            "of the figures and of misaligned tiles",
        )
    good = {
        kind: mean(ratio <= 1 / _COMPETITIVE for ratio in ratios) for kind, ratios in shares.items()
    }
    told = [
        f"{kind}: competitive with the best lowering in {100 * good[kind]:.0f} % of "
        f"{len(shares[kind])} cases, at worst {max(shares[kind]):.2f} times its time"
        for kind in ("of the figures", "aligned", "misaligned")
        if kind in shares
    ]
    told.append(f"exhaustive was beyond its limit in {refused}")
    return good["of the figures"] >= _ALMOST_ALWAYS and good["misaligned"] < good.get(
        "aligned", 1.0
    ), "; ".join(told)


def _p12(f):
    held, told = [], []
    for machine in (_PVC, _H100):
        for layer in ("mlp1", "mlp2"):
            theirs = {
                m: value
                for (where, of, m), value in f.published.items()
                if (where, of) == (machine, layer)
            }
            if not theirs or (machine, layer) not in f.lines:
                told.append(f"{machine} {layer}: no DTensor lines to compare with")
                continue
            ours = {
                m: max(
                    p.value
                    for line in f.lines[machine, layer].values()
                    for p in line.points
                    if p.batch == m
                )
                for m in theirs
            }
            held += [ours[m] >= _COMPETITIVE * theirs[m] for m in theirs]
            told.append(
                f"{machine} {layer}: "
                + ", ".join(f"{ours[m]:.1f} against {theirs[m]:.1f} at {m}" for m in sorted(theirs))
            )
    return (mean(held) > 0.5 and all(held) if held else None), "; ".join(told)


#: Claim -> (its words, check). A check gets the figures and returns (holds or None, numbers).
CLAIMS: dict[str, tuple[str, Callable]] = {
    "P1": ("PVC MLP-1: Column and Inner Prod. are the best two", _p1),
    "P2": ("PVC MLP-1: both fastest with Stationary C; Column gains nothing by replication", _p2),
    "P2a": ("PVC MLP-1: Column beats Inner Prod., its products being faster", _p2a),
    "P3": ("PVC MLP-1: Block improves with the batch but stays below Column", _p3),
    "P4": ("PVC MLP-1: some of the others, which move B, are best with replication > 1", _p4),
    "P5": (
        "H100 MLP-1: much smaller differences than on PVC",
        lambda f: _smaller_spread(f, "mlp1"),
    ),
    "P6": ("H100 MLP-1: Column and Inner Prod. are the best two, most at small batches", _p6),
    "P7": ("PVC MLP-2: Outer Prod. and Block are the best two, with B in place", _p7),
    "P8": ("PVC MLP-2: higher factors than in MLP-1, C's different", _p8),
    "P9": (
        "PVC MLP-2, Outer Prod. S-B: unreplicated products slow, high factors communicate; the "
        "best is between",
        _p9,
    ),
    "P10": ("H100 MLP-2: smaller differences; Outer poor with S-B; Stationary C wins", _p10),
    "P11": (
        "direct execution is almost always as good as the optimal schedule; misaligned tiles are "
        "where one matters",
        _p11,
    ),
    "P12": ("the best partitioning is competitive with DTensor", _p12),
}


def check_claims(records: Iterable[Record]) -> list[Verdict]:
    """Check every claim; one whose records are missing is undecided and says what is missing."""
    return verdicts(CLAIMS, _Figures(records))
