"""Numbers of the pages, each computed from committed records.

A function gives a number, or several; a page calls it in ``<!-- = name(constants) -->``. Times are
in seconds unless the name says otherwise, shares in percent.
"""

import json
import tomllib
from collections.abc import Callable, Sequence
from functools import cache

from pandas import DataFrame, concat

from launch.cases.machine_models import find_machine
from launch.papers.published_dtensor import points

from .records import HERE, RESULTS, ROOT, committed_figures, core, only, records, rows, where
from .tables import contest, lowered, verdicts

Numbers = float | Sequence[float]
FUNCTIONS: dict[str, Callable[..., Numbers]] = {}


def value(function: Callable[..., Numbers]) -> Callable[..., Numbers]:
    FUNCTIONS[function.__name__] = function
    return function


@value
def sweep_cases(name: str, ranks: int) -> int:
    """How many cases a sweep that comes with drbench has."""
    from launch.cases.sweep_file import load_sweep

    return len(load_sweep(name, ranks).cases)


@value
def signal_cost_us() -> float:
    """Microseconds of a core for a Push and its Await."""
    return 1e6 * only(core("signals", case="Push and Await")).cost_s


@value
def cut(kind: str) -> float:
    """How much longer a rank's product takes in parts of a tile than whole, percent."""
    return 100 * (core(kind).cut.dropna().iloc[0] - 1)


@value
def overlap_error(which: str = "median") -> float:
    """How far predicted times of fused overlap on slow networks are from measured ones, percent:
    the ``median`` of the errors, or the ``largest``."""
    found = concat([core(kind) for kind in ("gather", "reduce")])
    errors = 100 * (found.predicted_s / found.median_s - 1).dropna().abs()
    return errors.median() if which == "median" else errors.max()


# --- the MLP figures


def first_figure() -> list[str]:
    """The records that README's first figure is drawn from, below results/."""
    found = next(each for each in committed_figures() if each["file"] == "docs/images/mlp")
    return [name.removeprefix("results/") for name in found["inputs"]]


@cache
def _lines(layer: str) -> dict:
    """Percent of the roof by line and batch size."""
    from plots.select.selection import select

    found = records(*first_figure())
    return {
        line.name.removeprefix("UA - "): {point.m: point.value for point in line.points}
        for line in select(found, layer)
        if line.points and line.name.startswith("UA")
    }


@value
def mlp(layer: str, line: str, *batches: int) -> list[float]:
    """Percent of the roof of a line of the first figure, at some batch sizes or all."""
    points = _lines(layer)[line]
    return [points[m] for m in batches or sorted(points)]


@value
def mlp_range(batches: str = "largest") -> tuple[float, float]:
    """The lowest and the highest of all lines of both layers, at the largest batch size or all."""
    found = [points for layer in ("mlp1", "mlp2") for points in _lines(layer).values()]
    values = [
        value
        for points in found
        for m, value in points.items()
        if batches == "all" or m == max(points)
    ]
    return min(values), max(values)


# --- the core


@value
def piece(axis: str, *counts: int) -> list[float]:
    """Percent more time that a product takes in pieces along an axis."""
    found = core("pieces", axis=axis)
    return [100 * only(found, pieces=count).time_over_whole - 100 for count in counts]


@value
def pieces_range(*axes: str) -> tuple[float, float]:
    """The least and the most that cutting along some axes costs, percent."""
    found = core("pieces")
    costs = 100 * found[found.axis.isin(axes)].time_over_whole - 100
    return costs.min(), costs.max()


@value
def one_d(algorithm: str, **keys) -> tuple[float, float, float]:
    """Percent of the roof of a 1-D algorithm on two ranks, and its range."""
    row = only(records(f"{HERE}/algorithms-p2"), algorithm=algorithm, **keys)
    return row.percent_of_roof, row.percent_of_roof_min, row.percent_of_roof_max


@value
def holds(noise: str, of_stable: bool = False) -> tuple[float, float]:
    """How often the interval holds the median under a kind of noise, percent: the least and the
    most of its widths."""
    found = where(rows("simulated/readings/coverage.csv"), noise=noise)
    column = found.holds_of_stable_percent if of_stable else found.holds_percent
    return column.min(), column.max()


# --- peers


def competitors(ranks: int) -> DataFrame:
    """Who has a time, but for the peers under which drbench multiplies."""
    from launch.peers import ON_DRBENCH

    found = contest(ranks).dropna(subset="median_s")
    return found[~found.kind.isin(ON_DRBENCH)]


