"""GEMMs and accumulates of a GPU that run at the same time (``-o max_gemms``, ``max_accumulates``),
against a scheduler that gives tiles to workers one by one, and against a measurement."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import traces_of
from traced import traced

from drbench.errors import UsageError
from drbench.launch.cases.case import Case
from drbench.launch.cases.machine_models import find_machine
from drbench.launch.models.predict import predict
from drbench.model.gemm import Compute
from drbench.model.machine import Link, Machine
from drbench.model.rank import Concurrency
from drbench.model.simulate import simulate
from drbench.program.problem import Problem
from drbench.program.steps import Accumulate, Block, Gemm, Get, Kernel, Scratch

#: Four workers, a FLOP a second each, and tiles of one element.
GPU = Machine("gpu", Compute(4.0, units=4), (Link("wire", 4.0, shared="pair"),))
quick = settings(max_examples=80, deadline=None, derandomize=True)


def _block(matrix, owner, tile, rows, cols):
    first = 16 * tile if matrix == "C" else 0
    return Block(matrix, owner, 0, (0, tile), 0, rows, first, first + cols)


def _gemms(sizes, same=False):
    """A GEMM of one row of ``tiles`` elements and this k for each (tiles, k), each into a block of
    its own, or all into one."""

    def program(rank):
        for number, (tiles, k) in enumerate(sizes):
            a = yield Get(_block("A", 0, number, 1, k))
            b = yield Get(_block("B", 0, number, k, tiles))
            yield Gemm(a, b, into=_block("C", 0, 0 if same else number, 1, tiles))

    return traced(program, Problem(4, 4, 4, 1))


def _expected(sizes, most):
    """The end of GEMMs of which each begins once all tiles of those before have begun, and fewer
    than ``most`` of them are left."""
    free, ends, began = [0.0] * 4, [], 0.0
    for tiles, k in sizes:
        at = max([began, *sorted(ends)[-most:][:1]] if len(ends) >= most else [began])
        starts = []
        for _ in range(tiles):
            worker = free.index(min(free))
            starts.append(max(at, free[worker]))
            free[worker] = starts[-1] + 2 * k
        began = max(starts)
        ends.append(began + 2 * k)
    return max(ends)


@quick
@given(
    st.lists(st.tuples(st.integers(1, 11), st.integers(1, 6)), min_size=1, max_size=6),
    st.integers(1, 4),
)
def test_tiles_of_concurrent_gemms_go_to_the_first_free_worker_in_program_order(sizes, most):
    time_s = simulate(_gemms(sizes), GPU, most=Concurrency(most)).time_s
    assert time_s == pytest.approx(_expected(sizes, most))


def test_gemms_into_one_block_run_one_after_another():
    sizes = [(2, 3)] * 3
    assert simulate(_gemms(sizes), GPU, most=Concurrency(3)).time_s == pytest.approx(12.0)
    assert simulate(_gemms(sizes, same=True), GPU, most=Concurrency(3)).time_s == 3 * 6.0


def test_concurrent_gemms_share_the_memory():
    """Two GEMMs on a quarter of the workers each, 12 elements of 4 bytes: 48 s each at a byte a
    second, longer than the 2 s of their FLOPs."""
    slow = Machine("slow", Compute(4.0, units=4, memory_bytes_per_s=1.0, result_bytes=0))
    traces = _gemms([(1, 6)] * 2)
    assert simulate(traces, slow, most=Concurrency(2)).time_s == pytest.approx(96.0)


def test_all_workers_together_are_no_faster_than_the_sustained_rate():
    """A worker that waits for no other is twice as fast: 6 s for half of the workers."""
    bursts = Machine("bursts", Compute(4.0, units=4, burst=2.0))
    traces = _gemms([(2, 6)] * 2)
    assert simulate(traces, bursts).time_s == pytest.approx(12.0)
    assert simulate(traces, bursts, most=Concurrency(2)).time_s == pytest.approx(12.0)


def test_cores_compute_one_gemm_at_a_time():
    core = replace(GPU, adds_on_core=True)
    assert simulate(_gemms([(2, 3)] * 2), core, most=Concurrency(2)).time_s == pytest.approx(12.0)


def test_a_gemm_waits_for_the_gemm_that_makes_its_operand():
    def program(rank):
        a, b = (yield Get(_block("A", 0, 0, 1, 1))), (yield Get(_block("B", 0, 0, 1, 1)))
        yield Gemm((yield Gemm(a, b)), b, into=_block("C", 0, 0, 1, 1))

    traces = traced(program, Problem(1, 1, 1, 1))
    assert simulate(traces, GPU, most=Concurrency(2)).time_s == pytest.approx(4.0)


def _adding(ranks=4, cols=4):
    """Rank 0 makes a row for every other rank, one GEMM each, and adds it there."""

    def program(rank):
        for other in range(1, ranks if rank == 0 else 0):
            a = yield Get(_block("A", 0, other, 1, 1))
            b = yield Get(_block("B", 0, other, 1, cols))
            yield Accumulate((yield Gemm(a, b)), _block("C", other, other, 1, cols))

    return traced(program, Problem(4, 4, 4, ranks))


@pytest.mark.parametrize("most, end_s", [(1, 2 + 3 * 40), (2, 2 + 80), (3, 6 + 40), (9, 6 + 40)])
def test_at_most_so_many_accumulates_run_at_the_same_time(most, end_s):
    """GEMMs of 2 s, one after another, and accumulates of 40 s to as many ranks."""
    machine = Machine("gpu", GPU.compute, (Link("wire", 0.4, shared="pair"),))
    found = simulate(_adding(), machine, most=Concurrency(1, most))
    assert found.time_s == pytest.approx(end_s)


def test_an_accumulate_follows_the_tiles_of_gemms_before_it_and_delays_those_after_it():
    """The next GEMM is ready when the accumulate is, and comes second; with a further one in
    progress the accumulate waits until its last tile has begun."""
    link = Link("wire", 1.6)
    machine = replace(GPU, links=(link,), accumulates_in_order=True)
    alone = simulate(_adding(), machine, most=Concurrency(blocks=4)).time_s
    assert alone == pytest.approx(3 * (2 + 10))
    fewer = simulate(_adding(), machine, most=Concurrency(blocks=3)).time_s
    assert fewer == simulate(_adding(), replace(machine, accumulates_in_order=False)).time_s < 34
    # 0 to 2 the first GEMM; the second, of 4 workers too, from 2 to 4, the first row from 2 to 12
    # next to it; then the third, whose row waits for the second one
    assert simulate(_adding(), machine, most=Concurrency(2, blocks=4)).time_s == pytest.approx(34.0)


def test_tiles_that_have_begun_are_not_slowed_by_an_accumulate_in_order():
    """Of four tiles of 100 s the last begins at 2 s, when the row for the other rank is made."""

    def program(rank):
        if rank == 0:
            row = yield Gemm(
                (yield Get(_block("A", 0, 0, 1, 1))), (yield Get(_block("B", 0, 0, 1, 1)))
            )
            a, b = (yield Get(_block("A", 0, 1, 1, 50))), (yield Get(_block("B", 0, 1, 50, 4)))
            yield Gemm(a, b, into=_block("C", 0, 0, 1, 4))
            yield Accumulate(row, _block("C", 1, 1, 1, 1))

    link = Link("wire", 0.4)
    machine = replace(GPU, links=(link,), accumulates_in_order=True, accumulate_slowdown=0.5)
    traces = traced(program, Problem(4, 4, 64, 2))
    assert simulate(traces, machine, most=Concurrency(2, blocks=4)).time_s == pytest.approx(102.0)


def test_a_gemm_beside_accumulates_of_all_units_takes_as_long_as_measured_on_an_h100():
    """8192 cubed in float32: of 16 waves the last one hides the accumulates."""
    report = json.loads(Path("results/measured/h100-80gb/gpu_check.json").read_text())
    measured = next(
        line
        for stage in report["stages"]
        for line in stage.get("lines", ())
        if (line.get("kind"), line.get("what")) == ("overlap", "accumulates")
        and (line["arithmetic"], line["blocks"]) == ("fp32", None)
    )
    n, gemm_s = 8192, measured["product_alone_ms"] / 1e3

    def program(rank):
        if rank == 0:
            a, b = (yield Get(_block("A", 0, 0, n, n))), (yield Get(_block("B", 0, 0, n, n)))
            small = yield Gemm(
                (yield Get(_block("A", 0, 1, 1, 1))), (yield Get(_block("B", 0, 1, 1, 1)))
            )
            yield Gemm(a, b, into=_block("C", 0, 0, n, n))
            yield Accumulate(small, _block("C", 1, 1, 1, 1))

    tiled = Compute(1.0, units=132, tiles=((256, 128),))
    compute = Compute(tiled.gemm_s(n, n, n) / gemm_s, units=132, tiles=((256, 128),))
    link = Link("wire", 4 / (measured["transfers_ms"] / 1e3))
    machine = Machine("h100", compute, (link,), accumulates_in_order=True)
    traces = traced(program, Problem(n, n, n, 2))
    both = simulate(traces, machine, most=Concurrency(2, blocks=132)).time_s
    assert both == pytest.approx(measured["both_ms"] / 1e3, rel=0.01)


@pytest.mark.parametrize("layout", ["row", "column", "block"])
def test_accumulates_in_order_change_nothing_where_there_are_none(layout):
    traces = traces_of(Problem(64, 96, 64, 4, layout, layout, layout), stationary="C")
    launching = replace(GPU, compute=Compute(4.0, units=4, launch_s=50.0))
    ordered = replace(launching, accumulates_in_order=True)
    time_s = simulate(traces, ordered, most=Concurrency(blocks=4)).time_s
    assert time_s == pytest.approx(simulate(traces, launching).time_s)


def test_without_look_ahead_one_gemm_runs_at_a_time():
    """As on a device, where everything is on one stream then."""
    layouts = {"a": "row", "b": "column", "c": "row", "options": {"stationary": "C"}}
    case = Case(1024, 3072, 768, **layouts, prefetch=0)
    machine = find_machine("h100x8")
    one, two = (predict(replace(case, max_gemms=most), machine, 4).best_s for most in (1, 2))
    assert one == two
    ahead = [replace(case, max_gemms=most, prefetch=1) for most in (1, 2)]
    one, two = (predict(other, machine, 4).best_s for other in ahead)
    assert two < one


@pytest.mark.parametrize("name", ["lumic", "tpuv4-2x2"])
@pytest.mark.parametrize("field", ["max_gemms", "max_accumulates", "accumulate_blocks"])
def test_machines_without_kernels_refuse_to_run_several(name, field):
    with pytest.raises(UsageError, match=f"{field} is for GPUs"):
        predict(Case(64, 64, 64, **{field: 2}), find_machine(name), 4)


def test_accumulates_of_a_fused_kernel_do_not_delay_its_other_parts():
    """Two parts of 4 s on all workers: the sum of the first is added during the second."""

    def program(rank):
        for part in range(2 if rank == 0 else 0):
            a, b = (yield Get(_block("A", 0, 0, 4, 8))), (yield Get(_block("B", 0, 0, 8, 1)))
            value = yield Gemm(a, b, kernel=Kernel(8, 1, 8, 4))
            yield Accumulate(value, _block("C", 1, part, 4, 1))

    machine = replace(GPU, links=(Link("wire", 4.0),), accumulates_in_order=True)
    traces = traced(program, Problem(8, 8, 8, 2))
    time_s = simulate(traces, machine, most=Concurrency(blocks=4)).time_s
    assert time_s == pytest.approx(2 * 16.0 + 4.0)


def test_a_gemm_that_fills_scratch_ends_before_one_that_reads_it():
    def program(rank):
        a, b = (yield Get(_block("A", 0, 0, 1, 1))), (yield Get(_block("B", 0, 0, 1, 1)))
        here = yield Scratch((1, 1))
        yield Gemm(a, b, into=here)
        yield Gemm(here, b, into=_block("C", 0, 0, 1, 1))

    traces = traced(program, Problem(1, 1, 1, 1))
    assert simulate(traces, GPU, most=Concurrency(2)).time_s == pytest.approx(4.0)
