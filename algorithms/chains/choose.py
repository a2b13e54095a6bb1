"""The layouts of a chain, searched by dynamic programming and compared with published layouts.

The search begins with lower bounds of programs. It simulates the programs of the fastest chain and
searches again, until all programs of the fastest chain are simulated: then no other is faster. No
other programs are simulated.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import inf

from drbench.common import PHASES, Clock
from drbench.errors import OutOfMemory
from drbench.model.machine import Machine
from drbench.program.steps import COUNTERS
from drbench.program.trace import no_collection

from .costs import EVERYTHING, LOCAL, Costs, Program, Spent, Use, why_not_aligned
from .description import Chain, Map, Matmul
from .search import Label, search

#: CPU seconds of one core that a search may take.
EFFORT_S = 30.0
#: Times that differ by less than this share are equal.
_EQUAL = 1e-3


@dataclass
class Solution:
    """A chain in layouts, with simulated operations: they run one after another. Transfers that
    operations hide use the links while these are idle.

    Attributes
    ----------
    name : str
        ``chosen``, or the published name.
    chain : Chain
    costs : Costs
        Of its performance model.
    layouts : dict of str to str
        Of every variable.
    inner : dict of str to tuple of str
        By the result of each multiplication: the layouts of A, B and C that compute it.
    uses : tuple of Use
        The programs of multiplications and redistributions.
    memory_bytes : int
        Tiles and buffers of the rank that needs most.
    """

    name: str
    chain: Chain
    costs: Costs
    layouts: dict[str, str]
    inner: dict[str, tuple[str, str, str]]
    uses: tuple[Use, ...]
    memory_bytes: int

    @classmethod
    def of(cls, name: str, chain: Chain, costs: Costs, label: Label) -> Solution:
        """The chain that a label of the search describes."""
        chosen = dict(label.chosen)
        inner = {
            each.c: tuple(
                chosen.pop(variable) for variable in costs.layouts_of_multiplication(each)
            )
            for each in chain.multiplications
        }
        layouts = {variable: chosen[variable] for variable in chain.variables.values()}
        return cls(name, chain, costs, layouts, inner, label.how, label.memory)

    def functions_s(self, machine: Machine) -> float:
        """Seconds of all functions."""
        return sum(
            self.costs.map_s(self.chain, each, self.layout(each.c), machine)
            for each in self.chain.operations
            if isinstance(each, Map)
        )

    @property
    def programs(self) -> list[Program]:
        """Every program once."""
        return list(dict.fromkeys(each.program for each in self.uses))

    @property
    def time_s(self) -> float:
        """Seconds of the whole chain."""
        return self._time_s(self.costs.machine, {each: each.times for each in self.programs})

    def times_on(self, machines: Sequence[Machine]) -> list[float]:
        """The time with other performance models."""
        found = {each: each.times_on(machines) for each in self.programs}
        return [
            self._time_s(machine, {each: times[x] for each, times in found.items()})
            for x, machine in enumerate(machines)
        ]

    def _time_s(self, machine: Machine, times: Mapping[Program, tuple]) -> float:
        found = [each.seconds(times[each.program]) for each in self.uses]
        return max(self.functions_s(machine) + sum(x for x, _ in found), sum(x for _, x in found))

    @property
    def moves(self) -> int:
        """Redistributions of matrices."""
        return sum(bool(each.matrix) for each in self.uses)

    def layout(self, name: str) -> str:
        """The layout of a matrix."""
        return self.layouts[self.chain.variable(name)]

    @property
    def counters(self) -> dict[str, int]:
        """Bytes by kind, of all ranks."""
        return self._sum("counters", COUNTERS)

    @property
    def phases(self) -> dict[str, float]:
        """Seconds by phase, mean over the ranks; functions count as packing."""
        found = self._sum("phases", PHASES)
        return found | {"pack": found["pack"] + self.functions_s(self.costs.machine)}

    def _sum(self, kind: str, names: Collection[str]) -> dict:
        found = [getattr(each.program.simulated, kind) for each in self.uses]
        return {name: sum(each[name] for each in found) for name in names}

    def describe(self, each: Matmul) -> str:
        """How a multiplication is computed."""
        by = {use.matrix: use.program for use in self.uses if use.operation == each.c}
        stored = [self.layout(name) for name in (*each.takes, each.c)]
        found = {"": by[""].caption}
        for x, old, new in zip("ABC", stored, self.inner[each.c]):
            if old != new:
                arrow = "⇒" if x in by and by[x].name == "gather" else "→"
                found[x] = f"{x} {arrow} {new}" if x != "C" else f"C {new} {arrow} {old}"
        return "; ".join(found[x] for x in ("A", "B", "", "C") if x in found)


#: Programs that use collectives alone; and a ring, overlapped with the multiplication.
_COLLECTIVES = frozenset((LOCAL, "gather A", "gather B", "scatter C", "gather"))
_RING = _COLLECTIVES | {"ring B"}


def known_contenders(chain: Chain) -> dict[str, tuple[dict[str, str], Collection[str]]]:
    """Published layouts of the variables, with the programs that they use.

    ``megatron`` cuts weights by columns, then by rows, and reduces on all ranks (Shoeybi et al.,
    2019); ``sequence parallel`` divides rows between the blocks and gathers and scatters them
    (Korthikanti et al., 2022); ``fsdp`` divides rows and gathers weights for each multiplication
    (Zhao et al., 2023).
    """
    variables, seen = chain.variables, {"X"}
    tensor: dict[str, str] = {}
    cut = "R"  # layout of the input: replicated, or by columns
    for each in chain.multiplications:
        if chain.matrices[each.b].kind != "weight":
            continue
        if each.c.startswith("d"):
            break
        b, c = variables[each.b], variables[each.c]
        cut = "column" if cut == "R" and c not in seen else "R"
        tensor[b] = "column" if cut == "column" else "row"
        tensor.setdefault(c, cut)
        seen.add(c)
    ends = set(variables.values()) - set(tensor)
    megatron = tensor | dict.fromkeys(ends, "R")
    megatron |= {variables["X"]: "R"}
    sequence = {name: "row" if layout == "R" else layout for name, layout in megatron.items()}
    return {
        "megatron": (megatron, _COLLECTIVES),
        "sequence parallel": (sequence, _COLLECTIVES),
        "fsdp": (dict.fromkeys(variables.values(), "row"), _RING),
    }


@no_collection()
def choose(
    chain: Chain,
    costs: Costs,
    *,
    fixed: Mapping[str, str] | None = None,
    limit: float | None = None,
    effort_s: float = EFFORT_S,
    programs: Collection[str] = EVERYTHING,
) -> Choice:
    """The layouts of all matrices of a chain, and how its multiplications are computed.

    Published layouts are simulated first, without a time limit.

    Parameters
    ----------
    chain : Chain
    costs : Costs
        Of a performance model with the chain's element type and transport; with the layouts to try.
    fixed : dict of str to str, optional
        Variables whose layout is given.
    limit : float, optional
        Bytes that a rank may hold; by default the memory of a device.
    effort_s : float
        CPU seconds of one core after which nothing further is bounded or simulated.
    programs : collection of str
        Programs to choose from (:data:`algorithms.chains.costs.LIBRARY`: those that can be run).

    Raises
    ------
    OutOfMemory
        If nothing fits.
    """
    ends_s = Clock.cpu() + effort_s
    limit = min(inf if limit is None else limit, costs.machine.memory_bytes)
    found = Choice(chain, costs, limit, dict(fixed or {}))
    found.simulate_contenders(programs)
    found.search(programs, ends_s)
    return found


class Choice:
    """The solutions found for a chain.

    Attributes
    ----------
    best : Solution
        The fastest; of equal ones that with the fewest redistributions, then that with the least
        memory.
    contenders : list of Solution
        Published layouts, the fastest first.
    refused : dict of str to str
        Contender -> why it is not possible.
    least_s : float
        Lower bound in seconds of all chains in the layouts to try.
    tried : list of Solution
        All simulated ones, the fastest first.
    finished : bool
        The search ended before the effort was spent.
    """

    def __init__(self, chain: Chain, costs: Costs, limit: float, fixed: dict):
        self.chain, self.costs, self.limit, self.fixed = chain, costs, limit, fixed
        self.domains = costs.domains(chain)
        self.tried: list[Solution] = []
        self.contenders: list[Solution] = []
        self.refused: dict[str, str] = {}
        self.finished = False
        self.least_s = chain.flops / (costs.nprocs * costs.machine.compute.peak_flops)

    @property
    def gap(self) -> float:
        """The share of its time by which the best may be slower than the fastest chain."""
        return max(0.0, 1 - self.least_s / self.best.time_s)

    @property
    def simulated(self) -> int:
        """The numbers of simulated programs of operations, and of all."""
        return sum(each.simulated is not None for each in self.costs.programs)

    def _fastest(
        self, name: str, layouts: Mapping[str, str], programs: Collection[str], limit: float
    ) -> Solution | None:
        """The fastest chain in given layouts of some variables, or the best one found until the
        effort was spent; None if none fits."""
        domains = self.domains | {variable: [layout] for variable, layout in layouts.items()}
        found: Solution | None = None
        while True:
            for least in (inf, limit):  # memory is compared only where the fastest does not fit
                factors = self.costs.factors(self.chain, domains, programs, least)
                label = search(domains, factors, least)
                if label is None:
                    return None
                if label.memory <= limit:
                    break
            if name == "chosen":
                self.least_s = max(self.least_s, label.time_s)
            one = Solution.of(name, self.chain, self.costs, label)
            known = all(each.simulated for each in one.programs)
            for each in one.programs:
                each.simulate()
            found = min(found or one, one, key=_time)
            self.tried.append(one)
            if known or found.time_s <= (1 + _EQUAL) * label.time_s:
                return found
            if Clock.cpu() > self.costs.ends_s:
                raise Spent

    def simulate_contenders(self, programs: Collection[str]) -> None:
        """Simulate published layouts; one with the requested layouts and programs is also tried."""
        for name, (layouts, allowed) in known_contenders(self.chain).items():
            if why := self._why_unsuited(layouts):
                self.refused[name] = why
                continue
            tried = len(self.tried)
            found = self._fastest(name, layouts, allowed, self.limit)
            fits = found and all(layouts[var] == text for var, text in self.fixed.items())
            if not fits or not all(each.name in programs for each in found.programs):
                del self.tried[tried:]
            if found is not None:
                self.contenders.append(found)
                continue
            more = self._fastest(name, layouts, allowed, inf)
            del self.tried[tried:]
            self.refused[name] = (
                f"a rank would hold {more.memory_bytes / 2**30:.1f} GiB, of "
                f"{self.limit / 2**30:.1f} GiB"
                if more
                else "its layouts need redistributions that no collective does"
            )
        self.contenders.sort(key=_time)

    def _why_unsuited(self, layouts: Mapping[str, str]) -> str | None:
        """The reason why the layouts of a contender are not among the chain's; None if they are."""
        for variable, layout in layouts.items():
            if layout in self.domains[variable]:
                continue
            if layout not in self.costs.layouts:
                return f"{variable} by {layout} is not among --layouts"
            for each in self.chain.operations:
                if isinstance(each, Map) and self.chain.variable(each.c) == variable:
                    why = why_not_aligned(each, self.chain, layout, self.costs.nprocs)
                    if why:
                        ranks = self.costs.nprocs
                        return f"{each.c} cannot be laid out by {layout} on {ranks} ranks: {why}"
        return None

    def search(self, programs: Collection[str], ends_s: float) -> None:
        """The fastest chain found until the effort is spent; without contenders at least one.

        Raises
        ------
        OutOfMemory
            If nothing fits.
        """
        try:
            if self.tried:
                self.costs.ends_s = ends_s
            self._fastest("chosen", self.fixed, programs, self.limit)
            self.finished = True
        except Spent:
            pass
        if not self.tried:
            fixed = ", ".join(f"{x} {y}" for x, y in self.fixed.items())
            raise OutOfMemory(
                f"no layout of {self.chain.name} on {self.costs.nprocs} ranks fits "
                f"{self.limit / 2**30:.1f} GiB a rank{f' with {fixed}' if fixed else ''}. Use more "
                "ranks, fewer tokens, or further --layouts."
            )
        self.tried.sort(key=_time)
        equal = [x for x in self.tried if x.time_s <= (1 + _EQUAL) * self.tried[0].time_s]
        self.best = min(equal, key=lambda each: (each.moves, each.memory_bytes, each.time_s))


def _time(found: Solution) -> float:
    return found.time_s
