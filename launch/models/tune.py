"""Choosing among candidates within a memory budget: by a machine model's times, or without one by
bytes and balance.

Candidates are of families, each of which learns how far its own estimates are off: the universal
algorithm with Stationary A, B and C, apart where tiles are aligned or sums are pushed; the grids of
preset optimal; each overlap program with each variant; each other algorithm. Each candidate has a
lower bound and an estimate: all triples of layouts at once (:mod:`.sieve`), others from the trace
of one rank. What is promising by that is estimated anew from one rank simulated alone, its groups
standing for all ranks, but where it would wait for signals of others. The best estimate of every
family is simulated before any family gets a second, families with few steps first; then the best
estimate of all is next, those of a family being scaled by what its simulated programs took over
theirs. A program that was simulated brings in its variants: other look-aheads, and other
communication tiles.

The search ends when no bound left is below the worst of the best so far, so that what is left out
cannot be among them; or when the ``effort``, seconds of CPU, is spent: then it is said by how much
what is left could be better at most. A program that would take longer than what is left of the
effort is passed over. Equal layouts, and options that come to the same program, are one candidate.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from heapq import heappop, heappush
from math import ceil, inf
from operator import attrgetter, itemgetter
from typing import NamedTuple

import numpy as np

from algorithms import get_algorithm
from drbench.common import Clock
from drbench.errors import DrbenchError, OutOfMemory, UnsupportedError, UsageError
from drbench.measure.record import Record
from drbench.model.bounds import Bound, bound_of, moving_s
from drbench.model.machine import Machine
from drbench.model.simulate import Beyond, Simulator
from drbench.model.symmetry import even
from drbench.plan.explain import Loads, busiest, loads
from drbench.program.problem import AXES, Operand, Problem
from drbench.program.steps import COUNTERS
from drbench.program.trace import Trace, no_collection
from launch.cases.case import Case
from launch.host.units import format_bytes
from partitions import LayoutError, Partition, flows, partition

from .candidates import (
    REPLICATION,
    TuneRequest,
    candidates,
    changed,
    on_triple,
    others,
    pushed,
    settings,
    texts,
    variants,
    ways,
    with_copies,
)
from .counts import counted, share_of
from .intervals import alternatives
from .predict import (
    Programs,
    nodes_on,
    planning_model,
    predict_with,
    programs,
    programs_of,
    reads_in_place,
    refuse_more_ranks,
    seen_by,
    with_interval,
)
from .sieve import Rates, Sieve, counts, rates_of

#: Without a model, candidates whose busiest rank multiplies more than this times its even share
#: come after all others: bytes say nothing of that.
EVEN = 1.1
_UNEVEN = 1e30  # bytes that no candidate moves
_counters = attrgetter(*COUNTERS)
#: What a variant of a program is taken to need of the time of the program, before it is simulated.
_FINER = 0.95
#: Programs of a family that are judged until half of what they say of its estimates is believed.
_TRUST = 1
#: So many times what judging it takes does the interval of a program, about.
_VARIED = 3
#: Looks at candidates of a family before the first of them is judged, whatever others may be.
_LOOKED = 24
#: Shares of the effort after which no more candidates are traced ahead, simulated, refined, and
#: no more places get an interval.
_TRACED, _SIMULATED, _REFINED, _TOLD = 0.25, 0.65, 0.8, 0.85
#: Options that change what a program moves little or not at all: candidates that differ in them
#: alone are traced after one of them.
_FINE = {"slices", "unroll", "tile", "kernel", "swizzle", "order", "panel", "chunk", "sums"}
#: Programs with more steps, of all ranks, are not lowered in a search: that takes far longer.
_STEPS = {"greedy": 4000, "cost": 4000, "exhaustive": 100}


class Moving(NamedTuple):
    """What bringing A and B into a layout, and C back, moves, one matrix after another.

    Attributes
    ----------
    moved_bytes, busiest_bytes : int
        Of all ranks together; the most that one rank sends or receives.
    seconds : float or None
        By a machine model.
    """

    moved_bytes: int = 0
    busiest_bytes: int = 0
    seconds: float | None = None


@dataclass(frozen=True)
class Place:
    """A place of the ranking.

    Attributes
    ----------
    case : Case
    memory : int
        Bytes of the largest rank's tiles and buffers.
    moving : Moving
        From and to the layouts of today; nothing where none are named.
    record : Record or None
        By a machine model; None without one.
    loads : Loads or None
        Without a machine model.
    equals : int
        How many other candidates come to the same numbers and memory: they cannot be told apart.
    bound : Bound or None
        By a machine model: what no run of it can be faster than, its products and its busiest link.
    needed : int or None
        Without a machine model: bytes that a rank stores and moves, of the rank with most.
    """

    case: Case
    memory: int
    moving: Moving
    record: Record | None
    loads: Loads | None
    equals: int
    bound: Bound | None = None
    needed: int | None = None

    @property
    def moved_bytes(self) -> int:
        """Of all ranks together, in the product."""
        return self.loads.moved_bytes if self.record is None else self.record.moved_bytes or 0

    @property
    def cost(self) -> float:
        """Seconds, or without a model bytes that the busiest rank sends or receives."""
        return self.loads.busiest_bytes if self.record is None else self.record.best_s

    @property
    def price(self) -> float:
        """What bringing the matrices here and back costs, as ``cost``."""
        return self.moving.busiest_bytes if self.record is None else self.moving.seconds


def within(ranking: list[Place], products: int = 1) -> list[int]:
    """Which further places, the second being 2, may be as fast as the first for all that is known:
    what they take lies in its interval, what is brought here included.

    Examples
    --------
    >>> make = lambda seconds: Record(
    ...     mode="simulated", status="ok", best_s=seconds, median_low_s=0.9, median_high_s=1.1
    ... )
    >>> places = [Place(None, 0, Moving(0, 0, 0.1), make(s), None, 0) for s in (1.0, 1.05, 1.2)]
    >>> within(places), within([])
    ([2], [])
    """
    if not ranking or ranking[0].record is None or ranking[0].record.median_high_s is None:
        return []
    charge = lambda place: place.moving.seconds / products
    most = ranking[0].record.median_high_s + charge(ranking[0])
    costs = [place.record.best_s + charge(place) for place in ranking]
    return [at for at, cost in enumerate(costs, 1) if at > 1 and cost <= most]


def beyond_interval(found: "Found") -> bool:
    """Whether what was not searched could be faster than the first place, beyond its interval."""
    first = found.ranking[0].record
    if not found.left:
        return False
    if first is None or first.median_low_s is None:
        return found.gap > 0
    return first.best_s / (1 + found.gap) < first.median_low_s


@dataclass
class Found:
    """The ranking, best first, and what was looked at.

    Attributes
    ----------
    ranking : list of Place
    tried, merged, judged, refused, too_large : int
        Candidates; those that come to the same as another; programs simulated, or whose bytes were
        counted on all ranks; those not supported, and beyond the memory.
    refined : int
        Programs simulated with other chunks, look-aheads and lowerings (``TuneRequest.refine``).
    left : int
        Candidates that the effort did not suffice for, though their bound does not exclude them.
    gap : float
        How much faster than the first place one of them could be, at most: its time over their
        least bound, less 1; 0 if there are none. Without a model by bytes.
    mine : Place or None
        The best on the layouts of today; None if none are named, or nothing fits the memory there.
    why_not : str
        Why there is no ``mine`` though layouts are named.
    better : bool
        Whether the first place, on other layouts than ``mine``, costs less than it.
    """

    ranking: list[Place] = field(default_factory=list)
    tried: int = 0
    merged: int = 0
    judged: int = 0
    refused: int = 0
    too_large: int = 0
    refined: int = 0
    left: int = 0
    gap: float = 0.0
    mine: Place | None = None
    why_not: str = ""
    better: bool = False

    @property
    def times_better(self) -> float | None:
        """How many times as fast as ``mine`` the first place is, or how many times fewer bytes its
        busiest rank moves; None if it moves none, or is not better."""
        first = self.ranking[0].cost if self.better else 0
        return self.mine.cost / first if first else None

    @property
    def pays_after(self) -> int | None:
        """Products after which bringing the matrices to the first place has paid, in time or in
        bytes of the busiest rank; None if it is not better."""
        if not self.better:
            return None
        first = self.ranking[0]
        return max(1, ceil(first.price / (self.mine.cost - first.cost)))


class _ByModel:
    """Candidates in order of predicted seconds."""

    timed = True

    def __init__(self, request: TuneRequest, machine: Machine):
        refuse_more_ranks(machine, request.ranks)
        if request.memory is not None:
            machine = machine.with_value("memory_bytes", min(request.memory, machine.memory_bytes))
        self.request, self.machine = request, machine
        self.seen = seen_by(request.case, machine)
        self.memory_bytes = self.seen.memory_bytes
        self.in_place = reads_in_place(self.seen, request.ranks)
        self.nodes = nodes_on(self.seen, request.ranks)
        self.cuts = ("auto",) if self.in_place else ("auto", "none")
        self._made: tuple[str, Programs | None] = "", None
        self._numbers = {link.name: number for number, link in enumerate(self.seen.links)}
        case, compute = request.case, self.seen.compute
        rate = request.ranks * compute.peak_flops * compute.sustained
        self.least_of_all = 2 * case.m * case.n * case.k / rate  # of any program

    def trace(self, algorithm, problem: Problem, resolved: dict) -> Trace:
        """Of the first rank, as it is simulated."""
        return algorithm.trace(problem, 0, planning_model(self.seen, resolved), **resolved)

    def rates(self, itemsize: int) -> Rates:
        return rates_of(self.seen, itemsize, self.request.ranks)

    def classes(self, one: int, two: int) -> int:
        """The number of the class of links between two ranks."""
        return self._numbers[self.seen.link(one, two).name] if self._numbers else 0

    def first(self, seconds: float) -> tuple:
        """What a key with that bound begins with."""
        return (seconds,)

    def estimate(self, bound: tuple, guess: float) -> float:
        """What a program is likely to take, before a rank of it is simulated."""
        return max(bound[0], guess)

    def alone_s(self, case: Case) -> float:
        """What the first rank takes alone, whose groups stand for all; 0 where it would wait for
        signals of others."""
        case, algorithm, problem, options = with_copies(case, self.request.ranks)
        resolved = algorithm.resolve(problem, self.in_place, **options)
        trace = self.trace(algorithm, problem, resolved)
        with suppress(DrbenchError):
            if not any(step.signals for step in trace.steps):
                return Simulator([trace], self.seen).run(case.ahead(resolved)).time_s
        return 0.0

    def charge(self, moved) -> float:
        return moving_s(moved, self.seen)

    def _programs(self, case: Case) -> Programs | None:
        """Those of a case, kept for its other look-aheads; None if it is refused, which is told
        when it is predicted."""
        key = repr(replace(case, prefetch=None))
        if self._made[0] != key:
            try:
                self._made = key, programs_of(case, self.machine, self.request.ranks)
            except DrbenchError:
                self._made = "", None
        return self._made[1]

    def least(self, trace, moving: Moving) -> tuple:
        least_s = bound_of([trace], self.seen).seconds
        return (least_s + moving.seconds / self.request.products,)

    def bound(self, case: Case) -> Bound:
        """Of the traces of all ranks."""
        if made := self._programs(case):
            return bound_of(made.traces, self.seen)
        return bound_of(programs(case, self.seen, self.request.ranks), self.seen)

    @property
    def device(self) -> bool:
        """Whether something else than the cores that compute moves the data."""
        return not self.machine.adds_on_core

    def told(self, case: Case, record: Record) -> Record:
        """With the interval of its time."""
        ranks, made = self.request.ranks, self._programs(case)
        return with_interval(record, case, self.machine, ranks, made, self.others)

    @cached_property
    def others(self) -> tuple:
        """What the machine may be instead."""
        return alternatives(self.machine)

    def judge(self, case: Case, tiles: int, moving: Moving, worst: tuple | None = None) -> tuple:
        """(key, memory, record, what tells it from others, steps); the key None if it is refused,
        and without end if it is certain to be worse than ``worst``."""
        extra_s = moving.seconds / self.request.products
        within = inf if worst is None else (worst[0] - extra_s) * (1 + 1e-9)
        how = {"pool": True, "within_s": within, "made": self._programs(case)}
        try:
            record, _ = predict_with(case, self.machine, self.request.ranks, **how)
        except Beyond as slower:
            return (inf,), 0, None, (), slower.steps
        if record.status != "ok":
            return None, 0, record, (), record.steps or 0
        key = (record.best_s + extra_s,)
        return key, tiles + (record.pool_bytes or 0), record, _counters(record), record.steps


class _ByBytes:
    """Candidates whose work is even first, then in order of the bytes of the busiest rank, then of
    all, then of how many transfers they are."""

    machine, in_place, cuts, timed, classes = None, False, ("auto",), False, None
    device = False
    nodes = (0,)
    least_of_all = 0.0

    def __init__(self, request: TuneRequest):
        self.request = request
        self.memory_bytes = inf if request.memory is None else request.memory

    def trace(self, algorithm, problem: Problem, resolved: dict) -> Trace:
        return algorithm.trace(problem, 0, **resolved)

    def rates(self, itemsize: int) -> Rates:
        return counts(itemsize)

    def first(self, nbytes: float) -> tuple:
        return False, nbytes

    def estimate(self, bound: tuple, guess: float) -> float:
        return _UNEVEN * bound[0] + bound[1]

    def alone_s(self, case: Case) -> float:
        return 0.0

    def charge(self, moved) -> None:
        return None

    def bound(self, case: Case) -> None:
        return None

    def told(self, case: Case, record: None) -> None:
        return None

    def _key(self, found: Loads, share: float, moving: Moving) -> tuple:
        products = self.request.products
        return (
            share > EVEN,
            found.busiest_bytes + moving.busiest_bytes / products,
            found.moved_bytes + moving.moved_bytes / products,
            found.transfers,
        )

    def least(self, trace, moving: Moving) -> tuple:
        found = loads([trace])
        return self._key(found, share_of(found, trace.problem), moving)

    def judge(self, case: Case, tiles: int, moving: Moving, worst=None) -> tuple:
        found = counted(case, self.request.ranks)
        if found.memory > self.memory_bytes:
            return None, found.memory, None, (), found.loads.transfers
        key = self._key(found.loads, found.share, moving)
        steps = found.loads.transfers
        return key, found.memory, None, found.loads, steps, found.needed


class _Today:
    """The layouts of today, and what it takes to leave them and come back."""

    def __init__(self, request: TuneRequest, charge):
        case, self._charge = request.case, charge
        self._known: dict = {}
        self._itemsizes = Problem(1, 1, 1, 1, dtype=case.dtype).itemsizes
        self._held = {
            name: _operand(case, name, text, request.ranks, f"the layout of {name} today").partition
            for name, text in zip("ABC", request.today)
            if text is not None
        }

    def moving(self, problem: Problem) -> Moving:
        """To the layouts of a problem, C from there."""
        parts = [self._matrix(name, problem.operand(name).stored) for name in self._held]
        seconds = self._charge([])
        return Moving(
            sum(each.moved_bytes for each in parts),
            sum(each.busiest_bytes for each in parts),
            None if seconds is None else sum((each.seconds for each in parts), seconds),
        )

    def _matrix(self, name: str, other: Partition) -> Moving:
        key = name, other
        if key not in self._known:
            ends = (other, self._held[name]) if name == "C" else (self._held[name], other)
            size = self._itemsizes[name]
            moved = [(source, target, size * count) for source, target, count in flows(*ends)]
            total = sum(nbytes for *_, nbytes in moved)
            self._known[key] = Moving(total, busiest(moved), self._charge(moved))
        return self._known[key]


def tune(request: TuneRequest, machine: Machine | None = None) -> Found:
    """Rank the candidates by the model, or without one by bytes and balance. A C with replicas is
    finished on all of them. Of layouts of today (``request.today``) the best is found too, within a
    third of the effort more.

    Raises
    ------
    UsageError
        If the request makes no sense.
    OutOfMemory
        If candidates were refused for memory alone.
    UnsupportedError
        If no candidate fits the fixed partitions, or the machine has no peak for the element type.
    """
    with no_collection():  # the search is freed before Python's collector looks again
        found = _ranked(request, machine)
        if any(request.today):
            _compare_with_today(found, request, machine)
    return found


def _compare_with_today(found: Found, request: TuneRequest, machine: Machine | None) -> None:
    """Find the best on the layouts of today, and whether the first place is better."""
    a, b, c = (
        own or given
        for own, given in zip(request.today, (request.case.a, request.case.b, request.case.c))
    )
    effort = request.effort and request.effort / 3
    case = replace(request.case, a=a, b=b, c=c)
    stay = replace(request, case=case, today=(None,) * 3, top=1, effort=effort)
    try:
        found.mine = _ranked(stay, machine).ranking[0]
    except (OutOfMemory, UnsupportedError) as error:
        found.why_not = str(error)
        return
    first, ranks = found.ranking[0], request.ranks
    layouts = lambda place: [each.stored for each in with_copies(place.case, ranks)[2].operands]
    same = layouts(first) == layouts(found.mine)
    found.better = first.cost < found.mine.cost and not same


def _ranked(request: TuneRequest, machine: Machine | None) -> Found:
    ruler = _ByBytes(request) if machine is None else _ByModel(request, machine)
    search = _Search(request, ruler)
    ranking = search.run()
    found, why = search.found, search.why
    if not ranking.places:
        if found.too_large:
            raise OutOfMemory(
                f"none of {found.tried} candidates fits {format_bytes(ruler.memory_bytes)} a rank. "
                "Use more ranks, or a larger --memory."
            )
        if why:
            raise UnsupportedError(f"none of {found.tried} candidates fits: {why}")
        raise UnsupportedError(
            f"none of {found.tried} candidates takes these partitions. Fix fewer of them, or add "
            "universal to --only."
        )
    late = lambda program: search._spent(_TOLD, _VARIED * program.cost_s)
    found.ranking = ranking.ranking(late)
    return found


def every_program(request: TuneRequest, machine: Machine | None = None) -> list[Case]:
    """One case of each program among the candidates of a request, in their order: what a search
    that left nothing out would judge. Candidates that come to the same program are one; those that
    are refused, or too large, are left out. Chunks, look-aheads and lowerings that a search tries
    of its first places are not among them.

    Raises
    ------
    UsageError
        If the request makes no sense.

    Examples
    --------
    >>> request = TuneRequest(Case(64, 64, 64, "row", "row"), 2, ("universal",), replication="none")
    >>> [(case.c, case.options["stationary"]) for case in every_program(request)]
    [('row', 'C'), ('row', 'B'), ('row', 'A'), ('column', 'C'), ('column', 'B'), ('column', 'A')]
    """
    ruler = _ByBytes(request) if machine is None else _ByModel(request, machine)
    search = _Search(request, ruler)
    with no_collection():
        for number, case in enumerate(candidates(request, ruler.cuts, ruler.timed), 1):
            search._add(case, number)
    found = sorted(search.programs.values(), key=attrgetter("number"))
    return [program.case for program in found]


def _streams(request: TuneRequest, ruler, found: Found) -> "list[_Stream]":
    """All triples of layouts of the universal algorithm with Stationary C, B and A; candidates are
    counted, those on layouts that equal others, and those whose tiles alone are too large."""
    named, how = texts(request), ways(ruler.cuts, ruler.timed)
    if not named:
        return []
    layouts, written, factors = {}, [], []
    for name in "ABC":
        known = {}  # equal layouts once
        for text, factor in named[name]:
            operand = _operand(request.case, name, text, request.ranks, f"--{name.lower()}")
            known.setdefault(operand.partition, (operand, text, factor))
        layouts[name], its_texts, its_factors = map(list, zip(*known.values()))
        written.append(its_texts)
        factors.append(its_factors)
    fits, count = _fitting(request, factors), 3 * len(how)
    every = _fitting(request, [[factor for _, factor in named[name]] for name in "ABC"])
    sizes = Problem(1, 1, 1, 1, dtype=request.case.dtype).itemsizes
    tiles = (
        np.array([each.partition.local_size(0) * sizes[name] for each in layouts[name]])
        for name in "ABC"
    )
    large = sum(np.ix_(*tiles)) > ruler.memory_bytes
    found.tried += count * int(every.sum())
    found.merged += count * int(every.sum() - fits.sum())
    found.too_large += count * int((fits & large).sum())

    def cases(stationary: str, number: int) -> list[Case]:
        triple = np.unravel_index(number, fits.shape)
        chosen = [its_texts[int(x)] for its_texts, x in zip(written, triple)]
        return [on_triple(request.case, chosen, stationary, way) for way in how]

    case = request.case
    sieve = Sieve(layouts, (case.m, case.n, case.k), ruler.rates(sizes["A"]), ruler.classes)
    bounds, guesses = sieve.all()
    return [
        _Stream(partial(cases, each), fits & ~large, bounds[..., which], guesses[..., which])
        for which, each in enumerate("CBA")
    ]


class _Stream:
    """The triples with one stationary matrix, in the order of their estimates."""

    def __init__(self, cases: Callable[[int], list[Case]], fits, bounds, guesses):
        left, bounds, guesses = np.flatnonzero(fits.ravel()), bounds.ravel(), guesses.ravel()
        self._cases, self._at = cases, 0
        self._order = left[np.argsort(guesses[left], kind="stable")]
        self._guesses = np.append(guesses[self._order], inf)
        self._bounds = np.append(bounds[self._order], inf)
        self._least = np.minimum.accumulate(self._bounds[::-1])[::-1]

    @property
    def guess(self) -> float:
        """The estimate of the next one; inf if there is none."""
        return self._guesses[self._at]

    @property
    def least(self) -> float:
        """The smallest bound that is left."""
        return self._least[self._at]

    def left(self, below: float) -> int:
        """Triples left with a bound of at most that."""
        return int((self._bounds[self._at : -1] <= below).sum())

    def drop(self) -> None:
        """None of those left can have a place."""
        self._at = len(self._order)

    def take(self) -> tuple[float, float, list[Case]]:
        """Bound, estimate and cases of the next one."""
        at = self._at
        self._at += 1
        return float(self._bounds[at]), float(self._guesses[at]), self._cases(self._order[at])


def _operand(case: Case, name: str, text: str, ranks: int, what: str) -> Operand:
    transposed = name.lower() in (case.transpose or "")
    shape = tuple(getattr(case, axis) for axis in AXES[name])
    try:
        bound = partition(text, shape[::-1] if transposed else shape, ranks, role=name)
    except LayoutError as error:
        raise UsageError(f"{what}: {error}") from None
    return Operand(name, bound, transposed)


def _fitting(request: TuneRequest, factors: list) -> np.ndarray:
    """Which triples of layouts with these factors are tried: an array (of A, of B, of C)."""
    fits = REPLICATION[request.replication or "all"](*np.ix_(*factors))
    return np.broadcast_to(fits, [len(each) for each in factors])


class _Family:
    """Candidates of one kind, the most promising first.

    Attributes
    ----------
    open : list
        A heap of (estimate, bytes of tiles, number, program, case): a program, and the case of
        a variant of one that was judged; None for the program of a case that is not traced yet.
    stream : _Stream or None
        Triples of layouts that are not traced yet.
    scale : float
        What estimates are taken to be too small by: the least time over estimate of what was
        judged, the nearer to it the more that was.
    judged : int
        Programs that were.
    """

    def __init__(self, stream: _Stream | None = None):
        self.open: list = []
        self.stream, self.scale, self.judged, self._ratio = stream, 1.0, 0, inf

    @property
    def next(self) -> float:
        """What its most promising candidate is likely to take; inf if there is none."""
        return self.scale * min(self.estimate, self.stream.guess if self.stream else inf)

    @property
    def estimate(self) -> float:
        """Of the most promising that is open; inf if nothing is."""
        return self.open[0][0] if self.open else inf

    @property
    def head(self) -> "_Program | None":
        """The most promising program; None if that is not traced yet."""
        return self.open[0][3] if self.open and self.scale * self.estimate <= self.next else None

    def learn(self, estimate: float, took: float) -> None:
        """A program was judged that was estimated so."""
        self.judged += 1
        if 0 < estimate and took < inf:
            self._ratio = min(self._ratio, took / estimate)
            self.scale = max(self._ratio, 1.0) ** (self.judged / (self.judged + _TRUST))


class _Search:
    """What is open, judged and found of a request."""

    def __init__(self, request: TuneRequest, ruler):
        self.request, self.ruler, self.why = request, ruler, ""
        self.found, self.today = Found(), _Today(request, ruler.charge)
        self.streams = _streams(request, ruler, self.found)
        self.ranking = _Ranking(ruler, request, self.found)
        self.programs: dict[tuple, _Program] = {}  # those that differ, by what they are
        self.families = {
            f"universal S-{each}": _Family(stream) for each, stream in zip("CBA", self.streams)
        }
        self.number = 0  # of the last candidate
        self.costly: list[_Program] = []  # that the effort does not suffice for
        self.sizes: dict = {}  # (matrix, layout) -> bytes of each rank's tiles
        self._started = Clock.cpu()

    def run(self) -> "_Ranking":
        """Judge what may have a place."""
        ranking = self.ranking
        self._trace_others()
        began: set[str] = set()
        while left := self.families.keys() - began:  # families with signals begin as others do
            steps = {
                name: head.steps if (head := self.families[name].head) else inf for name in left
            }
            name = min(sorted(left), key=steps.get)
            began.add(name)
            self._judge_first(self.families[name], len(left))
        while not self._spent(_SIMULATED):
            family = min(self.families.values(), key=attrgetter("next"), default=None)
            if family is None or family.next == inf:
                break
            self._judge_next(family)
        while self.costly and not ranking.places:  # there is nothing else
            self.costly.sort(key=attrgetter("cost_s"), reverse=True)
            ranking.judge(program := self.costly.pop(), program.case)
        self._end()
        ranking.refine(lambda: self._spent(_REFINED))
        return ranking

    def _spent(self, share: float, needed_s: float = 0.0) -> bool:
        """Whether a share of the effort is, with what comes next; while no place is taken, only
        if what comes next takes more than all of it."""
        effort = self.request.effort
        if effort is None:
            return False
        if not self.ranking.places:
            return needed_s > share * effort
        return Clock.cpu() - self._started + needed_s > share * effort

    def _trace_others(self) -> None:
        """Bounds and estimates of what is no triple: of each kind first, then with its fine
        options, unless that takes too long: then they are taken to need as much."""
        every, kinds, count = list(others(self.request, self.ruler.cuts, self.ruler.timed)), {}, []
        self.found.tried, self.number = self.found.tried + len(every), len(every)
        late = lambda how: ("sums" in how, -(how.get("tile") or 0))  # few steps first
        for number, case in sorted(enumerate(every, 1), key=lambda each: late(each[1].options)):
            kind = case.algorithm, case.a, case.b, case.c, _coarse(case)
            count.append((kinds.setdefault(kind, 0), number, kind, case))
            kinds[kind] += 1
        first: dict[tuple, _Program | None] = {}
        for _, number, kind, case in sorted(count, key=itemgetter(0)):
            effort, known = self.request.effort, first.get(kind)
            if effort is None or Clock.cpu() - self._started < _TRACED * effort:
                first.setdefault(kind, self._add(case, number))
            elif known or kind not in first:
                likely = known.estimate if known else self.ruler.least_of_all
                tiles = known.tiles if known else 0
                heappush(self._family(case).open, (likely, tiles, number, None, case))

    def _family(self, case: Case, resolved: dict | None = None) -> _Family:
        """That of a case."""
        name = case.algorithm
        if name == "universal":
            grid = case.a is not None and case.a.startswith("grid:")
            stationary = (resolved or case.options).get("stationary")
            name = "optimal" if grid else f"universal S-{stationary}"
            name += " aligned" if case.a and case.a.startswith("traditional") else ""
            name += " pushed sums" if (resolved or case.options).get("sums") == "push" else ""
        elif get_algorithm(name).signalling(**case.options):  # estimates are bounds of one rank
            name += f" {_coarse(case)}"
        return self.families.setdefault(name, _Family())

    def _judge_first(self, family: _Family, left: int) -> None:
        """Judge the best estimate of a family that none was judged of yet, unless its bound is
        above the best time; looks at its candidates take no more than an even share of the effort
        among the families that are left."""
        now, looked, places = Clock.cpu() - self._started, 0, self.ranking.places
        effort = self.request.effort
        until = inf if effort is None else now + max(_SIMULATED * effort - now, 0.0) / left
        while not family.judged and family.next < inf and not self._spent(_SIMULATED):
            if places and family.head and family.head.least > places[0].key:
                return
            looked += 1
            late = Clock.cpu() - self._started > until
            self._judge_next(family, look=looked < _LOOKED and not late)
            if late and places:
                return

    def _judge_next(self, family: _Family, look: bool = True) -> None:
        """Trace, estimate anew or judge the most promising of a family; ``look`` if another may be
        looked at first where it is less promising than it seemed."""
        if family.stream and self._beyond(family.stream.least):
            family.stream.drop()
        if family.stream and family.stream.guess < family.estimate:
            least, guess, cases = family.stream.take()
            for case in () if self._beyond(least) else cases:
                self.number += 1
                self._add(case, self.number, least, guess)
            return
        if not family.open:
            return
        *_, number, program, case = heappop(family.open)
        if program is None:
            self._add(case, number)
            return
        if self.ranking.beyond(program.least):
            return
        if not program.alone:
            program.alone, before = True, program.estimate
            extra_s = (program.moving.seconds or 0.0) / self.request.products
            program.estimate = max(before, self.ruler.alone_s(program.case) + extra_s)
            if look and program.estimate > before:  # another may be more promising now
                again = program.estimate, program.tiles, number, program, case
                heappush(family.open, again)
                return
        if self._spent(_SIMULATED, program.cost_s):
            self.costly.append(program)
            return
        self._judge(family, program, case)

    def _judge(self, family: _Family, program: "_Program", case: Case | None) -> None:
        """Judge a program, and at once with transfers that look ahead without end, since its
        programs are there; learn from it, and open its other variants. Or judge one of these."""
        ranking, timed, took, later = self.ranking, self.ruler.timed, inf, []
        if case is not None:
            ranking.judge(program, case)
            return
        case = program.case
        for each in variants(case, self.ruler.device):
            if each not in (case, replace(case, prefetch="all")):
                later.append(each)
            elif timed or program.best is None:
                judged = ranking.judge(program, each)
                took = min(took, judged.key[0] if judged.key and timed else inf)
        refused = ranking.refused.get(id(program))  # None, or whether for its memory alone
        worst = ranking.worst[0] if timed and ranking.worst and refused is None else inf
        family.learn(program.estimate, min(took, worst))
        likely = _FINER * (took / family.scale if took < inf else program.estimate)
        for each in later if (timed if refused is None else refused) else ():
            self.number += 1
            heappush(family.open, (likely, program.tiles, self.number, program, each))

    def _beyond(self, least: float) -> bool:
        return self.ranking.beyond(self.ruler.first(least))

    def _add(
        self, case: Case, number: int, least: float = 0.0, guess: float = 0.0
    ) -> "_Program | None":
        """A candidate is a program like another, or refused, or open."""
        request, ruler, found = self.request, self.ruler, self.found
        try:
            case, algorithm, problem, options = with_copies(case, request.ranks)
            problem = problem.on_nodes(ruler.nodes)
            resolved = algorithm.resolve(problem, ruler.in_place, **options)
            name = _name(algorithm, problem, resolved)
            if name in self.programs:  # open options may come to the same
                known = self.programs[name]
                known.times += 1
                found.merged += 1
                if number < known.number:  # it is called so
                    known.number, known.case = number, pushed(case, resolved)[0]
                return known
            tiles = self._tiles(problem)
            if tiles > ruler.memory_bytes:
                found.too_large += 1
                return None
            moving = self.today.moving(problem)
            family = self._family(case, resolved)
            case, resolved = pushed(case, resolved)
            start = Clock.cpu()
            trace = ruler.trace(algorithm, problem, resolved)
            bound = max(ruler.least(trace, moving), ruler.first(least))
            estimate = ruler.estimate(bound, guess)
            took_s = Clock.cpu() - start
        except UnsupportedError as error:
            found.refused += 1
            if case.algorithm == "universal":  # which takes any layout but for a reason
                self.why = str(error)
            return None
        congruent = algorithm.congruent
        folded = even(problem) and congruent and congruent(problem, **resolved)
        longest = max((len(group) for group in trace.groups), default=1)
        count = longest if folded else request.ranks
        steps = len(trace.steps) * count
        made = _Program(bound, tiles, number, case, moving, estimate, steps, 2 * took_s * count)
        self.programs[name] = made
        heappush(family.open, (estimate, tiles, number, made, None))
        return made

    def _tiles(self, problem: Problem) -> int:
        """Bytes of the largest rank's tiles."""
        total = 0
        for operand in problem.operands:
            key = operand.name, operand.stored
            if key not in self.sizes:
                ranks, itemsize = range(problem.nprocs), problem.itemsizes[operand.name]
                held = [operand.stored.local_size(rank) for rank in ranks]
                self.sizes[key] = itemsize * np.array(held)
            total = total + self.sizes[key]
        return int(total.max())

    def _end(self) -> None:
        """What is left, and how good it could be."""
        found, ranking = self.found, self.ranking
        if not ranking.places:
            return
        last, first = ranking.worst or (inf, inf), ranking.places[0].key
        at = len(self.ruler.first(0.0)) - 1
        open_ = [each[3] for family in self.families.values() for each in family.open]
        untraced = open_.count(None)
        left = {id(program): program for program in (*self.costly, *open_) if program}
        open_ = [program for program in left.values() if not ranking.beyond(program.least)]
        every = sum(stream.left(last[at]) for stream in self.streams)
        triples = every * len(ways(self.ruler.cuts, self.ruler.timed))
        found.left = sum(each.times for each in open_) + untraced + triples
        if not found.left:
            return
        least = min((program.least[at] for program in open_), default=inf)
        least = 0.0 if untraced else min(least, *(stream.least for stream in self.streams), inf)
        least = max(least, self.ruler.least_of_all)
        found.gap = max(float(first[at] / least) - 1, 0.0) if least else inf


