"""GEMM in place on strided views: C = beta·C + alpha·A·B with any leading dimensions, through
NumPy's own BLAS.

``np.matmul`` has no beta and copies strided operands, and SciPy's ``sgemm`` silently copies a
strided C, so the ``cblas_?gemm`` of the library NumPy has already loaded is called through ctypes.
"""

import ctypes
import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import threadpoolctl

from drbench.arrays import address_of
from drbench.errors import UsageError

#: Block of k in OpenBLAS, and the multiple to which it rounds halves of the last two blocks.
_BLOCK_K, _UNROLLED = 384, 16
_ROW_MAJOR, _COLUMN_MAJOR = 101, 102
#: CblasConjNoTrans, which OpenBLAS alone has; then all operations by whether an operand is
#: transposed, and conjugated.
_CONJ_NO_TRANS = 114
_OPERATIONS = {
    (False, False): 111,
    (True, False): 112,
    (True, True): 113,
    (False, True): _CONJ_NO_TRANS,
}
#: (prefix, suffix) of the cblas symbols, and whether their integers have 64 bits.
_SYMBOLS = [
    ("scipy_", "64_", True),
    ("", "64_", True),
    ("", "_64", True),
    ("scipy_", "", False),
    ("", "", False),
]
_ROUTINES = {
    "float32": ("cblas_sgemm", ctypes.c_float),
    "float64": ("cblas_dgemm", ctypes.c_double),
    "complex64": ("cblas_cgemm", ctypes.c_void_p),
    "complex128": ("cblas_zgemm", ctypes.c_void_p),
}


@dataclass(frozen=True)
class BlasInfo:
    """Which BLAS computes: library with version, kernel architecture, and whether calls are in
    place."""

    library: str
    kernel: str
    threading: str = "unknown"
    in_place: bool = True


class Blas:
    """GEMM on row- or column-major views, in place.

    Examples
    --------
    >>> import numpy as np
    >>> blas = load_blas()
    >>> a, b, c = np.ones((2, 3), "f4"), np.ones((3, 4), "f4"), np.zeros((5, 9), "f4")
    >>> blas.gemm(a, b, c[1:3, 2:6], beta=0.0)
    >>> float(c.sum()), c[1, 2:6].tolist()
    (24.0, [3.0, 3.0, 3.0, 3.0])
    """

    def __init__(self, info: BlasInfo, functions: dict):
        self.info = info
        self._functions = functions

    def gemm(self, a, b, c, beta: complex, alpha: complex = 1.0, conjugated: str = "") -> None:
        """c = beta·c + alpha·a·b.

        Parameters
        ----------
        a, b, c : ndarray
            m×k, k×n and m×n, of one dtype, real or complex (others with copies, multiplied as
            NumPy does: bfloat16 in float32, rounded at the end); each contiguous along one axis,
            with any leading dimension along the other: transposed operands are multiplied in
            place. c must not overlap a or b.
        beta : float or complex
            0: c is not read, it may contain NaN.
        alpha : float or complex
            0: a and b are not read.
        conjugated : str
            Of which operands the conjugates are multiplied: ``a``, ``b``, both or none.

        Raises
        ------
        UsageError
            If an operand is contiguous along neither axis.
        """
        self.prepare_gemm(a, b, c, conjugated)(beta, alpha)

    def prepare_gemm(self, a, b, c, conjugated: str = "") -> Callable[[complex, complex], None]:
        """``call_gemm(beta, alpha)`` for three arrays, as described in :meth:`gemm`. Addresses are
        read once, which takes longer than a small GEMM. The function keeps the arrays alive."""
        m, n, k = extents_of(a, b, c)
        function = self._functions.get(c.dtype.char)
        if function is None or not (m and n and k):
            return functools.partial(_by_numpy, a, b, c, conjugated)
        (major_a, ld_a), (major_b, ld_b), (major_c, ld_c) = layout(a), layout(b), layout(c)
        order = _COLUMN_MAJOR if major_c == "column" else _ROW_MAJOR
        of_a = _OPERATIONS[major_a != major_c, "a" in conjugated]
        of_b = _OPERATIONS[major_b != major_c, "b" in conjugated]
        if _CONJ_NO_TRANS in (of_a, of_b) and not self.info.library.startswith("openblas"):
            return functools.partial(_by_numpy, a, b, c, conjugated)
        at_a, at_b, at_c = (address_of(x) for x in (a, b, c))

        def call_gemm(beta: float, alpha: float, operands=(a, b, c)) -> None:
            used = k if alpha else 0  # small GEMMs of OpenBLAS would multiply NaN by 0
            function(order, of_a, of_b, m, n, used, alpha, at_a, ld_a, at_b, ld_b, beta, at_c, ld_c)

        if c.dtype.kind != "c":
            return call_gemm
        factors = np.empty(2, c.dtype)  # cblas takes complex ones by address
        at_beta, at_alpha = address_of(factors), address_of(factors[1:])

        def call_complex(beta: complex, alpha: complex, operands=(a, b, c, factors)) -> None:
            used, factors[0], factors[1] = k if alpha else 0, beta, alpha
            function(
                *(order, of_a, of_b, m, n, used, at_alpha, at_a, ld_a, at_b, ld_b),
                *(at_beta, at_c, ld_c),
            )

        return call_complex


