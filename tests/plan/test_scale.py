"""Planning at p = 4096: only what the rank itself does counts, in steps, memory and time.

The time limits are five times the project's goals (which a benchmark script measures), in processor
time of an idle core: where two processes share one, both take longer, and so does
the reference that is measured with it.
"""

import time
import tracemalloc

import pytest
from oracles import universal
from starting import within

from drbench.plan.schedule import Lookahead, Scheduler, plan_arena
from drbench.program.problem import Problem
from drbench.program.steps import Accumulate, Fence, Gemm, Get
from drbench.program.trace import no_collection

EXTENT, GRID = 262_144, 64
RANKS = (0, 777, GRID * GRID - 1)

tiles_and_stationary = pytest.mark.parametrize("stationary", "CBA")
#: As above; stationary A is as stationary B, transposed.
slow_tiles_and_stationary = pytest.mark.parametrize(
    "stationary", [*"CB", pytest.param("A", marks=pytest.mark.thorough)]
)


def aligned(tiles, grid=GRID, extent=EXTENT):
    """The three matrices in tiles x tiles equal tiles on a grid x grid process grid."""
    text = f"tiles:{extent // tiles}x{extent // tiles}@{grid}x{grid}"
    return Problem(extent, extent, extent, grid * grid, text, text, text)


#: Processor time of :func:`yardstick` on an idle core (an EPYC with AVX-512).
YARDSTICK_S = 0.018


class Thing:
    __slots__ = ("number", "inputs")

    def __init__(self, number, inputs):
        self.number, self.inputs = number, inputs


@no_collection()
def yardstick():
    """Work similar to planning: small objects, tuples, a dict."""
    made, found = [], {}
    for number in range(30_000):
        made.append(Thing(number, tuple(made[-2:])))
        found[number, 1] = made[-1]
    return sum(each.number for each in found.values())


def once(work):
    """Its processor time, in seconds."""
    start = time.process_time()
    work()
    return time.process_time() - start


def cpu_seconds(work, enough_s=0.0, repeats=3):
    """Processor time of the best of a few runs, at the yardstick's speed; the first that is below
    ``enough_s`` will do."""
    best = float("inf")
    for _ in range(repeats):
        slow = once(yardstick)
        seconds = once(work)
        slow = max(1.0, (slow + once(yardstick)) / 2 / YARDSTICK_S)
        best = min(best, seconds / slow)
        if best < enough_s:
            break
    return best


def peak_bytes(work):
    tracemalloc.start()
    try:
        result = work()
        return tracemalloc.get_traced_memory()[1], result
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("tiles, rank", [*((64, rank) for rank in RANKS), (256, RANKS[1])], ids=str)
@tiles_and_stationary
def test_a_rank_of_4096_plans_its_own_steps_and_no_more(stationary, tiles, rank):
    per_axis = tiles // GRID  # own tiles along each axis of each matrix
    gemms = per_axis**2 * tiles  # every own tile meets every tile of the free axis
    if stationary == "C":
        accumulates = fences = 0
    else:
        accumulates, fences = (
            per_axis**2 * (tiles - per_axis),
            2,
        )  # the rest is added to own tiles of C
    steps = universal.trace(aligned(tiles), rank, stationary=stationary).steps
    kinds = [type(step) for step in steps]
    counted = {kind: kinds.count(kind) for kind in (Get, Gemm, Accumulate, Fence)}
    assert counted == {Get: 2 * gemms, Gemm: gemms, Accumulate: accumulates, Fence: fences}
    assert len(steps) == sum(counted.values())


@slow_tiles_and_stationary
def test_planning_memory_is_proportional_to_the_steps(stationary):
    """300 bytes a step, and 72 KiB once."""
    (few, steps), (many, more) = [
        (nbytes, len(trace.steps))
        for nbytes, trace in (
            peak_bytes(
                lambda tiles=tiles: universal.trace(aligned(tiles), 777, stationary=stationary)
            )
            for tiles in (64, 192)
        )
    ]
    assert many < 300 * more and many - few < 300 * (more - steps)
    assert few < 300 * steps + 72 * 2**10


@slow_tiles_and_stationary
def test_planning_memory_does_not_grow_with_the_number_of_ranks(stationary):
    """192 GEMMs and transfers on 64 ranks or on 4096: the same memory."""
    peaks = []
    for grid in (8, GRID):
        tile = EXTENT // GRID
        rows = f"tiles:{EXTENT // grid}x{tile}@{grid}x{grid}"
        cols = f"tiles:{tile}x{EXTENT // grid}@{grid}x{grid}"
        whole = f"tiles:{EXTENT // grid}x{EXTENT // grid}@{grid}x{grid}"
        texts = {"C": (rows, cols, whole), "B": (cols, whole, cols), "A": (whole, rows, rows)}[
            stationary
        ]
        problem = Problem(EXTENT, EXTENT, EXTENT, grid * grid, *texts)
        nbytes, trace = peak_bytes(
            lambda problem=problem: universal.trace(problem, grid + 1, stationary=stationary)
        )
        peaks.append(nbytes / len(trace.steps))
    assert max(peaks) < 1.3 * min(peaks)


def test_a_rank_without_work_plans_nothing():
    problem = Problem(
        EXTENT, EXTENT, EXTENT, 4096, "block", "block", f"tiles:{EXTENT}x{EXTENT}@64x64"
    )
    nbytes, trace = peak_bytes(lambda: universal.trace(problem, 4095, stationary="C"))
    assert trace.steps == [] and nbytes < 20_000


@pytest.mark.parametrize(
    "tiles, guard_s, stationary",
    [
        *((64, 5 * 0.020, stationary) for stationary in "CBA"),
        (256, 5 * 0.040, "C"),
        (256, 5 * 0.040, "B"),
        *(pytest.param(512, 5 * 0.300, each, marks=pytest.mark.thorough) for each in "CBA"),
    ],
)
def test_planning_a_rank_is_quick(tiles, guard_s, stationary):
    """From the problem to a schedule ready to run: trace, lookahead, arena."""

    def plan():
        lookahead = Lookahead(universal.trace(aligned(tiles), 777, stationary=stationary), 1)
        plan_arena(lookahead, 4)
        Scheduler(lookahead)

    assert within(cpu_seconds(plan, guard_s), guard_s)


def test_planning_many_small_regions_of_one_tile_takes_time_in_proportion():
    """Comparing every region with every other one took 7 minutes for 262 144 regions of one
    tile."""
    seconds_per_step = []
    for fragments in (32, 128):
        problem = Problem(
            4096,
            4096,
            64,
            1,
            f"tiles:{4096 // fragments}x64",
            f"tiles:64x{4096 // fragments}",
            "block",
        )
        seconds = cpu_seconds(lambda problem=problem: universal.trace(problem, 0, stationary="C"))
        seconds_per_step.append(seconds / fragments**2)
    few, many = seconds_per_step
    assert many < 3 * few
