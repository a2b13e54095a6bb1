"""Published tables of measured GPU kernels against the machine model, row by row.

    python -m benchmarks model tables PATH... [--machine NAME] [--csv rows.csv] [--figure FILE]

A PATH is a CSV file, or a folder of them, in the columns of ai-dynamo/aiconfigurator
(systems/data; ``.xz`` is read, too): GEMMs, NCCL and all-reduce kernels, DeepEP, attention with
and without a cache, latent attention, experts. The columns say which kernel it is. The machine is
that of the file's name (which begins with a100, h100, h200, b200 or gb200), or --machine. A row is
predicted by the parts of the model that a program uses; a kernel of these tables has weights in
the L2 cache where they fit, and contains RoPE or quantisation, which are counted.

The answer has a line for each class: kernel, element type, part (GPUs, nodes, head size) and
decade of m, bytes, tokens or length; and at the end one for each kernel. Columns: rows; the
median, 5 and 95 % of predicted over measured; the share of measured times in their 95 % interval,
and half the width of the median interval. --write keeps the last table, of which
docs/results/gpu-accuracy.md is made.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from math import log, log10, sqrt
from pathlib import Path
from sys import stderr
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from benchmarks.__main__ import parser_of
from benchmarks.pages.tables import table
from drbench.errors import UnsupportedError
from drbench.launch.cases.machine_models import find_machine
from drbench.mappings import remembered
from drbench.model.gemm import Compute
from drbench.model.machine import Machine

#: Machines of the files' names.
MACHINES = {
    "a100": "dgxa100",
    "h100": "dgxh100",
    "h200": "dgxh200",
    "b200": "dgxb200",
    "gb200": "gb200nvl72",
}
_TYPES = {"bfloat16": "bfloat16", "fp8": "float8", "half": "float16", "int8": "int8"}
#: NCCL's names for its operations -> the model's.
_OPERATIONS = {
    "all_gather": "allgather",
    "reduce_scatter": "reducescatter",
    "all_reduce": "allreduce",
    "alltoall": "alltoall",
}
#: GPUs of a node in DeepEP's rows: a tray of GB200 has four.
_GPUS_OF_NODE = {"gb200nvl72": 4}
#: Shapes of experts without a gate: hidden size, inner size.
_NOT_GATED = {(2048, 5120), (2688, 1856), (8192, 5120)}


class RowPrediction(NamedTuple):
    """What the model says of a row.

    Attributes
    ----------
    operation, dtype, part : str
        The class of the row: kernel, element type, and GPUs, nodes or head size.
    size : float
        m, bytes, tokens or length, whose decade belongs to the class.
    predicted_s : float
    low, high : float
        The ends of the interval of measured over predicted.
    """

    operation: str
    dtype: str
    part: str
    size: float
    predicted_s: float
    low: float
    high: float


def compute_of(machine: Machine, dtype: str) -> Compute:
    """The compute model of an element type, read once."""
    return remembered(machine.known, dtype, lambda: machine.for_dtype(dtype).compute)


def predict_gemm(machine: Machine, row: Any) -> RowPrediction:
    """A GEMM with warm weights; of fp8 with the quantisation of A."""
    dtype = _TYPES[getattr(row, "gemm_dtype", "bfloat16")]
    compute = compute_of(machine, dtype)
    seconds = compute.gemm_s(row.m, row.n, row.k, 1 if dtype == "float8" else 2, warm=True)
    seconds += compute.quantise_a_s(row.m, row.k)
    return RowPrediction("GEMM", dtype, "", row.m, seconds, *compute.interval("any", row.m))


def predict_nccl(machine: Machine, row: Any) -> RowPrediction:
    """A collective of NCCL on one node."""
    item = 1 if row.nccl_dtype == "int8" else 2
    operation, nbytes = _OPERATIONS[row.op_name], item * row.message_size
    seconds = machine.nccl.seconds(operation, nbytes, row.num_gpus, 1, item)
    ends = machine.nccl.interval(operation, nbytes)
    part = f"{row.op_name} {row.num_gpus}"
    return RowPrediction("NCCL", _TYPES[row.nccl_dtype], part, nbytes, seconds, *ends)


def predict_allreduce(machine: Machine, row: Any, path: Path) -> RowPrediction:
    """An all-reduce of an inference engine, named by the file; replayed in a graph, or eager."""
    engine, nbytes = "vllm" if "vllm" in path.name else "trtllm", 2 * row.message_size
    mode, kernel = getattr(row, "mode", "graph"), machine.allreduces[engine]
    nccl_s = machine.nccl.seconds("allreduce", nbytes, row.num_gpus)
    seconds = kernel.seconds(nbytes, row.num_gpus, nccl_s, mode == "eager")
    ends = kernel.interval(mode, nbytes)
    return RowPrediction(
        "all-reduce kernel", "bfloat16", f"{engine} {mode} {row.num_gpus}", nbytes, seconds, *ends
    )


def predict_exchange(machine: Machine, row: Any) -> Iterator[tuple[RowPrediction, float]]:
    """DeepEP's dispatch and combine, each with its measured seconds."""
    normal = hasattr(row, "dispatch_sms")
    gpus = _GPUS_OF_NODE.get(machine.name, machine.node_ranks)
    for kernel, microseconds in (("dispatch", row.dispatch_us), ("combine", row.combine_us)):
        name = kernel if normal else f"low_latency_{kernel}"
        exchange = machine.exchanges[name]
        units = getattr(row, f"{kernel}_sms") if normal else machine.compute.units
        sizes = row.num_token, row.hidden_size, row.num_topk, row.num_experts
        call = exchange.throughput_s if normal else exchange.low_latency_s
        ranks = gpus * row.node_num
        seconds = call(machine.nccl.link_bytes_per_s, *sizes, ranks, row.node_num, units)
        ends = exchange.interval(str(row.node_num), row.num_token)
        operation, part = f"DeepEP {name}", f"{row.node_num} nodes"
        dtype = "float8" if kernel == "dispatch" else "bfloat16"
        yield (
            RowPrediction(operation, dtype, part, row.num_token, seconds, *ends),
            1e-6 * microseconds,
        )


