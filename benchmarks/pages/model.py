"""Tables of predictions next to measurements."""

import pandas

from ..model.chains import points
from ..model.model import SUMMARY, summary
from ..model.tune import CHOICE, verdicts
from .records import CORE, RESULTS, rows, where
from .tables import describe_ratio, say_yes, table

#: Problems of these records that have the ratios of the paper's MLP layers, but not their extents.
_NOT_THE_PAPERS = {"MLP-1": "n = 4k", "MLP-2": "k = 4n"}


def tune_chosen(machine: str) -> str:
    """The choice of ``tune --measure`` for each problem, next to the fastest of all programs."""
    every, again = (rows(f"measured/{machine}/tune/{name}.csv") for name in ("every", "again"))
    lines = []
    for problem, verdict in verdicts(again).items():
        choice = again[(again.problem == problem) & again.contender.str.startswith(CHOICE)]
        sizes = "×".join(str(choice.iloc[0][axis]) for axis in "mnk")
        ran = every[(every.problem == problem) & every.first_s.notna()]
        fastest = verdict.fastest.startswith(CHOICE)
        ratio = "the choice is fastest" if fastest else describe_ratio(verdict.ratio)
        time = f"{1e3 * choice.time_s.median():.0f} ms"
        name = _NOT_THE_PAPERS.get(problem, problem)
        lines.append((f"{name}, {sizes}", len(ran), time, ratio, say_yes(verdict.met)))
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


def accuracy() -> str:
    """Errors of predicted times against measured and published ones, by group of the ledger, and of
    chains."""
    every = rows("ledger.csv")
    lines = [(words, *summary(where(every, group=group))) for group, words in _GROUPS.items()]
    chains = points(RESULTS / CORE / "chains" / "records.csv")
    lines.append(("EPYC, chains of layers, 2 ranks", *summary(chains)))
    return table(["what ran", *SUMMARY], lines)


def search_regret() -> str:
    """The problems in which the default search of ``tune`` misses what a long search finds, and the
    number of the others."""
    problems = rows("simulated/readings/regret.csv")
    lines = []
    for row in problems[problems.regret >= 0.0005].itertuples():
        layer = f"{row.m}×{row.n}×{row.k}, {row.ranks} {row.machine}"
        layer += ", replicas" if row.replication != "none" else ""
        times = (f"{1e6 * seconds:.0f} µs" for seconds in (row.first_s, row.best_s))
        lines.append((layer, *times, f"{100 * row.regret:.1f} %", row.left))
    others = problems[problems.regret < 0.0005]
    lines.append((f"{len(others)} others", "", "", "0.0 %", f"0 in {(others.left == 0).sum()}"))
    heads = "problem, default search, long search, regret, candidates left"
    return table(heads.split(", "), lines)


def gpu_kernels() -> str:
    """Predicted over measured times of GPU kernels, by machine."""
    lines = []
    for row in rows("simulated/readings/gpu-tables.csv").itertuples():
        of = f"{row.operation.replace('_', ' ')}, {row.dtype}"
        ends = (f"{value:.2f}" for value in (row.median, row.low, row.high))
        inside = f"{100 * row.inside:.0f} %", f"±{100 * row.half:.0f} %"
        lines.append((row.machine, of, row.rows, *ends, *inside))
    heads = "machine, kernel, rows, median, 5 %, 95 %, in interval, half-width"
    return table(heads.split(", "), lines)


#: Quantities of the published steps that are no memory.
_KINDS = {"tokens/s": "time", "s": "time", "layer of TP": "layer"}
#: What the backward pass computes again.
_AGAIN = {"none": "nothing", "attention": "scores", "selective": "every second GEMM", "full": "all"}


def _steps() -> pandas.DataFrame:
    """The published steps with their predictions; ``ratio``: predicted over published."""
    every = rows("simulated/readings/steps.csv")
    kinds = every.quantity.map(_KINDS).fillna("memory")
    return every.assign(ratio=every.predicted / every.published, kind=kinds)


def _describe_step(row) -> tuple[str, ...]:
    """The model, its sharding, element type and recomputation."""
    gpus = f"{row.model} on {row.machine}, {row.mesh.replace(';', ',')}"
    return gpus, row.scheme, row.dtype, _AGAIN[row.recompute]


def steps_summary() -> str:
    """Shares of the published numbers that are predicted within 15 and 30 %; without the row to
    which the clock is fitted."""
    words = {
        "time": "whole steps",
        "layer": "a layer, relative to tensor parallelism alone",
        "memory": "memory",
    }
    lines = []
    for kind, of in _steps().iloc[1:].groupby("kind", sort=False):
        off = (of.ratio - 1).abs()
        within = (f"{100 * (off <= most).mean():.0f} %" for most in (0.12, 0.15, 0.3))
        ends = f"{of.ratio.min():.2f} to {of.ratio.max():.2f}"
        lines.append((words[kind], len(of), *within, ends))
    heads = "what, numbers, within 12 %, within 15 %, within 30 %, predicted / published"
    return table(heads.split(", "), lines)


def steps() -> str:
    """Every published step: its time, and the share of the prediction that no layer takes."""
    lines = []
    for row in where(_steps(), kind="time").itertuples():
        unit = "" if row.quantity == "tokens/s" else " s"
        shown = f"{row.published:g}{unit}", f"{row.predicted:.4g}{unit}", f"{row.ratio:.2f}"
        lines.append((*_describe_step(row), *shown, f"{100 * row.rest_share:.0f} %"))
    heads = "step, sharding, type, computed again, published, predicted, ratio, beside layers"
    return table(heads.split(", "), lines)


def overlap_gains() -> str:
    """Tokens per second of asynchronous tensor parallelism over those without overlap."""
    every, lines = where(_steps(), quantity="tokens/s"), []
    same = ["model", "mesh", "dtype", "loss"]
    for row in every[every.scheme.str.startswith("Async")].itertuples():
        plain = where(every, scheme=row.scheme.removeprefix("Async "))
        plain = where(plain, **{name: getattr(row, name) for name in same}).iloc[0]
        gains = (getattr(row, of) / plain[of] for of in ("published", "predicted"))
        version = {"eager": "December 2024", "compiled": "June 2025"}[row.loss]
        lines.append((row.model, row.dtype, version, *(f"{gain:.2f}" for gain in gains)))
    return table("model, type, torchtitan of, published, predicted".split(", "), lines)


def steps_memory() -> str:
    """Every published number of memory, and of layers relative to tensor parallelism alone."""
    every, lines = _steps(), []
    for row in every[every.kind != "time"].itertuples():
        shown = f"{row.published:g}", f"{row.predicted:.3g}", f"{row.ratio:.2f}"
        lines.append((*_describe_step(row), row.quantity, *shown))
    heads = "step, sharding, type, computed again, quantity, published, predicted, ratio"
    return table(heads.split(", "), lines)