def _coarse(case: Case) -> str:
    """The options of a case but the fine ones."""
    return repr({name: value for name, value in case.options.items() if name not in _FINE})


def _name(algorithm, problem: Problem, resolved: dict) -> tuple:
    """What tells a program from others: an axis that is shorter than a chunk is not cut."""
    chunk, stationary = resolved.get("chunk"), resolved.get("stationary")
    if type(chunk) is int and not {"work", "sums"} & {*resolved}:
        (free,) = {"m", "n", "k"} - {*problem.operand(stationary).axes}
        if chunk * problem.operand(stationary).partition.replicas >= problem.extent(free):
            resolved = resolved | {"chunk": None}
    stored = (operand.stored for operand in problem.operands)
    return algorithm.name, *stored, *sorted(resolved.items())


@dataclass(eq=False)
class _Program:
    """A candidate, and how many come to the same program.

    Attributes
    ----------
    least : tuple
        No key of it can be smaller.
    tiles : int
        Bytes of the largest rank's.
    number : int
        Of the candidate.
    estimate : float
        What it is likely to take.
    steps : int
        Of all ranks, about.
    cost_s : float
        Seconds of CPU that tracing and simulating all ranks takes, by what the first rank took.
    alone : bool
        Whether the estimate is that of its first rank, simulated alone.
    best : _Judged or None
        The best of its variants that were judged; ``ran`` is that variant.
    """

    least: tuple
    tiles: int
    number: int
    case: Case
    moving: Moving
    estimate: float
    steps: int
    cost_s: float
    alone: bool = False
    times: int = 1
    best: "_Judged | None" = None
    ran: Case | None = None


