"""GEMM in place on any strided view, against NumPy on integers."""

import itertools
import weakref

import numpy as np
import pytest
from bordered import BORDER, bordered
from hypothesis import given
from hypothesis import strategies as st

from drbench.errors import UsageError
from drbench.host.blas import Blas, BlasInfo, GivenBlas, cuts, load_blas

LOADED = load_blas()
FALLBACK = Blas(BlasInfo("none", "unknown", in_place=False), {})
#: By columns or by rows, and the padding around.
LAYOUTS = list(itertools.product([False, True], [0, 3]))

both = pytest.mark.parametrize("blas", [LOADED, FALLBACK], ids=["blas", "numpy"])
real = pytest.mark.parametrize("dtype", ["float32", "float64"])


def check_multiply(blas, m, n, k, layouts, dtype, beta, seed=0):
    """Multiply integers in place and check the result; the operands and all memory around the
    three matrices do not change."""
    rng = np.random.default_rng(seed)
    x, y, z = (rng.integers(-8, 9, shape) for shape in ((m, k), (k, n), (m, n)))
    (a, *around_a), (b, *around_b), (c, *around_c) = (
        bordered(values, dtype, column_major, edge, edge, edge)
        for values, (column_major, edge) in zip((x, y, z), layouts)
    )
    if beta == 0:
        c[...] = np.nan
    blas.gemm(a, b, c, beta)
    assert (c == np.matmul(x, y) + (z if beta else 0)).all()
    assert (a == x).all() and (b == y).all()
    for whole, outside in (around_a, around_b, around_c):
        assert (whole[outside] == BORDER).all()


@both
@real
@pytest.mark.parametrize("beta", [0.0, 1.0])
def test_every_combination_of_layouts_multiplies_in_place(beta, dtype, blas):
    """Single rows and columns have a leading dimension too."""
    shapes = [
        (5, 7, 6),
        (40, 33, 37),
        *(shape for shape in itertools.product([1, 4], repeat=3) if 1 in shape),
    ]
    for layouts, shape in itertools.product(itertools.product(LAYOUTS, repeat=3), shapes):
        check_multiply(blas, *shape, layouts, dtype, beta)


@pytest.mark.parametrize("across", [False, True])
def test_a_single_column_or_row_of_a_matrix_with_gaps_is_multiplied_in_place(across):
    whole = np.arange(42.0).reshape(6, 7)
    column, row, c = whole[::2, ::3][:, :1], np.ones((1, 4)), np.full((3, 4), np.nan)
    a, b, out = (row.T, column.T, c.T) if across else (column, row, c)
    LOADED.gemm(a, b, out, 0.0)
    assert (c == np.array([[0.0], [14.0], [28.0]])).all()


