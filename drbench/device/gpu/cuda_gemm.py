"""cuBLAS on row- or column-major views in place: the call of :class:`drbench.host.blas.Blas` by
``cublasGemmEx``."""

import functools
import os
from ctypes import CDLL, c_int, c_void_p
from typing import NamedTuple

import numpy as np

from drbench.errors import CaseFailed, OutOfMemory, UnsupportedError
from drbench.host.blas import extents_of, layout

_NO_TRANS, _TRANS = 0, 1
_LARGEST = (1 << 31) - 1  # m, n, k and leading dimensions are 32-bit integers
#: cudaDataType of each dtype.
_DATA_TYPES = {"float32": 0, "float64": 1, "bfloat16": 14}
#: (a and b, c) -> cublasComputeType, dtype of alpha and beta.
_COMPUTE_TYPES = {
    ("float32", "float32"): (68, "float32"),
    ("float64", "float64"): (70, "float64"),
    ("bfloat16", "float32"): (68, "float32"),
}
_TF32 = 77
_DEFAULT_ALGORITHM = -1
_ALLOC_FAILED = 3  # CUBLAS_STATUS_...
NO_WORKSPACE = "the device has no memory left for a workspace of cuBLAS"


class GemmCall(NamedTuple):
    """C = op(A)·op(B) for a column-major BLAS: matrices are addresses with leading dimensions in
    elements."""

    transa: int
    transb: int
    m: int
    n: int
    k: int
    a: int
    lda: int
    b: int
    ldb: int
    c: int
    ldc: int


def gemm_call(a, b, c) -> GemmCall:
    """The arguments of a column-major GEMM for c = a·b on views contiguous along either axis.

    A row-major c is the transpose of the result of a column-major GEMM: Cᵀ = Bᵀ·Aᵀ, so the operands
    are exchanged.

    Raises
    ------
    UsageError
        If an operand is contiguous along neither axis.
    UnsupportedError
        If an extent or leading dimension does not fit 32 bits.

    Examples
    --------
    >>> import numpy as np
    >>> a, b, c = np.zeros((2, 3)), np.zeros((4, 3)).T, np.zeros((2, 10))[:, :4]
    >>> call = gemm_call(a, b, c)
    >>> (call.transa, call.transb), (call.m, call.n, call.k), (call.lda, call.ldb, call.ldc)
    ((1, 0), (4, 2, 3), (3, 3, 10))
    """
    m, n, k = extents_of(a, b, c)
    (major_a, ld_a), (major_b, ld_b), (major_c, ld_c) = layout(a), layout(b), layout(c)
    left = (_NO_TRANS if major_a == major_c else _TRANS), m, a.ctypes.data, ld_a
    right = (_NO_TRANS if major_b == major_c else _TRANS), n, b.ctypes.data, ld_b
    if major_c == "row":
        left, right = right, left
    call = GemmCall(
        left[0], right[0], left[1], right[1], k, *left[2:], *right[2:], c.ctypes.data, ld_c
    )
    largest = max(call.m, call.n, call.k, call.lda, call.ldb, call.ldc)
    if largest > _LARGEST:
        raise UnsupportedError(
            f"cuBLAS has 32-bit integers, got an extent or leading dimension of {largest}; use "
            "smaller tiles or more ranks."
        )
    return call


@functools.cache
def _name(dtype: np.dtype) -> str:
    """``dtype.name``, cached: NumPy computes it each time at the cost of a kernel launch."""
    return dtype.name


def loaded_cublas(version: int):
    """The library that CuPy has loaded, by its major version; None if it has another name."""
    try:
        return CDLL(f"libcublas.so.{version}", mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
    except OSError:
        return None


class CublasGemm:
    """``cublasGemmEx`` of cuBLAS itself, with constants in host memory: CuPy's call sets the
    handle's stream each time, which a stream under capture does not allow.

    Parameters
    ----------
    library
        Of :func:`loaded_cublas`.
    tf32 : bool
        Round float32 operands to TF32, for tensor cores.
    """

    def __init__(self, library, tf32: bool):
        self._library, self._multiply, self.tf32 = library, library.cublasGemmEx, tf32
        self._scalars: dict[tuple[str, float], tuple[c_void_p, np.ndarray]] = {}

    def _address(self, kind: str, value: float) -> c_void_p:
        """The address of a number for cuBLAS, which must stay valid."""
        scalar = self._scalars.get((kind, value))
        if scalar is None:
            number = np.array([value], kind)
            scalar = self._scalars[kind, value] = c_void_p(number.ctypes.data), number
        return scalar[0]

    def leave(self, handle: int, multiprocessors: int) -> None:
        """Limit the GEMMs of a handle to this many multiprocessors, if cuBLAS can (since 11.5); 0:
        all. Concurrent kernels then run on the others: on a device that a GEMM fills they would
        wait for its end."""
        limit = getattr(self._library, "cublasSetSmCountTarget", None)
        if limit is not None:
            limit(c_void_p(handle), c_int(multiprocessors))

    def call(self, a, b, c) -> tuple:
        """The arguments of ``cublasGemmEx`` for three matrices, none with an extent of zero:
        operations and extents; a and b; c and the arithmetic; the dtype of alpha and beta.
        Transposed operands are multiplied in place."""
        inputs, output = _name(a.dtype), _name(c.dtype)
        if (inputs, output) not in _COMPUTE_TYPES or b.dtype != a.dtype:
            raise UnsupportedError(
                "GEMMs by cuBLAS are float32, float64 or bfloat16 into float32; got "
                f"{inputs} · {b.dtype.name} into {output}."
            )
        if self.tf32 and inputs != "float32":
            raise UnsupportedError(
                f"TF32 is an arithmetic for float32, got {inputs}; leave the arithmetic to the "
                "dtype."
            )
        compute, scalar = _COMPUTE_TYPES[inputs, output]
        x, kind = gemm_call(a, b, c), _DATA_TYPES[inputs]
        at, number = c_void_p, c_int
        return (
            tuple(map(number, x[:5])),
            (at(x.a), number(kind), number(x.lda), at(x.b), number(kind), number(x.ldb)),
            (
                at(x.c),
                number(_DATA_TYPES[output]),
                number(x.ldc),
                number(_TF32 if self.tf32 else compute),
                number(_DEFAULT_ALGORITHM),
            ),
            scalar,
        )

    def __call__(self, handle: int, call: tuple, beta: float, alpha: float = 1.0) -> None:
        """c = beta·c + alpha·a·b on the stream of a handle.

        Raises
        ------
        OutOfMemory
            If the device has no memory for cuBLAS's workspace.
        CaseFailed
            If cuBLAS refuses.
        """
        extents, operands, result, scalar = call
        at_alpha, at_beta = self._address(scalar, alpha), self._address(scalar, beta)
        status = self._multiply(c_void_p(handle), *extents, at_alpha, *operands, at_beta, *result)
        if status == _ALLOC_FAILED:
            raise OutOfMemory(f"{NO_WORKSPACE}. Use smaller matrices or more devices.")
        if status:
            raise CaseFailed(
                f"cublasGemmEx failed with status {status} of cuBLAS. Run the case with --backend "
                "numpy, and report the device and its driver."
            )
