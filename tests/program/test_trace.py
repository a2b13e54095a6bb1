"""Tracing: which write into C comes first, what must be zeroed, and how often each value is
used."""

import gc
import itertools

import numpy as np
import pytest
from arena import ArenaRun
from hypothesis import example, given, settings
from hypothesis import strategies as st
from oracles import any_case, assign, home, operands, traces_of
from virtual_time import RandomDelays, drive

import drbench.program.trace
from algorithms import get_algorithm
from drbench.errors import UnsupportedError, UsageError
from drbench.program.group_steps import Fragment, Reduce, ReduceScatter
from drbench.program.problem import Problem
from drbench.program.steps import (
    Accumulate,
    Add,
    Copy,
    Fence,
    Gemm,
    Get,
    Group,
    Join,
    Put,
    Scratch,
    Zero,
)
from drbench.program.trace import trace

M, N, K = 6, 8, 4
ONE = Problem(M, N, K, 1, "block", "block", "block")
TILED = Problem(M, N, K, 1, "block", "tiles:4x4", "tiles:3x4")  # C in four tiles of one rank


def writes(problem, regions, between=None):
    """A program that writes A[rows]·B[columns] into one region (row0, row1, col0, col1) of C after
    another."""
    for step in between or []:  # noqa: UP028  (a list has no send)
        yield step
    for row0, row1, col0, col1 in regions:
        a = yield Get(problem.a.block((row0, row1), (0, problem.k)))
        b = yield Get(problem.b.block((0, problem.k), (col0, col1)))
        yield Gemm(a, b, into=problem.c.block((row0, row1), (col0, col1)))


def traced(problem, regions, **options):
    return trace(writes(problem, regions, **options), problem, 0)


def betas(steps):
    return [step.beta for step in steps if type(step) is Gemm]


def zeroed(steps):
    return [step.block.tile for step in steps if type(step) is Zero]


def run(problem, program):
    """C after a program of one rank, element by element from NaN."""
    a, b = operands(problem)
    c = np.full((problem.m, problem.n), np.nan)
    for step in program.steps:
        if step.block is None or type(step) is Get:
            continue
        target = c[step.block.row0 : step.block.row1, step.block.col0 : step.block.col1]
        if type(step) is Zero:
            target[...] = 0
        else:
            x, y = (value.block for value in step.inputs)
            assign(target, a[x.row0 : x.row1] @ b[:, y.col0 : y.col1], step.beta)
    return c


def times_written(regions):
    count = np.zeros((M, N), int)
    for row0, row1, col0, col1 in regions:
        count[row0:row1, col0:col1] += 1
    return count


# -- beta
# -------------------------------------------------------------------------------------------------


def test_staggered_regions_fill_a_tile_without_being_a_grid():
    bricks = [(0, 2, 0, 5), (0, 2, 5, 8), (2, 4, 0, 3), (2, 4, 3, 8), (4, 6, 0, 8)]
    for order in (bricks, bricks[::-1], bricks[2:] + bricks[:2]):
        program = traced(ONE, order)
        assert betas(program.steps) == [0] * 5 and zeroed(program.steps) == []


def test_tiles_are_judged_one_by_one():
    """Of four tiles: one filled, one written in part, one written twice over in part, one left
    alone."""
    program = traced(TILED, [(0, 3, 0, 4), (0, 3, 4, 6), (3, 6, 0, 3), (3, 6, 1, 4)])
    assert zeroed(program.steps) == [(0, 1), (1, 0), (1, 1)]
    assert betas(program.steps) == [0, 1, 1, 1]


def test_a_tile_that_the_program_zeroes_is_not_zeroed_again_and_only_added_to():
    program = traced(ONE, [(0, 6, 0, 8)], between=[Zero(ONE.c.tile_block((0, 0)))])
    assert zeroed(program.steps) == [(0, 0)] and betas(program.steps) == [1]


def test_a_result_that_is_not_fresh_is_not_zeroed():
    program = trace(writes(ONE, [(0, 3, 0, 8)]), None, 0, fresh=False)
    assert zeroed(program.steps) == [] and betas(program.steps) == [1]


