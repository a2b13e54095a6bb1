"""Process rows and columns in virtual time: the time of one step, bytes and times of whole
algorithms, and no deadlocks."""

import random
from dataclasses import replace
from math import inf

import pytest
from any_multiplications import any_other
from traced import of_algorithm, traced

from drbench.errors import UnsupportedError
from drbench.model.bounds import bound_of
from drbench.model.gemm import Compute
from drbench.model.machine import Collective, Link, Machine
from drbench.model.simulate import simulate
from drbench.partitions import divisors
from drbench.plan.explain import traffic
from drbench.program.group_steps import AllGather, Fragment, ReduceScatter, Shift
from drbench.program.problem import Problem
from drbench.program.steps import Add, Block, Gemm, Get, Group, Join, Part, Scratch
from drbench.transport import parse_transport

ITEM = 4
WIRE = (Link("wire", 4.0, shared="pair"),)  # an element a second
OPERATIONS = ("allgather", "reducescatter", "broadcast", "reduce", "shift")
ALL = ["cannon", "summa", "collective", "wang", "meshslice", "fsdp", "tensor_parallel_1d"]


def toy(rate=1.0, **more):
    """GEMMs of ``2·m·n·k / rate`` seconds; by default launch 2 s, synchronisation 0.5 s a step of a
    ring, an element a second; links are FIFO."""
    more = {
        "links": WIRE,
        "collectives": {name: Collective(2.0, 0.5) for name in OPERATIONS},
        "packets": 4,
        "arbitration": "fifo",
        **more,
    }
    return Machine("toy", Compute(rate), **more)


def tile(name, owner, rows, cols):
    return Block(name, owner, 0, (0, owner), 0, rows, 0, cols)


def ring(p, rank, name="row"):
    return Group(name, tuple(range(p)), rank)


def programs(program, p):
    return traced(program, Problem(p, p, p, p))


# -- one step
# -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("p", [2, 3, 5])
@pytest.mark.parametrize("kind", [AllGather, ReduceScatter])
def test_a_ring_takes_launch_and_p_minus_1_synchronised_shards_of_the_largest_size(kind, p):
    def program(rank):
        fragments = [tile("C", owner, 1, 6 - (owner == p - 1)) for owner in range(p)]
        if kind is AllGather:
            yield AllGather(fragments, ring(p, rank), axis=1)
        else:
            scratch = yield Scratch((1, 6 * p - 1))
            yield ReduceScatter(scratch, fragments, ring(p, rank), axis=1)

    found = simulate(programs(program, p), toy())
    assert found.time_s == 2 + (p - 1) * (0.5 + 6)
    assert found.counters["collective_bytes"] == (p - 1) * (6 * p - 1) * ITEM


def roll(p, by, sizes=None):
    def program(rank):
        own = yield Get(tile("A", rank, 1, sizes[rank] if sizes else 4))
        source = (rank - by) % p
        yield Shift(own, ring(p, rank), by, receives=(1, sizes[source] if sizes else 4))

    return programs(program, p)


def test_a_shift_ends_when_a_ranks_own_two_transfers_have():
    found = simulate(roll(4, 1, [2, 3, 4, 2]), toy(), timeline=True)
    ends = {event.rank: event.stop_s for event in found.timeline}
    assert (
        ends == {0: 2.5 + 2, 1: 2.5 + 3, 2: 2.5 + 4, 3: 2.5 + 4}
        and found.counters["collective_bytes"] == 11 * ITEM
    )


def test_a_shift_by_two_takes_every_link_of_a_torus_ring_twice():
    """Each message takes two links of one direction; on five chips no more than two fit on the ring
    at once."""
    once = 2.5 + 4
    on_torus = toy(torus=(1, 5))
    assert simulate(roll(5, 1), on_torus).time_s == once
    assert simulate(roll(5, 2), on_torus).time_s == 3 * once


def test_two_ways_round_the_ring_are_twice_as_fast_and_take_the_links_of_both_directions():
    def program(rank):
        yield AllGather([tile("A", owner, 1, 8) for owner in range(3)], ring(3, rank), axis=1)
        yield AllGather(
            [tile("B", owner, 1, 8) for owner in range(3)],
            Group("back", (2, 1, 0), 2 - rank),
            axis=1,
        )

    one_way = toy(collectives={"allgather": Collective(2.0, 0.5)})
    both = toy(collectives={"allgather": Collective(2.0, 0.5, both_directions=True)})
    # against each other: different links
    assert simulate(programs(program, 3), one_way).time_s == 2 + 2 * 8.5
    assert simulate(programs(program, 3), both).time_s == 2 * (2 + 2 * 4.5)  # one after another


