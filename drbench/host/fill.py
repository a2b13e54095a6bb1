"""Matrix elements from a hash of (seed, matrix, i, j): the same under every partition, computed by
their owner.

``integer`` fill makes small integers so that every partial sum of every GEMM is exact in the
accumulator (k·vmax² < 2²⁴ for float32, and the same bound for float64; with alpha and beta
|alpha|·k·vmax² + |beta|·vmax); ``uniform`` makes multiples of 2⁻²³ in [-1, 1). Both parts of a
complex element are made so; each part of an element of C is the sum of 2k products.

Integers of bfloat16 are -1, 0 and 1, with so many zeros that elements of C are integers of at most
256, which bfloat16 stores exactly. So results in bfloat16 are checked without tolerance too, and
contenders with a C of another type multiply the same elements.
"""

import math
from collections.abc import Iterator

import numpy as np

from drbench.errors import UsageError
from drbench.program.problem import REAL_OF

_EXACT = 1 << 24
_SALT = {"A": 0x9E3779B9, "B": 0x85EBCA6B, "C": 0xC2B2AE35}
#: Of the imaginary parts of complex elements.
_SALT |= {f"{name} imaginary": salt ^ 0x5BD1E995 for name, salt in _SALT.items()}
#: Elements hashed at a time: the working set stays in cache.
_CHUNK = 1 << 16
#: Elements converted to float64 at a time.
_PART = 1 << 20


def integer_bound(k: int, alpha: float = 1.0, beta: float = 0.0, products: int = 1) -> int:
    """Largest absolute value vmax such that |alpha|·products·k·vmax² + |beta|·vmax < 2²⁴, at most
    8; a part of a complex number sums two products for each element of k.

    Raises
    ------
    UsageError
        If not even 1 is exact (products·k ≥ 2²⁴), or alpha or beta is not a whole number.

    Examples
    --------
    >>> integer_bound(768), integer_bound(10**6), integer_bound(10**6, -3, 2)
    (8, 4, 2)
    >>> integer_bound(10**6, products=2)
    2
    """
    if alpha != int(alpha) or beta != int(beta):
        raise UsageError(
            f"-o fill=integer is exact with whole alpha and beta, got {alpha:g} and {beta:g}. Use "
            "-o fill=uniform."
        )
    fits = lambda bound: abs(alpha) * products * k * bound**2 + abs(beta) * bound < _EXACT
    bound = max(filter(fits, range(1, 9)), default=0)
    if not bound:
        more = f", alpha = {alpha:g}, beta = {beta:g}" if (alpha, beta) != (1, 0) else ""
        raise UsageError(
            f"-o fill=integer is exact up to k < 2**{25 - products}, got k = {k}{more}. Use -o "
            "fill=uniform."
        )
    return bound


def sparse_levels(k: int) -> int:
    """The number of equally frequent integers around 0 of which only -1, 0 and 1 are kept, such
    that 256 is at least eight standard deviations of an element of C, 2·sqrt(k)/levels.

    Examples
    --------
    >>> sparse_levels(256), sparse_levels(8192), sparse_levels((1 << 24) - 1)
    (3, 7, 255)
    """
    return min(max(3, math.ceil(math.sqrt(k) / 16) | 1), 255)


