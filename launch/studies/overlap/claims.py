"""What FLUX and Triton-distributed (TD) say of their figures, beside what the rows of the studies
say (:mod:`launch.studies.overlap.study`): F1-F9 and T1-T11.

Tolerances were set before anything was simulated. A claim compares with published numbers where
there are some (``results/published/overlap``), and takes none of its own from the rows.
"""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import geometric_mean, mean

from launch.studies.verdicts import Claim, Verdict, show, verdicts

from .study import FLUX_M, FLUX_MACHINES, SMALL_M

#: The clusters joined by NVLink, by the figure of each.
_NVLINK = {figure: name for figure, name in FLUX_MACHINES.items() if name != "a100pcie"}
#: Of F1: points of a mean, and of the ends of a range.
_MEAN_POINTS, _END_POINTS = 15.0, 25.0
#: Of T1 to T4: shares of a geometric mean, and of a point.
_MEAN_SHARE, _POINT_SHARE = 0.15, 0.30
_TD = {"T1": "td11", "T2": "td12", "T3": "td13", "T4": "td14"}


class _Rows:
    """Simulated and published rows, and published ranges, by what sets them apart."""

    def __init__(self, rows: Iterable, ranges: Iterable):
        self.rows, self.ranges = list(rows), list(ranges)

    def all(self, study: str, mode: str = "simulated", **fields) -> list:
        """Rows of a study.

        Raises
        ------
        KeyError
            If there are none.
        """
        found = [
            row
            for row in self.rows
            if row.study == study
            and row.mode == mode
            and all(getattr(row, name) == value for name, value in fields.items())
        ]
        if not found:
            told = ", ".join(f"{name} {value}" for name, value in fields.items())
            raise KeyError(f"{mode} rows of {study}{told and f' with {told}'}")
        return found

    def range(self, study: str, machine: str, quantity: str, method: str = "flux"):
        """What the text says of a figure."""
        for each in self.ranges:
            if (each.study, each.machine, each.quantity) == (study, machine, quantity):
                if each.method == method:
                    return each
        raise KeyError(f"published {quantity} of {study}, {machine}")

    def pairs(self, study: str, one: str, other: str, by: str = "method", **fields) -> list:
        """Rows of both for each product, where there are both.

        Raises
        ------
        KeyError
            If there are none.
        """
        shape = lambda row: (row.machine, row.product, row.m, row.n, row.k)
        others = {shape(row): row for row in self.all(study, **fields, **{by: other})}
        ones = self.all(study, **fields, **{by: one})
        return [(row, others[shape(row)]) for row in ones if shape(row) in others]


def check(rows: Iterable, ranges: Iterable, wanted: Callable[[str], bool] = bool) -> list[Verdict]:
    """Every claim that is wanted; those whose rows are missing are undecided."""
    return verdicts(CLAIMS, _Rows(rows, ranges), wanted)


def _efficiencies(found: _Rows, study: str, method: str = "flux", **fields) -> list[float]:
    return [row.efficiency_percent for row in found.all(study, method=method, **fields)]


def _f1(found: _Rows):
    held, told = [], []
    for study, machine in _NVLINK.items():
        ours = _efficiencies(found, study)
        paper = found.range(study, machine, "efficiency_percent")
        held.append(
            abs(mean(ours) - paper.mean) <= _MEAN_POINTS
            and abs(min(ours) - paper.low) <= _END_POINTS
            and abs(max(ours) - paper.high) <= _END_POINTS
        )
        told.append(
            f"{machine} {min(ours):.0f} to {max(ours):.0f}, mean {mean(ours):.0f} (paper "
            f"{paper.low:.0f} to {paper.high:.0f}, mean {paper.mean:.0f}) %"
        )
    ours = _efficiencies(found, "flux11")
    told.append(f"a100pcie {min(ours):.0f} to {max(ours):.0f}, mean {mean(ours):.0f} %, not in it")
    return all(held), "; ".join(told)


