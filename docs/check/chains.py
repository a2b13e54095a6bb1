"""Chains: tables of docs/chain.md, and their numbers; rows of ``benchmarks/model/chains.py``."""

from benchmarks.model.chains import CHAINS, Point, points

from .records import RESULTS, rows
from .tables import block, table
from .values import value

_MEASURED = RESULTS / "measured" / "epyc-2core" / "chains" / "records.csv"


def chain_points() -> list[Point]:
    """The chains that were predicted and run."""
    return points(_MEASURED)


@block
def chain_layers() -> str:
    """Layers of transformers on h100x8."""
    found = rows("simulated/readings/chains.csv")
    lines = []
    for (preset, backward), layer in found.groupby(["preset", "backward"], sort=False):
        fastest = layer.time_s.min()
        for each in layer.itertuples():
            low, high = each.time_s * each.low, each.time_s * each.high
            lines.append(
                (
                    f"`{preset}`{', backward' * bool(backward)}" if each.who == "chosen" else "",
                    each.who,
                    f"{1e3 * each.time_s:.2f}",
                    f"{1e3 * low:.1f}–{1e3 * high:.1f}",
                    f"{each.time_s / fastest:.3f}",
                )
            )
    header = ["layer", "who", "time, ms", "interval, ms", "of chosen"]
    return table(header, lines)


@block
def chain_runs() -> str:
    """Ten chains, predicted and run."""
    lines = []
    for each in chain_points():
        asked, fix = CHAINS[each.name]
        what = asked.name or f"{asked.widths}, {asked.between or 'none'}"
        lines.append(
            (
                each.name,
                f"`{what}`{', backward' * asked.backward}{', layouts given' * bool(fix)}",
                asked.tokens,
                f"{1e3 * each.predicted_s:.1f} ({1e3 * each.low_s:.1f}–{1e3 * each.high_s:.1f})",
                f"{1e3 * each.median_s:.1f}",
                f"{100 * (each.median_s / each.predicted_s - 1):+.1f} %",
                "yes" if each.lies else "no",
            )
        )
    header = ["chain", "columns, functions", "rows", "predicted, ms", "measured, ms", "differs"]
    return table([*header, "lies in it"], lines)


@value
def chain_hits() -> int:
    """Chains whose measured median lies in the predicted interval."""
    return sum(each.lies for each in chain_points())


@value
def chain_half() -> float:
    """Half of the widest of these intervals, percent of the prediction."""
    return 100 * max(each.half for each in chain_points())
