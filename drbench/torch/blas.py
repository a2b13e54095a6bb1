"""Local products by torch's own GEMM, so that both sides of a comparison use the same BLAS."""

from __future__ import annotations

import weakref

import numpy as np
import torch

from drbench.host.blas import BlasInfo


class TorchBlas:
    """``torch.addmm(out=)`` on views of NumPy arrays; one view an array, kept as long as the array.

    Executors keep their arrays from run to run, so that a repeated product makes no view.

    Examples
    --------
    >>> a, c = np.ones((2, 3), "f4"), np.zeros((2, 2), "f4")
    >>> TorchBlas().gemm(a, a.T, c, 0.0)
    >>> c.tolist()
    [[3.0, 3.0], [3.0, 3.0]]
    """

    def __init__(self):
        capability = torch.backends.cpu.get_cpu_capability()
        self.info = BlasInfo(f"torch {torch.__version__}", capability, "openmp", True)
        self._views: dict[int, tuple] = {}

    def gemm(self, a, b, c, beta: float, alpha: float = 1.0) -> None:
        """c = beta·c + alpha·a·b (:meth:`drbench.host.blas.Blas.gemm`)."""
        if not c.size:
            return
        x, y, z = self._view(a), self._view(b), self._view(c)
        torch.addmm(z, x, y, beta=beta, alpha=alpha, out=z)

    def _view(self, array: np.ndarray) -> torch.Tensor:
        found = self._views.get(id(array))
        if found is not None:
            return found[1]
        with torch.inference_mode(False):  # else it could not be written outside of it
            view = tensor_of(np.asarray(_Memory(array)), array.dtype.name == "bfloat16")
        if array.base is not None:
            key = id(array)
            gone = weakref.ref(array, lambda _, views=self._views: views.pop(key, None))
            self._views[key] = gone, view
        return view


def tensor_of(array: np.ndarray, bfloat16: bool) -> torch.Tensor:
    """An array as a tensor in the same memory; torch reads the bits of bfloat16 from integers."""
    return (
        torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
        if bfloat16
        else torch.from_numpy(array)
    )


class _Memory:
    """The memory of an array, without the array: others may hold it when that is gone. Of ranks
    whose memory may only be read, too, which torch does not know."""

    def __init__(self, array: np.ndarray):
        address = array.__array_interface__["data"][0]
        self.__array_interface__ = array.__array_interface__ | {"data": (address, False)}
        self._base = array if array.base is None else array.base
