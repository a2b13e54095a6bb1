"""The claims of FLUX and Triton-distributed (TD) about their figures, compared with the rows of the
studies (:mod:`drbench.launch.papers.overlap.study`): F1 to F16 and T1 to T26.

Shared terms, the same for every claim:

- of an efficiency a *mean* agrees within 15 points, an *end* of a range within 25;
- of a ratio of times an end of a range agrees within 25 %, an "up to" within 20 %;
- TD's points are compared one by one: the geometric mean of ours over the paper's agrees within
  15 %, each within 30 %, and speedups are above 1 on average; of those over FLUX or DeepEP the
  mean within 5 %, of those over a loop of experts within 15 %, on the same side of 1;
- what remains *exposed* agrees within a factor of two; so does what a whole model *gains*, whose
  "up to" agrees within 20 %, too.

A claim compares with published numbers if there are any (``results/published/overlap``), and never
derives its own from the rows. F1 to F9 and T1 to T11 had their first tolerances before they
were simulated; those of F4, F6, T5, T7 were sharpened afterwards, and F10 to F13 have those of F1
and F2. T12 to T15 had theirs before FLUX was simulated on their shapes, F14 to F16 before blocks
were simulated. T16 to T19 were added when their numbers were known, T20 to T26 before collectives
alone were simulated.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import geometric_mean

from numpy import array, isnan, nan, where
from pandas import concat

from drbench.launch.cases.machine_models import find_machine

from ..claims import Paper, ResultRows, name_values, read_claims
from .rows import GEMM, ROWS, SAME, read_tables, table_of
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
RATIOS = {
    "over_chunks": ("chunks", "flux"),
    "over_flux": ("flux", "td"),
    "over_deepep": ("deepep", "td"),
}


def pair_ranges(rows: ResultRows, **values) -> Iterator[tuple]:
    """(row of the published ranges, our values) for each published range with these values."""
    for stated_row in rows.ranges.where(**values).itertuples():
        of = {"study": stated_row.study, "machine": stated_row.machine}
        if "ranks" in values:
            of["ranks"] = stated_row.ranks
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
    """Whether our points agree with TD's of a figure or table; then those of other methods, of
    which FLUX's and PyTorch's do not count."""
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
        near |= method in ("flux", "pytorch")
        yield near, f"{text}{ratio.min():.2f} to {ratio.max():.2f}"


def _means(rows: ResultRows, quantity: str, share: float, study: str, *ranks: int):
    """Whether the mean of a ratio agrees with the published one, on the same side of 1."""
    of = {"ranks": [*ranks]} if ranks else {}
    for stated_row, ours in pair_ranges(rows, study=study, quantity=quantity, **of):
        mean, paper = geometric_mean(ours), stated_row.mean
        agrees = abs(mean / paper - 1) <= share and (mean - 1) * (paper - 1) > 0
        numbers = " ".join(f"{ratio:.3g}" for ratio in ours)
        yield agrees, f"{mean:.3f} (paper {paper}); each {numbers}"


def _t24(rows: ResultRows):
    for stated_row, ours in pair_ranges(rows, quantity="over_deepep"):
        *few, most = ours
        agrees = min(few) > 1 and (most > 1) == (stated_row.product == "moe_combine")
        yield agrees, f"{stated_row.product} {' '.join(f'{ratio:.2f}' for ratio in ours)}"


def _t26(rows: ResultRows):
    seconds = rows.by("seconds", "method", "k", study="td5")
    ratio = seconds["td"] / seconds["signals"]
    return ratio.iloc[0] < 1 < ratio.iloc[-1], f"flags over signals, by k: {name_values(ratio, 2)}"


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


CLAIMS = read_claims(
    "overlap",
    {
        "F1": (_as_stated, "efficiency_percent", "flux", [*FLUX_MACHINES]),
        "F2": (_f2,),
        "F3": (_f3,),
        "F4": (_f4,),
        "F5": (_f5,),
        "F6": (_f6,),
        "F7": (_as_stated, "speedup", "flux", "flux15"),
        "F9": (_as_stated, "efficiency_percent", "flux", "flux14", "h800"),
        "F10": (_as_stated, "efficiency_percent", "flux", "flux14", ["a100pcie", "a100nvlink"]),
        "F11": (_as_stated, "efficiency_percent", "flux", "flux15"),
        "F12": (_as_stated, "efficiency_percent", "chunks", [*FLUX_MACHINES]),
        "F13": (_f13,),
        "F14": (_whole, "flux16-training"),
        "F15": (_whole, "flux16-prefill"),
        "F16": (_whole, "flux17-decoding"),
        "T1": (_points, "speedup", "td11"),
        "T2": (_points, "speedup", "td12"),
        "T3": (_points, "speedup", "td13"),
        "T4": (_points, "speedup", "td14"),
        "T5": (_points, "speedup", ["td17", "td18"]),
        "T6": (_t6,),
        "T7": (_t7,),
        "T7a": (_needed,),
        "T8": (_points, "seconds", "td-table4", 8),
        "T9": (_points, "seconds", "td-table5", 8),
        "T10": (_points, "seconds", "td-table4", 16),
        "T11": (_points, "seconds", "td-table5", 16),
        "T12": (_means, "over_flux", OVER_FLUX_SHARE, "td11"),
        "T13": (_means, "over_flux", OVER_FLUX_SHARE, "td12"),
        "T14": (_means, "over_flux", OVER_FLUX_SHARE, "td13"),
        "T15": (_means, "over_flux", OVER_FLUX_SHARE, "td14"),
        "T16": (_means, "speedup", MEAN_SHARE, "td-table4", 8),
        "T17": (_means, "speedup", MEAN_SHARE, "td-table5", 8),
        "T18": (_means, "speedup", MEAN_SHARE, "td-table4", 16),
        "T19": (_means, "speedup", MEAN_SHARE, "td-table5", 16),
        "T20": (_points, "seconds", "td16-dispatch", 32),
        "T21": (_points, "seconds", ["td16-dispatch", "td16-combine"], [8, 16, 32, 64]),
        "T22": (_means, "over_deepep", OVER_FLUX_SHARE, "td16-dispatch"),
        "T23": (_means, "over_deepep", OVER_FLUX_SHARE, "td16-combine"),
        "T24": (_t24,),
        "T25": (_points, "seconds", "td5", 32),
        "T26": (_t26,),
    },
)


def judged(rows: Iterable, results: Path) -> ResultRows:
    """Simulated rows with the published ones, and the published ranges."""
    theirs = read_tables([results / "published/overlap"])
    both = concat([table_of(rows, ()).table, theirs.table], ignore_index=True).infer_objects()
    return ResultRows(both, theirs.ranges)


PAPER = Paper(
    "FLUX, and Triton-distributed",
    CLAIMS,
    lambda folder: ROWS.read([folder / "overlap"]),
    judged,
    rows=ROWS,
    studies=STUDIES,
    folder="simulated/overlap",
    machines=dict.fromkeys(MACHINES, ()),
    simulate=simulate,
    factors=(0.5, 0.8, 1.25, 2.0),
)
