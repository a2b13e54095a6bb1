"""Rank candidates within a memory budget: by a machine model's times, or without one by bytes and
load balance.

Each candidate has a lower bound and an estimate: for triples of layouts all at once
(:mod:`.sieve`), for others from the program of one rank, which is traced and, unless it waits for
signals of other ranks, simulated alone, its groups representing all ranks. Candidates of one kind
are a family, with similar errors of the estimates: the best of every family is judged before the
second of any, the cheapest to simulate first; then the most promising of all is next, with the
estimates of a family scaled by the ratios of its judged programs.

The search ends when no remaining bound is below the last of the best so far, so that no remaining
candidate can be among them; or when the ``effort``, in CPU seconds, is spent: then it reports how
much better the remaining ones could be at most. Equal layouts, and options that give the same
program, are one candidate.
"""

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from heapq import heappop, heappush
from itertools import groupby
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
from drbench.plan.explain import busiest, loads
from drbench.program.problem import Operand, Problem
from drbench.program.steps import COUNTERS
from drbench.program.trace import Trace, no_collection
from launch.cases.case import Case
from launch.host.units import format_bytes
from partitions import flows

from .beyond import Sure, how_sure
from .candidates import (
    TuneRequest,
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
from .counts import Counted, counted, least_bytes, share_of
from .predict import (
    nodes_on,
    planning_model,
    predict_with,
    programs_of,
    ranks_on,
    reads_in_place,
    refuse_failed,
    seen_by,
    with_interval,
)
from .sieve import bounds_of, rates_of

#: Without a model, candidates whose busiest rank has more than this times its even share of the
#: FLOPs are ranked after all others, because bytes do not show the imbalance.
EVEN = 1.1
_UNEVEN = 1e30  # more bytes than any candidate moves
#: Seconds of tracing per second of judging, while there are programs to judge.
_SHARE = 0.3
#: Shares of the effort after which the search stops tracing ahead, judging, refining, and computing
#: intervals of further places.
_TRACED, _JUDGED, _REFINED, _INTERVALS = 0.25, 0.6, 0.75, 0.8
#: Programs with more steps over all ranks are not lowered in a search: that takes far longer.
_STEPS = {"greedy": 4000, "cost": 4000, "exhaustive": 100}


class Moving(NamedTuple):
    """The cost of redistributing A and B to a layout, and C back, one matrix after another.

    Attributes
    ----------
    moved_bytes, busiest_bytes : int
        Total over all ranks; the most that one rank sends or receives.
    seconds : float or None
        By a machine model.
    """

    moved_bytes: int = 0
    busiest_bytes: int = 0
    seconds: float | None = None

    @property
    def price(self) -> float:
        """Seconds, or without a model the bytes of the busiest rank."""
        return self.busiest_bytes if self.seconds is None else self.seconds


class Place(NamedTuple):
    """A place of the ranking.

    Attributes
    ----------
    case : Case
    memory : int
        Bytes of the largest rank's tiles and buffers.
    moving : Moving
        From and to the current layouts; zero if none are given.
    layouts : tuple of str
        Text forms of the partitions of A, B and C.
    record : Record or None
        By a machine model; None without one.
    counts : Counted or None
        Without a machine model.
    bound : Bound or None
        By a machine model: a lower bound of its time, from its GEMMs and its busiest link.
    key : tuple
        The sort key of places, including its share of ``moving``.
    """

    case: Case
    memory: int
    moving: Moving
    layouts: tuple[str, ...]
    record: Record | None = None
    counts: Counted | None = None
    bound: Bound | None = None
    key: tuple = ()

    @property
    def moved_bytes(self) -> int:
        """Total over all ranks, in the multiplication."""
        return self.counts.loads.moved_bytes if self.counts else self.record.moved_bytes or 0

    @property
    def cost(self) -> float:
        """Seconds, or without a model the bytes that the busiest rank sends or receives."""
        return self.counts.loads.busiest_bytes if self.counts else self.record.best_s


@dataclass
class Found:
    """The ranking, best first, and counts of the search.

    Attributes
    ----------
    ranking : list of Place
    tried, judged, refused, too_large : int
        Candidates; programs that were simulated, or whose bytes were counted on all ranks;
        unsupported ones; ones that exceed the memory.
    left : int
        Candidates that are not excluded by their bound, but were not judged within the effort.
    gap : float
        How much faster than the first place one of them could be at most: its time over their
        smallest bound, minus 1; 0 if there are none. Without a model in bytes.
    mine : Place or None
        The best on the current layouts; None if none are given, or none fits the memory.
    why_not : str
        Why ``mine`` is None although layouts are given.
    better : bool
        Whether the first place, on other layouts, costs less than ``mine``.
    least_bytes : float or None
        That some rank needs with any schedule; None if the matrices do not fit the memory.
    sure : Sure or None
        How reliable the answer is.
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
        """Cost of ``mine`` over that of the first place, in time or in bytes of the busiest rank;
        None if that moves none, or is not better."""
        first = self.ranking[0].cost if self.better else 0
        return self.mine.cost / first if first else None

    @property
    def pays_after(self) -> int | None:
        """Multiplications after which redistributing to the first place pays, in time or in bytes
        of the busiest rank; None if it is not better."""
        if not self.better:
            return None
        first = self.ranking[0]
        return max(1, ceil(first.moving.price / (self.mine.cost - first.cost)))

    @property
    def in_doubt(self) -> bool:
        """Whether an unsearched candidate could be faster than the interval of the first place."""
        first = self.ranking[0].record
        if first is None or first.median_low_s is None:
            return self.left > 0 and self.gap > 0
        return self.left > 0 and first.best_s / (1 + self.gap) < first.median_low_s

    def within(self, multiplications: int = 1) -> list[int]:
        """The further places, the second being 2, that may be as fast as the first: their time is
        in its interval, including redistribution.

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
    """Rank the candidates by the model, or without one by bytes and load balance. All replicas of C
    are complete. With current layouts (``request.today``) also find the best on them, within a
    third of the effort more.

    Raises
    ------
    UsageError
        If the request is inconsistent.
    OutOfMemory
        If all candidates were refused because of memory.
    UnsupportedError
        If no candidate fits the fixed partitions, or the machine has no peak for the element type.
    """
    with no_collection():  # the search is freed before the next garbage collection
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
    """Find the best on the current layouts, and whether the first place is better."""
    kept = {name: text for name, text in zip("abc", request.today) if text}
    effort = request.effort and request.effort / 3
    case = replace(request.case, **kept)
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
        """A lower bound of the cost of every program with this trace of a rank."""
        return bound_of([trace], self.seen).seconds

    def alone(self, case: Case) -> float:
        """The time of the first rank alone, with its groups representing all ranks."""
        case, algorithm, problem, options = with_copies(case, self.ranks)
        resolved = algorithm.resolve(problem.on_nodes(self.nodes), self.in_place, **options)
        trace = algorithm.trace(problem, 0, planning_model(self.seen, resolved), **resolved)
        with suppress(DrbenchError):
            return Simulator([trace], self.seen).run(case.ahead(resolved)).time_s
        return 0.0

    def judge(
        self, cases: Sequence[Case], moving: Moving, extra: float, within: float
    ) -> Iterator[Place]:
        """The places of a program with several look-aheads, without those that cost more than
        ``within``; ``extra`` is the redistribution cost per multiplication.

        Raises
        ------
        DrbenchError
            If the program is refused.
        """
        made = programs_of(cases[0], self.machine, self.ranks)
        problem, bound = made.problem, bound_of(made.traces, self.seen)
        held = max(sum(problem.tile_bytes(rank).values()) for rank in range(problem.nprocs))
        for case in cases:
            how = {"pool": True, "within_s": (within - extra) * (1 + 1e-9), "made": made}
            with suppress(Beyond):
                record, _ = predict_with(case, self.machine, self.ranks, **how)
                refuse_failed(record)
                key = (record.best_s + extra, *attrgetter(*COUNTERS)(record))
                memory, texts = held + (record.pool_bytes or 0), (*problem.texts.values(),)
                yield Place(case, memory, moving, texts, record, bound=bound, key=key)
                within = min(within, key[0])

    def with_interval(self, place: Place) -> Place:
        """The place with the interval of its time."""
        made = programs_of(place.case, self.machine, self.ranks)
        record = with_interval(place.record, place.case, self.machine, self.ranks, made)
        return place._replace(record=record)


class _ByBytes:
    """Costs in bytes of the busiest rank, then of all ranks; candidates with uneven FLOPs are
    last."""

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
        yield Place(cases[0], found.memory, moving, found.layouts, counts=found, key=key)

    def with_interval(self, place: Place) -> Place:
        return place


def _operand(request: TuneRequest, name: str, text: str) -> Operand:
    """A matrix of the request in a layout."""
    case = request.case
    more = {name.lower(): text, "transpose": case.transpose or ""}
    return Problem(case.m, case.n, case.k, request.ranks, **more).operand(name)


class _Candidate(NamedTuple):
    """A program that was traced on one rank.

    Attributes
    ----------
    name : tuple
        Identifies the program.
    bound : float
        Lower bound of its cost.
    estimate : float
        Estimate of its cost.
    needs_s : float
        CPU seconds of tracing and simulating all ranks, extrapolated from the first rank.
    final : bool
        Whether the estimate is final: the time of its first rank, simulated alone; or its bound,
        if it waits for signals, or nothing is simulated.
    """

    case: Case
    name: tuple
    bound: float
    estimate: float
    moving: Moving
    needs_s: float
    final: bool


class _Source:
    """Candidates that are not traced yet, ordered by their estimates.

    Parameters
    ----------
    cases : callable
        ``cases(number)``: the cases of a bound and an estimate.
    bounds, guesses : sequence of float

    Attributes
    ----------
    took_s : float
        CPU seconds of tracing.
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
        """The estimate of the next one, scaled by the best ratio so far; inf if there is none."""
        return self._guesses[self._at] * (self._lift if self._lift < inf else 1.0)

    def take(self) -> tuple[float, float, list[Case]]:
        """Remove the next one and return its bound, guess and cases."""
        at = self._at
        self._at += 1
        return float(self._bounds[at]), float(self._guesses[at]), self._cases(self._order[at])

    def learn(self, guess: float, estimate: float) -> None:
        """Update the scale by the estimate of one that was taken."""
        self._lift = min(self._lift, estimate / guess if guess else 1.0)

    def left(self, below: float) -> list[float]:
        """The remaining bounds that are at most ``below``."""
        bounds = self._bounds[self._at : -1]
        return bounds[bounds <= below].tolist()


class _Family:
    """Traced candidates of one kind.

    Attributes
    ----------
    open : list
        A heap of (estimate, number, candidate).
    scale : float
        Factor on estimates: the smallest cost over estimate of the judged programs, approached
        as more are judged.
    judged : int
    """

    def __init__(self):
        self.open: list = []
        self.scale, self.judged, self._ratio = 1.0, 0, inf

    @property
    def next(self) -> float:
        """The scaled estimate of its most promising candidate; inf if there is none."""
        return self.scale * self.open[0][0] if self.open else inf

    def learn(self, estimate: float, took: float) -> None:
        """Update the scale by a judged program: its estimate and its cost."""
        self.judged += 1
        if 0 < estimate and took < inf:
            self._ratio = min(self._ratio, took / estimate)
            self.scale = max(self._ratio, 1.0) ** (self.judged / (self.judged + 1))


class _Search:
    """The state of a search: open and judged candidates, and the result."""

    def __init__(self, request: TuneRequest, machine: Machine | None):
        self.request, self.found, self.why = request, Found(), ""
        self.ruler = _ByBytes(request) if machine is None else _ByTime(request, machine)
        self.sizes = Problem(1, 1, 1, 1, dtype=request.case.dtype).itemsizes
        self.today = {
            name: _operand(request, name, text).partition
            for name, text in zip("ABC", request.today)
            if text
        }
        self.brought = cache(self._brought)
        self.names: dict[tuple, int] = {}  # traced programs and their numbers
        self.best: dict[tuple, Place] = {}  # of each judged program
        self.places: list[tuple] = []  # names of the placed programs, best first
        self.late: list[_Candidate] = []  # not judged within the effort
        self.started = Clock.cpu()
        self.sources: list[_Source] = []
        self.families: dict[tuple, _Family] = defaultdict(_Family)

    def run(self) -> Found:
        """Judge all candidates that may have a place, and return the result."""
        self.collect()
        while self.request.effort and not self._spent(_TRACED):
            sources = [each for each in self.sources if each.guess < inf]
            if not sources:
                break
            self.trace(min(sources, key=attrgetter("took_s")))
        took = {self.trace: 0.0, self._judge: 0.0}  # seconds
        while not (self.best and self._spent(_JUDGED)):
            source = min(self.sources, key=attrgetter("guess"))
            family = min(self.families.values(), key=self._priority, default=_Family())
            if source.guess == family.next == inf:
                break
            traces_next = family.next == inf or (
                source.guess <= family.next and took[self.trace] <= _SHARE * took[self._judge]
            )
            act, of = (self.trace, source) if traces_next else (self._judge, family)
            start = Clock.cpu()
            act(of)
            took[act] += Clock.cpu() - start
        if not self.best:
            self._refuse()
        self._note_excluded()
        self._refine()
        self._rank()
        return self.found

    def traced(self) -> list[_Candidate]:
        """The traced candidates that are not judged."""
        return [each[-1] for family in self.families.values() for each in family.open]

    def _spent(self, share: float, needed_s: float = 0.0) -> bool:
        """Whether a share of the effort is spent, including the next ``needed_s``."""
        effort = self.request.effort
        return effort is not None and Clock.cpu() - self.started + needed_s > share * effort

    def _priority(self, family: _Family) -> tuple:
        """The sort key of families: those without a judged candidate first, the most promising per
        CPU second before others, unless none of their candidates can be the best."""
        head = family.open[0][-1] if family.open else None
        if family.judged or not head or head.estimate > self._cost(1):
            return True, family.next
        return False, head.needs_s * (head.estimate if self.best else 1.0)

    def _cost(self, place: int) -> float:
        """The cost of a place, the first being 1; inf if it is empty."""
        names = self.places[place - 1 : place]
        return self.best[names[0]].key[0] if names else inf

    @property
    def worst(self) -> float:
        """The cost of the last place."""
        return self._cost(self.request.top)

    def _sort(self) -> None:
        """Sort the programs, the best first. Of indistinguishable ones only the simplest is kept:
        without two levels of ranks, then the one traced first."""
        order = sorted(
            (place.key, place.memory, "per_node" in place.case.options, self.names[name], name)
            for name, place in self.best.items()
        )
        self.places = [next(alike)[-1] for _, alike in groupby(order, key=itemgetter(0, 1))]

    def collect(self) -> None:
        """Collect the candidates to trace: triples of layouts with Stationary C, B and A, and
        others, those with few steps first."""
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
        triples = list(itertools.product(*named.values()))
        fits = [replicated(request, [factor for _, factor in each]) for each in triples]
        held = (
            np.array([self.sizes[name] * each.partition.local_size(0) for each in layouts[name]])
            for name in "ABC"
        )
        large = sum(np.ix_(*held)).ravel() > ruler.memory_bytes
        rates = rates_of(ruler.seen, self.sizes, request.ranks)
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

    def trace(self, source: _Source) -> None:
        """Trace the next candidate of a source, unless it cannot have a place."""
        start = Clock.cpu()
        least, guess, cases = source.take()
        for case in cases if least <= self.worst else ():
            if made := self._add(case, least, guess):
                source.learn(guess, made.estimate)
        source.took_s += Clock.cpu() - start

    def _add(self, case: Case, least: float, guess: float) -> _Candidate | None:
        """Add the case as an open candidate, unless its program is known or refused."""
        request, ruler = self.request, self.ruler
        try:
            case, algorithm, problem, options = with_copies(case, request.ranks)
            problem = problem.on_nodes(ruler.nodes)
            resolved = algorithm.resolve(problem, ruler.in_place, **options)
            if resolved.get("sums") == "push":  # the bound assumes uncut transfers
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
            if case.algorithm == "universal":  # it takes every layout, so keep the reason
                self.why = str(error)
            return None
        congruent = algorithm.congruent
        folded = even(problem) and congruent and congruent(problem, **resolved)
        longest = max((len(group) for group in trace.groups), default=1)
        # without times, or with waits for signals, the estimate cannot be improved
        final = ruler.seen is None or any(step.signals for step in trace.steps)
        needs_s = 2 * took_s * (longest if folded else request.ranks)
        made = _Candidate(case, name, bound, max(bound, guess), moving, needs_s, final)
        self._put(self.families[_family_of(case, resolved)], made)
        return made

    def _moving(self, problem: Problem) -> Moving:
        """The redistribution from the current layouts to those of a problem, and of C back."""
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
        heappush(family.open, (candidate.estimate, self.names[candidate.name], candidate))

    def _judge(self, family: _Family) -> None:
        """Improve the estimate of the most promising of a family, or judge it and update the
        scale."""
        *_, candidate = heappop(family.open)
        if candidate.bound > self.worst:
            return
        if not candidate.final:
            extra = candidate.moving.price / self.request.multiplications
            estimate = max(candidate.estimate, self.ruler.alone(candidate.case) + extra)
            self._put(family, candidate._replace(estimate=estimate, final=True))
            return
        if self.best and self._spent(_JUDGED, candidate.needs_s):
            self.late.append(candidate)
            return
        case, device = candidate.case, not (self.ruler.seen and self.ruler.seen.adds_on_core)
        took = self._try(candidate.name, look_aheads(case, device), candidate.moving)
        family.learn(candidate.estimate, min(took, self.worst))

    def _try(self, name: tuple, cases: Sequence[Case], moving: Moving) -> float:
        """Judge some cases of a program, place the best, and return the smallest cost; inf if the
        program is known."""
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
        """Try the first places with other settings, one after another, each on top of the best so
        far; only with times, and if data moves."""
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
        """Make the requested places, with the interval of the first, and of others while the effort
        lasts."""
        for name in self.places[: self.request.top]:
            place = self.best[name]
            if not (self.found.ranking and self._spent(_INTERVALS)):
                place = self.ruler.with_interval(place)
            self.found.ranking.append(place)

    def _note_excluded(self) -> None:
        """Count the remaining candidates, and bound how good they could be."""
        worst = self.worst
        bounds = [each.bound for each in (*self.late, *self.traced()) if each.bound <= worst]
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
                f"none of {found.tried} candidates fits {format_bytes(ruler.memory_bytes)} per "
                "rank. Use more ranks, or a larger --memory."
            )
        if self.why:
            raise UnsupportedError(f"none of {found.tried} candidates fits: {self.why}")
        raise UnsupportedError(
            f"none of {found.tried} candidates supports these partitions. Fix fewer of them, or "
            "add universal to --only."
        )


def _name(algorithm, problem: Problem, resolved: dict) -> tuple:
    """A key that identifies a program."""
    stored = (operand.stored for operand in problem.operands)
    return algorithm.name, *stored, *sorted(resolved.items())


def _steps(case: Case) -> int:
    """A sort key that approximates the number of steps among the cases of an algorithm."""
    of = case.options.get
    return (of("slices") or 0) + (of("unroll") or 0) - (of("tile") or 0)


def _family_of(case: Case, options: dict) -> tuple:
    """The key of the family of a case, whose estimates have similar errors."""
    of = (case.a or "").partition(":")[0]
    pushes = options.get("sums") == "push"
    kinds = (case.options.get(name) for name in ("stationary", "variant", "per_node"))
    return case.algorithm, of in ("grid", "traditional") and of, pushes, *kinds


def every_program(request: TuneRequest, machine: Machine | None = None) -> list[Case]:
    """One case of each program among the candidates of a request: those that an unlimited search
    would judge. Candidates with the same program are one; refused and too large ones are left out.
    Communication tiles, look-aheads and other settings of a search are not included.

    Raises
    ------
    UsageError
        If the request is inconsistent.

    Examples
    --------
    >>> request = TuneRequest(Case(64, 64, 64, "row", "row"), 2, ("universal",), replication="none")
    >>> sorted((case.c, case.options["stationary"]) for case in every_program(request))
    [('column', 'A'), ('column', 'B'), ('column', 'C'), ('row', 'A'), ('row', 'B'), ('row', 'C')]
    """
    search = _Search(request, machine)
    search.collect()
    for source in search.sources:
        while source.guess < inf:
            search.trace(source)
    return [each.case for each in search.traced()]
