"""PyTorch DTensor with drbench under it: the same ``torch.matmul`` of the same placements, and the
same BLAS, multiplied by :mod:`drbench.torch`."""

from math import prod

from .base import Peer
from .dtensor import PEER as STOCK
from .dtensor import Multiplication, copies
from .options import PEERS


class _Served(Multiplication):
    def _begin(self, problem, topology) -> None:
        import drbench.torch

        item, rank = problem.itemsize, topology.comm.rank
        local = (prod(each.partition.local_shape(rank)) for each in problem.operands)
        # two results at once, and their alignment; sums of copies and operands beside the product
        nbytes = topology.comm.allreduce(2 * item * sum(local), op=_largest()) + (1 << 20)
        self._torch_side = drbench.torch
        drbench.torch.install(topology.comm, heap=nbytes, when="always")

    def _made(self, local, mesh, placements, shape):
        made = self._torch_side.empty(shape, mesh, placements, local.dtype)
        made.to_local().copy_(local)
        return made

    def _look(self, comm, multiplies: int) -> None:
        self.run()
        self.run()
        mesh, placements = self._placed["C"]
        with self._torch_side.out(*placements):
            told = self._torch_side.explain(*self.operands)
        counts = self._torch_side.counts()
        self.resolved["dataflow"] = f"one-sided S-{told.stationary}"
        self.resolved["transport"] = "one-sided"
        if counts.stock:
            self.resolved["dataflow"] = "stock: " + ", ".join(counts.stock)
        self.moved = told.own_bytes
        self.replicas = prod(size for size, _ in copies(self.out))

    def run(self) -> None:
        with self._torch_side.out(*self._placed["C"][1]):
            self.out = self._torch.matmul(*self.operands)

    def close(self) -> None:
        super().close()
        self._torch_side.uninstall()


def _largest():
    from mpi4py import MPI

    return MPI.MAX


PEER = Peer(
    "dtensor+drbench",
    "PyTorch DTensor multiplied by drbench: torch.matmul on placements, read in place",
    STOCK.available,
    STOCK.settings,
    STOCK.layout,
    _Served,
    options=PEERS["dtensor+drbench"],
    transposes=True,
)
