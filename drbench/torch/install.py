"""Install drbench's multiplication of DTensors, and remove it."""

from typing import Any

from mpi4py import MPI
from torch.distributed.device_mesh import init_device_mesh

from drbench.errors import MissingError, UsageError, did_you_mean
from drbench.host.topology import Topology, start_mpi

from . import private
from .blas import TorchBlas
from .dispatch import Counts, Installed, installed
from .ranks import check_ranks, report_once, start_process_group

_WHEN = ("auto", "always", "never")


def install(
    comm: MPI.Intracomm | None = None,
    heap: str | int = "1G",
    *,
    when: str = "auto",
    blas: Any = "torch",
    transport: str = "auto",
) -> Installed:
    """Let drbench multiply DTensors (collective over all ranks).

    Parameters
    ----------
    comm : MPI.Intracomm, optional
        All ranks of torch.distributed, in its order; ``MPI.COMM_WORLD`` by default. If there is no
        process group, one is started (gloo).
    heap : str or int
        Bytes of each rank's part of the heap. Each set of ranks that multiplies (a mesh, a
        sub-mesh) has a heap of its own; memory is used only once tensors are allocated.
    when : str
        ``auto``: drbench multiplies if stock would move elements before or after, and drbench is
        predicted to take no longer (:mod:`drbench.torch.costs`); ``always``: whenever it can;
        ``never``: stock, to compare.
    blas : "torch", "auto" or object
        Performs local GEMMs: torch's own, or what :func:`drbench.init` takes.
    transport : str
        How arrays of other ranks are read: ``auto``, ``direct`` or ``rma``, as for
        :func:`drbench.init`.

    Returns
    -------
    Installed
        The object that DTensor calls from now on, until :func:`uninstall`.

    Raises
    ------
    MissingError
        Under torchrun, with the mpiexec command to use instead, or another launcher that started
        ranks which MPI does not connect; or if this torch lacks a private function of DTensor that
        drbench needs: the functions decide, not the version.
    UsageError
        If it is installed already, or ranks of MPI and of torch.distributed differ.

    Examples
    --------
    >>> import drbench.torch, torch
    >>> from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh
    >>> installed = drbench.torch.install(heap="1M", when="always")
    >>> A = distribute_tensor(torch.ones(2, 2), init_device_mesh("cpu", (1,)), [Shard(0)])
    >>> (A @ A).to_local().tolist(), drbench.torch.counts().drbench
    ([[2.0, 2.0], [2.0, 2.0]], 1)
    >>> drbench.torch.uninstall()
    """
    if when not in _WHEN:
        raise UsageError(
            f"when must be auto, always or never, got {when!r}.{did_you_mean(when, _WHEN)}"
        )
    try:
        comm = start_mpi(comm)
    except MissingError as refusal:
        report_once(refusal)
        raise
    with Topology(comm) as topology:
        start_process_group(comm, topology.nodes)
        in_place = topology.nodes == 1 and transport != "rma"
    check_ranks(comm)
    private.probe(init_device_mesh("cpu", (comm.size,)))
    if isinstance(getattr(private.handlers().get(private.BMM), "__self__", None), Installed):
        raise UsageError(
            "drbench.torch is installed already. Call drbench.torch.uninstall() first."
        )
    chosen = TorchBlas() if isinstance(blas, str) and blas == "torch" else blas
    options = {"blas": chosen, "transport": transport}
    state = Installed(comm.Dup(), heap, when, options, in_place)
    state.enter()
    return state


def uninstall() -> None:
    """Restore DTensor's own multiplications, and close the heaps (collective). Tensors in the heaps
    stay valid.

    Raises
    ------
    UsageError
        If drbench is not installed.
    """
    installed().leave()


def counts() -> Counts:
    """The multiplications of drbench and of stock torch since :func:`install`.

    Returns
    -------
    Counts
        Of this rank.

    Raises
    ------
    UsageError
        If drbench is not installed.
    """
    return installed().counts