def cuts(k: int, segments: int) -> list[int]:
    """The ends of about ``segments`` segments of k, the last of which is k.

    OpenBLAS loops over k in blocks, for each of which it packs A and B and reads and writes C. A
    cut between two of its blocks costs nothing, a cut inside a block adds a block. So only ends of
    blocks are used (``GEMM_Q`` and ``GEMM_UNROLL_M`` of driver/level3/level3.c for SkylakeX and
    float32; other kernels have blocks of 192 to 384).

    Examples
    --------
    >>> cuts(2048, 8), cuts(2048, 3), cuts(2048, 1), cuts(500, 9)
    ([384, 768, 1152, 1536, 1792, 2048], [768, 1536, 2048], [2048], [256, 500])
    """
    ends = [0]
    while ends[-1] < k:
        left = k - ends[-1]
        if left >= 2 * _BLOCK_K:
            block = _BLOCK_K
        elif left > _BLOCK_K:
            block = -(-(left // 2) // _UNROLLED) * _UNROLLED
        else:
            block = left
        ends.append(ends[-1] + block)
    blocks = len(ends) - 1
    stride = max(1, round(blocks / max(1, segments)))
    return [*ends[stride:blocks:stride], k]


def _by_numpy(a, b, c, conjugated: str, beta: complex, alpha: complex) -> None:
    """c = beta·c + alpha·a·b with copies, or with empty operands."""
    if not c.size:
        return
    a, b = _conjugates(a, b, conjugated)
    if not (alpha and a.shape[1]):
        if beta == 0.0:
            c.fill(0)
        elif beta != 1.0:
            np.multiply(c, beta, out=c)
    else:
        c[...] = alpha * (a @ b) if beta == 0.0 else beta * c + alpha * (a @ b)


def _conjugates(a, b, which: str) -> tuple:
    """The operands of a GEMM, conjugated if they are among ``which``: copies then."""
    return (a.conj() if "a" in which else a), (b.conj() if "b" in which else b)


def extents_of(a, b, c) -> tuple[int, int, int]:
    """m, n and k of a GEMM; a UsageError if its operands do not fit."""
    (m, n), k = c.shape, a.shape[1]
    if a.shape != (m, k) or b.shape != (k, n):
        raise UsageError(f"c = a·b needs m×k, k×n and m×n, got {a.shape}, {b.shape} and {c.shape}.")
    return m, n, k


def layout(x) -> tuple[str, int]:
    """The storage order of a matrix for BLAS, and its leading dimension in elements.

    "row" if x is contiguous along its rows (or has one column), "column" if along its columns. The
    other stride must be a whole number of elements and at least the contiguous extent, or BLAS
    would read other memory than x. The leading dimension is at least the contiguous extent even for
    one row, because BLAS checks it.

    Raises
    ------
    UsageError
        If x is contiguous along neither axis.

    Examples
    --------
    >>> import numpy as np
    >>> whole = np.zeros((4, 9))
    >>> layout(whole[:, 2:5]), layout(whole[:, 2:5].T), layout(whole[:1])
    (('row', 9), ('column', 9), ('row', 9))
    """
    step, shape, strides = x.itemsize, x.shape, x.strides
    for major, along, across in (("row", 1, 0), ("column", 0, 1)):
        extent = shape[along]
        if strides[along] == step or extent <= 1:
            stride, rest = divmod(strides[across], step)
            if shape[across] <= 1 or (stride >= extent and not rest):
                return major, max(stride, extent, 1)
    raise UsageError(
        f"GEMM needs an operand contiguous along one axis; got strides {strides} for {step} bytes."
    )


class GivenBlas:
    """An object with ``gemm`` alone, such as a user's own, as executors call it."""

    def __init__(self, given):
        self._gemm = given.gemm

    def prepare_gemm(self, a, b, c, conjugated: str = "") -> Callable[[complex, complex], None]:
        return lambda beta, alpha: self.gemm(a, b, c, beta, alpha, conjugated)

    def gemm(self, a, b, c, beta: complex, alpha: complex = 1.0, conjugated: str = "") -> None:
        self._gemm(*_conjugates(a, b, conjugated), c, beta, alpha)


@functools.cache
def load_blas() -> Blas:
    """The BLAS that NumPy has loaded; NumPy itself (with copies) if its symbols are not
    accessible."""
    # NumPy's own before SciPy's
    for pool in sorted(blas_pools(), key=lambda pool: "numpy" not in pool["filepath"]):
        blas = blas_in(pool["filepath"], pool)
        if blas is not None:
            return blas
    return Blas(BlasInfo(f"numpy {np.__version__} matmul", "unknown", in_place=False), {})


def blas_pools() -> list[dict]:
    """The BLAS libraries that this process has loaded, as threadpoolctl describes them."""
    return [pool for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"]


def blas_in(path: str, pool: dict) -> Blas | None:
    """The BLAS of a library, described as one of :func:`blas_pools`; None if it has no cblas."""
    library = ctypes.CDLL(path)
    name = f"{pool['internal_api']} {pool['version'] or ''}".strip()
    kernel, threading = (pool.get(key) or "unknown" for key in ("architecture", "threading_layer"))
    for prefix, suffix, wide in _SYMBOLS:
        functions = {}
        for dtype, (routine, real) in _ROUTINES.items():
            function = getattr(library, prefix + routine + suffix, None)
            if function is not None:
                functions[np.dtype(dtype).char] = _set_types(
                    function, real, ctypes.c_int64 if wide else ctypes.c_int
                )
        if len(functions) == len(_ROUTINES):
            return Blas(BlasInfo(name, kernel, threading), functions)
    return None


def _set_types(function, real, integer):
    pointer, enum = ctypes.c_void_p, ctypes.c_int
    function.restype = None
    function.argtypes = (
        [enum] * 3
        + [integer] * 3
        + [real, pointer, integer, pointer, integer, real, pointer, integer]
    )
    return function
