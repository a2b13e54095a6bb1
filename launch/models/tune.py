"""Rank candidates within a memory budget: by a machine model's times, or without one by bytes and
load balance.

Each candidate has a lower bound and an estimate, which is the bound at first: for triples of
layouts all at once (:mod:`.sieve`), for others from the program of one rank, which is traced and,
if its ranks communicate in groups only, simulated alone, its groups representing all ranks. Next is
the candidate of the smallest estimate, scaled by the ratio that the simulated programs make likely
(:mod:`.ratios`), at its optimistic end, so that kinds of programs that are not known yet are tried.

The search ends when no remaining bound is below the last of the best so far, so that no remaining
candidate can be among them; or when the ``effort``, in CPU seconds, is spent: then it reports how
much better the remaining ones could be at most. Equal layouts, and options that give the same
program, are one candidate.
"""

import itertools
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from heapq import heapify, heappop, heappush
from itertools import groupby
from math import inf
from operator import attrgetter, itemgetter
from typing import NamedTuple, NoReturn

import numpy as np

from drbench.clock import Clock
from drbench.errors import OutOfMemory, UnsupportedError
from drbench.launch.cases.case import Case
from drbench.model.bounds import moving_s
from drbench.model.machine import Machine
from drbench.model.simulate import TooLong
from drbench.partitions import flows
from drbench.plan.explain import busiest
from drbench.program.problem import Operand, Problem
from drbench.program.trace import Trace, no_collection
from drbench.texts import bytes_text

from .candidates import (
    TuneRequest,
    changed,
    coarse,
    look_aheads,
    on_triple,
    others,
    replicated,
    settings,
    texts,
    with_copies,
)
from .counts import least_bytes
from .places import ByBytes, ByTime, Found, Moving, Place
from .predict import planning_model
from .ratios import ATTRIBUTES, Ratios
from .sieve import bounds_of, rates_of

