"""GEMM in place on strided views: C = beta·C + A·B with any leading dimensions, through NumPy's own BLAS.

``np.matmul`` has no beta and copies strided operands, and SciPy's ``sgemm`` silently copies a strided C, so the
``cblas_?gemm`` of the library NumPy has already loaded is called through ctypes.
"""

from __future__ import annotations

import ctypes
import functools
from dataclasses import dataclass

import numpy as np
import threadpoolctl

from .errors import UsageError

__all__ = ["Blas", "BlasInfo", "load_blas", "major", "leading_dimension"]

_ROW_MAJOR, _COLUMN_MAJOR, _NO_TRANS, _TRANS = 101, 102, 111, 112
#: (prefix, suffix) of the cblas symbols, and whether their integers have 64 bits.
_SYMBOLS = [("scipy_", "64_", True), ("", "64_", True), ("", "_64", True), ("scipy_", "", False), ("", "", False)]
_ROUTINES = {"float32": ("cblas_sgemm", ctypes.c_float), "float64": ("cblas_dgemm", ctypes.c_double)}


@dataclass(frozen=True)
class BlasInfo:
    """Which BLAS computes: library with version, kernel architecture, and whether calls are in place."""

    library: str
    kernel: str
    threading: str
    in_place: bool


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

    def gemm(self, a, b, c, beta: float) -> None:
        """c = beta·c + a·b.

        Parameters
        ----------
        a, b, c : ndarray
            m×k, k×n and m×n, of one dtype (float32 or float64); each contiguous along one axis, with any leading
            dimension along the other. c must not overlap a or b.
        beta : float
            0 (c is not read: it may hold NaN) or 1.

        Raises
        ------
        UsageError
            If an operand is contiguous along neither axis.
        """
        (m, n), k = c.shape, a.shape[1]
        if not (m and n):
            return
        if not k:
            if beta == 0.0:
                c.fill(0)
            return
        function = self._functions.get(c.dtype.char)
        if function is None:
            c[...] = a @ b if beta == 0.0 else beta * c + a @ b
            return
        by_column = major(c) == "column"
        order = _COLUMN_MAJOR if by_column else _ROW_MAJOR
        trans_a = _NO_TRANS if (major(a) == "column") == by_column else _TRANS
        trans_b = _NO_TRANS if (major(b) == "column") == by_column else _TRANS
        function(order, trans_a, trans_b, m, n, k, 1.0, a.ctypes.data, leading_dimension(a), b.ctypes.data, leading_dimension(b), beta,
                 c.ctypes.data, leading_dimension(c))


def major(x) -> str:
    """"row" if x is contiguous along its rows (or has one column), "column" if along its columns.

    The other stride must be a whole number of elements and at least the contiguous extent, or BLAS would read
    other memory than x.
    """
    step = x.itemsize
    for name, along, across in (("row", 1, 0), ("column", 0, 1)):
        if x.strides[along] == step or x.shape[along] <= 1:
            stride, rest = divmod(x.strides[across], step)
            if x.shape[across] <= 1 or (stride >= x.shape[along] and not rest):
                return name
    raise UsageError(f"GEMM needs an operand contiguous along one axis; got strides {x.strides} for {x.itemsize} bytes.")


def leading_dimension(x) -> int:
    """Leading dimension of a matrix in elements, at least the contiguous extent (BLAS checks it even for one row)."""
    if major(x) == "row":
        return max(x.strides[0] // x.itemsize, x.shape[1], 1)
    return max(x.strides[1] // x.itemsize, x.shape[0], 1)


@functools.cache
def load_blas() -> Blas:
    """The BLAS that NumPy has loaded; NumPy itself (with copies) where its symbols cannot be reached."""
    pools = [pool for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"]
    pools.sort(key=lambda pool: "numpy" not in pool["filepath"])       # NumPy's own before SciPy's
    for pool in pools:
        library = ctypes.CDLL(pool["filepath"])
        name = f"{pool['internal_api']} {pool['version'] or ''}".strip()
        info = BlasInfo(name, pool.get("architecture") or "unknown", pool.get("threading_layer") or "unknown", True)
        for prefix, suffix, wide in _SYMBOLS:
            functions = {}
            for dtype, (routine, real) in _ROUTINES.items():
                function = getattr(library, prefix + routine + suffix, None)
                if function is not None:
                    functions[np.dtype(dtype).char] = _typed(function, real, ctypes.c_int64 if wide else ctypes.c_int)
            if len(functions) == len(_ROUTINES):
                return Blas(info, functions)
    return Blas(BlasInfo(f"numpy {np.__version__} matmul", "unknown", "unknown", False), {})


def _typed(function, real, integer):
    pointer, enum = ctypes.c_void_p, ctypes.c_int
    function.restype = None
    function.argtypes = [enum] * 3 + [integer] * 3 + [real, pointer, integer, pointer, integer, real, pointer, integer]
    return function