def predict_attention(machine: Machine, row: Any) -> RowPrediction:
    """Attention of whole sequences (``isl``) or of a new token (``step``); latent attention has no
    column of key/value heads."""
    compute, latent = machine.compute, not hasattr(row, "num_key_value_heads")
    stored = getattr(row, "kv_cache_dtype", "bfloat16")
    item, window = 1 if stored == "fp8" else 2, getattr(row, "window_size", 0)
    kv_heads = 1 if latent else row.num_key_value_heads
    head_dim = 0 if latent else getattr(row, "head_dim", 128)
    part, batch, heads = "latent" if latent else str(head_dim), row.batch_size, row.num_heads
    if hasattr(row, "isl"):
        kernel, size = machine.latent_prefill if latent else machine.prefill, row.isl
        seconds = kernel.prepare_s(compute, batch, size, heads, kv_heads, head_dim, item)
        seconds += kernel.attend_s(compute, batch, size, heads, head_dim, window, item)
    else:
        kernel, size = machine.latent_decode if latent else machine.decode, row.step
        sizes = batch, heads, kv_heads, head_dim, size, window, item
        seconds = kernel.seconds(compute, *sizes)
    name = ("latent " if latent else "") + ("prefill" if hasattr(row, "isl") else "decode")
    return RowPrediction(name, _TYPES[stored], part, size, seconds, *kernel.interval(part, size))


