"""The claims of FLUX and Triton-distributed (TD) about their figures, compared with the rows of the
studies (:mod:`drbench.launch.papers.overlap.study`): F1 to F16 and T1 to T15.

Shared terms, the same for every claim:

- of an efficiency a *mean* agrees within 15 points, an *end* of a range within 25;
- of a ratio of times an end of a range agrees within 25 %, an "up to" within 20 %;
- TD's points are compared one by one: the geometric mean of ours over the paper's agrees within
  15 %, each within 30 %, and speedups are above 1 on average; of those over FLUX the mean within
  5 %, on the same side of 1;
- what remains *exposed* agrees within a factor of two; so does what a whole model *gains*, whose
  "up to" agrees within 20 %, too.

A claim compares with published numbers if there are any (``results/published/overlap``), and never
derives its own from the rows. F1 to F9 and T1 to T11 had their first tolerances before they
were simulated; those of F4, F6, T5, T7 were sharpened afterwards, and F10 to F13 have those of F1
and F2. T12 to T15 had theirs before FLUX was simulated on their shapes, F14 to F16 before blocks
were simulated.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import geometric_mean

from numpy import array, isnan, nan, where

from drbench.launch.cases.machine_models import find_machine

from ..claims import FAIR, Claim, Paper, ResultRows, name_values
from .rows import GEMM, RANGES, ROWS, SAME, table_of
from .study import FLUX_M, FLUX_MACHINES, MACHINES, NODE, STUDIES, simulate

#: Allowed differences of the ends and the mean of a range from the paper's, by quantity: points,
#: and share of the paper's number. An "up to" is the upper end of a range.
RANGE_POINTS = {"efficiency_percent": (25.0, 25.0, 15.0), "over_chunks": 0.0, "speedup": 0.0}
RANGE_SHARE = {"efficiency_percent": 0.0, "over_chunks": 0.25, "speedup": 0.2}
#: For TD's points: shares of the geometric mean, and of a point; of TD over FLUX that of the mean.
MEAN_SHARE, POINT_SHARE, OVER_FLUX_SHARE = 0.15, 0.30, 0.05
#: Values that differ by more than this share are different, if the paper shows a difference.
OTHER = 0.01
_ENDS_OF_M, _ON_FLUX, _RANKS = [FLUX_M[0], FLUX_M[-1]], [*FLUX_MACHINES.values()], [8, 16]
#: Quantities that are one method's time over that of another.
RATIOS = {"over_chunks": ("chunks", "flux"), "over_flux": ("flux", "td")}


def pair_ranges(rows: ResultRows, **values) -> Iterator[tuple]:
    """(row of the published ranges, our values) for each published range with these values."""
    for stated_row in rows.ranges.where(**values).itertuples():
        of = {"study": stated_row.study, "machine": stated_row.machine}
        if stated_row.quantity in RATIOS:
            slow, fast = RATIOS[stated_row.quantity]
            seconds = rows.by("seconds", "method", GEMM, **of)
            yield stated_row, (seconds[slow] / seconds[fast]).dropna()
        else:
            yield stated_row, rows.ours(method=stated_row.method, **of)[stated_row.quantity]


def _numbers(values, digits: int) -> str:
    low, high, mean = ("" if isnan(value) else f"{value:.{digits}f}" for value in values)
    return " to ".join(filter(None, (low, high))) + (mean and f", mean {mean}")


def _compared(stated_row, ours) -> tuple[bool, str]:
    """Whether our low, high and mean are within tolerance, as far as the published range has them;
    and both as text."""
    theirs = array([stated_row.low, stated_row.high, stated_row.mean], dtype=float)
    values = where(isnan(theirs), nan, [ours.min(), ours.max(), ours.mean()])
    allowed = RANGE_POINTS[stated_row.quantity] + RANGE_SHARE[stated_row.quantity] * theirs
    digits, unit = (0, " %") if stated_row.quantity == "efficiency_percent" else (2, "")
    text = f"{_numbers(values, digits)} (paper {_numbers(theirs, digits)}){unit}"
    return not (abs(values - theirs) > allowed).any(), f"{stated_row.machine} {text}"


def _as_stated(rows: ResultRows, quantity: str, method: str, study, machine=_ON_FLUX):
    """Whether our values agree with the published ranges of a method."""
    of = {"quantity": quantity, "method": method, "study": study, "machine": machine}
    return (_compared(*pair) for pair in pair_ranges(rows, **of))


def _f2(rows: ResultRows):
    for stated_row, ours in pair_ranges(rows, study=[*FLUX_MACHINES], quantity="over_chunks"):
        high = abs(ours.max() / stated_row.high - 1) <= RANGE_SHARE["over_chunks"]
        _, text = _compared(stated_row, ours)
        yield ours.min() >= 0.98 and (high or stated_row.machine != "h800"), text


def _f3(rows: ResultRows):
    efficiency = rows.by("efficiency_percent", "m", "product", study="flux13", method="chunks")
    efficiency = efficiency[_ENDS_OF_M]
    slower = (efficiency < 0).any()
    text = "; ".join(f"m = {m}: {name_values(efficiency[m], 0)} %" for m in efficiency)
    return slower.iloc[0] and not slower.iloc[-1], text


def _f4(rows: ResultRows):
    ours = rows.ours(study=[*FLUX_MACHINES], method="flux")
    best = ours.loc[ours.efficiency_percent.idxmax()]
    paper = rows.ranges.where(study="flux").high.item()
    factor, operation = (100 - best.efficiency_percent) / (100 - paper), best["product"]
    return best.machine == "a100nvlink" and 0.5 <= factor <= 2, (
        f"{best.efficiency_percent:.1f} % (paper {paper:.0f}): {best.machine}, "
        f"{operation}, m = {best.m}"
    )


def _f5(rows: ResultRows):
    seconds = rows.by("seconds", "variant", ["product", "m"], study="flux8")
    gains = 1e3 * (seconds["naive"] - seconds["ranks"]).unstack()[_ENDS_OF_M]
    small, large = gains.to_numpy().T
    texts = [f"{operation} {name_values(of, 3)} ms" for operation, of in gains.iterrows()]
    return (small >= 0).all() and (large > small).all(), f"gain by m: {'; '.join(texts)}"


def _f6(rows: ResultRows):
    seconds = rows.by("seconds", "variant", ["machine", "m"], study="flux9")
    pulled = (seconds["pull"] / seconds["push"]).unstack()
    wins = sorted(map(geometric_mean, pulled.to_numpy()))
    times = rows.by("seconds", "m", "tile", study="flux10")
    best = times[::-1].idxmin()  # of equal ones the largest
    # the best tile of one m is slower at another, if it is possible there
    matters = (times.loc[best.unique()] > (1 + OTHER) * times.min()).any(axis=None)
    texts = [f"{machine} by m {name_values(of, 3)}" for machine, of in pulled.iterrows()]
    return wins[0] < 1 - OTHER and wins[-1] > 1 + OTHER and matters, (
        f"pull over push: {'; '.join(texts)}; best tile by m {name_values(best, 0)}"
    )


def _f13(rows: ResultRows):
    """Whether ratios to, and efficiencies of, Transformer Engine agree."""
    yield from _as_stated(rows, "over_chunks", "flux", "flux14")
    yield from _as_stated(rows, "efficiency_percent", "chunks", "flux14")


def _whole(rows: ResultRows, study: str):
    """Whether the largest speedups of whole models agree, and what is above 1."""
    for stated_row, ours in pair_ranges(rows, study=study):
        near, text = _compared(stated_row, ours)
        gain, theirs = max(0.0, ours.max() - 1), stated_row.high - 1
        yield near and theirs / 2 <= gain <= 2 * theirs, text


def _points(rows: ResultRows, column: str, study: str | list[str], ranks=_RANKS):
    """Whether our points agree with TD's of a figure or table; then those of other methods."""
    every = rows.paired(SAME, study=study, ranks=ranks)
    theirs_first = lambda group: (group[0][0], group[0][1] != "td")
    for (name, method), pairs in sorted(every.groupby(["study", "method"]), key=theirs_first):
        ours, paper = pairs[f"{column}_ours"], pairs[column]
        ratio, (mean, theirs) = ours / paper, map(geometric_mean, (ours, paper))
        near = abs(mean / theirs - 1) <= MEAN_SHARE and (ratio - 1).abs().max() <= POINT_SHARE
        near &= column == "seconds" or mean > 1
        scale, unit = (1e3, " ms") if column == "seconds" else (1, "")
        text = f"{name} {method}: {scale * mean:.3g} (paper {scale * theirs:.3g}){unit}, "
        text += f"{mean / theirs:.2f} of it, each "
        yield near or method != "td", f"{text}{ratio.min():.2f} to {ratio.max():.2f}"


