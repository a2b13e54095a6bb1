"""The layouts of a chain: searched, simulated whole, beside what people use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from drbench.common import Clock
from drbench.errors import OutOfMemory
from drbench.model.machine import Machine
from drbench.model.simulate import Beyond, Simulated
from drbench.plan.schedule import pool_bytes
from drbench.program.trace import no_collection

from .costs import EVERYTHING, LAYOUTS, PRODUCTS, Allowed, Costs, Spent, Weights
from .description import Between, Chain, Product
from .estimate import estimate
from .program import MOVES, Bound, Programs, Way, aligned
from .search import Factor, Label, search

#: Look-aheads that every chain is simulated with.
LOOKAHEADS: tuple[int | str, ...] = (1, 4, "all")
#: CPU seconds of one core that a search may take.
EFFORT_S = 30.0
#: The same of tracing and simulating one step, before any was measured.
_STEP_S = 2e-5
#: Programs with more steps are given up once they take longer than the best.
_LARGE = 50_000
#: Steps that are simulated at once at most: half a GiB of memory a million.
_MOST_STEPS = 3_000_000
#: Chains by search that are simulated before others are made of the best.
_FIRST = 6
#: The best chains in so many layouts are then improved, if they take no more than so many times as
#: long as the best of all.
_BASES, _NEAR = 3, 1.25
#: Times that differ by less than this share are equal.
_EQUAL = 1e-3
#: Memory is looked at on so many ranks.
_SAMPLED = 16


@dataclass
class Contender:
    """A chain in layouts, simulated.

    Attributes
    ----------
    name : str
        ``chosen``, or what people call it.
    bound : Bound
    prefetch : int or str
        The fastest look-ahead.
    time_s : float
        Of the whole chain as one program.
    estimate_s : float
        The same by the program of one rank.
    memory_bytes : int
        Tiles and buffers of the rank that has most.
    found : Simulated
    times : dict
        Seconds by look-ahead, of those that fit.
    """

    name: str
    bound: Bound
    prefetch: int | str
    time_s: float
    estimate_s: float
    memory_bytes: int
    found: Simulated
    times: dict[int | str, float] = field(default_factory=dict)

    @property
    def moves(self) -> int:
        """Redistributions of matrices."""
        return sum(len((*way.a, *way.b, *way.c)) for way in self.bound.ways.values())


@dataclass
class Choice:
    """What was found for a chain.

    Attributes
    ----------
    best : Contender
        The fastest of all that were simulated whole; of equal ones that with the fewest
        redistributions, then that with the least memory.
    contenders : list of Contender
        What people use, the fastest first.
    refused : dict of str to str
        Contender -> why it cannot be.
    least_s : float
        Seconds that no chain in the layouts that are tried can be below.
    tried : list of Contender
        All that were simulated whole.
    estimated, simulated : int
        Programs of operations that were estimated, from one rank; of whole chains, simulated.
    left : int
        Whole chains that the effort was too small for.
    finished : bool
        All operations were estimated before the effort was spent.
    machine, arbitration : str
        Of the model: its name, how it shares links.
    """

    best: Contender
    contenders: list[Contender]
    refused: dict[str, str]
    least_s: float
    tried: list[Contender] = field(default_factory=list)
    estimated: int = 0
    simulated: int = 0
    left: int = 0
    finished: bool = True
    machine: str = ""
    arbitration: str | None = None

    @property
    def gap(self) -> float:
        """By which share of its time the best may be slower than the fastest chain."""
        return max(0.0, 1 - self.least_s / self.best.time_s)


_COLLECTIVES = ("universal", "gather A", "gather B", "scatter C")
#: What is done by collectives alone: gathered in each product, or once and kept for all; and by a
#: ring, beside the products.
_GATHERED = Allowed(_COLLECTIVES, ("gather",), collectives=True)
_KEPT = Allowed(("universal", "scatter C"), ("gather",), collectives=True)
_RING = Allowed((*_COLLECTIVES, "ring B"), ("gather",), collectives=True)


def known_contenders(chain: Chain) -> dict[str, tuple[dict[str, str], tuple[Allowed, ...]]]:
    """What people use: layouts of the variables, and how products are made.

    ``megatron`` cuts weights by columns, then by rows, and sums everywhere (Shoeybi et al., 2019);
    ``sequence parallel`` keeps rows apart between the blocks and gathers and scatters them
    (Korthikanti et al., 2022); ``fsdp`` keeps rows apart and gathers weights (Zhao et al., 2023).
    What is gathered is kept for further products, or gathered in each: the faster counts.
    """
    variables, seen = chain.variables, {"X"}
    tensor: dict[str, str] = {}
    cut = "R"  # how the rows that come in are laid out: whole, or by columns
    for each in chain.operations:
        if not isinstance(each, Product) or chain.matrices[each.b].kind != "weight":
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
    rows = dict.fromkeys(variables.values(), "row")
    return {
        "megatron": (megatron, (_GATHERED, _KEPT)),
        "sequence parallel": (sequence, (_GATHERED, _KEPT)),
        "fsdp": (rows, (_GATHERED, _KEPT, _RING)),
    }


def choose(
    chain: Chain,
    machine: Machine,
    nprocs: int,
    *,
    dtype: str = "float32",
    layouts: Sequence[str] | None = None,
    fixed: Mapping[str, str] | None = None,
    limit: float | None = None,
    layers: int = 1,
    effort_s: float = EFFORT_S,
) -> Choice:
    """The layouts of all matrices of a chain, and how its products are made.

    What people use is simulated first, whatever that takes; then whole chains in the order of
    their estimates, while there is effort.

    Parameters
    ----------
    chain : Chain
    machine : Machine
        As the chain sees it: with its element type and transport.
    nprocs : int
    dtype : str
    layouts : sequence of str, optional
        Text forms that are tried; by default rows, columns, blocks and copies.
    fixed : dict of str to str, optional
        Variables whose layout is given.
    limit : float, optional
        Bytes that a rank may hold; by default the memory of a device.
    layers : int
        So many layers' weights and their gradients a rank holds.
    effort_s : float
        CPU seconds of one core after which nothing further is estimated or simulated.

    Raises
    ------
    OutOfMemory
        If nothing fits.
    """
    costs = Costs(machine, nprocs, dtype, layouts or LAYOUTS, layers)
    limit = min(inf if limit is None else limit, machine.memory_bytes)
    run = _Search(chain, costs, limit, dict(fixed or {}), Clock.cpu() + effort_s)
    run.simulate_contenders()
    run.search()
    return run.choice()


class _Whole(NamedTuple):
    """A chain in layouts, not simulated yet."""

    name: str
    bound: Bound
    programs: Programs
    estimate_s: float


class _Search:
    """The state of a search: see :class:`Choice`."""

    def __init__(self, chain: Chain, costs: Costs, limit: float, fixed: dict, ends_s: float):
        self.chain, self.costs, self.limit, self.fixed = chain, costs, limit, fixed
        self.ends_s = ends_s
        self.domains = costs.domains(chain)
        self.tried: list[Contender] = []
        self.contenders: list[Contender] = []
        self.refused: dict[str, str] = {}
        self.left = self.simulated = 0
        self.finished = False
        self.known: set[str] = set()  # chains that were tried
        self.step_s = _STEP_S
        self.least_s = chain.flops / (costs.nprocs * costs.machine.compute.peak_flops)

    def simulate_contenders(self) -> None:
        """What people use, each in the fastest of its ways."""
        for name, (known, ways) in known_contenders(self.chain).items():
            if why := self._unsuited(known):
                self.refused[name] = why
                continue
            domains, made, least = {x: [y] for x, y in known.items()}, [], inf
            whole = []
            for allowed in ways:
                factors = self.costs.factors(self.chain, allowed, None, domains)
                # buffers need not be there all at once: if they seem to be too many, count them
                found = search(domains, factors, self.limit) or search(domains, factors)
                if found is None:
                    continue
                whole.append(self._whole(name, dict(found[0].notes), found[1]))
            for each in sorted(whole, key=lambda each: each.estimate_s):
                if made and (self._is_late(each) or each.estimate_s > made[0].time_s):
                    continue
                one, nbytes = self._simulated(each)
                least = min(least, nbytes)
                made += [one] if one is not None else []
            if not made:
                needed, most = (each / 2**30 for each in (least, self.limit))
                self.refused[name] = (
                    f"a rank would hold {needed:.1f} GiB, of {most:.1f} GiB"
                    if least < inf
                    else "its layouts need redistributions that no collective makes"
                )
                continue
            best = min(made, key=_time)
            self.contenders.append(best)
            if all(known.get(var) == text for var, text in self.fixed.items()):
                self.tried.append(best)
        self.contenders.sort(key=_time)

    def _unsuited(self, layouts: Mapping[str, str]) -> str | None:
        """Why the layouts of a contender are none of the chain's; None if they are."""
        for variable, layout in layouts.items():
            if layout in self.domains.get(variable, ()):
                continue
            if layout not in self.costs.layouts:
                return f"{variable} by {layout} is none of --layouts"
            for each in self.chain.operations:
                if isinstance(each, Between) and self.chain.variable(each.c) == variable:
                    why = aligned(each, self.chain, layout, self.costs.nprocs)
                    if why:
                        ranks = self.costs.nprocs
                        return f"{each.c} cannot be laid out by {layout} on {ranks} ranks: {why}"
        return None

    def search(self) -> None:
        """Whole chains in the order of their estimates, and the best with another way of one
        product, while there is effort; and the bound of all. Without any contender at least one."""
        if self.tried:
            self.costs.ends_s = self.ends_s
        found, whole = {}, []
        try:
            for label, layouts in self._candidates():
                found.setdefault(repr((label.notes, layouts)), (label, layouts))
            self.finished = True
        except Spent:
            pass
        for label, layouts in found.values():
            if whole and Clock.cpu() > self.ends_s:
                self.left += 1
                continue
            whole.append(self._whole("chosen", dict(label.notes), layouts))
        whole.sort(key=lambda each: each.estimate_s)
        for each in whole[:_FIRST]:
            self._try(each)
        bases = {repr(x.bound.layouts): x for x in sorted(self.tried, key=_time, reverse=True)}
        ranked = sorted(bases.values(), key=_time)[:_BASES]  # the best in some layouts each
        for base in ranked:
            if base.time_s > _NEAR * ranked[0].time_s:
                break
            faster: Contender | None = base
            while faster is not None:
                base, faster = faster, self._improved(faster)
        for each in whole[_FIRST:]:
            self._try(each)

    def _improved(self, base: Contender) -> Contender | None:
        """A chain that is faster with another way of some of its products."""
        layouts, best = base.bound.layouts, base
        domains = {x: [y] for x, y in layouts.items()}
        for each in self.chain.products:
            others = []
            for name in PRODUCTS:
                if Clock.cpu() > self.ends_s:
                    return None
                factor = self.costs.factor(self.chain, each, domains, Allowed((name,), MOVES))
                for label in (y for x in factor.table.values() for y in x):
                    ways = best.bound.ways | dict(label.notes)
                    others.append(self._whole("chosen", ways, layouts))
            for one in sorted(others, key=lambda one: one.estimate_s):
                best = min(best, self._try(one) or best, key=_time)
        return best if best.time_s < (1 - _EQUAL) * base.time_s else None

    def _try(self, whole: _Whole) -> Contender | None:
        """Simulate a chain that was not before, if it may be the fastest and there is effort."""
        key = repr((whole.bound.layouts, sorted(whole.bound.ways.items())))
        best_s = min((each.time_s for each in self.tried), default=inf)
        if key in self.known or whole.estimate_s > best_s:
            return None
        self.known.add(key)
        if self.tried and self._is_late(whole):
            self.left += 1
            return None
        one, _ = self._simulated(whole, self.tried)
        self.tried += [one] if one is not None else []
        return one

    def _is_late(self, whole: _Whole) -> bool:
        """Whether a simulation would take more than what is left of the effort, or of memory."""
        steps = whole.programs.steps
        return steps > _MOST_STEPS or Clock.cpu() + self.step_s * steps > self.ends_s

    def _whole(self, name: str, ways: dict[str, Way], layouts: dict[str, str]) -> _Whole:
        bound = Bound(self.chain, self.costs.nprocs, layouts, ways, self.costs.dtype)
        programs = Programs(bound, self.costs.machine)
        return _Whole(name, bound, programs, estimate(programs.first, self.costs.machine).time_s)

    def _candidates(self) -> Iterator[tuple[Label, dict[str, str]]]:
        """The best chain by the estimates of its operations, and the best with each layout of each
        variable; then the chains that bound all others, and the best in their layouts.

        Neither what the core does nor what goes over a link overlaps with itself, so no chain is
        faster than the least weighted mean of the seconds of both.
        """
        factors = self.costs.factors(self.chain)
        fixed: list[dict[str, str]] = [{}]
        for variable, layouts in self.domains.items():
            fixed += [{variable: layout} for layout in layouts if variable not in self.fixed]
        for each in fixed:
            yield from self._search(factors, each)
        bounds = [Weights(1.0, "")]
        bounds += [Weights(core, link) for link in self.costs.links() for core in (0.5, 0.0)]
        for weights in bounds:
            weighted = self.costs.factors(self.chain, EVERYTHING, weights)
            for label, layouts in self._search(weighted, {}):
                self.least_s = max(self.least_s, label.time_s)
                yield label, layouts
                yield from self._search(factors, layouts)

    def _search(self, factors: Sequence[Factor], more: Mapping[str, str]) -> list:
        """The best chain with these layouts; empty if none fits."""
        self.costs.check()
        found = search(self.domains, factors, self.limit, self.fixed | more)
        return [] if found is None else [found]

    def _simulated(
        self, whole: _Whole, rivals: Sequence[Contender] = ()
    ) -> tuple[Contender | None, float]:
        """A chain in layouts as one program, with the look-ahead that is fastest and fits, and the
        bytes that a rank needs at least. None if none fits, or if it is slower than its rivals."""
        costs, began = self.costs, Clock.cpu()
        bound, programs = whole.bound, whole.programs
        fastest_s = min((each.time_s for each in rivals), default=inf) * (1 + _EQUAL)
        best, times, least = None, {}, inf
        with no_collection():
            simulator = programs.simulator(costs.machine)
            tiles = max(_tile_bytes(bound, rank, costs.layers) for rank in range(costs.nprocs))
            sampled = programs.traces[:: max(1, len(programs.traces) // _SAMPLED)]
            for ahead in LOOKAHEADS:
                memory = tiles + max(pool_bytes(each, ahead) for each in sampled)
                least = min(least, memory)
                if memory > self.limit:
                    continue
                large = programs.steps > _LARGE
                if large and best is not None:
                    fastest_s = min(fastest_s, best.time_s)
                if large and times and Clock.cpu() > self.ends_s:
                    break
                self.simulated += 1
                try:
                    run = simulator.run(ahead, within_s=fastest_s if large else inf)
                except Beyond:
                    continue
                times[ahead] = run.time_s
                if best is None or run.time_s < best.time_s:
                    rest = whole.estimate_s, memory, run, times
                    best = Contender(whole.name, bound, ahead, run.time_s, *rest)
        if programs.steps > _LARGE // 10:
            self.step_s = (Clock.cpu() - began) / programs.steps
        return best, least

    def choice(self) -> Choice:
        """What was found.

        Raises
        ------
        OutOfMemory
            If nothing fits.
        """
        costs = self.costs
        if not self.tried:
            fixed = ", ".join(f"{x} {y}" for x, y in self.fixed.items())
            raise OutOfMemory(
                f"no layout of {self.chain.name} on {costs.nprocs} ranks fits "
                f"{self.limit / 2**30:.1f} GiB a rank{f' with {fixed}' if fixed else ''}. Use more "
                "ranks, fewer tokens, or further --layouts."
            )
        self.tried.sort(key=_time)
        equal = [x for x in self.tried if x.time_s <= (1 + _EQUAL) * self.tried[0].time_s]
        return Choice(
            min(equal, key=lambda each: (each.moves, each.memory_bytes, each.time_s)),
            self.contenders,
            self.refused,
            self.least_s,
            self.tried,
            costs.estimated,
            self.simulated,
            self.left,
            self.finished,
            costs.machine.name,
            costs.machine.arbitration,
        )


def _time(found: Contender) -> float:
    return found.time_s


def _tile_bytes(bound: Bound, rank: int, layers: int) -> int:
    """Bytes of a rank's tiles, the weights of all layers included."""
    stays = bound.chain.stays
    return sum(
        nbytes * (layers if name in bound.chain.matrices and stays(name) else 1)
        for name, nbytes in bound.tile_bytes(rank).items()
    )
