"""The costs of a chain's operations in every combination of layouts on a mesh.

Each GEMM is divided along every dimension of the mesh: by m, n or k, or each rank of the dimension
multiplies the same. Operands are redistributed to this division, and the result from it, by
collectives along one dimension at a time, or along neighbouring dimensions together. Along one
dimension transfers and GEMM may also overlap, in a program of the ranks of this dimension.

Three kinds of transfers are hidden behind other operations of their pass: gathers of weights, which
FSDP prefetches (Zhao et al., 2023, §3.3); reductions of the gradients of weights, which DDP puts
into buckets (Li et al., 2020, §3.2); and redistributions of the operands of these gradients, for
which no other operation waits (Korthikanti et al., 2022, §4.2.2). So a pass takes as long as its
operations in sequence, or as its busiest links, whichever is longer. Gradients of which every rank
stores a sum are reduced once in ``micro_batches``.
"""

import itertools
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from math import inf, prod
from operator import add, itemgetter
from os.path import commonprefix
from typing import Any, NamedTuple

from drbench.algorithms.registry import get_algorithm
from drbench.clock import Clock
from drbench.mappings import remembered
from drbench.model.machine import Machine
from drbench.model.simulate import EffortExhausted
from drbench.partitions.intervals import Pair
from drbench.program.problem import ITEMSIZES, Problem

from .description import Chain, LocalMap, Matmul, Operation
from .functions import Function
from .mesh import EXPERT, PENDING, DeviceMesh, Layout, cut
from .programs import (
    ASYNC,
    ENGINES,
    EVERYTHING,
    OF_EXPERTS,
    OVERLAPPING,
    ChainProgram,
    CollectiveProgram,
    ExchangeProgram,
    LocalProgram,
    ProgramTimes,
    RankGroup,
    SimulatedProgram,
    quantise_s,
    reads,
)
from .search import Factor, Label, best

#: Placements of op(A), op(B) and C along one dimension of a mesh.
Placed = tuple[str, str, str]
#: How a GEMM is divided along a dimension -> the placements there.
_DIVIDED: dict[str, Placed] = {
    "m": ("S(0)", "R", "S(0)"),
    "n": ("R", "S(1)", "S(1)"),
    "k": ("S(1)", "S(0)", PENDING),
    "": ("R", "R", "R"),
    "e": (EXPERT,) * 3,
}
_SWAPPED = {"S(0)": "S(1)", "S(1)": "S(0)"}
_WORDS = {"S(0)": "row", "S(1)": "column"}
#: How often a score is read or written between the GEMMs of attention that is not fused, forward
#: and backward, by softmax and by dropout, whose mask is half an element.
_SCORE_TRAFFIC = 4.5, 5.5
#: Programs that overlap have at most this number of ranks, unless a library runs them.
_MOST_RANKS = 16
#: Bytes of optimizer state for an element: Adam's two moments; for 16-bit types also the weight,
#: all in float32 (Rajbhandari et al., ZeRO, 2020, §3.1).
OPTIMIZER_BYTES = {1: 12, 2: 12, 4: 8, 8: 16}


#: What a step between layouts does, and the dimensions of the mesh that take part.
Change = tuple[str, tuple[int, ...]]


class Load(NamedTuple):
    """What programs in sequence add to a pass.

    Attributes
    ----------
    serial_s : float
        Seconds in which no other operation runs.
    between_s, inside_s : float
        Seconds of links between nodes (of a single node, all its links), and of links inside a node
        of several.
    pool : int
        Bytes of receive buffers.
    """

    serial_s: float = 0.0
    between_s: float = 0.0
    inside_s: float = 0.0
    pool: int = 0

    def then(self, other: "Load") -> "Load":
        """The load of both in sequence."""
        return Load._make(map(add, self, other))


class Use(NamedTuple):
    """A program of a chain.

    Attributes
    ----------
    operation : str
        The result of its operation.
    matrix : str
        The operation's matrix that it redistributes, A, B or C; empty for the multiplication.
    program : ChainProgram
    hidden : bool
        Other operations of the pass hide it.
    share : float
        The fraction of micro-batches in which it runs.
    """

    operation: str
    matrix: str
    program: ChainProgram
    hidden: bool = False
    share: float = 1.0

    def load(self, times: ProgramTimes) -> Load:
        """What it adds to its pass if the program has these times."""
        seconds, core_s, link_s = times
        serial_s, busy_s = (core_s, seconds) if self.hidden else (seconds, link_s)
        serial_s, busy_s = self.share * serial_s, self.share * busy_s
        group, pool = self.program.group, self.program.pool
        if group and group.inside:
            return Load(serial_s, 0.0, busy_s, pool)
        return Load(serial_s, busy_s, 0.0, pool)


