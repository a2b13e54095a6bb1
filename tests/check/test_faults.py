"""Small programs, wrong on purpose, each in one way: the check finds the kind of fault, and names
the steps that cause it. The right programs beside them pass."""

import pytest
from traced import resolved_as

from drbench.check.check import MOST_PRODUCTS, MOST_STEPS, check, refuse_large
from drbench.check.order import MOST_RACES
from drbench.errors import UsageError
from drbench.program.group_steps import AllGather, Broadcast, Reduce, ReduceScatter, Shift
from drbench.program.problem import Problem
from drbench.program.signal_steps import Await, Offer, Push, Take
from drbench.program.steps import (
    Accumulate,
    Add,
    Copy,
    Fence,
    FilledScratch,
    Gemm,
    Get,
    Group,
    Join,
    OperationEnd,
    Part,
    Put,
    Scratch,
    Step,
    Zero,
)
from drbench.program.trace import trace

#: Each rank owns two columns of A, two rows of B and two rows of C.
OUTER = Problem(4, 4, 4, 2, "column", "row", "row")
WHOLE = (0, 4)
ALONE = Problem(4, 4, 4, 1, "row", "row", "row")


def of(rank):
    """The range that a rank owns."""
    return 2 * rank, 2 * rank + 2


def verdict_on(program, problem=OUTER, fresh=True, change=None, **options):
    """The verdict on ``program(rank)`` of each rank; ``change(traces)`` after it is traced."""
    ranks = range(problem.nprocs)
    traces = [trace(program(rank), problem, rank, fresh=fresh) for rank in ranks]
    if change:
        change(traces)
    return check(traces, **options)


def product(rank, rows=WHOLE, cols=WHOLE, into=None, problem=OUTER, inner=None):
    """A GEMM of a rank's own columns of A and rows of B."""
    a = yield Get(problem.a.block(rows, inner or of(rank)))
    b = yield Get(problem.b.block(inner or of(rank), cols))
    return (yield Gemm(a, b, into))


def other(rank):
    return OUTER.c.block(of(1 - rank), WHOLE)


def own(rank):
    return OUTER.c.block(of(rank), WHOLE)


def right(rank, put=Accumulate):
    """Each rank adds its sums to the tile of the other one."""
    yield from product(rank, of(rank), into=own(rank))
    sums = yield from product(rank, of(1 - rank))
    yield Fence()
    yield put(sums, other(rank))
    yield Fence()


def test_a_right_program_passes_and_one_line_says_what_was_proved():
    verdict = verdict_on(right)
    assert not verdict.findings
    (line,) = verdict.lines()
    assert line == (
        "checked: 2 ranks, 18 steps, in every order in which they may complete: no race, every "
        "product once, no sum overwritten."
    )


# -- programs of two ranks that are wrong

WRONG = []


def wrong(kind, text, *steps, fresh=True, change=None, problem=OUTER, **options):
    """Register a wrong program: the kind and a part of the text of what is found first, and the
    (rank, type of step) that are named, in any order."""
    how = {"fresh": fresh, "change": change, "problem": problem, **options}

    def register(program):
        WRONG.append(pytest.param(program, kind, text, steps, how, id=program.__name__))
        return program

    return register


@wrong("race", "rank 0 adds to C[2:4, 0:4]@1 and rank 1 writes it", (0, "Accumulate"), (1, "Gemm"))
def no_fence_before_an_accumulate(rank):
    yield from product(rank, of(rank), into=own(rank))
    sums = yield from product(rank, of(1 - rank))
    yield Accumulate(sums, other(rank))
    yield Fence()


@wrong("race", "rank 0 writes C[0:2, 0:4]@0 and rank 1 writes it", (0, "Put"), (1, "Put"))
def two_ranks_put_into_one_block(rank):
    sums = yield from product(rank, of(0))
    yield Fence()
    yield Put(sums, own(0))
    yield Fence()


