"""The elements of a rank's local array, and layouts that are parts of others, compared with dealing
elements one by one."""

import numpy as np
import pytest
from mpi4py import MPI
from oracles import by_place

import drbench
from drbench.algorithms.universal.algorithm1 import Share, local_gemms
from drbench.algorithms.universal.choice import busiest_rank
from drbench.errors import UsageError
from drbench.library.spec import Spec, Specs
from drbench.partitions import flows, partition
from drbench.program.problem import Operand, Problem
from drbench.program.redistribution import redistribute
from drbench.program.steps import Add
from drbench.program.trace import trace

TEXTS = (
    "row",
    "column",
    "block:2x2",
    "tiles:3x2@2x2",
    "tiles:2x5@4x1",
    "row/c2",
    "block/c2",
    "row/c4",
    "S(0),R@2x2",
    "S(0),S(0)@2x2",
    "R,S(1)@2x2",
    "S(1),P@2x2",
    "P,R@2x2",
)
SHAPE = (9, 7)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("transpose", [False, True])
def test_rows_and_columns_name_the_element_of_every_place_of_the_local_array(text, transpose):
    part = partition(text, SHAPE, 4)
    for rank in range(4):
        spec = Spec(part, np.dtype("f4"), rank)
        elements = by_place(part, rank)
        if transpose:
            spec = spec.T
            elements = {place[::-1]: at[::-1] for place, at in elements.items()}
        rows, cols = spec.indices
        assert spec.local_shape == (len(rows), len(cols))
        assert elements == {
            (i, j): (rows[i], cols[j]) for i in range(len(rows)) for j in range(len(cols))
        }


def test_rows_of_a_rank_without_columns_are_those_of_its_local_array():
    spec = Spec(partition("block:2x2", (4, 1), 4), np.dtype("f4"), 3)
    rows, cols = spec.indices
    assert (spec.local_shape, rows.tolist(), cols.tolist()) == ((2, 0), [2, 3], [])
    part, down, across = spec.part(slice(3, 4), slice(None))
    assert (part.local_shape, down, across) == ((1, 0), slice(1, 2), slice(0, 0))


@pytest.mark.parametrize("old", TEXTS)
def test_a_layout_is_within_another_where_every_local_array_is_a_slice(old):
    for new in TEXTS:
        parts = [partition(text, SHAPE, 4) for text in (new, old)]
        slices_ = [_slice(by_place(parts[0], rank), by_place(parts[1], rank)) for rank in range(4)]
        terms = [[part.term_of(part.replica_of(rank)) for rank in range(4)] for part in parts]
        if terms[0] != terms[1]:  # other terms of a sum are no part
            slices_ = [None] * 4
        for rank in range(4):
            one, other = (Spec(part, np.dtype("f4"), rank) for part in parts)
            found = one.within(other)
            assert (found is not None) == (None not in slices_), (new, old)
            if found is not None and all(one.local_shape):
                assert found == slices_[rank]


def _slice(part, whole):
    """The slice of another local array that has the elements of this one, or None."""
    places = {at: place for place, at in whole.items()}
    if not set(part.values()) <= set(places):
        return None
    shifts = {
        tuple(there - here for here, there in zip(place, places[at])) for place, at in part.items()
    }
    return (shifts.pop() if shifts else (0, 0)) if len(shifts) < 2 else None


@pytest.mark.parametrize("old", TEXTS)
def test_each_element_that_must_move_moves_once(old):
    for new in TEXTS:
        parts = [partition(text, SHAPE, 4) for text in (old, new)]
        operands = Operand("A", parts[0]), Operand("C", parts[1])
        moved, wanted = {}, {}
        for rank in range(4):
            steps = trace(redistribute(*operands, rank), None, rank, fresh=False).steps
            written = [
                (i, j)
                for step in steps
                if step.computes and type(step) is not Add  # the first term of a sum
                for i in range(step.block.row0, step.block.row1)
                for j in range(step.block.col0, step.block.col1)
            ]
            assert sorted(written) == sorted(by_place(parts[1], rank).values())
            for step in steps:
                for other, elements in step.moved(rank):
                    moved[other, rank] = moved.get((other, rank), 0) + elements
        for source, target, elements in flows(*parts):
            wanted[source, target] = wanted.get((source, target), 0) + elements
        assert moved == wanted


@pytest.mark.parametrize("stationary", "ABC")
def test_the_busiest_rank_moves_the_remote_elements_of_its_gemms(stationary):
    for texts in (
        ("row", "column", "block"),
        ("column", "column", "row"),
        ("row/c2", "row", "row"),
    ):
        problem = Problem(9, 8, 7, 4, *texts)
        most = 0
        for rank in range(4):
            read, added = set(), 0
            for group, _ in local_gemms(Share(problem, rank, stationary)):
                for a, b, c, last in group:
                    for block in (a, b):
                        if block.owner != rank:
                            read |= {
                                (block.matrix, i, j)
                                for i in range(block.row0, block.row1)
                                for j in range(block.col0, block.col1)
                            }
                    added += 3 * c.size * (last and c.owner != rank)
            most = max(most, len(read) + added)
        assert busiest_rank(problem, stationary) == most


@pytest.mark.parametrize("kind", [">f4", ">f8"])
def test_arrays_of_the_other_byte_order_are_refused_on_one_rank_too(kind):
    with drbench.init(MPI.COMM_SELF, heap="1M") as ctx:
        for make in (
            lambda: ctx.from_global(np.eye(2, dtype=kind)),
            lambda: ctx.wrap(np.eye(2, dtype=kind), "row", (2, 2)),
            lambda: ctx.empty((2, 2), "row", kind),
            lambda: ctx.zeros((2, 2), "row", np.dtype(kind)),
        ):
            with pytest.raises(UsageError, match="byte order, got '>f.'. Convert the array first"):
                make()


def test_equal_requests_give_one_spec_and_bad_ones_a_line():
    specs = Specs(4, 1)
    one = specs.of((8, 8), "row", "float32")
    assert specs.of([8, 8], "row", np.float32) is one and specs.of((8, 8), one, "f4") is one
    assert specs.of((np.int64(8), 8), "row", "float32") is one
    assert one.T.T is one and one.T.shape == (8, 8) and specs.of((8, 8), "row", "f8") is not one
    for shape, layout, dtype, described in (
        ((8, 8), "rows", "f4", "did you mean row"),
        ((8, 8), "row/c3", "f4", "divides the number of ranks"),
        (
            (8, 8),
            "row",
            "int32",
            "dtype must be one of float32, float64, complex64, complex128, bfloat16; got",
        ),
        ((8, 8), "row", "what", "dtype must be one of float32, "),
        ((8, 9), partition("row", (8, 8), 4), "f4", "is of 8x8 on 4 ranks"),
        ((8, 8), partition("row", (8, 8), 2), "f4", "on 2 ranks"),
        ((8,), "row", "f4", "two extents"),
        ((8, "8"), "row", "f4", "two extents"),
        ((8.0, 8), "row", "float32", "two extents"),  # equal to a request that was granted
        ((8, 8), "row", ">f4", "this machine's byte order, got '>f4'"),
        ((8, 8), "row", np.dtype(">f8"), "this machine's byte order, got '>f8'"),
        ((8, 8), 7, "f4", "a layout is a text or a Partition, got int"),
        ((8, -1), "row", "f4", "layout 'row' of"),
    ):
        with pytest.raises(UsageError, match=described) as error:
            specs.of(shape, layout, dtype)
        assert "\n" not in str(error.value)
