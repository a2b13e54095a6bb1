"""The universal algorithm with pushed partial sums, as plans: what moves when, and its options;
programs broken on purpose are caught."""

from math import ceil

import numpy as np
import pytest
from arena import multiplied
from oracles import Violation, any_case, results
from signal_runs import overlapping_slots
from traced import everyone_of
from virtual_time import Deadlock

from drbench.algorithms import get_algorithm
from drbench.algorithms.lowering.op_costs import BALANCE
from drbench.algorithms.universal.algorithm1 import Share
from drbench.algorithms.universal.arrival import PartialSums, cut_along, gemms_of
from drbench.algorithms.universal.distribution import work_of
from drbench.algorithms.universal.options import Resolved, why_accumulated
from drbench.algorithms.universal.pushed import tile_of
from drbench.errors import CaseFailed, UsageError
from drbench.partitions import parse_grid
from drbench.plan.explain import traffic
from drbench.plan.schedule import pool_bytes
from drbench.plan.signals import pairs_of, plan_inbox
from drbench.program.problem import Problem
from drbench.program.signal_steps import Await, Push
from drbench.program.steps import Accumulate, Add, Fence, Gemm, Get, Zero

universal = get_algorithm("universal")


def traces_of(problem, stationary, tile=None, machine=None, **more):
    options = {"stationary": stationary, "sums": "push", "chunk": tile or "none", **more}
    return everyone_of(
        universal, problem, universal.resolve(problem, **options) | {"machine": machine}
    )


@pytest.mark.parametrize("stationary", "ABC")
@pytest.mark.parametrize("p, grid", [(4, "1x2x2"), (6, "1x1x5"), (8, "2x2x2")])
def test_gemms_dealt_by_a_grid_push_no_more_than_they_would_accumulate(p, grid, stationary):
    problem = Problem(9, 7, 8, p, *[f"grid:{grid}"] * 3)
    traces = traces_of(problem, stationary, work=grid)
    assert not count(traces, Accumulate) and not count(traces, Fence)
    assert count(traces, Push) == count(traces, Await) > 0
    resolved = universal.resolve(problem, stationary=stationary, work=grid)
    direct = everyone_of(universal, problem, resolved)
    moved = lambda found, name: sum(traffic(each).counters[name] for each in found)
    assert moved(traces, "put_bytes") <= moved(direct, "accumulate_bytes")
    assert moved(traces, "get_bytes") <= moved(direct, "get_bytes")


def test_partial_sums_of_a_grid_are_cut_along_the_operand_with_more_fetched_bytes():
    """Rank (i, j, l) of 1x2x2 has its B whole, and fetches half of its A: rows are cut."""
    problem = Problem(4096, 4096, 4096, 4, *["grid:1x2x2"] * 3)
    for rank, each in enumerate(traces_of(problem, "C", 512, work="1x2x2")):
        assert cuts(problem, rank, "1x2x2") == "m"
        assert [s.inputs[0].shape for s in each.steps if type(s) is Push] == [(512, 2048)] * 4
        assert kinds_of(each.steps).startswith("gg") and kinds_of(each.steps).endswith("G")
    other = Problem(4096, 4096, 4096, 4, *["grid:2x1x2"] * 3)
    assert {cuts(other, rank, "2x1x2") for rank in range(4)} == {"n"}


def cuts(problem, rank, grid):
    """The axis along which the blocks of a rank are cut."""
    return cut_along(gemms_of(Share(problem, rank, "C", work_of(problem, "C", grid))), rank, "C")


def count(traces, kind):
    return sum(type(step) is kind for trace in traces for step in trace.steps)


@pytest.mark.parametrize("stationary", "AB")
def test_no_rank_accumulates_or_waits_at_a_fence_where_c_has_no_copies(stationary):
    problem = Problem(16, 16, 16, 4, "block", "block", "block")
    traces = traces_of(problem, stationary, 2)
    assert not count(traces, Accumulate) and not count(traces, Fence) and not count(traces, Zero)
    assert count(traces, Push) == count(traces, Await) > 0


@pytest.mark.parametrize("stationary, texts", [("B", ("row",) * 3), ("A", ("column",) * 3)])
def test_pushed_tiles_are_no_larger_than_requested_and_pushed_one_by_one(stationary, texts):
    problem = Problem(20, 20, 20, 2, *texts)
    for tile in (3, 7, 100):
        pushes = [
            s for t in traces_of(problem, stationary, tile) for s in t.steps if type(s) is Push
        ]
        extents = [push.inputs[0].shape[stationary == "A"] for push in pushes]
        assert max(extents) == ceil(10 / ceil(10 / tile))
        assert len(pushes) == 2 * ceil(10 / tile)


def kinds_of(steps):
    """G: a GEMM for an own tile, g: for another rank's, p: a push."""
    letter = lambda s: "p" if type(s) is Push else "G" if s.block is not None else "g"
    return "".join(letter(step) for step in steps if type(step) in (Push, Gemm))


