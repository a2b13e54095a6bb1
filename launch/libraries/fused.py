"""The base class of fused operations: a collective overlapped with the GEMM before or after it, on
one of two layouts, on GPUs only."""

import ctypes
import functools

from .base import Availability, Library
from .dtensor import moved_bytes

#: Data flow -> partitions of A, B and C: all-gather + GEMM, GEMM + reduce-scatter.
LAYOUTS = {"AG": ("row", "column", "column"), "RS": ("column", "row", "row")}


@functools.cache
def devices() -> int:
    """The number of GPUs of the driver, without initialising any."""
    count = ctypes.c_int(0)
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
            return 0
    except (OSError, AttributeError):
        return 0
    return count.value


def with_gpu(package: Availability) -> Availability:
    """The availability of an installed library, if there is also a GPU."""
    if package.ok and not devices():
        return Availability(
            False,
            f"{package.what} is installed, but its driver finds no GPU",
            "It needs GPUs: install it and run on a machine with one GPU per rank.",
        )
    return package


class Fused(Library):
    """All-gather of A and GEMM (AG), or GEMM and reduce-scatter of C (RS)."""

    instead = "Leave the partitions out, or use the other data flow."
    dtypes = ("float32", "float64", "bfloat16:float32")

    @staticmethod
    def on_gpu(options):
        """Always."""
        return True

    @staticmethod
    def settings(nprocs):
        """The two data flows."""
        return [{"options": {"dataflow": flow}} for flow in LAYOUTS]

    @staticmethod
    def layout(nprocs, given, dataflow="AG"):
        """The layout of the data flow."""
        return LAYOUTS[dataflow]

    def prepare(self, options):
        """Set the data flow, and count what this rank gathers of A, or sends of its partial sum of
        C."""
        self.flow = options.get("dataflow", "AG")
        nbytes, collective = self.work.tile_bytes(self.rank)["A"], "all_gather_into_tensor"
        if self.flow == "RS":  # every rank has a partial sum of all of C
            nbytes = self.work.m * self.work.n * self.work.itemsize
            collective = "reduce_scatter_tensor"
        self.moved = {"collective_bytes": moved_bytes(collective, nbytes, self.work.nprocs)}
        self.start()
        self.attempt(self.run)

    def start(self) -> None:
        """Make operands, and the objects that multiply them (collective)."""
        raise NotImplementedError
