"""The programs of a chain along one dimension of a mesh: collectives, a local GEMM, and programs in
which transfers and a GEMM overlap, each with its time on a machine model."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import inf
from typing import NamedTuple

from drbench.algorithms.registry import get_algorithm
from drbench.errors import DrbenchError
from drbench.model.bounds import moving_s
from drbench.model.costs import group_parts
from drbench.model.kernels.experts import count_groups
from drbench.model.machine import Machine
from drbench.model.simulate import Simulated, Simulator
from drbench.plan.schedule import pool_bytes
from drbench.program.group_steps import AllGather, ReduceScatter
from drbench.program.problem import ITEMSIZES, Problem
from drbench.program.redistribution import redistribute
from drbench.program.steps import COUNTERS
from drbench.program.trace import no_collection, trace

#: Placements of op(A), op(B) and C along a dimension where A is gathered, B is gathered, C is
#: scattered, or C is reduced.
_GATHER_A, _GATHER_B = ("S(0)", "S(1)", "S(1)"), ("S(0)", "S(0)", "S(0)")
_SCATTER_C, _REDUCE_C = ("S(1)", "S(0)", "S(0)"), ("S(1)", "S(0)", "R")
#: Programs that overlap: name -> algorithm, its options, and its placements; universal takes all,
#: and signals in its second form.
OVERLAPPING: dict[str, tuple[str, dict, tuple | None]] = {
    **{
        f"universal {x}": ("universal", {"stationary": x, "sums": "accumulate"}, None)
        for x in "CBA"
    },
    **{
        f"universal {x} signals": ("universal", {"stationary": x, "sums": "push"}, None)
        for x in "BA"
    },
    "ring A": ("tensor_parallel_1d", {"dataflow": "AG"}, _GATHER_A),
    "ring B": ("fsdp", {}, _GATHER_B),
    "ring C": ("tensor_parallel_1d", {"dataflow": "RdS"}, _SCATTER_C),
    **{
        f"{name} ring tile {tile}": (name, {"variant": "ring", "tile": tile}, taken)
        for name, taken in (("ag_gemm", _GATHER_A), ("gemm_rs", _SCATTER_C))
        for tile in (256, 512, 1024)
    },
    "ag_gemm": ("ag_gemm", {"variant": "pull"}, _GATHER_A),
    "gemm_rs": ("gemm_rs", {"variant": "write"}, _SCATTER_C),
    "gemm_ar": ("gemm_ar", {}, _REDUCE_C),
}
#: The same for experts.
OF_EXPERTS: dict[str, tuple[str, dict, tuple | None]] = {
    "ag_moe": ("ag_moe", {}, _GATHER_A),
    "moe_rs": ("moe_rs", {}, _SCATTER_C),
}
#: What the library runs (:func:`drbench.multiply`, :func:`drbench.redistribute`).
LIBRARY = frozenset((*(f"universal {x}" for x in "CBA"), "read"))
#: Programs without overlap, of which published schemes consist.
COLLECTIVES = frozenset(("gather", "scatter", "reduce", "exchange", "dispatch", "combine"))
#: Asynchronous tensor parallelism: a ring of parts, each multiplied while the next one arrives.
ASYNC = frozenset(("ring A", "ring C"))
#: Also all-reduce kernels of inference engines.
ENGINES = "engines"
EVERYTHING = COLLECTIVES | {*OVERLAPPING, *OF_EXPERTS, ENGINES}
#: What frameworks have, by name: collectives; also asynchronous tensor parallelism, as PyTorch and
#: Transformer Engine have it.
PROGRAMS: dict[str, frozenset[str]] = {
    "nccl": COLLECTIVES,
    "torch": COLLECTIVES | ASYNC,
    "te": COLLECTIVES | ASYNC,
    "all": frozenset(EVERYTHING),
}
#: What NCCL calls a redistribution.
_OF_NCCL = {
    "gather": "allgather",
    "scatter": "reducescatter",
    "reduce": "allreduce",
    "exchange": "alltoall",
}
#: The most chunks in which a rank reads another's part of a matrix to redistribute it.
_CHUNKS = 8
#: As in the examples of DeepEP's README: multiprocessors of its kernels for throughput, and the
#: most tokens of a rank in those for low latency.
_EXCHANGE_UNITS, _LOW_LATENCY_TOKENS = 24, 128
#: Sources whose transfers are counted in an exchange; others do the same.
_SOURCES = 16


class RankGroup(NamedTuple):
    """The ranks along some dimensions of a mesh: their distance, their number, all ranks, and
    whether they are inside a node but the mesh is not."""

    stride: int
    extent: int
    ranks: int
    inside: bool = False

    def on(self, machine: Machine) -> Machine:
        """The machine as the group sees it."""
        return machine.along(self.stride, self.extent, self.ranks)


class ProgramTimes(NamedTuple):
    """Seconds of a program, of its computation on rank 0, and of that rank's busiest link."""

    seconds: float
    core_s: float = 0.0
    link_s: float = 0.0