def _over_chunks(found: _Rows, study: str, **fields) -> list[float]:
    return [
        other.seconds / row.seconds for row, other in found.pairs(study, "flux", "chunks", **fields)
    ]


def _f2(found: _Rows):
    held, told = [], []
    for study, machine in FLUX_MACHINES.items():
        ours = _over_chunks(found, study)
        paper = found.range(study, machine, "over_chunks")
        held.append(min(ours) >= 0.98)
        if machine == "h800":
            held.append(abs(max(ours) - paper.high) <= 0.25 * paper.high)
        told.append(
            f"{machine} {min(ours):.2f} to {max(ours):.2f} (paper {paper.low:.2f} to "
            f"{paper.high:.2f})"
        )
    return all(held), "; ".join(told)


def _f3(found: _Rows):
    ours = found.all("flux13", method="chunks", m=FLUX_M[0])
    told = ", ".join(f"{row.product} {row.efficiency_percent:.0f} %" for row in ours)
    return any(row.efficiency_percent < 0 for row in ours), f"m = {FLUX_M[0]}: {told}"


def _f4(found: _Rows):
    ours = [row for study in FLUX_MACHINES for row in found.all(study, method="flux")]
    best = max(ours, key=lambda row: row.efficiency_percent)
    paper = found.range("flux", "all", "efficiency_percent")
    return best.efficiency_percent >= 85, (
        f"{best.efficiency_percent:.0f} % (paper {paper.high:.0f}): {best.machine}, "
        f"{best.product}, m = {best.m}"
    )


def _f5(found: _Rows):
    held, told = [], []
    for product in ("ag", "rs"):
        gains = {
            row.m: 1e3 * (other.seconds - row.seconds)
            for row, other in found.pairs("flux8", "ranks", "naive", "variant", product=product)
        }
        small, large = (gains[m] for m in (FLUX_M[0], FLUX_M[-1]))
        held.append(small >= 0 and large > small)
        told.append(f"{product} {small:.3f} and {large:.3f} ms")
    return all(held), f"gain at m = {FLUX_M[0]} and {FLUX_M[-1]}: {', '.join(told)}"


def _f6(found: _Rows):
    wins, told = {}, []
    for machine in ("a100pcie", "a100nvlink"):
        both = found.pairs("flux9", "push", "pull", "variant", machine=machine)
        ratios = {push.m: pull.seconds / push.seconds for push, pull in both}
        wins[machine] = sum(ratio > 1 for ratio in ratios.values())
        told.append(
            f"{machine}: time of pull over that of push "
            + " ".join(f"{ratio:.3f}" for ratio in ratios.values())
        )
    best: dict = {}
    for row in found.all("flux10"):
        if row.m not in best or row.seconds < best[row.m].seconds:
            best[row.m] = row
    told.append("best tile " + ", ".join(f"{row.tile} at m = {m}" for m, row in best.items()))
    shares = {row.tile * row.ranks / m for m, row in best.items() if m > FLUX_M[0]}
    depends = len(set(wins.values())) > 1 and len(shares) > 1
    return depends, "; ".join(told)


def _f7(found: _Rows):
    held, told = [], []
    for machine in FLUX_MACHINES.values():
        best = max(row.speedup for row in found.all("flux15", method="flux", machine=machine))
        paper = found.range("flux15", machine, "speedup").high
        held.append(abs(best - paper) <= 0.2 * paper)
        told.append(f"{machine} {best:.2f} (paper {paper:.2f})")
    return all(held), "; ".join(told)


def _f8(found: _Rows):
    """A run takes as long as its product, and as its communication, at least."""
    over = []
    for row, collective in found.pairs("equal", "flux", "collective"):
        communication = collective.seconds - collective.gemm_s
        over.append(row.efficiency_percent / 100 - min(1, row.gemm_s / communication))
    return max(over) <= 1e-9, f"{len(over)} products; nearest {-max(over):.3f} below the bound"


