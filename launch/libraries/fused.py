"""What the fused products of other libraries share: a collective that is overlapped with the
product before or after it, on one of two layouts, on GPUs alone."""

import ctypes
import functools

from .base import Availability, Library
from .dtensor import moved_bytes

#: Data flow -> how A, B and C are divided: all-gather and product, product and reduce-scatter.
LAYOUTS = {"AG": ("row", "column", "column"), "RS": ("column", "row", "row")}


@functools.cache
def devices() -> int:
    """How many GPUs the driver counts, without making any of them this process's."""
    found = ctypes.c_int(0)
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(found)):
            return 0
    except (OSError, AttributeError):
        return 0
    return found.value


def with_gpu(found: Availability) -> Availability:
    """What is installed, if there is a GPU to run it on."""
    if found.ok and not devices():
        return Availability(
            False,
            f"{found.what} is here, and no GPU that its driver counts",
            "It multiplies on GPUs alone: install it and run on a machine with one GPU a rank.",
        )
    return found


class Fused(Library):
    """All-gather of A and product (AG), or product and reduce-scatter of C (RS)."""

    instead = "Leave the partitions out, or take the other data flow."

    @staticmethod
    def settings(nprocs):
        """Both data flows."""
        return [{"options": {"dataflow": flow}} for flow in LAYOUTS]

    @staticmethod
    def layout(nprocs, given, dataflow="AG"):
        """That of the data flow."""
        return LAYOUTS[dataflow]

    def prepare(self, options):
        """The data flow, and what this rank gathers of A, or sends of its partial sum of C."""
        self.flow = options.get("dataflow", "AG")
        nbytes, collective = self.work.tile_bytes(self.rank)["A"], "all_gather_into_tensor"
        if self.flow == "RS":  # every rank has a partial sum of all of C
            nbytes = self.work.m * self.work.n * self.work.itemsize
            collective = "reduce_scatter_tensor"
        self.moved = {"collective_bytes": moved_bytes(collective, nbytes, self.work.nprocs)}
        self.start()
        self.attempt(self.run)

    def start(self) -> None:
        """Make operands, and whatever multiplies them (collective)."""
        raise NotImplementedError
