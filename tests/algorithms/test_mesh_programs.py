"""The 2-D algorithms without MPI: their bytes, their parts and what they refuse."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from traced import of_algorithm, resolved_as

from drbench.algorithms import get_algorithm
from drbench.algorithms.collective import baseline_of
from drbench.algorithms.meshslice import comb
from drbench.algorithms.rings import gather_order, reduce_order
from drbench.algorithms.wang import costlier_direction
from drbench.errors import UnsupportedError, UsageError
from drbench.plan.explain import traffic
from drbench.program.problem import Problem

MESHES = ["1x1", "1x2", "2x1", "2x2", "2x3", "3x2", "3x3", "4x2"]
SHAPES = {
    "square": (48, 48, 48),
    "MLP-1-like": (16, 96, 24),
    "MLP-2-like": (16, 24, 96),
    "ragged": (101, 67, 53),
}


def sizes(mesh):
    return tuple(map(int, mesh.split("x")))


# -- bytes: closed forms
# -------------------------------------------------------------------------------------------------


def share(extent, parts, x):
    """Elements of the x-th of ``parts`` blocks of ⌈extent / parts⌉."""
    step = -(-extent // parts)
    return max(0, min(extent, (x + 1) * step) - min(extent, x * step))


def moved_by_collectives(dataflow, m, n, k, mesh, i, j):
    """Elements chip (i, j) receives (C: sends) when each moving matrix goes once to its whole
    process row or column: the traffic of SUMMA, Collective, Wang and MeshSlice, (P - 1) / P of a
    row or column of shards (MeshSlice, §2.3.1), for shards of any extent."""
    rows, cols = mesh
    if dataflow == "OS":
        return share(m, rows, i) * (k - share(k, cols, j)) + (k - share(k, rows, i)) * share(
            n, cols, j
        )
    if dataflow == "LS":
        return share(k, cols, j) * (n - share(n, rows, i)) + share(m, rows, i) * (
            n - share(n, cols, j)
        )
    return share(k, rows, i) * (m - share(m, cols, j)) + share(n, cols, j) * (m - share(m, rows, i))


def moved_by_cannon(dataflow, m, n, k, q, i, j):
    """Elements chip (i, j) receives: p - 1 shifts of both moving matrices, and the skew of those
    that are not in place (Cannon, 1969)."""
    at = lambda s: (i + j + s) % q
    if dataflow == "OS":
        first = [
            share(m, q, i) * share(k, q, at(0)) * (i % q > 0),
            share(k, q, at(0)) * share(n, q, j) * (j % q > 0),
        ]
        return sum(first) + sum(
            share(k, q, at(s)) * (share(m, q, i) + share(n, q, j)) for s in range(1, q)
        )
    stays, moves, height = (
        (share(m, q, i), n, share(k, q, j))
        if dataflow == "LS"
        else (share(n, q, j), m, share(k, q, i))
    )
    skew = height * share(moves, q, at(0)) * ((j if dataflow == "LS" else i) % q > 0)
    home = (
        stays
        * share(moves, q, j if dataflow == "LS" else i)
        * (((i if dataflow == "LS" else j) - 1) % q > 0)
    )
    return skew + home + sum(share(moves, q, at(s)) * (height + stays) for s in range(1, q))


@pytest.mark.parametrize(
    "name, options",
    [
        ("summa", {}),
        ("summa", {"panel": 5}),
        ("summa", {"unroll": 3}),
        ("collective", {}),
        ("meshslice", {"slices": 4}),
        ("meshslice", {"slices": 3, "block": 2}),
        ("cannon", {}),
        ("wang", {"unroll": 1}),
        ("wang", {"unroll": 2}),
    ],
)
@pytest.mark.parametrize("dataflow", ["OS", "LS", "RS"])
def test_bytes_are_those_of_the_literature(name, options, dataflow):
    """Wang's gathers split into shifts move the same elements. A reduction split into shifts moves
    sums instead of terms, a tile of C a shift, so over all chips the same bytes: (P - 1) tiles
    for each of the P chips of a process row or column."""
    meshes = ("1x1", "2x2", "3x3") if name == "cannon" else MESHES
    for (m, n, k), mesh in itertools.product(SHAPES.values(), meshes):
        rows, cols = sizes(mesh)
        moved, wanted = [], []
        for trace in of_algorithm(
            name, m, n, k, rows * cols, dataflow=dataflow, mesh=mesh, **options
        ):
            i, j = divmod(trace.rank, cols)
            wanted.append(
                4 * moved_by_cannon(dataflow, m, n, k, rows, i, j)
                if name == "cannon"
                else 4 * moved_by_collectives(dataflow, m, n, k, (rows, cols), i, j)
            )
            counters = traffic(trace).counters
            moved.append(counters.pop("collective_bytes"))
            assert not any(counters.values())
        assert sum(moved) == sum(wanted) and (name == "wang" or moved == wanted), (mesh, m, n, k)


@pytest.mark.parametrize("p", [1, 2, 3, 4, 7])
def test_the_1d_baselines_move_all_remote_data(p):
    m, n, k = 101, 67, 53

    def moved(name, **options):
        traces = of_algorithm(name, m, n, k, p, **options)
        return [traffic(trace).counters["collective_bytes"] for trace in traces]

    assert moved("fsdp") == [4 * (k - share(k, p, rank)) * n for rank in range(p)]
    gathered = moved("tensor_parallel_1d", dataflow="AG")
    assert gathered == [4 * (m - share(m, p, rank)) * k for rank in range(p)]
    assert sum(moved("tensor_parallel_1d", dataflow="RdS")) == 4 * (p - 1) * m * n


# -- the parts
# -------------------------------------------------------------------------------------------------


@given(st.integers(1, 60), st.integers(1, 6), st.integers(1, 9))
def test_the_slices_deal_the_blocks_of_an_axis_cyclically(extent, slices, block):
    dealt_to = [element // block % slices for element in range(extent)]
    for s in range(slices):
        assert [
            x for start, stop in comb(extent, slices, s, block) for x in range(start, stop)
        ] == [x for x in range(extent) if dealt_to[x] == s]


@pytest.mark.parametrize("size", range(1, 10))
def test_a_ring_delivers_every_other_tile_once_from_both_sides(size):
    for position in range(size):
        order = gather_order(size, position)
        assert sorted(source for source, _ in order) == sorted(set(range(size)) - {position})
        for source, by in order:
            assert (
                (source - position) % size <= size // 2
                if by == -1
                else (position - source) % size <= size // 2
            )
        assert sorted(target for target, _ in reduce_order(size, position)) == sorted(
            set(range(size)) - {position}
        )
        directions = [by for _, by in order]
        assert abs(directions.count(1) - directions.count(-1)) <= 1


@pytest.mark.parametrize(
    "dataflow, mesh, m, n, k, direction",
    [
        ("OS", "2x2", 64, 8, 64, "row"),
        ("OS", "2x2", 8, 64, 64, "column"),
        ("LS", "2x2", 64, 64, 8, "row"),
        ("LS", "2x2", 8, 64, 64, "column"),
        ("RS", "2x2", 64, 8, 64, "row"),
        ("RS", "2x2", 64, 64, 8, "column"),
        ("OS", "1x4", 8, 8, 8, "row"),
        ("OS", "4x1", 8, 8, 8, "column"),
    ],
)
def test_wang_overlaps_the_costlier_direction(dataflow, mesh, m, n, k, direction):
    problem = get_algorithm("wang").problem(m, n, k, 4, dataflow=dataflow, mesh=mesh)
    assert costlier_direction(problem, dataflow, mesh) == direction


def test_one_slice_is_collective():
    for dataflow in ("OS", "LS", "RS"):
        one, whole = (
            of_algorithm(name, 24, 36, 48, 6, dataflow=dataflow, mesh="2x3", **options)[4]
            for name, options in (("meshslice", {"slices": 1}), ("collective", {}))
        )
        assert list(map(repr, one.steps)) == list(map(repr, whole.steps))


@pytest.mark.parametrize(
    "name, options, words",
    [
        ("cannon", {"mesh": "2x3"}, ["square", "2x3", "summa"]),
        ("meshslice", {"slices": 100, "block": 4}, ["100 slices", "Use at most"]),
        ("collective", {"a": "row"}, ["A as block:2x3", "got row", "--a"]),
        (
            "summa",
            {"b": "block:2x3", "dataflow": "LS", "mesh": "2x3"},
            ["B as block:3x2:col", "universal"],
        ),
        ("fsdp", {"c": "column"}, ["C as row", "got column"]),
        ("wang", {"c": "block:2x3/c1", "a": "row/c6"}, ["A as"]),
    ],
)
def test_an_unsupported_case_of_an_algorithm_is_refused_with_a_remedy(name, options, words):
    texts = [options.pop(key, None) for key in "abc"]
    with pytest.raises(UnsupportedError) as caught:
        resolved_as(name, 48, 48, 48, 6, *texts, **options)
    assert all(word in str(caught.value) for word in words), caught.value


@pytest.mark.parametrize(
    "options", [{"mesh": "2x2"}, {"mesh": "two"}, {"dataflow": "XS"}, {"mesh": "0x6"}]
)
def test_invalid_options_are_usage_errors(options):
    with pytest.raises(UsageError):
        resolved_as("collective", 48, 48, 48, 6, **options)


def test_other_texts_of_the_same_layout_are_accepted():
    texts = "row", "tiles:24x48@2x1", "S(0)"
    *_, resolved = resolved_as("collective", 48, 48, 48, 2, *texts, mesh="2x1", dataflow="OS")
    assert resolved["dataflow"] == "OS"


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 64, 64), (64, 64, 1), (3, 3, 3)])
@pytest.mark.parametrize(
    "texts", [("block",) * 3, ("block:1x4",) * 3, ("row", "tiles:1x64@1x4", "row")]
)
def test_a_grid_with_other_chips_without_a_tile_is_refused_or_runs(shape, texts):
    baseline = baseline_of(Problem(*shape, 4, *texts))
    for dataflow, mesh in itertools.product(("OS", "LS", "RS"), ("1x4", "2x2", "4x1")):
        problem = Problem(*shape, 4, *texts)
        for name in ("collective", "summa", "wang"):
            algorithm = get_algorithm(name)
            try:
                resolved = algorithm.resolve(problem, dataflow=dataflow, mesh=mesh)
            except UnsupportedError as error:
                assert "Leave --" in str(error)
                continue
            assert sum(algorithm.trace(problem, r, **resolved).flops for r in range(4)) == (
                problem.flops
            )
    if baseline is not None:
        name, options = baseline
        get_algorithm(name).trace(Problem(*shape, 4, *texts), 0, **options)