class Way(NamedTuple):
    """A way to compute a multiplication, named by its result.

    Attributes
    ----------
    operation : str
    moves : tuple of Use
        Redistributions.
    gemm : Use
    inner : tuple of three layouts
        Of A, B and C, in which the local GEMMs run.
    moved : Load
        Of the redistributions.
    """

    operation: str
    moves: tuple[Use, ...]
    gemm: Use
    inner: tuple[Layout, Layout, Layout]
    moved: Load

    @property
    def uses(self) -> tuple[Use, ...]:
        """All programs."""
        return (*self.moves, self.gemm)


def why_not_aligned(
    operation: LocalMap, chain: Chain, layout: Layout, mesh: DeviceMesh
) -> str | None:
    """The reason why a layout does not suit a function; None if each rank has the inputs of its
    tiles."""
    of, (rows, cols) = operation.function, chain.matrices[operation.c].shape
    parts = [
        prod(p for p, placement in zip(mesh.extents, layout) if placement == f"S({side})")
        for side in (0, 1)
    ]
    if parts[0] > 1 and of.rows > 1 and rows % (parts[0] * of.rows):
        return (
            f"{parts[0]} parts of the rows need {parts[0]} sequences of {of.rows} tokens, got "
            f"{rows // of.rows} (give -m {parts[0] * of.rows})"
        )
    even = all(taken == of.gives for taken in of.takes)
    if parts[1] > 1 and not (even and of.gives == 1) and cols % (parts[1] * of.gives):
        what = "key/value heads" if of.heads else "columns"
        return f"{cols // of.gives} {what} cannot be divided by {parts[1]} ranks"
    return None