class _Judged(NamedTuple):
    """What :class:`_ByModel` or :class:`_ByBytes` say of a case."""

    key: tuple | None
    memory: int
    record: Record | None
    more: object
    steps: int
    needed: int | None = None

    @property
    def too_large(self) -> bool:
        """It is refused, for its memory alone."""
        return self.key is None and (self.record is None or self.record.status == "out_of_memory")


class _Placed(NamedTuple):
    """A place: the key, the program, and how many candidates cannot be told apart."""

    key: tuple
    program: _Program
    equals: int


class _Ranking:
    """The best so far: a program each, with the variant that serves it best."""

    def __init__(self, ruler, request: TuneRequest, found: Found):
        self.ruler, self.request, self.found = ruler, request, found
        self.places: list[_Placed] = []  # best first
        self.judged: list[_Program] = []  # that can be run
        self.refused: dict[int, bool] = {}  # programs that cannot: for their memory alone, or not

    def beyond(self, key: tuple) -> bool:
        """Whether a key is worse than the last place, all being taken."""
        return self.worst is not None and key > self.worst

    @property
    def worst(self) -> tuple | None:
        """The key of the last place; None while there are some left."""
        top = self.request.top
        return self.places[top - 1].key if len(self.places) >= top else None

    def judge(self, program: _Program, case: Case) -> _Judged:
        """Judge one variant of a program: what it takes has a place if it is better than what the
        program took before."""
        best, found = program.best, self.found
        worst = self.worst if best is None else best.key
        judged = _Judged(*self.ruler.judge(case, program.tiles, program.moving, worst))
        if best is None and judged.key is None:
            found.judged += id(program) not in self.refused
            self.refused[id(program)] = judged.too_large
        if judged.key is None or (best is not None and judged.key >= best.key):
            return judged
        if best is None:
            found.judged += id(program) not in self.refused
            self.refused.pop(id(program), None)
            self.judged.append(program)
        program.best, program.ran = judged, case
        if not self.beyond(judged.key):
            self._sort()
        return judged

    def _sort(self) -> None:
        """Place the programs anew; those that cannot be told apart are one place, that of the
        simplest: without two levels of ranks, then that which comes first."""
        two_levels = lambda each: "per_node" in each.case.options
        key = lambda each: (each.best.key, each.best.memory, two_levels(each), each.number)
        order = sorted(self.judged, key=key)
        alike: dict[tuple, list[_Program]] = {}
        for program in order:
            best = program.best
            alike.setdefault((best.key, best.memory, best.more), []).append(program)
        self.places = [
            _Placed(key, first, sum(each.times for each in (first, *others)) - 1)
            for (key, *_), (first, *others) in alike.items()
            if key[0] < inf
        ]

    def refine(self, spent: Callable[[], bool]) -> None:
        """Try the first places with other settings, one kind after another, each with the best so
        far of those before; by times only, and where something moves."""
        self.found.too_large += sum(self.refused.values())
        self.found.refused += sum(not large for large in self.refused.values())
        for place in self.places[: self.request.refine]:
            program = place.program
            record = program.best.record
            if not (record and record.moved_bytes):
                continue
            own = program.ran
            for kind in settings(own, record.chunk):
                start = program.ran
                for setting in kind:
                    if spent():
                        break
                    if program.best.record.steps <= _STEPS.get(setting.get("schedule"), inf):
                        self.found.refined += 1
                        self.judge(program, changed(start, setting))
            if program.ran is not own:
                program.times = 1  # others are not refined
                self._sort()

    def ranking(self, late: Callable[[_Program], bool]) -> list[Place]:
        """The places that were asked for; intervals of the first, and of others while it is not
        too late for them."""
        places = []
        for each in self.places[: self.request.top]:
            program, judged, record = each.program, each.program.best, each.program.best.record
            if record is not None and not (places and late(program)):
                record = self.ruler.told(program.ran, record)
            loads_ = None if judged.record else judged.more
            bound = self.ruler.bound(program.ran)
            about = program.ran, judged.memory, program.moving, record, loads_
            places.append(Place(*about, each.equals, bound, judged.needed))
        return places