@given(st.integers(0, 6000), st.integers(0, 30))
def test_cuts_along_k_add_no_block_and_are_about_as_many_as_wanted(k, segments):
    """OpenBLAS cuts the segments into as many blocks as the whole GEMM: the rule of its
    driver/level3/level3.c, applied here to each segment."""

    def blocks(low, high):
        while low < high:
            left = high - low
            step = 384 if left >= 768 else (left // 2 + 15) // 16 * 16 if left > 384 else left
            yield step
            low += step

    ends = cuts(k, segments)
    assert ends[-1] == k and ends == sorted({*ends})
    parts = [block for ends in zip([0, *ends], ends) for block in blocks(*ends)]
    whole = [*blocks(0, k)]
    assert len(parts) == len(whole)
    assert len(ends) <= max(1, 2 * segments) and len(ends) >= min(len(whole), segments) / 2


@both
@real
@pytest.mark.parametrize("beta, before, after", [(1.0, 5, 5), (0.0, np.nan, 0)])
def test_an_empty_inner_extent_leaves_beta_times_c(beta, before, after, dtype, blas):
    """BLAS itself is not called for k = 0, and ``c *= 0`` would keep NaN."""
    c = np.full((2, 3), before, dtype)
    blas.gemm(np.empty((2, 0), dtype), np.empty((0, 3), dtype), c, beta)
    assert (c == after).all()


@both
@real
@pytest.mark.parametrize("beta, before, after", [(1.0, 5, 5), (2.0, 5, 10), (0.0, np.nan, 0)])
def test_with_alpha_0_the_operands_are_not_read(beta, before, after, dtype, blas):
    for m, n, k in itertools.product([1, 5, 33, 200], repeat=3):
        c = np.full((m, n), before, dtype)
        blas.gemm(np.full((m, k), np.nan, dtype), np.full((k, n), np.inf, dtype), c, beta, 0.0)
        assert (c == after).all()


@both
@pytest.mark.parametrize("m, n", [(0, 3), (3, 0), (0, 0)])
def test_an_empty_result_is_harmless(m, n, blas):
    c = np.empty((m, n), "f4")
    blas.gemm(np.ones((m, 2), "f4"), np.ones((2, n), "f4"), c, 0.0)
    assert c.shape == (m, n)


def strided_in_both():
    return np.ones((8, 8), "f4")[::2, ::2]


def reversed_columns():
    return np.ones((4, 8), "f4")[:, 7:3:-1]


@pytest.mark.parametrize("operand", range(3))
@pytest.mark.parametrize("make", [strided_in_both, reversed_columns])
def test_an_operand_contiguous_along_neither_axis_is_refused_with_a_message(make, operand):
    operands = [np.ones((4, 4), "f4") for _ in range(3)]
    operands[operand] = make()
    with pytest.raises(UsageError, match="contiguous along one axis; got strides"):
        LOADED.gemm(*operands, 0.0)


def reversed_rows(memory):
    return memory[16:32].reshape(4, 4)[::-1]


def one_row_repeated(memory):
    return np.broadcast_to(memory[:4], (4, 4))


def overlapping_rows(memory):
    return np.lib.stride_tricks.sliding_window_view(memory[:7], 4)


@pytest.mark.parametrize("operand", range(2))
@pytest.mark.parametrize("make", [reversed_rows, one_row_repeated, overlapping_rows])
def test_rows_that_run_backwards_or_overlap_are_refused_or_right_but_never_misread(make, operand):
    """BLAS knows only leading dimensions of a row or more; with an invented one, BLAS reads
    ``a[::-1]`` beyond the operand."""
    memory = np.arange(64, dtype="f4")  # also has the elements that would be misread
    operands = [np.eye(4, dtype="f4"), np.eye(4, dtype="f4")]
    operands[operand] = view = make(memory)
    c = np.zeros((4, 4), "f4")
    try:
        LOADED.gemm(*operands, c, 0.0)
    except UsageError:
        return
    assert (c == view).all()


def test_the_blas_of_this_numpy_is_found_and_multiplies_in_place():
    assert LOADED.info.in_place and LOADED.info.library and LOADED.info.kernel
    assert not FALLBACK.info.in_place


def test_a_prepared_gemm_keeps_its_operands_alive():
    """It stores only their addresses, which later arrays could get."""
    a, b, c = (np.ones((64, 64)) for _ in range(3))
    multiply, kept = load_blas().prepare_gemm(a, b, c), [weakref.ref(each) for each in (a, b, c)]
    del a, b
    multiply(0.0, 1.0)
    assert all(each() is not None for each in kept) and (c == 64).all()


class Plain:
    """A user's own BLAS: it knows no conjugates."""

    def gemm(self, a, b, c, beta, alpha=1.0, conjugated=""):
        c[...] = alpha * (a @ b) + (beta * c if beta else 0)


@pytest.mark.parametrize("dtype", ["c8", "c16"])
@pytest.mark.parametrize("conjugated", ["", "a", "b", "ab"])
@pytest.mark.parametrize("orders", ["CC", "CF", "FC", "FF"])
@pytest.mark.parametrize("of", ["loaded", "other", "numpy", "given"])
def test_conjugates_of_rows_and_columns_are_multiplied_by_every_blas(of, orders, conjugated, dtype):
    """By one without CblasConjNoTrans, too, which is OpenBLAS's own."""
    info = BlasInfo("another 1.0", "unknown")
    blas = {
        "loaded": LOADED,
        "other": Blas(info, LOADED._functions),
        "numpy": Blas(info, {}),
        "given": GivenBlas(Plain()),
    }[of]
    rng = np.random.default_rng(0)
    draw = lambda *shape: rng.integers(-4, 5, shape) + 1j * rng.integers(-4, 5, shape)
    a, b = (
        np.array(draw(*shape), dtype, order=order) for shape, order in zip(((3, 5), (5, 4)), orders)
    )
    c = draw(3, 4).astype(dtype)
    left, right = (x.conj() if name in conjugated else x for name, x in (("a", a), ("b", b)))
    wanted = (1 - 2j) * (left @ right) + (2 + 1j) * c
    blas.prepare_gemm(a, b, c, conjugated)(2 + 1j, 1 - 2j)
    assert np.array_equal(c, wanted)