@wrong("race", "rank 0 reads C[0:2, 0:4]@0 and rank 1 adds to it", (0, "Get"), (1, "Accumulate"))
def what_others_add_to_is_read(rank):
    yield Zero(own(rank))
    yield Fence()
    if rank == 0:
        mine = yield Get(own(0))
        yield Copy(mine)
    else:
        sums = yield from product(rank, of(0))
        yield Accumulate(sums, own(0))
    yield Fence()


@wrong("race", "rank 0 reads C[0:2, 0:4]@0 and rank 1 adds to it", (0, "Copy"), (1, "Accumulate"))
def a_block_that_is_read_in_place_is_used_after_the_fence(rank):
    """No Fence waits for a Copy into memory of its own."""
    yield Zero(own(rank))
    yield Fence()
    if rank == 0:
        mine = yield Get(own(0))
        upper = yield Part(mine, 0, 0, 1)
        yield Copy(upper)
    yield Fence()
    if rank == 1:
        sums = yield from product(rank, of(0))
        yield Accumulate(sums, own(0))
    yield Fence()


@wrong("race", "rank 0 reads C[0:2, 0:4]@0 and rank 1 writes it", (0, "Copy"), (1, "Put"))
def a_block_that_is_broadcast_in_place_is_used_after_the_fence(rank):
    yield Zero(own(rank))
    yield Fence()
    mine = yield Broadcast(own(0), Group("row", (0, 1), rank))
    yield Fence()
    if rank == 0:
        yield Copy(mine)
    else:
        sums = yield from product(rank, of(0))
        yield Put(sums, own(0))
    yield Fence()


@wrong("race", "rank 0 writes C[0:2, 0:4]@0 and rank 0 adds to it", (0, "Gemm"), (0, "Accumulate"))
def a_rank_adds_to_the_tile_that_it_computes(rank):
    sums = yield from product(rank, of(rank))
    yield from product(rank, of(rank), into=own(rank))
    yield Accumulate(sums, own(rank))
    yield Fence()


@wrong("race", "step 8 changes the value of step 2", (0, "Accumulate"), (0, "Gemm"))
def a_sum_is_changed_while_it_is_sent(rank):
    sums = yield from product(rank, of(1 - rank))
    yield Zero(own(rank))
    yield Fence()
    yield Accumulate(sums, other(rank))
    yield from product(rank, of(1 - rank), into=sums)
    yield Fence()


@wrong("race", "changes the value of step 2", (0, "Offer"), (0, "Gemm"))
def an_offered_sum_is_changed_later(rank):
    sums = yield from product(rank, of(1 - rank))
    yield Offer(sums, 1 - rank, "sums")
    yield Zero(own(rank))
    theirs = yield Take(1 - rank, "sums", (2, 4))
    yield Add(theirs, own(rank))
    yield from product(rank, of(1 - rank), into=sums)


def order_the_gemm(traces):
    """Make the last GEMM of each rank wait for the Offer, which is not enough."""
    for each in traces:
        (offer,) = (step for step in each.steps if type(step) is Offer)
        each.steps[-1].inputs += (offer,)


WRONG.append(
    pytest.param(
        an_offered_sum_is_changed_later,
        "race",
        "changes the value of step",
        ((0, "Offer"), (0, "Gemm")),
        {"change": order_the_gemm},
        id="an_offered_sum_is_changed_later_in_order",
    )
)


@wrong("race", "changes the value of step 1", (0, "Push"), (0, "Gemm"))
def a_part_of_a_scratch_is_refilled_while_another_rank_gets_it(rank):
    """The other half may be filled, the one that is sent may not."""
    halves = yield Scratch((2, 4))
    whole = yield Join([halves], 0)
    for row in (0, 1):
        half = yield Part(whole, 0, row, row + 1)
        sums = yield from product(rank, (row, row + 1), into=half)
    yield Push(sums, 1 - rank, "half")
    for row in (0, 1):
        half = yield Part(whole, 0, row, row + 1)
        yield from product(rank, (row, row + 1), into=half)
    yield Await(1 - rank, "half", (1, 4))


