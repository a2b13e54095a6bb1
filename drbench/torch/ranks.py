"""The ranks of mpiexec as those of torch.distributed."""

import atexit
import os
import socket
import sys

import torch.distributed as dist
from mpi4py import MPI
from torch.distributed.elastic.multiprocessing.errors import get_error_handler

from drbench.errors import MissingError, UsageError


def report_once(refusal: MissingError) -> None:
    """Report a refusal that ends the processes of a launcher in one line, of torchrun on the first
    process of a node, and in torchrun's own report, which would else link to a page about
    tracebacks."""
    try:
        raise refusal
    except MissingError:
        refusal.__traceback__ = None
        get_error_handler().record_exception(refusal)
    before = sys.excepthook

    def hook(kind, error, where):
        if error is not refusal:
            before(kind, error, where)
            return
        if os.environ.get("LOCAL_RANK", "0") == "0":
            print(f"unsupported: {refusal}", file=sys.stderr, flush=True)
        raise SystemExit(refusal.exit_code)

    sys.excepthook = hook


def start_process_group(comm: MPI.Comm, nodes: int = 1, backend: str = "gloo") -> None:
    """Start torch's process group on the ranks of an MPI communicator (collective), once a process.

    Rank 0 opens a store and broadcasts its port over MPI; the environment is not used. The group is
    destroyed when the process ends, unless that was done before.

    Parameters
    ----------
    comm : MPI.Comm
    nodes : int
        Number of nodes of the ranks.
    backend : str
        ``gloo``, or ``nccl``.
    """
    if dist.is_initialized():
        return
    alone = nodes == 1
    if alone and backend == "gloo" and any(name == "lo" for _, name in socket.if_nameindex()):
        # else gloo uses the name service, which may not know this host
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    host = comm.bcast("127.0.0.1" if alone else socket.gethostname())
    store = (
        dist.TCPStore(host, 0, comm.size, is_master=True, wait_for_workers=False)
        if comm.rank == 0
        else None
    )
    port = comm.bcast(store.port if store else None)
    if store is None:
        store = dist.TCPStore(host, port, comm.size, is_master=False)
    dist.init_process_group(backend, store=store, rank=comm.rank, world_size=comm.size)
    atexit.register(_end_process_group)


def check_ranks(comm: MPI.Comm) -> None:
    """Refuse a process group whose ranks are not those of the communicator (collective)."""
    of_torch = comm.allgather((dist.get_rank(), dist.get_world_size()))
    for rank, pair in enumerate(of_torch):
        if pair != (rank, comm.size):
            raise UsageError(
                f"rank {rank} of {comm.size} of MPI is rank {pair[0]} of {pair[1]} of "
                "torch.distributed. Let drbench.torch.install() start the process group, or give "
                "init_process_group the ranks of MPI."
            )


def _end_process_group() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()
