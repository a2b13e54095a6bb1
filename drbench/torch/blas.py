"""Local GEMMs by torch, so that both sides of a comparison use the same BLAS."""

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import torch

from drbench.arrays import address_of
from drbench.host.blas import BlasInfo


class TorchBlas:
    """``torch.addmm(out=)`` on NumPy arrays, as tensors in the same memory.

    Examples
    --------
    >>> a, c = np.ones((2, 3), "f4"), np.zeros((2, 2), "f4")
    >>> TorchBlas().gemm(a, a.T, c, 0.0)
    >>> c.tolist()
    [[3.0, 3.0], [3.0, 3.0]]
    """

    def __init__(self):
        capability = torch.backends.cpu.get_cpu_capability()
        self.info = BlasInfo(f"torch {torch.__version__}", capability)

    def gemm(
        self,
        a: np.ndarray,
        b: np.ndarray,
        c: np.ndarray,
        beta: complex,
        alpha: complex = 1.0,
        conjugated: str = "",
    ) -> None:
        """c = beta·c + alpha·a·b (:meth:`drbench.host.blas.Blas.gemm`)."""
        self.prepare_gemm(a, b, c, conjugated)(beta, alpha)

    def prepare_gemm(
        self, a: np.ndarray, b: np.ndarray, c: np.ndarray, conjugated: str = ""
    ) -> Callable[[complex, complex], None]:
        """``call_gemm(beta, alpha)`` for three arrays at fixed addresses
        (:meth:`drbench.host.blas.Blas.prepare_gemm`)."""
        if not c.size:
            return lambda beta, alpha: None
        with torch.inference_mode(False):  # else only inference mode could write it
            x, y, z = map(_view, (a, b, c))
            x, y = (t.conj() if name in conjugated else t for name, t in (("a", x), ("b", y)))
        addmm = torch.addmm

        def call_gemm(beta: complex, alpha: complex) -> None:
            addmm(z, x, y, beta=beta, alpha=alpha, out=z)

        return call_gemm


def _view(array: np.ndarray) -> torch.Tensor:
    """The memory of an array, without the array, which may be deleted first. Read-only memory of
    other ranks is marked as writable, because torch has no read-only tensors."""
    interface = array.__array_interface__ | {"data": (address_of(array), False)}
    owner = array if array.base is None else array.base
    memory = SimpleNamespace(__array_interface__=interface, owner=owner)
    return tensor_of(np.asarray(memory), array.dtype.name == "bfloat16")


def tensor_of(array: np.ndarray, bfloat16: bool) -> torch.Tensor:
    """An array as a tensor in the same memory; torch reads the bits of bfloat16 from integers."""
    return (
        torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
        if bfloat16
        else torch.from_numpy(array)
    )