#: Shares of the effort after which the search stops tracing ahead, judging, refining, and computing
#: intervals of further places.
_TRACED, _JUDGED, _REFINED, _INTERVALS = 0.25, 0.7, 0.85, 0.9
#: Share of the effort that one simulation may take, if there is some answer.
_ONE = 0.08
#: Programs with more steps over all ranks are not lowered in a search: that takes far longer.
_STEPS = {"greedy": 4000, "cost": 4000, "exhaustive": 100}
#: CPU seconds of a step in a simulation, at first; steps of a GEMM; and those that take as long as
#: the rest of a rank.
_STEP_S, _STEPS_A_GEMM, _FIXED = 4e-5, 3, 20
#: The exponent by which a longer simulation makes a program later.
_PATIENCE = 0.25
#: Places within this factor of the first are refined.
_NEAR = 1.25
#: If a simulation takes more than a share of the effort, places are within this multiple of the
#: first.
_FAR, _LONG = 1.5, 0.005
#: Candidates of a source whose ratios are predicted: those of the smallest estimates.
_WINDOW = 2000
#: Ratios are predicted again after this share of the programs judged so far.
_AGAIN = 0.05


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
    found.least_bytes = least_bytes(request.case, request.ranks, request.memory)
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
    attributes : tuple of int
        What it shares with other programs.
    bound : float
        Lower bound of its cost.
    estimate : float
        Estimate of its cost.
    gemms : float
        About how many a rank has.
    final : bool
        Whether the estimate is final: else one rank is simulated alone.
    exact : bool
        Whether the estimate is the time of one rank alone, nearly that of all.
    """

    case: Case
    name: tuple
    attributes: tuple[int, ...]
    bound: float
    estimate: float
    moving: Moving
    gemms: float
    final: bool
    exact: bool = False


class _Source:
    """Candidates that are not traced yet, ordered by their estimates.

    Parameters
    ----------
    cases : callable
        ``cases(number)``: the cases of a bound and an estimate.
    bounds, guesses : sequence of float
    attributes : callable, optional
        ``attributes(numbers)``: an array (number, attribute). Without it the estimates are scaled
        by the smallest ratio of those that were traced.
    gemms : sequence of float, optional
        About how many GEMMs a rank has, if the bounds include transfers.
    kind : int
        The attribute that distinguishes kinds of programs.

    Attributes
    ----------
    known : bool
        Whether the bounds include transfers, so that a trace would add little.
    took_s : float
        CPU seconds of tracing.
    """

    def __init__(
        self,
        cases: Callable[[int], list[Case]],
        bounds: Sequence[float],
        guesses: Sequence[float],
        attributes: Callable[[np.ndarray], np.ndarray] | None = None,
        gemms: Sequence[float] | None = None,
        kind: int = 0,
    ):
        self.kind = kind
        self._cases, self.attributes, self._gemms = cases, attributes, gemms
        self.known = gemms is not None
        self._bounds, self._guesses = np.asarray(bounds), np.asarray(guesses)
        self._left = np.argsort(self._guesses, kind="stable")
        self._lift, self.took_s = inf, 0.0
        self.predict(Ratios(), inf)

    @property
    def next(self) -> float:
        """The cost that the most promising may have; inf if there is none."""
        return self._scores.min(initial=inf)

    @property
    def bound(self) -> float:
        """The bound of the most promising."""
        return float(self._bounds[self._left[self._scores.argmin()]]) if self._scores.size else inf

    def predict(self, ratios: Ratios, worst: float) -> None:
        """Predict the costs of the first ones, without those that cannot cost less than
        ``worst``."""
        self._left = self._left[self._bounds[self._left] <= worst]
        first = self._left[:_WINDOW]
        if self.attributes:
            factors = ratios.optimistic(self.attributes(first))
        else:
            factors = self._lift if self._lift < inf else 1.0
        self._scores = np.maximum(self._bounds[first], self._guesses[first] * factors)
        if self._gemms is not None:
            self._scores *= _late(self._gemms[first])

    def take(self, ratios: Ratios, worst: float) -> tuple[float, float, float, list[Case]]:
        """Remove the most promising one and return its bound, guess, GEMMs if known, and cases."""
        at = self._scores.argmin()
        number = self._left[at]
        self._left, self._scores = np.delete(self._left, at), np.delete(self._scores, at)
        if not self._scores.size:
            self.predict(ratios, worst)
        gemms = float(self._gemms[number]) if self.known else 0.0
        values = float(self._bounds[number]), float(self._guesses[number]), gemms
        return *values, self._cases(number)

    def learn(self, guess: float, estimate: float) -> None:
        """Update the scale by the estimate of one that was taken."""
        self._lift = min(self._lift, estimate / guess if guess else 1.0)

    def left(self, below: float) -> list[float]:
        """The remaining bounds that are at most ``below``."""
        bounds = self._bounds[self._left]
        return bounds[bounds <= below].tolist()


class _Search:
    """The state of a search: open and judged candidates, and the result."""

    def __init__(self, request: TuneRequest, machine: Machine | None):
        self.request, self.found, self.why = request, Found(), ""
        self.ruler = ByBytes(request) if machine is None else ByTime(request, machine)
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
        self.open: list[tuple] = []  # a heap, see _ordered()
        self.ratios, self.numbers = Ratios(), _Numbers()
        self.kinds: set[int] = set()  # kinds of which a program was judged
        self.step_s = _STEP_S  # CPU seconds of a step in a simulation

    def run(self) -> Found:
        """Judge all candidates that may have a place, and return the result."""
        self.collect()
        while self.request.effort and not self._spent(_TRACED):
            sources = [each for each in self.sources if each.next < inf and not each.known]
            if not sources:
                break
            self.trace(min(sources, key=attrgetter("took_s")))
        predicted = 0  # judged programs that the predictions are based on
        while not (self.best and self._spent(_JUDGED)):
            if self.found.judged > (1 + _AGAIN) * predicted:
                predicted = self.found.judged
                self._predict()
            beaten = not self.open or self.open[0][0]  # none that is open can be the best
            traces = beaten or not self._traces_enough()
            tried = [each for each in self.sources if each.known or traces]
            order = lambda each: (each.next == inf, each.kind in self.kinds, each.next)
            source = min(tried or self.sources, key=order)
            if source.next == inf and not self.open:
                break
            first = self.open[0] if self.open else (True, 2, inf)
            ready = self.open and not self.best  # some answer first
            likely = source.bound > self._cost(1), 1 + (source.kind in self.kinds), source.next
            if not ready and source.next < inf and likely < first[:3]:
                self.trace(source)
            else:
                self._judge(heappop(self.open)[-1])
        if not self.best:
            self._refuse()
        self._note_excluded()
        self._refine()
        self._rank()
        return self.found

    def _traces_enough(self) -> bool:
        """Whether tracing has taken its share of the time."""
        return sum(each.took_s for each in self.sources) > _TRACED * (Clock.cpu() - self.started)

    def traced(self) -> list[_Candidate]:
        """The traced candidates that are not judged."""
        return [each[-1] for each in self.open]

    def _spent(self, share: float, needed_s: float = 0.0) -> bool:
        """Whether a share of the effort is spent, including the next ``needed_s``."""
        effort = self.request.effort
        return effort is not None and Clock.cpu() - self.started + needed_s > share * effort

    def _predict(self) -> None:
        """Predict the costs of all open candidates from those that were judged."""
        for source in self.sources:
            source.predict(self.ratios, self.worst)
        kept = [each for each in self.traced() if each.bound <= self.worst]
        attributes = np.array([each.attributes for each in kept]).reshape(-1, ATTRIBUTES)
        factors = self.ratios.optimistic(attributes)
        self.open = [self._ordered(each, float(factor)) for each, factor in zip(kept, factors)]
        heapify(self.open)

    def _put(self, candidate: _Candidate) -> None:
        """Add an open candidate."""
        (factor,) = self.ratios.optimistic(np.array([candidate.attributes]))
        heappush(self.open, self._ordered(candidate, float(factor)))

    def _ordered(self, candidate: _Candidate, factor: float) -> tuple:
        """(whether it cannot be the best, 0 if it is known to be faster than the first, 1 if none
        of its kind was judged, else 2, likely cost, number, candidate), whose estimate is scaled by
        a factor. Long simulations are later: what they cost would pay for several others."""
        ratio = 1.0 if candidate.exact or not candidate.final else factor
        cost = max(candidate.bound, candidate.estimate * ratio)
        beaten = candidate.bound > self._cost(1)
        cost *= _late(candidate.gemms if candidate.final else 1 / self.request.ranks)
        faster = candidate.exact and candidate.estimate < self._cost(1)
        tried = candidate.exact or candidate.attributes[1] in self.kinds
        return beaten, 0 if faster else 1 + tried, cost, self.names[candidate.name], candidate

    def _cost(self, place: int) -> float:
        """The cost of a place, the first being 1; inf if it is empty."""
        names = self.places[place - 1 : place]
        return self.best[names[0]].key[0] if names else inf

    @property
    def worst(self) -> float:
        """The cost that a place may have at most."""
        effort, typical_s = self.request.effort, 2 * _FIXED * self.request.ranks * self.step_s
        far = effort is not None and typical_s > _LONG * effort
        return min(self._cost(self.request.top), _FAR * self._cost(1) if far else inf)

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
        others by algorithm, those with few steps first."""
        request, ruler = self.request, self.ruler
        kinds: dict[str, list[Case]] = {}
        for case in others(request, ruler.data_movements):
            kinds.setdefault(case.algorithm, []).append(case)
            self.found.tried += 1
        for cases in kinds.values():
            cases.sort(key=_steps)
            bounds = np.full(len(cases), ruler.least_of_all)
            one = lambda at, cases=cases: [cases[at]]
            kind = self.numbers[cases[0].algorithm]
            self.sources.append(_Source(one, bounds, bounds, kind=kind))
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
        bounds, guesses, gemms = bounds_of(layouts, (case.m, case.n, case.k), rates)
        movements = ruler.data_movements
        known = ruler.seen is not None and all(
            each.partition.grid is not None and len(each.partition.tiles_of(0)) <= 1
            for of in layouts.values()
            for each in of
        )
        self.found.tried += 3 * len(movements) * sum(fits)
        self.found.too_large += 3 * len(movements) * int((large & fits).sum())
        left = np.flatnonzero(~large & fits)
        codes = np.array([[self.numbers[text] for text, _ in each] for each in triples])[left]
        equal = (codes == codes[:, :1]).all(axis=1)
        kinds_of_triples = itertools.product(enumerate("CBA"), (False, True), (True, False))
        for (which, stationary), pushes, alike in kinds_of_triples:
            tried = [each for each in movements if ("sums" in each) is pushes]
            if not tried or (pushes and stationary == "C"):  # no partial sums to push
                continue
            rows = np.flatnonzero(equal == alike)
            each = lambda at, stationary=stationary, tried=tried, rows=rows: [
                on_triple(case, [text for text, _ in triples[left[rows[at]]]], stationary, movement)
                for movement in tried
            ]
            kind = self.numbers["universal", stationary, pushes, alike]
            shared = lambda numbers, kind=kind, stationary=stationary, rows=rows: _of_triples(
                kind, stationary, codes[rows[numbers]]
            )
            of = [values[..., which].ravel()[left[rows]] for values in (bounds, guesses, gemms)]
            self.sources.append(_Source(each, *of[:2], shared, of[2] if known else None, kind))

    def trace(self, source: _Source) -> None:
        """Trace the next candidate of a source, unless it cannot have a place."""
        start = 0.0 if source.known else Clock.cpu()
        least, guess, gemms, cases = source.take(self.ratios, self.worst)
        for case in cases if least <= self.worst else ():
            if made := self._add(case, least, guess, gemms):
                source.learn(guess, made.estimate)
                if made.attributes[1] != source.kind:  # it does not push
                    self.kinds.add(source.kind)
        if not source.known:
            source.took_s += Clock.cpu() - start

    def _add(self, case: Case, least: float, guess: float, gemms: float) -> _Candidate | None:
        """Add the case as an open candidate, unless its program is known or refused; it is traced
        unless its ``gemms`` are known."""
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
            sizes = {key: resolved.get(key) for key, value in options.items() if type(value) is int}
            sizes = {key: value for key, value in sizes.items() if type(value) is int}
            case = replace(case, options=case.options | sizes)  # as they are named
            if sum(problem.tile_bytes(0).values()) > ruler.memory_bytes:
                self.found.too_large += 1
                return None
            moving = self._moving(problem)
            extra = moving.price / request.multiplications
            final = True
            if not gemms:
                model = planning_model(ruler.seen, resolved)
                trace = algorithm.trace(problem, 0, model, **resolved)
                least = max(ruler.bound(trace), least)
                gemms = len(trace.steps) / _STEPS_A_GEMM
                final = ruler.seen is None or not _only_groups(trace)
        except UnsupportedError as error:
            self.found.refused += 1
            if case.algorithm == "universal":  # it takes every layout, so keep the reason
                self.why = str(error)
            return None
        made = _Candidate(
            case,
            name,
            self.numbers.attributes(case, resolved),
            least + extra,
            max(least, guess) + extra,
            moving,
            gemms,
            final,
        )
        self._put(made)
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

    def _judge(self, candidate: _Candidate) -> None:
        """Improve the estimate of a candidate, or judge it and learn its ratio."""
        if candidate.bound > self.worst:
            return
        if not candidate.final:
            extra = candidate.moving.price / self.request.multiplications
            estimate = max(candidate.estimate, self.ruler.alone(candidate.case) + extra)
            self._put(candidate._replace(estimate=estimate, final=True, exact=True))
            return
        if self.best and self._spent(_JUDGED, self._needs(candidate) * self.step_s):
            self.late.append(candidate)
            return
        start, cases = Clock.cpu(), look_aheads(candidate.case, self.ruler.overlaps)
        limited = self.request.effort is not None
        if limited:  # its other variants are tried if it has a place
            cases = [coarse(cases[0]) if self.request.refine else cases[0]]
        self.kinds.add(candidate.attributes[1])
        try:
            took = self._try(candidate.name, cases, candidate.moving)
        except TooLong:
            self.late.append(candidate)
            return
        took_s = Clock.cpu() - start
        self.step_s += 0.3 * (took_s / self._needs(candidate) - self.step_s)
        if self.ruler.seen and took and not candidate.exact:
            attributes = candidate.attributes
            if took == inf and len(self.ratios):  # it was stopped where it exceeded the last place
                (likely,) = self.ratios.likely(np.array([attributes]))
                took = max(self.worst, likely * candidate.estimate)
            if took < inf:
                self.ratios.learn(attributes, took / candidate.estimate)
            if limited and self.request.refine and candidate.name in self.best:
                self._vary(candidate.name, "prefetch", 1)  # it may be the first, and stop others

    def _needs(self, candidate: _Candidate) -> float:
        """About how many steps its simulation runs."""
        return self.request.ranks * (_FIXED + _STEPS_A_GEMM * candidate.gemms)

    def _try(self, name: tuple, cases: Sequence[Case], moving: Moving) -> float:
        """Judge some cases of a program, place the best, and return the smallest cost; inf if the
        program is known, refused, or has no place. TooLong if the simulation takes too long."""
        within = self.best[name].key[0] if name in self.best else self.worst
        effort = self.request.effort if self.best else None
        until_s = inf if effort is None else Clock.cpu() + _ONE * effort
        try:
            extra = moving.price / self.request.multiplications
            found = list(self.ruler.judge(cases, moving, extra, within, until_s))
        except (OutOfMemory, UnsupportedError) as error:
            large = isinstance(error, OutOfMemory)
            self.found.too_large += large
            self.found.refused += not large
            return inf
        self.found.judged += 1
        for place in found:
            best = self.best.get(name)
            simpler = best and place.key == best.key and place.case.prefetch is None
            if best is None or place.key < best.key or simpler:
                self.best[name] = place
                self._sort()
        return min((place.key[0] for place in found), default=inf)

    def _refine(self) -> None:
        """Try other look-aheads of the first places, then other settings of fewer, one after
        another, each on top of the best so far; only with times, and if data moves."""
        refine = self.request.refine
        stages = {"prefetch": 2 * refine, "chunk": refine, "schedule": refine}
        for kind, count in stages.items():
            for name in self.places[:count]:
                self._vary(name, kind)

    def _vary(self, name: tuple, kind: str, most: int | None = None) -> None:
        """Try the first ``most`` settings of a kind of a place that is near the first."""
        first, free = self.best[name], self.request.case.prefetch is None
        if first.record is None or not first.record.moved_bytes:
            return
        if first.key[0] > _NEAR * self._cost(1):
            return
        tried = settings(first.case, first.record.chunk, free)
        for setting in [each for each in tried if kind in each][:most]:
            place = self.best[name]
            few = place.record.steps <= _STEPS.get(setting.get("schedule"), inf)
            if few and not self._spent(_REFINED):
                with suppress(TooLong):
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
                f"none of {found.tried} candidates fits {bytes_text(ruler.memory_bytes)} per "
                "rank. Use more ranks, or a larger --memory."
            )
        if self.why:
            raise UnsupportedError(f"none of {found.tried} candidates fits: {self.why}")
        raise UnsupportedError(
            f"none of {found.tried} candidates supports these partitions. Fix fewer of them, or "
            "add universal to --only."
        )