def test_partial_sums_for_other_ranks_start_empty_and_are_added_onto():
    def summed():
        a = yield Get(ONE.a.tile_block((0, 0)))
        b = yield Get(ONE.b.tile_block((0, 0)))
        first = yield Gemm(a, b)
        second = yield Gemm(a, b, into=first)
        yield Put(second, ONE.c.tile_block((0, 0)))

    program = trace(summed(), ONE, 0, fresh=False)
    assert betas(program.steps) == [0, 1]
    assert [step.uses for step in program.steps] == [2, 2, 1, 1, 0]


regions = st.lists(
    st.tuples(
        st.integers(0, M - 1), st.integers(1, M), st.integers(0, N - 1), st.integers(1, N)
    ).map(lambda r: (r[0], min(M, r[0] + r[1]), r[2], min(N, r[2] + r[3]))),
    max_size=8,
)
cuts = st.lists(st.integers(1, 7), max_size=3).map(lambda inner: sorted({0, 8, *inner}))


def cuts_of(*ends, most=1):
    """Disjoint ranges between some of these ends, ascending: few, so that they often meet."""
    some = st.lists(st.sampled_from(ends), min_size=2, max_size=2 * most, unique=True)
    return some.map(sorted).map(lambda x: tuple(zip(x[::2], x[1::2])))


writers = st.tuples(
    st.sampled_from(["gemm", "copy", "reduce", "reduce-scatter"]),
    cuts_of(0, 1, 3),
    cuts_of(0, 3, 5, N, most=2),
    cuts_of(0, 1, K),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(writers, max_size=6), st.booleans(), st.integers(0, 99))
@example(  # a sum on a region that is written and on one that is not
    [("copy", ((0, 3),), ((0, 3),), ((0, K),)), ("gemm", ((0, 3),), ((3, 5),), ((0, K),))]
    + [("reduce-scatter", ((0, 3),), ((0, 3), (5, N)), ((0, K),))],
    False,
    0,
)
def test_gemms_copies_and_sums_on_any_regions_add_up(written, updates, seed):
    # each rank has all of A and B, and three rows of C
    problem = Problem(6, N, K, 2, "block/c2", "block/c2", "row", updates=updates)

    def program(rank):
        def multiplied(owner, rows, cols, ks, into=None):
            rows = 3 * owner + rows[0], 3 * owner + rows[1]
            a = yield Get(problem.a.block(rows, ks, rank))
            b = yield Get(problem.b.block(ks, cols, rank))
            return (yield Gemm(a, b, into=into and problem.c.block(rows, cols)))

        everyone = Group("row", (0, 1), rank)
        for kind, (rows,), columns, (ks,) in written:
            own = 3 * rank + rows[0], 3 * rank + rows[1]
            if kind == "reduce-scatter":
                parts, fragments = [], []
                for owner in (0, 1):
                    for cols in columns:
                        parts.append((yield from multiplied(owner, rows, cols, ks)))
                    if len(columns) == 2:
                        parts[-2:] = [(yield Join(parts[-2:], axis=1))]
                    height = 3 * owner + rows[0], 3 * owner + rows[1]
                    whole = problem.c.block((3 * owner, 3 * owner + 3), (0, N))
                    fragments.append(Fragment(whole, (height,), columns))
                token = yield Join(parts, axis=0)
                yield ReduceScatter(token, fragments, everyone, axis=0)
                continue
            for cols in columns:
                if kind == "gemm":
                    yield from multiplied(rank, rows, cols, ks, into=True)
                elif kind == "copy":
                    token = yield from multiplied(rank, rows, cols, ks)
                    yield Copy(token, into=problem.c.block(own, cols))
                else:
                    root = cols[0] % 2
                    token = yield from multiplied(root, rows, cols, ks)
                    there = 3 * root + rows[0], 3 * root + rows[1]
                    yield Reduce(token, problem.c.block(there, cols), everyone)

    traces = [trace(program(rank), problem, rank) for rank in (0, 1)]
    before = np.arange(6.0 * N).reshape(6, N) if updates else None
    run = ArenaRun(traces, 2, seed, beta=3.0 if updates else 0.0, before=before)
    drive(traces, 2, RandomDelays(seed), on=run.on)
    (a, b), count = operands(problem, seed), np.zeros((6, N, K))
    for kind, (rows,), columns, (ks,) in written:
        for cols in columns:
            for owner in (0, 1) if kind != "reduce" else (cols[0] % 2,):
                at = slice(3 * owner + rows[0], 3 * owner + rows[1])
                count[at, slice(*cols), slice(*ks)] += 1 if kind in ("gemm", "copy") else 2
    right = np.einsum("ijk,ik,kj->ij", count, a, b) + (3 * before if updates else 0)
    assert (run.memory.c()[0] == right).all()