def _f9(found: _Rows):
    ours = found.all("flux14", method="flux", machine="h800")
    told = ", ".join(f"{row.product} {row.m} {row.efficiency_percent:.0f} %" for row in ours)
    return all(row.efficiency_percent < 0 for row in ours) and {r.m for r in ours} == {
        *SMALL_M
    }, told


def _speedups(found: _Rows, study: str) -> list[tuple]:
    """(ours, the paper's) of each product of a figure."""
    ours = {(r.m, r.n, r.k): r.speedup for r in found.all(study, method="td")}
    papers = found.all(study, "published", method="td")
    return [(ours[row.m, row.n, row.k], row.speedup) for row in papers]


def _means(claim: str) -> Callable:
    def holds(found: _Rows):
        study = _TD[claim]
        pairs = _speedups(found, study)
        stated = found.range(study, "h800", "speedup", "td").mean
        ours = geometric_mean(one for one, _ in pairs)
        off = [one / other - 1 for one, other in pairs]
        told = " ".join(f"{one:.2f}/{other:.2f}" for one, other in pairs)
        held = abs(ours / stated - 1) <= _MEAN_SHARE
        worst = max(off, key=abs)
        return held and abs(worst) <= _POINT_SHARE, (
            f"{ours:.2f} (paper {stated:.2f}); ours/paper {told}; worst {100 * worst:+.0f} %"
        )

    return holds


def _t5(found: _Rows):
    held, told = [], []
    for study in ("td17", "td18"):
        pairs = _speedups(found, study)
        ours = geometric_mean(one for one, _ in pairs)
        stated = found.range(study, "mi308x", "speedup", "td").mean
        held.append(ours > 1)
        points = " ".join(f"{one:.2f}/{other:.2f}" for one, other in pairs)
        told.append(f"{study} {ours:.2f} (paper {stated:.2f}); ours/paper {points}")
    return all(held), "; ".join(told)


def _t6(found: _Rows):
    held, told = [], []
    for product, good, bad in (
        ("rs", "own rows last", "as they lie"),
        ("ag", "all peers", "one peer"),
    ):
        ((one, other),) = found.pairs("order", good, bad, "variant", product=product)
        held.append(one.seconds < other.seconds)
        told.append(
            f"{one.machine} {product}: {good} {1e3 * one.seconds:.3f} ms, {bad} "
            f"{1e3 * other.seconds:.3f}"
        )
    return all(held), "; ".join(told)


def needed_bytes_per_s(link: float, card: float, local: int = 8) -> float:
    """How fast a node's sums must be made so that sums and sends to the other node take no longer
    than the exchange within the node (TD, 3.5): of a chunk of B bytes, (local - 1) B / link are
    exchanged, B / card sent, and local + 1 times B read and written by the sum.

    Examples
    --------
    >>> f"{needed_bytes_per_s(170e9, 45e9):.3g}"
    '4.75e+11'
    """
    return (local + 1) / ((local - 1) / link - 1 / card)


def _t7(found: _Rows):
    from launch.cases.machine_models import find_machine

    links = {link.name: link.bandwidth_bytes_per_s for link in find_machine("h800").links}
    needed = needed_bytes_per_s(links["nvlink"], links["nic"])
    pairs = found.pairs("sums", "16 multiprocessors", "beside, for nothing", "variant")
    grown = [100 * (one.seconds / other.seconds - 1) for one, other in pairs]
    return abs(needed / 470e9 - 1) <= 0.02 and max(grown) <= 2, (
        f"{needed / 1e9:.0f} GB/s (paper 470); with 16 multiprocessors the whole takes "
        + " ".join(f"{each:.1f}" for each in grown)
        + " % longer"
    )