@wrong("missing", "C[0, 0]@0 lacks A[0, 0]·B[0, 0], and 31 more products: no rank multiplies it")
def a_rank_does_nothing(rank):
    if rank == 1:
        yield from right(rank)
    else:
        yield Fence()
        yield Fence()


@wrong("missing", "what these multiply does not come there", (0, "Gemm"))
def a_sum_is_not_sent(rank):
    yield from product(rank, of(rank), into=own(rank))
    sums = yield from product(rank, of(1 - rank))
    yield Fence()
    if rank == 1:
        yield Accumulate(sums, other(rank))
    yield Fence()


@wrong(
    "twice",
    "C[0, 0]@0 has A[0, 0]·B[0, 0] more than once, and 15 more",
    (0, "Gemm"),
    (0, "Gemm"),
    (1, "Accumulate"),
)
def a_gemm_is_done_twice(rank):
    yield from right(rank)
    if rank == 0:
        yield from product(rank, of(rank), into=own(rank))


@wrong("twice", "more than once", (0, "Gemm"), (1, "Gemm"), *2 * [(0, "Accumulate")])
def a_sum_is_sent_twice(rank):
    yield from product(rank, of(rank), into=own(rank))
    sums = yield from product(rank, of(1 - rank))
    yield Fence()
    yield Accumulate(sums, other(rank))
    if rank == 0:
        yield Accumulate(sums, other(rank))
    yield Fence()


@wrong("overwritten", "overwrites the sum in C[0, 0] of rank 0", (0, "Gemm"), (1, "Put"))
def a_sum_is_put_onto_another_one(rank):
    yield from right(rank, Put)


def halves(step):
    """Sums of both ranks in two steps of a group, one after the other."""

    def program(rank):
        both = Group("row", (0, 1), rank)
        for l in of(rank)[0], of(rank)[0] + 1:
            sums = yield from product(rank, inner=(l, l + 1))
            if step is ReduceScatter:
                yield ReduceScatter(sums, [own(0), own(1)], both, 0)
            else:
                for root in (0, 1):
                    part = yield Part(sums, 0, *of(root))
                    yield Reduce(part, own(root), both)

    return program


def forget_to_add(traces):
    """Make every sum of a group overwrite what is there."""
    for each in traces:
        for step in each.steps:
            if step.grouped:
                step.beta = 0.0


@pytest.mark.parametrize("step", [Reduce, ReduceScatter])
def test_two_halves_of_a_reduction_into_one_fragment(step):
    assert not verdict_on(halves(step)).findings
    (finding,) = verdict_on(halves(step), change=forget_to_add).findings
    assert finding.kind == "overwritten"
    first, second = finding.steps
    assert first.text.startswith(step.__name__) and second.text.startswith(step.__name__)
    assert first.step < second.step and first.block == second.block == "C[0:2, 0:4]@0"


@wrong(
    "overwritten", "overwrites the sum in C[0, 0]", (0, "Gemm"), *2 * [(0, "Zero")], problem=ALONE
)
def a_result_is_made_zero(rank):
    yield Zero(ALONE.c.block(WHOLE, WHOLE))
    yield from product(0, into=ALONE.c.block(WHOLE, WHOLE), problem=ALONE, inner=WHOLE)
    yield Zero(ALONE.c.block(WHOLE, WHOLE))


@wrong("deadlock", "2 ranks cannot go on: rank 0 waits for the value 'x' of rank 1", (0, "Copy"),
       (1, "Copy"))  # fmt: skip
def each_rank_uses_a_value_before_it_sends_one(rank):
    value = yield Await(1 - rank, "x", (4, 2))
    yield Copy(value)
    a = yield Get(OUTER.a.block(WHOLE, of(rank)))
    yield Push(a, 1 - rank, "x")


