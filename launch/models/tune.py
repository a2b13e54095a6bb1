"""Choosing among candidates within a memory budget: by a machine model's times, or without one by
bytes and balance.

Branch and bound. All triples of layouts get a lower bound and an estimate at once
(:mod:`.sieve`); in the order of the latter they get a better bound, from the trace of one rank
(:mod:`drbench.model.bounds`, or the bytes and FLOPs of that rank), and are judged until no bound
left is below the worst of the best so far. What is left out can therefore not be among them, unless
an ``effort`` ends the search before: then it is said by how much it could be better at most. Equal
layouts, and options that come to the same program, are one candidate. A program is judged with
every look-ahead that its algorithm names, and the universal one with sums that are pushed in every
communication tile.
"""

from bisect import insort
from collections import Counter
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from math import inf
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from drbench.errors import DrbenchError, OutOfMemory, UnsupportedError, UsageError
from drbench.measure.record import Record
from drbench.model.bounds import Bound, bound_of, lower_bound
from drbench.model.machine import Machine
from drbench.model.moves import moving_s
from drbench.model.simulate import Beyond
from drbench.plan.loads import Loads, busiest, loads
from drbench.program.problem import Operand, Problem
from drbench.program.steps import COUNTERS
from drbench.program.trace import Trace, no_collection
from launch.cases.case import Case, by_messages
from launch.host.units import format_bytes
from partitions import LayoutError, Partition, flows, partition
from partitions.mixture import shapes