def test_partial_sums_for_other_nodes_are_pushed_first_and_own_gemms_hide_the_transfer():
    """Ranks 0 and 2 are on one node: GEMMs of the other's tiles fill the wait for those of ranks 1
    and 3."""
    problem = Problem(2048, 2048, 2048, 4, "row", "row", "row").on_nodes([0, 1, 0, 1])
    resolved = universal.resolve(problem, False, stationary="B")
    assert resolved["sums"] == "push" and resolved["chunk"] == 512
    for rank in range(4):
        steps = universal.trace(problem, rank, **resolved).steps
        owners = [s.block.owner for s in steps if type(s) is Get and s.block.matrix == "A"]
        assert owners == [(rank + 2) % 4, (rank + 1) % 4, (rank + 3) % 4, rank]
        assert kinds_of(steps) == "gpgpgpG"


def test_partial_sums_for_other_ranks_are_computed_first_and_own_gemms_fill_the_wait_for_tiles():
    problem = Problem(4096, 4096, 4096, 2, "row", "row", "row")
    for each in traces_of(problem, "B", 512):
        assert kinds_of(each.steps) == "GgpgpgpgpGGG"
    local_a = Problem(4096, 4096, 4096, 2, "column", "row", "row")  # all of A is local
    for each in traces_of(local_a, "B", 512):
        assert kinds_of(each.steps) == "gpgpgpgpGGGG"


def test_local_halves_are_multiplied_while_the_other_half_is_fetched():
    problem = Problem(4096, 4096, 4096, 2, "column", "column", "row")
    for each in traces_of(problem, "B", 512):
        kinds = kinds_of(each.steps)
        assert kinds.count("g") == kinds.count("G") == 8 and kinds.count("p") == 4
        first = [s for s in each.steps if type(s) is Gemm][0]
        assert first.inputs[0].block.owner == each.rank and first.block is None


@pytest.mark.parametrize(
    "stationary, texts, along",
    [
        ("B", ("row", "row", "row"), 0),
        ("A", ("column", "column", "column"), 1),
        ("C", ("row", "column", "column"), 0),
        ("C", ("row", "column", "row"), 1),
    ],
)
def test_parts_of_one_launch_add_up_to_its_gemm(stationary, texts, along):
    problem = Problem(64, 64, 64, 4, *texts)
    for each in traces_of(problem, stationary, 4):
        parts = {}
        for step in each.steps:
            if type(step) is Gemm and step.kernel:
                parts.setdefault(step.kernel, []).append(step)
        assert parts
        for kernel, gemms in parts.items():
            assert len(gemms) > 1
            assert kernel.m * kernel.n * kernel.k == sum(gemm.products for gemm in gemms)
            shapes = [(g.inputs[0].shape[0], g.inputs[1].shape[1]) for g in gemms]
            assert sum(shape[along] for shape in shapes) == (kernel.m, kernel.n)[along]


def test_on_a_gpu_a_partial_sum_is_one_gemm_and_all_partial_sums_are_one_launch():
    """A by columns: each part takes all four ranks' columns of A, side by side."""
    problem = Problem(64, 64, 64, 4, "column", "column", "row")
    for each in traces_of(problem, "B", 4, BALANCE):
        gemms = [step for step in each.steps if type(step) is Gemm]
        assert {len(gemm.inputs[0].inputs) for gemm in gemms} == {4}
        assert {type(gemm.inputs[1]) for gemm in gemms} == {Get}
        (kernel,) = {gemm.kernel for gemm in gemms}
        assert (kernel.m, kernel.n, kernel.k) == (64, 16, 64)
        assert len(gemms) == 16


def test_a_block_is_fetched_once_however_many_gemms_read_it():
    problem = Problem(12, 12, 12, 4, "block", "tiles:3x3", "block")
    for stationary in "ABC":
        for each in traces_of(problem, stationary, 2):
            keys = [step.block.key for step in each.steps if type(step) is Get]
            assert len(keys) == len(set(keys))


def test_the_memory_plan_counts_slots():
    problem = Problem(64, 32, 16, 4, "column", "row", "row")
    traces = traces_of(problem, "B", 4)
    assert {plan_inbox(each, [4] * len(each.steps)).nbytes for each in traces} == {3 * 16 * 32 * 4}
    assert PartialSums(problem, "B").slots == [3 * 16 * 32] * 4
    assert all(pool_bytes(each, "all") >= 3 * 16 * 32 * 4 for each in traces)


# -- options


@pytest.mark.parametrize(
    "options, message",
    [
        ({"sums": "push", "schedule": "greedy"}, "sums=push and schedule=greedy"),
        ({"sums": "push", "pack": "always"}, "pack=always and sums=push"),
        ({"sums": "sometimes"}, "sums must be one of"),
    ],
)
def test_options_that_contradict_each_other_are_refused(options, message):
    problem = Problem(8, 8, 8, 2, "row", "row", "row")
    with pytest.raises(UsageError, match=message):
        universal.resolve(problem, **options)