@wrong("deadlock", "rank 1 waits for the value 'x' of rank 0", (0, "Take"), (1, "Take"))
def each_rank_takes_before_it_offers(rank):
    yield Take(1 - rank, "x", (2, 4))
    sums = yield from product(rank, of(rank))
    yield Offer(sums, 1 - rank, "x")


@wrong("deadlock", "1 rank cannot go on: rank 1 waits for rank 0 at a Fence", (1, "Fence"))
def a_rank_forgets_its_last_fence(rank):
    yield from right(rank)
    if rank == 1:
        yield Fence()


@wrong("deadlock", "waits for rank 1 in row [0, 1]", (0, "Shift"), (1, "Shift"))
def ranks_begin_two_groups_in_different_orders(rank):
    a = yield Get(OUTER.a.block(WHOLE, of(rank)))
    for name in ("row", "column")[:: 1 - 2 * rank]:
        yield Shift(a, Group(name, (0, 1), rank), 1, (4, 2))


@wrong("deadlock", "begin different steps", (0, "Shift"), (1, "Broadcast"))
def members_begin_different_steps(rank):
    both = Group("row", (0, 1), rank)
    if rank == 0:
        a = yield Get(OUTER.a.block(WHOLE, of(rank)))
        yield Shift(a, both, 1, (4, 2))
    else:
        yield Broadcast(OUTER.a.block(WHOLE, of(0)), both)


@wrong("signal", "what is sent from rank 0 to rank 1, 'x', is never received", (0, "Push"))
def a_push_without_an_await(rank):
    a = yield Get(OUTER.a.block(WHOLE, of(rank)))
    if rank == 0:
        yield Push(a, 1, "x")


@wrong("signal", "what is awaited from rank 1 to rank 0, 'x', is never sent", (0, "Await"))
def an_await_without_a_push(rank):
    if rank == 0:
        yield Await(1, "x", (4, 2))


@wrong("signal", "has the name of another signal", *2 * [(0, "Push")], (1, "Await"))
def two_signals_of_one_name(rank):
    a = yield Get(OUTER.a.block(WHOLE, of(rank)))
    if rank == 0:
        yield Push(a, 1, "x")
        yield Push(a, 1, "x")
    else:
        yield Await(0, "x", (4, 2))


@wrong("unwritten", "rank 0 reads C[0:2, 0:4]@0, not all", (0, "Get"), fresh=False)
def a_tile_is_read_before_it_is_written(rank):
    yield Get(own(rank))


@wrong("unwritten", "adds to C[2, 0], which is not written", (0, "Accumulate"), fresh=False)
def a_tile_is_added_to_before_it_is_written(rank):
    sums = yield from product(rank, of(1 - rank))
    yield Accumulate(sums, other(rank))


@wrong("unwritten", "the value of step 0, not all of which", (0, "Scratch"), (0, "Copy"))
def an_empty_scratch_is_copied(rank):
    scratch = yield Scratch((2, 4))
    yield Copy(scratch, own(rank))


@wrong("unwritten", "not all of which is written", (0, "FilledScratch"), (0, "Copy"))
def half_a_scratch_is_copied(rank):
    scratch = yield Scratch((2, 4))
    half = yield Part(scratch, 0, 0, 1)
    sums = yield from product(rank, (2 * rank, 2 * rank + 1), into=half)
    filled = yield FilledScratch(scratch, [sums])
    yield Copy(filled, own(rank))


@wrong("unwritten", "the value of step 1, not all of which", (0, "Join"), (0, "Copy"))
def a_join_of_empty_scratches_is_copied(rank):
    scratch = yield Scratch((2, 4))
    whole = yield Join([scratch], 0)
    yield Copy(whole, own(rank))


def move(**changes):
    """Change attributes of the block of the first step of rank 0."""

    def change(traces):
        for name, value in changes.items():
            setattr(traces[0].steps[0].block, name, value)

    return change


