"""pylops-mpi's ``MPIMatrixMult``: SUMMA on 2-D blocks; NumPy multiplies locally."""

from math import isqrt

from drbench.errors import UnsupportedError
from drbench.host.blas import load_blas

from .base import Library, installed


class Pylops(Library):
    """The operator of A, applied to B as one vector."""

    name = "pylops"
    description = "pylops-mpi MPIMatrixMult: SUMMA on 2-D blocks"

    @staticmethod
    def available():
        """pylops-mpi."""
        return installed("Install it with: pip install pylops-mpi.", "pylops_mpi")

    def prepare(self, options):
        """Make the operator, and B as one of its vectors."""
        comm, work, side = self.topology.comm, self.work, isqrt(self.work.nprocs)
        empty = any(0 in operand.partition.local_shape(comm.size - 1) for operand in work.operands)
        if side * side != comm.size or empty:  # its constructor raises on some ranks only
            raise UnsupportedError(
                "pylops: Number of processes must be a square number, and each must have elements "
                f"of A, B and C; got {comm.size} for {work.m}x{work.n}x{work.k}."
            )
        from pylops_mpi import DistributedArray, Partition
        from pylops_mpi.basicoperators import MPIMatrixMult

        a, b = self.filled()
        operator = MPIMatrixMult(a, work.n, base_comm=comm, kind="summa", dtype=work.dtype)
        sizes = comm.allgather(b.size)
        vector = DistributedArray(
            global_shape=sum(sizes),
            local_shapes=sizes,
            base_comm=comm,
            partition=Partition.SCATTER,
            dtype=work.dtype,
        )
        vector.local_array[:] = b.ravel()
        self.operands, self.blas = (operator, vector), load_blas()
        self.resolved = {"mesh": f"{side}x{side}", "transport": "mpi", "backend": "pylops-mpi"}
        # in its broadcasts: blocks of A and B, padded to the largest, of other columns and rows
        padded = sum(max(comm.allgather(local.nbytes)) for local in (a, b))
        self.moved = {"collective_bytes": (side - 1) * padded}

    def run(self):
        """Multiply; C is flattened by the operator."""
        operator, vector = self.operands
        self.out = operator @ vector

    def result(self):
        """This rank's block of C."""
        return self.out.local_array.reshape(self.work.c.partition.local_shape(self.rank))

    def close(self):
        """Free its communicators, too (collective)."""
        self.operands[0]._row_comm.Free()
        self.operands[0]._col_comm.Free()
        super().close()


LIBRARY = Pylops