@settings(max_examples=300, deadline=None)
@given(regions, st.integers(0, 7))
def test_any_writes_make_the_sum_of_their_gemms_out_of_nan(regions, again):
    regions = regions + regions[: again % (len(regions) + 1)]
    program = traced(ONE, regions)
    a, b = operands(ONE)
    assert (run(ONE, program) == times_written(regions) * (a @ b)).all()


@settings(max_examples=300, deadline=None)
@given(regions)
def test_a_zero_is_planned_exactly_when_first_writes_do_not_fill_the_tile_once(regions):
    program = traced(ONE, regions)
    exact = (times_written(set(regions)) == 1).all()
    assert zeroed(program.steps) == ([] if exact else [(0, 0)])
    first = [region not in regions[:x] for x, region in enumerate(regions)]
    assert betas(program.steps) == [0.0 if exact and f else 1.0 for f in first]


@settings(max_examples=100, deadline=None)
@given(cuts, cuts, st.randoms())
def test_a_grid_of_regions_in_any_order_needs_no_zero(row_cuts, col_cuts, rng):
    rows = [(x, y) for x, y in zip(row_cuts, row_cuts[1:]) if y <= M] or [(0, M)]
    if rows[-1][1] != M:
        rows.append((rows[-1][1], M))
    regions = [(*r, *c) for r, c in itertools.product(rows, zip(col_cuts, col_cuts[1:]))]
    rng.shuffle(regions)
    program = traced(ONE, regions)
    assert zeroed(program.steps) == [] and betas(program.steps) == [0] * len(regions)


# -- the universal program
# -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stationary", "ABC")
@pytest.mark.parametrize("p, text", [(2, "row"), (4, "block"), (6, "block"), (3, "column")])
def test_every_own_element_is_replaced_or_zeroed_before_anything_is_added(p, text, stationary):
    problem = Problem(7, 5, 6, p, text, "tiles:3x2", text)
    at = home(problem.c.partition)
    for program in traces_of(problem, stationary=stationary):
        made = np.zeros((7, 5), bool)
        for step in program.steps:
            if type(step) is Fence:
                break  # from here on other ranks add
            if type(step) in (Zero, Gemm) and step.block is not None:
                part = made[step.block.row0 : step.block.row1, step.block.col0 : step.block.col1]
                assert type(step) is Zero or step.beta == 0 or part.all()
                part[...] = True
        assert (made == (at.owner[0] == program.rank)).all()


def test_replicas_beyond_k_hold_zeros_and_do_nothing_else():
    # k = 2 in four parts: two are empty
    problem = Problem(4, 4, 2, 4, "block", "block", "block/c4")
    for program in traces_of(problem, stationary="C"):
        if program.rank >= 2:
            kinds = [type(step) for step in program.steps]
            assert kinds == [Zero, Fence, Fence] and program.flops == 0
        else:
            assert zeroed(program.steps) == [] and program.flops == problem.flops // 2


