"""Tables of predictions next to measurements."""

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
