"""Choosing among candidates within a memory budget: by a machine model's times, or without one by
bytes and balance.

Branch and bound: every candidate gets a lower bound from the trace of one rank
(:mod:`drbench.model.bounds`, or the bytes and FLOPs of that rank), and candidates are judged in
order of it until no bound left is below the worst of the best so far. What is left out can
therefore not be among them.
"""

from bisect import insort
from collections import Counter
from dataclasses import dataclass, field, replace
from math import inf
from operator import attrgetter
from typing import NamedTuple

from drbench.errors import OutOfMemory, UnsupportedError, UsageError
from drbench.measure.record import Record
from drbench.model.bounds import lower_bound
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

from .candidates import TuneRequest, candidates, everywhere
from .counts import counted, share_of
from .predict import predict_with, reads_in_place, refuse_more_ranks, seen_by

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
    """

    case: Case
    memory: int
    moving: Moving
    record: Record | None
    loads: Loads | None
    equals: int

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

    machine, in_place, cuts = None, False, ("auto",)

    def __init__(self, request: TuneRequest):
        self.request = request
        self.memory_bytes = inf if request.memory is None else request.memory

    def charge(self, moved) -> None:
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
    today, found, open_cases, why = _Today(request, ruler.charge), Found(), [], ""
    with no_collection():
        for case in candidates(request, ruler.cuts):
            found.tried += 1
            try:
                case, algorithm, problem, options = everywhere(case, request.ranks)
                settled = algorithm.settle(problem, ruler.in_place, **options)
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
            open_cases.append((least, tiles, found.tried, case, moving))
        ranked: list = []  # (key, bytes, number of the candidate, ...), the best first
        equals: Counter = Counter()  # of what cannot be told apart
        for least, tiles, number, case, moving in sorted(open_cases, key=lambda each: each[:3]):
            if len(ranked) >= request.top and least > ranked[request.top - 1][0]:
                break
            key, memory, record, more = ruler.judge(case, tiles, moving)
            found.judged += 1
            if key is not None:
                known = key, memory, more
                equals[known] += 1
                if equals[known] == 1:
                    insort(
                        ranked, (key, memory, number, case, moving, record, known), key=_first_three
                    )
            elif record is None or record.status == "out_of_memory":
                found.too_large += 1
            else:
                found.refused += 1
    if not ranked:
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
    found.ranking = [
        Place(case, memory, moving, record, None if record else known[-1], equals[known] - 1)
        for _, memory, _, case, moving, record, known in ranked[: request.top]
    ]
    return found


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
