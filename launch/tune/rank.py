"""Rank candidates within a memory budget: by a machine model's times, or without one by bytes and
load balance.

Next is the candidate of the smallest estimate, scaled by the ratio that the simulated programs make
likely (:mod:`.ratios`), at its optimistic end, so that kinds of programs that are not known yet are
tried. If the ranks of a program communicate in groups only, one rank is simulated alone before, its
groups representing all ranks.

The search ends when no remaining bound is below the last of the best so far, so that no remaining
candidate can be among them; or when the ``effort``, in CPU seconds, is spent: then it reports how
much better the remaining ones could be at most.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from heapq import heapify, heappop, heappush
from itertools import groupby
from math import inf
from operator import attrgetter, itemgetter

import numpy as np

from drbench.clock import Clock
from drbench.errors import OutOfMemory, UnsupportedError
from drbench.launch.cases.case import Case
from drbench.model.machine import Machine
from drbench.model.simulate import EffortExhausted
from drbench.program.trace import no_collection

from .bound import FIXED_STEPS, STEPS_A_GEMM, Candidate, Candidates, CaseSource, delay
from .costs import ByBytes, ByTime
from .counts import least_bytes
from .enumerate import change, coarsen, list_look_aheads, list_settings, with_copies
from .ratios import ATTRIBUTES, Ratios
from .request import TuneRequest
from .result import Moving, Place, SearchResult

#: Shares of the effort after which the search stops tracing ahead, judging, refining, and computing
#: intervals of further places.
_TRACED, _JUDGED, _REFINED, _INTERVALS = 0.25, 0.7, 0.85, 0.9
#: Share of the effort that one simulation may take, if there is some answer.
_ONE = 0.08
#: Programs with more steps over all ranks are not lowered in a search: that takes far longer.
_STEPS = {"greedy": 4000, "cost": 4000, "exhaustive": 100}
#: CPU seconds of a step in a simulation, at first.
_STEP_S = 4e-5
#: Places within this factor of the first are refined.
_NEAR = 1.25
#: If a simulation takes more than a share of the effort, places are within this multiple of the
#: first.
_FAR, _LONG = 1.5, 0.005
#: Ratios are predicted again after this share of the programs judged so far.
_AGAIN = 0.05


def tune(request: TuneRequest, machine: Machine | None = None) -> SearchResult:
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
        result = _Search(request, machine).run()
        if any(request.today):
            _compare_with_today(result, request, machine)
    result.least_bytes = least_bytes(request.case, request.ranks, request.memory)
    return result


def _compare_with_today(
    result: SearchResult, request: TuneRequest, machine: Machine | None
) -> None:
    """Find the best on the current layouts, and whether the first place is better."""
    given = {name: text for name, text in zip("abc", request.today) if text}
    effort = request.effort and request.effort / 3
    case = replace(request.case, **given)
    stay = replace(request, case=case, today=(None,) * 3, top=1, effort=effort)
    try:
        result.mine = _Search(stay, machine).run().ranking[0]
    except (OutOfMemory, UnsupportedError) as error:
        result.why_not = str(error)
        return
    first, mine = result.ranking[0], result.mine
    layouts, own_layouts = (
        [operand.stored for operand in with_copies(place.case, request.ranks)[2].operands]
        for place in (first, mine)
    )
    result.better = first.cost < mine.cost and layouts != own_layouts


class _Search:
    """The state of a search: open and judged candidates, and the result."""

    def __init__(self, request: TuneRequest, machine: Machine | None):
        self.request, self.result = request, SearchResult()
        self.costs = ByBytes(request) if machine is None else ByTime(request, machine)
        self.best: dict[tuple, Place] = {}  # of each judged program
        self.places: list[tuple] = []  # names of the placed programs, best first
        self.late: list[Candidate] = []  # not judged within the effort
        self.started = Clock.cpu()
        self.candidates = Candidates(request, self.costs, self.result)
        self.sources = self.candidates.sources
        self.heap: list[tuple] = []  # of the open candidates, see _ordered()
        self.ratios = Ratios()
        self.kinds: set[int] = set()  # kinds of which a program was judged
        self.step_s = _STEP_S  # CPU seconds of a step in a simulation

    def run(self) -> SearchResult:
        """Judge all candidates that may have a place, and return the result."""
        self._trace_ahead()
        predicted = 0  # judged programs that the predictions are based on
        while not (self.best and self._spent(_JUDGED)):
            if self.result.judged > (1 + _AGAIN) * predicted:
                predicted = self.result.judged
                self._predict()
            beaten = not self.heap or self.heap[0][0]  # none that is open can be the best
            traces = beaten or not self._traces_enough()
            sources = [source for source in self.sources if source.known or traces]
            order = lambda source: (source.next == inf, source.kind in self.kinds, source.next)
            source = min(sources or self.sources, key=order)
            if source.next == inf and not self.heap:
                break
            first = self.heap[0] if self.heap else (True, 2, inf)
            ready = self.heap and not self.best  # some answer first
            likely = source.bound > self._cost(1), 1 + (source.kind in self.kinds), source.next
            if not ready and source.next < inf and likely < first[:3]:
                self._open(source)
            else:
                self._judge(heappop(self.heap)[-1])
        if not self.best:
            self.candidates.refuse()
        self._note_excluded()
        self._refine()
        self._rank()
        return self.result

    def _trace_ahead(self) -> None:
        """Trace candidates of all algorithms for a share of the effort."""
        while self.request.effort and not self._spent(_TRACED):
            sources = [source for source in self.sources if source.next < inf and not source.known]
            if not sources:
                return
            self._open(min(sources, key=attrgetter("took_s")))

    def _traces_enough(self) -> bool:
        """Whether tracing has taken its share of the time; never without a limit, so that such a
        search is the same every time."""
        if self.request.effort is None:
            return False
        took_s = sum(source.took_s for source in self.sources)
        return took_s > _TRACED * (Clock.cpu() - self.started)

    def _spent(self, share: float, needed_s: float = 0.0) -> bool:
        """Whether a share of the effort is spent, including the next ``needed_s``."""
        effort = self.request.effort
        return effort is not None and Clock.cpu() - self.started + needed_s > share * effort

    def _list_open(self) -> list[Candidate]:
        """The candidates that may have a place, and are not judged."""
        candidates, worst = (entry[-1] for entry in self.heap), self.worst
        return [candidate for candidate in candidates if candidate.bound <= worst]

    def _open(self, source: CaseSource) -> None:
        """Open the next candidate of a source."""
        for candidate in self.candidates.take(source, self.ratios, self.worst):
            self._put(candidate)
            if candidate.attributes[1] != source.kind:  # it does not push
                self.kinds.add(source.kind)

    def _predict(self) -> None:
        """Predict the costs of all open candidates from those that were judged."""
        for source in self.sources:
            source.predict(self.ratios, self.worst)
        candidates = self._list_open()
        attributes = [candidate.attributes for candidate in candidates]
        factors = self.ratios.optimistic(np.array(attributes).reshape(-1, ATTRIBUTES))
        self.heap = [self._ordered(*pair) for pair in zip(candidates, map(float, factors))]
        heapify(self.heap)

    def _put(self, candidate: Candidate) -> None:
        """Add an open candidate."""
        (factor,) = self.ratios.optimistic(np.array([candidate.attributes]))
        heappush(self.heap, self._ordered(candidate, float(factor)))

    def _ordered(self, candidate: Candidate, factor: float) -> tuple:
        """(whether it cannot be the best, 0 if it is known to be faster than the first, 1 if none
        of its kind was judged, else 2, likely cost, number, candidate), whose estimate is scaled by
        a factor. Long simulations are later: what they cost would pay for several others."""
        ratio = 1.0 if candidate.exact or not candidate.final else factor
        cost = max(candidate.bound, candidate.estimate * ratio)
        cost *= delay(candidate.gemms if candidate.final else 1 / self.request.ranks)
        beaten = candidate.bound > self._cost(1)
        faster = candidate.exact and candidate.estimate < self._cost(1)
        tried = candidate.exact or candidate.attributes[1] in self.kinds
        number = self.candidates.names[candidate.name]
        return beaten, 0 if faster else 1 + tried, cost, number, candidate

    def _cost(self, place: int) -> float:
        """The cost of a place, the first being 1; inf if it is empty."""
        names = self.places[place - 1 : place]
        return self.best[names[0]].key[0] if names else inf

    @property
    def worst(self) -> float:
        """The cost that a place may have at most."""
        effort, typical_s = self.request.effort, 2 * FIXED_STEPS * self.request.ranks * self.step_s
        far = effort is not None and typical_s > _LONG * effort
        return min(self._cost(self.request.top), _FAR * self._cost(1) if far else inf)

    def _sort(self) -> None:
        """Sort the programs, the best first. Of indistinguishable ones only the simplest stays:
        without two levels of ranks, then the one traced first."""
        numbers = self.candidates.names
        order = sorted(
            (place.key, place.memory, "per_node" in place.case.options, numbers[name], name)
            for name, place in self.best.items()
        )
        self.places = [next(alike)[-1] for _, alike in groupby(order, key=itemgetter(0, 1))]

    def _judge(self, candidate: Candidate) -> None:
        """Improve the estimate of a candidate, or judge it and learn its ratio."""
        if candidate.bound > self.worst:
            return
        if not candidate.final:
            extra = candidate.moving.price / self.request.multiplications
            alone = self.costs.simulate_alone(candidate.case) + extra
            estimate = max(candidate.estimate, alone)
            self._put(candidate._replace(estimate=estimate, final=True, exact=True))
            return
        steps = self.request.ranks * (FIXED_STEPS + STEPS_A_GEMM * candidate.gemms)
        if self.best and self._spent(_JUDGED, steps * self.step_s):
            self.late.append(candidate)
            return
        start, cases = Clock.cpu(), list_look_aheads(candidate.case, self.costs.overlaps)
        limited = self.request.effort is not None
        if limited:  # its other variants are tried if it has a place
            cases = [coarsen(cases[0]) if self.request.refine else cases[0]]
        self.kinds.add(candidate.attributes[1])
        try:
            cost = self._try(candidate.name, cases, candidate.moving)
        except EffortExhausted:
            self.late.append(candidate)
            return
        self.step_s += 0.3 * ((Clock.cpu() - start) / steps - self.step_s)
        if self.costs.seen and cost and not candidate.exact:
            self._learn(candidate, cost)
            if limited and self.request.refine and candidate.name in self.best:
                self._vary(candidate.name, "prefetch", 1)  # it may be the first, and stop others

    def _learn(self, candidate: Candidate, cost: float) -> None:
        """Learn the ratio of a judged candidate, whose cost is inf if it has no place."""
        if cost == inf and len(self.ratios):  # it was stopped where it exceeded the last place
            (likely,) = self.ratios.likely(np.array([candidate.attributes]))
            cost = max(self.worst, likely * candidate.estimate)
        if cost < inf:
            self.ratios.learn(candidate.attributes, cost / candidate.estimate)

    def _try(self, name: tuple, cases: Sequence[Case], moving: Moving) -> float:
        """Judge some cases of a program, place the best, and return the smallest cost; inf if the
        program is known, refused, or has no place.

        EffortExhausted if the simulation takes too long.
        """
        within = self.best[name].key[0] if name in self.best else self.worst
        effort = self.request.effort if self.best else None
        until_s = inf if effort is None else Clock.cpu() + _ONE * effort
        try:
            places = list(self.costs.judge(cases, moving, within, until_s))
        except OutOfMemory:
            self.result.too_large += 1
            return inf
        except UnsupportedError:
            self.result.refused += 1
            return inf
        self.result.judged += 1
        for place in places:
            best = self.best.get(name)
            simpler = best and place.key == best.key and place.case.prefetch is None
            if best is None or place.key < best.key or simpler:
                self.best[name] = place
                self._sort()
        return min((place.key[0] for place in places), default=inf)

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
        far = first.key[0] > _NEAR * self._cost(1)
        if first.record is None or not first.record.moved_bytes or far:
            return
        for value in list_settings(first.case, first.record.chunk, free)[kind][:most]:
            place = self.best[name]
            few = place.record.steps <= _STEPS.get(value, inf)
            if few and not self._spent(_REFINED):
                with suppress(EffortExhausted):
                    self._try(name, [change(place.case, kind, value)], place.moving)

    def _rank(self) -> None:
        """Make the requested places, with the interval of the first, and of others while the effort
        lasts."""
        for name in self.places[: self.request.top]:
            place = self.best[name]
            if place.record and not (self.result.ranking and self._spent(_INTERVALS)):
                place = self.costs.with_interval(place)
            self.result.ranking.append(place)

    def _note_excluded(self) -> None:
        """Count the remaining candidates, and bound how good they could be."""
        worst = self.worst
        rest = [*self.late, *self._list_open()]
        bounds = [candidate.bound for candidate in rest if candidate.bound <= worst]
        for source in self.sources:
            bounds += source.list_bounds(worst)
        self.result.left = len(bounds)
        if bounds:
            least = max(min(bounds), self.costs.least_of_all)
            self.result.gap = max(self._cost(1) / least - 1, 0.0) if least else inf
