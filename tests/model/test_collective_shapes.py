"""Collectives on rings and trees: their times have closed forms, the fastest is found, none is
faster than its bound however links are shared, and a group over several nodes uses the cards of its
own ranks."""

import pytest
from traced import traced

from drbench.errors import UsageError
from drbench.model.bounds import bound_of, carried_by_links
from drbench.model.gemm import Compute
from drbench.model.links import ARBITRATIONS
from drbench.model.machine import Collective, Link, Machine
from drbench.model.simulate import simulate
from drbench.program.group_steps import AllGather, Broadcast, Reduce, ReduceScatter
from drbench.program.problem import Problem
from drbench.program.steps import Block, Group, Scratch

KINDS = {
    "allgather": AllGather, "reducescatter": ReduceScatter, "broadcast": Broadcast, "reduce": Reduce
}  # fmt: skip
#: Four packets of the largest fragment, 24 bytes.
PACKETS, SHARD = 4, 24.0


def tile(owner, size=6):
    return Block("C", owner, 0, (0, owner), 0, 1, 0, size)


def traces(kind, p, times=1):
    """Each rank takes part in as many collectives of all ranks."""

    def program(rank):
        group = Group("row", tuple(range(p)), rank)
        fragments = [tile(owner) for owner in range(p)]
        for _ in range(times):
            if kind == "allgather":
                yield AllGather(fragments, group, axis=1)
            elif kind == "reducescatter":
                yield ReduceScatter((yield Scratch((1, 6 * p))), fragments, group, axis=1)
            elif kind == "broadcast":
                yield Broadcast(fragments[0], group)
            else:
                yield Reduce((yield Scratch((1, 6))), fragments[0], group)

    return traced(program, Problem(p, p, p, p))


def machine(shape, arbitration="fifo", node=4, **more):
    """Nodes of 4 with links of 8 bytes a second, cards of 2; launch 1 s, synchronisations 0.25 and
    0.5 s."""
    each = Collective(1.0, 0.25, node=node, shape=shape, across_sync_s=0.5)
    links = Link("near", 8.0, within=4), Link("far", 2.0)
    return Machine(
        "m",
        Compute(1.0),
        links,
        packets=PACKETS,
        arbitration=arbitration,
        collectives=dict.fromkeys(KINDS, each),
        **more,
    )


def closed_form(kind, shape, p):
    """Seconds on p ranks, in nodes of 4: four cards of 2 bytes a second are as fast as a link."""
    rate, sync = 8.0, 0.5 if p > 4 else 0.25
    rounds = {1: 0, 2: 1, 3: 2, 4: 2, 8: 3, 12: 4}[p] if shape == "tree" else p - 1
    if kind in ("allgather", "reducescatter"):
        return 1 + rounds * sync + (p - 1) * SHARD / rate
    return 1 + (rounds + PACKETS - 1) * (sync + SHARD / PACKETS / rate)


@pytest.mark.parametrize("rule", ARBITRATIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_shape_takes_the_time_of_its_formula(kind, rule):
    for p in (2, 3, 4, 8, 12):
        by_shape = {}
        for shape in ("ring", "tree"):
            seen = machine(shape, rule)
            found = simulate(traces(kind, p), seen)
            assert found.time_s == pytest.approx(closed_form(kind, shape, p)), (shape, p)
            assert found.counters == simulate(traces(kind, p), machine("ring")).counters
            assert bound_of(traces(kind, p), seen).seconds <= found.time_s * (1 + 1e-12)
            by_shape[shape] = found.time_s
        fastest = simulate(traces(kind, p), machine("fastest", rule)).time_s
        assert fastest == pytest.approx(min(by_shape.values()))


@pytest.mark.parametrize("rule", ARBITRATIONS)
@pytest.mark.parametrize("shape", ["ring", "tree"])
def test_collectives_of_one_group_follow_each_other(shape, rule):
    once = closed_form("allgather", shape, 8)
    found = simulate(traces("allgather", 8, times=3), machine(shape, rule), prefetch="all")
    if rule == "fair":
        assert found.time_s == pytest.approx(3 * once)
    assert found.time_s <= 3 * once * (1 + 1e-12)
    bound = bound_of(traces("allgather", 8, times=3), machine(shape, rule))
    assert bound.seconds <= found.time_s * (1 + 1e-12)


@pytest.mark.parametrize("rule", ARBITRATIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_direct_collective_takes_one_shard_on_the_slowest_link_of_a_pair(kind, rule):
    each = Collective(1.0, 0.25, shape="direct")
    links = (Link("near", 8.0, within=2, shared="pair"), Link("far", 2.0, shared="pair"))
    seen = Machine("m", Compute(1.0), links, arbitration=rule,
                   collectives=dict.fromkeys(KINDS, each))  # fmt: skip
    for p in (2, 4, 8):
        found = simulate(traces(kind, p), seen)
        assert found.time_s == pytest.approx(1 + 0.25 + SHARD / (8.0 if p == 2 else 2.0)), p
        carried = carried_by_links(traces(kind, p), seen)
        assert {each.nbytes for each in carried} == {SHARD} and len(carried) == p * (p - 1)
        assert bound_of(traces(kind, p), seen).seconds <= found.time_s * (1 + 1e-12)


def test_a_ring_over_nodes_uses_the_card_of_each_of_its_ranks():
    carried = {
        each.where: each.nbytes
        for each in carried_by_links(traces("allgather", 8), machine("ring"))
        if each.name == "far"
    }
    ends = [f"{way} {rank}" for way in ("out of", "into") for rank in range(8)]
    assert carried == dict.fromkeys(ends, 7 * SHARD / 4)


def test_a_direct_collective_has_no_rate_of_its_own():
    with pytest.raises(UsageError, match="direct has the rate of the links of its pairs"):
        Collective(shape="direct", bandwidth_bytes_per_s=1.0)
