"""Bound the candidates: each has a lower bound of its cost, and an estimate, which is the bound at
first.

Triples of layouts are bounded all at once (:mod:`.triples`). Any other candidate is bounded by the
program of one rank, which is traced when the candidate is the most promising of its source. Equal
layouts, and options that give the same program, are one candidate.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from math import inf
from operator import attrgetter
from typing import NamedTuple, NoReturn

import numpy as np

from drbench.clock import Clock
from drbench.errors import OutOfMemory, UnsupportedError
from drbench.launch.cases.case import Case
from drbench.launch.models.predict import planning_model
from drbench.mappings import grouped
from drbench.model.bounds import moving_s
from drbench.partitions import flows
from drbench.plan.explain import busiest
from drbench.program.problem import Operand, Problem
from drbench.program.trace import Trace
from drbench.texts import bytes_text

from .costs import ByBytes, ByTime
from .enumerate import list_layouts, list_others, on_triple, replicated, with_copies
from .ratios import Numbers, Ratios, attributes_of_triples
from .request import TuneRequest
from .result import Moving, SearchResult
from .triples import bounds_of, rates_of

#: Steps of a GEMM; and those that take as long as the rest of a rank.
STEPS_A_GEMM, FIXED_STEPS = 3, 20
#: The exponent by which a longer simulation makes a program later.
_PATIENCE = 0.25
#: Candidates of a source whose ratios are predicted: those of the smallest estimates.
_WINDOW = 2000


class Candidate(NamedTuple):
    """A program with its bound.

    Attributes
    ----------
    name : tuple
        Identifies the program.
    attributes : tuple of int
        What it shares with other programs.
    bound, estimate : float
        Of its cost.
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