def function_s(machine: Machine, of: Function, shape: Pair, itemsize: int) -> float:
    """Seconds of a function that computes a block of this shape: of its GEMMs and its elements; of
    their memory traffic where elements were not measured.

    Attention in 16 bits is one kernel on a machine that has its constants, forward with RoPE and
    the write of keys and values. Its gradient takes the time of the kernel in proportion to its
    GEMMs, five instead of two: assumed (Dao, FlashAttention-2, 2023, §3.1), no measurements of it
    were found. Attention to a cache takes the time of the GEMMs, or of reading the cache, if that
    is longer.
    """
    (rows, cols), compute = shape, machine.compute
    if of.name.startswith("columns"):
        return 0.0  # a view
    units, gemms = cols // of.gives, of.gemms(rows, cols)
    heads, kv_heads, head_dim = of.heads * units, units, of.head_dim
    prefill, decode = machine.prefill, machine.decode
    if of.rotary:
        kv_heads, head_dim = 1, 0
        prefill, decode = machine.latent_prefill, machine.latent_decode
    if of.context and decode and itemsize <= 2:
        sizes = rows, heads, kv_heads, head_dim, of.context, of.window, itemsize
        return decode.seconds(compute, *sizes)
    if of.heads and prefill and not of.context and itemsize <= 2:
        sequences = rows // of.rows
        seconds = prefill.attend_s(compute, sequences, of.rows, heads, head_dim, of.window)
        if of.name.endswith("_grad"):
            return compute.launch_s + seconds * len(gemms) / 2
        return seconds + prefill.prepare_s(compute, sequences, of.rows, heads, kv_heads, head_dim)
    gemms_s = sum(compute.gemm_s(*sizes, itemsize) for sizes in gemms)
    if of.context:
        return max(gemms_s, compute.memory_s(itemsize * rows * of.seen * of.cached * kv_heads))
    element_s = compute.functions.get(of.name)
    if element_s is not None:
        return gemms_s + compute.launch_s + element_s * of.elements(rows, cols)
    return gemms_s + compute.memory_s(itemsize * rows * (cols + cols // of.gives * sum(of.takes)))


def as_stored(machine: Machine, dtype: str) -> Machine:
    """The machine for functions, which compute in the type in which matrices are stored."""
    return remembered(machine.known, ("as", dtype), lambda: machine.for_dtype(dtype))


def divided(matmul: Matmul, inner: Sequence[Layout]) -> tuple[Layout, ...]:
    """The layouts of A, B and C for GEMMs of each rank alone, where ranks of a dimension multiply
    together in others.

    Examples
    --------
    >>> divided(Matmul("C", "A", "B"), (("S(0)",), ("S(1)",), ("S(1)",)))
    (('R',), ('S(1)',), ('S(1)',))
    """
    alike = lambda triple: max(
        _DIVIDED.values(), key=lambda other: sum(a == b for a, b in zip(triple, other))
    )
    return tuple(_as_operands(matmul, zip(*map(alike, zip(*_as_operands(matmul, inner))))))


#: What the backward pass computes again -> the share of it for a GEMM, for attention, and for
#: another function.
RECOMPUTED = {
    "none": (0.0, 0.0, 0.0),
    "attention": (0.0, 1.0, 0.0),
    "selective": (0.5, 0.0, 1.0),
    "full": (1.0, 1.0, 1.0),
}
#: Bytes of a score that attention keeps if it is not fused: softmax in 16 bits, the mask of dropout
#: and its result (Korthikanti et al., 2022, §4.1).
_SCORE_BYTES = 5


class Training(NamedTuple):
    """A training step around a chain.

    Attributes
    ----------
    layers : int
        Layers whose weights, gradients, optimizer state and activations a rank holds; one is run.
    micro_batches : int
        Passes for which gradients are added up before ranks of data parallelism reduce them.
    recompute : str
        ``none``: all that the backward pass takes is kept. ``attention``: the scores of attention
        that is not fused are computed again (Korthikanti et al., 2022, §5, selective).
        ``selective``: the results of attention and of every second GEMM are kept, the rest is
        computed again (PyTorch's selective checkpointing of operations, as TorchTitan uses it).
        ``full``: only the input of each layer is kept.
    zero : int
        1: ranks with copies of a weight share its optimizer state; 2: and its gradient
        (Rajbhandari et al., ZeRO, 2020). 3 is FSDP.
    gradients : str
        Element type in which gradients of weights are stored and reduced; by default that of the
        weights.
    unfused : bool
        Attention writes its scores to memory.
    """

    layers: int = 1
    micro_batches: int = 1
    recompute: str = "none"
    zero: int = 0
    gradients: str = ""
    unfused: bool = False


#: One layer, whose gradients are reduced at once.
ONE_LAYER = Training()


class LayoutCosts:
    """The costs of the operations of one chain on a mesh by a performance model, each computed
    once.

    Parameters
    ----------
    machine : Machine
        With the chain's element type.
    mesh : DeviceMesh
    dtype : str
    training : Training, optional
    programs : collection of str, optional
        Names of programs to choose from.
    instead : Chain, optional
        A search takes this chain on the mesh instead of its own.
    whole : drbench.chains.model.whole.Whole, optional
        The model whose layers the chain stands for.
    """

    def __init__(
        self,
        machine: Machine,
        mesh: DeviceMesh,
        dtype: str = "float32",
        training: Training = ONE_LAYER,
        programs: Collection[str] = EVERYTHING,
        instead: Chain | None = None,
        whole: Any = None,
    ):
        self.machine, self.mesh, self.dtype, self.training = machine, mesh, dtype, training
        #: Recipes for 8 bits store and send 16, and convert the operands of each GEMM.
        self.stored = "bfloat16" if ITEMSIZES[dtype] == 1 else dtype
        self.allowed, self.item, self.instead = programs, ITEMSIZES[self.stored], instead
        self.whole = whole
        self.known: dict[tuple, list[ChainProgram]] = {}
        self._ways: dict[tuple, list[Way]] = {}
        self._moves: dict[tuple, tuple] = {}
        self._best: dict[tuple, list[Label]] = {}
        self._users: dict[ChainProgram, set[tuple]] = defaultdict(set)
        self._one_sided = "read" in programs
        #: Parts of a GEMM may fit into a cache, which the whole does not.
        self._least = replace(machine.compute, cache_bytes=inf)

    @property
    def programs(self) -> list[ChainProgram]:
        """Every program that has a time or a bound."""
        return list(dict.fromkeys(itertools.chain.from_iterable(self.known.values())))

    # -- inputs of the search

    def domains(self, chain: Chain) -> dict[str, list[Layout]]:
        """The layouts that each variable may have."""
        by_expert = self.by_expert(chain)
        domains = {
            variable: self.mesh.layouts(chain.experts if variable in by_expert else 0)
            for variable in chain.variables.values()
        }
        for operation in chain.operations:
            if isinstance(operation, LocalMap):
                variable = chain.variable(operation.c)
                domains[variable] = [
                    layout
                    for layout in domains[variable]
                    if not why_not_aligned(operation, chain, layout, self.mesh)
                ]
        return domains

    def factors(
        self,
        chain: Chain,
        domains: Mapping[str, Sequence[Layout]],
        stationary: Sequence[Collection[str]] | None = None,
        ends_s: float = inf,
    ) -> list[Factor]:
        """The costs of every operation and the memory of every matrix, by the layouts of its
        variables; labels have the :class:`Way`.

        Parameters
        ----------
        stationary : sequence of collection of str, optional
            For each dimension the matrices that are not redistributed along it, by kind:
            ``weight`` or ``made``; then nothing overlaps but along dimensions with ``overlap``.
        ends_s : float
            CPU seconds of this process.

        Raises
        ------
        EffortExhausted
            After ``ends_s``.
        """
        stored_bytes = lambda *key: sum(self.count_bytes(chain, *key).values())
        factors = [
            Factor((name,), {(x,): [Label(nbytes=stored_bytes(name, x))] for x in domains[name]})
            for name in dict.fromkeys(chain.variables.values())
        ]
        for operation in chain.operations:
            if Clock.cpu() > ends_s:
                raise EffortExhausted
            names = (
                (*operation.takes, operation.c) if isinstance(operation, Matmul) else (operation.c,)
            )
            variables = [chain.variable(name) for name in names]
            scope = tuple(dict.fromkeys(variables))
            table = {}
            for key in itertools.product(*(domains[name] for name in scope)):
                if isinstance(operation, LocalMap):
                    load = Load(self.map_s(chain, operation, key[0]))
                    table[key] = [self.label(chain, operation, load)]
                    continue
                stored = tuple(dict(zip(scope, key))[name] for name in variables)
                table[key] = self._labels(chain, operation, stored, stationary)
            factors.append(Factor(scope, table))
        return factors

    def label(self, chain: Chain, operation: Operation, load: Load, how: tuple = ()) -> Label:
        """The label of an operation of the forward or the backward pass. What the backward pass
        computes again takes its time in sequence: the weights are gathered anyway."""
        serial_s, between_s, inside_s, pool = load
        nbytes = sum(self.count_dispatched(chain, way) for way in how)
        if chain.is_gradient(operation.c):
            return Label((0.0, 0.0, 0.0, serial_s, between_s, inside_s), nbytes, pool, how)
        again_s = serial_s * self.share_again(chain, operation)
        return Label((serial_s, between_s, inside_s, again_s, 0.0, 0.0), nbytes, pool, how)

    def share_again(self, chain: Chain, operation: Operation) -> float:
        """The share of an operation of the forward pass that the backward pass computes again."""
        if not chain.has_backward or chain.is_gradient(operation.c):
            return 0.0
        kind = self.training.recompute
        if kind == "attention" and not self.training.unfused:  # nothing that is stored instead
            return 0.0
        of_gemm, of_attention, of_others = RECOMPUTED[kind]
        if isinstance(operation, Matmul):
            return of_gemm
        return of_attention if operation.function.heads else of_others

    def share_stored(self, chain: Chain, name: str) -> float:
        """The share of a matrix of the forward pass that a layer stores until its backward
        pass."""
        kind = self.training.recompute
        if not chain.has_backward or chain.matrices[name].kind == "input":
            return float(chain.has_backward)
        if kind in ("selective", "full"):
            operation = next(maker for maker in chain.operations if maker.c == name)
            return (kind != "full") * (1 - self.share_again(chain, operation))
        return float(
            any(name in user.takes for user in chain.operations if chain.is_gradient(user.c))
        )

    def count_dispatched(self, chain: Chain, way: Way) -> int:
        """Bytes of the tokens of other ranks that a rank's experts received in the forward pass:
        the gradient of their weights takes them."""
        stored = chain.has_backward and self.training.recompute in ("none", "attention")
        if chain.is_gradient(way.operation) or not stored:
            return 0
        return sum(
            use.program.pool * self.training.layers
            for use in way.moves
            if use.program.name == "dispatch"
        )

    def _labels(self, chain: Chain, matmul: Matmul, stored: Sequence[Layout], stationary) -> list:
        """The best labels of a multiplication of matrices in these layouts, until a program of
        theirs is simulated."""
        key = matmul.c, stationary, *stored
        if key not in self._best:
            labels = []
            for way in self.ways(chain, matmul, stored, stationary):
                times = way.gemm.program.times
                if times.seconds < inf:
                    load = way.moved.then(way.gemm.load(times))
                    labels.append(self.label(chain, matmul, load, (way,)))
            self._best[key] = best(labels)
        return self._best[key]

    def simulate(self, program: ChainProgram) -> None:
        """Simulate a program, whose labels change."""
        if program.simulated is None:
            program.simulate()
            for key in self._users.pop(program, ()):
                self._best.pop(key, None)

    def count_bytes(self, chain: Chain, variable: str, layout: Layout) -> dict[str, int]:
        """Bytes of a variable's matrices on the rank that holds most, by what they are."""
        parts = dict.fromkeys(("weights", "gradients", "optimizer", "activations", "cache"), 0.0)
        (layers, _, kind, zero, gradients, unfused), item = self.training, self.item
        held = self.whole.weight_layers if self.whole else layers
        copies = prod(x for x, placement in zip(self.mesh.extents, layout) if placement == "R")
        for name, matrix in chain.matrices.items():
            if chain.variable(name) != variable:
                continue
            local = [cut(matrix.shape[x], layout, x, self.mesh) for x in (0, 1)]
            size = matrix.count * prod(local)
            if chain.is_gradient(name) and chain.is_of_weight(name):
                own = ITEMSIZES[gradients] if gradients else item
                parts["gradients"] += size * own * held / (copies if zero > 1 else 1)
            elif matrix.kind == "weight":
                parts["weights"] += size * item * held
                if chain.has_backward:
                    state = OPTIMIZER_BYTES[item] / (copies if zero else 1)
                    parts["optimizer"] += size * state * held
            else:
                share = 0.0 if chain.is_gradient(name) else self.share_stored(chain, name)
                parts["activations"] += size * item * max(1.0, share * layers)
        for operation in chain.operations:
            if isinstance(operation, LocalMap) and chain.variable(operation.c) == variable:
                of, shape = operation.function, chain.matrices[operation.c].shape
                local = [cut(shape[x], layout, x, self.mesh) for x in (0, 1)]
                if of.context:
                    heads = 1 if of.rotary else local[1] // of.gives
                    seen = self.whole.count_seen(of) if self.whole else of.seen * layers
                    parts["cache"] += local[0] * seen * of.cached * heads * item
                is_forward = not chain.is_gradient(operation.c)
                if unfused and of.heads and is_forward and chain.has_backward:
                    again = kind in ("attention", "full")
                    nbytes = _SCORE_BYTES * of.elements(*local)
                    parts["activations"] += nbytes * (1 if again else layers)
        return {what: int(nbytes) for what, nbytes in parts.items()}

    def map_s(
        self, chain: Chain, operation: LocalMap, layout: Layout, machine: Machine | None = None
    ):
        """Seconds of a function on the rank with most work, by this or another performance
        model."""
        shape = chain.matrices[operation.c].shape
        local = tuple(cut(shape[x], layout, x, self.mesh) for x in (0, 1))
        seen, of = as_stored(machine or self.machine, self.stored), operation.function
        if not (self.training.unfused and of.heads):
            return function_s(seen, of, local, self.item)
        moved = _SCORE_TRAFFIC[of.name.endswith("_grad")] * self.item * of.elements(*local)
        unfused = replace(seen, prefill=None, latent_prefill=None)
        return function_s(unfused, of, local, self.item) + seen.compute.memory_s(moved)

    # -- ways to multiply

    def ways(
        self,
        chain: Chain,
        matmul: Matmul,
        stored: Sequence[Layout],
        stationary: Sequence[Collection[str]] | None = None,
    ) -> list[Way]:
        """Every way to compute a multiplication of matrices in these layouts."""
        key = matmul.c, stationary, *stored
        if key not in self._ways:
            self._ways[key] = list(self._new_ways(chain, matmul, stored, stationary))
            for way in self._ways[key]:
                if way.gemm.program.simulated is None:
                    self._users[way.gemm.program].add(key)
        return self._ways[key]

    def _new_ways(self, chain: Chain, matmul: Matmul, stored, stationary) -> Iterator[Way]:
        placed, extents = [*zip(*_as_operands(matmul, stored))], chain.extents(matmul)
        reads = self._one_sided and stationary is None
        kinds = [
            "weight" if chain.is_of_weight(name) else "made" for name in (*matmul.takes, matmul.c)
        ]
        fixed = [
            [x for x in range(3) if kinds[x] in along and EXPERT not in here]
            for along, here in zip(stationary or [()] * len(placed), placed)
        ]
        overlapping = [
            d
            for d in range(len(placed))
            if self._overlaps(placed[d], d) and (stationary is None or "overlap" in stationary[d])
        ]
        by_expert = self.by_expert(chain)
        rows = _as_operands(matmul, [("S(0)",)] * 3)
        names = *matmul.takes, matmul.c
        wanted = tuple(
            EXPERT if chain.variable(name) in by_expert else row
            for name, (row,) in zip(names, rows)
        )
        of_weights = "k" if "a" in matmul.transpose else "m"
        for active in (None, *overlapping):
            for axes in itertools.product(*self._axes(wanted, placed, fixed, active)):
                inner = _as_operands(matmul, zip(*map(_DIVIDED.get, axes, placed)))
                (uses_a, load_a), (uses_b, load_b), (uses_c, load_c) = (
                    self._redistribute_operand(chain, matmul, x, reads, stored[x], inner[x])
                    for x in range(3)
                )
                uses = *uses_a, *uses_b, *uses_c
                moved = load_a.then(load_b).then(load_c)
                owners = prod(p for p, axis in zip(self.mesh.extents, axes) if axis == "e")
                axes = [of_weights if axis == "e" else axis for axis in axes]
                local = tuple(cut(x, axes, axis, self.mesh) for axis, x in zip("mnk", extents))
                for program in self._gemms(matmul, local, active, placed, owners):
                    if active is not None and stationary and program.name not in ASYNC:
                        continue
                    yield Way(matmul.c, uses, Use(matmul.c, "", program), tuple(inner), moved)

    def _axes(
        self,
        wanted: Placed,
        placed: Sequence[Placed],
        fixed: Sequence[Sequence[int]],
        active: int | None,
    ) -> Iterator[list[str]]:
        """The axes by which a GEMM may be divided along each dimension: those of the placements
        there, if nothing moves then; ranks multiply the same only if each needs the result.

        Parameters
        ----------
        wanted : Placed
            The only placements along a dimension whose ranks share the experts.
        placed : sequence of Placed
            As the matrices are stored, along each dimension.
        fixed : sequence of sequence of int
            Which of the three are not redistributed along each dimension.
        active : int or None
            The dimension whose ranks multiply together, in the placements as they are: axis ``*``.
        """
        for d, (extent, here) in enumerate(zip(self.mesh.extents, placed)):
            if d == active or extent == 1:
                yield ["*" if d == active else ""]
                continue
            if EXPERT in here:  # tokens go to their experts, and results back
                yield ["e"] if active is None and here == wanted else []
                continue
            axes = [axis for axis in "mnk" if _DIVIDED[axis] == here]  # nothing moves
            axes = axes or ["m", "n", "k", *[""] * (here[2] == "R")]
            if active is not None and d > active:
                axes = [axis for axis in axes if _divided_alike(placed[active], axis)]
            for x in fixed[d]:
                axes = [axis for axis in axes if _DIVIDED[axis][x] == here[x]]
            yield axes

    def _overlaps(self, placed: Placed, d: int) -> bool:
        """Whether a program along a dimension may take these placements: data moves, and ranks are
        few."""
        extent = self.mesh.extents[d]
        if EXPERT in placed:
            return False
        few = extent <= _MOST_RANKS or self._one_sided
        return extent > 1 and few and placed not in _DIVIDED.values()

    def _redistribute_operand(
        self, chain, matmul: Matmul, x: int, reads: bool, stored, inner
    ) -> tuple:
        """The redistributions of a multiplication's matrix A, B or C, by one-sided reads or by
        collectives, and their load."""
        key = matmul.c, x, reads, stored, inner
        if key not in self._moves:
            name, (old, new) = (
                (*matmul.takes, matmul.c)[x],
                (inner, stored) if x == 2 else (stored, inner),
            )
            matrix, of_weight = chain.matrices[name], chain.is_of_weight(name)
            first = matmul is chain.multiplications[0] and self.training.layers == 1
            hidden = of_weight or chain.is_of_weight(matmul.c)
            hidden = hidden and not self.machine.adds_on_core and (x == 2 or not first)
            item = self.item
            if of_weight and x == 2 and self.training.gradients:
                item = ITEMSIZES[self.training.gradients]
            if not of_weight and x < 2:  # operands are converted before they move
                item = ITEMSIZES[self.dtype]
            uses, load = [], Load()
            programs = self._exchanges(chain, matmul, matrix, old, new)
            old = tuple(b if EXPERT in (a, b) else a for a, b in zip(old, new))
            for program in [*programs, *self.moves(matrix, old, new, reads, item)]:
                once = program.name == "reduce" and hidden and x == 2 and self.training.zero < 2
                share = 1 / self.training.micro_batches if once else 1.0
                uses.append(Use(matmul.c, "ABC"[x], program, hidden, share))
                load = load.then(uses[-1].load(program.times))
            self._moves[key] = uses, load
        return self._moves[key]

    def _exchanges(self, chain: Chain, matmul: Matmul, matrix, old, new) -> Iterator[ChainProgram]:
        """The programs that send tokens to the ranks of their experts, or results back. Gradients
        of the experts' weights take the tokens that these ranks have received."""
        if chain.is_of_weight(matmul.c):
            return
        count, topk = matmul.experts
        for d, (before, after) in enumerate(zip(old, new)):
            if before != after and EXPERT in (before, after):
                tokens = new if before == EXPERT else old
                rows, cols = (cut(matrix.shape[x], tokens, x, self.mesh) for x in (0, 1))
                kind = "combine" if before == EXPERT else "dispatch"
                sizes = rows, cols, topk, count
                of = kind, self._group((d,)), sizes, self.machine, ITEMSIZES[self.dtype]
                yield remembered(self.known, of[:3], lambda of=of: [ExchangeProgram(*of)])[0]

    def by_expert(self, chain: Chain) -> set[str]:
        """The variables that ranks of their own experts may have: weights, and pairs of a token and
        an expert."""
        pairs: set[str] = set()
        for operation in chain.operations:
            names = [chain.variable(name) for name in (*operation.takes, operation.c)]
            if isinstance(operation, Matmul) and not operation.transpose:
                if operation.experts[1] and names[0] not in pairs:
                    pairs.add(names[-1])
        weights = {chain.variable(x) for x, matrix in chain.matrices.items() if matrix.count > 1}
        return pairs | weights

    def _gemms(
        self, matmul: Matmul, extents, active: int | None, placed, owners: int = 1
    ) -> list[ChainProgram]:
        """The programs that multiply, locally or along a dimension; ``owners`` share the
        experts."""
        here = None if active is None else placed[active]
        key = extents, matmul.transpose, matmul.experts, active, here, owners
        experts = -(-matmul.experts[0] // owners)
        of = extents, matmul.transpose, self.dtype, self.machine, experts
        if active is None:
            return remembered(self.known, key, lambda: [LocalProgram(*of)])
        make = lambda: list(self._overlapping(extents, matmul, here, active))
        return remembered(self.known, key, make)

    def _group(self, dims: Sequence[int]) -> RankGroup:
        """The ranks along neighbouring dimensions."""
        mesh, node = self.mesh, self.machine.node_ranks
        stride, extent = mesh.strides[dims[-1]], prod(mesh.extents[d] for d in dims)
        return RankGroup(stride, extent, mesh.ranks, stride * extent <= node < mesh.ranks)

    def _overlapping(self, extents, matmul: Matmul, placed, d: int) -> Iterator[ChainProgram]:
        """The programs along a dimension in which transfers and a GEMM overlap."""
        group, (m, n, k) = self._group((d,)), extents
        texts = [
            _WORDS.get(placement, placement) for (placement,) in _as_operands(matmul, zip(placed))
        ]
        experts, topk = matmul.experts
        if experts:
            of = {"experts": experts, "topk": topk}
            sizes = m // topk, n, k, group.extent
            make = lambda name: replace(
                get_algorithm(name).problem(*sizes, **of), dtype=self.stored
            )
        else:
            of = {}
            make = lambda _: Problem(m, n, k, group.extent, *texts, self.stored, matmul.transpose)
        none = experts and (matmul.transpose or m < topk)  # not a token for each group
        known = {} if none else OF_EXPERTS if experts else OVERLAPPING
        for name, (algorithm, options, taken) in known.items():
            if name in self.allowed and taken in (None, placed):
                bound, more_s, gemm = self._bound(extents, placed, group, options, matmul)
                how = partial(make, algorithm), self.machine, bound, algorithm, options | of
                yield SimulatedProgram(name, group, *how, more_s, gemm)

    def _bound(
        self, extents, placed, group: RankGroup, options, matmul: Matmul
    ) -> tuple[ProgramTimes, float, LocalProgram | None]:
        """A lower bound of a program along a dimension: its GEMM, which accumulates slow down, and
        the elements that a rank receives or sends, over the links to its own and to other nodes;
        the seconds in which it quantises operands; and the GEMMs of experts, which no program
        makes faster than the measured kernel."""
        p, (m, n, k), machine = group.extent, extents, group.on(self.machine)
        (experts, topk), transpose = matmul.experts, matmul.transpose
        topk = topk or 1
        near = min(p, machine.node_ranks or p)
        far = (p - near) / (p - 1)
        rates = [
            max(
                link.bandwidth_bytes_per_s * (p - 1 if link.shared == "pair" else 1)
                for link in machine.links
                if link.joins(0, other)
            )
            for other in (1, p - 1)
        ]
        where = "ABC".index(options["stationary"]) if "stationary" in options else None
        adds = where in (0, 1) and options["sums"] == "accumulate"
        slow = machine.accumulate_slowdown if adds else 0.0
        bounds = []
        for axis, needed in _DIVIDED.items():
            fits = where is None or placed[where] in ("R", needed[where])
            if axis in ("", "e") or not fits:
                continue
            sizes = [-(-x // p) if name == axis else x for x, name in zip((m, n, k), "mnk")]
            shapes = (m / topk, k), (k, n), (m / topk, n)
            shares = [
                _missing_share(placed[x], needed[x], p, x == 2, where is not None) for x in range(3)
            ]
            a, b, c = (
                self.item * rows * cols * share for (rows, cols), share in zip(shapes, shares)
            )
            moving = lambda nbytes: max(nbytes * (1 - far) / rates[0], nbytes * far / rates[1])
            link_s, gemm_s = moving(a + b + c), self._least.gemm_s(*sizes, self.item)
            if self.stored != self.dtype:  # small tiles of 8 bits may be faster
                gemm_s = min(gemm_s, *(self._least.tiles_s(*sizes, side) for side in "mn"))
            gemm_s += moving(c) * slow / (1 + slow)
            more_s, gemm = quantise_s(self.machine, *sizes, transpose, experts), None
            if experts:
                gemm = LocalProgram(sizes, transpose, self.dtype, self.machine, experts)
                gemm_s = gemm.times.seconds - more_s
            times = max(gemm_s, link_s) + more_s, gemm_s + more_s, link_s
            bounds.append((ProgramTimes(*times), more_s, gemm))
        return min(bounds, key=itemgetter(0))

    # -- redistributions

    def moves(
        self, matrix, old: Layout, new: Layout, one_sided: bool = False, item: int = 0
    ) -> list[ChainProgram]:
        """The programs that redistribute a matrix, in order."""
        if old == new:
            return []
        item = item or self.item
        key = matrix.shape, matrix.count, old, new, one_sided, item
        make = lambda: list(self._redistribute(matrix, old, new, one_sided, item))
        return remembered(self.known, key, make)

    def _redistribute(
        self, matrix, old: Layout, new: Layout, one_sided: bool, item: int
    ) -> Iterator[ChainProgram]:
        now = list(old)
        size = lambda: [cut(matrix.shape[x], now, x, self.mesh) for x in (0, 1)]
        for kind, dims in steps(old, new):
            before, rows_cols = now[dims[0]], size()
            for d in dims:
                now[d] = "R" if kind in ("gather", "reduce") else new[d]
            if kind == "cut":
                continue
            group = self._group(dims)
            if one_sided:
                rows, cols = rows_cols
                rows *= group.extent if before == "S(0)" else 1
                cols *= group.extent if before == "S(1)" else 1
                source, target = (
                    _WORDS.get(placement, placement) for placement in (before, now[dims[0]])
                )
                problem = Problem(
                    rows, cols, cols, group.extent, source, "row", target, self.stored
                )
                program = reads(problem, group, self.machine)
                program.simulate()  # these do not change
                yield program
            else:
                nbytes = item * matrix.count * prod(rows_cols)
                engines = ENGINES in self.allowed
                yield CollectiveProgram(kind, group, nbytes, self.machine, item, engines)


def steps(old: Layout, new: Layout) -> Iterator[Change]:
    """The steps from a layout to another: (``cut``, ``gather``, ``scatter``, ``reduce`` or
    ``exchange``, dimensions).

    Dimensions that divide one side are nested, the outer first: only the inner ones can be gathered
    alone, or added.

    Examples
    --------
    >>> list(steps(("S(0)", "R"), ("R", "S(1)")))
    [('cut', (1,)), ('gather', (0,))]
    >>> list(steps(("S(0)", "S(0)"), ("R", "S(0)")))
    [('gather', (0, 1)), ('cut', (1,))]
    >>> list(steps(("P", "S(1)"), ("R", "S(0)")))
    [('reduce', (0,)), ('exchange', (1,))]
    """
    sides = "S(0)", "S(1)"
    leaving, joining = {}, {}
    for side in sides:
        before, after = (
            [d for d, placement in enumerate(layout) if placement == side] for layout in (old, new)
        )
        same = len(commonprefix([before, after]))
        leaving[side], joining[side] = before[same:], after[same:]
    late, exchanged = [], []
    for side, other in (sides, sides[::-1]):
        if len(leaving[side]) == 1 and leaving[side] == joining[other] and not leaving[other]:
            exchanged += leaving[side]
    joins = {side: [d for d in joining[side] if d not in exchanged] for side in sides}
    for side in sides:
        waits = leaving[side] or any(old[d] in sides for d in joins[side])
        (late if waits else []).append(side)
        if not waits:
            yield from _join_dims(joins[side], old)
    yield from _group_neighbours(
        "reduce", [d for d, placement in enumerate(old) if placement == "P" and new[d] == "R"]
    )
    for d in exchanged:
        yield "exchange", (d,)
    for side in sides:
        yield from _group_neighbours("gather", [d for d in leaving[side] if d not in exchanged])
    for side in late:
        yield from _join_dims(joins[side], old)


def _join_dims(dims: Sequence[int], old: Layout) -> Iterator[Change]:
    """Dimensions that divide a side after those that do already: sums are scattered, copies cut."""
    for scatters, group in itertools.groupby(dims, lambda d: old[d] == PENDING):
        yield from _group_neighbours("scatter" if scatters else "cut", list(group))


def _group_neighbours(kind: str, dims: Sequence[int]) -> Iterator[Change]:
    """Neighbouring dimensions together, the inner ones first."""
    steps = itertools.groupby(enumerate(dims), lambda numbered: numbered[1] - numbered[0])
    runs = [(kind, tuple(d for _, d in run)) for _, run in steps]
    yield from runs if kind in ("cut", "scatter") else runs[::-1]


def _divided_alike(placed: Placed, axis: str) -> bool:
    """Whether both matrices that have an axis are divided by it along a dimension, or neither. A
    dimension inside may divide that axis then: members of the group have the same part of it."""
    divided = {
        placement == part for placement, part in zip(placed, _DIVIDED[axis]) if part in _SWAPPED
    }
    return len(divided) < 2


def _as_operands(matmul: Matmul, layouts: Iterable[Layout]) -> list[Layout]:
    """The layouts of A, B and C as they are multiplied, from those as they are stored; or back."""
    return [
        _transposed(layout) if side in matmul.transpose else layout
        for side, layout in zip("abc", layouts)
    ]


@lru_cache(maxsize=256)
def _transposed(layout: Layout) -> Layout:
    """The layout of the transposed matrix."""
    return tuple(_SWAPPED.get(placement, placement) for placement in layout)


@lru_cache(maxsize=64)
def _missing_share(has: str, needs: str, parts: int, adds: bool, every: bool) -> float:
    """The share of a matrix that a rank receives, or sends of its partial sums, if it has one part
    and needs another; if every rank has the result, and adds up the partial sums of all, if
    ``every``.

    Examples
    --------
    >>> (
    ...     _missing_share("S(0)", "R", 4, False, False),
    ...     _missing_share("S(0)", "S(1)", 4, False, False),
    ... )
    (0.75, 0.1875)
    >>> [
    ...     _missing_share(has, "P", 4, True, every)
    ...     for has, every in (("R", 0), ("R", 1), ("S(0)", 0))
    ... ]
    [0.75, 3, 0.75]
    """
    if adds and has == "R":
        return parts - 1 if every else 1 - 1 / parts
    if adds and needs == PENDING:
        return 1 - 1 / parts
    if has in (needs, "R") or needs == PENDING:
        return 0.0
    return (1 - 1 / parts) * (1 if needs == "R" else 1 / parts)
