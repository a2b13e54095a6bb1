"""The costs of a chain's operations in every combination of layouts: for multiplications and
redistributions first a lower bound, from the program of one rank, then a simulated time."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from math import inf
from typing import NamedTuple

from algorithms.registry import get_algorithm
from drbench.common import Clock
from drbench.errors import DrbenchError, UnsupportedError, UsageError
from drbench.model.bounds import bound_of
from drbench.model.machine import Machine
from drbench.model.simulate import Simulated, Simulator
from drbench.plan.schedule import pool_bytes
from drbench.program.group_steps import AllGather
from drbench.program.problem import ITEMSIZES, Problem
from drbench.program.redistribution import redistribute
from drbench.program.steps import Group
from drbench.program.trace import Trace, no_collection, trace
from partitions import LayoutError, Partition, partition
from partitions.intervals import Pair

from .description import Chain, Map, Matmul
from .functions import Function
from .search import Factor, Label, best, eliminate

#: The stationary matrix of universal, with the options of the library.
_STATIONARY = {
    f"stationary {x}": ("universal", {"stationary": x, "sums": "accumulate"}) for x in "CBA"
}
#: Name of a way to multiply -> algorithm and options: one-sided, or with local operands; B or A
#: gathered, or partial sums scattered; along rings; in two dimensions by collectives.
MULTIPLICATIONS: dict[str, tuple[str, dict]] = {
    **_STATIONARY,
    "gather B": ("dtensor_mm", {"strategy": "rows"}),
    "gather A": ("dtensor_mm", {"strategy": "columns"}),
    "scatter C": ("dtensor_mm", {"strategy": "partial"}),
    "ring B": ("fsdp", {}),
    "ring A": ("tensor_parallel_1d", {"dataflow": "AG"}),
    "ring C": ("tensor_parallel_1d", {"dataflow": "RdS"}),
    "collective": ("collective", {}),
}
#: The name of universal where no rank transfers data.
LOCAL = "local"
#: How a matrix is redistributed: read one-sidedly, or gathered by a collective.
MOVES = ("read", "gather")
EVERYTHING = frozenset((*MULTIPLICATIONS, LOCAL, *MOVES))
#: What the library runs (:func:`drbench.multiply`, :func:`drbench.redistribute`).
LIBRARY = frozenset((*_STATIONARY, LOCAL, "read"))
#: Layouts to try for every matrix; results may also be left as pending partial sums.
LAYOUTS = ("row", "column", "block", "R")
PENDING = "P"
#: Universal is left out where a rank has more than this number of steps, and more than eight for
#: each rank: its GEMMs are small, and other layouts have larger ones.
_MOST_STEPS = 1024
#: The most chunks in which a rank reads another's part of a matrix to redistribute it.
_CHUNKS = 8


class Spent(Exception):
    """The effort is spent."""


class Program:
    """One way to compute a multiplication, or to redistribute a matrix.

    Attributes
    ----------
    name : str
        Of :data:`MULTIPLICATIONS` or :data:`MOVES`, or :data:`LOCAL`.
    caption : str
        For tables: the algorithm and its stationary matrix.
    stationary : str
        Of a multiplication by universal.
    pool : int
        Bytes of receive buffers of rank 0, whose tiles are the largest.
    seconds : float
        A lower bound; once it is simulated, the time.
    core_s, link_s : float
        Seconds of rank 0's computation, and of its busiest link.
    simulated : Simulated or None
    """

    def __init__(
        self,
        name: str,
        traced: Callable[[int], Trace],
        first: Trace,
        machine: Machine,
        options: Mapping = {},
    ):
        self.name, self._traced, self._machine = name, traced, machine
        kept = [options[key] for key in ("stationary", "strategy", "dataflow") if key in options]
        algorithm, _ = MULTIPLICATIONS.get(name, ("universal", {}))
        self.caption, self.stationary = " ".join((algorithm, *kept)), options.get("stationary", "")
        self.pool, bound = pool_bytes(first, 1), bound_of([first], machine)
        self.seconds, self.core_s, self.link_s = bound.seconds, *bound
        self.simulated: Simulated | None = None

    @property
    def times(self) -> tuple[float, float, float]:
        return self.seconds, self.core_s, self.link_s

    def simulate(self) -> None:
        """Find the time, on all ranks."""
        if self.simulated is None:
            self.simulated = Simulator(self._traces(), self._machine).run(1)
            self.seconds = self.simulated.time_s

    def times_on(self, machines: Sequence[Machine]) -> list[tuple[float, float, float]]:
        """``seconds``, ``core_s`` and ``link_s`` with other performance models."""
        traces = self._traces() if machines else []
        return [
            (Simulator(traces, each).run(1).time_s, *bound_of(traces[:1], each))
            for each in machines
        ]

    def _traces(self) -> list[Trace]:
        with no_collection():
            first = self._traced(0)
            return [first, *map(self._traced, range(1, first.problem.nprocs))]


class Use(NamedTuple):
    """A program of a chain: the result of its operation; the operation's matrix that the program
    redistributes, A, B or C, empty for the multiplication itself; and whether other operations hide
    it because no operation next to it waits for it."""

    operation: str
    matrix: str
    program: Program
    hidden: bool = False

    def seconds(self, times: tuple[float, float, float]) -> tuple[float, float]:
        """Seconds in sequence and of links, if the program has these times."""
        seconds, core_s, link_s = times
        return (core_s, seconds) if self.hidden else (seconds, link_s)


@lru_cache(maxsize=1024)  # checks a partition of 512 ranks once
def chain_partition(layout: str, shape: Pair, nprocs: int) -> Partition:
    """The partition of a layout; chains need at most one tile a rank.

    Raises
    ------
    UsageError
        If the text is no layout.
    UnsupportedError
        If a rank has several tiles (our implementation).
    """
    try:
        found = partition(layout, shape, nprocs)
    except LayoutError as error:
        raise UsageError(f"layout {layout!r} of {shape[0]}x{shape[1]}: {error}") from None
    if any(len(found.tiles_of(rank)) > 1 for rank in range(nprocs)):
        raise UnsupportedError(
            f"layout {layout} deals several tiles to a rank (our implementation of chains). Use "
            "one with a tile a rank, as row, column, block or R."
        )
    return found


def why_not_aligned(each: Map, chain: Chain, layout: str, nprocs: int) -> str | None:
    """The reason why a layout does not suit a function; None if each rank has the inputs of its
    tiles."""
    of = each.function
    whole, *inputs = (
        chain_partition(layout, chain.matrices[name].shape, nprocs)
        for name in (each.c, *each.takes)
    )
    for rank in range(nprocs):
        for idx in whole.tiles_of(rank):
            rows, cols = whole.tile_bounds(idx)
            if not of.fits(rows, cols):
                return f"{of.name} needs whole units of {of.rows} rows and {of.gives} columns"
            for x, taken in enumerate(inputs):
                bounds = [taken.tile_bounds(tile) for tile in taken.tiles_of(rank)]
                if bounds != [(rows, of.input_columns(cols, x))] and rows[0] < rows[1]:
                    return f"tiles of {each.c} and {each.takes[x]} are on different ranks"
    return None


def function_s(machine: Machine, of: Function, shape: Pair, itemsize: int) -> float:
    """Seconds of a function that computes a block of this shape: of its GEMMs and its elements; of
    their memory traffic where elements were not measured."""
    (rows, cols), compute = shape, machine.compute
    gemms_s = sum(compute.gemm_s(*each, itemsize) for each in of.gemms(rows, cols))
    element_s = compute.functions.get(of.name)
    if element_s is not None:
        return gemms_s + compute.launch_s + element_s * of.elements(rows, cols)
    return gemms_s + compute.memory_s(itemsize * rows * (cols + cols // of.gives * sum(of.takes)))


class Costs:
    """The costs of operations by a performance model, each computed once.

    Parameters
    ----------
    machine : Machine
        With the chain's element type.
    nprocs : int
    dtype : str
    layouts : sequence of str, optional
        Text forms to try for every matrix; by default rows, columns, blocks and copies.
    layers : int
        Layers whose weights and gradients a rank holds; one layer is run.

    Attributes
    ----------
    ends_s : float
        CPU seconds of this process after which no further program is bounded (:class:`Spent`).
    programs : list of Program
        All programs that have a lower bound.
    """

    def __init__(
        self,
        machine: Machine,
        nprocs: int,
        dtype: str = "float32",
        layouts: Sequence[str] | None = None,
        layers: int = 1,
    ):
        self.machine, self.nprocs, self.dtype, self.layers = machine, nprocs, dtype, layers
        self.layouts = tuple(dict.fromkeys(layouts or LAYOUTS))
        self.ends_s = inf
        self.programs: list[Program] = []
        self._known: dict[tuple, list[Program]] = {}
        self._in_place = bool(machine.links) and all(
            link.reads_in_place and link.shared != "initiator" for link in machine.links
        )

    # -- inputs of the search

    def domains(self, chain: Chain) -> dict[str, list[str]]:
        """The layouts that each variable may have."""
        found = {variable: list(self.layouts) for variable in chain.variables.values()}
        for each in chain.operations:
            if isinstance(each, Map):
                variable = chain.variable(each.c)
                found[variable] = [
                    layout
                    for layout in found[variable]
                    if not why_not_aligned(each, chain, layout, self.nprocs)
                ]
        for name, matrix in chain.matrices.items():  # refuses what chains do not take
            for layout in found[chain.variable(name)]:
                chain_partition(layout, matrix.shape, self.nprocs)
        return found

    def layouts_of_multiplication(self, each: Matmul) -> dict[str, tuple[str, ...]]:
        """Variables for the layouts in which a multiplication is computed and to or from which its
        matrices are redistributed, with their possible values."""
        of = {f"{each.c}:{x}": self.layouts for x in "ABC"}
        return of | {f"{each.c}:C": (*self.layouts, PENDING)}

    def factors(
        self,
        chain: Chain,
        domains: Mapping[str, Sequence[str]],
        allowed: Collection[str] = EVERYTHING,
        limit: float = inf,
    ) -> list[Factor]:
        """The costs of every operation and the memory of every matrix, by the layouts of its
        variables, with the programs of these names; labels of programs have the :class:`Use`.

        Raises
        ------
        Spent
            If the effort is (``ends_s``).
        """
        found = [
            Factor((variable,), {(x,): [self._held(chain, variable, x)] for x in domains[variable]})
            for variable in dict.fromkeys(chain.variables.values())
        ]
        for each in chain.operations:
            if isinstance(each, Map):
                variable = chain.variable(each.c)
                table = {(x,): [Label(self.map_s(chain, each, x))] for x in domains[variable]}
                found.append(Factor((variable,), table))
                continue
            inner, parts = self.layouts_of_multiplication(each), []
            for x, name, variable in zip("ABC", (*each.takes, each.c), inner):
                stored = chain.variable(name)
                table = {}
                for ends in itertools.product(domains[stored], inner[variable]):
                    one, two = ends if x != "C" else ends[::-1]
                    table[ends] = self._moved(chain, name, one, two, allowed, (each.c, x))
                parts.append(Factor((stored, variable), table))
            shapes = *(chain.matrices[name].shape for name in each.takes), each.transpose
            table = {
                layouts: best(
                    (
                        Label(
                            candidate.seconds,
                            candidate.link_s,
                            0,
                            candidate.pool,
                            (Use(each.c, "", candidate),),
                        )
                        for candidate in self._programs(
                            (*shapes, layouts), self._multiplications(chain, each, layouts)
                        )
                        if candidate.name in allowed
                    ),
                    limit,
                )
                for layouts in itertools.product(*inner.values())
            }
            parts.append(Factor(tuple(inner), table))
            (whole,) = eliminate(list(inner), {**domains, **inner}, parts, limit)
            found.append(Factor(whole.scope, {x: _freed(y) for x, y in whole.table.items()}))
        return found

    def _held(self, chain: Chain, variable: str, layout: str) -> Label:
        """Bytes of a variable's matrices on the rank that holds most."""
        names = [name for name in chain.matrices if chain.variable(name) == variable]
        held = 0
        for name in names:
            nbytes = self._nbytes(chain.matrices[name].shape, layout)
            held += nbytes * (self.layers if chain.stays(name) else 1)
        return Label(0.0, 0.0, held)

    def _nbytes(self, shape: Pair, layout: str) -> int:
        whole = chain_partition(layout, shape, self.nprocs)
        return whole.local_size(0) * ITEMSIZES[self.dtype]  # no rank has more

    def map_s(self, chain: Chain, each: Map, layout: str, machine: Machine | None = None) -> float:
        """Seconds of a function on the rank with most work, by this or another performance
        model."""
        shape = chain_partition(layout, chain.matrices[each.c].shape, self.nprocs).local_shape(0)
        return function_s(machine or self.machine, each.function, shape, ITEMSIZES[self.dtype])

    def _moved(self, chain, name, old, new, allowed, what: tuple[str, str]) -> list[Label]:
        """Ways to redistribute a matrix into another layout; ranks then hold both copies.
        Operations before a gather of weights hide it, as FSDP prefetches them, unless none precedes
        it or the core moves data."""
        if old == new:
            return [Label(0.0)]
        shape, found = chain.matrices[name].shape, []
        first = what[0] == chain.multiplications[0].c
        weight = chain.matrices[name].kind == "weight"
        prefetched = weight and not first and not self.machine.adds_on_core
        for candidate in self._programs((shape, old, new), self._redistributions(shape, old, new)):
            if candidate.name == LOCAL:  # a part of each rank's tile
                found.append(Label(0.0))
            elif candidate.name in allowed:
                use = Use(*what, candidate, prefetched and candidate.name == "gather")
                held = self._nbytes(shape, new)
                found.append(Label(*use.seconds(candidate.times), held, candidate.pool, (use,)))
        return found

    # -- programs

    def _programs(self, key: tuple, programs: Iterator[Program]) -> list[Program]:
        """All programs for a key, bounded once."""
        if key not in self._known:
            if Clock.cpu() > self.ends_s:
                raise Spent
            self._known[key] = list(programs)
            self.programs += self._known[key]
        return self._known[key]

    def _multiplications(self, chain: Chain, each: Matmul, layouts: tuple) -> Iterator[Program]:
        """Every way to compute a multiplication in layouts."""
        c, k = chain.matrices[each.c], chain.inner(each)
        parts = (
            chain_partition(layout, chain.matrices[name].shape, self.nprocs)
            for layout, name in zip(layouts, (*each.takes, each.c))
        )
        problem = Problem(c.rows, c.cols, k, self.nprocs, *parts, self.dtype, each.transpose)
        copies, most = len(problem.c.partition.copies()), max(_MOST_STEPS, 8 * self.nprocs)
        for name, (called, options) in MULTIPLICATIONS.items():
            algorithm, more = get_algorithm(called), {}
            if name in _STATIONARY and copies > 1:  # each reduces the partial sums of all
                if copies * copies > most:
                    continue
                more = {"replicate_result": True}
            try:
                resolved = algorithm.resolve(problem, self._in_place, **options, **more)
            except DrbenchError:
                continue  # it takes other layouts
            traced = partial(algorithm.trace, problem, **resolved)
            if name in _STATIONARY and self.machine.adds_on_core:  # packing depends on it
                traced = partial(traced, machine=self.machine)
            first = traced(0)
            if name in _STATIONARY:
                if len(first.steps) > most:
                    continue
                others = (traced(rank) for rank in (self.nprocs // 2, self.nprocs - 1))
                name = name if _reads(first) or any(map(_reads, others)) else LOCAL
            yield Program(name, traced, first, self.machine, resolved)

    def _redistributions(self, shape: Pair, old: str, new: str) -> Iterator[Program]:
        """Every way to redistribute a matrix."""
        before, after = (chain_partition(layout, shape, self.nprocs) for layout in (old, new))
        if after.terms > 1:
            return
        rows, cols = shape  # C = A · 1
        problem = Problem(rows, cols, cols, self.nprocs, before, "row", after, self.dtype)
        traced = partial(_trace_read, problem)
        local = not any(_reads(traced(rank)) for rank in range(self.nprocs))
        yield Program(LOCAL if local else "read", traced, traced(0), self.machine)
        if _gathers(before, after):
            traced = partial(_trace_gather, problem)
            yield Program("gather", traced, traced(0), self.machine)


def _freed(labels: Sequence[Label]) -> list[Label]:
    """The label of an operation's buffers, which it frees at its end."""
    return [each._replace(nbytes=0, pool=each.memory) for each in labels]


def _reads(one: Trace) -> bool:
    """Whether a rank moves data one-sidedly."""
    return any(not step.grouped and step.moved(one.rank) for step in one.steps)


def _trace_read(problem: Problem, rank: int) -> Trace:
    program = redistribute(problem.a, problem.c, rank, _CHUNKS)
    return trace(program, problem, rank, fresh=False)


def _trace_gather(problem: Problem, rank: int) -> Trace:
    """All tiles of A on every rank, by a collective."""

    def program():
        whole = problem.a.partition
        tiles = [problem.a.tile_block(whole.tiles_of(x)[0]) for x in range(problem.nprocs)]
        everyone = Group("row", tuple(range(problem.nprocs)), rank)
        yield AllGather(tiles, everyone, axis=0 if whole.rows.parts > 1 else 1)

    return trace(program(), problem, rank, fresh=False)


def _gathers(before: Partition, after: Partition) -> bool:
    """Whether a collective makes the second layout from the first: each rank has a part of the rows
    or columns, in order, and receives all."""
    p = before.nprocs
    if before.replicas > 1 or after.terms > 1 or len(after.copies()) != p or p == 1:
        return False
    tiles = [before.tiles_of(rank) for rank in range(p)]
    return any(tiles == [[of(x)] for x in range(p)] for of in (lambda x: (x, 0), lambda x: (0, x)))