for changes, text in (
    ({"owner": 1}, "has elements of rank 0, in replica 0"),
    ({"replica": 1}, "is not inside its matrix"),
    ({"col1": 5}, "is not inside its matrix"),
    ({"row0": -1}, "is not inside its matrix"),
):
    how = {"change": move(**changes)}
    name = "right_but_" + "_".join(f"{key}_{value}" for key, value in changes.items())
    WRONG.append(pytest.param(right, "misplaced", text, [(0, "Get")], how, id=name))


@wrong("misplaced", "rank 1 computes into C[0:2, 0:4]@0", (1, "Copy"))
def a_rank_copies_into_the_tile_of_another_one(rank):
    sums = yield from product(rank, of(1 - rank))
    yield Fence()
    yield Copy(sums, other(rank))


@wrong("misplaced", "rank 0 computes into A[0:4, 0:2]@0", (0, "Put"))
def an_operand_is_written(rank):
    a = yield Get(OUTER.a.block(WHOLE, of(rank)))
    yield Put(a, OUTER.a.block(WHOLE, of(rank)))


@wrong("misplaced", "a value that does not fit goes into C[0:2, 0:4]@0", (1, "Accumulate"))
def a_sum_of_another_shape_is_sent(rank):
    yield Zero(own(rank))
    sums = yield from product(rank)
    yield Fence()
    yield Accumulate(sums, other(rank))


@wrong("misplaced", "a sum of C[2, 0] goes into C[0, 0]", (1, "Accumulate"))
def a_sum_of_other_rows_is_sent(rank):
    yield Zero(own(rank))
    sums = yield from product(rank, of(rank))
    yield Fence()
    yield Accumulate(sums, other(rank))


@wrong("misplaced", "sums of C[0, 0] and C[2, 0] are added", (0, "Add"))
def sums_of_different_rows_are_added(rank):
    one = yield from product(rank, of(0))
    another = yield from product(rank, of(1))
    yield Add(another, one)


@wrong("misplaced", "values that do not fit are added", (0, "Add"))
def a_block_of_a_is_added(rank):
    sums = yield from product(rank, of(0), of(0))
    a = yield Get(OUTER.a.block(of(0), of(rank)))
    yield Add(a, sums)


@wrong("misplaced", "a value of 2x4 elements is stored in another of 1x4", (0, "Gemm"))
def a_product_does_not_fit_into_its_scratch(rank):
    scratch = yield Scratch((1, 4))
    part = yield Part(scratch, 0, 0, 1)
    yield from product(rank, of(rank), into=part)


@wrong("misplaced", "a GEMM multiplies values that do not fit", (0, "Gemm"))
def a_gemm_of_shapes_that_do_not_fit(rank):
    a = yield Get(OUTER.a.block(WHOLE, of(rank)))
    b = yield Get(OUTER.b.block((0, 1), WHOLE))
    yield Gemm(a, b)


@wrong("misplaced", "a GEMM multiplies values that do not fit", (0, "Gemm"))
def a_sum_is_multiplied(rank):
    sums = yield from product(rank)
    b = yield Get(OUTER.b.block((0, 2), WHOLE))
    lower = yield Part(sums, 1, 0, 2)
    yield Gemm(lower, b)


@wrong("misplaced", "a GEMM does not multiply A by B", (0, "Gemm"))
def b_is_multiplied_by_a(rank):
    a = yield Get(OUTER.a.block(of(0), of(rank)))
    b = yield Get(OUTER.b.block(of(rank), of(0)))
    yield Gemm(b, a)


@wrong("misplaced", "column 0 of A is multiplied by row 2 of B", (0, "Gemm"))
def columns_are_multiplied_by_other_rows(rank):
    a = yield Get(OUTER.a.block(WHOLE, of(0)))
    b = yield Get(OUTER.b.block(of(1), WHOLE))
    yield Gemm(a, b)


