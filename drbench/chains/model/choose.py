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
from typing import NamedTuple

from drbench.clock import Clock
from drbench.errors import OutOfMemory, UsageError
from drbench.model.machine import Machine
from drbench.model.simulate import EffortExhausted
from drbench.program.steps import COUNTERS
from drbench.program.trace import no_collection
from drbench.texts import number

from .costs import LayoutCosts, Load, Use, Way, divided, why_not_aligned
from .description import Chain, LocalMap, Matmul
from .mesh import DeviceMesh, Layout
from .programs import ChainProgram, ProgramTimes, RankGroup
from .published import CONTENDERS, Refusal, contender
from .search import Label, search

#: CPU seconds of one core that a search may take.
EFFORT_S = 20.0
#: Times that differ by less than this share are equal.
_EQUAL = 1e-3
_time = attrgetter("total_s")


#: Passes of a training step, and what a rank does in them.
PASSES = "forward", "backward"
KINDS = "GEMM", "experts", "attention", "element-wise", "communication"


class OperationTime(NamedTuple):
    """Seconds of an operation on the rank with most work.

    Attributes
    ----------
    operation : str
    direction : str
        ``forward`` or ``backward``.
    kind : str
        ``GEMM``, ``experts``, ``attention`` or ``element-wise``; ``waits``: a pass that waits for
        its links.
    compute_s, exposed_s : float
        Of computation, and of communication during which the rank does not compute; with what the
        backward pass computes again.
    hidden_s : float
        Of communication that computation hides; of a wait negative: so much of it is not hidden.
    received_bytes : int
        From other ranks.
    """

    operation: str
    direction: str
    kind: str
    compute_s: float
    exposed_s: float
    hidden_s: float
    received_bytes: int = 0


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
            total = total.then(self.costs.label(self.chain, operation, load))
        return total.time_s

    @property
    def operations(self) -> list[OperationTime]:
        """The time of each operation, and of waiting for links; all together :attr:`time_s`."""
        rows, total = [], Label()
        for operation in self.chain.operations:
            again = 1 + self.costs.share_again(self.chain, operation)
            compute_s = exposed_s = hidden_s = nbytes = 0.0
            if isinstance(operation, Matmul):
                kind = "experts" if operation.experts[1] else "GEMM"
                load = Load()
                for use in self.way(operation).uses:
                    load = load.then(use.load(use.program.times))
                    seconds, core_s, link_s = use.program.times
                    if not use.matrix:
                        compute_s = min(seconds, core_s)
                        exposed_s += seconds - compute_s
                        hidden_s += max(0.0, link_s - (seconds - compute_s))
                    elif use.hidden:
                        exposed_s, hidden_s = exposed_s + core_s, hidden_s + use.share * seconds
                    else:
                        exposed_s += use.share * seconds
                    group, counters = use.program.group, use.program.simulated.counters
                    nbytes += sum(counters.values()) / group.extent if group else 0
            else:
                of = operation.function
                kind = "attention" if of.heads else "element-wise"
                compute_s = self.costs.map_s(self.chain, operation, self.layout(operation.c))
                load = Load(compute_s)
            total = total.then(self.costs.label(self.chain, operation, load))
            backward = self.chain.is_gradient(operation.c)
            times = compute_s * again, exposed_s * again, hidden_s
            row = OperationTime(str(operation), PASSES[backward], kind, *times, int(nbytes))
            rows.append(row)
        for x, name in enumerate(PASSES):
            serial_s, *links_s = total.seconds[3 * x : 3 * x + 3]
            if (wait_s := max(links_s) - serial_s) > 0:
                rows.append(OperationTime("waits for links", name, "waits", 0.0, wait_s, -wait_s))
        return rows

    @property
    def step(self) -> dict[str, float]:
        """Seconds of a training step, or of one pass, of the whole model by part."""
        return self.costs.whole.times(self)

    @property
    def total_s(self) -> float:
        """Seconds of a layer, or of a step of the whole model."""
        return sum(self.step.values()) if self.costs.whole else self.time_s

    @property
    def mfu(self) -> float:
        """Model FLOPs utilisation: FLOPs of multiplications and of all scores of attention, none
        of them computed again, over what the peak of all ranks allows in this time (Chowdhery et
        al., PaLM, 2022, appendix B)."""
        return self._share_of_peak(self.chain.model_flops)

    def _share_of_peak(self, flops: float) -> float:
        """FLOPs of a layer, and of the rest of a whole model, over what all ranks could compute at
        the clock rate of the data sheet."""
        machine, whole = self.costs.machine, self.costs.whole
        if whole:
            passes = self.costs.training.micro_batches
            flops = passes * (whole.time_layers * flops + whole.head_flops(self.chain))
        peak = self.mesh.ranks * machine.compute.peak_flops / machine.clock
        return flops / self.total_s / peak

    @property
    def hfu(self) -> float:
        """The same with all FLOPs that run: those computed again, and half of fused causal
        attention's scores."""
        flops, costs, machine = 0.0, self.costs, self.costs.machine
        for operation in self.chain.operations:
            share = 1 + costs.share_again(self.chain, operation)
            sizes = [self.chain.extents(operation)] if isinstance(operation, Matmul) else []
            if isinstance(operation, LocalMap):
                of = operation.function
                sizes = of.gemms(*self.chain.matrices[operation.c].shape)
                kernel = machine.latent_prefill if of.rotary else machine.prefill
                is_causal = kernel and not (costs.training.unfused or of.context or of.window)
                share *= 0.5 if is_causal else 1.0
            flops += share * sum(2 * m * n * k for m, n, k in sizes)
        return self._share_of_peak(flops)

    @property
    def parts(self) -> dict[str, float]:
        """Seconds by what a rank does: they add up to :attr:`time_s`."""
        parts: Counter[str] = Counter()
        for row in self.operations:
            parts[row.kind] += row.compute_s
            parts["communication"] += row.exposed_s
        return {kind: parts[kind] for kind in KINDS if parts[kind] > 0}

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
        """Bytes of the rank that holds most: weights, gradients, optimizer, activations, cache of
        keys and values, and buffers."""
        nbytes: Counter[str] = Counter()
        for variable, layout in self.layouts.items():
            nbytes.update(self.costs.count_bytes(self.chain, variable, layout))
        for way in self.ways:
            nbytes["activations"] += self.costs.count_dispatched(self.chain, way)
        pools = [sum(use.program.pool for use in way.uses) for way in self.ways]
        nbytes["buffers"] = max(pools, default=0)
        if not nbytes["cache"]:
            del nbytes["cache"]
        if self.costs.whole:
            nbytes.update(self.costs.whole.memory(self))
        return dict(nbytes)

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
    refused : dict of str to Refusal
        Contender -> why it is not possible; of several meshes that which lacks least memory.
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
        self.refused: dict[str, Refusal] = {}
        self.finished = self.interrupted = False
        self.line = "contenders"  # what the search does
        self.smallest: Solution | None = None  # of contenders that do not fit
        rate = costs[0].mesh.ranks * costs[0].machine.compute.peak_flops
        self._least = {of: self._chain(of).least_flops / rate for of in costs}

    def _chain(self, costs: LayoutCosts) -> Chain:
        """The chain that is searched on a mesh."""
        return costs.instead or self.chain

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
                min(
                    sum(costs.count_bytes(self._chain(costs), name, layout).values())
                    for layout in layouts
                )
                for name, layouts in of.items()
            )
            if least > self.limit:  # no layout fits
                self._least[costs] = inf
        for costs, of in domains.items():
            self.simulate_contenders(costs, of)
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
        self.refused = {x: why for x, why in self.refused.items() if x not in fastest}
        equal = [x for x in self.tried if x.total_s <= (1 + _EQUAL) * self.tried[0].total_s]
        self.best = min(
            equal, key=lambda solution: (solution.moves, solution.memory_bytes, solution.total_s)
        )

    def _domains(self, costs: LayoutCosts) -> dict[str, list[Layout]]:
        """The layouts that each variable may have on a mesh, given ones fixed."""
        given = {name: costs.mesh.layout(text) for name, text in self.fixed.items()}
        if why := self._why_not(costs, given):
            raise UsageError(f"{why}.")
        return costs.domains(self._chain(costs)) | {
            name: [layout] for name, layout in given.items()
        }

    def _why_not(self, costs: LayoutCosts, layouts: Mapping[str, Layout]) -> str | None:
        """The reason why a function cannot be computed in layouts of variables."""
        chain = self._chain(costs)
        for operation in chain.operations:
            layout = layouts.get(chain.variable(operation.c))
            if layout and isinstance(operation, LocalMap):
                if why := why_not_aligned(operation, chain, layout, costs.mesh):
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
        beside, lacks = costs.whole.least_bytes(costs) if costs.whole else 0, 0
        while True:
            so_far = f"; {1e3 * self._best_s():.4g} ms so far" if self.tried else ""
            self.progress(f"{self.line}, {self.counts[1]} programs simulated{so_far}")
            factors = costs.factors(
                self._chain(costs), domains, None, ends_s if self.tried else inf
            )
            optimum = search(domains, factors, self.limit - beside)
            if whole and not lacks:
                known_s = optimum.least_s if optimum else inf
                self._least[costs] = max(self._least[costs], min(known_s, self._best_s()))
            if optimum is None or not simulate:
                return
            solution = Solution.of("chosen", self._chain(costs), costs, optimum.label)
            new = [program for program in solution.programs if program.simulated is None]
            for program in new:
                costs.simulate(program)
            if solution.memory_bytes <= self.limit:
                self.tried.append(solution)
            elif costs.whole:  # what a model needs beside its layers depends on their layouts
                lacks = solution.memory_bytes - self.limit
                beside += lacks
                continue
            if not new or self._best_s() <= (1 + _EQUAL) * optimum.label.time_s:
                return

    # -- contenders

    def simulate_contenders(self, costs: LayoutCosts, domains) -> None:
        """Simulate published layouts on a mesh; those that fit the request are also tried."""
        for name, scheme in CONTENDERS.items():
            if not scheme.suits(self._chain(costs)) or scheme.overlap - costs.allowed:
                continue
            solution = scheme.why_not(costs.mesh, self._chain(costs)) or self._contender(
                costs, name
            )
            if not isinstance(solution, Solution):
                before = self.refused.setdefault(name, solution)
                self.refused[name] = min(before, solution)
                continue
            self.contenders.append(solution)
            allowed = all(layout in domains[var] for var, layout in solution.layouts.items())
            if allowed and all(
                program.name in costs.allowed or program.name == "local"
                for program in solution.programs
            ):
                self.tried.append(solution)

    def _contender(self, costs: LayoutCosts, name: str) -> "Solution | Refusal":
        """A published chain on a mesh, or the reason why it is not possible."""
        chain = self._chain(costs)
        layouts, stationary = contender(chain, costs.mesh, name, costs.by_expert(chain))
        if why := self._why_not(costs, layouts):  # of which matrix follows from the scheme
            return Refusal(1, costs.mesh.ranks, f"on {costs.mesh}, {why.partition(': ')[2]}")
        domains = {variable: [layout] for variable, layout in layouts.items()}
        is_new = True
        while is_new:  # programs that overlap have bounds until they are simulated
            optimum = search(domains, costs.factors(chain, domains, stationary))
            if optimum is None:
                return Refusal(1, costs.mesh.ranks, "no collective redistributes its matrices")
            solution = Solution.of(name, chain, costs, optimum.label)
            is_new = any(program.simulated is None for program in solution.programs)
            for program in solution.programs:
                costs.simulate(program)
        if solution.memory_bytes <= self.limit:
            return solution
        if self.smallest is None or solution.memory_bytes < self.smallest.memory_bytes:
            self.smallest = solution
        return Refusal(0, solution.memory_bytes, f"it {self._lack(solution)}")

    def _lack(self, solution: Solution) -> str:
        """What a solution that does not fit needs."""
        gib = lambda nbytes: number(nbytes / 2**30, 4)
        parts = ", ".join(f"{k} {gib(v)}" for k, v in solution.memory.items() if v > 2**20)
        return (
            f"needs {gib(solution.memory_bytes)} GiB a rank ({parts}) on {solution.mesh}, "
            f"{gib(solution.memory_bytes - self.limit)} GiB more than {gib(self.limit)}"
        )

    def _why_nothing_fits(self) -> str:
        fixed = ", ".join(f"{x} {y}" for x, y in self.fixed.items())
        training = self.costs[0].training
        stores_all = self.chain.has_backward and training.recompute != "full"
        more = ", --recompute" if stores_all else ""
        least = f"; {self.smallest.name} {self._lack(self.smallest)}" if self.smallest else ""
        return (
            f"found no layout of {self.chain.name} on {self.costs[0].mesh.ranks} ranks that fits "
            f"{self.limit / 2**30:.4g} GiB a rank{f' with {fixed}' if fixed else ''}{least}. Use "
            f"more ranks, fewer tokens or --layers{more}."
        )
