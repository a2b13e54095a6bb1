"""Signals, lanes and kernels in virtual time agree with a slow simulator, with workers that compute
tiles one by one, and with closed forms."""

import random
from time import process_time

import pytest
from any_machines import any_signalled, slow_signalled, with_lanes
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from overlap_programs import ag_traces, rs_traces
from starting import within
from traced import of_algorithm, traced

from drbench.errors import CaseFailed, UsageError
from drbench.launch.cases.machine_models import find_machine
from drbench.model.bounds import bound_of
from drbench.model.gemm import Compute, Tiling
from drbench.model.kernel import Workers
from drbench.model.links import ARBITRATIONS
from drbench.model.machine import Collective, Link, Machine
from drbench.model.simulate import simulate
from drbench.program.problem import Problem
from drbench.program.signal_steps import Await, Push
from drbench.program.steps import Add, Gemm, Get, Kernel, Scratch
from drbench.program.trace import trace

ITEM = 4
seeds = st.integers(0, 10**6)
quick = settings(max_examples=60, deadline=None, derandomize=True)


@settings(quick, max_examples=60)
@given(seeds, st.sampled_from(sorted(ARBITRATIONS)))
@example(130, "fifo")  # Takes in one lane whose signals are seen at the same instant
def test_signals_and_lanes_are_those_of_a_slow_simulator(seed, rule):
    machine, traces = with_lanes(seed, arbitration=rule), any_signalled(seed, split=True)
    p = len(traces)
    orders = [range(p), range(p)[::-1], random.Random(seed).sample(range(p), p)]
    expected = slow_signalled(machine, traces, orders)
    # transfers asked for at the same instant have no oldest: the tie must not matter
    assume(max(expected) - min(expected) < 1e-9)
    found = simulate(traces, machine, prefetch="all").time_s
    assert found == pytest.approx(expected[0])
    assert max(bound_of([each], machine).seconds for each in traces) <= found * (1 + 1e-9)


@quick
@given(st.lists(st.tuples(st.integers(1, 40), st.floats(0, 9)), min_size=1, max_size=9),
       st.integers(1, 7), st.floats(0.1, 3))  # fmt: skip
def test_tiles_are_dealt_in_order_to_workers_that_wait_for_operands(parts, units, tile_s):
    """Worker by worker, tile by tile."""
    workers, free = Workers(Tiling(1, 1, 1, tile_s, units), 1.0), [1.0] * units
    last, waited = 0.0, 0.0
    for tiles, arrives in parts:
        waited = max(waited + arrives / 9, last)  # operands, and the last tile of the part before
        starts = []
        for _ in range(tiles):
            at = min(range(units), key=free.__getitem__)
            starts.append(max(free[at], waited))
            free[at] = starts[-1] + tile_s
        last = max(starts)
        found = workers.assign(tiles, waited)
        assert found == pytest.approx((last, last + tile_s))