@wrong("misplaced", "an operand is not of whole rows and columns", (0, "Gemm"))
def blocks_of_other_columns_are_stacked(rank):
    upper = yield Get(OUTER.a.block(of(0), of(0)))
    lower = yield Get(OUTER.a.block(of(1), of(1)))
    a = yield Join([upper, lower], 0)
    b = yield Get(OUTER.b.block(of(0), WHOLE))
    yield Gemm(a, b)


@wrong("misplaced", "fragments are not those of the members", (0, "AllGather"), (1, "AllGather"))
def members_gather_the_fragments_of_others(rank):
    blocks = [OUTER.a.block(WHOLE, of(1 - each)) for each in (0, 1)]
    yield AllGather(blocks, Group("row", (0, 1), rank), 1)


@wrong("misplaced", "fragments are not those of the members", (0, "Broadcast"), (1, "Broadcast"))
def members_name_different_roots(rank):
    yield Broadcast(OUTER.a.block(WHOLE, of(rank)), Group("row", (0, 1), rank))


@wrong("misplaced", "fragments are not those of the members", (0, "Broadcast"))
def the_root_is_no_member(rank):
    if rank == 0:
        yield Broadcast(OUTER.a.block(WHOLE, of(1)), Group("row", (0,), 0))


@wrong("misplaced", "fragments are not those of the members", (0, "AllGather"), (1, "AllGather"))
def members_have_wrong_positions(rank):
    blocks = [OUTER.a.block(WHOLE, of(each)) for each in (0, 1)]
    yield AllGather(blocks, Group("row", (0, 1), 1 - rank), 1)


@wrong("misplaced", "rank 1 is no member of row [0]", (1, "AllGather"))
def a_rank_is_no_member_of_its_group(rank):
    yield AllGather([OUTER.a.block(WHOLE, of(0))], Group("row", (0,), 0), 1)


@wrong("misplaced", "members shift by different distances", (0, "Shift"), (1, "Shift"))
def members_shift_by_different_distances(rank):
    a = yield Get(OUTER.a.block(WHOLE, of(rank)))
    yield Shift(a, Group("row", (0, 1), rank), rank, (4, 2))


@wrong("misplaced", "members expect values of other shapes", (0, "Shift"), (1, "Shift"))
def members_expect_another_shape(rank):
    a = yield Get(OUTER.a.block(WHOLE, of(rank)))
    yield Shift(a, Group("row", (0, 1), rank), 1, (4, 1))


@wrong("misplaced", "rank 1 expects a value of another shape", (0, "Push"), (1, "Await"))
def a_value_of_another_shape_is_awaited(rank):
    if rank == 0:
        a = yield Get(OUTER.a.block(WHOLE, of(rank)))
        yield Push(a, 1, "x")
    else:
        value = yield Await(0, "x", (4, 1))
        yield Copy(value)


@pytest.mark.parametrize("program, kind, text, steps, how", WRONG)
def test_a_wrong_program_is_caught_by_the_steps_that_are_wrong(program, kind, text, steps, how):
    finding = verdict_on(program, **how).findings[0]
    assert finding.kind == kind and text in finding.text, finding
    named = sorted((culprit.rank, culprit.text.split("(")[0]) for culprit in finding.steps)
    assert named == sorted(steps)


def test_a_finding_names_the_numbers_the_texts_and_the_blocks_of_its_steps():
    verdict = verdict_on(two_ranks_put_into_one_block)
    assert list(verdict.lines()) == [
        "race: rank 0 writes C[0:2, 0:4]@0 and rank 1 writes it, without a Fence between",
        "  rank 0, step 5: Put(%3 -> C[0:2, 0:4]@0)",
        "  rank 1, step 5: Put(%3 -> C[0:2, 0:4]@0)",
    ]
    (described,) = verdict.described()
    assert described["kind"] == "race" and described["text"] in next(verdict.lines())
    texts = {"text": "Put(%3 -> C[0:2, 0:4]@0)", "block": "C[0:2, 0:4]@0"}
    assert described["steps"] == [{"rank": rank, "step": 5, **texts} for rank in (0, 1)]


