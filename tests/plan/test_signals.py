"""Signals between ranks: each has two ends, ranks do not wait in a cycle, and an Await blocks only
steps that use its value."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drbench.errors import CaseFailed
from drbench.plan.schedule import Lookahead, Scheduler, plan_arena, pool_bytes
from drbench.plan.signals import ends_of, offered, pairs_of, plan_inbox
from drbench.program.signal_steps import Await, Offer, Push, Take
from drbench.program.steps import Add, Block, Fence, Gemm, Get, Part
from drbench.program.trace import trace


def block(matrix, owner, rows, cols=(0, 4)):
    (row0, row1), (col0, col1) = rows, cols
    return Block(matrix, owner, 0, (0, 0), row0, row1, col0, col1)


def traced(*programs):
    return [trace(program, None, rank, fresh=False) for rank, program in enumerate(programs)]


def gemm(rank):
    """A GEMM of local operands."""
    a = yield Get(block("A", rank, (0, 4)))
    b = yield Get(block("B", rank, (0, 4)))
    return (yield Gemm(a, b))


def sends(rank, *pushes):
    token = yield from gemm(rank)
    for kind, to, key in pushes:
        yield kind(token, to, key)


def receives(*awaits):
    for kind, source, key, shape in awaits:
        yield kind(source, key, shape)


# -- ends


def test_ends_are_matched_by_ranks_and_key():
    first, second = traced(
        sends(0, (Push, 1, "x"), (Push, 1, "y")),
        receives((Await, 0, "y", (4, 4)), (Await, 0, "x", (4, 4))),
    )
    assert pairs_of([first, second]) == {(0, 3): (1, 1), (0, 4): (1, 0)}
    assert pairs_of(traced(gemm(0), gemm(1))) == {}


WRONG = {
    "nobody receives it": (
        [sends(0, (Push, 1, "x")), receives()],
        r"rank 0, step 3, Push\(to 1, 'x'\), is never received on rank 1",
    ),
    "nobody sends it": (
        [sends(0), receives((Await, 0, "x", (4, 4)))],
        r"rank 1, step 0, Await\(from 0, 'x'\), is never sent by rank 0",
    ),
    "an offer is not pushed": (
        [sends(0, (Offer, 1, "x")), receives((Await, 0, "x", (4, 4)))],
        "is never received",
    ),
    "another size": (
        [sends(0, (Push, 1, "x")), receives((Await, 0, "x", (2, 4)))],
        "has 16 bytes; rank 1 expects 8",
    ),
    "twice": (
        [sends(0, (Push, 1, "x"), (Push, 1, "x")), receives((Await, 0, "x", (4, 4)))],
        "is there twice",
    ),
    "to itself": ([sends(0, (Push, 0, "x")), receives()], "is to itself"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_signal_without_its_other_end_is_refused(wrong):
    programs, message = WRONG[wrong]
    with pytest.raises(CaseFailed, match=message) as refused:
        pairs_of(traced(*programs))
    assert "Correct the program." in str(refused.value)


def test_only_parts_of_a_gemm_can_be_offered():
    def columns():
        token = yield from gemm(0)
        yield Offer((yield Part(token, 1, 1, 3)), 1, "x")

    taken = traced(columns(), receives((Take, 0, "x", (4, 2))))
    assert len(pairs_of(taken)) == 1
    (end,) = (end for end in ends_of(taken[0], [4] * 5) if end.kind == "offer")
    assert (end.offset, end.nbytes, end.row_stride_bytes, end.span) == (4, 32, 16, 56)

    def operand():
        yield Offer((yield Get(block("B", 0, (0, 4)))), 1, "x")

    with pytest.raises(CaseFailed, match="only the result of a GEMM in its own memory"):
        pairs_of(traced(operand(), receives((Take, 0, "x", (4, 4)))))


def test_a_part_of_a_transposed_block_is_offered_in_place():
    """A 4x6 block stored by columns: columns 2 to 5, of which rows 1 to 4."""
    stored = Block("A", 0, 0, (0, 0), 0, 4, 0, 6, transposed=True, full=False)

    def program():
        token = yield Await(1, "a", stored)
        yield Offer((yield Part((yield Part(token, 1, 2, 5)), 0, 1, 4)), 2, "b")

    (found,) = traced(program())
    (end,) = (end for end in ends_of(found, [4] * 4) if end.kind == "offer")
    elements = np.arange(24).reshape(6, 4)  # as stored
    part = elements.T[1:4, 2:5]
    assert end.offset == 4 * part[0, 0] and end.row_stride_bytes == part.strides[1] // 2 == 16
    assert end.span == 4 * (part[-1, -1] - part[0, 0] + 1) and end.nbytes == 4 * part.size


# -- circles


def test_a_cycle_of_three_is_named_without_the_rank_that_only_waits_for_it():
    def chain(rank, source, to):
        came = yield Await(source, "x", (4, 4))
        yield Push(came, to, "x")

    def concurrent():
        yield from sends(0)
        came = yield Await(1, "y", (4, 4))
        yield Gemm(came, (yield Get(block("B", 0, (0, 4)))))

    def forwards():
        came = yield Await(3, "x", (4, 4))
        yield Push(came, 2, "x")
        yield Push(came, 0, "y")

    with pytest.raises(CaseFailed) as refused:
        pairs_of(traced(concurrent(), forwards(), chain(2, 1, 3), chain(3, 2, 1)))
    text = str(refused.value)
    assert "rank 1" in text and "rank 2" in text and "rank 3" in text and "rank 0" not in text


def works_off(programs):
    """Slow oracle: ranks step by step; a Push and an Await without a reader never wait, a reader of
    an Await does, and a Fence waits until every rank has as many."""
    sent, at = set(), [0] * len(programs)
    fences = lambda rank: sum(what == "fence" for what, *_ in programs[rank][: at[rank] + 1])
    while True:
        before = list(at)
        for rank, steps in enumerate(programs):
            while at[rank] < len(steps):
                what, other, key = steps[at[rank]]
                if what == "push":
                    sent.add((rank, other, key))
                elif what == "use" and (other, rank, key) not in sent:
                    break
                elif what == "fence" and min(map(fences, range(len(at)))) < fences(rank):
                    break
                at[rank] += 1
        if all(at[rank] == len(steps) for rank, steps in enumerate(programs)):
            return True
        if at == before:
            return False


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 4))
def test_exactly_the_programs_that_deadlock_step_by_step_are_refused(seed, p):
    chance = random.Random(seed)
    programs = [[] for _ in range(p)]
    for key in range(chance.randrange(1, 7)):
        source, target = chance.sample(range(p), 2)
        reads = chance.choice(("use", "use", "await"))
        for rank, what, other in ((source, "push", target), (target, reads, source)):
            programs[rank].insert(chance.randint(0, len(programs[rank])), (what, other, key))
    for rank in range(p) if chance.random() < 0.4 else range(chance.randrange(5) == 0):
        programs[rank].insert(chance.randint(0, len(programs[rank])), ("fence", None, None))

    def program(rank, steps):
        token = yield from gemm(rank)
        b = yield Get(block("B", rank, (0, 4)))
        for what, other, key in steps:
            if what == "push":
                yield Push(token, other, key)
            elif what == "fence":
                yield Fence()
            else:
                came = yield Await(other, key, (4, 4))
                if what == "use":
                    yield Gemm(came, b)

    traces = traced(*[program(rank, steps) for rank, steps in enumerate(programs)])
    if works_off(programs):
        pairs_of(traces)
    else:
        with pytest.raises(CaseFailed, match="wait for each other: rank .|which never arrives"):
            pairs_of(traces)


# -- the schedule


def late_await(depth):
    """The schedule of a GEMM of an awaited value, after three of fetched values."""

    def program():
        b = yield Get(block("B", 0, (0, 4)))
        for x in range(3):
            a = yield Get(block("A", 1, (4 * x, 4 * x + 4)))
            yield Gemm(a, b, into=block("C", 0, (4 * x, 4 * x + 4)))
        came = yield Await(1, "x", (4, 4))
        yield Gemm(came, b, into=block("C", 0, (12, 16)))

    return Scheduler(Lookahead(trace(program(), None, 0, fresh=False), depth), [0])


@pytest.mark.parametrize("depth", [0, 1, 2, "all"])
def test_an_await_starts_first_of_all_and_only_its_readers_wait_for_it(depth):
    """Without limit all transfers start at once."""
    schedule = late_await(depth)
    taken, done = schedule.take(), []
    assert 7 in taken and (depth != "all" or taken == [1, 3, 5, 7])
    while taken or schedule.next_compute() is not None:
        for t in taken:
            if t != 7:
                schedule.finish(t)
        if (t := schedule.next_compute()) is not None:
            schedule.finish(t)
            done.append(t)
        taken = schedule.take()
    assert done == [2, 4, 6] and schedule.pending == 2
    schedule.finish(7)
    assert schedule.next_compute() == 8


def test_a_concurrent_reduction_keeps_its_order_with_gemms_of_the_same_elements():
    """The own GEMM overwrites C, so the awaited value is added after it; later GEMMs continue."""

    def program():
        b = yield Get(block("B", 0, (0, 4)))
        came = yield Await(1, "x", (4, 4))
        for x in range(2):
            a = yield Get(block("A", 0, (4 * x, 4 * x + 4)))
            yield Gemm(a, b, into=block("C", 0, (4 * x, 4 * x + 4)))
        yield Add(came, into=block("C", 0, (0, 4)), concurrent=True)
        yield Gemm(a, b, into=block("C", 0, (2, 3)))

    found = trace(program(), None, 0, fresh=False)
    add, last = found.steps[6], found.steps[7]
    assert not add.computes and found.steps[3] in add.inputs and add in last.inputs
    schedule = Scheduler(Lookahead(found, "all"), [0, 2, 4])
    schedule.take()
    schedule.finish(1)
    assert schedule.take() == []
    schedule.finish(schedule.next_compute())
    assert schedule.take() == [6]  # during the second GEMM
    schedule.finish(schedule.next_compute())
    assert schedule.next_compute() is None
    schedule.finish(6)
    assert schedule.next_compute() == 7


# -- memory


def test_an_offered_value_is_in_the_inbox_and_not_in_the_arena():
    def program():
        token = yield from gemm(0)
        yield Offer((yield Part(token, 0, 0, 2)), 1, "top")
        yield Offer((yield Part(token, 0, 2, 4)), 1, "bottom")
        yield Await(1, "y", (3, 4))

    (found,) = traced(program())
    assert offered(found.steps) == {2}
    assert plan_arena(Lookahead(found, "all"), 4).size == 0
    assert plan_inbox(found, [4] * len(found.steps)).offsets == {2: 0, 7: 64}


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1), st.data())
def test_no_two_slots_share_a_byte_and_each_is_aligned_for_its_elements(shapes, data):
    found = trace(
        receives(*[(Await, 1, x, shape) for x, shape in enumerate(shapes)]), None, 0, fresh=False
    )
    widths = [data.draw(st.sampled_from((2, 4, 8))) for _ in shapes]
    plan, taken = plan_inbox(found, widths), set()
    for t, (rows, cols) in enumerate(shapes):
        slot = range(plan.offsets[t], plan.offsets[t] + rows * cols * widths[t])
        assert plan.offsets[t] % widths[t] == 0 and not taken & set(slot)
        taken |= set(slot)
    assert max(taken) < plan.nbytes


def test_an_inbox_counts_as_receive_memory():
    from drbench.algorithms import get_algorithm

    ag = get_algorithm("ag_gemm")
    problem = ag.problem(64, 16, 16, 4)
    found = ag.trace(problem, 0, **ag.resolve(problem, variant="push"))
    assert pool_bytes(found, 1) == pool_bytes(found, "all") == 48 * 16 * 4