def test_auto_pushes_where_remote_tiles_need_transfers_and_slots_fit():
    rows = Problem(64, 64, 64, 2, "row", "row", "row")
    chosen = lambda problem, in_place, **more: universal.resolve(
        problem, in_place, sums="auto", **more
    ).get("sums")
    assert chosen(rows, False, stationary="B") == "push"
    assert chosen(rows, True, stationary="B") is None
    assert chosen(rows, False, stationary="C") is None
    assert chosen(rows, False, stationary="B", schedule="greedy") is None
    assert chosen(rows, False, stationary="B", pack="always") is None
    assert chosen(Problem(64, 64, 64, 4, *["grid:1x2x2"] * 3), False) == "push"
    assert chosen(Problem(64, 64, 64, 4, *["grid:2x2x1"] * 3), False) is None  # no terms
    many = Problem(64, 64, 4, 8, "column", "row", "row")  # all of C on each of eight ranks
    assert chosen(many, False, stationary="B") is None
    twice = Problem(4, 6, 4, 3, "row", "row", "column")  # slots of 64 bytes, tiles of 32
    assert chosen(twice, False, stationary="B") == "push"
    assert "sums" not in universal.resolve(rows, False, stationary="B")
    far = rows.on_nodes([0, 1])
    assert universal.resolve(far, False, stationary="B")["sums"] == "push"
    assert "sums" not in universal.resolve(far, False, stationary="B", sums="accumulate")


def test_pushed_tiles_are_quarters_of_a_contiguous_region():
    problem = lambda *texts: Problem(4096, 4096, 4096, 4, *texts)
    assert tile_of(problem("row", "row", "row"), "B") == 256
    assert tile_of(problem("column", "row", "block"), "B") == 512
    assert tile_of(problem("column", "column", "column"), "A") == 256
    assert tile_of(problem("row", "column", "block"), "C") == 256
    assert tile_of(problem("row", "row", "row"), "B", 33) == 33


# -- mutants


MACHINES = {
    "a slot reused too early": {"inbox": overlapping_slots},
    "no wait for the signal": {"waits": False},
}


BROKEN = [("B", ("row", "row", "row")), ("A", ("block", "column", "block/c2"))]


@pytest.mark.parametrize("stationary, texts", BROKEN)
@pytest.mark.parametrize("mutant", [*MACHINES, "one is skipped"])
def test_a_program_broken_on_purpose_is_caught(mutant, stationary, texts):
    problem = Problem(12, 12, 12, 4, *texts)
    caught = 0
    for seed in range(5):
        traces = traces_of(problem, stationary, 2)
        for each in traces if mutant not in MACHINES else ():
            each.steps.remove(next(step for step in each.steps if type(step) is Add))
            for place, step in enumerate(each.steps):
                step.index = place
        try:
            c, expected = multiplied(traces, "all", seed, **MACHINES.get(mutant, {}))
            caught += not np.array_equal(results(problem, c)[0], expected)
        except (Violation, Deadlock):
            caught += 1
    assert caught >= 2


def test_a_missing_source_leaves_a_push_without_its_await(monkeypatch):
    every = PartialSums.of
    problem = Problem(12, 12, 12, 3, "row", "row", "row")
    monkeypatch.setattr(PartialSums, "of", lambda *args: every(*args)[:-1])
    with pytest.raises(CaseFailed, match="is never received"):
        pairs_of(traces_of(problem, "B", 2))


def slots_of(problem, stationary, grid=None):
    """Elements of each rank's blocks that other ranks have partial sums of, one by one."""
    found, work = [0] * problem.nprocs, work_of(problem, stationary, grid) if grid else None
    for rank in range(problem.nprocs):
        gemms = gemms_of(Share(problem, rank, stationary, work))
        for c in {gemm.c.key: gemm.c for gemm in gemms}.values():
            found[c.owner] += c.size * (c.owner != rank)
    return found


@pytest.mark.parametrize("seed", range(120))
def test_slots_are_the_blocks_that_other_ranks_have_partial_sums_of(seed):
    problem, options = any_case(seed)
    stationary = options["stationary"]
    assert PartialSums(problem, stationary).slots == slots_of(problem, stationary)


@pytest.mark.parametrize("grid", ["2x2x2", "1x2x3", "2x1x4"])
def test_slots_of_gemms_dealt_by_a_grid_are_counted_alike(grid):
    problem = Problem(12, 10, 8, parse_grid(grid).size, "block", "row", "column")
    assert PartialSums(problem, "C", grid).slots == slots_of(problem, "C", grid)


@pytest.mark.parametrize("seed", range(60))
def test_the_sources_of_partial_sums_are_the_pushing_ranks_of_the_same_replica(seed):
    problem, options = any_case(seed)
    stationary = options["stationary"]
    for rank in range(problem.nprocs):
        text = PartialSums(problem, stationary).of(rank)
        assert text == sorted({*text} - {rank})
        for other in range(problem.nprocs):
            gemms = gemms_of(Share(problem, other, stationary))
            pushes = any(each.c.owner == rank for each in gemms)
            assert other == rank or (other in text) == pushes


def test_slots_may_need_twice_the_memory_of_tiles():
    problem = Problem(128, 512, 128, 4, "column", "row", "block")
    assert why_accumulated(Resolved(problem, "A"), False) is None
    wide = Problem(128, 512, 16, 4, "column", "row", "block")
    assert "more than 2 times" in why_accumulated(Resolved(wide, "A"), False)