# -- what else a program may have


def test_reductions_during_gemms_run_one_after_another_but_not_after_a_put():
    def program(rank, last):
        sums = yield from product(rank, of(1 - rank))
        mine = yield from product(rank, of(rank))
        yield Push(sums, 1 - rank, "x")
        yield Zero(own(rank))
        theirs = yield Await(1 - rank, "x", (2, 4))
        yield Add(mine, own(rank), concurrent=True)
        yield last(theirs, own(rank))

    assert not verdict_on(
        lambda rank: program(rank, lambda *how: Add(*how, concurrent=True))
    ).findings
    races = verdict_on(lambda rank: program(rank, Accumulate)).findings
    named = [[step.text.split("(")[0] for step in race.steps] for race in races]
    assert {race.kind for race in races} == {"race"} and ["Add", "Accumulate"] in named


def test_the_operations_of_a_lowered_program_are_an_order():
    def program(rank, apart):
        tile, sums = ALONE.c.block(WHOLE, WHOLE), []
        for inner in ((0, 2), (2, 4)):
            sums.append((yield from product(0, problem=ALONE, inner=inner)))
        yield OperationEnd()
        yield Put(sums[0], tile)
        if apart:
            yield OperationEnd()
        yield Accumulate(sums[1], tile)

    # no Zero before: the Put is the first write
    in_order, at_once = (
        verdict_on(lambda rank: program(rank, apart), ALONE, fresh=False).findings
        for apart in (True, False)
    )
    assert not in_order and [each.kind for each in at_once] == ["race"]


def copies(rank, back):
    """Two copies of C: each rank has half of the products, and the first copy gets them all."""
    problem = REPLICATED
    c = problem.c.own_tiles(rank)[0]
    yield from product(rank, into=c, problem=problem)
    yield Fence()
    if rank == 0:
        there = yield Get(problem.c.block(WHOLE, WHOLE, 1))
        yield Add(there, c)
    yield Fence()
    if back and rank == 1:
        there = yield Get(problem.c.block(WHOLE, WHOLE, 0))
        yield Copy(there, c)


REPLICATED = Problem(4, 4, 4, 2, "column", "row", "row/c2")


@pytest.mark.parametrize("back, everywhere", [(True, True), (True, False), (False, False)])
def test_the_first_copy_has_the_result_or_every_one(back, everywhere):
    program = lambda rank: copies(rank, back)
    assert not verdict_on(program, REPLICATED, everywhere=everywhere).findings


def test_a_copy_without_the_result_is_found_where_every_one_is_to_have_it():
    (finding,) = verdict_on(lambda rank: copies(rank, False), REPLICATED, everywhere=True).findings
    assert finding.text == (
        "C[0, 0]@1 lacks A[0, 0]·B[0, 0], and 31 more products: what these multiply does not come "
        "there"
    )
    assert [(step.rank, step.text[:4]) for step in finding.steps] == [(0, "Gemm")]


def test_a_term_of_a_pending_sum_is_written_even_if_nothing_is_added_to_it():
    problem = Problem(4, 4, 4, 2, "R", "R", "P")

    def program(rank, zero):
        if rank == 0:
            yield from product(
                rank, into=problem.c.block(WHOLE, WHOLE), problem=problem, inner=WHOLE
            )
        elif zero:
            yield Zero(problem.c.block(WHOLE, WHOLE, 1))

    def change(traces):
        traces[0].steps[-1].beta = 0.0

    how = {"problem": problem, "fresh": False, "change": change}
    assert not verdict_on(lambda rank: program(rank, True), **how).findings
    (finding,) = verdict_on(lambda rank: program(rank, False), **how).findings
    assert finding == ("unwritten", "C[0, 0]@1 is not written at the end", ())


UPDATED = Problem(4, 4, 4, 1, "row", "row", "row", updates=True)
TILE = UPDATED.c.block(WHOLE, WHOLE)


