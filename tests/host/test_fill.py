"""Matrix elements from a hash: the same under every partition, exact, and without a pattern."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drbench.errors import UsageError
from drbench.host.fill import Fill, integer_bound

KINDS = ["integer", "uniform"]
kinds = pytest.mark.parametrize("kind", KINDS)
ROWS, COLS = 300, 260  # more elements than are hashed at a time


def whole(kind="integer", seed=0, matrix="A", rows=ROWS, cols=COLS, dtype="f8", k=64):
    out = np.full((rows, cols), np.nan, dtype)
    Fill(kind, seed, k).into(out, matrix, 0, 0)
    return out


# -- the same under every partition
# ----------------------------------------------------------------------------------


@kinds
@settings(max_examples=100, deadline=None)
@given(
    row=st.tuples(st.integers(0, ROWS - 1), st.integers(0, ROWS)),
    col=st.tuples(st.integers(0, COLS - 1), st.integers(0, COLS)),
)
def test_any_region_holds_the_same_elements_as_the_whole_matrix(kind, row, col):
    row0, row1 = row[0], min(ROWS, row[0] + row[1])
    col0, col1 = col[0], min(COLS, col[0] + col[1])
    region = np.full((row1 - row0, col1 - col0), np.nan)
    Fill(kind, 0, 64).into(region, "A", row0, col0)
    assert (region == whole(kind)[row0:row1, col0:col1]).all()


@kinds
def test_both_dtypes_and_strided_views_hold_the_same_elements(kind):
    double = whole(kind)
    assert (whole(kind, dtype="f4") == double).all()
    around = np.full((ROWS + 2, COLS + 5), -77.0)
    Fill(kind, 0, 64).into(around[1:-1, 2:-3], "A", 0, 0)
    assert (around[1:-1, 2:-3] == double).all()
    around[1:-1, 2:-3] = -77.0
    assert (around == -77.0).all()


@kinds
def test_a_row_longer_than_what_is_hashed_at_a_time_is_filled(kind):
    long = np.full((2, 70_000), np.nan)
    Fill(kind, 0, 64).into(long, "B", 5, 0)
    end = np.empty((1, 3))
    Fill(kind, 0, 64).into(end, "B", 6, 69_997)
    assert not np.isnan(long).any() and (long[1:, 69_997:] == end).all()


@kinds
def test_rows_are_those_of_the_whole_matrix_in_float64(kind):
    rows = Fill(kind, 0, 64).rows("A", 10, 20, COLS)
    assert rows.dtype == np.float64 and (rows == whole(kind)[10:20]).all()


# -- the values, computed differently
# ----------------------------------------------------------------------------------------------


def mixed(x):
    """Wellons' lowbias32 on a Python integer."""
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x ^= x >> shift
        x = x * factor % 2**32
    return x ^ x >> 16


def element(kind, seed, matrix, i, j, k=64):
    """One element by integer arithmetic alone: 24 bits of a hash of (seed, matrix, i, j), scaled to
    the range."""
    salt = {"A": 0x9E3779B9, "B": 0x85EBCA6B}[matrix] ^ seed * 0x27D4EB2F % 2**32
    row = mixed(i % 2**32 ^ salt)
    col = (mixed((j + salt) % 2**32) * 0x9E3779B1 + 0x7F4A7C15) % 2**32
    x = (row ^ col) * 0x9E3779B1 % 2**32
    x = (x ^ x >> 15) * 0x85EBCA77 % 2**32 >> 8
    if kind == "uniform":
        return Fraction(x, 2**23) - 1
    bound = max(v for v in range(1, 9) if k * v * v < 2**24)
    return x * (2 * bound + 1) // 2**24 - bound


@kinds
@pytest.mark.parametrize("matrix", "AB")
@pytest.mark.parametrize("seed", [0, 1, 7, 2**31, 2**40 + 3])
def test_elements_are_those_of_integer_arithmetic(kind, matrix, seed):
    """Fill makes both the operands and the reference of runs: this oracle is independent of it."""
    for row0, col0, k in ((0, 0, 64), (299, 1000, 10**6), (2**31 - 2, 2**32 - 9, 2**24 - 1)):
        values = np.empty((4, 5))
        Fill(kind, seed, k).into(values, matrix, row0, col0)
        for (i, j), value in np.ndenumerate(values):
            assert value == element(kind, seed, matrix, row0 + i, col0 + j, k)


# -- exact
# -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [64, 257, 8192, 28672, 300_000])
def test_elements_of_bfloat16_are_sparse_and_their_sums_exact_in_bfloat16(k):
    """Elements by integer arithmetic: of ``levels`` integers around 0 all but -1, 0 and 1 become
    0, with the fewest levels whose sums stay far below 256, above which bfloat16 rounds."""
    rows = min(40, 4_000_000 // k)
    a, b = np.empty((rows, k)), np.empty((k, rows))
    for matrix, values in (("A", a), ("B", b)):
        Fill("integer", 3, k, dtype="bfloat16:float32").into(values, matrix, 0, 0)
    levels = next(each for each in range(3, 256, 2) if 8 * 2 * k**0.5 / each <= 256)
    for (i, j), value in np.ndenumerate(a[:3, :5]):
        x = (element("uniform", 3, "A", i, j) + 1) * 2**23
        level = int(x) * levels // 2**24 - levels // 2
        assert value == (level if abs(level) < 2 else 0)
    for values in (a, b):
        assert set(np.unique(values)) == {-1, 0, 1}
        assert abs((values != 0).mean() - 2 / levels) < 0.02
    assert abs(a @ b).max() <= 256 and (k < 1000 or abs(a @ b).max() > 40)


def largest_exact(k):
    return max((v for v in range(1, 9) if k * v * v < 2**24), default=None)


@pytest.mark.parametrize("v", range(1, 9))
def test_the_bound_is_the_largest_integer_whose_sums_are_exact(v):
    edge = (2**24 - 1) // (v * v)  # the largest k at which v is exact
    for k in (1, 2, edge - 1, edge, edge + 1, edge + 2):
        if largest_exact(k) is None:
            with pytest.raises(UsageError, match="uniform"):
                integer_bound(k)
        else:
            assert integer_bound(k) == largest_exact(k)


def test_too_long_a_sum_is_refused_with_the_remedy():
    with pytest.raises(UsageError, match=r"k < 2\*\*24, got k = 16777216. Use -o fill=uniform"):
        Fill("integer", 0, 2**24)
    with pytest.raises(UsageError, match=r"k < 2\*\*23, got k = 8388608\. "):
        Fill("integer", 0, 2**23, dtype="complex64")
    Fill("uniform", 0, 2**24)
    with pytest.raises(UsageError, match="integer or uniform, got 'ones'"):
        Fill("ones", 0, 4)


# -- without a pattern
# -----------------------------------------------------------------------------------------------


@kinds
def test_rows_columns_and_neighbours_are_uncorrelated(kind):
    values = whole(kind, rows=512, cols=512)
    values = (values - values.mean()) / values.std()
    bound = 5 / 512  # five standard deviations of the correlation of 512² pairs
    for shifted in (
        np.roll(values, 1, 0),
        np.roll(values, 1, 1),
        np.roll(values, 8, 0),
        np.roll(values, 64, 1),
    ):
        assert abs((values * shifted).mean()) < bound
    assert abs(values.mean(0)).max() < 6 / 512**0.5 and abs(values.mean(1)).max() < 6 / 512**0.5
