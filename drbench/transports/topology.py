"""Which ranks share a node."""

from __future__ import annotations

from mpi4py import MPI

from ..errors import DrbenchError

__all__ = ["Topology"]


class Topology:
    """The nodes of a communicator, as MPI sees them.

    Attributes
    ----------
    comm : MPI.Comm
        All ranks.
    node : MPI.Comm
        The ranks that share this rank's node.
    node_of : list of int
        For each rank, the lowest rank on its node.
    """

    def __init__(self, comm: MPI.Comm):
        self.comm = comm
        self.node = comm.Split_type(MPI.COMM_TYPE_SHARED, key=comm.rank)
        self.node_of: list[int] = comm.allgather(self.node.bcast(comm.rank))

    @property
    def nodes(self) -> int:
        """How many nodes the ranks are on."""
        return len(set(self.node_of))

    def close(self) -> None:
        """Free the node communicator (collective)."""
        self.node.Free()

    def __enter__(self) -> "Topology":
        return self

    def __exit__(self, *exc) -> None:
        if exc[0] is None or issubclass(exc[0], DrbenchError):     # else one rank alone broke: freeing would wait for the others
            self.close()