def _over_flux(rows: ResultRows, study: str):
    for stated_row, ours in pair_ranges(rows, study=study, quantity="over_flux"):
        mean, paper = geometric_mean(ours), stated_row.mean
        agrees = abs(mean / paper - 1) <= OVER_FLUX_SHARE and (mean - 1) * (paper - 1) > 0
        numbers = " ".join(f"{ratio:.2f}" for ratio in ours)
        yield agrees, f"{mean:.3f} (paper {paper}); each {numbers}"


def _t6(rows: ResultRows):
    for good, bad in (("own rows last", "in row order"), ("all peers", "one peer")):
        both = rows.by("seconds", "variant", "machine", study="order", variant=[good, bad])
        for machine, seconds in both.iterrows():
            yield seconds[good] < seconds[bad], f"{machine}: {name_values(1e3 * seconds, 3)} ms"


def _needed(rows: ResultRows):
    """The bandwidth of a node's reductions with which reductions and inter-node sends take no
    longer than the intra-node exchange (TD, 3.5): for a chunk of B bytes, the 8 GPUs exchange 7 B /
    link, send B / card, and the reduction reads and writes 9 B."""
    links = {link.name: link.bandwidth_bytes_per_s for link in find_machine("h800").links}
    needed = (NODE + 1) / ((NODE - 1) / links["nvlink"] - 1 / links["nic"])
    return abs(needed / 470e9 - 1) <= 0.02, f"{needed / 1e9:.0f} GB/s (paper 470)"