from .candidates import (
    REPLICATION,
    TuneRequest,
    candidates,
    changed,
    everywhere,
    on_triple,
    others,
    pushed,
    settings,
    texts,
    variants,
    ways,
)
from .counts import counted, share_of
from .predict import (
    Programs,
    by_times_of,
    nodes_on,
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
_counters = attrgetter(*COUNTERS)
#: What the time of a program is over its bound, as far as nothing else is known of it.
_OVER_BOUND = 1.1
#: So many places are filled, whatever the effort.
_ENOUGH = 3
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
    """

    case: Case
    memory: int
    moving: Moving
    record: Record | None
    loads: Loads | None
    equals: int
    bound: Bound | None = None

    @property
    def moved_bytes(self) -> int:
        """Of all ranks together, in the product."""
        return self.loads.moved_bytes if self.record is None else self.record.moved_bytes or 0


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
        self.nodes, self.sockets = nodes_on(self.seen, request.ranks)
        self.cuts = ("auto",) if self.in_place else ("auto", "none")
        self._made: tuple[str, Programs | None] = "", None
        self._numbers = {link.name: number for number, link in enumerate(self.seen.links)}

    def trace(self, algorithm, problem: Problem, settled: dict) -> Trace:
        """Of the first rank, as it is simulated."""
        return algorithm.trace(problem, 0, **by_times_of(self.seen, settled))

    def rates(self, itemsize: int) -> Rates:
        return rates_of(self.seen, itemsize, self.request.ranks)

    def classes(self, one: int, two: int) -> int:
        """The number of the class of links between two ranks."""
        return self._numbers[self.seen.link(one, two).name] if self._numbers else 0

    def first(self, seconds: float) -> tuple:
        """What a key with that bound begins with."""
        return (seconds,)

    def likely(self, bound: tuple, guess: float) -> tuple:
        """By what a program is judged in turn: its triple's estimate, if it has one."""
        return (guess or _OVER_BOUND * bound[0],)

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
        return (lower_bound(trace, self.seen) + moving.seconds / self.request.products,)

    def bound(self, case: Case) -> Bound:
        """Of the traces of all ranks."""
        if made := self._programs(case):
            return bound_of(made.traces, self.seen, made.folding and made.folding.cost)
        return bound_of(programs(case, self.seen, self.request.ranks), self.seen)

    def told(self, case: Case, record: Record) -> Record:
        """With the interval of its time."""
        return with_interval(record, case, self.machine, self.request.ranks, self._programs(case))

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
    nodes, sockets = (0,), False

    def __init__(self, request: TuneRequest):
        self.request = request
        self.memory_bytes = inf if request.memory is None else request.memory

    def trace(self, algorithm, problem: Problem, settled: dict) -> Trace:
        return algorithm.trace(problem, 0, **settled)

    def rates(self, itemsize: int) -> Rates:
        return counts(itemsize)

    def first(self, nbytes: float) -> tuple:
        return False, nbytes

    def likely(self, bound: tuple, guess: float) -> tuple:
        return bound

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
        return key, found.memory, None, found.loads, found.loads.transfers


class _Today:
    """The layouts of today, and what it takes to leave them and come back."""

    def __init__(self, request: TuneRequest, charge):
        case, self._charge = request.case, charge
        self._known: dict = {}
        self._itemsizes = Problem(1, 1, 1, 1, dtype=case.dtype).itemsizes
        self._held = {
            name: _held(case, name, text, request.ranks)
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


def _held(case: Case, name: str, text: str, ranks: int) -> Partition:
    shape = shapes(case.m, case.n, case.k, case.mixture)[name]
    if name.lower() in (case.transpose or ""):
        shape = shape[::-1]
    try:
        return partition(text, shape, ranks, role=name)
    except LayoutError as error:
        raise UsageError(f"the layout of {name} today: {error}") from None


def tune(request: TuneRequest, machine: Machine | None = None) -> Found:
    """Rank the candidates by the model, or without one by bytes and balance. A C with replicas is
    finished on all of them.

    Raises
    ------
    UsageError
        If the request makes no sense.
    OutOfMemory
        If candidates were refused for memory alone.
    UnsupportedError
        If no candidate fits the fixed partitions, or the machine has no peak for the element type.
    """
    ruler = _ByBytes(request) if machine is None else _ByModel(request, machine)
    with no_collection():
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
    found.ranking = ranking.ranking()
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


class _Leads:
    """All triples of layouts of the universal algorithm, the most promising first.

    Attributes
    ----------
    tried, merged, too_large : int
        Candidates; those on layouts that equal others, and those whose tiles alone are too large.
    """

    def __init__(self, request: TuneRequest, ruler):
        self.request, self.how = request, ways(ruler.cuts, ruler.timed)
        self.tried = self.merged = self.too_large = self._at = 0
        self._order, self._bounds = np.zeros(0, dtype=int), np.zeros(0)
        named = texts(request)
        if not named:
            return
        layouts, self._texts, factors = {}, {}, []
        for name in "ABC":
            known = {}  # equal layouts once
            for text, factor in named[name]:
                operand = _operand(request.case, name, text, request.ranks)
                known.setdefault(operand.partition, (operand, text, factor))
            operands, self._texts[name], mine = zip(*known.values())
            layouts[name] = list(operands)
            factors.append(mine)
        fits = _fitting(request, factors)
        count = 3 * len(self.how)
        every = [[factor for _, factor in named[name]] for name in "ABC"]
        self.tried = count * int(_fitting(request, every).sum())
        self.merged = self.tried - count * int(fits.sum())
        sizes = Problem(1, 1, 1, 1, dtype=request.case.dtype).itemsizes
        tiles = [
            np.array([each.partition.local_size(0) * sizes[name] for each in layouts[name]])
            for name in "ABC"
        ]
        large = tiles[0][:, None, None] + tiles[1][:, None] + tiles[2] > ruler.memory_bytes
        self.too_large = count * int((fits & large).sum())
        case = request.case
        sieve = Sieve(layouts, (case.m, case.n, case.k), ruler.rates(sizes["A"]), ruler.classes)
        bounds, guesses = (each.ravel() for each in sieve.all())
        self._shape = (*fits.shape, 3)
        left = np.flatnonzero(np.repeat((fits & ~large).ravel(), 3))
        self._order = left[np.argsort(guesses[left], kind="stable")]
        self._guesses, self._bounds = guesses[self._order], bounds[self._order]
        self._least = np.minimum.accumulate(self._bounds[::-1])[::-1]

    @property
    def guess(self) -> float:
        """The estimate of the next one; inf if there is none."""
        return self._guesses[self._at] if self._at < len(self._order) else inf

    @property
    def least(self) -> float:
        """The smallest bound that is left."""
        return self._least[self._at] if self._at < len(self._order) else inf

    def left(self, below: float) -> int:
        """Candidates left with a bound of at most that."""
        return len(self.how) * int((self._bounds[self._at :] <= below).sum())

    def drop(self) -> None:
        """None of those left can have a place."""
        self._at = len(self._order)

    def take(self) -> tuple[float, float, list[Case]]:
        """Bound, estimate and cases of the next one."""
        at = self._at
        self._at += 1
        *triple, which = (int(x) for x in np.unravel_index(self._order[at], self._shape))
        names = [self._texts[name][x] for name, x in zip("ABC", triple)]
        cases = [on_triple(self.request.case, names, "CBA"[which], way) for way in self.how]
        return self._bounds[at], self._guesses[at], cases


def _operand(case: Case, name: str, text: str, ranks: int) -> Operand:
    transposed = name.lower() in (case.transpose or "")
    shape = shapes(case.m, case.n, case.k, case.mixture)[name]
    try:
        bound = partition(text, shape[::-1] if transposed else shape, ranks, role=name)
    except LayoutError as error:
        raise UsageError(f"--{name.lower()}: {error}") from None
    return Operand(name, bound, transposed)


def _fitting(request: TuneRequest, factors: list) -> np.ndarray:
    """Which triples of layouts with these factors are tried: an array (of A, of B, of C)."""
    fits = REPLICATION[request.replication or "all"]
    known = [list(dict.fromkeys(each)) for each in factors]
    table = np.array([[[fits(a, b, c) for c in known[2]] for b in known[1]] for a in known[0]])
    return table[np.ix_(*([one.index(x) for x in each] for one, each in zip(known, factors)))]


class _Search:
    """What is open, judged and found of a request."""

    def __init__(self, request: TuneRequest, ruler):
        self.request, self.ruler, self.why = request, ruler, ""
        self.found, self.today = Found(), _Today(request, ruler.charge)
        self.leads = _Leads(request, ruler)
        self.ranking = _Ranking(ruler, request, self.found)
        self.programs: dict[tuple, _Program] = {}  # those that differ, by what they are
        self.open: list = []  # a heap of (what is judged first, program)
        self.number = 0  # of a triple's candidate
        self.sizes: dict = {}  # (matrix, layout) -> bytes of each rank's tiles

    def run(self) -> "_Ranking":
        """Judge what may have a place."""
        found, leads, ranking = self.found, self.leads, self.ranking
        found.tried, found.too_large = leads.tried, leads.too_large
        for case in others(self.request, self.ruler.cuts, self.ruler.timed):
            found.tried += 1
            self._add(case, found.tried)  # what is a triple, too, is called after that
        while not self._spent() and (self.open or leads.guess < inf):
            if leads.guess < inf and self._beyond(leads.least):
                leads.drop()
            elif leads.guess < inf and self._first():
                least, guess, cases = leads.take()
                for case in () if self._beyond(least) else cases:
                    self.number += 1
                    self._add(case, self.number, least, guess)
            elif self.open:
                _, program = heappop(self.open)
                if not ranking.beyond(program.least):
                    ranking.take(program)
        self._end()
        ranking.refine()
        return ranking

    def _first(self) -> bool:
        """Whether the next triple is more promising than what is open."""
        return not self.open or self.ruler.first(self.leads.guess) < self.open[0][0][0]

    def _spent(self) -> bool:
        """Whether the effort is, and some places are taken."""
        effort, ranking = self.request.effort, self.ranking
        enough = len(ranking.places) >= min(self.request.top, _ENOUGH)
        return effort is not None and ranking.steps > effort and enough

    def _beyond(self, least: float) -> bool:
        return self.ranking.beyond(self.ruler.first(least))

    def _add(self, case: Case, number: int, least: float = 0.0, guess: float = 0.0) -> None:
        """A candidate is a program like another, or refused, or open."""
        request, ruler, found = self.request, self.ruler, self.found
        try:
            case, algorithm, problem, options = everywhere(case, request.ranks)
            if len({*ruler.nodes}) > 1:
                where = ruler.nodes, ruler.sockets
                problem, options = by_messages(algorithm, problem, options, *where)
            settled = algorithm.settle(problem, ruler.in_place, **options)
            name = _name(algorithm, problem, settled)
            if name in self.programs:  # open options may come to the same
                known = self.programs[name]
                known.times += 1
                found.merged += 1
                if number < known.number:  # it is called so
                    known.number, known.case = number, pushed(case, settled)[0]
                return
            tiles = self._tiles(problem)
            if tiles > ruler.memory_bytes:
                found.too_large += 1
                return
            moving = self.today.moving(problem)
            case, settled = pushed(case, settled)
            trace = ruler.trace(algorithm, problem, settled)
            self.ranking.steps += len(trace.steps)
            bound = max(ruler.least(trace, moving), ruler.first(least))
        except UnsupportedError as error:
            found.refused += 1
            if case.algorithm == "universal":  # which takes any layout but for a reason
                self.why = str(error)
            return
        self.programs[name] = _Program(bound, tiles, number, case, moving)
        order = max(bound, ruler.likely(bound, guess)), tiles, number
        heappush(self.open, (order, self.programs[name]))

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
        found, leads, ranking = self.found, self.leads, self.ranking
        found.merged += leads.merged
        if not ranking.places:
            return
        last, first = ranking.worst or (inf, inf), ranking.places[0][0]
        at = len(self.ruler.first(0.0)) - 1
        left = [program for _, program in self.open if not ranking.beyond(program.least)]
        found.left = sum(program.times for program in left) + leads.left(last[at])
        least = min((program.least[at] for program in left), default=inf)
        if found.left:
            least = min(least, leads.least)
            found.gap = max(float(first[at] / least) - 1, 0.0) if least else inf


def _name(algorithm, problem: Problem, settled: dict) -> tuple:
    """What tells a program from others: an axis that is shorter than a chunk is not cut."""
    chunk, stationary = settled.get("chunk"), settled.get("stationary")
    if type(chunk) is int and "grid" not in settled:
        (free,) = {"m", "n", "k"} - {*problem.operand(stationary).axes}
        if chunk * problem.operand(stationary).partition.replicas >= problem.extent(free):
            settled = settled | {"chunk": None}
    stored = (operand.stored for operand in problem.operands)
    return algorithm.name, *stored, *sorted(settled.items())


@dataclass
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
    """

    least: tuple
    tiles: int
    number: int
    case: Case
    moving: Moving
    times: int = 1


class _Judged(NamedTuple):
    """What :class:`_ByModel` or :class:`_ByBytes` say of a case."""

    key: tuple | None
    memory: int
    record: Record | None
    more: object
    steps: int

    @property
    def too_large(self) -> bool:
        """It is refused, for its memory alone."""
        return self.key is None and (self.record is None or self.record.status == "out_of_memory")


class _Ranking:
    """The best so far: a program each, with the look-ahead that serves it best."""

    def __init__(self, ruler, request: TuneRequest, found: Found):
        self.ruler, self.request, self.found = ruler, request, found
        self.places: list = []  # (key, bytes, number, program, case, what was judged), best first
        self.equals: Counter = Counter()  # of what cannot be told apart
        self.steps = 0  # simulated or counted

    def beyond(self, key: tuple) -> bool:
        """Whether a key is worse than the last place, all being taken."""
        return self.worst is not None and key > self.worst

    @property
    def worst(self) -> tuple | None:
        """The key of the last place; None while there are some left."""
        top = self.request.top
        return self.places[top - 1][0] if len(self.places) >= top else None

    def take(self, program: _Program) -> None:
        """Judge all variants of a program; by bytes, which are the same with all of them, others
        than its own only if that takes too much memory."""
        own, *others = variants(program.case)
        self.found.judged += 1
        best, case = self._judge(program, own), own
        for other in others if self.ruler.timed or best.too_large else ():
            judged = self._judge(program, other, best)
            if judged.key and (best.key is None or judged.key < best.key):
                best, case = judged, other
        if best.key is not None and not self.beyond(best.key):
            self._place(program, case, best)
        elif best.key is not None:
            return
        elif best.too_large:
            self.found.too_large += 1
        else:
            self.found.refused += 1

    def _judge(self, program: _Program, case: Case, best: _Judged | None = None) -> _Judged:
        worst = self.worst if best is None or best.key is None else best.key
        judged = _Judged(*self.ruler.judge(case, program.tiles, program.moving, worst))
        self.steps += judged.steps
        return judged

    def refine(self) -> None:
        """Try the first places with other settings, one kind after another, each with the best so
        far of those before; by times only, and where something moves."""
        first = [each for each in self.places[: self.request.refine] if each[5].record]
        for place in first:
            *_, number, program, case, best = place
            if not best.record.moved_bytes:
                continue
            own = case
            for kind in settings(case, best.record.chunk):
                start = case
                for setting in kind:
                    if best.record.steps > _STEPS.get(setting.get("schedule"), inf):
                        continue
                    other = changed(start, setting)
                    judged = self._judge(program, other, best)
                    self.found.refined += 1
                    if judged.key and judged.key < best.key:
                        best, case = judged, other
            if case is not own:
                self.places.remove(place)
                place = (best.key, best.memory, number, program, case, best)
                insort(self.places, place, key=_first_three)
                self.equals[best.key, best.memory, best.more] = 1

    def _place(self, program: _Program, case: Case, judged: _Judged) -> None:
        known = judged.key, judged.memory, judged.more
        self.equals[known] += program.times
        if self.equals[known] == program.times:
            place = (judged.key, judged.memory, program.number, program, case, judged)
            insort(self.places, place, key=_first_three)

    def ranking(self) -> list[Place]:
        """The places that were asked for."""
        return [
            Place(
                case,
                memory,
                program.moving,
                self.ruler.told(case, judged.record),
                None if judged.record else judged.more,
                self.equals[judged.key, memory, judged.more] - 1,
                self.ruler.bound(case),
            )
            for _, memory, _, program, case, judged in self.places[: self.request.top]
        ]


def _first_three(each: tuple) -> tuple:
    return each[:3]


def choose_stationary(case: Case, machine: Machine | None, ranks: int) -> str:
    """``--stationary auto:model``: the data movement with the smallest predicted time, or without a
    machine with the fewest bytes of the busiest rank; on a tie C, then B.

    Examples
    --------
    A small batch in row blocks: B moves, and the result stays.

    >>> from launch.cases.machine_models import find_machine
    >>> case = Case(1024, 4096, 1024, "row", "row", "row")
    >>> choose_stationary(case, find_machine("pvc12"), 12), choose_stationary(case, None, 12)
    ('C', 'C')
    """
    found, reason = {}, ""
    request = TuneRequest(case, ranks)
    ruler = _ByBytes(request) if machine is None else _ByModel(request, machine)
    nothing = Moving(seconds=0.0)
    for stationary in "CBA":
        one = replace(case, options={**case.options, "stationary": stationary})
        key, _, record, *_ = ruler.judge(one, 0, nothing)
        if key is None:
            reason = record.reason
        else:
            found[stationary] = key
    if not found:
        raise UnsupportedError(
            f"machine {machine.name} can run none of Stationary A, B and C: {reason} Use "
            "--stationary auto."
        )
    return min(found, key=found.get)
