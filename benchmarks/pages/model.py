"""Tables of predictions next to measurements."""

import math

from pandas import DataFrame, Series

from launch.papers.claims import concordance
from launch.papers.ledger import time_errors

from ..model.chains import points
from ..model.tune import CHOICE, verdicts
from .records import CORE, RESULTS, rows, where
from .tables import block, say_yes, table


@block
def tune_chosen(machine: str) -> str:
    """The choice of ``tune --measure`` for each problem, next to the fastest of all programs."""
    every, again = (rows(f"measured/{machine}/tune/{name}.csv") for name in ("every", "again"))
    lines = []
    for problem, each in verdicts(again.astype(str).to_dict("records")).items():
        choice = again[(again.problem == problem) & again.contender.str.startswith(CHOICE)]
        sizes = "×".join(str(choice.iloc[0][axis]) for axis in "mnk")
        ran = every[(every.problem == problem) & every.first_s.notna()]
        ratio = str(each.ratio).replace("-", "–")
        if each.fastest.startswith(CHOICE):
            ratio = "the choice is fastest"
        time = f"{1e3 * choice.time_s.median():.0f} ms"
        lines.append((f"{problem}, {sizes}", len(ran), time, ratio, say_yes(each.met)))
    return table(["problem", "programs", "time of the choice", "choice / fastest", "met"], lines)


#: Groups of the ledger by their names on the page.
_GROUPS = {
    "dtensor-h100": "DTensor on 8 H100, published",
    "epyc-rma": "EPYC, 2 ranks, RMA",
    "epyc-throttled": "EPYC, 2 ranks, throttled links",
    "epyc-mixed": "EPYC, 2 virtual nodes of 2 ranks that share cores",
    "epyc-network": "EPYC, 2 virtual nodes of 1 rank",
    "spr-rma": "Sapphire Rapids, 2 ranks, RMA",
    "spr-throttled": "Sapphire Rapids, 2 ranks, throttled links",
    "spr-mlp": "Sapphire Rapids, MLP layers, read in place, not calibrated",
    "h100-one-rank": "one H100, local GEMMs",
}


@block
def accuracy() -> str:
    """Errors of predicted times against measured and published ones, by group of the ledger, and of
    chains."""
    every, lines = rows("ledger.csv"), []
    for group, words in _GROUPS.items():
        found = where(every, group=group)
        known = found.dropna(subset="low")
        inside = known.value.between(known.low, known.high)
        half = (known.high - known.low) / known.predicted / 2
        right, pairs = concordance(_seconds(found, "value"), _seconds(found, "predicted"))
        order = f"{right:.3f} of {pairs}" if pairs else ""
        lines.append((words, len(found), order, *_describe(time_errors(found), inside, half)))
    ran = DataFrame(points(RESULTS / CORE / "chains" / "records.csv"))
    half = (ran.high_s - ran.low_s) / ran.predicted_s / 2
    inside = ran.median_s.between(ran.low_s, ran.high_s)
    right, pairs = concordance(ran.median_s, ran.predicted_s)
    found = _describe(ran.predicted_s / ran.median_s - 1, inside, half)
    lines.append(("EPYC, chains of layers, 2 ranks", len(ran), f"{right:.3f} of {pairs}", *found))
    header = ["what ran", "numbers", "pairs in order", "mean error", "bias", "range", "in interval"]
    return table(header, lines)


def _seconds(found: DataFrame, column: str) -> Series:
    """A column as times: a share of the roof is inverse to a time."""
    return found[column].where(found.unit == "s", 1 / found[column])


def _describe(errors: Series, inside: Series, half: Series) -> list[str]:
    """Mean of the absolute errors, median, ends; and the share of numbers in intervals of a
    width."""
    percent = 100 * errors
    ends = f"{percent.min():+.0f} to {percent.max():+.0f} %"
    held = f"{100 * inside.mean():.0f} % in ±{100 * half.median():.0f} %" if len(inside) else ""
    cells = f"{percent.abs().mean():.1f} %", f"{percent.median():+.1f} %", ends
    return [*(cell.replace("-", "−") for cell in cells), held]


@block
def search_regret() -> str:
    """The regret of the first place of ``tune`` over the best alternative, by ranks."""
    found, lines = rows("simulated/readings/regret.csv"), []
    ranks = found.mesh.map(lambda mesh: math.prod(map(int, mesh.split("x"))))
    for count, each in found.groupby(ranks):
        off = each[each.regret > 0.02]
        gaps = f"{100 * off.gap.min():.0f} %" if len(off) else ""
        most = f"{100 * each.regret.max():.1f} %"
        machines = ", ".join(dict.fromkeys(each.machine))
        within = len(each) - len(off)
        cells = count, machines, len(each), int(each.tried.sum()), within, most, gaps
        lines.append((*cells, f"{each.cpu_s.max():.0f}"))
    heads = "ranks, machines, problems, alternatives, at most 2 % off, furthest off"
    return table([*heads.split(", "), "gap reported there", "most s of CPU"], lines)
