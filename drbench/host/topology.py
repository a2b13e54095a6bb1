"""Which ranks share a node."""

from __future__ import annotations

import os
from collections import Counter

from mpi4py import MPI

from drbench.errors import DrbenchError
from drbench.program.blocks import Group

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
    cores : int
        Cores the ranks of this node may use together: the union of their affinities.
    cores_per_rank : int
        Cores of a node // ranks on it, at least 1; the smallest over the nodes.
    """

    def __init__(self, comm: MPI.Comm):
        self.comm = comm
        self.node = comm.Split_type(MPI.COMM_TYPE_SHARED, key=comm.rank)
        found = comm.allgather((self.node.bcast(comm.rank), os.sched_getaffinity(0)))
        self.node_of: list[int] = [lowest for lowest, _ in found]
        cores: dict[int, set] = {}
        for lowest, affinity in found:
            cores.setdefault(lowest, set()).update(affinity)
        self.cores = len(cores[self.node_of[comm.rank]])
        self.cores_per_rank = min(
            max(1, len(cores[lowest]) // ranks) for lowest, ranks in Counter(self.node_of).items()
        )
        self._groups: dict[Group, MPI.Comm] = {}

    @property
    def nodes(self) -> int:
        """How many nodes the ranks are on."""
        return len(set(self.node_of))

    def group(self, group: Group) -> MPI.Comm:
        """The communicator of a process row or column; made once (collective over its members).

        Those of a row and of a column with the same members are kept apart.
        """
        comm = self._groups.get(group)
        if comm is None:
            chosen = self.comm.group.Incl(group.members)
            comm = self._groups[group] = self.comm.Create_group(chosen)
            chosen.Free()
        return comm

    def close(self) -> None:
        """Free all communicators made here (collective)."""
        for comm in self._groups.values():
            comm.Free()
        self._groups.clear()
        self.node.Free()

    def __enter__(self) -> Topology:
        return self

    def __exit__(self, *exc) -> None:
        if exc[0] is None or issubclass(
            exc[0], DrbenchError
        ):  # else one rank alone broke: freeing would wait for the others
            self.close()
