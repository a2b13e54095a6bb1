"""Choosing among candidates within a memory budget: by a machine model's times, or without one by
bytes and balance.

Branch and bound: every candidate gets a lower bound from the trace of one rank
(:mod:`drbench.model.bounds`, or the bytes and FLOPs of that rank), and candidates are judged in
order of it until no bound left is below the worst of the best so far. What is left out can
therefore not be among them. A program is judged with every look-ahead that its algorithm names.
"""

from bisect import insort
from collections import Counter
from dataclasses import dataclass, field, replace
from math import inf
from operator import attrgetter
from typing import NamedTuple

from drbench.errors import OutOfMemory, UnsupportedError, UsageError
from drbench.measure.record import Record
from drbench.model.bounds import Bound, bound_of, lower_bound
from drbench.model.machine import Machine
from drbench.model.moves import moving_s
from drbench.plan.loads import Loads, busiest, loads
from drbench.program.problem import Problem
from drbench.program.steps import COUNTERS
from drbench.program.trace import no_collection
from launch.cases.case import Case
from launch.host.units import format_bytes
from partitions import LayoutError, Partition, flows, partition
from partitions.mixture import shapes

from .candidates import TuneRequest, candidates, everywhere, prefetches
from .counts import counted, share_of
from .predict import predict_with, programs, reads_in_place, refuse_more_ranks, seen_by

#: Without a model, candidates whose busiest rank multiplies more than this times its even share
#: come after all others: bytes say nothing of that.
EVEN = 1.1
_counters = attrgetter(*COUNTERS)


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


@dataclass
class Found:
    """The ranking, best first, and what was looked at.

    Attributes
    ----------
    ranking : list of Place
    tried, judged, refused, too_large : int
        Candidates; those simulated, or whose bytes were counted on all ranks; those not supported,
        and beyond the memory.
    """

    ranking: list[Place] = field(default_factory=list)
    tried: int = 0
    judged: int = 0
    refused: int = 0
    too_large: int = 0


class _ByModel:
    """Candidates in order of predicted seconds."""

    timed = True

    def __init__(self, request: TuneRequest, machine: Machine):
        refuse_more_ranks(machine, request.ranks)
        if request.memory is not None:
            machine = machine.with_value("memory_bytes", min(request.memory, machine.memory_bytes))
        self.request, self.machine = request, machine
        self.seen = seen_by(request.case, machine)
        self.memory_bytes, self.in_place = self.seen.memory_bytes, reads_in_place(self.seen)
        self.cuts = ("auto",) if self.in_place else ("auto", "none")

    def charge(self, moved) -> float:
        return moving_s(moved, self.seen)

    def least(self, trace, moving: Moving) -> tuple:
        return (lower_bound(trace, self.seen) + moving.seconds / self.request.products,)

    def bound(self, case: Case) -> Bound:
        """Of the traces of all ranks."""
        return bound_of(programs(case, self.seen, self.request.ranks), self.seen)

    def judge(self, case: Case, tiles: int, moving: Moving) -> tuple:
        """(key, memory, record, what tells it from others); the key None if it is refused."""
        record, _ = predict_with(case, self.machine, self.request.ranks, pool=True)
        if record.status != "ok":
            return None, 0, record, ()
        key = (record.best_s + moving.seconds / self.request.products,)
        return key, tiles + record.pool_bytes, record, _counters(record)


class _ByBytes:
    """Candidates whose work is even first, then in order of the bytes of the busiest rank, then of
    all, then of how many transfers they are."""

    machine, in_place, cuts, timed = None, False, ("auto",), False

    def __init__(self, request: TuneRequest):
        self.request = request
        self.memory_bytes = inf if request.memory is None else request.memory

    def charge(self, moved) -> None:
        return None

    def bound(self, case: Case) -> None:
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

    def judge(self, case: Case, tiles: int, moving: Moving) -> tuple:
        found = counted(case, self.request.ranks)
        if found.memory > self.memory_bytes:
            return None, found.memory, None, ()
        return self._key(found.loads, found.share, moving), found.memory, None, found.loads


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
    today, found, why = _Today(request, ruler.charge), Found(), ""
    programs: dict[str, _Program] = {}  # those that differ, by what they are
    with no_collection():
        for case in candidates(request, ruler.cuts):
            found.tried += 1
            try:
                case, algorithm, problem, options = everywhere(case, request.ranks)
                settled = algorithm.settle(problem, ruler.in_place, **options)
                name = repr((algorithm.name, problem.texts, sorted(settled.items())))
                if name in programs:  # open options may come to the same
                    programs[name].times += 1
                    continue
                tiles = max(sum(problem.tile_bytes(rank).values()) for rank in range(request.ranks))
                if tiles > ruler.memory_bytes:
                    found.too_large += 1
                    continue
                moving = today.moving(problem)
                least = ruler.least(algorithm.trace(problem, 0, **settled), moving)
            except UnsupportedError as error:
                found.refused += 1
                if case.algorithm == "universal":  # which takes any layout but for a reason
                    why = str(error)
                continue
            programs[name] = _Program(least, tiles, found.tried, case, moving)
        ranking = _Ranking(ruler, request, found)
        for program in sorted(programs.values(), key=attrgetter("order")):
            if ranking.beyond(program.least):
                break
            ranking.take(program)
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

    @property
    def order(self) -> tuple:
        """What is judged first."""
        return self.least, self.tiles, self.number


class _Judged(NamedTuple):
    """What :class:`_ByModel` or :class:`_ByBytes` say of a case."""

    key: tuple | None
    memory: int
    record: Record | None
    more: object

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

    def beyond(self, key: tuple) -> bool:
        """Whether a key is worse than the last place, all being taken."""
        top = self.request.top
        return len(self.places) >= top and key > self.places[top - 1][0]

    def take(self, program: _Program) -> None:
        """Judge a program with every look-ahead; by bytes, which are the same with all of them,
        with another than its own only if that takes too much memory."""
        own, *others = prefetches(program.case)
        self.found.judged += 1
        best, case = self._judge(program, own), own
        for other in others if self.ruler.timed or best.too_large else ():
            judged = self._judge(program, other)
            if judged.key and (best.key is None or judged.key < best.key):
                best, case = judged, other
        if best.key is not None:
            self._place(program, case, best)
        elif best.too_large:
            self.found.too_large += 1
        else:
            self.found.refused += 1

    def _judge(self, program: _Program, case: Case) -> _Judged:
        return _Judged(*self.ruler.judge(case, program.tiles, program.moving))

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
                judged.record,
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
        key, _, record, _ = ruler.judge(one, 0, nothing)
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