def updated(rank, *zeros):
    yield from (Zero(TILE) for _ in range(1))
    yield from product(0, into=TILE, problem=UPDATED, inner=WHOLE)


@pytest.mark.parametrize(
    "beta, kind, text",
    [
        (None, None, ""),
        (1.0, "missing", "C[0, 0] has its old value without beta, or not at all"),
        (0.0, "overwritten", "rank 0 overwrites the sum in C[0, 0] of rank 0"),
    ],
)
def test_old_values_count_once_and_times_beta(beta, kind, text):
    def change(traces):
        traces[0].steps[0].beta = beta

    found = verdict_on(updated, UPDATED, change=change).findings
    assert [(each.kind, each.text) for each in found] == ([(kind, text)] if kind else [])


def test_beta_times_what_was_added_is_a_fault():
    def change(traces):
        traces[0].steps[-1].beta = None  # a Gemm after the products of another one

    def program(rank):
        for inner in ((0, 2), (2, 4)):
            yield from product(0, into=TILE, problem=UPDATED, inner=inner)

    assert not verdict_on(program, UPDATED).findings
    (finding,) = verdict_on(program, UPDATED, change=change).findings
    assert finding.kind == "overwritten" and len(finding.steps) == 2


def test_a_token_is_multiplied_only_by_its_experts():
    algorithm, problem, resolved = resolved_as(
        "ag_moe", 4, 2, 2, 1, experts=4, topk=1, routing="uniform"
    )
    traces = [algorithm.trace(problem, 0, **resolved)]
    assert not check(traces).findings
    weights = [step for step in traces[0].steps if type(step) is Get and step.block.matrix == "B"]
    blocks = [step.block for step in weights]
    for step, block in zip(weights, [*blocks[1:], blocks[0]]):
        step.block = block
    (finding,) = check(traces).findings
    assert finding.kind == "misplaced" and "is in no sum, or in another one" in finding.text
    assert [step.text.split("(")[0] for step in finding.steps] == ["Gemm"]


def test_a_step_of_an_unknown_type_is_refused():
    def program(rank):
        yield Step()

    with pytest.raises(UsageError, match="a check does not know the step"):
        verdict_on(program, ALONE)


def test_what_is_too_large_is_refused_with_what_to_reduce():
    refuse_large(Problem(64, 128, 128, 4, c="block"), MOST_STEPS)
    with pytest.raises(UsageError, match="Reduce -m, -n or -k"):
        refuse_large(Problem(64, 128, 128, 4, c="block/c2"))
    with pytest.raises(UsageError, match="Reduce -m, -n, -k or -p, or use larger tiles"):
        refuse_large(ALONE, MOST_STEPS + 1)
    assert MOST_PRODUCTS == 64 * 128 * 128


def test_computes_of_a_rank_and_fences_are_an_order():
    def alone(rank):
        tile = ALONE.c.block(WHOLE, WHOLE)
        yield Zero(tile)
        sums = yield from product(0, problem=ALONE, inner=WHOLE)
        yield Accumulate(sums, tile)

    def reused(rank, fence):
        yield from product(rank, of(rank), into=own(rank))
        sums = yield from product(rank, of(1 - rank))
        yield Fence()
        yield Accumulate(sums, other(rank))
        if fence:
            yield Fence()
        there = yield Get(other(rank))
        yield Add(there, sums)
        yield Fence()

    assert not verdict_on(alone, ALONE).findings
    assert not verdict_on(lambda rank: reused(rank, True)).findings
    found = verdict_on(lambda rank: reused(rank, False)).findings
    assert {each.kind for each in found} == {"race"}


def test_the_first_races_are_reported():
    def program(rank):
        for row in range(4):
            for _ in range(3):
                a = yield Get(OUTER.c.block((row, row + 1), WHOLE))
                yield Put(a, OUTER.c.block((row, row + 1), WHOLE))

    assert len(verdict_on(program).findings) == MOST_RACES
