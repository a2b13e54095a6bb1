"""Group steps on the written matrix: Fences order them, and so do computes on the same elements, on
the host and on a device."""

import pytest

from drbench.algorithms.lowering.graph import Graph
from drbench.plan.edges import edges
from drbench.plan.schedule import ArenaPlan, Lookahead, Scheduler
from drbench.program.group_steps import Broadcast, Fragment, Reduce, ReduceScatter
from drbench.program.problem import Problem
from drbench.program.steps import Add, Block, Copy, Fence, Gemm, Get, Group, ReplicaGet, Zero
from drbench.program.trace import trace

ROW = Group("row", (0, 1), 0)
A = Block("A", 0, 0, (0, 0), 0, 4, 0, 4)
B = Block("B", 0, 0, (0, 0), 0, 4, 0, 4)
C = Block("C", 0, 0, (0, 0), 0, 4, 0, 4)
LOW = Block("C", 0, 0, (0, 0), 2, 4, 0, 4)
HIGH = Block("C", 0, 0, (0, 0), 0, 2, 0, 4)
OTHER = Block("C", 1, 0, (0, 1), 0, 4, 4, 8)


def traced(program, problem=None):
    return trace(program(), problem, 0, fresh=problem is not None)


def waits(found, depth=1):
    """For each step the earlier ones without which it does not start, all others being finished."""
    lookahead, needed = Lookahead(found, depth), []
    for step in found.steps:
        late = []
        for other in found.steps[: step.index]:
            schedule, started, moved = Scheduler(lookahead), set(), True
            while moved:
                moved = False
                for t in [*schedule.take(), schedule.next_compute()]:
                    if t is not None and t not in started:
                        started.add(t)
                        if t != other.index:
                            schedule.finish(t)
                        moved = True
            if step.index not in started:
                late.append(other.index)
        needed.append(late)
    return needed


def places(found, *kinds):
    return [next(s.index for s in found.steps if type(s) is kind) for kind in kinds]


def reduced_then_fenced(step_into_c):
    def program():
        gemm = yield Gemm((yield Get(A)), (yield Get(B)))
        yield step_into_c(gemm)
        yield Fence()
        pulled = yield ReplicaGet(Block("C", 2, 1, (0, 0), 0, 4, 0, 4))
        yield Add(pulled, into=C)

    return program


INTO_C = {
    "reduce, at the root": lambda token: Reduce(token, C, ROW),
    "reduce, elsewhere": lambda token: Reduce(token, OTHER, ROW),
    "reduce-scatter": lambda token: ReduceScatter(token, [HIGH, LOW], ROW, 0),
}


@pytest.mark.parametrize("depth", [0, 1, 4])
@pytest.mark.parametrize("kind", INTO_C)
def test_a_fence_waits_for_group_steps_on_the_result_and_later_steps_for_the_fence(kind, depth):
    found = traced(reduced_then_fenced(INTO_C[kind]))
    needed, group_step = waits(found, depth), 3
    fence, get, add = places(found, Fence, ReplicaGet, Add)
    assert group_step in needed[fence]
    assert group_step in needed[get] and fence in needed[get] and fence in needed[add]


@pytest.mark.parametrize("depth", [0, 1, 4])
def test_group_steps_on_the_result_wait_for_the_fence_before_them_and_others_do_not(depth):
    for block, waiting in ((C, True), (A, False)):

        def program(block=block):
            yield Gemm((yield Get(A)), (yield Get(B)), into=C)
            yield Fence()
            yield Broadcast(block, ROW)

        found = traced(program)
        fence, broadcast = places(found, Fence, Broadcast)
        needed = waits(found, depth)[broadcast]
        assert fence in needed if waiting else depth == 0 or needed == []


def test_the_computation_graph_orders_group_steps_and_fences():
    nodes = Graph(traced(reduced_then_fenced(INTO_C["reduce, at the root"]))).nodes
    node = {type(each.step): number for number, each in enumerate(nodes)}
    assert node[Reduce] in nodes[node[Fence]].needs
    assert node[Fence] in nodes[node[ReplicaGet]].needs


def orders(first, second):
    """A program of two steps on C, one of them a group step; their places."""

    def program():
        token = yield Gemm((yield Get(A)), (yield Get(B)))
        yield first(token)
        yield second(token)

    return traced(program)


def gemm(block):
    return lambda token: Gemm(token, token, into=block)


HAZARDS = {
    "a GEMM into a sum": (lambda token: Reduce(token, C, ROW), gemm(C)),
    "a GEMM into part of a sum": (lambda token: Reduce(token, C, ROW), gemm(LOW)),
    "a GEMM into a scattered sum": (
        lambda token: ReduceScatter(
            token, [Fragment(C, rows=((0, 1), (2, 3))), Fragment(OTHER, rows=((0, 2),))], ROW, 0
        ),
        gemm(LOW),
    ),
    "a copy over a sum": (lambda token: Reduce(token, C, ROW), lambda token: Copy(token, into=C)),
    "a sum over a GEMM": (gemm(LOW), lambda token: Reduce(token, C, ROW)),
    "a sum over zeros": (lambda token: Zero(C), lambda token: Reduce(token, LOW, ROW)),
    "a broadcast of a GEMM": (gemm(C), lambda token: Broadcast(C, ROW)),
    "a GEMM into what is broadcast": (lambda token: Broadcast(LOW, ROW), gemm(C)),
    "a broadcast of a sum": (
        lambda token: Reduce(token, C, ROW),
        lambda token: Broadcast(C, Group("column", (0, 2), 0)),
    ),
}


@pytest.mark.parametrize("depth", [1, 4])
@pytest.mark.parametrize("name", HAZARDS)
def test_computes_and_group_steps_on_the_same_elements_follow_each_other(name, depth):
    found = orders(*HAZARDS[name])
    assert 3 in waits(found, depth)[4]


@pytest.mark.parametrize("name", HAZARDS)
def test_on_a_device_they_have_an_edge(name):
    found = orders(*HAZARDS[name])
    assert 3 in edges(Lookahead(found, 4), ArenaPlan({}, 0), {})[4]


FREE = {
    "other elements": (lambda token: Reduce(token, HIGH, ROW), gemm(LOW)),
    "the gap of a fragment": (
        lambda token: ReduceScatter(
            token, [Fragment(C, rows=((0, 1), (3, 4))), Fragment(OTHER, rows=((0, 2),))], ROW, 0
        ),
        gemm(Block("C", 0, 0, (0, 0), 1, 3, 0, 4)),
    ),
    "another rank's tile": (lambda token: Reduce(token, OTHER, ROW), gemm(C)),
    "an operand": (lambda token: Broadcast(A, ROW), gemm(C)),
}


@pytest.mark.parametrize("name", FREE)
def test_on_different_elements_they_do_not(name):
    found = orders(*FREE[name])
    assert 3 not in waits(found, 4)[4]
    assert 3 not in edges(Lookahead(found, 4), ArenaPlan({}, 0), {})[4]


def test_a_sum_waits_for_the_zeros_that_the_trace_puts_first():
    problem = Problem(4, 4, 4, 1)

    def program():
        token = yield Gemm((yield Get(problem.a.tile_block((0, 0)))), (yield Get(B)))
        yield Reduce(token, problem.c.block((0, 2), (0, 4)), Group("row", (0,), 0))

    found = traced(program, problem)
    zero, reduce = places(found, Zero, Reduce)
    assert zero in waits(found, 4)[reduce]