def _t7(rows: ResultRows):
    """Times over two nodes by the number of multiprocessors for reductions."""
    times = rows.ours(study="split", ranks=16)
    few = times[times.variant.astype(int) <= 15]
    longer = 100 * (few.groupby("m").seconds.min() / times.groupby("m").seconds.min() - 1)
    text = f"longer with at most 15 than with the best number, by m: {name_values(longer)} %"
    return (longer <= 5).all(), text


_PAGE = "docs/results/flux-and-triton.md#"
_SUMS, _PCIE, _WARPS, _TUNED, _EXPERTS = (
    _PAGE + anchor
    for anchor in ("f1-t2-t4", "f2-f7-f11", "f4-f6-f9-f10", "f12-f13-t5", "t8-to-t13")
)
_SPEEDUPS = (
    f"ours over the paper's: geometric mean within {100 * MEAN_SHARE:.0f} % of 1, each point "
    f"within {100 * POINT_SHARE:.0f} %; above 1 on average"
)
_TIMES = (
    f"our time over the paper's: geometric mean within {100 * MEAN_SHARE:.0f} % of 1, each point "
    f"within {100 * POINT_SHARE:.0f} %"
)
_OVER_FLUX = "geometric mean over FLUX's points within 5 %, on the same side of 1"
_RANGES = "means within 15 points of the paper's, ends of each range within 25"
_WHOLE = _PAGE + "f14-f16"
_ONE_NODE = "results/simulated/overlap/{flux11,flux12,flux13}.csv (a100pcie, a100nvlink, h800)"
CLAIMS = (
    Claim(
        "F1",
        "FLUX 5.1, 6: overlap efficiency: means 40 (A100 PCIe), 63 (A100 NVLink), 72 % (H800)",
        _as_stated,
        "41 to 57, mean 40; 36 to 96, mean 63; 37 to 93, mean 72 %",
        _RANGES,
        _ONE_NODE,
        _SUMS,
        ("efficiency_percent", "flux", [*FLUX_MACHINES]),
    ),
    Claim(
        "F2",
        "FLUX 5.1: never behind Transformer Engine at m >= 1024; on H800 at most 1.51",
        _f2,
        "1.20 to 3.25, 1.01 to 1.33, 1.10 to 1.51",
        "never below 0.98; on H800 the largest within 25 % of the paper's",
        _ONE_NODE,
        _PCIE,
    ),
    Claim(
        "F3",
        "FLUX Figure 4: Transformer Engine is slower than no overlap at m = 1024, and only at "
        "small m",
        _f3,
        "slower at small m",
        "a negative efficiency of one operation at m = 1024, of none at 8192",
        "results/simulated/overlap/flux13.csv (h800)",
    ),
    Claim(
        "F4",
        "FLUX, abstract: up to 96 % of communication is hidden (5.1: on A100 NVLink)",
        _f4,
        "96 %",
        "the best on A100 NVLink, and 2 to 8 % exposed there",
        _ONE_NODE,
        _WARPS,
    ),
    Claim(
        "F5",
        "FLUX Figure 8: the swizzled order is never slower, and gains more at large m",
        _f5,
        "never slower; more at large m",
        "a gain of 0 or more at m = 1024, a larger one at 8192, AG and RS",
        "results/simulated/overlap/flux8.csv (a100nvlink)",
    ),
    Claim(
        "F6",
        "FLUX Figures 9, 10: push or pull depends on the machine, the best tile on m",
        _f6,
        "different preference; no size always outperforms",
        "push faster on one machine and pull on the other, and the best tile of one m "
        "slower at another, each by more than 1 %",
        "results/simulated/overlap/{flux9,flux10}.csv (a100pcie, a100nvlink)",
        _WARPS,
    ),
    Claim(
        "F7",
        "FLUX Figure 15: 16 GPUs, up to 1.32, 1.57 and 1.55 times as fast as PyTorch",
        _as_stated,
        "1.32, 1.57, 1.55",
        "each within 20 %",
        "results/simulated/overlap/flux15.csv (a100pcie, a100nvlink, h800)",
        _PCIE,
        ("speedup", "flux", "flux15"),
    ),
    Claim(
        "F9",
        "FLUX Figure 14: m = 64, 512: on H800 FLUX is slower than no overlap",
        _as_stated,
        "-165 to -82 %",
        "ends of the range within 25 points, so that each efficiency is negative",
        "results/simulated/overlap/flux14.csv (h800)",
        _WARPS,
        ("efficiency_percent", "flux", "flux14", "h800"),
    ),
    Claim(
        "F10",
        "FLUX Figure 14: m = 64, 512: efficiency -2 to 41 (A100 PCIe), 14 to 88 % (A100 NVLink)",
        _as_stated,
        "-2 to 41, 14 to 88 %",
        "ends of each range within 25 points",
        "results/simulated/overlap/flux14.csv (a100pcie, a100nvlink)",
        _WARPS,
        ("efficiency_percent", "flux", "flux14", ["a100pcie", "a100nvlink"]),
    ),
    Claim(
        "F11",
        "FLUX Figure 15: 16 GPUs, efficiency up to 18, 74 and 56 %",
        _as_stated,
        "18, 74 and 56 %",
        "each within 25 points",
        "results/simulated/overlap/flux15.csv (a100pcie, a100nvlink, h800)",
        _PCIE,
        ("efficiency_percent", "flux", "flux15"),
    ),
    Claim(
        "F12",
        "FLUX 5.1, 6: efficiency of Transformer Engine: means -67, -61 and 20 %",
        _as_stated,
        "-125 to 36, mean -67; -99 to 74, mean -61; -40 to 80, mean 20 %",
        _RANGES,
        _ONE_NODE,
        _TUNED,
        ("efficiency_percent", "chunks", [*FLUX_MACHINES]),
    ),
    Claim(
        "F13",
        "FLUX Figure 14: m = 64, 512: 3.21, 4.68 and 1.03 times as fast as Transformer Engine",
        _f13,
        "1.45 to 3.21, 1.33 to 4.68, 0.95 to 1.03 times; its efficiency -213 to -36, -325 "
        "to -49, -142 to -93 %",
        "ends of each range of ratios within 25 %, of efficiencies within 25 points",
        "results/simulated/overlap/flux14.csv (a100pcie, a100nvlink, h800)",
        _TUNED,
    ),
    *(
        Claim(
            name,
            f"FLUX, abstract, 5.2: {text}",
            _whole,
            theirs,
            "each within 20 %, and what is above 1 within a factor of two",
            f"results/simulated/overlap/{study}.csv (a100pcie, a100nvlink, h800)",
            see,
            (study,),
        )
        for name, study, text, theirs, see in (
            (
                "F14",
                "flux16-training",
                "training on 128 GPUs: up to 1.24 times as fast as Megatron-LM",
                "1.24 (A100 PCIe), 1.05 (A100 NVLink), 1.10 (H800)",
                _WHOLE,
            ),
            (
                "F15",
                "flux16-prefill",
                "prefill on 8 GPUs: up to 1.66 times as fast as vLLM",
                "1.46 (A100 PCIe), 1.45 (A100 NVLink), 1.66 (H800)",
                "",
            ),
            (
                "F16",
                "flux17-decoding",
                "decoding on 8 GPUs: up to 1.30 times as fast as vLLM",
                "1.28 (A100 PCIe), 1.30 (A100 NVLink), none (H800)",
                _WHOLE,
            ),
        )
    ),
    Claim(
        "T1",
        "TD 4.1: AllGather + GEMM, 8 H800: 1.42 times as fast as PyTorch",
        _points,
        "1.42",
        _SPEEDUPS,
        "results/simulated/overlap/td11.csv (h800)",
        "",
        ("speedup", "td11"),
    ),
    Claim(
        "T2",
        "TD 4.1: GEMM + ReduceScatter, 8 H800: 1.28 times as fast as PyTorch",
        _points,
        "1.28",
        _SPEEDUPS,
        "results/simulated/overlap/td12.csv (h800)",
        _SUMS,
        ("speedup", "td12"),
    ),
    Claim(
        "T3",
        "TD 4.2: AllGather + GEMM, 16 H800: 1.33 times as fast as PyTorch",
        _points,
        "1.33",
        _SPEEDUPS,
        "results/simulated/overlap/td13.csv (h800)",
        "",
        ("speedup", "td13"),
    ),
    Claim(
        "T4",
        "TD 4.2: GEMM + ReduceScatter, 16 H800: 1.42 times as fast as PyTorch",
        _points,
        "1.42",
        _SPEEDUPS,
        "results/simulated/overlap/td14.csv (h800)",
        _SUMS,
        ("speedup", "td14"),
    ),
    Claim(
        "T5",
        "TD 4.3: MI308X: 1.09 (AllGather) and 1.16 times (ReduceScatter) as fast as PyTorch",
        _points,
        "1.09 and 1.16",
        _SPEEDUPS,
        "results/simulated/overlap/{td17,td18}.csv (mi308x)",
        _TUNED,
        ("speedup", ["td17", "td18"]),
    ),
    Claim(
        "T6",
        "TD 3.7: own rows last wins (RS); a mesh needs all its links at once (AG)",
        _t6,
        "this order is used",
        "fewer seconds than the other order",
        "results/simulated/overlap/order.csv (h800, mi308x)",
    ),
    Claim(
        "T7",
        "TD 3.5: on two nodes no more than 15 multiprocessors are needed to add partial sums",
        _t7,
        "no more than 15",
        "with at most 15 no more than 5 % longer than with the best of a search",
        "results/simulated/overlap/split.csv (h800)",
    ),
    Claim(
        "T7a",
        "TD 3.5: partial sums have to be added at 470 GB/s",
        _needed,
        "470 GB/s",
        "within 2 %, by the paper's formula and bandwidths",
        "launch/data/machines/h800.toml",
        source="arithmetic",
    ),
    Claim(
        "T8",
        "TD Table 4: AllGather + experts, 8 H800: 0.33 to 2.92 ms",
        _points,
        "0.33 to 2.92 ms",
        _TIMES,
        "results/simulated/overlap/td-table4.csv (h800)",
        _EXPERTS,
        ("seconds", "td-table4", 8),
    ),
    Claim(
        "T9",
        "TD Table 5: experts + ReduceScatter, 8 H800: 0.51 to 1.86 ms",
        _points,
        "0.51 to 1.86 ms",
        _TIMES,
        "results/simulated/overlap/td-table5.csv (h800)",
        _EXPERTS,
        ("seconds", "td-table5", 8),
    ),
    Claim(
        "T10",
        "TD Table 4: AllGather + experts, 16 H800: 0.45 to 8.28 ms",
        _points,
        "0.45 to 8.28 ms",
        _TIMES,
        "results/simulated/overlap/td-table4.csv (h800)",
        _EXPERTS,
        ("seconds", "td-table4", 16),
    ),
    Claim(
        "T11",
        "TD Table 5: experts + ReduceScatter, 16 H800: 3.62 to 16.60 ms",
        _points,
        "3.62 to 16.60 ms",
        _TIMES,
        "results/simulated/overlap/td-table5.csv (h800)",
        _EXPERTS,
        ("seconds", "td-table5", 16),
    ),
    Claim(
        "T12",
        "TD 4.1: AllGather + GEMM, 8 H800: 1.09 times as fast as FLUX",
        _over_flux,
        "1.09",
        _OVER_FLUX,
        "results/simulated/overlap/td11.csv (h800)",
        _EXPERTS,
        ("td11",),
    ),
    Claim(
        "T13",
        "TD 4.1: GEMM + ReduceScatter, 8 H800: 1.30 times as fast as FLUX",
        _over_flux,
        "1.30",
        _OVER_FLUX,
        "results/simulated/overlap/td12.csv (h800)",
        _EXPERTS,
        ("td12",),
    ),
    Claim(
        "T14",
        "TD 4.2: AllGather + GEMM, 16 H800: 0.956 times as fast as FLUX",
        _over_flux,
        "0.956",
        _OVER_FLUX,
        "results/simulated/overlap/td13.csv (h800)",
        "",
        ("td13",),
    ),
    Claim(
        "T15",
        "TD 4.2: GEMM + ReduceScatter, 16 H800: 0.9636 times as fast as FLUX",
        _over_flux,
        "0.9636",
        _OVER_FLUX,
        "results/simulated/overlap/td14.csv (h800)",
        "",
        ("td14",),
    ),
)


def judged(rows: Iterable, results: Path) -> ResultRows:
    """Simulated rows with the published ones, and the published ranges."""
    theirs = results / "published/overlap"
    published = ROWS.read([theirs / "speedups.csv", theirs / "moe.csv"])
    return table_of([*rows, *published], RANGES.read([theirs / "ranges.csv"]))


PAPER = Paper(
    "FLUX, and Triton-distributed",
    CLAIMS,
    lambda folder: ROWS.read([folder / "overlap"]),
    judged,
    rows=ROWS,
    studies=STUDIES,
    folder="simulated/overlap",
    machines=dict.fromkeys(MACHINES, ()),
    alternatives={FAIR: {name: f"{name},arbitration=fair" for name in MACHINES}},
    simulate=simulate,
    factors=(0.5, 0.8, 1.25, 2.0),
)
