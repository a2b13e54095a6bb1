"""What each operation of a chain costs in every combination of layouts, estimated from the program
of one rank."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import product
from math import inf
from typing import NamedTuple

from algorithms.registry import get_algorithm
from drbench.common import Clock
from drbench.errors import DrbenchError
from drbench.model.costs import compute_s
from drbench.model.machine import Machine
from drbench.plan.schedule import buffer_elements
from drbench.program.elementwise import Map
from drbench.program.problem import ITEMSIZES, Operand, Problem
from drbench.program.steps import Block, Get
from drbench.program.trace import Trace, trace

from .description import Between, Chain, Operation, Product
from .estimate import Estimate, estimate
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
#: The universal algorithm is left out where a rank makes more GEMMs and sums of copies than so
#: many, and than two for each rank: they are small, and other layouts have larger ones.
_MOST_STEPS = 256


class Allowed(NamedTuple):
    """What a contender does: products by name (:data:`PRODUCTS`), and redistributions (``MOVES``).
    With ``collectives`` nothing else may move data."""

    products: Collection[str]
    moves: Collection[str]
    collectives: bool = False


EVERYTHING = Allowed(PRODUCTS, MOVES)


class Spent(Exception):
    """The effort is spent."""


class Weights(NamedTuple):
    """What counts as the time of an operation in a bound: the core's share, and a link that has the
    rest (:class:`chains.estimate.Estimate`)."""

    core: float
    link: str

    def seconds(self, found: Estimate) -> float:
        """The weighted sum."""
        busy_s = dict(found.links).get(self.link, 0.0)
        return self.core * found.least_s + (1 - self.core) * busy_s


class Tried(NamedTuple):
    """One way of a product or of a redistribution: its name, what is called with which options, its
    seconds, bytes of buffers, and whether ranks move data one-sidedly."""

    name: str
    called: str
    options: tuple
    seconds: Estimate
    pool: int
    one_sided: bool = False


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
        self.estimated = 0  # how many programs
        self.ends_s = inf  # CPU seconds of this process after which no more is estimated
        self._products: dict = {}
        self._moves: dict = {}
        self._sizes: dict = {}
        self._ways: dict = {}  # of bringing a matrix from one layout into another
        links = machine.links
        self._in_place = bool(links) and all(
            link.reads_in_place and not link.own_timer for link in links
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

    def factors(
        self,
        chain: Chain,
        allowed: Allowed = EVERYTHING,
        weights: Weights | None = None,
        domains: Mapping[str, Sequence[str]] | None = None,
    ) -> list[Factor]:
        """What every operation costs, and every matrix holds, by the layouts of its variables.

        Parameters
        ----------
        chain : Chain
        allowed : Allowed
        weights : Weights, optional
            Of a bound; by default what each operation takes by itself is added up.
        domains : dict of str to sequence of str, optional
            Layouts of each variable; by default all (:meth:`domains`).

        Raises
        ------
        Spent
            If the effort is (``ends_s``).
        """
        domains = self.domains(chain) if domains is None else domains
        found = [self._held(chain, variable, domains[variable]) for variable in domains]
        for each in chain.operations:
            if isinstance(each, Between):
                variable = chain.variable(each.c)
                table = {}
                for layout in domains[variable]:
                    seconds = self._between_s(chain, each, layout)
                    time_s = seconds if weights is None else weights.core * seconds
                    table[layout,] = [Label(time_s)]
                found.append(Factor((variable,), table))
            else:
                found.append(self.factor(chain, each, domains, allowed, weights))
        return found

    def links(self) -> list[str]:
        """The links of a rank that any way occupies that was estimated."""
        tried = (
            each for ways in (*self._products.values(), *self._moves.values()) for each in ways
        )
        return sorted({link for each in tried for link, _ in each.seconds.links})

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

    def factor(
        self,
        chain: Chain,
        each: Product,
        domains: Mapping[str, Sequence[str]],
        allowed: Allowed,
        weights: Weights | None = None,
    ) -> Factor:
        """The cheapest ways of a product for the layouts of its three variables: operands as they
        are or moved first, the result made as it stays or moved then."""
        names = each.a, each.b, each.c
        stored = [domains[chain.variable(name)] for name in names]
        moved = lambda x, *ends: self._moved(
            chain, names[x], *ends, allowed, weights, x == 2 or "AB"[x] in _fresh(chain, each)
        )
        reached = [
            [to for to in self.layouts if any(moved(x, old, to) for old in stored[x])]
            for x in (0, 1)
        ]
        left = (*self.layouts, PENDING) if "read" in allowed.moves else self.layouts
        reached.append([old for old in left if any(moved(2, old, to) for to in stored[2])])
        made = {}
        for key in product(*reached):
            if labels := self._products_in(chain, each, key, allowed, weights):
                made[key] = labels
        for x in (2, 1, 0):
            made = _with_moves(x, stored[x], made, moved)
        variables = [chain.variable(name) for name in names]
        scope = tuple(dict.fromkeys(variables))
        table: dict[tuple, list[Label]] = {}
        for key, labels in made.items():
            known: dict[str, str] = {}
            if all(known.setdefault(var, layout) == layout for var, layout in zip(variables, key)):
                table[tuple(known[var] for var in scope)] = best(labels, _ANY)
        return Factor(scope, table)

    # -- single operations

    def _products_in(
        self,
        chain: Chain,
        each: Product,
        layouts: tuple[str, str, str],
        allowed: Allowed,
        weights: Weights | None = None,
    ) -> list[Label]:
        """Ways of a product in layouts, with what they take."""
        a, b = chain.matrices[each.a], chain.matrices[each.b]
        fresh, trailing = _fresh(chain, each), _trailing(chain, each)
        key = (a.rows, a.cols, b.rows, b.cols, each.transpose, layouts, fresh, trailing)
        if key not in self._products:
            self._products[key] = list(self._tried(chain, each, layouts))
        found = [
            Label(
                _time_s(one.seconds, weights),
                0,
                one.pool if weights is None else 0,
                ((each.c, Way((), (), one.called, one.options, layouts[2], ())),),
            )
            for one in self._products[key]
            if one.name in allowed.products and not (allowed.collectives and one.one_sided)
        ]
        return best(found, _ANY)

    def _tried(self, chain: Chain, each: Product, layouts: tuple[str, str, str]) -> Iterator[Tried]:
        """Every way of a product in layouts."""
        problem = problem_of(chain, each, layouts, self.nprocs, self.dtype)
        if any(operand.partition.terms > 1 for operand in (problem.a, problem.b)):
            return
        most = max(_MOST_STEPS, 2 * self.nprocs)
        for name, (called, options) in PRODUCTS.items():
            algorithm = get_algorithm(called)
            copies = len(problem.c.partition.copies()) > 1
            more = {"replicate_result": True} if name == "universal" and copies else {}
            try:
                settled = algorithm.resolve(problem, self._in_place, **options, **more)
            except DrbenchError:
                continue  # it takes other layouts
            if name == "universal" and _steps(problem, settled["stationary"]) > most:
                continue
            self.check()
            one = algorithm.trace(problem, 0, **settled)
            one_sided = _is_one_sided(one)
            if name == "universal" and not one_sided:  # ranks with other tiles may be
                others = {self.nprocs // 2, self.nprocs - 1} - {0}
                traces = (algorithm.trace(problem, rank, **settled) for rank in others)
                one_sided = any(map(_is_one_sided, traces))
            self.estimated += 1
            seconds = estimate(one, self.machine, _fresh(chain, each), _trailing(chain, each))
            yield Tried(name, called, tuple(settled.items()), seconds, self._pool(one), one_sided)

    def check(self) -> None:
        """Raise :class:`Spent` if the effort is."""
        if Clock.cpu() > self.ends_s:
            raise Spent

    def _pool(self, one: Trace) -> int:
        """Bytes of all buffers of a rank: more than are needed at once."""
        return ITEMSIZES[self.dtype] * sum(buffer_elements(x, one.rank) for x in one.steps)

    def _moved(
        self,
        chain: Chain,
        name: str,
        old: str,
        new: str,
        allowed: Allowed,
        weights: Weights | None = None,
        fresh: bool = False,
    ) -> list[Label]:
        """Ways of bringing a matrix from one layout into another, in one move or two; the note is
        the moves. What it leaves on the way stays."""
        if old == new:
            return [Label(0.0)]
        matrix = chain.matrices[name]
        key = matrix.rows, matrix.cols, old, new, tuple(allowed.moves), weights, fresh
        if key not in self._ways:
            hops = lambda *ends: self._hops(chain, name, *ends, allowed, weights, fresh)
            found = hops(old, new)
            for middle in self.layouts:
                if middle not in (old, new):
                    found += [
                        one.then(two) for one in hops(old, middle) for two in hops(middle, new)
                    ]
            self._ways[key] = best(found, _ANY)
        return self._ways[key]

    def _hops(
        self,
        chain: Chain,
        name: str,
        old: str,
        new: str,
        allowed: Allowed,
        weights: Weights | None,
        fresh: bool,
    ) -> list[Label]:
        matrix = chain.matrices[name]
        key = matrix.rows, matrix.cols, old, new, fresh
        if key not in self._moves:
            self._moves[key] = list(self._tried_moves(chain, name, old, new, fresh))
        nbytes = self._nbytes(chain, name, new)
        held = lambda pool: (nbytes, pool) if weights is None else (0, 0)  # a bound of memory, too
        return [
            Label(_time_s(each.seconds, weights), *held(each.pool), (Move(new, each.name),))
            for each in self._moves[key]
            if each.name in allowed.moves
        ]

    def _tried_moves(
        self, chain: Chain, name: str, old: str, new: str, fresh: bool
    ) -> Iterator[Tried]:
        """Every way of one redistribution."""
        matrix = chain.matrices[name]
        shape = matrix.rows, matrix.cols
        before, after = (bound_partition(text, shape, self.nprocs) for text in (old, new))
        if after.terms > 1:
            return
        bound = Bound(chain, self.nprocs, {}, {}, self.dtype)
        bound.__dict__["operands"] = {"old": Operand("old", before), "new": Operand("new", after)}
        for how in MOVES:
            if how == "gather" and not gathers(before, after):
                continue
            self.check()
            one = trace(
                _moved(bound, "old", "new", Move(new, how), 0),
                bound,  # type: ignore[arg-type]
                0,
                fresh=False,
                written="new",
            )
            self.estimated += 1
            seconds = estimate(one, self.machine, ("old",) if fresh else (), fresh)
            yield Tried(how, "", (), seconds, self._pool(one))

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
            tokens.append(Get(Block("A", 0, 0, (0, 0), 0, rows, 0, width)))
        into = Block("C", 0, 0, (0, 0), 0, rows, 0, cols)
        step = Map(of, tuple(tokens), into)
        return compute_s(self.machine, step, ITEMSIZES[self.dtype])


#: Keep what no other beats, whatever the limit turns out to be.
_ANY = 1e300


def _time_s(seconds: Estimate, weights: Weights | None) -> float:
    return seconds.time_s if weights is None else weights.seconds(seconds)


def _with_moves(x: int, layouts: Sequence[str], made: dict, moved: Callable) -> dict:
    """The ways of a product with the layouts in which matrix ``x`` is stored in place of those in
    which it is multiplied."""
    found: dict[tuple, list[Label]] = {}
    for key, labels in made.items():
        for stored in layouts:
            for move in moved(x, *((stored, key[x]) if x < 2 else (key[x], stored))):
                to = (*key[:x], stored, *key[x + 1 :])
                for label in labels:
                    ((kind, way),) = label.notes
                    way = way._replace(**{"abc"[x]: move.notes})
                    both = label._replace(notes=()).then(move._replace(notes=()))
                    found.setdefault(to, []).append(both._replace(notes=((kind, way),)))
    return {key: best(labels, _ANY) for key, labels in found.items()}


def _fresh(chain: Chain, each: Operation) -> str:
    """Which operand of a product the operation before makes, ``A`` or ``B``: its transfers overlap
    with no earlier operation. Of the first product nothing is transferred before A."""
    at = chain.operations.index(each)
    if at == 0:
        return "A"
    made = chain.operations[at - 1].c
    return "A" if made == each.takes[0] else "B" if made == each.takes[-1] else ""


def _trailing(chain: Chain, each: Operation) -> bool:
    """Whether the next operation takes the result, or there is none."""
    after = chain.operations[chain.operations.index(each) + 1 :]
    return not after or each.c in after[0].takes


def _is_one_sided(one: Trace) -> bool:
    return any(not step.grouped and step.moved(one.rank) for step in one.steps)


def _steps(problem: Problem, stationary: str) -> int:
    """GEMMs and sums that a rank makes at most: where every cut of a matrix divides the GEMMs, and
    the copies of the stationary one share them; the copies of C add up what each has."""
    a, b, c = (each.partition for each in (problem.a, problem.b, problem.c))
    m, n = max(a.rows.parts, c.rows.parts), max(b.cols.parts, c.cols.parts)
    copies = {"A": a.replicas, "B": b.replicas}.get(stationary, 1)
    gemms = m * n * max(a.cols.parts, b.rows.parts) * copies // problem.nprocs
    return gemms + (c.replicas**2 if c.replicas > 1 else 0)
