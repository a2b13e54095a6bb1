"""Choosing among candidates within a memory budget: by a machine model's times, or without one by
bytes and balance.

Each candidate has a lower bound and an estimate: triples of layouts all at once (:mod:`.sieve`),
others when the program of one rank is traced, which is simulated alone, its groups standing for all
ranks, but where it would wait for signals of others. Candidates of one kind are a family, whose
estimates are off alike: the best of every family is judged before any family gets a second, those
that take least to simulate first; then the most promising of all is next, the estimates of a family
being scaled by what its judged programs took over theirs.

The search ends when no bound left is below the worst of the best so far, so that what is left out
cannot be among them; or when the ``effort``, seconds of CPU, is spent: then it is said by how much
what is left could be better at most. Equal layouts, and options that come to the same program, are
one candidate.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from heapq import heappop, heappush
from itertools import count, groupby, product
from math import ceil, inf
from operator import attrgetter, itemgetter
from typing import NamedTuple, NoReturn

import numpy as np

from drbench.common import Clock
from drbench.errors import DrbenchError, OutOfMemory, UnsupportedError, UsageError
from drbench.measure.record import Record
from drbench.model.bounds import Bound, bound_of, moving_s
from drbench.model.machine import Machine
from drbench.model.simulate import Beyond, Simulator
from drbench.model.symmetry import even
from drbench.plan.explain import Loads, busiest, loads
from drbench.program.problem import Operand, Problem
from drbench.program.steps import COUNTERS
from drbench.program.trace import Trace, no_collection
from launch.cases.case import Case
from launch.host.units import format_bytes
from partitions import flows

from .beyond import Sure, how_sure
from .candidates import (
    TuneRequest,
    candidates,
    changed,
    data_movements,
    look_aheads,
    on_triple,
    others,
    replicated,
    settings,
    texts,
    with_copies,
)
from .counts import counted, least_bytes, share_of
from .predict import (
    nodes_on,
    planning_model,
    predict_with,
    programs_of,
    ranks_on,
    reads_in_place,
    seen_by,
    with_interval,
)
from .sieve import bounds_of, rates_of

#: Without a model, candidates whose busiest rank multiplies more than this times its even share
#: come after all others: bytes say nothing of that.
EVEN = 1.1
_UNEVEN = 1e30  # bytes that no candidate moves
#: Seconds that tracing takes for one that judging does, while there are programs to judge.
_SHARE = 0.3
#: Shares of the effort after which no more candidates are traced ahead, judged, refined, and no
#: more places get an interval.
_TRACED, _JUDGED, _REFINED, _INTERVALS = 0.25, 0.6, 0.75, 0.8
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

    @property
    def price(self) -> float:
        """Seconds, or without a model bytes of the busiest rank."""
        return self.busiest_bytes if self.seconds is None else self.seconds


class Place(NamedTuple):
    """A place of the ranking.

    Attributes
    ----------
    case : Case
    memory : int
        Bytes of the largest rank's tiles and buffers.
    moving : Moving
        From and to the layouts of today; nothing where none are named.
    layouts : tuple of str
        Text forms of the partitions of A, B and C.
    record : Record or None
        By a machine model; None without one.
    loads : Loads or None
        Without a machine model.
    bound : Bound or None
        By a machine model: what no run of it can be faster than, its GEMMs and its busiest link.
    needed : int or None
        Without a machine model: bytes that a rank stores and moves, of the rank with most.
    key : tuple
        What places are ordered by, its share of ``moving`` included.
    """

    case: Case
    memory: int
    moving: Moving
    layouts: tuple[str, ...]
    record: Record | None = None
    loads: Loads | None = None
    bound: Bound | None = None
    needed: int | None = None
    key: tuple = ()

    @property
    def moved_bytes(self) -> int:
        """Of all ranks together, in the product."""
        return self.loads.moved_bytes if self.record is None else self.record.moved_bytes or 0

    @property
    def cost(self) -> float:
        """Seconds, or without a model bytes that the busiest rank sends or receives."""
        return self.loads.busiest_bytes if self.record is None else self.record.best_s


@dataclass
class Found:
    """The ranking, best first, and what was looked at.

    Attributes
    ----------
    ranking : list of Place
    tried, judged, refused, too_large : int
        Candidates; programs simulated, or whose bytes were counted on all ranks; those not
        supported, and beyond the memory.
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
    least_bytes : float or None
        That some rank needs whatever the schedule; None if all matrices do not fit the memory.
    sure : Sure or None
        How far the answer can be trusted.
    """

    ranking: list[Place] = field(default_factory=list)
    tried: int = 0
    judged: int = 0
    refused: int = 0
    too_large: int = 0
    left: int = 0
    gap: float = 0.0
    mine: Place | None = None
    why_not: str = ""
    better: bool = False
    least_bytes: float | None = None
    sure: Sure | None = None

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
        return max(1, ceil(first.moving.price / (self.mine.cost - first.cost)))

    @property
    def in_doubt(self) -> bool:
        """Whether what was not searched could be faster than the first place, beyond its
        interval."""
        first = self.ranking[0].record
        if first is None or first.median_low_s is None:
            return self.left > 0 and self.gap > 0
        return self.left > 0 and first.best_s / (1 + self.gap) < first.median_low_s

    def within(self, multiplications: int = 1) -> list[int]:
        """Which further places, the second being 2, may be as fast as the first for all that is
        known: what they take lies in its interval, what is brought here included.

        Examples
        --------
        >>> make = lambda seconds: Record(
        ...     mode="simulated",
        ...     status="ok",
        ...     best_s=seconds,
        ...     median_low_s=0.9,
        ...     median_high_s=1.1,
        ... )
        >>> places = [Place(None, 0, Moving(0, 0, 0.1), (), make(s)) for s in (1.0, 1.05, 1.2)]
        >>> Found(places).within()
        [2]
        """
        first = self.ranking[0]
        if first.record is None or first.record.median_high_s is None:
            return []
        most = first.record.median_high_s + first.moving.price / multiplications
        costs = [place.cost + place.moving.price / multiplications for place in self.ranking]
        return [at for at, cost in enumerate(costs, 1) if at > 1 and cost <= most]


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
        found = _Search(request, machine).run()
        if any(request.today):
            _compare_with_today(found, request, machine)
    with suppress(UsageError):
        found.least_bytes = least_bytes(request.case, request.ranks, request.memory)
    records = [place.record for place in (found.mine, *found.ranking) if place and place.record]
    needed = next((each.beyond for each in records if each.beyond), None)
    found.sure = how_sure(machine, needed)
    return found


def _compare_with_today(found: Found, request: TuneRequest, machine: Machine | None) -> None:
    """Find the best on the layouts of today, and whether the first place is better."""
    case = request.case
    kept = {name: own or getattr(case, name) for name, own in zip("abc", request.today)}
    effort = request.effort and request.effort / 3
    case = replace(case, **kept)
    stay = replace(request, case=case, today=(None,) * 3, top=1, effort=effort)
    try:
        found.mine = _Search(stay, machine).run().ranking[0]
    except (OutOfMemory, UnsupportedError) as error:
        found.why_not = str(error)
        return
    first, ranks = found.ranking[0], request.ranks
    layouts = lambda place: [each.stored for each in with_copies(place.case, ranks)[2].operands]
    found.better = first.cost < found.mine.cost and layouts(first) != layouts(found.mine)


class _ByTime:
    """Costs in predicted seconds."""

    def __init__(self, request: TuneRequest, machine: Machine):
        ranks_on(machine, request.ranks)
        if request.memory is not None:
            machine = machine.with_value("memory_bytes", min(request.memory, machine.memory_bytes))
        self.machine, self.ranks = machine, request.ranks
        self.seen = seen_by(request.case, machine)
        self.memory_bytes = self.seen.memory_bytes
        self.in_place = reads_in_place(self.seen, request.ranks)
        self.nodes = nodes_on(self.seen, request.ranks)
        self.data_movements = data_movements(True, self.in_place)
        case, compute = request.case, self.seen.compute
        rate = request.ranks * compute.peak_flops * compute.sustained
        self.least_of_all = 2 * case.m * case.n * case.k / rate  # of any program

    def bound(self, trace: Trace) -> float:
        """What no program with this trace of a rank costs less than."""
        return bound_of([trace], self.seen).seconds

    def alone(self, case: Case) -> float:
        """What the first rank takes alone, its groups standing for all."""
        case, algorithm, problem, options = with_copies(case, self.ranks)
        resolved = algorithm.resolve(problem.on_nodes(self.nodes), self.in_place, **options)
        trace = algorithm.trace(problem, 0, planning_model(self.seen, resolved), **resolved)
        with suppress(DrbenchError):
            return Simulator([trace], self.seen).run(case.ahead(resolved)).time_s
        return 0.0

    def judge(
        self, cases: Sequence[Case], moving: Moving, extra: float, within: float
    ) -> Iterator[Place]:
        """The places of a program with several look-aheads, ``extra`` being what moving adds to
        each product, but for those that cost more than ``within``.

        Raises
        ------
        DrbenchError
            If it is refused.
        """
        made = programs_of(cases[0], self.machine, self.ranks)
        problem, bound = made.problem, bound_of(made.traces, self.seen)
        held = max(sum(problem.tile_bytes(rank).values()) for rank in range(problem.nprocs))
        for case in cases:
            how = {"pool": True, "within_s": (within - extra) * (1 + 1e-9), "made": made}
            with suppress(Beyond):
                record, _ = predict_with(case, self.machine, self.ranks, **how)
                if record.status == "out_of_memory":
                    raise OutOfMemory(record.reason)
                if record.status != "ok":
                    raise UnsupportedError(record.reason)
                key = (record.best_s + extra, *attrgetter(*COUNTERS)(record))
                memory = held + (record.pool_bytes or 0)
                description = {"record": record, "bound": bound, "key": key}
                yield Place(case, memory, moving, (*problem.texts.values(),), **description)
                within = min(within, key[0])

    def with_interval(self, place: Place) -> Place:
        """With the interval of its time."""
        made = programs_of(place.case, self.machine, self.ranks)
        record = with_interval(place.record, place.case, self.machine, self.ranks, made)
        return place._replace(record=record)


class _ByBytes:
    """Costs in bytes that the busiest rank sends or receives, then of all ranks; those whose work
    is uneven come last."""

    seen = None
    in_place, nodes, data_movements, least_of_all = False, (0,), data_movements(False), 0.0

    def __init__(self, request: TuneRequest):
        self.request = request
        self.memory_bytes = inf if request.memory is None else request.memory

    def bound(self, trace: Trace) -> float:
        found = loads([trace])
        return found.busiest_bytes + _UNEVEN * (share_of(found, trace.problem) > EVEN)

    def judge(
        self, cases: Sequence[Case], moving: Moving, extra: float, within: float
    ) -> Iterator[Place]:
        found = counted(cases[0], self.request.ranks)
        if found.memory > self.memory_bytes:
            raise OutOfMemory(f"it needs {format_bytes(found.memory)}")
        moved = found.loads.moved_bytes + moving.moved_bytes / self.request.multiplications
        cost = found.loads.busiest_bytes + extra + _UNEVEN * (found.share > EVEN)
        key = cost, moved, found.loads.transfers, *found.loads
        description = {"loads": found.loads, "needed": found.needed, "key": key}
        yield Place(cases[0], found.memory, moving, found.layouts, **description)

    def with_interval(self, place: Place) -> Place:
        return place


def _operand(request: TuneRequest, name: str, text: str) -> Operand:
    """A matrix of the request in a layout."""
    case = request.case
    sizes, transposed = (case.m, case.n, case.k), case.transpose or ""
    return Problem(*sizes, request.ranks, **{name.lower(): text}, transpose=transposed).operand(
        name
    )


@dataclass(eq=False)
class _Candidate:
    """A program that was traced on one rank.

    Attributes
    ----------
    name : tuple
        What tells it from others.
    bound : float
        What it cannot cost less than.
    estimate : float
        What it is likely to cost.
    needs_s : float
        Seconds of CPU that tracing and simulating all ranks takes, by what the first rank took.
    final : bool
        Whether the estimate is the last one: that of its first rank, simulated alone; its bound
        where it waits for signals, or nothing is simulated.
    """

    case: Case
    name: tuple
    bound: float
    estimate: float
    moving: Moving
    needs_s: float
    final: bool


class _Source:
    """Candidates that are not traced yet, by their estimates.

    Parameters
    ----------
    cases : callable
        ``cases(number)``: those of a bound and an estimate.
    bounds, guesses : sequence of float

    Attributes
    ----------
    took_s : float
        Seconds of CPU that tracing took.
    """

    def __init__(
        self,
        cases: Callable[[int], list[Case]],
        bounds: Sequence[float],
        guesses: Sequence[float],
    ):
        self._cases, self._order = cases, np.argsort(guesses, kind="stable")
        self._guesses = np.append(np.asarray(guesses)[self._order], inf)
        self._bounds = np.append(np.asarray(bounds)[self._order], inf)
        self._at, self._lift, self.took_s = 0, inf, 0.0

    @property
    def guess(self) -> float:
        """What the next one is likely to cost, if its guess is as far off as the best of those
        before; inf if there is none."""
        return self._guesses[self._at] * (self._lift if self._lift < inf else 1.0)

    def take(self) -> tuple[float, float, list[Case]]:
        """Bound, guess and cases of the next one."""
        at = self._at
        self._at += 1
        return float(self._bounds[at]), float(self._guesses[at]), self._cases(self._order[at])

    def learn(self, guess: float, estimate: float) -> None:
        """One that was taken is estimated so."""
        self._lift = min(self._lift, estimate / guess if guess else 1.0)

    def left(self, below: float) -> list[float]:
        """Bounds of at most that, of those left."""
        bounds = self._bounds[self._at : -1]
        return bounds[bounds <= below].tolist()


class _Family:
    """Candidates of one kind that are traced.

    Attributes
    ----------
    open : list
        A heap of (estimate, number, candidate).
    scale : float
        What estimates are taken to be too small by: the least cost over estimate of what was
        judged, the nearer to it the more that was.
    judged : int
    """

    def __init__(self):
        self.open: list = []
        self.scale, self.judged, self._ratio = 1.0, 0, inf

    @property
    def next(self) -> float:
        """What its most promising candidate is likely to cost; inf if there is none."""
        return self.scale * self.open[0][0] if self.open else inf

    def learn(self, estimate: float, took: float) -> None:
        """A program was judged that was estimated so."""
        self.judged += 1
        if 0 < estimate and took < inf:
            self._ratio = min(self._ratio, took / estimate)
            self.scale = max(self._ratio, 1.0) ** (self.judged / (self.judged + 1))


class _Search:
    """What is open, judged and found of a request."""

    def __init__(self, request: TuneRequest, machine: Machine | None):
        self.request, self.found, self.why = request, Found(), ""
        self.ruler = _ByBytes(request) if machine is None else _ByTime(request, machine)
        self.sizes = Problem(1, 1, 1, 1, dtype=request.case.dtype).itemsizes
        given = [(name, text) for name, text in zip("ABC", request.today) if text is not None]
        self.today = {name: _operand(request, name, text).partition for name, text in given}
        self.brought = cache(self._brought)
        self.names: dict[tuple, int] = {}  # of programs that were traced, with their numbers
        self.best: dict[tuple, Place] = {}  # of each program that was judged, by its name
        self.places: list[tuple] = []  # the names of those that have a place, best first
        self.late: list[_Candidate] = []  # that the effort does not suffice for
        self.started = Clock.cpu()
        self.numbers = count()
        self.sources: list[_Source] = []
        self.families: dict[tuple, _Family] = defaultdict(_Family)

    def run(self) -> Found:
        """Judge what may have a place."""
        self._open()
        while self.request.effort and not self._spent(_TRACED):
            source = min(self.sources, key=lambda source: (source.guess == inf, source.took_s))
            self._trace(source)
            if source.guess == inf == min(each.guess for each in self.sources):
                break
        took = {self._trace: 0.0, self._judge: 0.0}  # seconds
        while not (self.best and self._spent(_JUDGED)):
            source = min(self.sources, key=attrgetter("guess"))
            family = min(self.families.values(), key=self._priority, default=_Family())
            if source.guess == family.next == inf:
                break
            traces_next = family.next == inf or (
                source.guess <= family.next and took[self._trace] <= _SHARE * took[self._judge]
            )
            act, of = (self._trace, source) if traces_next else (self._judge, family)
            start = Clock.cpu()
            act(of)
            took[act] += Clock.cpu() - start
        if not self.best:
            self._refuse()
        self._note_excluded()
        self._refine()
        self._rank()
        return self.found

    def _spent(self, share: float, needed_s: float = 0.0) -> bool:
        """Whether a share of the effort is, with what comes next."""
        effort = self.request.effort
        return effort is not None and Clock.cpu() - self.started + needed_s > share * effort

    def _priority(self, family: _Family) -> tuple:
        """Families of which none was judged first, those that promise most for the time that they
        take before others, unless nothing of them can be the best."""
        head = family.open[0][-1] if family.open else None
        if family.judged or not head or head.estimate > self._cost(1):
            return True, family.next
        return False, head.needs_s * (head.estimate if self.best else 1.0)

    def _cost(self, place: int) -> float:
        """Of a place, the first being 1; inf if nothing has it."""
        names = self.places[place - 1 : place]
        return self.best[names[0]].key[0] if names else inf

    @property
    def worst(self) -> float:
        """The cost of the last place."""
        return self._cost(self.request.top)

    def _sort(self) -> None:
        """Place the programs anew, the best first. Those that cannot be told apart are one, the
        simplest: without two levels of ranks, then that which was traced first."""
        order = sorted(
            (place.key, place.memory, "per_node" in place.case.options, self.names[name], name)
            for name, place in self.best.items()
        )
        self.places = [next(alike)[-1] for _, alike in groupby(order, key=itemgetter(0, 1))]

    def _open(self) -> None:
        """What is to be traced: triples of layouts with Stationary C, B and A, and others, those of
        few steps first."""
        request, ruler = self.request, self.ruler
        kinds: dict[tuple, list[Case]] = {}
        for case in others(request, ruler.data_movements):
            kinds.setdefault(_family_of(case, case.options), []).append(case)
            self.found.tried += 1
        for cases in kinds.values():
            cases.sort(key=_steps)
            bounds = np.full(len(cases), ruler.least_of_all)
            one = lambda at, cases=cases: [cases[at]]
            self.sources.append(_Source(one, bounds, bounds))
        named = texts(request)
        if not named:
            return
        layouts = {
            name: [_operand(request, name, text) for text, _ in named[name]] for name in "ABC"
        }
        triples = list(product(*named.values()))
        fits = [replicated(request, [factor for _, factor in each]) for each in triples]
        held = (
            np.array([self.sizes[name] * each.partition.local_size(0) for each in layouts[name]])
            for name in "ABC"
        )
        large = sum(np.ix_(*held)).ravel() > ruler.memory_bytes
        rates = rates_of(ruler.seen, self.sizes["A"], request.ranks)
        case = request.case
        bounds, guesses = bounds_of(layouts, (case.m, case.n, case.k), rates)
        self.found.tried += 3 * len(ruler.data_movements) * sum(fits)
        self.found.too_large += 3 * len(ruler.data_movements) * int((large & fits).sum())
        left = np.flatnonzero(~large & fits)
        for which, stationary in enumerate("CBA"):
            each = lambda at, stationary=stationary: [
                on_triple(case, [text for text, _ in triples[left[at]]], stationary, movement)
                for movement in ruler.data_movements
            ]
            of = (values[..., which].ravel()[left] for values in (bounds, guesses))
            self.sources.append(_Source(each, *of))

    def _trace(self, source: _Source) -> None:
        """Trace the next of a source, unless it cannot have a place."""
        if source.guess == inf:
            return
        start = Clock.cpu()
        least, guess, cases = source.take()
        for case in cases if least <= self.worst else ():
            if made := self._add(case, least, guess):
                source.learn(guess, made.estimate)
        source.took_s += Clock.cpu() - start

    def _add(self, case: Case, least: float, guess: float) -> _Candidate | None:
        """A case is a program like another, or refused, or open."""
        request, ruler = self.request, self.ruler
        try:
            case, algorithm, problem, options = with_copies(case, request.ranks)
            problem = problem.on_nodes(ruler.nodes)
            resolved = algorithm.resolve(problem, ruler.in_place, **options)
            if resolved.get("sums") == "push":  # nothing is cut in what it cannot be faster than
                case = replace(case, options=case.options | {"sums": "push"})
                resolved = resolved | {"chunk": None}
            name = _name(algorithm, problem, resolved)
            if name in self.names:
                return None
            self.names[name] = len(self.names)
            if sum(problem.tile_bytes(0).values()) > ruler.memory_bytes:
                self.found.too_large += 1
                return None
            start = Clock.cpu()
            trace = algorithm.trace(problem, 0, planning_model(ruler.seen, resolved), **resolved)
            moving = self._moving(problem)
            bound = max(ruler.bound(trace), least) + moving.price / request.multiplications
            took_s = Clock.cpu() - start
        except UnsupportedError as error:
            self.found.refused += 1
            if case.algorithm == "universal":  # which takes any layout but for a reason
                self.why = str(error)
            return None
        congruent = algorithm.congruent
        folded = even(problem) and congruent and congruent(problem, **resolved)
        longest = max((len(group) for group in trace.groups), default=1)
        # without times, or alone where it waits for signals, nothing more is to be found out
        final = ruler.seen is None or any(step.signals for step in trace.steps)
        needs_s = 2 * took_s * (longest if folded else request.ranks)
        made = _Candidate(case, name, bound, max(bound, guess), moving, needs_s, final)
        self._put(self.families[_family_of(case, resolved)], made)
        return made

    def _moving(self, problem: Problem) -> Moving:
        """From the layouts of today to those of a problem, C back from there."""
        parts = [self.brought(name, problem.operand(name).stored) for name in self.today]
        moved, most, seconds = zip(Moving(seconds=0.0), *parts)
        return Moving(sum(moved), sum(most), sum(seconds) if self.ruler.seen else None)

    def _brought(self, name: str, other) -> Moving:
        ends = (other, self.today[name]) if name == "C" else (self.today[name], other)
        size, seen = self.sizes[name], self.ruler.seen
        moved = [(source, target, size * count) for source, target, count in flows(*ends)]
        seconds = moving_s(moved, seen) if seen else 0.0
        return Moving(sum(each[2] for each in moved), busiest(moved), seconds)

    def _put(self, family: _Family, candidate: _Candidate) -> None:
        heappush(family.open, (candidate.estimate, next(self.numbers), candidate))

    def _judge(self, family: _Family) -> None:
        """Estimate the most promising of a family anew, or judge it and learn from it."""
        *_, candidate = heappop(family.open)
        if candidate.bound > self.worst:
            return
        if not candidate.final:
            extra = candidate.moving.price / self.request.multiplications
            estimate = max(candidate.estimate, self.ruler.alone(candidate.case) + extra)
            self._put(family, replace(candidate, estimate=estimate, final=True))
            return
        if self.best and self._spent(_JUDGED, candidate.needs_s):
            self.late.append(candidate)
            return
        case, device = candidate.case, not (self.ruler.seen and self.ruler.seen.adds_on_core)
        took = self._try(candidate.name, look_aheads(case, device), candidate.moving)
        family.learn(candidate.estimate, min(took, self.worst))

    def _try(self, name: tuple, cases: Sequence[Case], moving: Moving) -> float:
        """What some cases of a program cost at least, inf if that is nothing new; the best has its
        place."""
        within = self.best[name].key[0] if name in self.best else self.worst
        try:
            extra = moving.price / self.request.multiplications
            found = list(self.ruler.judge(cases, moving, extra, within))
        except (OutOfMemory, UnsupportedError) as error:
            large = isinstance(error, OutOfMemory)
            self.found.too_large += large
            self.found.refused += not large
            return inf
        self.found.judged += 1
        for place in found:
            if name not in self.best or place.key < self.best[name].key:
                self.best[name] = place
                self._sort()
        return min((place.key[0] for place in found), default=inf)

    def _refine(self) -> None:
        """Try the first places with other settings, one after another, each with the best so far;
        by times only, and where something moves."""
        for name in self.places[: self.request.refine]:
            first = self.best[name]
            if first.record is None or not first.record.moved_bytes:
                continue
            for setting in settings(first.case, first.record.chunk):
                place = self.best[name]
                few = place.record.steps <= _STEPS.get(setting.get("schedule"), inf)
                if few and not self._spent(_REFINED):
                    self._try(name, [changed(place.case, setting)], place.moving)

    def _rank(self) -> None:
        """The places that were asked for; the interval of the first, and of others while it is not
        too late for them."""
        took_s = 0.0
        for name in self.places[: self.request.top]:
            place, start = self.best[name], Clock.cpu()
            if not took_s or not self._spent(_INTERVALS, took_s):
                place = self.ruler.with_interval(place)
                took_s = Clock.cpu() - start
            self.found.ranking.append(place)

    def _note_excluded(self) -> None:
        """What is left, and how good it could be."""
        worst, families = self.worst, self.families.values()
        late = [*self.late, *(each[-1] for family in families for each in family.open)]
        bounds = [each.bound for each in late if each.bound <= worst]
        for source in self.sources:
            bounds += source.left(worst)
        self.found.left = len(bounds)
        if bounds:
            least = max(min(bounds), self.ruler.least_of_all)
            self.found.gap = max(self._cost(1) / least - 1, 0.0) if least else inf

    def _refuse(self) -> NoReturn:
        found, ruler = self.found, self.ruler
        if found.too_large:
            raise OutOfMemory(
                f"none of {found.tried} candidates fits {format_bytes(ruler.memory_bytes)} a rank. "
                "Use more ranks, or a larger --memory."
            )
        if self.why:
            raise UnsupportedError(f"none of {found.tried} candidates fits: {self.why}")
        raise UnsupportedError(
            f"none of {found.tried} candidates takes these partitions. Fix fewer of them, or add "
            "universal to --only."
        )


def _name(algorithm, problem: Problem, resolved: dict) -> tuple:
    """What tells a program from others."""
    stored = (operand.stored for operand in problem.operands)
    return algorithm.name, *stored, *sorted(resolved.items())


def _steps(case: Case) -> int:
    """What says which of the cases of an algorithm have few steps, roughly."""
    of = case.options.get
    return (of("slices") or 0) + (of("unroll") or 0) - (of("tile") or 0)


def _family_of(case: Case, options: dict) -> tuple:
    """What the family of a case goes by: its estimates are off as those of others there."""
    of = (case.a or "").partition(":")[0]
    pushes = options.get("sums") == "push"
    kinds = (case.options.get(name) for name in ("stationary", "variant", "per_node"))
    return case.algorithm, of in ("grid", "traditional") and of, pushes, *kinds


def every_program(request: TuneRequest, machine: Machine | None = None) -> list[Case]:
    """One case of each program among the candidates of a request, in their order: what a search
    that left nothing out would judge. Candidates that come to the same program are one; those that
    are refused, or too large, are left out. Communication tiles, look-aheads and other settings
    that a search tries are not among them.

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
    search = _Search(request, machine)
    made = (
        search._add(case, 0.0, 0.0) for case in candidates(request, search.ruler.data_movements)
    )
    return [each.case for each in made if each]