class ChainProgram:
    """One way to multiply, or to redistribute a matrix.

    Attributes
    ----------
    name : str
        Of :data:`EVERYTHING` or :data:`LIBRARY`, or ``local``.
    group : RankGroup or None
        None: no data moves.
    times : ProgramTimes
        Lower bounds; those of the simulation once it is simulated.
    simulated : Simulated or None
    """

    stationary = "C"
    simulated: Simulated | None = None
    nbytes = 0  # that all ranks of the group receive
    by = ""  # the library whose collective it is

    def __init__(self, name: str, group: RankGroup | None, machine: Machine):
        self.name, self.group, self._machine = name, group, machine
        self.pool, self.times = 0, self.times_on(machine)

    def times_on(self, machine: Machine) -> ProgramTimes:
        """The times with a performance model."""
        raise NotImplementedError

    def simulate(self) -> None:
        """Find the time; that of a collective or a local GEMM is known."""
        if self.simulated is None:
            counters = dict.fromkeys(COUNTERS, 0) | {"collective_bytes": self.nbytes}
            self.simulated = Simulated(self.times.seconds, counters, {})


class LocalProgram(ChainProgram):
    """A GEMM of each rank: (m, n, k), and the number of experts that share the m rows."""

    def __init__(self, extents, transpose: str, dtype: str, machine: Machine, experts: int = 0):
        self._gemm = *extents, ITEMSIZES[dtype]
        self._transpose, self._experts = transpose, experts
        super().__init__("local", None, machine)

    def times_on(self, machine):
        m, n, k, item = self._gemm
        compute = machine.compute
        rows = [m]
        if self._experts:
            rows, k = expert_gemms(m, k, self._experts, self._transpose)
        if self._experts and compute.experts:
            of_weights = "a" in self._transpose
            seconds = compute.experts.gemm_s(compute, rows, n, k, item, of_weights)
            seconds += compute.experts.launch_s / 2  # of the two GEMMs of a layer
            seconds = compute.experts.at_end(seconds, "any", max(m, k))
        else:
            seconds = compute.grouped_s(rows, n, k, item, machine.adds_on_core)
        seconds += compute.transposed_s(m, n, self._gemm[2], self._transpose)
        seconds += quantise_s(machine, *self._gemm[:3], self._transpose, self._experts)
        return ProgramTimes(seconds, seconds)


def quantise_s(machine: Machine, m: int, n: int, k: int, transpose: str, experts: int = 0) -> float:
    """Seconds in which operands of 8 bits, stored in 16, are converted: both of a product of the
    forward pass, and of the gradient of its input; for the gradient of its weight the input alone,
    as by Float8Linear of torchao. Each of the experts has a weight.

    Examples
    --------
    >>> from drbench.model.gemm import Compute
    >>> machine = Machine("t", Compute(1.0, quantise_s=1.0))
    >>> [quantise_s(machine, 2, 3, 4, transpose) for transpose in ("", "b", "a")]
    [2.0, 2.0, 1.0]
    """
    converted = (m,) if "a" in transpose else (m, n * max(1, experts))
    return sum(machine.compute.quantise_a_s(rows, k) for rows in converted)


