"""The layouts of a chain, searched by dynamic programming and compared with published layouts.

On each mesh the search begins with lower bounds of programs that overlap. It simulates the programs
of the fastest chain and searches again, until all programs of the fastest chain are simulated: then
no other is faster. No other programs are simulated.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from math import inf
from operator import attrgetter

from drbench.clock import Clock
from drbench.errors import OutOfMemory, UsageError
from drbench.model.machine import Machine
from drbench.model.simulate import EffortExhausted
from drbench.program.steps import COUNTERS
from drbench.program.trace import no_collection

from .costs import LayoutCosts, Load, Use, Way, divided, why_not_aligned
from .description import Chain, LocalMap, Matmul
from .mesh import DeviceMesh, Layout
from .programs import ChainProgram, ProgramTimes, RankGroup
from .published import CONTENDERS, contender
from .search import Label, search

#: CPU seconds of one core that a search may take.
EFFORT_S = 25.0
#: Times that differ by less than this share are equal.
_EQUAL = 1e-3
_time = attrgetter("time_s")


@dataclass
class Solution:
    """A chain in layouts, with simulated operations: they run one after another. Transfers that
    operations hide use the links while these are idle.

    Attributes
    ----------
    name : str
        ``chosen``, or the published name.
    chain : Chain
    costs : LayoutCosts
        Of its mesh and performance model.
    layouts : dict of str to tuple
        Of every variable.
    ways : tuple of Way
        Of the multiplications.
    """

    name: str
    chain: Chain
    costs: LayoutCosts
    layouts: dict[str, Layout]
    ways: tuple[Way, ...]

    @classmethod
    def of(cls, name: str, chain: Chain, costs: LayoutCosts, label: Label) -> "Solution":
        """The chain that a label of the search describes."""
        by = {way.operation: way for way in label.how}
        ways = tuple(by[matmul.c] for matmul in chain.multiplications)
        return cls(name, chain, costs, dict(label.chosen), ways)

    @property
    def mesh(self) -> DeviceMesh:
        return self.costs.mesh

    @property
    def inner(self) -> dict[str, tuple[Layout, ...]]:
        """By the result of each multiplication: the layouts of A, B and C in which its local GEMMs
        run, or would without overlap."""
        return {
            matmul.c: divided(matmul, self.way(matmul).inner)
            for matmul in self.chain.multiplications
        }

    @property
    def uses(self) -> list[Use]:
        """The programs of multiplications and redistributions."""
        return [use for way in self.ways for use in way.uses]

    @property
    def programs(self) -> list[ChainProgram]:
        """Every program once."""
        return list(dict.fromkeys(use.program for use in self.uses))

    @property
    def time_s(self) -> float:
        """Seconds of the whole chain."""
        return self._time_s(
            self.costs.machine, {program: program.times for program in self.programs}
        )

    def times_on(self, machines: Sequence[Machine]) -> list[float]:
        """The time with other performance models."""
        return [
            self._time_s(machine, {program: program.times_on(machine) for program in self.programs})
            for machine in machines
        ]

    def _time_s(self, machine: Machine, times: Mapping[ChainProgram, ProgramTimes]) -> float:
        total = Label()
        for operation in self.chain.operations:
            if isinstance(operation, LocalMap):
                layout = self.layout(operation.c)
                load = Load(self.costs.map_s(self.chain, operation, layout, machine))
            else:
                loads = (use.load(times[use.program]) for use in self.way(operation).uses)
                load = reduce(Load.then, loads)
            total = total.then(self.costs.label(self.chain, operation.c, load))
        return total.time_s

    def way(self, matmul: Matmul) -> Way:
        """How a multiplication is computed."""
        return next(way for way in self.ways if way.operation == matmul.c)

    @property
    def moves(self) -> int:
        """Redistributions of matrices."""
        return sum(bool(use.matrix) for use in self.uses)

    def layout(self, name: str) -> Layout:
        """The layout of a matrix."""
        return self.layouts[self.chain.variable(name)]

    @property
    def counters(self) -> dict[str, int]:
        """Bytes by kind, of all ranks."""
        counters = [use.program.simulated.counters for use in self.uses]
        scale = [self.mesh.ranks // g.extent if (g := u.program.group) else 1 for u in self.uses]
        return {n: sum(x * counts[n] for x, counts in zip(scale, counters)) for n in COUNTERS}

    @property
    def memory(self) -> dict[str, int]:
        """Bytes of the rank that holds most: weights, gradients, optimizer, activations, and
        buffers."""
        nbytes: Counter[str] = Counter()
        for variable, layout in self.layouts.items():
            nbytes.update(self.costs.count_bytes(self.chain, variable, layout))
        pools = [sum(use.program.pool for use in way.uses) for way in self.ways]
        return dict(nbytes) | {"buffers": max(pools, default=0)}

    @property
    def memory_bytes(self) -> int:
        """Bytes of the rank that needs most."""
        return sum(self.memory.values())

    def describe(self, matmul: Matmul) -> str:
        """How a multiplication is computed: its redistributions and its program."""
        words, names = [], dict(zip("ABC", (*matmul.takes, matmul.c)))
        for use in self.way(matmul).uses:
            if use.program.group:
                matrix = f" {names[use.matrix]}" if use.matrix else ""
                hidden = " hidden" if use.hidden else ""
                by = f" by {use.program.by}" if use.program.by else ""
                along = self.along(use.program.group)
                words.append(f"{use.program.name}{matrix}{along}{by}{hidden}")
        return "; ".join(words) or "local"

    def along(self, group: RankGroup) -> str:
        """The dimensions along which the ranks of a group differ."""
        dims = [
            name
            for name, stride, extent in zip(self.mesh.names, self.mesh.strides, self.mesh.extents)
            if extent > 1 and group.stride <= stride < group.stride * group.extent
        ]
        return f" on {'·'.join(dims)}"


@no_collection()
def choose(
    chain: Chain,
    costs: Sequence[LayoutCosts],
    fixed: Mapping[str, str] | None = None,
    limit: float | None = None,
    effort_s: float = EFFORT_S,
    progress: Callable[[str], None] = lambda line: None,
) -> "ShardingSearch":
    """The layouts of all matrices of a chain, and how its multiplications are computed.

    Published layouts are simulated first, without a time limit. An interrupt ends the search with
    the best that was found.

    Parameters
    ----------
    chain : Chain
    costs : sequence of LayoutCosts
        One for each mesh to try.
    fixed : dict of str to str, optional
        Variables whose layout is given, in any notation.
    limit : float, optional
        Bytes that a rank may hold; by default the memory of a device.
    effort_s : float
        CPU seconds of one core after which nothing further is simulated.
    progress : callable
        Called with a line on what the search does and has found.

    Raises
    ------
    OutOfMemory
        If nothing fits.
    UsageError
        If a given layout fits no mesh.
    """
    limit = min(inf if limit is None else limit, costs[0].machine.memory_bytes)
    result = ShardingSearch(chain, costs, limit, dict(fixed or {}), progress)
    result.run(Clock.cpu() + effort_s)
    return result


class ShardingSearch:
    """The solutions found for a chain.

    Attributes
    ----------
    best : Solution
        The fastest; of equal ones that with the fewest redistributions, then that with the least
        memory.
    contenders : list of Solution
        Published layouts on their best mesh, the fastest first.
    refused : dict of str to str
        Contender -> why it is not possible.
    least_s : float
        Lower bound in seconds of all chains on these meshes.
    tried : list of Solution
        All simulated ones, the fastest first.
    finished, interrupted : bool
        The search ended before the effort was exhausted; by an interrupt.
    """

    def __init__(
        self, chain: Chain, costs: Sequence[LayoutCosts], limit: float, fixed: dict, progress
    ):
        self.chain, self.costs, self.limit, self.fixed, self.progress = (
            chain,
            costs,
            limit,
            fixed,
            progress,
        )
        self.tried: list[Solution] = []
        self.contenders: list[Solution] = []
        self.refused: dict[str, str] = {}
        self.finished = self.interrupted = False
        self.line = "contenders"  # what the search does
        self.smallest: Solution | None = None  # of contenders that do not fit
        machine, ranks = costs[0].machine, costs[0].mesh.ranks
        least_s = chain.least_flops / (ranks * machine.compute.peak_flops)
        self._least = dict.fromkeys(costs, least_s)

    @property
    def least_s(self) -> float:
        return min(*self._least.values(), self.best.time_s)

    @property
    def gap(self) -> float:
        """The share of its time by which the best may be slower than the fastest chain."""
        return max(0.0, 1 - self.least_s / self.best.time_s)

    @property
    def counts(self) -> tuple[int, int]:
        """The numbers of programs with a time or a bound, and of simulated ones."""
        programs = [program for costs in self.costs for program in costs.programs]
        return len(programs), sum(program.simulated is not None for program in programs)

    def run(self, ends_s: float) -> None:
        """Simulate contenders, then search each mesh until the effort is exhausted."""
        domains, errors = {}, []
        for costs in self.costs:
            try:
                domains[costs] = self._domains(costs)
            except UsageError as error:
                errors.append(error)
                del self._least[costs]
        if not domains:
            raise errors[0]
        for costs, of in domains.items():
            least = sum(
                min(sum(costs.count_bytes(self.chain, name, layout).values()) for layout in layouts)
                for name, layouts in of.items()
            )
            if least > self.limit:  # no layout fits
                self._least[costs] = inf
        for costs, of in domains.items():
            self._simulate_contenders(costs, of)
        self.contenders.sort(key=_time)
        try:
            for solution in self.contenders:  # in their layouts transfers may overlap
                of = domains[solution.costs]
                alone = {variable: [layout] for variable, layout in solution.layouts.items()}
                if all(layout in of[name] for name, [layout] in alone.items()):
                    self._search(solution.costs, alone, ends_s)
            fitting = [costs for costs in domains if self._least[costs] < inf]
            for costs in fitting:  # a bound of each mesh first
                self.line = f"bounds of mesh {costs.mesh}"
                self._search(costs, domains[costs], ends_s, whole=True, simulate=False)
            order = sorted(fitting, key=self._least.get)
            for number, costs in enumerate(order, 1):
                self.line = f"mesh {costs.mesh}, {number} of {len(order)}"
                if self._least[costs] < (1 - _EQUAL) * self._best_s():
                    self._search(costs, domains[costs], ends_s, whole=True)
            self.finished = True
        except EffortExhausted:
            pass
        except KeyboardInterrupt:
            if not self.tried:
                raise
            self.interrupted = True
        if not self.tried:
            raise OutOfMemory(self._why_nothing_fits())
        self.tried.sort(key=_time)
        fastest: dict[str, Solution] = {}
        for solution in sorted(self.contenders, key=_time):
            fastest.setdefault(solution.name, solution)
        self.contenders = list(fastest.values())
        self.refused = {name: why for name, why in self.refused.items() if name not in fastest}
        equal = [x for x in self.tried if x.time_s <= (1 + _EQUAL) * self.tried[0].time_s]
        self.best = min(
            equal, key=lambda solution: (solution.moves, solution.memory_bytes, solution.time_s)
        )

    def _domains(self, costs: LayoutCosts) -> dict[str, list[Layout]]:
        """The layouts that each variable may have on a mesh, given ones fixed."""
        given = {name: costs.mesh.layout(text) for name, text in self.fixed.items()}
        if why := self._why_not(costs, given):
            raise UsageError(f"{why}.")
        return costs.domains(self.chain) | {name: [layout] for name, layout in given.items()}

    def _why_not(self, costs: LayoutCosts, layouts: Mapping[str, Layout]) -> str | None:
        """The reason why a function cannot be computed in layouts of variables."""
        for operation in self.chain.operations:
            layout = layouts.get(self.chain.variable(operation.c))
            if layout and isinstance(operation, LocalMap):
                if why := why_not_aligned(operation, self.chain, layout, costs.mesh):
                    return f"{operation.c} as {costs.mesh.text(layout)}: {why}"
        return None

    def _best_s(self) -> float:
        """The time of the fastest chain that was found."""
        return min((solution.time_s for solution in self.tried), default=inf)

    def _search(
        self,
        costs: LayoutCosts,
        domains: Mapping[str, Sequence[Layout]],
        ends_s: float,
        whole: bool = False,
        simulate: bool = True,
    ) -> None:
        """The fastest chain in these layouts, until the effort is exhausted and some chain is
        found; ``whole`` if these are all layouts of the mesh, for its bound."""
        while True:
            so_far = f"; {1e3 * self._best_s():.4g} ms so far" if self.tried else ""
            self.progress(f"{self.line}, {self.counts[1]} programs simulated{so_far}")
            factors = costs.factors(self.chain, domains, None, ends_s if self.tried else inf)
            optimum = search(domains, factors, self.limit)
            if whole:
                known_s = optimum.least_s if optimum else inf
                self._least[costs] = max(self._least[costs], min(known_s, self._best_s()))
            if optimum is None or not simulate:
                return
            solution = Solution.of("chosen", self.chain, costs, optimum.label)
            new = [program for program in solution.programs if program.simulated is None]
            for program in new:
                costs.simulate(program)
            if solution.memory_bytes <= self.limit:
                self.tried.append(solution)
            if not new or self._best_s() <= (1 + _EQUAL) * optimum.label.time_s:
                return

    # -- contenders

    def _simulate_contenders(self, costs: LayoutCosts, domains) -> None:
        """Simulate published layouts on a mesh; those that fit the request are also tried."""
        for name, (inner, outer) in CONTENDERS.items():
            if inner != outer and len(costs.mesh.extents) < 2:
                self.refused.setdefault(name, "it needs a mesh of two dimensions, as dp=2,tp=4")
                continue
            solution = self._contender(costs, name)
            if isinstance(solution, str):
                self.refused.setdefault(name, solution)
                continue
            self.contenders.append(solution)
            allowed = all(layout in domains[var] for var, layout in solution.layouts.items())
            if allowed and all(
                program.name in costs.allowed or program.name == "local"
                for program in solution.programs
            ):
                self.tried.append(solution)

    def _contender(self, costs: LayoutCosts, name: str) -> Solution | str:
        """A published chain on a mesh, or the reason why it is not possible."""
        layouts, stationary = contender(self.chain, costs.mesh, name)
        if why := self._why_not(costs, layouts):
            return why.partition(": ")[2]  # of which matrix follows from the scheme
        domains = {variable: [layout] for variable, layout in layouts.items()}
        optimum = search(domains, costs.factors(self.chain, domains, stationary))
        if optimum is None:
            return "no collective redistributes its matrices"
        solution = Solution.of(name, self.chain, costs, optimum.label)
        for program in solution.programs:
            costs.simulate(program)
        if solution.memory_bytes <= self.limit:
            return solution
        if self.smallest is None or solution.memory_bytes < self.smallest.memory_bytes:
            self.smallest = solution
        return f"it {self._lack(solution)}"

    def _lack(self, solution: Solution) -> str:
        """What a solution that does not fit needs."""
        parts = ", ".join(f"{k} {v / 2**30:.3g}" for k, v in solution.memory.items() if v > 2**20)
        return (
            f"needs {solution.memory_bytes / 2**30:.4g} GiB a rank ({parts}), of "
            f"{self.limit / 2**30:.4g}"
        )

    def _why_nothing_fits(self) -> str:
        fixed = ", ".join(f"{x} {y}" for x, y in self.fixed.items())
        training = self.costs[0].training
        stores_all = self.chain.has_backward and not training.recompute
        more = ", --recompute" if stores_all else ""
        least = f"; {self.smallest.name} {self._lack(self.smallest)}" if self.smallest else ""
        return (
            f"no layout of {self.chain.name} on {self.costs[0].mesh.ranks} ranks fits "
            f"{self.limit / 2**30:.4g} GiB a rank{f' with {fixed}' if fixed else ''}{least}. Use "
            f"more ranks, fewer tokens or --layers{more}."
        )
