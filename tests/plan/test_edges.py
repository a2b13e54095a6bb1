"""Edges between streams, against an oracle that follows every element of memory."""

import itertools
import random

import pytest

from drbench.algorithms import get_algorithm
from drbench.plan.edges import edges
from drbench.plan.schedule import ArenaPlan, Lookahead, Scheduler, buffer_elements, plan_arena
from drbench.program.group_steps import ReduceScatter
from drbench.program.problem import Problem
from drbench.program.steps import Block, Gemm, Get, Group, Part, Scratch
from drbench.program.trace import trace

CASES = [
    ("universal", {"stationary": s, "chunk": c}, texts)
    for s in "ABC"
    for c in (3, 8)
    for texts in (("row", "column", "block"), ("tiles:5x7@2x2", "row", "column"))
]
CASES += [
    ("meshslice", {"dataflow": flow, "mesh": "2x2", "slices": 2}, (None,) * 3)
    for flow in ("OS", "LS", "RS")
]
CASES += [
    ("collective", {"dataflow": "RS", "mesh": "2x2"}, (None,) * 3),
    ("cannon", {"mesh": "2x2"}, (None,) * 3),
]


def made(name, options, texts, depth):
    algorithm = get_algorithm(name)
    problem = algorithm.problem(24, 20, 28, 4, *texts, **algorithm.pick(options))
    assert isinstance(problem, Problem)
    traced = algorithm.trace(
        problem, 1, **algorithm.resolve(problem, False, **algorithm.pick(options))
    )
    lookahead = Lookahead(traced, depth)
    plan = plan_arena(lookahead, 1)
    sizes = {
        t: buffer_elements(traced.steps[t], 1)
        for t in plan.offsets
        if not (traced.steps[t].computes and traced.steps[t].onto is not None)
    }
    return traced, lookahead, plan, {t: size for t, size in sizes.items() if size}


def memory_of(step, plan, sizes):
    """Elements of the arena that store a token."""
    if step.alias:
        return {cell for value in step.inputs for cell in memory_of(value, plan, sizes)}
    if step.computes and step.onto is not None:
        return memory_of(step.onto, plan, sizes)
    return (
        set(range(plan.offsets[step.index], plan.offsets[step.index] + sizes[step.index]))
        if step.index in sizes
        else set()
    )


def launching_order(lookahead, seed):
    """An order in which the scheduler may hand out the steps when each counts as finished at
    once."""
    chance, schedule, order, waiting = random.Random(seed), Scheduler(lookahead), [], []
    while schedule.pending:
        waiting += schedule.take()
        t = schedule.next_compute()
        if waiting and (t is None or chance.random() < 0.5):
            order.append(waiting.pop(0))
        else:
            order.append(t)
        schedule.finish(order[-1])
    return order


@pytest.mark.parametrize("name, options, texts", CASES)
@pytest.mark.parametrize("depth", [1, 3])
def test_steps_that_reuse_memory_wait_for_its_users_and_readers_wait_for_its_writers(
    name, options, texts, depth
):
    traced, lookahead, plan, sizes = made(name, options, texts, depth)
    found = edges(lookahead, plan, sizes)
    # everything that a step comes after, over any number of edges
    before = [set() for _ in traced.steps]
    for step in traced.steps:
        before[step.index].update(found[step.index], *(before[s] for s in found[step.index]))
    for seed in range(3):
        order = launching_order(lookahead, seed)
        place = {t: x for x, t in enumerate(order)}
        assert all(place[s] < place[t] for t in order for s in found[t]), (
            "an edge points to a step launched later"
        )
        # element of the arena -> steps that touched, and wrote, its present value
        users, writers = (
            {},
            {},
        )
        for t in order:
            step = traced.steps[t]
            if step.alias or not (step.inputs or step.index in sizes) or type(step) is Scratch:
                continue
            fills = memory_of(step, plan, sizes) if step.index in sizes else set()
            adds = (
                memory_of(step.onto, plan, sizes)
                if step.computes and step.onto is not None
                else set()
            )
            reads = {
                cell
                for value in step.inputs
                if value is not step.onto
                for cell in memory_of(value, plan, sizes)
            }
            for cell in fills | adds | reads:
                wanted = users if cell in fills else writers
                late = [
                    s
                    for s in wanted.get(cell, ())
                    if s not in before[t] and not (cell in adds and step.onto.alias)
                ]
                assert not late, f"{step!r} does not wait for {traced.steps[late[0]]!r}"
            for cell in fills | adds | reads:
                kept = set() if cell in fills else users.get(cell, set())
                users[cell] = kept | {t}
                if cell in fills | adds:
                    writers[cell] = (set() if cell in fills else writers.get(cell, set())) | {t}