class _Numbers(dict):
    """A number for everything that programs share."""

    def __missing__(self, key) -> int:
        return self.setdefault(key, len(self) + 1)

    def attributes(self, case: Case, resolved: dict) -> tuple[int, ...]:
        """The attributes of a case of :class:`.ratios.Ratios`: of the universal algorithm the
        stationary matrix and the layouts, of others the options."""
        if case.algorithm == "universal":
            pushes, stationary = resolved.get("sums") == "push", resolved["stationary"]
            alike = case.a == case.b == case.c
            kind = self[case.algorithm, stationary, pushes, alike]
            triple = np.array([[self[text] for text in (case.a, case.b, case.c)]])
            return tuple(map(int, _of_triples(kind, stationary, triple)[0]))
        kind, values = self[case.algorithm], [*case.options.items(), *[None] * ATTRIBUTES]
        return 0, kind, *(_number(kind, self[each]) for each in values[: ATTRIBUTES - 2])


def _number(kind, one, other=0):
    """The number of an attribute, or of a pair, of one kind of programs."""
    return ((kind << 20) + one << 20) + other


def _of_triples(kind: int, stationary: str, codes: np.ndarray) -> np.ndarray:
    """The attributes of triples of layouts (triple, matrix): each layout, each with that of the
    stationary matrix, and which are equal."""
    by = dict(zip("ABC", codes.T))
    still = by.pop(stationary)
    first, second = by.values()
    one = [_number(kind, each) for each in (still, first, second)]
    two = [_number(kind, still, each) for each in (first, second)]
    alike = (still == first) + 2 * (still == second) + 4 * (first == second)
    return np.stack([0 * still, 0 * still + kind, *one, *two, _number(kind, alike)], axis=1)


def _late(gemms):
    """The factor by which a program of so many GEMMs a rank is later than it may be fast."""
    return ((_FIXED + _STEPS_A_GEMM * gemms) / _FIXED) ** _PATIENCE


def _only_groups(trace: Trace) -> bool:
    """Whether ranks communicate in groups only, so that one rank alone takes about as long as
    all."""
    moves = [step for step in trace.steps if step.signals or step.moved(trace.rank)]
    return bool(moves) and all(step.grouped for step in moves)


def _name(algorithm, problem: Problem, resolved: dict) -> tuple:
    """A key that identifies a program."""
    stored = (operand.stored for operand in problem.operands)
    return algorithm.name, *stored, *sorted(resolved.items())


def _steps(case: Case) -> int:
    """A sort key that approximates the number of steps among the cases of an algorithm."""
    of = case.options.get
    return (of("slices") or 0) + (of("unroll") or 0) - (of("tile") or 0)


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
        while source.next < inf:
            search.trace(source)
    return [each.case for each in search.traced()]