def parts(start: int, stop: int, width: int, most: int = _PART) -> Iterator[tuple[int, int]]:
    """Rows [start, stop) in ranges of about ``most`` elements, each row having ``width``.

    Examples
    --------
    >>> list(parts(2, 9, 10, most=30))
    [(2, 5), (5, 8), (8, 9)]
    """
    step = max(1, most // max(1, width))
    return ((low, min(low + step, stop)) for low in range(start, stop, step))


def _mix(x: np.ndarray) -> np.ndarray:
    """A 32-bit finaliser (two xor-shift-multiply rounds) in place; every output bit depends on
    every input bit."""
    x ^= x >> np.uint32(16)
    x *= np.uint32(0x7FEB352D)
    x ^= x >> np.uint32(15)
    x *= np.uint32(0x846CA68B)
    x ^= x >> np.uint32(16)
    return x


class Fill:
    """The elements of A, B and (if C is updated) C for one seed.

    Parameters
    ----------
    kind : str
        ``"integer"`` or ``"uniform"``.
    seed : int
    k : int
        Inner extent, which bounds the integers.
    alpha, beta : float
        Of the multiplication, which also bound them: C = alpha·A·B + beta·C.
    dtype : str
        The type of A and B.
    terms : int
        Of a pending sum of C, each of which is filled.

    Raises
    ------
    UsageError
        If C could not be stored, or not be exact.

    Attributes
    ----------
    alpha, beta : float
        As the element type has them.
    wide : dtype
        The type in which results are checked: float64, or complex128.
    bound : int
        Largest absolute value of an integer.
    levels : int
        Equally frequent integers that are drawn; those beyond the bound are replaced by 0.

    Examples
    --------
    The same element under every partition:

    >>> import numpy as np
    >>> fill, whole = Fill("integer", 0, k=64), np.empty((9, 7), "f4")
    >>> fill.into(whole, "A", 0, 0)
    >>> corner = np.empty((3, 2), "f4")
    >>> fill.into(corner, "A", 6, 5)
    >>> bool((corner == whole[6:, 5:]).all()), float(abs(whole).max()) <= 8
    (True, True)
    """

    def __init__(
        self,
        kind: str,
        seed: int,
        k: int,
        alpha: float = 1.0,
        beta: float = 0.0,
        dtype: str = "float32",
        terms: int = 1,
    ):
        if kind not in ("integer", "uniform"):
            raise UsageError(f"fill must be integer or uniform, got {kind!r}.")
        self.kind = kind
        self.seed = seed
        real = np.dtype(REAL_OF.get(dtype, "float64" if dtype == "float64" else "float32"))
        products = 2 if dtype in REAL_OF else 1
        most, largest = abs(alpha) * products * k + abs(beta) * terms, float(np.finfo(real).max)
        if most > largest:  # uniform elements are at most 1
            raise UsageError(
                f"alpha = {alpha:g} and beta = {beta:g}: elements of C may be as large as "
                f"{most:g}, and {real} ends at {largest:g}. Use smaller ones."
            )
        self.alpha, self.beta = float(real.type(alpha)), float(real.type(beta))
        self.wide = np.dtype("complex128" if dtype in REAL_OF else "float64")
        self.bound = integer_bound(k, alpha, beta, products) if kind == "integer" else 1
        self.levels = 2 * self.bound + 1
        if dtype.startswith("bfloat16"):
            self.bound, self.levels = 1, sparse_levels(k)

    def into(self, out: np.ndarray, matrix: str, row0: int, col0: int) -> None:
        """Write elements [row0, row0 + rows) × [col0, col0 + columns) of a matrix into ``out``.

        A and B are the operands op(A) and op(B): an element of op(A) is the same whether A is
        stored transposed or not, and so is C.
        """
        if out.dtype.kind == "c":
            self.into(out.real, matrix, row0, col0)
            self.into(out.imag, f"{matrix} imaginary", row0, col0)
            return
        salt = np.uint32(self.salt(matrix))
        rows = _mix(np.arange(row0, row0 + out.shape[0], dtype=np.uint32) ^ salt)
        cols = _mix(np.arange(col0, col0 + out.shape[1], dtype=np.uint32) + salt)
        # not the rows' hash, or they would cancel where the two agree
        cols *= np.uint32(0x9E3779B1)
        cols += np.uint32(0x7F4A7C15)
        if out.strides[0] < out.strides[1]:  # stored transposed: in the order of memory
            out, rows, cols = out.T, cols, rows
        for top, stop in parts(0, *out.shape, _CHUNK):
            x = rows[top:stop, None] ^ cols[None, :]
            x *= np.uint32(0x9E3779B1)
            x ^= x >> np.uint32(15)
            x *= np.uint32(0x85EBCA77)
            x >>= np.uint32(8)  # 24 good bits
            part = out[top:stop]
            if self.kind == "integer":
                x *= np.uint32(self.levels)  # 24 bits · at most 255 fits in 32
                x >>= np.uint32(24)
                part[...] = x
                part -= self.levels // 2
                if self.levels > 2 * self.bound + 1:
                    part[np.abs(part) > self.bound] = 0
            else:
                part[...] = x
                part *= part.dtype.type(2.0**-23)
                part -= part.dtype.type(1.0)

    def salt(self, matrix: str) -> int:
        """The 32 bits in which the hashes of two seeds or matrices differ."""
        return (_SALT[matrix] ^ (self.seed * 0x27D4EB2F)) & 0xFFFFFFFF

    def rows(self, matrix: str, row0: int, row1: int, columns: int) -> np.ndarray:
        """Rows [row0, row1) of a matrix with ``columns`` columns, in the type of the check."""
        out = np.empty((row1 - row0, columns), self.wide)
        self.into(out, matrix, row0, 0)
        return out


class HostElements:
    """Operations on elements for verification, by NumPy. A :class:`~drbench.device.base.Device` has
    the same for its memory."""

    @staticmethod
    def times(tile: np.ndarray, x: np.ndarray) -> np.ndarray:
        """tile · x in float64, or complex128."""
        out = np.empty((tile.shape[0], x.shape[1]), "c16" if tile.dtype.kind == "c" else "f8")
        for top, stop in parts(0, *tile.shape):
            out[top:stop] = tile[top:stop].astype(out.dtype) @ x
        return out

    @staticmethod
    def hashed_times(
        fill: Fill, matrix: str, row0: int, row1: int, columns: int, x: np.ndarray
    ) -> np.ndarray:
        """Rows [row0, row1) of A or B, regenerated from their hash, times x."""
        out = np.empty((row1 - row0, x.shape[1]), fill.wide)
        for top, stop in parts(row0, row1, columns):
            out[top - row0 : stop - row0] = fill.rows(matrix, top, stop, columns) @ x
        return out

    @staticmethod
    def all_finite(tile: np.ndarray, whole: bool = False) -> bool:
        """Whether no element is NaN or infinite, nor (if ``whole``) has a fraction."""
        regions = (tile[top:stop] for top, stop in parts(0, *tile.shape))
        return all((x - (np.rint(x) if whole else x) == 0).all() for x in regions)

    @staticmethod
    def rows_of(tile: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Some rows of a tile."""
        return tile[rows]