@pytest.mark.parametrize("kind", ["ready", "made", "free", "order"])
def test_edges_can_be_left_out_by_kind(kind):
    for name, options, texts in CASES:
        _, lookahead, plan, sizes = made(name, options, texts, 1)
        if edges(lookahead, plan, sizes, frozenset({kind})) != edges(lookahead, plan, sizes):
            return
    pytest.fail(f"no case has an edge of kind {kind}")


def block(name, owner, row0, row1, col0, col1):
    return Block(name, owner, 0, (owner, 0), row0, row1, col0, col1)


def reached(found, t):
    """All steps that a step comes after."""
    out, todo = set(), [t]
    while todo:
        for s in found[todo.pop()]:
            if s not in out:
                out.add(s)
                todo.append(s)
    return out


def test_gemms_into_parts_of_a_scratch_follow_the_last_use_of_its_memory():
    def program():
        b = yield Get(block("B", 1, 0, 4, 0, 4))  # 0: had the memory before
        a = yield Get(block("A", 0, 0, 4, 0, 4))
        yield Gemm(a, b, into=block("C", 0, 0, 4, 0, 4))  # 2: used it
        both = yield Scratch((8, 4))  # 3
        last = None
        for row in (0, 4):  # 4, 5 and 6, 7
            part = yield Part(both, 0, row, row + 4)
            last = yield Gemm(a, a, into=part)
        yield ReduceScatter(
            both,
            [block("C", 0, 0, 4, 0, 4), block("C", 1, 4, 8, 0, 4)],
            Group("row", (0, 1), 0),
            0,
            after=last,
        )

    found = edges(
        Lookahead(trace(program(), None, 0, fresh=False), 1),
        ArenaPlan({0: 0, 3: 0}, 32),
        {0: 16, 3: 32},
    )
    assert {5, 7} <= reached(found, 8)
    assert 2 in found[5] and 2 in found[7]  # not by way of the Scratch, which does nothing


def test_a_buffer_over_parts_of_two_earlier_ones_waits_for_the_users_of_both_and_no_more():
    def program():
        a = yield Get(block("A", 0, 0, 2, 0, 4))
        for x in range(4):  # Gets 1, 3, 5, 7 and their GEMMs 2, 4, 6, 8
            b = yield Get(block("B", 1, 0, 4, 2 * x, 2 * x + 2))
            yield Gemm(a, b, into=block("C", 0, 0, 2, 2 * x, 2 * x + 2))

    plan = ArenaPlan({1: 0, 3: 8, 5: 4, 7: 0}, 16)
    found = edges(
        Lookahead(trace(program(), None, 0, fresh=False), 0), plan, {1: 8, 3: 8, 5: 8, 7: 8}
    )
    assert {2, 4} <= set(found[5])
    assert {2, 6} <= set(found[7]) and 4 not in found[7]


def wholly_or_partly_before(writes):
    """For each write, given as (rows, columns), the earlier ones with an element in common, found
    element by element."""
    cells = [set(itertools.product(range(*rows), range(*cols))) for rows, cols in writes]
    return [{x for x in range(y) if cells[x] & cells[y]} for y in range(len(writes))]


def edges_of_writes(writes):
    """The steps of GEMMs into these parts of one tile, and the steps that each waits for."""

    def program():
        for rows, cols in writes:
            a = yield Get(block("A", 0, *rows, 0, 4))
            b = yield Get(block("B", 0, 0, 4, *cols))
            part = Block("C", 0, 0, (0, 0), *rows, *cols)
            yield Gemm(a, b, into=part)

    found = edges(Lookahead(trace(program(), None, 0, fresh=False), 1), ArenaPlan({}, 0), {})
    return [reached(found, 3 * at + 2) for at in range(len(writes))]


def test_random_gemms_into_a_tile_wait_for_all_earlier_writes_of_their_elements():
    """A part does not order writes to another part, and the whole is still needed when a part of it
    was written over."""
    ranges = list(itertools.combinations(range(5), 2))
    for seed in range(60):
        chance = random.Random(seed)
        writes = [(chance.choice(ranges), chance.choice(ranges)) for _ in range(7)]
        wanted = wholly_or_partly_before(writes)
        for at, waits in enumerate(edges_of_writes(writes)):
            assert {3 * x + 2 for x in wanted[at]} <= waits, (writes, at)
