"""The MeshSlice LLM autotuner (Nam et al., ISCA 2025, §3.2): dataflows of the FC layers first, then
mesh shape and slice counts.

In phase 1 the largest matrix of each layer is stationary; the three multiplications of training are
given by one row of Table 1:

==========  ==================  ==================  ===================
stationary  forward             backward data       backward weight
==========  ==================  ==================  ===================
Y           Y = OS(X, W)        X' = LS(Y', W)      W' = RS(X, Y')
X           Y = LS(X, Wᵀ)       X' = OS(Y', Wᵀ)     W'ᵀ = RS(Y', X)
W           Y = RS(Xᵀ, W)       X'ᵀ = LS(W, Y')     W' = OS(Xᵀ, Y')
==========  ==================  ==================  ===================

Phase 2 tries every mesh, and on each every slice count for each layer, with the analytical cost
model (§3.2.2).
"""

from dataclasses import dataclass
from math import gcd, lcm
from typing import NamedTuple

from drbench.algorithms.meshslice import SLICED
from drbench.errors import UsageError
from drbench.model.costs import group_parts
from drbench.model.machine import Machine
from drbench.partitions import divisors
from drbench.program.group_steps import AllGather, ReduceScatter

#: MeshSlice's block B (Autotuner.py of the authors).
BLOCK = 8
#: The most slices that their autotuner tries (possibleK): its cost model ignores the cost of short
#: GEMMs.
_MOST_SLICES = 24
#: The multiplications of training a layer.
MULTIPLICATIONS = ("forward", "backward data", "backward weight")
#: Bytes of an element, a bfloat16.
_ITEMSIZE = 2
#: Table 1: dataflows of these multiplications, by the stationary matrix.
_TABLE_1 = {"Y": ("OS", "LS", "RS"), "X": ("LS", "OS", "RS"), "W": ("RS", "LS", "OS")}


#: Hidden sizes of GPT-3 (Brown et al.) and Megatron-NLG, as in §4.4.
MODELS = {"gpt3": 12288, "megatron-nlg": 20480}


@dataclass(frozen=True)
class Layer:
    """A fully connected layer Y = X·W: X is tokens × inputs, W inputs × outputs."""

    name: str
    tokens: int
    inputs: int
    outputs: int

    @property
    def shapes(self) -> tuple:
        """(m, n, k) of Y = X·W, X' = Y'·Wᵀ and W' = Xᵀ·Y'."""
        x, i, o = self.tokens, self.inputs, self.outputs
        return (x, o, i), (x, i, o), (i, o, x)


@dataclass(frozen=True)
class LayerMultiplication:
    """One of the three multiplications of a layer as C = A·B: C is m×n, A m×k, B k×n.

    ``flipped`` swaps the directions of the mesh: the transposed dataflow on Pr × Pc moves the same
    data as this one on Pc × Pr.
    """

    name: str
    m: int
    n: int
    k: int
    dataflow: str
    flipped: bool = False

    @property
    def flops(self) -> int:
        return 2 * self.m * self.n * self.k


class MeshPlan(NamedTuple):
    """A mesh with its best slice count of each layer, and the estimated seconds of all
    multiplications of one block."""

    mesh: tuple[int, int]
    slices: tuple[int, ...]
    seconds: float


def layers_of(h: int, batch: int, seq: int) -> list[Layer]:
    """The four FC layers of a block of hidden size ``h``.

    Examples
    --------
    >>> [
    ...     (layer.name, layer.inputs, layer.outputs)
    ...     for layer in layers_of(MODELS["gpt3"], 128, 2048)
    ... ]
    [('qkv', 12288, 36864), ('proj', 12288, 12288), ('fc1', 12288, 49152), ('fc2', 49152, 12288)]
    """
    tokens = batch * seq
    return [
        Layer("qkv", tokens, h, 3 * h),
        Layer("proj", tokens, h, h),
        Layer("fc1", tokens, h, 4 * h),
        Layer("fc2", tokens, 4 * h, h),
    ]