@value
def ahead_of_peers(ranks: int, which: str = "fastest") -> tuple[int, int]:
    """On how many shapes drbench's fastest partitioning, or the median of its five, has a smaller
    median time than every peer; and on how many there are."""
    found = competitors(ranks)
    ahead = 0
    for _, each in found.groupby("shape"):
        five, peers = each[each.kind == "five"].median_s, each[~each.kind.isin(["five", "other"])]
        at = 0 if which == "fastest" else len(five) // 2
        ahead += five.iloc[at] < peers.median_s.min()
    return ahead, found["shape"].nunique()


@value
def peer_lead(ranks: int) -> tuple[float, float]:
    """The least and the most times that the fastest peer takes of drbench's fastest."""
    found = competitors(ranks)
    best = found.groupby(["shape", found.kind.isin(["five", "other"])]).median_s.min().unstack()
    ours = found[found.kind == "five"].groupby("shape").median_s.min()
    ratio = best[False] / ours
    return ratio.min(), ratio.max()


@value
def triples(what: str) -> int:
    """Counts over the partitionings and replication factors that DTensor and drbench ran."""
    found = rows(f"{HERE}/dtensor-triples-p4/replicated.csv")
    counts = {
        "all": "multiplies reshards_c reshards_operand reshards_both refuses",
        "in place": "multiplies reshards_c",
        "operand": "reshards_operand reshards_both",
        "runs": "runs",
        "repeats": "repeats",
        "reshards C alone": "reshards_c",
        "refuses": "refuses",
    }
    return int(found[counts[what].split()].to_numpy().sum())


@value
def triple_bytes() -> tuple[int, int, int]:
    """In how many partitionings without replication drbench moves fewer bytes than DTensor, as
    many, and more."""
    found = rows(f"{HERE}/dtensor-triples-p4/bytes.csv")
    less = found.drbench_bytes - found.dtensor_bytes
    return int((less < 0).sum()), int((less == 0).sum()), int((less > 0).sum())


# --- simulated


@value
def verdict_count(paper: str, word: str) -> int:
    """How many claims of a paper are PASS, FAIL, KNOWN or SKIP."""
    return sum(each.word == word for each in verdicts(paper))


@value
def split_cost(who: str) -> float:
    """By how many percent a product takes longer than with the best number of multiprocessors for
    sums, at worst: ``solved`` or ``TD``."""
    found = rows("simulated/overlap/split.csv")
    worst = 0.0
    for _, each in found.groupby(["ranks", "m", "n", "k"]):
        seconds = {row.variant.partition(":")[0]: row.seconds for row in each.itertuples()}
        worst = max(worst, 100 * seconds[who] / seconds["searched"] - 100)
    return worst


@value
def published(name: str) -> list[float]:
    """Numbers of a paper, a data sheet or a repository: a row of
    results/published/quoted/numbers.csv, which names the source."""
    told = only(rows("published/quoted/numbers.csv"), name=name)
    return [float(each) for each in str(told.numbers).split()]


@value
def machine(name: str, path: str, unit: float = 1.0) -> float:
    """A constant of a machine model below ``[model]``, in some unit; its file names the source."""
    text = (ROOT / f"launch/data/machines/{name}.toml").read_text(encoding="utf-8")
    found = tomllib.loads(text)["model"]
    for key in path.split("."):
        found = found[key]
    return found / unit


@value
def published_best() -> tuple[float, float]:
    """The fastest published DTensor line on 8 H100, and the peak of these, TFLOP/s."""
    found = records("published/h100.csv")
    best = found[found.algorithm.str.startswith("DT")].gflops.max() / 1e3
    return best, 8 * machine("h100x8", "compute.peak_flops", 1e12)


@value
def lowering_worst(machine: str, other: str) -> float:
    """The most by which exhaustive lowering takes longer than another schedule, percent."""
    found = lowered()
    found = found[found.machine == machine]
    return 100 * (found.exhaustive / found[other] - 1).max()


@value
def lowering_refused(machine: str) -> tuple[int, int]:
    """How many cases the search refuses, and how many there are."""
    found = lowered()
    found = found[found.machine == machine]
    return int(found.exhaustive.isna().sum()), len(found)


@value
def lowering_loses(machine: str, aligned: bool) -> tuple[int, int]:
    """In how many cases direct execution is more than 5 % slower than the best lowering, and how
    many there are."""
    found = lowered()
    found = found[(found.machine == machine) & (found.aligned == aligned)]
    return int((found.loss > 5).sum()), len(found)


