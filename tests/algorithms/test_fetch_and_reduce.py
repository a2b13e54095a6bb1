"""The paper's own program fetches whole tiles and reduces replicas by accumulates. Every unit of
work is done once, and bytes equal those of an independent count."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import layouts, traces_of, universal

from drbench.errors import UsageError
from drbench.program.problem import Problem
from drbench.program.steps import Accumulate, Gemm, Get, Part, ReplicaAdd


@st.composite
def problems(draw, most=13):
    nprocs = draw(st.sampled_from([1, 2, 3, 4, 6, 8, 12]))
    m, n, k = (draw(st.integers(1, most)) for _ in "mnk")
    abc = [draw(layouts(shape, nprocs, 4)) for shape in ((m, k), (k, n), (m, n))]
    transpose = draw(st.sampled_from(["", "a", "b", "ab"]))
    abc = [each.transposed() if name in transpose else each for name, each in zip("abc", abc)]
    return Problem(m, n, k, nprocs, *abc, transpose=transpose)


@settings(max_examples=80, deadline=None)
@given(problems(), st.sampled_from("ABC"), st.none() | st.integers(1, 5))
def test_whole_rows_are_fetched_once_a_stationary_tile_where_all_of_them_are_needed(
    problem, stationary, chunk
):
    options = {"stationary": stationary, "chunk": chunk}
    free = next(iter({*"mnk"} - {*problem.operand(stationary).axes}))
    for slices, rows in zip(
        *(traces_of(problem, **options, fetch=how) for how in ("slice", "rows"))
    ):
        sliced, whole = (
            [s.block for s in trace.steps if type(s) is Get and s.block.owner != trace.rank]
            for trace in (slices, rows)
        )
        assert sum(each.size for each in whole) <= sum(each.size for each in sliced)
        assert {place for each in sliced for place in elements(each)} == {
            place for each in whole for place in elements(each)
        }
        if problem.operand(stationary).partition.replicas > 1:
            continue  # a part of the free axis may be all that is needed
        for block in whole:
            operand = problem.operand(block.matrix)
            if operand.axes[not block.transposed] == free:
                sides = operand.partition.tile_bounds(block.tile)
                ends = (block.row0, block.row1), (block.col0, block.col1)
                assert ends[not block.transposed] == sides[not block.transposed]


def elements(block):
    for row in range(block.row0, block.row1):
        for col in range(block.col0, block.col1):
            yield block.matrix, row, col


def test_a_tile_is_pushed_in_one_part_a_copy_and_each_copy_begins_with_another_part():
    problem = Problem(12, 8, 8, 4, "R", "R", "row/c4")
    traces = traces_of(problem, stationary="C", reduce="push")
    pushed = [
        [(s.block.row0, s.block.row1) for s in t.steps if type(s) is ReplicaAdd] for t in traces
    ]
    assert pushed == [
        [],
        [(4, 8), (8, 12), (0, 4)],
        [(8, 12), (0, 4), (4, 8)],
        [(0, 4), (4, 8), (8, 12)],
    ]
    assert all(type(s) is not Accumulate for t in traces for s in t.steps)


def test_gemms_read_parts_of_the_fetched_tile():
    """Rank 0 multiplies the first half of k, for which it has A, and needs the upper half of B's
    columns."""
    problem = Problem(8, 8, 8, 2, "column", "column", "row/c2")
    steps = traces_of(problem, stationary="C", fetch="tile")[0].steps
    (part,) = (step for step in steps if type(step) is Part)
    assert (repr(part.inputs[0]), repr(part)) == ("Get(B[0:8, 4:8]@1)", "Part(%3[0:4, :])")
    assert any(type(step) is Gemm and step.inputs[1] is part for step in steps)


@pytest.mark.parametrize(
    "options, words",
    [
        ({"fetch": "half"}, "fetch must be one of auto, slice, tile"),
        ({"reduce": "both"}, "reduce must be one of pull, push"),
    ],
)
def test_unknown_words_are_refused(options, words):
    problem = Problem(64, 64, 64, 4, "row", "row", "row")
    with pytest.raises(UsageError, match=words):
        universal.resolve(problem, stationary="B", **options)


def test_whole_tiles_are_cut_or_packed_only_on_request():
    problem = Problem(4096, 4096, 4096, 4, "row", "row", "row")
    options = {"stationary": "B", "fetch": "tile"}
    resolved = universal.resolve(problem, False, **options)
    assert resolved["chunk"] is None and not {"sums", "pack"} & set(resolved)
    assert universal.resolve(problem, False, **options, chunk=512)["chunk"] == 512


def test_ranks_of_several_nodes_fetch_whole_rows():
    problem = Problem(4096, 4096, 4096, 4, "row", "row", "row").on_nodes([0, 0, 1, 1])
    resolved = universal.resolve(problem, False, stationary="C")
    assert (resolved["fetch"], resolved["chunk"]) == ("rows", 256)
    columns = Problem(4096, 4096, 4096, 4, *["column"] * 3).on_nodes([0, 0, 1, 1])
    assert universal.resolve(columns, False, stationary="C")["chunk"] is None  # k cuts rows of A


def test_requested_slices_are_fetched_on_several_nodes():
    """The program resolves options again: without slice in them, it fetched whole rows."""
    problem = Problem(16, 16, 16, 4, "column", "column", "column").on_nodes([0, 0, 2, 2])
    widest = {}
    for fetch in ("slice", "rows"):
        resolved = universal.resolve(problem, stationary="C", fetch=fetch, chunk=2)
        steps = universal.trace(problem, 0, **resolved).steps
        widest[fetch] = max(s.block.shape[1] for s in steps if type(s) is Get and s.matrix == "A")
    assert resolved["fetch"] == "rows" and widest == {"slice": 2, "rows": 4}