def expert_gemms(m: int, k: int, experts: int, transpose: str) -> tuple[list[int], int]:
    """The rows and the k of the GEMMs of experts that share the pairs evenly: m counts pairs, in
    the gradient of a weight k. Fewer pairs than experts need as many experts.

    Examples
    --------
    >>> expert_gemms(1000, 32, 8, ""), expert_gemms(3, 32, 8, ""), expert_gemms(64, 1000, 4, "a")
    (([125, 125, 125, 125, 125, 125, 125, 125], 32), ([1, 1, 1], 32), ([64, 64, 64, 64], 250))
    """
    pairs = k if "a" in transpose else m
    used = max(1, min(experts, pairs))
    share = -(-pairs // used)
    return ([m] * used, share) if "a" in transpose else ([share] * used, k)


class CollectiveProgram(ChainProgram):
    """A matrix redistributed by a collective: ``gather`` (to copies), ``scatter`` (sums to parts),
    ``reduce`` (sums to copies) or ``exchange`` (parts of one side to those of the other).

    Parameters
    ----------
    kind : str
    shard : int
        Bytes of the largest part of a rank; of the whole for a reduction.
    item : int
        Bytes of an element.
    engines : bool
        Whether the all-reduce of an inference engine may take NCCL's place.
    """

    def __init__(
        self,
        kind: str,
        group: RankGroup,
        shard: int,
        machine: Machine,
        item: int = 4,
        engines: bool = True,
    ):
        self._item, self._engines = item, engines
        self._shard = shard if kind in ("gather", "exchange") else -(-shard // group.extent)
        super().__init__(kind, group, machine)
        received = {"exchange": 1, "reduce": 2 * group.extent}.get(kind, group.extent) * self._shard
        self.nbytes = received * (group.extent - 1)
        self.pool = shard * group.extent if kind == "gather" else shard

    def times_on(self, machine):
        seen, members = self.group.on(machine), tuple(range(self.group.extent))
        if machine.nccl:
            return self._nccl_times(seen, members)
        if self.name == "exchange":
            part = self._shard // len(members)
            pairs = [(x, y, part) for x in members[:_SOURCES] for y in members if x != y]
            launch_s, sync_s = seen.collective("shift").starts(members)
            seconds = launch_s + sync_s + moving_s(pairs, seen)
        else:
            steps = {"gather": [AllGather], "scatter": [ReduceScatter]}
            rate = min(seen.link(x, (x + 1) % len(members)).bandwidth_bytes_per_s for x in members)
            seconds = sum(
                sum(group_parts(step, seen, len(members), self._shard, rate, "row", members))
                for step in steps.get(self.name, [ReduceScatter, AllGather])
            )
        return ProgramTimes(seconds, seconds if machine.adds_on_core else 0.0, seconds)

    def _nccl_times(self, machine: Machine, members: tuple[int, ...]) -> ProgramTimes:
        """The times of NCCL, or of an inference engine's all-reduce if that is faster."""
        operation = _OF_NCCL[self.name]
        nbytes = self._shard * (1 if self.name == "exchange" else len(members))
        seconds = machine.nccl_s(operation, nbytes, members, self._item)
        by = {"NCCL": seconds}
        if (
            self._engines
            and self.name == "reduce"
            and len(members) <= (machine.node_ranks or len(members))
        ):
            by |= {
                name: kernel.seconds(nbytes, len(members), seconds)
                for name, kernel in machine.allreduces.items()
            }
        fastest = min(by, key=lambda name: by[name])
        self.by = self.by or fastest  # on the machine of the choice
        return ProgramTimes(by[fastest], 0.0, by[fastest])


class ExchangeProgram(ChainProgram):
    """Tokens that go to the ranks of their experts (``dispatch``), or results that come back and
    are added up (``combine``): an all-to-all as DeepEP does it, in its faster kernel.

    Parameters
    ----------
    kind : str
    group : RankGroup
    sizes : (int, int, int, int)
        Tokens of a rank, their width, experts of a token, all experts.
    machine : Machine
    item : int
        Bytes of an element that is dispatched; results have two or more.
    """

    def __init__(self, kind: str, group: RankGroup, sizes, machine: Machine, item: int):
        self._sizes, self._item = sizes, item if kind == "dispatch" else max(2, item)
        super().__init__(kind, group, machine)
        tokens, width, topk, experts = sizes
        copies = count_groups(topk, experts, group.extent) * (group.extent - 1)
        self.nbytes = int(tokens * copies * width * self._item)
        self.pool = tokens * topk * width * max(2, item)

    def times_on(self, machine):
        extent, node = self.group.extent, machine.node_ranks or self.group.ranks
        nodes = -(-self.group.stride * extent // node)
        tokens, width, topk, experts = self._sizes
        if not (machine.nccl and machine.exchanges):
            sent = tokens * count_groups(topk, experts, extent) * width * self._item
            seconds = CollectiveProgram(
                "exchange", self.group, int(sent), machine, self._item
            ).times.seconds
            return ProgramTimes(seconds, 0.0, seconds)
        link, units = machine.nccl.link_bytes_per_s, machine.compute.units
        sizes = *self._sizes, extent, min(nodes, extent)
        normal = replace(machine.exchanges[self.name], itemsize=self._item)
        quick = replace(machine.exchanges[f"low_latency_{self.name}"], itemsize=self._item)
        seconds = normal.throughput_s(link, *sizes, _EXCHANGE_UNITS)
        if tokens <= _LOW_LATENCY_TOKENS:
            seconds = min(seconds, quick.low_latency_s(link, *sizes, units))
        return ProgramTimes(seconds, 0.0, seconds)


class SimulatedProgram(ChainProgram):
    """A program whose ranks are traced and simulated; until then its time is a lower bound: the
    longer of the GEMM and the transfers.

    Parameters
    ----------
    name : str
    group : RankGroup
    problem : callable
        Makes the problem of the group's ranks.
    machine : Machine
    bound : ProgramTimes
    algorithm, options
        Of a multiplication; without it A is redistributed as C.
    more_s : float
        Of the bound, what no simulation contains: operands are quantised first.
    gemm : LocalProgram, optional
        The program takes at least as long: GEMMs of experts by their measured kernel.
    """

    def __init__(
        self,
        name: str,
        group: RankGroup,
        problem: Callable[[], Problem],
        machine: Machine,
        bound: ProgramTimes,
        algorithm: str = "",
        options: Mapping = {},
        more_s: float = 0.0,
        gemm: LocalProgram | None = None,
    ):
        self._problem, self._bound, self._options = problem, bound, options
        self._more_s, self._gemm = more_s, gemm
        self._algorithm = get_algorithm(algorithm) if algorithm else None
        self.stationary = options.get("stationary", "C")
        super().__init__(name, group, machine)

    def times_on(self, machine):
        if machine is self._machine and self.simulated is None:
            return self._bound
        return self._run(machine)[0]

    def simulate(self):
        if self.simulated is None:
            try:
                self.times, self.simulated, self.pool = self._run(self._machine)
            except DrbenchError:  # such as ranks without a share of k
                self.times, self.simulated = ProgramTimes(inf), Simulated(inf, {}, {})

    @no_collection()
    def _run(self, machine: Machine) -> tuple[ProgramTimes, Simulated, int]:
        seen, problem, algorithm = self.group.on(machine), self._problem(), self._algorithm
        if algorithm is None:
            program = lambda rank: redistribute(problem.a, problem.c, rank, _CHUNKS)
            traced = lambda rank: trace(program(rank), problem, rank, fresh=False)
            ahead: int | str = 1
        else:
            options, in_place = dict(self._options), bool(seen.links)
            for link in seen.links:
                in_place &= link.reads_in_place and not link.own_timer
            if algorithm.name == "universal" and len(problem.c.partition.copies()) > 1:
                options["replicate_result"] = True
            options = algorithm.resolve(problem, in_place, **options)
            model = seen if algorithm.name == "universal" else None
            traced = lambda rank: algorithm.trace(problem, rank, model, **options)
            ahead = algorithm.prefetch(**options)
        traces = [traced(rank) for rank in range(self.group.extent)]
        simulated = Simulator(traces, seen).run(ahead)
        least_s = self._gemm.times_on(machine).seconds if self._gemm else 0.0
        return (
            ProgramTimes(max(simulated.time_s + self._more_s, least_s), *self._bound[1:]),
            simulated,
            pool_bytes(traces[0], ahead),
        )


def reads(problem: Problem, group: RankGroup, machine: Machine) -> SimulatedProgram:
    """A matrix, A of a problem with n = k, redistributed as its C by one-sided reads."""
    nbytes = problem.m * problem.n * problem.itemsize
    moved = nbytes * (group.extent - 1) // group.extent**2
    bound_s = moving_s([(1, 0, moved)], group.on(machine)) if moved else 0.0
    return SimulatedProgram(
        "read", group, lambda: problem, machine, ProgramTimes(bound_s, 0.0, bound_s)
    )