@pytest.mark.parametrize("seed", range(60))
def test_use_counts_are_how_often_later_steps_take_a_value(seed):
    problem, options = any_case(seed)
    for program in traces_of(problem, **options):
        for place, step in enumerate(program.steps):
            takers = [value for later in program.steps for value in later.inputs if value is step]
            assert (step.index, step.uses) == (place, len(takers))
            assert all(value.index < place for value in step.inputs)
            if step.shape is None:
                assert step.uses == 0


@pytest.mark.parametrize("seed", range(60))
def test_chains_are_computed_once_added_onto_one_by_one_and_sent_once(seed):
    problem, options = any_case(seed)
    for program in traces_of(problem, **options):
        for step in program.steps:
            if type(step) is Gemm and step.block is None:
                assert step.beta == (0.0 if step.onto is None else 1.0)
                assert step.onto is None or (step.onto is step.inputs[2] and step.onto.uses == 1)
                takers = [
                    later for later in program.steps if any(value is step for value in later.inputs)
                ]
                assert len(takers) == 1
                (taker,) = takers
                assert type(taker) is Accumulate or (type(taker) is Gemm and taker.onto is step)
                assert type(taker) is not Accumulate or taker.block.shape == step.shape


def test_a_step_is_remote_if_its_block_belongs_to_another_rank():
    problem = Problem(4, 4, 8, 2, "column", "column", "column")
    for program in traces_of(problem, stationary="C"):
        for step in program.steps:
            assert bool(step.moved(program.rank)) == (
                type(step) is Get and step.block.owner != program.rank
            )


# -- the generator
# -------------------------------------------------------------------------------------------------


def test_yield_returns_the_step_itself():
    def program():
        step = Get(ONE.a.tile_block((0, 0)))
        assert (yield step) is step

    assert len(trace(program(), ONE, 0, fresh=False).steps) == 1


@pytest.mark.parametrize("collects", [True, False])
def test_the_garbage_collector_is_restored_even_by_a_program_that_raises(collects):
    def broken():
        yield Fence()
        assert not gc.isenabled()
        raise UsageError("no")

    before = gc.isenabled()
    (gc.enable if collects else gc.disable)()
    try:
        with pytest.raises(UsageError):
            trace(broken(), ONE, 0)
        assert gc.isenabled() == collects
    finally:
        (gc.enable if before else gc.disable)()


@pytest.mark.parametrize(
    "options", [{"stationary": "D"}, {"stationary": "c"}, {"chunk": 0}, {"chunk": -4}]
)
def test_invalid_options_are_refused_with_the_remedy(options):
    universal = get_algorithm("universal")
    with pytest.raises(UsageError, match="must be"):
        universal.resolve(ONE, **options)
    with pytest.raises(UsageError, match="must be"):
        universal.trace(ONE, 0, **options)


def test_printing_a_program_names_blocks_owners_and_inputs():
    problem = Problem(8, 8, 8, 2, "column", "column", "column")
    steps = traces_of(problem, stationary="C")[1].steps
    assert [repr(step) for step in steps[:3]] == [
        "Get(A[0:8, 4:8]@1)",
        "Get(B[4:8, 4:8]@1)",
        "Gemm(%0 · %1 -> C[0:8, 4:8]@1, 8x4x4, beta=0)",
    ]


def test_a_sum_of_thousands_of_terms_has_a_shape_and_a_place():
    """A chain of Adds and Gemms as long as there are ranks."""
    a, b = Scratch((2, 3)), Scratch((3, 4))
    first = total = Gemm(a, b)
    for _ in range(5000):
        total = Add(Gemm(a, b), into=total)
    assert total.shape == (2, 4) and total.location() == (first, 0, 0)


def unfit(problem, rank):
    """A of 6x4 by B of 4x8, in the wrong order."""
    a = yield Get(problem.a.block((0, M), (0, K)))
    b = yield Get(problem.b.block((0, K), (0, N)))
    yield Gemm(b, a)


def too_small(problem, rank):
    """A result that is larger than the block that it is computed into."""
    a = yield Get(problem.a.block((0, M), (0, K)))
    b = yield Get(problem.b.block((0, K), (0, N)))
    yield Gemm(a, b, into=problem.c.block((0, 3), (0, N)))


