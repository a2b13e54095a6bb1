"""Places of a ranking, the result of a search, and what it ranks by: seconds on a machine model, or
without one bytes and load balance."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import ceil, inf
from operator import attrgetter
from typing import NamedTuple

from drbench.errors import DrbenchError, OutOfMemory
from drbench.launch.cases.case import Case
from drbench.measure.record import Record
from drbench.model.bounds import Bound, bound_of
from drbench.model.machine import Machine
from drbench.model.simulate import Beyond, Simulator
from drbench.plan.explain import loads
from drbench.program.steps import COUNTERS
from drbench.program.trace import Trace
from drbench.texts import bytes_text

from .candidates import TuneRequest, data_movements, with_copies
from .counts import Counted, counted, share_of
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

#: Without a model, candidates whose busiest rank has more than this times its even share of the
#: FLOPs are ranked after all others, because bytes do not show the imbalance.
EVEN = 1.1
_UNEVEN = 1e30  # more bytes than any candidate moves


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
        in its interval, including redistribution; without a model, their bytes are equal.

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
        if first.record is None:
            costs = [(place.counts.share, place.cost) for place in self.ranking]
            return [at for at, cost in enumerate(costs, 1) if at > 1 and cost == costs[0]]
        if first.record.median_high_s is None:
            return []
        most = first.record.median_high_s + first.moving.price / multiplications
        costs = [place.cost + place.moving.price / multiplications for place in self.ranking]
        return [at for at, cost in enumerate(costs, 1) if at > 1 and cost <= most]


class ByTime:
    """Costs in predicted seconds."""

    def __init__(self, request: TuneRequest, machine: Machine):
        ranks_on(machine, request.ranks)
        if request.memory is not None:
            machine = machine.with_value("memory_bytes", min(request.memory, machine.memory_bytes))
        self.machine, self.ranks = machine, request.ranks
        self.seen = seen_by(request.case, machine)
        self.memory_bytes = self.seen.memory_bytes
        self.overlaps = not self.seen.adds_on_core  # transfers with GEMMs, on a copy engine
        self.in_place = reads_in_place(self.seen, request.ranks)
        self.nodes = nodes_on(self.seen, request.ranks)
        # with transfers as early as possible, cutting tiles seldom helps: then only as a refinement
        cuts = request.effort is None or self.in_place or not self.overlaps
        chunks = ("auto",) * cuts + ("none",) * (not self.in_place)
        self.data_movements = data_movements(True, *chunks)
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
        self,
        cases: Sequence[Case],
        moving: Moving,
        extra: float,
        within: float,
        until_s: float,
    ) -> Iterator[Place]:
        """The places of a program with several look-aheads, without those that cost more than
        ``within``; ``extra`` is the redistribution cost per multiplication.

        Raises
        ------
        TooLong
            If it is not simulated at the CPU time ``until_s``.
        DrbenchError
            If the program is refused.
        """
        made = programs_of(cases[0], self.machine, self.ranks)
        problem, made.simulator.until_s = made.problem, until_s
        held = max(sum(problem.tile_bytes(rank).values()) for rank in range(problem.nprocs))
        for case in cases:
            within_s = (within - extra) * (1 + 1e-9)
            with suppress(Beyond):
                record, _ = predict_with(
                    case, self.machine, self.ranks, pool=True, within_s=within_s, made=made
                )
                refuse_failed(record)
                key = (record.best_s + extra, *attrgetter(*COUNTERS)(record))
                memory, texts = held + (record.pool_bytes or 0), (*problem.texts.values(),)
                bound = bound_of(made.traces, self.seen)
                yield Place(case, memory, moving, texts, record, bound=bound, key=key)
                within = min(within, key[0])

    def with_interval(self, place: Place) -> Place:
        """The place with the interval of its time."""
        made = programs_of(place.case, self.machine, self.ranks)
        record = with_interval(place.record, place.case, self.machine, self.ranks, made)
        return place._replace(record=record)


class ByBytes:
    """Costs in bytes of the busiest rank, then of all ranks; candidates with uneven FLOPs are
    last."""

    seen, overlaps = None, False
    in_place, nodes, data_movements, least_of_all = False, (0,), data_movements(False), 0.0

    def __init__(self, request: TuneRequest):
        self.request = request
        self.memory_bytes = inf if request.memory is None else request.memory

    def bound(self, trace: Trace) -> float:
        found = loads([trace])
        return found.busiest_bytes + _UNEVEN * (share_of(found, trace.problem) > EVEN)

    def judge(
        self, cases: Sequence[Case], moving: Moving, extra: float, within: float, _until_s: float
    ) -> Iterator[Place]:
        found = counted(cases[0], self.request.ranks)
        if found.memory > self.memory_bytes:
            raise OutOfMemory(f"it needs {bytes_text(found.memory)}")
        moved = found.loads.moved_bytes + moving.moved_bytes / self.request.multiplications
        cost = found.loads.busiest_bytes + extra + _UNEVEN * (found.share > EVEN)
        key = cost, moved, found.loads.transfers, *found.loads
        yield Place(cases[0], found.memory, moving, found.layouts, counts=found, key=key)

    def with_interval(self, place: Place) -> Place:
        return place
