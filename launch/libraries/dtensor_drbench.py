"""PyTorch DTensor executed by drbench: the same ``torch.matmul`` of the same placements with the
same BLAS, executed by :mod:`drbench.torch`."""

from math import prod

from .dtensor import DTensorLibrary


class Served(DTensorLibrary):
    """The same call, executed by drbench."""

    name = "dtensor+drbench"
    description = "PyTorch DTensor multiplied by drbench: torch.matmul on placements, read in place"

    def _begin(self) -> None:
        from mpi4py import MPI

        import drbench.torch

        shapes = [operand.partition.local_shape(self.rank) for operand in self.work.operands]
        # two results at once, aligned; and partial sums of replicas and operands of a
        # multiplication
        nbytes = 2 * self.work.itemsize * sum(map(prod, shapes))
        nbytes = self.topology.comm.allreduce(nbytes, op=MPI.MAX) + (1 << 20)
        self._served = drbench.torch
        drbench.torch.install(self.topology.comm, heap=nbytes, when="always")

    def _make_operand(self, local, mesh, placements, shape):
        tensor = self._served.empty(shape, mesh, placements, local.dtype)
        tensor.to_local().copy_(local)
        return tensor

    def _inspect(self) -> None:
        self.run()
        self.run()
        with self._served.out(*self.placed[2][1]):
            plan = self._served.explain(*self.operands)
        stock = ", ".join(self._served.counts().stock)
        dataflow = f"stock: {stock}" if stock else f"one-sided S-{plan.stationary}"
        self.resolved |= {"dataflow": dataflow, "transport": "one-sided"}
        self.moved = plan.own_bytes

    def run(self) -> None:
        """Call torch.matmul, with C computed in its placements."""
        with self._served.out(*self.placed[2][1]):
            self.out = self.torch.matmul(*self.operands)

    def close(self) -> None:
        """Release the heap, too (collective)."""
        super().close()
        self._served.uninstall()


LIBRARY = Served
