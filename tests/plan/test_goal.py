"""Programs as GOAL: what is written is read back, every byte of the plan is sent and received once,
nobody waits for ever, and what a rank waits for is what its program waits for."""

import json
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from algorithms import get_algorithm
from drbench.errors import UnsupportedError
from drbench.plan.goal import goal_ops, read_goal, write_goal
from drbench.plan.loads import loads
from drbench.program.problem import Problem
from drbench.program.steps import Fence
from launch.commands.cli import main

KINDS = st.sampled_from(["row", "column", "block", "row/c2", "column/c2"])


def traced(ranks, a, b, c, stationary):
    problem = Problem(24, 20, 28, ranks, a=a, b=b, c=c)
    program = get_algorithm("universal")
    return [program.trace(problem, rank, stationary=stationary) for rank in range(ranks)]


def replayed(ops):
    """Seconds are nothing: an operation ends when all before it have, a receive when its send has
    too; the order in which they end, or an error if some never do."""
    ended, order, sent = set(), [], set()
    left = [(rank, label) for rank, its in enumerate(ops) for label in range(len(its))]
    while left:
        before = len(left)
        for rank, label in list(left):
            op = ops[rank][label]
            ready = all((rank, each) in ended for each in op.after)
            if ready and (op.kind != "recv" or (op.peer, rank, op.tag, op.size) in sent):
                if op.kind == "send":
                    sent.add((rank, op.peer, op.tag, op.size))
                ended.add((rank, label))
                order.append((rank, label))
                left.remove((rank, label))
        assert len(left) < before, f"{len(left)} operations wait for ever"
    return order


@settings(max_examples=25, deadline=None)
@given(st.sampled_from([2, 4]), KINDS, KINDS, KINDS, st.sampled_from("ABC"))
def test_every_byte_is_sent_and_received_once_and_nobody_waits_for_ever(ranks, a, b, c, still):
    traces = traced(ranks, a, b, c, still)
    ops = goal_ops(traces, lambda rank, step: 7 * step.computes)
    assert read_goal(write_goal(ops)) == ops
    replayed(ops)
    sends, receives = Counter(), Counter()
    for rank, its in enumerate(ops):
        for op in its:
            if op.kind == "send":
                sends[rank, op.peer, op.tag, op.size] += 1
            elif op.kind == "recv":
                receives[op.peer, rank, op.tag, op.size] += 1
    assert sends == receives and set(sends.values()) <= {1}
    fences = sum(type(step) is Fence for step in traces[0].steps)
    told = 2 * (ranks - 1) * fences  # a byte each
    assert sum(size for *_, size in sends) - told == loads(traces).moved_bytes
    products = sum(step.computes for trace in traces for step in trace.steps)
    assert sum(op.size for its in ops for op in its if op.kind == "calc") == 7 * products


def test_a_product_waits_for_what_it_takes_and_what_comes_after_a_fence_for_all_before():
    traces = traced(2, "row", "row", "row", "B")
    ops = goal_ops(traces, lambda rank, step: 7 * step.computes)
    order = replayed(ops)
    assert any(type(step) is Fence for step in traces[0].steps)
    for rank, its in enumerate(ops):
        over = [label for label, op in enumerate(its) if len(op.after) > 3]
        assert over  # the Fence
        for label in range(max(over) + 1, len(its)):
            assert order.index((rank, label)) > order.index((rank, max(over)))
    column = goal_ops(
        traced(2, "column", "column", "column", "C"), lambda rank, step: 7 * step.computes
    )
    receive = next(label for label, op in enumerate(column[0]) if op.kind == "recv")
    assert any(receive in op.after and op.size == 7 for op in column[0])


def test_collectives_and_signals_are_refused_in_one_line():
    problem = Problem(16, 16, 16, 4)
    algorithm = get_algorithm("collective")
    settled = algorithm.settle(problem, False)
    traces = [algorithm.trace(problem, rank, **settled) for rank in range(4)]
    with pytest.raises(UnsupportedError, match="one-sided programs only"):
        goal_ops(traces, lambda rank, step: 1)


def test_simulate_writes_what_it_simulated(tmp_path, capsys):
    path = tmp_path / "program.goal"
    case = "simulate -m 512 -n 512 -k 512 -p 4 --machine h100x8 --preset row --stationary C"
    assert main([*case.split(), "--json", "--goal", str(path)]) == 0
    record = json.loads(capsys.readouterr().out)
    ops = read_goal(path.read_text())
    replayed(ops)
    calc = sum(op.size for its in ops for op in its if op.kind == "calc")
    assert calc == pytest.approx(4e9 * record["phase_gemm_s"], rel=0.01)
    assert sum(op.size for its in ops for op in its if op.kind == "recv") == record["get_bytes"]
    assert main([*case.split(), "--algorithm", "collective", "--goal", str(path)]) in (2, 3)