def _reading(machine: str, reading: str, most: int, layer: str, program: str) -> DataFrame:
    return where(
        rows("simulated/readings/lines.csv"),
        machine=machine,
        program=program,
        reading=reading,
        most_replicas=most,
        layer=layer,
    )


@value
def reading(
    line: str,
    stationary: str | None = None,
    *,
    machine: str = "pvc12",
    reading: str = "as it is",
    most: int = 12,
    layer: str = "mlp2",
    program: str = "paper",
) -> list[float]:
    """Percent of peak of a line at each batch size: as drawn, or of one stationary matrix."""
    found = where(_reading(machine, reading, most, layer, program), line=line)
    chosen = found[found.drawn] if stationary is None else found[found.stationary == stationary]
    return chosen.sort_values("m").percent_of_peak.tolist()


@value
def reading_mean(*lines: str, **fields) -> list[float]:
    """The mean over the batch sizes of each line."""
    found = [reading(line, **fields) for line in lines]
    return [sum(each) / len(each) for each in found]


@value
def reading_at(m: int, *lines: str, stationary: str | None = None, **fields) -> list[float]:
    """Each line at one batch size."""
    at = [1024, 2048, 4096, 8192].index(m)
    return [reading(line, stationary, **fields)[at] for line in lines]


@value
def llm(column: str, algorithm: str, study: str = "weak", **fields) -> list[float]:
    """A column of an algorithm for GPT-3 and Megatron-NLG, all products, on 256 chips."""
    chosen = {"chips": 256, "product": "all"} | fields
    found = where(rows(f"simulated/tpuv4-llm/{study}.csv"), algorithm=algorithm, **chosen)
    return [float(getattr(only(found, model=m), column)) for m in ("gpt3", "megatron-nlg")]


@value
def llm_lead(other: str, study: str = "weak", **fields) -> list[float]:
    """By how much MeshSlice is faster, percent, for GPT-3 and Megatron-NLG."""
    ours, theirs = (llm("seconds", name, study, **fields) for name in ("meshslice", other))
    return [100 * (slow / fast - 1) for fast, slow in zip(ours, theirs)]


@value
def llm_strong(algorithm: str) -> float:
    """Utilization of an algorithm for GPT-3 with batch 32 on 256 chips."""
    return llm("utilization_percent", algorithm, "strong")[0]


@value
def gpu(kind: str, column: str, machine: str = "h100-80gb", **fields) -> float:
    """A figure of launch/gpu_check.sh: a column of the one line of a kind with these values."""
    path = RESULTS / "measured" / machine / "gpu_check.json"
    stages = json.loads(path.read_text(encoding="utf-8"))["stages"]
    lines = [line for stage in stages for line in stage["lines"] if line.get("kind") == kind]
    found = [x for x in lines if all(x.get(name) == value for name, value in fields.items())]
    if len(found) != 1:
        raise ValueError(f"{len(found)} lines of {kind} with {fields}, not one")
    return found[0][column]


@value
def gpu_of_unsplit(arithmetic: str) -> float:
    """What 8192³ in 64 tiles reaches on one H100, percent of the unsplit product."""
    return only(records(f"measured/h100-80gb/one-rank-{arithmetic}-8192.csv")).percent_of_roof


@value
def gpu_exact(kind: str) -> int:
    """Cases of launch/gpu_check.sh that were verified without an error, over 1, 2 and 4 ranks."""
    found = [
        records(f"measured/h100-80gb/{folder.name}/records.csv")
        for folder in sorted((RESULTS / "measured/h100-80gb").glob(f"{kind}-p*"))
    ]
    return sum(int(((each.status == "ok") & (each.error == 0)).sum()) for each in found)


@value
def measured_products() -> float:
    """How much faster a product of 8192³ was on an H100 than h100x8 says, percent."""
    found = gpu("product", "us", arithmetic="fp32", m=8192, n=8192, k=8192) / 1e6
    return 100 * (find_machine("h100x8").compute.gemm_s(8192, 8192, 8192) / found - 1)


@value
def dtensor_error(which: str, machine: str = "h100x8") -> float:
    """Mean or largest error of the published DTensor points, percent."""
    found = [abs(point.error) for point in points(find_machine(machine))]
    return 100 * (max(found) if which == "most" else sum(found) / len(found))


@value
def dtensor_missing() -> float:
    """What is missing in the prediction of the first point of columns of MLP-1, ms."""
    found = next(
        p for p in points(find_machine("h100x8")) if p[:3] == ("mlp1", "DT - Column", 1024)
    )
    return (found.published_s - found.predicted_s) * 1e3