def predict_experts(machine: Machine, row: Any) -> RowPrediction:
    """Both GEMMs of the experts of one GPU, on the busiest rank."""
    dtype = _TYPES[getattr(row, "moe_dtype", "bfloat16")]
    compute = compute_of(machine, dtype)
    power = 0.0 if row.distribution == "balanced" else float(row.distribution.split("_")[-1])
    crowded = machine.name == "dgxa100"  # an older collector
    routing = row.num_tokens, row.topk, row.num_experts, row.moe_ep_size, power, crowded
    seconds = compute.experts.seconds(
        compute,
        busiest_rows(*routing),
        row.num_tokens,
        row.hidden_size,
        row.inter_size // row.moe_tp_size,
        1 if dtype == "float8" else 2,
        (row.hidden_size, row.inter_size) not in _NOT_GATED,
    )
    ends = compute.experts.interval("any", row.num_tokens)
    return RowPrediction("MoE", dtype, f"ep {row.moe_ep_size}", row.num_tokens, seconds, *ends)


@cache
def busiest_rows(
    tokens: int, topk: int, experts: int, ranks: int, power: float, crowded: bool
) -> tuple[float, ...]:
    """Rows of each expert of the busiest rank; below 1: the chance of one row.

    Loads of the experts are even (``power`` 0), or distributed as load^-power within the bounds
    that the benchmark draws from. The busiest rank then exceeds the mean by 0.75 ln(ranks) standard
    deviations (simulated: 2 to 256 ranks, within 3 %). Pairs that rounding leaves over go to the
    experts with rows, then are spread evenly or, by an older collector, ``crowded`` on the first.

    Examples
    --------
    >>> busiest_rows(8, 2, 4, 2, 0.0, False), busiest_rows(1, 2, 64, 2, 0.0, False)
    ((4.0, 4.0), (1.0,))
    """
    pairs, own = tokens * topk, experts // ranks
    mean = pairs / experts
    even = (max(1.0, mean),) * min(own, max(1, pairs // ranks))
    if not power:
        return even
    low, high = (end ** (1 - power) for end in ((1, 0.8 * tokens) if mean > 1 else (0.01, 2)))
    loads = lambda count: [
        (low + (high - low) * (x + 0.5) / count) ** (1 / (1 - power)) for x in range(count)
    ]
    every, rank = loads(experts), loads(own)
    average = sum(every) / experts
    rounded = [round(load * mean / average) for load in every]
    used = sum(map(bool, rounded))
    spare = pairs - sum(rounded) - used
    if crowded and spare > 0:
        return (1.0,) * min(own, spare + used // ranks)
    if 2 * spare > pairs:
        return even
    variance = sum((load / average - 1) ** 2 for load in every) / experts
    rows = mean * own * (1 + 0.75 * log(ranks) * sqrt(variance / own))
    return tuple(load * rows / sum(rank) for load in rank)


#: Columns by which a file is known, the most special first -> its prediction.
KINDS: list[tuple[set[str], Callable]] = [
    ({"dispatch_us"}, predict_exchange),
    ({"moe_ep_size"}, predict_experts),
    ({"op_name"}, predict_nccl),
    ({"message_size"}, predict_allreduce),
    ({"batch_size", "isl"}, predict_attention),
    ({"batch_size", "step"}, predict_attention),
    ({"m", "n", "k"}, predict_gemm),
]


def predict_file(path: Path, name: str | None = None) -> pd.DataFrame:
    """The predictions of a file, with ``machine`` and ``measured_s``; rows of an element type
    without constants are left out, and counted in a line of standard error.

    Raises
    ------
    SystemExit
        If its columns are of no known kernel, or its machine has no constants for any row.
    """
    try:
        rows = pd.read_csv(path)
    except (OSError, ValueError) as error:
        raise SystemExit(f"{path} is no CSV file that can be read: {error}.") from None
    chip = re.split("[_-]", path.name)[0]
    machine = find_machine(name or MACHINES.get(chip, chip))
    predict = next((of for needed, of in KINDS if needed <= {*rows.columns}), None)
    if predict is None:
        raise SystemExit(f"{path}: no kernel has the columns {', '.join(rows.columns)}.")
    predictions: list[tuple] = []
    unknown = Counter()
    for row in rows.itertuples(index=False):
        try:
            if predict is predict_exchange:
                predictions += [(*both, s) for both, s in predict(machine, row)]
            else:
                more = (path,) if predict is predict_allreduce else ()
                predictions.append((*predict(machine, row, *more), 1e-3 * row.latency))
        except (AttributeError, KeyError, UnsupportedError) as error:
            unknown[str(error)] += 1
    for error, count in unknown.items():
        print(
            f"{path.name}: {machine.name} has no constants for {count} rows ({error})", file=stderr
        )
    if not predictions:
        raise SystemExit(f"{path}: machine {machine.name} has no constants for it.")
    frame = pd.DataFrame(predictions, columns=[*RowPrediction._fields, "measured_s"])
    return frame.assign(machine=machine.name, file=path.name)


def summarise(rows: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Rows, median and ends of predicted over measured, share inside and half-width, by class.

    Examples
    --------
    >>> rows = pd.DataFrame({"predicted_s": [1.1, 2.0], "measured_s": [1.0, 2.0], "part": "8"})
    >>> summarise(rows.assign(low=0.95, high=1.05), ["part"]).round(3).to_dict("records")
    [{'part': '8', 'rows': 2, 'median': 1.05, 'low': 1.005, 'high': 1.095, 'inside': 0.5, \
'half': 0.05}]
    """
    ratio = rows.predicted_s / rows.measured_s
    inside = (1 / ratio >= rows.low) & (1 / ratio <= rows.high)
    groups = rows.assign(ratio=ratio, inside=inside, half=(rows.high - rows.low) / 2).groupby(by)
    return groups.agg(
        rows=("ratio", "size"),
        median=("ratio", "median"),
        low=("ratio", lambda x: x.quantile(0.05)),
        high=("ratio", lambda x: x.quantile(0.95)),
        inside=("inside", "mean"),
        half=("half", "median"),
    ).reset_index()


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--machine")
    parser.add_argument("--csv", type=Path, help="every row with its prediction")
    parser.add_argument("--write", type=Path, help="the summary of the page")
    parser.add_argument("--figure", type=Path)
    given = parser.parse_args()
    files = [
        file
        for path in given.paths
        for file in (sorted(path.glob("*.csv*")) if path.is_dir() else [path])
    ]
    rows = pd.concat([predict_file(path, given.machine) for path in files])
    rows["decade"] = [int(log10(max(1, size))) for size in rows["size"]]
    if given.csv:
        rows.to_csv(given.csv, index=False)
    by = ["machine", "operation", "dtype"]
    summary = summarise(rows, by)
    for shown in (summarise(rows, [*by, "part", "decade"]), summary):
        lines = [[*map(_text, row)] for row in shown.itertuples(index=False)]
        print(table([*shown.columns], lines))
    if given.write:
        summary.round(4).to_csv(given.write, index=False)
    if given.figure:
        draw(summary).savefig(given.figure)


def _text(value: Any) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def draw(summary: pd.DataFrame) -> Figure:
    """A figure of a summary: predicted over measured of each kernel, median and 5 to 95 %."""
    labels = summary.operation.str.replace("_", " ") + summary.dtype.map(lambda name: f", {name}")
    names, machines = sorted({*labels}, reverse=True), sorted({*summary.machine})
    figure, axis = plt.subplots(figsize=(7, 0.3 * len(names) + 1.2), layout="constrained")
    for x, machine in enumerate(machines):
        of = summary[summary.machine == machine]
        at = [names.index(label) + 0.2 * (1 - x) for label in labels[of.index]]
        ends = [of["median"] - of.low, of.high - of["median"]]
        axis.errorbar(of["median"], at, xerr=ends, fmt="o", ms=4, capsize=2, label=machine)
    axis.axvline(1, color="0.6", lw=0.8)
    axis.set(yticks=range(len(names)), yticklabels=names, xscale="log")
    axis.set_xlabel("predicted / measured: median, and from 5 to 95 % of the rows")
    axis.set_xticks([0.25, 0.5, 0.75, 1, 1.5], ["0.25", "0.5", "0.75", "1", "1.5"])
    axis.minorticks_off()
    axis.legend(frameon=False, ncols=len(machines), loc="lower center", bbox_to_anchor=(0.5, 1))
    return figure


if __name__ == "__main__":
    main()
