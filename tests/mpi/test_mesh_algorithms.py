"""The 2-D algorithms and the 1-D baselines under mpiexec: exact results, planned bytes, no
deadlock."""

import itertools
import random

import pytest
from cases import case

from algorithms import algorithms

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(240)]

MESHES = {1: ["1x1"], 2: ["1x2", "2x1"], 4: ["2x2"], 5: []}
MESHES |= {6: ["2x3", "3x2"], 8: ["4x2"], 9: ["3x3"]}
SHAPES = [(48, 48, 48), (16, 96, 24), (16, 24, 96), (101, 67, 53)]
ONE_D = [
    ("fsdp", {}),
    ("fsdp", {"unroll": 2}),
    ("tensor_parallel_1d", {"dataflow": "AG"}),
    ("tensor_parallel_1d", {"dataflow": "RdS"}),
    ("tensor_parallel_1d", {"dataflow": "RdS", "unroll": 3}),
    ("dtensor_mm", {}),
    ("dtensor_mm", {"strategy": "rows"}),
]
#: Every algorithm that runs on a process mesh, a new file in algorithms/ too; and options of their
#: own to try.
ON_A_MESH = [name for name, algorithm in algorithms().items() if "mesh" in algorithm.options]
WITH = {"wang": [{"unroll": 2}], "meshslice": [{"slices": 3}, {"slices": 2, "block": 4}]}


def two_d(mesh):
    """Every algorithm and dataflow of a mesh, with options of its own."""
    rows, cols = mesh.split("x")
    for dataflow in ("OS", "LS", "RS"):
        for name in ON_A_MESH:
            for options in WITH.get(name, [{}]):
                if name != "cannon" or rows == cols:
                    yield name, {"dataflow": dataflow, "mesh": mesh, **options}


def by_columns():
    """DTensor's programs that copy what they have gathered, resharded or are about to scatter."""
    for shape, strategy in itertools.product(SHAPES[::3], ("columns", "partial")):
        yield case(*shape, *["column"] * 3, algorithm="dtensor_mm", strategy=strategy)


def run(mpirun, p, cases, *options, **how):
    """Cases that all go well, on the mesh that they ask for."""
    for made, out in zip(cases, mpirun.exact(p, cases, *options, **how)):
        asked = made.get("dataflow"), made.get("mesh")
        assert (out["dataflow"], out["mesh"]) == asked, made


@pytest.mark.parametrize("p", MESHES)
def test_every_algorithm_dataflow_and_mesh_is_exact(mpirun, dealt, p):
    """The 1-D baselines too. Each on the uneven shape and on one other, which differs between
    numbers of ranks and between meshes."""
    cases = [
        case(*shape, algorithm=name, dtype=("float32", "float64")[x % 2], prefetch=x % 5, **options)
        for z, mesh in enumerate(MESHES[p])
        for y, shape in enumerate(SHAPES)
        for x, (name, options) in enumerate(two_d(mesh))
        if y in ((x + p + z) % 3, 3)
    ]
    if p < 6:
        one_d = itertools.product(SHAPES, ONE_D)
        cases += [case(*shape, algorithm=name, **options) for shape, (name, options) in one_d]
    run(mpirun, p, dealt(cases, p, 11) + (dealt(by_columns(), p, 4) if p < 6 else []))


@pytest.mark.parametrize("turn, situation", list(enumerate(["direct", "rma", "mixed"])))
def test_chips_that_own_nothing_take_part(mpirun, dealt, turn, situation):
    """Also as the baseline of overlap, and whatever the mesh: fewer rows or columns than chips.
    Each situation takes its turn of the cases."""
    shapes = [(1, 64, 64), (64, 1, 64), (64, 64, 1), (3, 3, 3), (5, 8, 8), (1, 1, 1)]
    alone = {"meshslice": {"slices": 1, "block": 1}}  # of more it asks for a block each
    cases = [
        case(*shape, algorithm=name, **options | alone.get(name, {}))
        for y, shape in enumerate(shapes)
        for mesh in ("1x4", "2x2", "4x1")
        for x, (name, options) in enumerate(two_d(mesh))
        if (x + y) % 3 == turn  # all of them on two of the shapes
    ]
    layouts = "block:2x2", "block:2x2:col", "block:2x2"
    cases += [case(*shape, *layouts, gemm_only=True) for shape in shapes]
    run(mpirun, 4, dealt(cases, turn, 13), situation=situation)


