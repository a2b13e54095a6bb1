"""To put drbench under DTensor, and to take it away."""

from __future__ import annotations

from mpi4py import MPI
from torch.distributed.device_mesh import init_device_mesh

from drbench.errors import UsageError, did_you_mean
from drbench.host.topology import Topology, start_mpi

from . import private
from .blas import TorchBlas
from .dispatch import Counts, Installed, installed
from .ranks import check_launcher, check_ranks, start_process_group

_WHEN = ("auto", "always")


def install(comm=None, heap="1G", *, when="auto", blas="torch", transport="auto") -> Installed:
    """Let drbench multiply DTensors (collective over all ranks).

    Parameters
    ----------
    comm : MPI.Comm, optional
        All ranks of torch.distributed, in its order; ``MPI.COMM_WORLD`` by default. If no process
        group is there, one is started (gloo).
    heap : str or int
        Bytes of each rank's part of the heap. Each set of ranks that multiplies (a mesh, a
        sub-mesh) has a heap of its own; memory is used only once tensors lie in it.
    when : str
        ``auto``: drbench multiplies where stock would move something before or after;
        ``always``: wherever it can.
    blas : "torch", "auto" or object
        What multiplies local blocks: torch's own GEMM, or what :func:`drbench.init` takes.
    transport : str
        As of :func:`drbench.init`.

    Raises
    ------
    UnsupportedError
        Under torchrun; with the mpiexec command to use instead.
    MissingError
        If this torch has not the private names that this needs.
    UsageError
        If it is installed already, or ranks of MPI and of torch.distributed differ.
    """
    if when not in _WHEN:
        raise UsageError(f"when must be auto or always, got {when!r}.{did_you_mean(when, _WHEN)}")
    start_mpi()
    comm = MPI.COMM_WORLD if comm is None else comm
    check_launcher(comm.size)
    if isinstance(getattr(_handler(), "__self__", None), Installed):
        raise UsageError(
            "drbench.torch is installed already. Call drbench.torch.uninstall() first."
        )
    with Topology(comm) as topology:
        start_process_group(comm, topology.nodes)
    check_ranks(comm)
    private.probe(init_device_mesh("cpu", (comm.size,)))
    chosen = TorchBlas() if isinstance(blas, str) and blas == "torch" else blas
    made = Installed(comm, heap, when, {"blas": chosen, "transport": transport})
    made.enter()
    return made


def _handler():
    try:
        return private.handlers().get(private.MM)
    except AttributeError:  # probe() says what is missing
        return None


def uninstall() -> None:
    """Leave DTensor as it was, and close the heaps (collective). Tensors that lie in them stay
    valid."""
    installed().leave()


def counts() -> Counts:
    """What became of the products since :func:`install`."""
    return installed().counts
