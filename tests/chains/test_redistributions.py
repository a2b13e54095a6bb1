"""Redistributions and divisions of multiplications on a mesh, executed on one array for each rank:
the values that every rank ends with, the bytes it receives, and the sizes of local GEMMs."""

import itertools

import numpy as np
import pytest
from arena import multiplied as arena
from hypothesis import given
from hypothesis import strategies as st
from layer_chains import layers
from mesh_tiles import Tiles, chunk, held, places

from drbench.chains.model.costs import LayoutCosts, steps
from drbench.chains.model.description import ChainMatrix
from drbench.chains.model.mesh import DeviceMesh
from drbench.chains.model.programs import OVERLAPPING
from drbench.model.gemm import Compute
from drbench.model.machine import Collective, Link, Machine
from drbench.model.simulate import Simulator
from drbench.plan.schedule import pool_bytes

NAMES = "pod", "dp", "tp"
TOY = Machine(
    "toy",
    Compute(1e9, memory_bytes_per_s=1e9, launch_s=1e-6),
    (Link("wire", 1e8, latency_s=1e-6),),
    memory_bytes=1e9,
    fence_s=1e-6,
    collectives={
        name: Collective(launch_s=1e-6, sync_s=1e-6)
        for name in ("allgather", "reducescatter", "broadcast", "reduce", "shift")
    },
)


def mesh_of(*extents):
    return DeviceMesh(NAMES[-len(extents) :], extents)