def _times(study: str, ranks: int) -> Callable:
    """TD's times of a table on so many GPUs, at the tolerances of its speedups; beside them the
    loop over experts."""

    def holds(found: _Rows):
        shape = lambda row: (row.ranks, row.product, row.m, row.n, row.k, row.variant, row.method)
        papers = {shape(row): row for row in found.all(study, "published")}
        over = {
            method: [
                row.seconds / papers[shape(row)].seconds
                for row in found.all(study, method=method, ranks=ranks)
            ]
            for method in ("td", "pytorch")
        }
        ours, loop = (geometric_mean(over[method]) for method in ("td", "pytorch"))
        worst = max(over["td"], key=lambda each: abs(each - 1))
        held = abs(ours - 1) <= _MEAN_SHARE and abs(worst - 1) <= _POINT_SHARE
        return held, (
            f"our time over the paper's {ours:.2f}, from {min(over['td']):.2f} to "
            f"{max(over['td']):.2f}; of the loop over experts {loop:.3f}"
        )

    return holds


_WHY = "docs/reproduction.md#what-does-not-hold-and-why"
_MEANS = (
    f"geometric mean within {100 * _MEAN_SHARE:.0f} % of the paper's, each point within "
    f"{100 * _POINT_SHARE:.0f} %"
)


def _of(*studies: str, machine: str = "h800") -> str:
    return f"results/simulated/overlap/{{{','.join(studies)}}}.csv ({machine})"


_FLUX = _of(*FLUX_MACHINES, machine=", ".join(FLUX_MACHINES.values()))

