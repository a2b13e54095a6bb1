"""What each operation of a chain costs in every combination of layouts, by simulating it alone."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import product
from typing import NamedTuple

from algorithms.registry import get_algorithm
from drbench.errors import DrbenchError
from drbench.model.costs import compute_s
from drbench.model.machine import Machine
from drbench.model.simulate import simulate
from drbench.plan.schedule import buffer_elements
from drbench.program.elementwise import Map
from drbench.program.problem import ITEMSIZES, Operand
from drbench.program.steps import Block, Get
from drbench.program.trace import Trace, no_collection, trace

from .description import Between, Chain, Product
from .program import MOVES, Bound, Move, Way, _moved, aligned, bound_partition, gathers, problem_of
from .search import Factor, Label, best

#: What multiplies, by a name: algorithm and options that are tried. One-sided; B or A gathered, or
#: a sum scattered; along rings; in two dimensions by collectives.
PRODUCTS: dict[str, tuple[str, dict]] = {
    "universal": ("universal", {}),
    "gather B": ("dtensor_mm", {"strategy": "rows"}),
    "gather A": ("dtensor_mm", {"strategy": "columns"}),
    "scatter C": ("dtensor_mm", {"strategy": "partial"}),
    "ring B": ("fsdp", {}),
    "ring A": ("tensor_parallel_1d", {"dataflow": "AG"}),
    "ring C": ("tensor_parallel_1d", {"dataflow": "RdS"}),
    "collective": ("collective", {}),
}
#: Layouts that are tried, of every matrix; products may also be made as sums that are pending.
LAYOUTS = ("row", "column", "block", "R")
PENDING = "P"


class Allowed(NamedTuple):
    """What a contender does: products by name (:data:`PRODUCTS`), and redistributions (``MOVES``).
    With ``still`` the universal algorithm may be used where nothing moves only."""

    products: Collection[str]
    moves: Collection[str]
    still: bool = False


EVERYTHING = Allowed(PRODUCTS, MOVES)


class Costs:
    """What operations on a machine cost, each looked up once.

    Parameters
    ----------
    machine : Machine
        As the chain sees it: with its element type.
    nprocs : int
    dtype : str
    layouts : sequence of str
        Text forms, tried of every matrix.
    layers : int
        So many layers' weights, and their gradients, a rank holds; one of them is run.
    """

    def __init__(
        self,
        machine: Machine,
        nprocs: int,
        dtype: str = "float32",
        layouts: Sequence[str] = LAYOUTS,
        layers: int = 1,
    ):
        self.machine, self.nprocs, self.dtype = machine, nprocs, dtype
        self.layouts = tuple(dict.fromkeys(layouts))
        self.layers = layers
        self.simulated = 0  # how many programs
        self._products: dict = {}
        self._moves: dict = {}
        self._sizes: dict = {}
        self._ways: dict = {}  # of bringing a matrix from one layout into another, and a product
        links = machine.links
        self._in_place = bool(links) and all(
            link.reads_in_place and link.shared != "initiator" for link in links
        )

    # -- tables

    def domains(self, chain: Chain) -> dict[str, list[str]]:
        """The layouts that each variable may have."""
        found = {}
        for variable in dict.fromkeys(chain.variables.values()):
            names = [name for name in chain.matrices if chain.variable(name) == variable]
            found[variable] = [
                layout
                for layout in self.layouts
                if all(self._suits(chain, name, layout) for name in names)
            ]
        return found

    def _suits(self, chain: Chain, name: str, layout: str) -> bool:
        matrix = chain.matrices[name]
        whole = bound_partition(layout, (matrix.rows, matrix.cols), self.nprocs)
        if whole.terms > 1:
            return False
        makers = [x for x in chain.operations if isinstance(x, Between) and x.c == name]
        return not any(aligned(each, chain, layout, self.nprocs) for each in makers)

    def factors(self, chain: Chain, allowed: Allowed = EVERYTHING) -> list[Factor]:
        """What every operation costs, and every matrix holds, by the layouts of its variables."""
        domains = self.domains(chain)
        found = [self._held(chain, variable, domains[variable]) for variable in domains]
        for each in chain.operations:
            if isinstance(each, Between):
                variable = chain.variable(each.c)
                table = {
                    (layout,): [Label(self._between_s(chain, each, layout))]
                    for layout in domains[variable]
                }
                found.append(Factor((variable,), table))
            else:
                found.append(self._of_product(chain, each, domains, allowed))
        return found

    def _held(self, chain: Chain, variable: str, layouts: Sequence[str]) -> Factor:
        """Bytes of a variable's matrices on the rank that holds most."""
        names = [name for name in chain.matrices if chain.variable(name) == variable]
        table = {}
        for layout in layouts:
            nbytes = sum(
                self._nbytes(chain, name, layout) * (self.layers if chain.stays(name) else 1)
                for name in names
            )
            table[layout,] = [Label(0.0, nbytes)]
        return Factor((variable,), table)

    def _nbytes(self, chain: Chain, name: str, layout: str) -> int:
        matrix = chain.matrices[name]
        key = matrix.rows, matrix.cols, layout
        if key not in self._sizes:
            whole = bound_partition(layout, key[:2], self.nprocs)
            self._sizes[key] = max(map(whole.local_size, range(self.nprocs)))
        return self._sizes[key] * ITEMSIZES[self.dtype]

    def _of_product(self, chain: Chain, each: Product, domains: dict, allowed: Allowed) -> Factor:
        """The cheapest ways of a product for the layouts of its three variables: operands as they
        are or moved first, the result made as it stays or moved then."""
        names = each.a, each.b, each.c
        variables = [chain.variable(name) for name in names]
        made = {}
        pending = (PENDING,) if "read" in allowed.moves else ()
        for key in product(self.layouts, self.layouts, (*self.layouts, *pending)):
            if labels := self._products_in(chain, each, key, allowed):
                made[key] = labels
        for x in (2, 1, 0):
            made = self._with_moves(chain, each, x, domains[variables[x]], made, allowed)
        scope = tuple(dict.fromkeys(variables))
        table: dict[tuple, list[Label]] = {}
        for key, labels in made.items():
            known: dict[str, str] = {}
            if all(known.setdefault(var, layout) == layout for var, layout in zip(variables, key)):
                table[tuple(known[var] for var in scope)] = best(labels, self._limit)
        return Factor(scope, table)

    _limit = 1e300  # keep what no other beats, whatever the limit turns out to be

    def _with_moves(
        self, chain: Chain, each: Product, x: int, layouts: Sequence[str], made: dict, allowed
    ) -> dict:
        """The table with the layouts in which matrix ``x`` is stored in place of those in which it
        is multiplied."""
        found: dict[tuple, list[Label]] = {}
        name = (each.a, each.b, each.c)[x]
        for key, labels in made.items():
            for stored in layouts:
                ends = (stored, key[x]) if x < 2 else (key[x], stored)
                for move in self._moved(chain, name, *ends, allowed):
                    to = (*key[:x], stored, *key[x + 1 :])
                    for label in labels:
                        ((kind, way),) = label.notes
                        way = way._replace(**{"abc"[x]: move.notes})
                        both = label._replace(notes=()).then(move._replace(notes=()))
                        found.setdefault(to, []).append(both._replace(notes=((kind, way),)))
        return {key: best(labels, self._limit) for key, labels in found.items()}

    # -- single operations

    def _products_in(
        self, chain: Chain, each: Product, layouts: tuple[str, str, str], allowed: Allowed
    ) -> list[Label]:
        """Ways of a product in layouts, with what they take."""
        a, b = chain.matrices[each.a], chain.matrices[each.b]
        key = (a.rows, a.cols, b.rows, b.cols, each.transpose, layouts)
        if key not in self._products:
            self._products[key] = list(self._tried(chain, each, layouts))
        found = [
            Label(time_s, 0, pool, ((each.c, Way((), (), algorithm, options, layouts[2], ())),))
            for name, algorithm, options, time_s, pool, moves in self._products[key]
            if name in allowed.products and not (name == "universal" and allowed.still and moves)
        ]
        return best(found, self._limit)

    def _tried(self, chain: Chain, each: Product, layouts: tuple[str, str, str]):
        """(name, algorithm, options, seconds, bytes of buffers, whether anything moves) of every
        way."""
        problem = problem_of(chain, each, layouts, self.nprocs, self.dtype)
        if any(operand.partition.terms > 1 for operand in (problem.a, problem.b)):
            return
        for name, (called, options) in PRODUCTS.items():
            algorithm = get_algorithm(called)
            copies = len(problem.c.partition.copies()) > 1
            more = {"replicate_result": True} if name == "universal" and copies else {}
            try:
                settled = algorithm.settle(problem, self._in_place, **options, **more)
            except DrbenchError:
                continue  # it takes other layouts
            traces = [algorithm.trace(problem, rank, **settled) for rank in range(self.nprocs)]
            time_s = self._simulated(traces, algorithm.prefetch(**settled))
            moves = any(step.moved(each.rank) for each in traces for step in each.steps)
            yield name, called, tuple(settled.items()), time_s, self._pool(traces), moves

    def _simulated(self, traces: list[Trace], prefetch: int | str = 1) -> float:
        self.simulated += 1
        with no_collection():
            return simulate(traces, self.machine, prefetch=prefetch).time_s

    def _pool(self, traces: list[Trace]) -> int:
        """Bytes of all buffers of the rank that has most: more than are needed at once."""
        return ITEMSIZES[self.dtype] * max(
            sum(buffer_elements(step, each.rank) for step in each.steps) for each in traces
        )

    def _moved(self, chain: Chain, name: str, old: str, new: str, allowed: Allowed) -> list[Label]:
        """Ways of bringing a matrix from one layout into another, in one move or two; the note is
        the moves. What it leaves on the way stays."""
        if old == new:
            return [Label(0.0)]
        matrix = chain.matrices[name]
        key = matrix.rows, matrix.cols, old, new, tuple(allowed.moves)
        if key not in self._ways:
            self._ways[key] = self._in_hops(chain, name, old, new, allowed)
        return self._ways[key]

    def _in_hops(self, chain: Chain, name: str, old: str, new: str, allowed: Allowed):
        found = self._hops(chain, name, old, new, allowed)
        for middle in self.layouts:
            if middle in (old, new):
                continue
            for one in self._hops(chain, name, old, middle, allowed):
                found += [one.then(two) for two in self._hops(chain, name, middle, new, allowed)]
        return best(found, self._limit)

    def _hops(self, chain: Chain, name: str, old: str, new: str, allowed: Allowed) -> list[Label]:
        matrix = chain.matrices[name]
        key = matrix.rows, matrix.cols, old, new
        if key not in self._moves:
            self._moves[key] = list(self._tried_moves(chain, name, old, new))
        nbytes = self._nbytes(chain, name, new)
        return [
            Label(time_s, nbytes, pool, (Move(new, how),))
            for how, time_s, pool in self._moves[key]
            if how in allowed.moves
        ]

    def _tried_moves(self, chain: Chain, name: str, old: str, new: str):
        """(how, seconds, bytes of buffers) of every way of one redistribution."""
        matrix = chain.matrices[name]
        shape = matrix.rows, matrix.cols
        before, after = (bound_partition(text, shape, self.nprocs) for text in (old, new))
        if after.terms > 1:
            return
        bound = Bound(chain, self.nprocs, {}, {}, self.dtype)
        bound.__dict__["operands"] = {"old": Operand("old", before), "new": Operand("new", after)}
        for how in ("read", "gather"):
            if how == "gather" and not gathers(before, after):
                continue
            move = Move(new, how)
            traces = [
                trace(
                    _moved(bound, "old", "new", move, rank),
                    bound,  # type: ignore[arg-type]
                    rank,
                    fresh=False,
                    written="new",
                )
                for rank in range(self.nprocs)
            ]
            yield how, self._simulated(traces, 4), self._pool(traces)

    def _between_s(self, chain: Chain, each: Between, layout: str) -> float:
        """Seconds of a function on the rank that has most to do."""
        c = chain.matrices[each.c]
        whole = bound_partition(layout, (c.rows, c.cols), self.nprocs)
        most = 0.0
        for shape in {whole.local_shape(rank) for rank in range(self.nprocs)}:
            if 0 in shape:
                continue
            most = max(most, self.machine_s(each, shape))
        return most

    def machine_s(self, each: Between, shape: tuple[int, int]) -> float:
        """Seconds of a function that makes a block of this shape."""
        rows, cols = shape
        of = each.function
        tokens = []
        for x in range(len(of.takes)):
            width = cols // of.gives * of.takes[x]
            tokens.append(Get(Block("A", 0, 0, (0, 0), 0, rows, 0, width, 0, width)))
        into = Block("C", 0, 0, (0, 0), 0, rows, 0, cols, 0, cols)
        step = Map(of, tuple(tokens), into)
        return compute_s(self.machine, step, ITEMSIZES[self.dtype])