@pytest.mark.parametrize("elements", [1, 6])
def test_groups_on_different_links_run_together_and_on_the_same_links_share_them(elements):
    """One after another, or fairly: then they share the time of the bytes alone, of which there may
    be fewer than the launch takes."""

    def program(rank, names):
        members = (rank // 2 * 2, rank // 2 * 2 + 1)
        for name in names:
            fragments = [tile("A", member, 1, elements) for member in members]
            yield AllGather(fragments, Group(name, members, rank % 2), axis=1)

    alone, both = (
        programs(lambda rank, names=names: program(rank, names), 4)
        for names in (["row"], ["row", "column"])
    )
    for rule, together in (("fifo", 2 * (2.5 + elements)), ("fair", 2.5 + 2 * elements)):
        assert simulate(alone, toy(arbitration=rule)).time_s == 2.5 + elements
        assert simulate(both, toy(arbitration=rule)).time_s == pytest.approx(together)


@pytest.mark.parametrize("kind", [AllGather, ReduceScatter])
def test_strided_fragments_are_packed_before_or_unpacked_after_at_the_speed_of_memory(kind):
    """12 elements, read and written: 96 bytes at 48 a second."""

    def program(rank, strided):
        cols = ((0, 2), (4, 6)) if strided else None
        fragments = [
            Fragment(tile("C", owner, 3, 8 if strided else 4), cols=cols) for owner in range(2)
        ]
        if kind is AllGather:
            yield AllGather(fragments, ring(2, rank), axis=1)
        else:
            yield ReduceScatter((yield Scratch((3, 8))), fragments, ring(2, rank), axis=1)

    machine = replace(toy(collectives={}), compute=Compute(1.0, memory_bytes_per_s=48.0))
    assert [
        simulate(programs(lambda rank, s=s: program(rank, s), 2), machine).time_s
        for s in (False, True)
    ] == [12, 2 + 12]


def test_parts_joins_and_scratch_take_no_time_and_an_add_onto_a_token_takes_that_of_its_elements():
    def program(rank):
        a = yield Get(tile("A", rank, 4, 6))
        b = yield Get(tile("B", rank, 6, 4))
        left, right = (yield Part(a, 1, 0, 3)), (yield Part(a, 1, 3, 6))
        whole = yield Join([left, right], 1)
        scratch = yield Scratch((4, 4))
        first = yield Gemm(whole, b, into=(yield Part(scratch, 0, 0, 4)))
        second = yield Gemm(whole, b)
        yield Add(first, into=second)

    machine = replace(toy(), compute=Compute(19.2, memory_bytes_per_s=192.0))
    assert simulate(programs(program, 1), machine).time_s == pytest.approx(
        10 + 10 + 3 * 16 * ITEM / 192
    )


def test_a_gemm_of_fragmented_operands_is_one_call_a_fragment_where_the_machine_needs_that():
    traces = of_algorithm("collective", 8, 8, 8, 4, mesh="1x4")
    calls = Compute(1e9, launch_s=1.0)
    free = (Link("wire", inf),)
    assert simulate(traces, Machine("device", calls, free)).time_s == pytest.approx(1)
    assert simulate(
        traces, Machine("library", calls, free, gemm_per_fragment=True)
    ).time_s == pytest.approx(4)


# -- whole algorithms
# -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ALL)
def test_any_algorithm_ends_moves_the_explainers_bytes_and_is_no_faster_than_its_gemms(name):
    """Random options, look-ahead and machines; a deadlock would be an error."""
    simulated = 0
    for seed in range(15):
        chance = random.Random(f"{name} {seed}")
        case = any_other(chance, name)
        p, depth = case["p"], case["depth"]
        try:
            traces = of_algorithm(name, *case["sizes"], p, **case["options"])
        except UnsupportedError:
            continue  # more slices than blocks
        rows, either = chance.choice(divisors(p)), (False, True)
        machine = toy(
            rate=chance.choice((1.0, 50.0)),
            torus=chance.choice((None, (rows, p // rows))),
            adds_on_core=chance.choice(either),
            gemm_per_fragment=chance.choice(either),
        )
        throttled = throttled_machine(20.0, "throttled:1e-9,100000")
        for each in (machine, throttled):
            found = simulate(traces, each, prefetch=depth, timeline=True)
            assert found.counters == {
                name: sum(traffic(t).counters[name] for t in traces) for name in found.counters
            }
            least = [t.flops / each.compute.peak_flops for t in traces]
            least += [bound_of([t], each).seconds for t in traces]
            assert found.time_s >= max(least) * (1 - 1e-9)
            assert found.time_s == simulate(traces, each, prefetch=depth).time_s
            assert found.time_s == max(event.stop_s for event in found.timeline)
            assert all(0 <= event.start_s <= event.stop_s for event in found.timeline)
        simulated += 1
    assert simulated > 8


def throttled_machine(peak_flops, transport):
    machine = Machine.from_dict({"name": "m", "compute": {"peak_flops": peak_flops}})
    return machine.for_transport(parse_transport(transport))


# 2 × 2 chips, C 4 × 4 = A 4 × 4 · B 4 × 4: tiles of 2 × 2, 4 elements. A chip multiplies 2 × 2 × 4,
# 32 FLOPs, in all.


@pytest.mark.parametrize(
    "name, options, rate, seconds",
    [
        # row and column are different links: 2 + 1 · (0.5 + 4) = 6.5 for both; then 32 FLOPs
        ("collective", {}, 8.0, 6.5 + 4),
        # two slices: gathers of 2 elements, 2 + 0.5 + 2 = 4.5, ending at 4.5 and 9, the second
        # during the first GEMM; GEMMs of 16 FLOPs, 2 s or 8 s
        ("meshslice", {"slices": 2, "block": 1}, 8.0, 9 + 2),
        ("meshslice", {"slices": 2, "block": 1}, 2.0, 4.5 + 8 + 8),
        # a shift takes 2.5 + 4 = 6.5: chip (1, 1) skews both matrices at once, and multiplies 16
        # FLOPs while the next shift is under way
        ("cannon", {}, 8.0, 6.5 + 6.5 + 2),
        # two panels of 4 elements in 4 packets: 2 + 4 · (0.5 + 1) = 8 each, one after another,
        # rows and columns at once, during GEMMs of 2 s
        ("summa", {}, 8.0, 8 + 8 + 2),
        # B is gathered in 6.5, while A's shift takes 6.5; GEMMs of 2 s
        ("wang", {}, 8.0, 6.5 + 2 + 2),
    ],
)
def test_the_time_of_an_algorithm_is_that_of_its_overlapped_transfers_and_gemms(
    name, options, rate, seconds
):
    traces = of_algorithm(name, 4, 4, 4, 4, mesh="2x2", dataflow="OS", **options)
    assert simulate(traces, toy(rate)).time_s == seconds


def test_a_chip_of_cannon_without_a_skew_waits_only_for_its_neighbours():
    traces = of_algorithm("cannon", 4, 4, 4, 4, mesh="2x2", dataflow="OS")
    found = simulate(traces, toy(8.0), timeline=True)
    assert max(event.stop_s for event in found.timeline if event.rank == 0) == 6.5 + 2


@pytest.mark.parametrize("rate, gemm_s", [(8.0, 1.0), (1.0, 8.0)])
def test_a_reducing_ring_multiplies_while_the_farthest_sum_moves_then_sends_both_ways(rate, gemm_s):
    """1 × 4 chips, C's tiles of 4 elements are shifted in 2.5 + 4 = 6.5. The farthest partial sum
    alone, then two together, then the own GEMM."""
    found = simulate(
        of_algorithm("wang", 4, 4, 4, 4, mesh="1x4", dataflow="LS", unroll=2), toy(rate)
    )
    assert found.time_s == max(3 * gemm_s, gemm_s + 6.5) + max(6.5, gemm_s)


def test_a_throttled_ring_is_the_executors_throttle():
    """Each rank's ring for itself: hops · latency + bytes / bandwidth, in the order started,
    each after the one before."""
    machine = throttled_machine(8.0, "throttled:4e-9,500000")
    gathers = simulate(of_algorithm("collective", 6, 6, 6, 9, mesh="3x3", dataflow="OS"), machine)
    assert gathers.time_s == pytest.approx(2 * 4 + 2 * 0.5 + 2 * 2 * 2 * 6 / 8)
    assert simulate(
        of_algorithm("cannon", 4, 4, 4, 4, mesh="2x2", dataflow="OS"), machine
    ).time_s == pytest.approx(4.5 + 4.5 + 2)
