"""Rows of a library matrix are padded on cores, which only its strides show."""

import numpy as np
import pytest
from mpi4py import MPI

import drbench


@pytest.fixture
def ctx():
    with drbench.init(MPI.COMM_SELF, heap="16M") as made:
        yield made


@pytest.mark.parametrize("columns", [256, 300, 1024])
def test_the_row_stride_is_an_odd_number_of_cache_lines(ctx, columns):
    made = ctx.zeros((5, columns), "row")
    lines, rest = divmod(made.local.strides[0], 64)
    assert not rest and lines % 2 and 4 * columns <= 64 * lines < 4 * columns + 128
    assert made.local.shape == (5, columns) and made.location[1:] == made.local.strides


def test_short_rows_and_wrapped_arrays_are_not_padded(ctx):
    assert ctx.zeros((5, 255), "row").local.flags.c_contiguous
    own = ctx.heap.array((5, 1024), np.dtype("f4"))
    assert own.flags.c_contiguous and ctx.wrap(own, "row", (5, 1024)).local.strides == (4096, 4)


@pytest.mark.parametrize("order", "CF")
def test_multiplications_sums_and_other_layouts_of_padded_matrices_are_exact(ctx, order):
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-4, 5, shape).astype("f4") for shape in ((300, 520), (520, 410)))
    A, B = ctx.wrap(np.asarray(a, order=order), "row", a.shape), ctx.from_global(b, "column")
    C = ctx.multiply(A, B, out="tiles:32x48")
    assert C.local.strides[0] > 4 * 410 and np.array_equal(C.to_global(), a @ b)
    ctx.multiply(A[:, 10:], B[10:], out=C, beta=2.0)
    found = drbench.redistribute(C, "row", copy=True)
    assert np.array_equal(found.to_global(), 2 * (a @ b) + a[:, 10:] @ b[10:])


def test_the_heap_counts_the_padding(ctx):
    before = ctx.heap.taken
    made = ctx.zeros((64, 1024), "row")
    assert ctx.heap.taken - before == 64 * made.local.strides[0] == 64 * 4160