def of_another(problem, rank):
    """Into a tile of rank 1."""
    a = yield Get(problem.a.block((3, M), (0, K)))
    b = yield Get(problem.b.block((0, K), (0, N)))
    yield Gemm(a, b, into=problem.c.block((3, M), (0, N)))


def not_yielded(problem, rank):
    """Without the yield before Get."""
    a, b = Get(problem.a.block((0, M), (0, K))), Get(problem.b.block((0, K), (0, N)))
    yield Gemm(a, b)


def no_step(problem, rank):
    """A block is no step."""
    yield problem.a.block((0, M), (0, K))


def no_generator(problem, rank):
    """Nothing is yielded."""


@pytest.mark.parametrize(
    "program, nprocs, message",
    [
        (unfit, 1, r"rank 0: operands and result do not fit: Gemm\(%2 · %1"),
        (too_small, 1, r"rank 0: operands and result do not fit: .* -> C\[0:3, 0:8\]"),
        (
            of_another,
            2,
            "rank 0 computes into C.3:6, 0:8.@1, a tile of rank 1. .*partial sums of others",
        ),
        (not_yielded, 1, "step . of rank 0, a Gemm, takes a value that no step before it made"),
        (no_step, 1, "a program yields steps, such as Get.block.; got a Block"),
        (no_generator, 1, "a program yields its steps; got NoneType"),
    ],
)
def test_a_wrong_program_is_refused_in_a_line(program, nprocs, message):
    problem = Problem(M, N, K, nprocs, "block", "block", "row") if nprocs == 1 else Problem(
        M, N, K, nprocs, "row/c2", "row/c2", "row"
    )  # fmt: skip
    with pytest.raises(UsageError, match=message):
        assert trace(program(problem, 0), problem, 0).flops


def test_partial_sums_for_another_replica_are_refused():
    problem = Problem(M, N, K, 2, "block/c2", "block/c2", "block/c2")

    def program():
        a, b = (yield Get(problem.a.own_tiles(0)[0])), (yield Get(problem.b.own_tiles(0)[0]))
        yield Accumulate((yield Gemm(a, b)), problem.c.block((0, M), (0, N), 1))

    with pytest.raises(UsageError, match="rank 0, of replica 0 of C, accumulates into .*replica 1"):
        trace(program(), problem, 0)


@pytest.mark.parametrize("seed", range(40))
def test_a_block_of_two_ranks_is_refused(seed):
    """Of every tile the block that is larger by a row or a column, unless that is its owner's."""
    problem, _ = any_case(seed)
    for operand in problem.operands:
        p = operand.partition
        for tile in operand.own_tiles(0):
            for more in ((1, 0), (0, 1)):
                rows, cols = (tile.row0, tile.row1 + more[0]), (tile.col0, tile.col1 + more[1])
                if rows[1] > p.shape[0] or cols[1] > p.shape[1]:
                    continue
                last = p.tile_index(rows[1] - 1, cols[1] - 1)
                if p.owner(last, tile.replica) == tile.owner:
                    assert operand.block(rows, cols, tile.replica).owner == tile.owner
                else:
                    with pytest.raises(UsageError, match="belongs to several ranks"):
                        operand.block(rows, cols, tile.replica)


def test_a_plan_of_too_many_steps_or_tiles_is_refused_before_it_fills_the_memory(monkeypatch):
    universal, texts = get_algorithm("universal"), ["tiles:1x1"] * 3
    with pytest.raises(UnsupportedError, match="A as tiles:1x1 has 800000000 tiles on each rank"):
        universal.resolve(Problem(40_000, 40_000, 40_000, 2, *texts))
    assert universal.trace(TILED, 0, stationary="C").steps
    monkeypatch.setattr(drbench.program.trace, "MOST_STEPS", 3)
    with pytest.raises(UnsupportedError, match="rank 0 would have more than 3 steps"):
        universal.trace(TILED, 0, stationary="C")
