"""Predictions of bfloat16 operands with a float32 C: each matrix moves elements of its own size."""

from collections import Counter
from dataclasses import replace

import pytest

import drbench
from drbench.algorithms import algorithms, get_algorithm
from drbench.errors import UnsupportedError
from drbench.launch.cases.case import Case
from drbench.launch.models.predict import predict
from drbench.launch.tune.counts import count_case
from drbench.model.bounds import bound_of, carried_by_links
from drbench.model.costs import Costs
from drbench.model.gemm import Compute
from drbench.model.machine import Link, Machine
from drbench.model.simulate import simulate
from drbench.plan.explain import transfers
from drbench.program.problem import Problem
from drbench.program.steps import Accumulate, Gemm

MIXED, NARROW = "bfloat16:float32", "bfloat16"
#: GEMMs of 64 FLOPs a second, transfers of one byte a second.
TOY = Machine("toy", Compute(64.0), (Link("wire", 1.0),), dtype="bfloat16")
#: Layouts of A, B and C, the stationary matrix, and by hand: elements of A, B and C that two ranks
#: move, of 8x8 matrices.
BY_HAND = [
    (("column", "column", "column"), "C", 2 * 8 * 4, 0, 0),  # the other half of A
    (("row", "row", "row"), "A", 0, 2 * 4 * 8, 0),  # the other half of B
    (("column", "row", "row"), "A", 0, 0, 2 * 4 * 8),  # a partial sum of the other half of C
    (("column", "row", "column"), "B", 0, 0, 2 * 8 * 4),
    (("column", "row", "row"), "C", 2 * 4 * 4, 2 * 4 * 8, 0),
]


def predicted(layouts, stationary, dtype, machine=TOY):
    options = {"stationary": stationary, "chunk": "none"}
    return predict(Case(8, 8, 8, *layouts, dtype=dtype, options=options), machine, 2)


@pytest.mark.parametrize("layouts, stationary, a, b, c", BY_HAND)
def test_operands_move_two_bytes_an_element_and_partial_sums_four(layouts, stationary, a, b, c):
    for dtype, of_c in ((MIXED, 4), (NARROW, 2)):
        record = predicted(layouts, stationary, dtype)
        assert (record.status, record.dtype) == ("ok", dtype)
        moved = record.get_bytes or 0, record.accumulate_bytes or 0
        assert moved == (2 * (a + b), of_c * c)
    counts = count_case(Case(8, 8, 8, *layouts, dtype=MIXED, options={"stationary": stationary}), 2)
    assert counts.loads.moved_bytes == 2 * (a + b) + 4 * c
    # three matrices of 64 elements on two ranks, and the half of what both move
    assert counts.needed == (64 * (2 + 2 + 4) + 2 * (a + b) + 4 * c) // 2


def test_a_partial_sum_takes_twice_as_long_and_as_much_memory_as_in_bfloat16_and_gemms_as_long():
    """Two GEMMs take 2·4·8·4/64 = 4 seconds each; then the result of the second, 32 elements that
    are another rank's, is sent. A rank stores half of each matrix, and makes two 4x8 partial sums:
    2·32·3 + 2·64 = 320 bytes in bfloat16, 2·32·2 + 4·32 + 4·64 = 512 with a float32 C."""
    small = replace(TOY, memory_bytes=400)
    for dtype, of_c, status in ((MIXED, 4, "out_of_memory"), (NARROW, 2, "ok")):
        record = predicted(("column", "row", "row"), "A", dtype)
        assert record.best_s == pytest.approx(8 + 32 * of_c)
        assert (record.phase_gemm_s, record.local_gemm_s) == (8, 8)
        assert predicted(("column", "row", "row"), "A", dtype, small).status == status
        whole = predicted(("column",) * 3, "C", dtype).best_s
        assert whole == pytest.approx(4 * 8 * 2 + 4)


def test_the_rate_of_a_gemm_is_that_of_its_operands_and_a_partial_sum_has_the_size_of_c():
    problem = Problem(8, 8, 8, 2, "column", "row", "row", dtype=MIXED)
    slow = replace(TOY, compute=Compute(64.0, memory_bytes_per_s=1.0))
    costs = Costs.of(slow, problem)
    for step in get_algorithm("universal").trace(problem, 0, stationary="A", chunk="none").steps:
        if isinstance(step, (Gemm, Accumulate)):
            assert costs.item(step) == (2 if type(step) is Gemm else 4)
        if type(step) is Gemm:
            m, n, k = step.extents
            assert costs.compute_s(step) == 2 * (m * k + k * n + 2 * m * n)


@pytest.mark.parametrize("dtype, sizes", [(MIXED, (2, 2, 4)), (NARROW, (2, 2, 2))])
def test_memory_and_transfers_of_every_algorithm_are_those_of_its_steps(dtype, sizes):
    """Simulator, bounds and loads of links find the size of a step's elements in one way, and the
    explainer in another."""
    seen = 0
    for name in algorithms():
        algorithm = get_algorithm(name)
        try:
            problem = replace(algorithm.problem(48, 32, 40, 4), dtype=dtype)
            options = algorithm.resolve(problem)
            traces = [algorithm.trace(problem, rank, **options) for rank in range(4)]
        except UnsupportedError:
            continue
        found = simulate(traces, TOY, prefetch=1)
        listed = [each for trace in traces for each in transfers(trace)]
        assert sum(found.counters.values()) == sum(each.nbytes for each in listed), name
        assert bound_of(traces, TOY).seconds <= found.time_s * (1 + 1e-9), name
        if not any(trace.groups for trace in traces):  # each transfer is one message
            into = Counter()  # bytes into each rank over the links
            for each in listed:
                into[f"into {each.target}"] += each.nbytes
            carried = {each.where: each.nbytes for each in carried_by_links(traces, TOY)}
            assert into.items() <= carried.items(), name
        seen += 1
    assert seen > 10
    a, b, c = (4 * 8 * 8 * size for size in sizes)
    problem = Problem(16, 16, 16, 4, dtype=dtype)
    assert sum(sum(problem.tile_bytes(rank).values()) for rank in range(4)) == a + b + c


def test_the_functions_of_the_library_take_both_types():
    case = drbench.Case(1024, 1024, 4096, dtype=MIXED, preset="outer", options={"stationary": "A"})
    mixed, narrow = (
        drbench.simulate(replace(case, dtype=dtype), "h100x8measured", ranks=2)
        for dtype in (MIXED, NARROW)
    )
    assert mixed.record.accumulate_bytes == 2 * narrow.record.accumulate_bytes > 0
    assert mixed.record.local_gemm_s == narrow.record.local_gemm_s
    assert "--dtype bfloat16:float32 --backend cupy" in mixed.command
