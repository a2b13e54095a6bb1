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
        self._groups: dict[tuple, MPI.Comm] = {}

    @property
    def nodes(self) -> int:
        """How many nodes the ranks are on."""
        return len(set(self.node_of))

    def group(self, name: str, members: tuple[int, ...]) -> MPI.Comm:
        """The communicator of some ranks, in this order; made once (collective over them).

        ``name`` keeps apart the communicators of a process row and a process column with the same members.
        """
        comm = self._groups.get((name, members))
        if comm is None:
            chosen = self.comm.group.Incl(members)
            comm = self._groups[name, members] = self.comm.Create_group(chosen)
            chosen.Free()
        return comm

    def close(self) -> None:
        """Free all communicators made here (collective)."""
        for comm in self._groups.values():
            comm.Free()
        self._groups.clear()
        self.node.Free()

    def __enter__(self) -> "Topology":
        return self

    def __exit__(self, *exc) -> None:
        if exc[0] is None or issubclass(exc[0], DrbenchError):     # else one rank alone broke: freeing would wait for the others
            self.close()