class CaseSource:
    """Cases that are not candidates yet, ordered by their estimates.

    Parameters
    ----------
    cases : callable
        ``cases(number)``: the cases of a bound and an estimate.
    bounds, guesses : sequence of float
    kind : int
        The attribute that distinguishes kinds of programs.
    attributes : callable, optional
        ``attributes(numbers)``: an array (number, attribute). Without it the estimates are scaled
        by the smallest ratio of those that were traced.
    gemms : sequence of float, optional
        About how many GEMMs a rank has, if the bounds include transfers.

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
        kind: int,
        attributes: Callable[[np.ndarray], np.ndarray] | None = None,
        gemms: Sequence[float] | None = None,
    ):
        self.kind = kind
        self._cases, self._attributes, self._gemms = cases, attributes, gemms
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
        if self._attributes:
            factors = ratios.optimistic(self._attributes(first))
        else:
            factors = self._lift if self._lift < inf else 1.0
        self._scores = np.maximum(self._bounds[first], self._guesses[first] * factors)
        if self.known:
            self._scores *= delay(self._gemms[first])

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

    def list_bounds(self, below: float) -> list[float]:
        """The remaining bounds that are at most ``below``."""
        bounds = self._bounds[self._left]
        return bounds[bounds <= below].tolist()


class Candidates:
    """The candidates of a request.

    Attributes
    ----------
    sources : list of CaseSource
        The others by algorithm, those with few steps first; and triples of layouts with Stationary
        C, B and A.
    names : dict
        Every program so far, and its number.
    """

    def __init__(self, request: TuneRequest, costs: ByTime | ByBytes, result: SearchResult):
        self.request, self.costs, self.result = request, costs, result
        self.names: dict[tuple, int] = {}
        self._numbers, self._why = Numbers(), ""
        self._itemsizes = Problem(1, 1, 1, 1, dtype=request.case.dtype).itemsizes
        self._today = {
            name: self._operand(name, text).partition
            for name, text in zip("ABC", request.today)
            if text
        }
        self._redistribute = cache(self._redistribute)
        self.sources = [*self._bound_others(), *self._bound_triples()]

    def _operand(self, name: str, text: str) -> Operand:
        """A matrix of the request in a layout."""
        case = self.request.case
        more = {name.lower(): text, "transpose": case.transpose or ""}
        return Problem(case.m, case.n, case.k, self.request.ranks, **more).operand(name)

    def _bound_others(self) -> Iterator[CaseSource]:
        every = list_others(self.request, self.costs.movements)
        for algorithm, cases in grouped(every, attrgetter("algorithm")).items():
            self.result.tried += len(cases)
            cases.sort(key=_count_steps)
            bounds = np.full(len(cases), self.costs.least_of_all)
            case_at = lambda number, cases=cases: [cases[number]]
            yield CaseSource(case_at, bounds, bounds, self._numbers[algorithm])

    def _bound_triples(self) -> Iterator[CaseSource]:
        request, costs, case = self.request, self.costs, self.request.case
        named = list_layouts(request)
        if not named:
            return
        layouts = {name: [self._operand(name, text) for text, _ in named[name]] for name in "ABC"}
        triples = list(itertools.product(*named.values()))
        texts = [[text for text, _ in triple] for triple in triples]
        fits = np.array([replicated(request, [count for _, count in triple]) for triple in triples])
        stored = (
            [self._itemsizes[name] * layout.partition.local_size(0) for layout in layouts[name]]
            for name in "ABC"
        )
        large = sum(np.ix_(*map(np.array, stored))).ravel() > costs.memory_bytes
        rates = rates_of(costs.seen, self._itemsizes, request.ranks)
        bounds, guesses, gemms = bounds_of(layouts, (case.m, case.n, case.k), rates)
        known = costs.seen is not None and all(
            layout.partition.grid is not None and len(layout.partition.tiles_of(0)) <= 1
            for layout in itertools.chain(*layouts.values())
        )
        self.result.tried += 3 * len(costs.movements) * int(fits.sum())
        self.result.too_large += 3 * len(costs.movements) * int((large & fits).sum())
        codes = np.array([[self._numbers[text] for text in triple] for triple in texts])
        equal = (codes == codes[:, :1]).all(axis=1)

        def source(which: int, stationary: str, movements: list[dict], alike: bool) -> CaseSource:
            rows = np.flatnonzero(~large & fits & (equal == alike))
            kind = self._numbers["universal", stationary, "sums" in movements[0], alike]
            values = [array[..., which].ravel()[rows] for array in (bounds, guesses, gemms)]
            return CaseSource(
                lambda number: [
                    on_triple(case, texts[rows[number]], stationary, options)
                    for options in movements
                ],
                *values[:2],
                kind,
                lambda numbers: attributes_of_triples(kind, stationary, codes[rows[numbers]]),
                values[2] if known else None,
            )

        movements = grouped(costs.movements, lambda options: "sums" in options)
        for which, stationary in enumerate("CBA"):
            for pushes, alike in itertools.product(movements, (True, False)):
                if not (pushes and stationary == "C"):  # it has no partial sums
                    yield source(which, stationary, movements[pushes], alike)

    def take(self, source: CaseSource, ratios: Ratios, worst: float) -> Iterator[Candidate]:
        """Remove the next cases of a source, and bound those that are new candidates, unless they
        cannot have a place: cost at most ``worst``."""
        start = 0.0 if source.known else Clock.cpu()
        least, guess, gemms, cases = source.take(ratios, worst)
        for case in cases if least <= worst else ():
            if candidate := self._bound(case, least, guess, gemms):
                yield candidate
                source.learn(guess, candidate.estimate)
        if not source.known:
            source.took_s += Clock.cpu() - start

    def _bound(self, case: Case, least: float, guess: float, gemms: float) -> Candidate | None:
        """The candidate of a case, unless its program is known or refused; it is traced unless its
        ``gemms`` are known."""
        request, costs = self.request, self.costs
        try:
            case, algorithm, problem, options = with_copies(case, request.ranks)
            problem = problem.on_nodes(costs.nodes)
            resolved = algorithm.resolve(problem, costs.in_place, **options)
            if resolved.get("sums") == "push":  # the bound assumes uncut transfers
                case = replace(case, options=case.options | {"sums": "push"})
                resolved = resolved | {"chunk": None}
            stored = [operand.stored for operand in problem.operands]
            name = algorithm.name, *stored, *sorted(resolved.items())
            if name in self.names:
                return None
            self.names[name] = len(self.names)
            sizes = {
                key: resolved[key]
                for key, value in options.items()
                if type(value) is type(resolved.get(key)) is int
            }
            case = replace(case, options=case.options | sizes)  # as they are named
            if sum(problem.tile_bytes(0).values()) > costs.memory_bytes:
                self.result.too_large += 1
                return None
            final = True
            if not gemms:
                model = planning_model(costs.seen, resolved)
                trace = algorithm.trace(problem, 0, model, **resolved)
                least = max(costs.bound(trace), least)
                gemms = len(trace.steps) / STEPS_A_GEMM
                final = costs.seen is None or not _is_grouped(trace)
        except UnsupportedError as error:
            self.result.refused += 1
            if case.algorithm == "universal":  # it takes every layout, so keep the reason
                self._why = str(error)
            return None
        moving = self._price(problem)
        extra = moving.price / request.multiplications
        attributes = self._numbers.attributes(case, resolved)
        bound, estimate = least + extra, max(least, guess) + extra
        return Candidate(case, name, attributes, bound, estimate, moving, gemms, final)

    def _price(self, problem: Problem) -> Moving:
        """The redistribution from the current layouts to those of a problem, and of C back."""
        parts = [self._redistribute(name, problem.operand(name).stored) for name in self._today]
        moved, most, seconds = zip(Moving(seconds=0.0), *parts)
        return Moving(sum(moved), sum(most), sum(seconds) if self.costs.seen else None)

    def _redistribute(self, name: str, other) -> Moving:
        ends = (other, self._today[name]) if name == "C" else (self._today[name], other)
        size, seen = self._itemsizes[name], self.costs.seen
        moved = [(source, target, size * count) for source, target, count in flows(*ends)]
        seconds = moving_s(moved, seen) if seen else 0.0
        return Moving(sum(nbytes for *_, nbytes in moved), busiest(moved), seconds)

    def refuse(self) -> NoReturn:
        """Raise the error of a search that judged nothing."""
        result = self.result
        if result.too_large:
            raise OutOfMemory(
                f"none of {result.tried} candidates fits {bytes_text(self.costs.memory_bytes)} per "
                "rank. Use more ranks, or a larger --memory."
            )
        reason = self._why and f"fits: {self._why}"
        other = "supports these partitions. Fix fewer of them, or add universal to --only."
        raise UnsupportedError(f"none of {result.tried} candidates {reason or other}")


def delay(gemms):
    """The factor by which a program of so many GEMMs a rank is later than it may be fast."""
    return ((FIXED_STEPS + STEPS_A_GEMM * gemms) / FIXED_STEPS) ** _PATIENCE


def _is_grouped(trace: Trace) -> bool:
    """Whether ranks communicate in groups only, so that one rank alone takes about as long as
    all."""
    moves = [step for step in trace.steps if step.signals or step.moved(trace.rank)]
    return bool(moves) and all(step.grouped for step in moves)


def _count_steps(case: Case) -> int:
    """A sort key that approximates the number of steps among the cases of an algorithm."""
    option = case.options.get
    return (option("slices") or 0) + (option("unroll") or 0) - (option("tile") or 0)