def choose_dataflows(
    layers: list[Layer], stationary: str | None = None
) -> list[list[LayerMultiplication]]:
    """Phase 1: the three multiplications of each layer.

    The largest of Y, X and W is stationary (on a tie the first of these), or ``stationary`` in all
    layers. A layer is transposed, and its multiplications flipped, if its input requires it: only
    W-stationary layers use Xᵀ, and only transposed ones compute Yᵀ.

    Examples
    --------
    >>> for multiplications in choose_dataflows(layers_of(MODELS["gpt3"], 128, 2048)):
    ...     print(*(multiplication.dataflow for multiplication in multiplications))
    OS LS RS
    OS LS RS
    OS LS RS
    LS OS RS
    """
    out, transposed = [], False
    for layer in layers:
        (tokens, outputs, inputs), *_ = layer.shapes
        sizes = {"Y": tokens * outputs, "X": tokens * inputs, "W": inputs * outputs}
        matrix = stationary or max(sizes, key=sizes.get)
        transposed = (matrix == "W") != transposed  # the input of this layer
        flipped = {"W": "backward data", "X": "backward weight"}.get(matrix)  # makes X'ᵀ or W'ᵀ
        out.append(
            [
                LayerMultiplication(
                    name, *((n, m) if name == flipped else (m, n)), k, dataflow, transposed
                )
                for name, (m, n, k), dataflow in zip(
                    MULTIPLICATIONS, layer.shapes, _TABLE_1[matrix]
                )
            ]
        )
    return out


def slice_counts(multiplications: list[LayerMultiplication], mesh: tuple[int, int]) -> list[int]:
    """Slice counts S that all of some multiplications support: S·B divides the shards of the sliced
    axis.

    Examples
    --------
    >>> slice_counts([LayerMultiplication("forward", 64, 64, 256, "OS")], (2, 4))
    [1, 2, 4, 8]
    """
    sliced = gcd(*(getattr(p, SLICED[p.dataflow]) for p in multiplications))
    block = lcm(*mesh) * BLOCK
    return [1, *(s for s in range(2, _MOST_SLICES + 1) if sliced % (s * block) == 0)]


def estimate(
    multiplication: LayerMultiplication, mesh: tuple[int, int], slices: int, machine: Machine
) -> float:
    """Seconds of MeshSlice by the analytical cost model: prologue + (S - 1) · steady state +
    epilogue.

    Collectives cost ``launch + (P - 1) · (sync + shard / bw)``, local GEMMs FLOPs over the
    effective rate. In OS the prologue is the longer gather and the epilogue the local GEMM; if C
    moves, the prologue is the gather, and the epilogue the last local GEMM and reduce-scatter.

    Examples
    --------
    >>> from drbench.launch.cases.machine_models import find_machine
    >>> multiplication = LayerMultiplication("forward", 262144, 49152, 12288, "OS")
    >>> f"{estimate(multiplication, (32, 8), 8, find_machine('tpuv4-32x8')):.4f}"
    '0.0052'
    """
    rows, cols = mesh[::-1] if multiplication.flipped else mesh
    chips = rows * cols
    m, n, k = multiplication.m, multiplication.n, multiplication.k
    rate = machine.compute.peak_flops * machine.compute.sustained
    multiply = multiplication.flops / chips / slices / rate
    bandwidth = machine.links[0].bandwidth_bytes_per_s

    def along(direction, kind, elements):
        ranks = cols if direction == "row" else rows
        nbytes = _ITEMSIZE * elements / chips / slices
        if ranks == 1:
            return 0.0
        return sum(group_parts(kind, machine, ranks, nbytes, bandwidth, direction))

    scatter = 0.0
    if multiplication.dataflow == "OS":
        gather = max(along("row", AllGather, m * k), along("column", AllGather, k * n))
    elif multiplication.dataflow == "LS":
        gather = along("column", AllGather, k * n)
        scatter = along("row", ReduceScatter, m * n)
    else:
        gather = along("row", AllGather, m * k)
        scatter = along("column", ReduceScatter, m * n)
    return gather + (slices - 1) * max(gather, multiply, scatter) + multiply + scatter


def tune_llm(dataflows: list, chips: int, machine: Machine) -> list[MeshPlan]:
    """Phase 2: for each mesh the slice counts with the shortest estimated time of a block; the best
    mesh first.

    Raises
    ------
    UsageError
        If no mesh divides the matrices.
    """
    plans = []
    common = gcd(
        *(x for multiplications in dataflows for p in multiplications for x in (p.m, p.n, p.k))
    )
    for rows in divisors(chips):
        mesh = rows, chips // rows
        if common % lcm(*mesh):
            continue
        best = [
            min(
                (
                    sum(
                        estimate(multiplication, mesh, s, machine)
                        for multiplication in multiplications
                    ),
                    s,
                )
                for s in slice_counts(multiplications, mesh)
            )
            for multiplications in dataflows
        ]
        seconds, slices = zip(*best)
        plans.append(MeshPlan(mesh, slices, sum(seconds)))
    if not plans:
        raise UsageError(
            f"no mesh of {chips} chips divides the layers' extents. Use another number of chips."
        )
    return sorted(plans, key=lambda plan: plan.seconds)