@quick
@given(seeds)
def test_a_kernel_whose_operands_are_local_takes_as_long_as_the_whole_gemm(seed):
    """However it is cut: FLUX's argument. Separate calls for the parts are no faster."""
    rng = random.Random(seed)
    compute = Compute(1e12, tiles=((16, 16),), units=rng.randint(1, 9), launch_s=1e-6,
                      memory_bytes_per_s=rng.choice([1e9, 1e12]), splits=(1, 2))  # fmt: skip
    m, n, k = (16 * rng.randint(1, 12) for _ in "mnk")
    rows = [16 * x for x in sorted(rng.sample(range(1, m // 16), rng.randint(0, m // 16 - 1)))]
    problem = Problem(m, n, k, 1)

    def program(kernel):
        b = yield Get(problem.b.block((0, k), (0, n)))
        for row0, row1 in zip([0, *rows], [*rows, m]):
            a = yield Get(problem.a.block((row0, row1), (0, k)))
            yield Gemm(a, b, into=problem.c.block((row0, row1), (0, n)), kernel=kernel)

    def time_s(kernel):
        machine = Machine("m", compute)
        return simulate([trace(program(kernel), problem, 0)], machine).time_s

    whole = compute.gemm_s(m, n, k, ITEM)
    assert time_s(Kernel(m, n, k)) == pytest.approx(whole)
    assert time_s(None) >= whole * (1 - 1e-9)


def test_a_kernel_with_parts_has_tiles_of_an_allowed_shape_with_their_own_efficiency():
    """Of 2 waves of 64x64 tiles instead of one of 128x128; one GEMM keeps the fastest."""
    how = {"tiles": ((128, 128), (64, 64)), "units": 2, "edge": 16}
    free, bound = Compute(1e12, **how), Compute(1e12, **how, fused_tiles=((64, 64),))
    assert free.tiling(128, 256, 1000)[:3] == (128, 128, 1)
    assert bound.tiling(128, 256, 1000) == free.tiling(128, 256, 1000)
    tiling, m, n, k = bound.tiling(128, 256, 1000, parts={(128, 256): 1}), 64, 64, 1000
    assert tiling[:3] == (m, n, 1)
    slower = (1 + 16 * (1 / m + 1 / n)) / (1 + 16 * (2 / 128))
    assert tiling.tile_s == pytest.approx(2 * m * n * k * slower / (1e12 / 2))
    assert bound.gemm_s(128, 256, 1000) == free.gemm_s(128, 256, 1000)
    with pytest.raises(UsageError, match="fused_tiles"):
        Compute(1e12, **how, fused_tiles=((32, 64),))


def test_pulls_are_slower_by_the_factor_of_the_machine():
    problem = Problem(4, 4, 4, 2, "tiles:4x4", "tiles:4x4", "tiles:4x4")

    def program(rank):
        if rank == 1:
            yield Get(problem.a.tile_block((0, 0)))

    machine = Machine("m", Compute(1.0), (Link("wire", 64.0),), pull_efficiency=0.5)
    assert simulate(traced(program, problem), machine).time_s == 2.0


def sums(side, units):
    """An addition of 192 bytes during a GEMM, or after it."""
    problem = Problem(4, 4, 4, 1)

    def program(rank):
        a = yield Get(problem.a.tile_block((0, 0)))
        b = yield Get(problem.b.tile_block((0, 0)))
        here, there = (yield Scratch((4, 4))), problem.c.tile_block((0, 0))
        x = yield Gemm(a, b, into=here, kernel=units and Kernel(4, 4, 4, units))
        yield Add(here if not side else a, there, concurrent=side)
        yield Add(x, there)

    return traced(program, problem)


def test_an_addition_during_a_gemm_takes_its_workers_unless_the_gemm_leaves_some():
    """T7's question: a reduction on few multiprocessors."""
    compute = Compute(128.0, units=4, tiles=((4, 4),), unit_bytes_per_s=48.0)
    machine = Machine("m", compute, side_units=1)
    # 16 x 8 flops at a quarter of 128 a second: one tile, 4 s; the sum: 192 bytes at 48, 4 s
    assert simulate(sums(True, 3), machine).time_s == pytest.approx(4.0)
    assert simulate(sums(True, None), machine).time_s == pytest.approx(4.0 + 4.0 * 1 / 4)
    assert simulate(sums(True, 4), machine).time_s == pytest.approx(4.0 + 4.0 * 1 / 4)


def test_an_addition_after_the_gemms_has_all_workers():
    problem = Problem(4, 4, 4, 1)

    def program(rank):
        a = yield Get(problem.a.tile_block((0, 0)))
        yield Add(a, problem.c.tile_block((0, 0)), concurrent=True)

    compute = Compute(1.0, units=4, memory_bytes_per_s=96.0, unit_bytes_per_s=48.0)
    machine = Machine("m", compute, side_units=1)
    assert simulate(traced(program, problem), machine).time_s == 2.0


def test_faster_links_on_the_way_are_free_again_before_the_transfer_ends():
    """A card at half the rate of the port: the port is free for another transfer half the time."""
    links = Link("port", 32.0, within=2), Link("card", 16.0, through=("port",))
    problem = Problem(4, 4, 4, 4, "tiles:4x4", "tiles:4x4", "tiles:4x4")

    machine = Machine("m", Compute(1.0), links, arbitration="fifo")

    def time_s(*ranks):  # 1 is the neighbour of 0, and 2 on the other node
        def program(rank):
            if rank in ranks:
                yield Get(problem.a.tile_block((0, 0)))

        return simulate(traced(program, problem), machine).time_s

    assert (time_s(1), time_s(2)) == (2.0, 4.0)
    assert time_s(1, 2) == 6.0  # the neighbour asks first, and the card waits for the port
    assert machine.shares(links[1]) == (1.0, 1.0, 0.5, 0.5)


def test_ranks_that_wait_for_each_other_are_named():
    problem = Problem(4, 4, 4, 2)

    def program(rank):
        b = yield Await(1 - rank, "x", (4, 4))
        yield Push((yield Gemm(b, b)), 1 - rank, "x")

    with pytest.raises(CaseFailed, match="wait for each other: rank 0 .* waits for rank 1"):
        simulate(traced(program, problem), Machine("m", Compute(1.0), (Link("wire", 1.0),)))


def test_collectives_across_nodes_have_the_bandwidth_of_the_cards_of_their_ranks():
    times, traces = [], of_algorithm("collective", 8, 8, 8, 4, mesh="1x4")
    for node, shared in ((0, "device"), (4, "device"), (2, "device"), (2, "node")):
        gather = Collective(
            bandwidth_bytes_per_s=64.0, node=node, across_bandwidth_bytes_per_s=16.0
        )
        wire = Link("w", 1e9, shared=shared, node=2)
        machine = Machine("m", Compute(1e30), (wire,), collectives={"allgather": gather})
        times.append(simulate(traces, machine).time_s)
    assert times[0] == times[1]
    assert times[2:] == pytest.approx([2 * times[0], 4 * times[0]])  # two cards a node, one


@pytest.mark.parametrize("traces_of, mode", [(ag_traces, "push"), (rs_traces, "write")])
def test_a_case_of_eight_gpus_in_tiles_of_128_rows_is_simulated_in_a_fifth_of_a_second(
    traces_of, mode
):
    machine = find_machine("h800")
    traces = traces_of(8192, 28672, 8192, 8, mode, 128, dtype="bfloat16")
    taken = []
    for _ in range(3):
        start = process_time()
        simulate(traces, machine, prefetch="all")
        taken.append(process_time() - start)
    assert within(min(taken), 0.2)


def pushed_to_all(flagged):
    """Rank 0 of 4 sends 64 bytes to each other rank of its node of 3, and to the next node."""

    def program(rank):
        if rank:
            yield Await(0, "x", (4, 4), flagged)
            return
        x = yield Scratch((4, 4))
        for other in (3, 1, 2):
            yield Push(x, other, "x", flagged, other == 2)

    return program


def test_flags_in_words_double_the_bytes_and_save_the_signal_and_the_queue():
    """One queue: 4 s to the next node; 1 s to a neighbour, a signal of 3 s, 1 s to the other. With
    flags all begin at once, but two share the way out of rank 0."""
    links = (
        Link("near", 64.0, latency_s=0.25, within=3),
        Link("far", 16.0, latency_s=0.5, lane="nic"),
    )
    machine = Machine("m", Compute(1.0), links, arbitration="fifo", copy_streams=1, signal_s=3.0)
    seconds = lambda flagged: simulate(traced(pushed_to_all(flagged), Problem(4, 4, 4, 4)), machine)
    assert seconds(False).time_s == 1 + 3 + 1 + 0.25 + 3  # the last neighbour
    assert seconds(True).time_s == 8 + 0.5  # the next node
    assert seconds(True).counters["put_bytes"] == 3 * 64  # values alone


def test_a_switch_copies_a_flagged_value_that_leaves_its_rank_once():
    near = Link("near", 64.0, latency_s=9.0, multicast_s=0.25, within=3)
    for far_bytes_per_s, expected_s in ((64.0, 2 + 0.5), (1e9, 2 + 0.25)):
        links = near, Link("far", far_bytes_per_s, latency_s=0.5 if far_bytes_per_s < 1e9 else 0)
        machine = Machine("m", Compute(1.0), links, arbitration="fifo")
        traces = traced(pushed_to_all(True), Problem(4, 4, 4, 4))
        assert simulate(traces, machine).time_s == pytest.approx(expected_s)
        assert bound_of(traces, machine).links_s == pytest.approx(2.0)
    with pytest.raises(UsageError, match="multicast_s"):
        Link("xgmi", 50e9, shared="pair", multicast_s=1e-6)


def test_both_ends_of_a_value_are_flagged_or_none():
    def program(rank):
        if rank:
            yield Await(0, "x", (4, 4), True)
        else:
            yield Push((yield Scratch((4, 4))), 1, "x")

    machine = Machine("m", Compute(1.0), (Link("w", 1.0),))
    with pytest.raises(CaseFailed, match="never received"):
        simulate(traced(program, Problem(4, 4, 4, 2)), machine)