REPLICATED = [
    case(*shape, algorithm="summa2.5d", iters=2, dataflow=dataflow, seed=seed, **options)
    for seed, shape in enumerate(SHAPES)
    for dataflow in ("OS", "LS", "RS")
    for options in (
        {"replicas": 2},
        {"replicas": 4, "panel": 7},
        {"replicas": 2, "replicate_result": True},
    )
]


@pytest.mark.parametrize("turn, situation", list(enumerate(["direct", "rma", "remote", "mixed"])))
def test_replicas_of_summa_add_up_on_every_transport(mpirun, dealt, turn, situation):
    """Every look-ahead, with random delays on every other transport: a replica is read after its
    reductions."""
    all_of_them = [made | {"prefetch": x % 4} for x, made in enumerate(REPLICATED)]
    for late, options in enumerate([(), ("--delays", "1", "--small-segments")]):
        cases = [made for x, made in enumerate(all_of_them) if (x + x // 4 + turn) % 2 == late]
        cases = dealt(cases, turn // 2, 5)
        answers = mpirun.exact(4, cases, *options, situation=situation)
        assert all(out["replica_bytes"] for out in answers)


@pytest.mark.parametrize("p, situation", [(4, "direct"), (3, "remote"), (4, "mixed")])
def test_random_delays_change_no_result_and_nothing_deadlocks(mpirun, dealt, p, situation):
    """Also on meshes of one row or column, with every look-ahead and way to drive progress."""
    chance = random.Random(p)
    meshes = ["1x4", "4x1", "2x2"] if p == 4 else ["1x3", "3x1"]
    pool = [entry for mesh in meshes for entry in two_d(mesh)] + ONE_D
    cases = [
        case(70, 90, 110, algorithm=name, progress=("poll", "none")[x % 2], **options)
        | {"prefetch": x % 5, "seed": x}
        for x, (name, options) in enumerate(chance.sample(pool, 24))
    ]
    cases = dealt(cases, len(situation), 2)
    run(mpirun, p, cases, "--delays", "1", "--small-segments", situation=situation)
    assert {*mpirun.naps} >= {"_compute", "_arrived", "AllGather", "Shift", "Broadcast"}


def test_a_throttled_ring_takes_its_time(mpirun):
    """collective on 2x2: the A row is 48·24 elements from one neighbour, the B column the same, at
    once on rings of their own."""
    ring = {"algorithm": "collective", "dataflow": "OS"}
    cases = [
        case(96, 96, 96, mesh="2x2", transport="throttled:0.001,0", **ring),
        case(8, 8, 8, mesh="4x1", transport="throttled:100,20000", **ring),
    ]
    slow, late = (out["best_s"] for out in mpirun.exact(4, cases))
    assert slow >= 48 * 48 * 4 / 1e6  # one neighbour's tile
    assert late >= 3 * 0.02  # P - 1 messages, one after the other


@pytest.mark.parametrize("situation", ["mixed", "remote"])
def test_what_a_rank_without_rows_has_of_a_matrix_is_not_fetched_from_another_node(
    mpirun, situation
):
    """To reshard, a rank fetches its part of every tile: of one row on two ranks, one is empty."""
    few = case(1, 27, 19, "row", "column", "row", algorithm="dtensor_mm")
    odd = case(6, 3, 15, "row", "column", "column", algorithm="dtensor_mm", strategy="partial")
    run(mpirun, 2, [few], situation=situation)
    run(mpirun, 4, [odd, odd | {"get": "view"}], situation=situation)