@pytest.fixture
def changes(dealt):
    """Pairs of a layout, partial sums included, and a stored one: on a mesh of three dimensions a
    part of them, another for each turn."""

    def pairs(mesh, turn):
        old = itertools.product(("S(0)", "S(1)", "R", "P"), repeat=len(mesh.extents))
        every = list(itertools.product(old, mesh.layouts()))
        return dealt(every, turn, 1 + len(every) // 400)

    return pairs


@pytest.mark.parametrize("extents", [(2,), (3,), (2, 2), (2, 3), (3, 2), (2, 2, 2)])
@pytest.mark.parametrize("shape", [(24, 24), (13, 7)])
def test_steps_from_any_layout_to_any_other_leave_every_rank_with_its_tile(extents, shape, changes):
    mesh, rng = mesh_of(*extents), np.random.default_rng(1)
    whole = rng.integers(-99, 99, shape)
    for old, new in changes(mesh, shape[1]):
        tiles = Tiles.of(mesh, whole, old, rng)
        tiles.move(steps(old, new), old, new)
        tiles.check(whole, new)


@given(st.data())
def test_one_dimension_takes_one_step_and_others_are_left_alone(data):
    """As long as none inside divides the same side."""
    placements = st.sampled_from(("S(0)", "S(1)", "R"))
    old = data.draw(st.lists(placements, min_size=1, max_size=4).map(tuple))
    d = data.draw(st.integers(0, len(old) - 1))
    was, now = data.draw(st.sampled_from(("S(0)", "S(1)", "R", "P"))), data.draw(placements)
    if {was, now} & {*old[d + 1 :]} - {"R"}:
        return
    one, two = (*old[:d], was, *old[d + 1 :]), (*old[:d], now, *old[d + 1 :])
    kind = "exchange"
    if was in ("R", "P"):
        kind = {"R": "cut", "P": "scatter"}[was] if now != "R" else "reduce"
    elif now == "R":
        kind = "gather"
    assert [*steps(one, two)] == ([] if was == now or (was, now) == ("R", "R") else [(kind, (d,))])


@pytest.mark.parametrize("extents", [(4,), (2, 4), (2, 2, 2)])
@pytest.mark.parametrize("count", [1, 3])
def test_collectives_are_of_the_bytes_that_ranks_receive(extents, count, changes):
    mesh, rng, shape = mesh_of(*extents), np.random.default_rng(1), (64, 128)
    costs, matrix = LayoutCosts(TOY, mesh, "float32"), ChainMatrix("W", *shape, "weight", count)
    whole = np.zeros(shape, int)
    for old, new in changes(mesh, count):
        moving = [(kind, dims) for kind, dims in steps(old, new) if kind != "cut"]
        programs, tiles = costs.moves(matrix, old, new), Tiles.of(mesh, whole, old, rng)
        assert [each.name for each in programs] == [kind for kind, _ in moving]
        for program, (_, dims) in zip(programs, moving):
            extent = np.prod([mesh.extents[d] for d in dims])
            strides = [mesh.strides[d] for d in dims]
            assert program.group[:3] == (min(strides), extent, mesh.ranks)
        tiles.move(steps(old, new), old, new)
        every = sum(each.nbytes * mesh.ranks // each.group.extent for each in programs)
        assert 4 * count * tiles.received == every


# -- divisions


SHAPES = 12, 24, 36  # divided by 2, 3 and 4, in any nesting
BACKWARD = layers(SHAPES[0], SHAPES[1:], backward=True)


def ways_of(costs, each, dealt):
    """Every way in layouts of its matrices: (layouts, way)."""
    every = list(itertools.product(costs.mesh.layouts(), repeat=3))
    for stored in dealt(every, len(each.c), 1 + len(every) // 100):
        for way in costs.ways(BACKWARD, each, stored):
            yield stored, way


def multiplied(mesh, each, a, b, inner, active):
    """What each rank has of C: from its tiles of A and B; or the ranks along the active dimension
    from theirs together, as one multiplication; and the largest m, n and k."""
    whole = a.T if each.operands[0][1] else a, b.T if each.operands[1][1] else b
    made, largest, c = {}, (0, 0, 0), (whole[0].shape[0], whole[1].shape[1])
    shapes = a.shape, b.shape, c
    for place in places(mesh):
        group = [
            tuple(x if d == active else one for d, one in enumerate(place))
            for x in (range(mesh.extents[active]) if active is not None else [0])
        ]
        sides = []
        for x, (shape, layout) in enumerate(zip(shapes, inner)):
            tiles = [held(mesh, shape, layout, member) for member in group]
            if x < 2 and each.operands[x][1]:
                tiles = [part[::-1] for part in tiles]
            own, together = tiles[group.index(place) if active is not None else 0], []
            for side in (0, 1):
                indices = sorted({i for part in tiles for i in range(*part[side])})
                parts = len({part[side] for part in tiles})
                at = chunk((0, len(indices)), parts, place[active]) if parts > 1 else (0, None)
                assert indices[slice(*at)] == [*range(*own[side])]
                together.append(indices)
            sides.append(together)
        (am, ak), (bk, bn), (cm, cn) = sides
        assert (am, ak, bn) == (cm, bk, cn), "one multiplication"
        part = held(mesh, c, inner[2], place)
        made[place] = part, whole[0][slice(*part[0])][:, ak] @ whole[1][ak, slice(*part[1])]
        largest = max(largest, (len(am), len(bn), len(ak)))
    return Tiles(mesh, made), largest


@pytest.mark.parametrize(
    "extents, each",
    [(extents, each) for extents in ((4,), (2, 2)) for each in BACKWARD.multiplications]
    + [((2, 3), BACKWARD.multiplications[1])],
    ids=str,
)
def test_every_way_of_a_multiplication_gives_every_rank_its_tile(extents, each, dealt):
    """All ways: their redistributions are those tested above."""
    mesh, rng, done = mesh_of(*extents), np.random.default_rng(2), set()
    costs = LayoutCosts(TOY, mesh, "float64")
    a, b = (rng.integers(-9, 9, BACKWARD.matrices[name].shape) for name in each.takes)
    wanted = (a.T if "a" in each.transpose else a) @ (b.T if "b" in each.transpose else b)
    for stored, way in ways_of(costs, each, dealt):
        program, (*inner, c) = way.gemm.program, way.inner
        active = program.group and mesh.strides.index(program.group.stride)
        for x, ends in enumerate((*zip(stored, inner), (c, stored[2]))):
            moved = [use.program.name for use in way.moves if use.matrix == "ABC"[x]]
            assert moved == [kind for kind, _ in steps(*ends) if kind != "cut"]
        if active is not None:
            assert all(one[active] == two[active] for one, two in zip(way.inner, stored))
            assert program.group == (mesh.strides[active], mesh.extents[active], mesh.ranks, False)
        key = way.inner, active
        if key in done:
            continue
        done.add(key)
        tiles, (m, n, k) = multiplied(mesh, each, a, b, way.inner, active)
        tiles.move(steps(c, stored[2]), c, stored[2])
        tiles.check(wanted, stored[2])
        if active is None:
            assert program.name == "local" and program.times.core_s == pytest.approx(
                TOY.compute.gemm_s(m, n, k, 8) + TOY.compute.transposed_s(m, n, k, each.transpose)
            )
    assert len(done) >= 4 ** len(extents) and any(active is not None for _, active in done)


@pytest.mark.parametrize("extents", [(2, 2), (3,)])
@pytest.mark.parametrize("each", BACKWARD.multiplications, ids=str)
def test_programs_that_overlap_multiply_the_tiles_of_their_ranks(extents, each, monkeypatch, dealt):
    """Their traces, executed in planned memory at random moments."""
    runs = []

    class Watched(Simulator):
        def __init__(self, traces, machine):
            runs.append(traces)
            super().__init__(traces, machine)

        def run(self, ahead):
            runs[-1] = runs[-1], ahead
            return super().run(ahead)

    monkeypatch.setattr("drbench.chains.model.programs.Simulator", Watched)
    mesh = mesh_of(*extents)
    costs, found = LayoutCosts(TOY, mesh, "float64"), {}
    for stored, way in ways_of(costs, each, dealt):
        if way.gemm.program.group:
            d = mesh.strides.index(way.gemm.program.group.stride)
            triple = tuple(one[d] for one in stored)
            found.setdefault(way.gemm.program, (triple, way, d))
    assert {program.name for program in found} >= {*OVERLAPPING} - {"universal A signals"}
    for program, (triple, way, d) in dealt(found.items(), len(extents), len(found) // 12):
        program.simulate()
        traces, ahead = runs[-1]
        problem = traces[0].problem
        assert program.pool == pool_bytes(traces[0], ahead)
        a, b = (np.zeros(BACKWARD.matrices[name].shape) for name in each.takes)
        _, sizes = multiplied(mesh, each, a, b, way.inner, d)
        assert (problem.m, problem.n, problem.k) == sizes
        for operand, one in zip((problem.a, problem.b, problem.c), triple):
            along = DeviceMesh(("tp",), (mesh.extents[d],))
            for rank in range(len(traces)):
                part = operand.partition
                tile = held(along, part.shape, (one,), (rank,))
                assert part.local_size(rank) == np.prod([y - x for x, y in tile])
        c, wanted = arena(traces, "all", len(runs))
        assert all((each == wanted).all() for each in c)
        assert program.times.seconds == program.simulated.time_s > 0