#: Name -> claim.
CLAIMS: dict[str, Claim] = {
    "F1": Claim(
        "FLUX 5.1, 6: efficiency 36 to 96, mean 63, and 37 to 93, mean 72 % (NVLink)",
        _f1,
        theirs="mean 63 and 72 %",
        threshold="means within 15 points of the paper's, ends of the range within 25",
        records=_FLUX,
        see=_WHY,
    ),
    "F2": Claim(
        "FLUX 5.1: never behind Transformer Engine at m >= 1024; on H800 at most 1.51",
        _f2,
        theirs="1.20 to 3.25, 1.01 to 1.33, 1.10 to 1.51",
        threshold="never below 0.98; on H800 the largest within 25 % of the paper's",
        records=_FLUX,
        see=_WHY,
    ),
    "F3": Claim(
        "FLUX Figure 4: at m = 1024 Transformer Engine is slower than no overlap",
        _f3,
        theirs="slower",
        threshold="a negative efficiency of one product",
        records=_of("flux13"),
    ),
    "F4": Claim(
        "FLUX, abstract: up to 96 % of communication is hidden",
        _f4,
        theirs="96 %",
        threshold="the best at least 85 %",
        records=_FLUX,
    ),
    "F5": Claim(
        "FLUX Figure 8: the swizzled order is never slower, and gains more at large m",
        _f5,
        theirs="never slower; more at large m",
        threshold="a gain of 0 or more at m = 1024, a larger one at 8192, AG and RS",
        records=_of("flux8", machine="a100nvlink"),
    ),
    "F6": Claim(
        "FLUX Figures 9, 10: push or pull depends on the machine, the best tile on m",
        _f6,
        theirs="depends",
        threshold="another winner on a100pcie than on a100nvlink; more than one best share of m",
        records=_of("flux9", "flux10", machine="a100pcie, a100nvlink"),
    ),
    "F7": Claim(
        "FLUX Figure 15: 16 GPUs, up to 1.32, 1.57 and 1.55 times as fast as PyTorch",
        _f7,
        theirs="1.32, 1.57, 1.55",
        threshold="each within 20 %",
        records=_of("flux15", machine=", ".join(FLUX_MACHINES.values())),
        see=_WHY,
    ),
    "F8": Claim(
        "derived: efficiency is at most product / communication, at equal bandwidth",
        _f8,
        source="arithmetic",
        theirs="none: the bound is derived",
        threshold="no product above the bound",
        records=_of("equal", machine="all"),
    ),
    "F9": Claim(
        "FLUX Figure 14: on H800 at m = 64 and 512 FLUX is slower than no overlap",
        _f9,
        theirs="-165 to -82 %",
        threshold="each efficiency is negative",
        records=_of("flux14"),
        see=_WHY,
    ),
    "T1": Claim(
        "TD 4.1: AllGather + GEMM, 8 H800: 1.42 times as fast as PyTorch",
        _means("T1"),
        theirs="1.42",
        threshold=_MEANS,
        records=_of("td11"),
    ),
    "T2": Claim(
        "TD 4.1: GEMM + ReduceScatter, 8 H800: 1.28",
        _means("T2"),
        theirs="1.28",
        threshold=_MEANS,
        records=_of("td12"),
        see=_WHY,
    ),
    "T3": Claim(
        "TD 4.2: AllGather + GEMM, 16 H800: 1.33",
        _means("T3"),
        theirs="1.33",
        threshold=_MEANS,
        records=_of("td13"),
    ),
    "T4": Claim(
        "TD 4.2: GEMM + ReduceScatter, 16 H800: 1.42",
        _means("T4"),
        theirs="1.42",
        threshold=_MEANS,
        records=_of("td14"),
        see=_WHY,
    ),
    "T5": Claim(
        "TD 4.3: MI308X: faster than PyTorch (1.09 and 1.16)",
        _t5,
        theirs="1.09 and 1.16",
        threshold="both geometric means above 1",
        records=_of("td17", "td18", machine="mi308x"),
    ),
    "T6": Claim(
        "TD 3.7: own rows last wins (RS); a mesh needs all its links at once (AG)",
        _t6,
        theirs="this order is used",
        threshold="fewer seconds than the other order",
        records=_of("order", machine="h800, mi308x"),
    ),
    "T7": Claim(
        "TD 3.5: sums need 470 GB/s, and 16 multiprocessors for them lose nothing",
        _t7,
        theirs="470 GB/s; nothing",
        threshold="within 2 %; at most 2 % longer",
        records=_of("sums"),
    ),
    "T8": Claim(
        "TD Table 4: AllGather + experts, 8 H800: 0.33 to 2.92 ms",
        _times("td-table4", 8),
        theirs="0.33 to 2.92 ms",
        threshold=_MEANS,
        records=_of("td-table4"),
        see=_WHY,
    ),
    "T9": Claim(
        "TD Table 5: experts + ReduceScatter, 8 H800: 0.51 to 1.86 ms",
        _times("td-table5", 8),
        theirs="0.51 to 1.86 ms",
        threshold=_MEANS,
        records=_of("td-table5"),
        see=_WHY,
    ),
    "T10": Claim(
        "TD Table 4: AllGather + experts, 16 H800: 0.45 to 8.28 ms",
        _times("td-table4", 16),
        theirs="0.45 to 8.28 ms",
        threshold=_MEANS,
        records=_of("td-table4"),
        see=_WHY,
    ),
    "T11": Claim(
        "TD Table 5: experts + ReduceScatter, 16 H800: 3.62 to 16.60 ms",
        _times("td-table5", 16),
        theirs="3.62 to 16.60 ms",
        threshold=_MEANS,
        records=_of("td-table5"),
        see=_WHY,
    ),
}


def committed(folder: str | os.PathLike | None) -> tuple[list, list]:
    """The simulated rows of a folder with the published ones, and the published ranges.

    Raises
    ------
    ValueError
        If a file does not parse.
    """
    from launch.host.files import ROOT
    from plots.select.overlap_rows import read_ranges, read_rows

    theirs = ROOT / "results/published/overlap"
    files = [] if folder is None else sorted(Path(folder).glob("*.csv"))
    rows = read_rows([*files, theirs / "speedups.csv", theirs / "moe.csv"])
    return rows, read_ranges([theirs / "ranges.csv"])


def show_claims(rows: list, ranges: list) -> None:
    """Print every claim with the papers' numbers, ours and the verdict."""
    show(check(rows, ranges) if rows else ())
