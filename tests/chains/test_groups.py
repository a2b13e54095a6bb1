"""The machine as a group of ranks sees it, compared with a simulation of all groups at once."""

from dataclasses import replace

import pytest
from traced import traced

from drbench.errors import UsageError
from drbench.launch.cases.machine_models import find_machine
from drbench.model.gemm import Compute
from drbench.model.machine import Link, Machine
from drbench.model.simulate import simulate
from drbench.program.group_steps import AllGather, ReduceScatter
from drbench.program.problem import Problem
from drbench.program.steps import Block, Get, Group, Scratch

ROWS, COLS = 1 << 10, 1 << 12


def tile(owner):
    return Block("A", owner, 0, (0, owner), 0, ROWS, 0, COLS)


def read(group):
    """Every rank reads the tiles of the others in its group, the next one first."""
    for x in range(1, len(group.members)):
        yield Get(tile(group.members[(group.position + x) % len(group.members)]))


def gather(group):
    yield AllGather([tile(owner) for owner in group.members], group, 0)


def scatter(group):
    scratch = yield Scratch((ROWS * len(group.members), COLS))
    yield ReduceScatter(scratch, [tile(owner) for owner in group.members], group, 0)


def seconds(machine, ranks, stride, extent, program):
    """Of a program in every group of these ranks."""

    def on(rank):
        first = rank - rank // stride % extent * stride
        members = tuple(range(first, first + stride * extent, stride))
        name = "row" if stride == 1 else "col"
        yield from program(Group(name, members, members.index(rank)))

    return simulate(traced(on, Problem(ranks, ranks, ranks, ranks)), machine).time_s


def check(machine, ranks, groups, programs=(read, gather, scatter), rel=0.02):
    for stride, extent in groups:
        for program in programs:
            whole_s = seconds(machine, ranks, stride, extent, program)
            one = machine.along(stride, extent, ranks)
            alone_s = seconds(one, extent, 1, extent, program)
            assert alone_s == pytest.approx(whole_s, rel=rel), (stride, extent, program)


NODES = [(1, 2), (1, 4), (2, 2), (4, 2), (2, 4), (1, 8), (8, 2), (4, 4)]


@pytest.mark.parametrize(
    "name",
    "dgxh100 dgxa100 h800 a100pcie a100nvlink mi300x gb200nvl72 lumic pvc12 h100x8".split(),
)
def test_a_group_takes_as_long_as_all_groups_at_once(name):
    found = find_machine(name)
    ranks = found.devices or 16
    check(replace(found, devices=None), ranks, [(s, e) for s, e in NODES if ranks % (s * e) == 0])


@pytest.mark.parametrize(
    "links, slower",
    [
        ((Link("a", 1e9, shared="device"),), 1),
        ((Link("a", 1e9, shared="pair"),), 1),
        ((Link("a", 1e9, shared="fabric"),), 8),
        ((Link("a", 1e9, shared="pair", through=("all",)), Link("all", 2e9, shared="fabric")), 4),
        ((Link("near", 8e9, within=4), Link("rail", 2e9, rails=4), Link("spine", 1e9)), 0.5),
        ((Link("near", 8e9, within=4), Link("card", 1e9, shared="node", node=4)), 4),
        ((Link("near", 8e9, within=4), Link("card", 1e9, shared="node", node=2)), 2),
        (
            (
                Link("near", 8e9, within=4),
                Link("far", 1e9, shared="pair", through=("card",)),
                Link("card", 2e9, shared="node", node=4),
            ),
            2,
        ),
    ],
)
def test_links_that_groups_share_are_slower_by_their_number(links, slower):
    """By hand: 2 nodes of 4 ranks; pairs of ranks, one on each node, exchange a tile each, in
    both directions of a fabric."""
    machine = Machine("toy", Compute(1e12), links)
    assert seconds(machine.along(4, 2, 8), 2, 1, 2, read) == pytest.approx(
        slower * 4 * ROWS * COLS / 1e9, rel=1e-3
    )
    check(machine, 8, [(4, 2), (1, 4), (2, 2), (2, 4), (1, 2), (1, 8)], (read,))


def test_rings_of_a_torus_are_its_rows_and_columns():
    machine = find_machine("tpuv4-4x8")
    check(machine, 32, [(1, 8), (8, 4)])
    assert machine.along(1, 32, 32) is machine
    with pytest.raises(UsageError, match="no rings of 4 ranks with stride 1. Use a mesh of 4 and"):
        machine.along(1, 4, 32)
