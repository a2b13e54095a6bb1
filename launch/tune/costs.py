"""What a search ranks by: seconds on a machine model, or without one bytes and load balance."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from math import inf
from operator import attrgetter

from drbench.errors import DrbenchError, OutOfMemory
from drbench.launch.cases.case import Case
from drbench.launch.models.predict import (
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
from drbench.model.bounds import bound_of
from drbench.model.machine import Machine
from drbench.model.simulate import Simulator, TimeLimitExceeded
from drbench.plan.explain import loads
from drbench.program.steps import COUNTERS
from drbench.program.trace import Trace
from drbench.texts import bytes_text

from .counts import count_case, share_of
from .enumerate import list_movements, with_copies
from .request import TuneRequest
from .result import Moving, Place

#: Without a model, candidates whose busiest rank has more than this times its even share of the
#: FLOPs are ranked after all others, because bytes do not show the imbalance.
EVEN = 1.1
_UNEVEN = 1e30  # more bytes than any candidate moves


class ByTime:
    """Costs in predicted seconds.

    Attributes
    ----------
    seen : Machine
        As the case sees it.
    memory_bytes : float
        Most that a rank may use.
    overlaps : bool
        Whether transfers overlap GEMMs on a copy engine.
    movements : list of dict
        The options of the universal algorithm that are tried on each triple of layouts.
    least_of_all : float
        A lower bound of the cost of any program.
    """

    def __init__(self, request: TuneRequest, machine: Machine):
        ranks_on(machine, request.ranks)
        if request.memory is not None:
            machine = machine.with_value("memory_bytes", min(request.memory, machine.memory_bytes))
        self.request, self.machine, self.ranks = request, machine, request.ranks
        self.seen = seen_by(request.case, machine)
        self.memory_bytes = self.seen.memory_bytes
        self.overlaps = not self.seen.adds_on_core
        self.in_place = reads_in_place(self.seen, request.ranks)
        self.nodes = nodes_on(self.seen, request.ranks)
        # with transfers as early as possible, cutting tiles seldom helps: then only as a refinement
        cuts = request.effort is None or self.in_place or not self.overlaps
        chunks = ("auto",) * cuts + ("none",) * (not self.in_place)
        self.movements = list_movements(True, *chunks)
        case, compute = request.case, self.seen.compute
        rate = request.ranks * compute.peak_flops * compute.sustained
        self.least_of_all = 2 * case.m * case.n * case.k / rate

    def bound(self, trace: Trace) -> float:
        """A lower bound of the cost of every program with this trace of a rank."""
        return bound_of([trace], self.seen).seconds

    def simulate_alone(self, case: Case) -> float:
        """The time of the first rank alone, with its groups representing all ranks; 0 if it is
        refused."""
        case, algorithm, problem, options = with_copies(case, self.ranks)
        resolved = algorithm.resolve(problem.on_nodes(self.nodes), self.in_place, **options)
        trace = algorithm.trace(problem, 0, planning_model(self.seen, resolved), **resolved)
        with suppress(DrbenchError):
            return Simulator([trace], self.seen).run(case.ahead(resolved)).time_s
        return 0.0

    def judge(
        self, cases: Sequence[Case], moving: Moving, within: float, until_s: float
    ) -> Iterator[Place]:
        """The places of a program with several look-aheads, without those that cost more than
        ``within``.

        Raises
        ------
        EffortExhausted
            If it is not simulated at the CPU time ``until_s``.
        DrbenchError
            If the program is refused.
        """
        programs = programs_of(cases[0], self.machine, self.ranks)
        problem, programs.simulator.until_s = programs.problem, until_s
        tiles = max(sum(problem.tile_bytes(rank).values()) for rank in range(problem.nprocs))
        extra = moving.price / self.request.multiplications
        for case in cases:
            within_s = (within - extra) * (1 + 1e-9)
            with suppress(TimeLimitExceeded):
                record, _ = predict_with(
                    case, self.machine, self.ranks, pool=True, within_s=within_s, programs=programs
                )
                refuse_failed(record)
                key = (record.best_s + extra, *attrgetter(*COUNTERS)(record))
                memory, texts = tiles + (record.pool_bytes or 0), (*problem.texts.values(),)
                bound = bound_of(programs.traces, self.seen)
                yield Place(case, memory, moving, texts, record, bound=bound, key=key)
                within = min(within, key[0])

    def with_interval(self, place: Place) -> Place:
        """The place with the interval of its time."""
        programs = programs_of(place.case, self.machine, self.ranks)
        record = with_interval(place.record, place.case, self.machine, self.ranks, programs)
        return place._replace(record=record)


class ByBytes:
    """Costs in bytes of the busiest rank, then of all ranks; candidates with uneven FLOPs are
    last. Otherwise as :class:`ByTime`."""

    seen, overlaps = None, False
    in_place, nodes, movements, least_of_all = False, (0,), list_movements(False), 0.0

    def __init__(self, request: TuneRequest):
        self.request = request
        self.memory_bytes = inf if request.memory is None else request.memory

    def bound(self, trace: Trace) -> float:
        total = loads([trace])
        return total.busiest_bytes + _UNEVEN * (share_of(total, trace.problem) > EVEN)

    def judge(
        self, cases: Sequence[Case], moving: Moving, _within: float, _until_s: float
    ) -> Iterator[Place]:
        counts, count = count_case(cases[0], self.request.ranks), self.request.multiplications
        if counts.memory > self.memory_bytes:
            raise OutOfMemory(f"it needs {bytes_text(counts.memory)}")
        total = counts.loads
        moved = total.moved_bytes + moving.moved_bytes / count
        cost = total.busiest_bytes + moving.price / count + _UNEVEN * (counts.share > EVEN)
        key = cost, moved, total.transfers, *total
        yield Place(cases[0], counts.memory, moving, counts.layouts, counts=counts, key=key)
