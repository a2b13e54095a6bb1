"""pylops-mpi's ``MPIMatrixMult``: SUMMA on 2-D blocks, or its 1-D block algorithm; NumPy multiplies
locally."""

import math
from functools import partial

import numpy as np

from drbench.errors import UnsupportedError
from drbench.host.blas import load_blas

from .base import Job, Peer, Setting, installed, layout_of_its_own
from .options import PEERS

_VARIANTS = PEERS["pylops"]["variant"].type
_layout = layout_of_its_own(
    "pylops has two layouts of its own", "Choose with -o variant=summa or block."
)


def _settings(nprocs: int) -> list[Setting]:
    return [Setting(name, {"options": {"variant": name}}) for name in _VARIANTS]


def ranges(extent: int, parts: int) -> list[tuple[int, int]]:
    """Its division of an extent: pieces of ceil(extent / parts), the last short.

    Examples
    --------
    >>> ranges(10, 4)
    [(0, 3), (3, 6), (6, 9), (9, 10)]
    """
    piece = math.ceil(extent / parts)
    return [(min(i * piece, extent), min((i + 1) * piece, extent)) for i in range(parts)]


class _Multiplication(Job):
    def __init__(self, problem, topology, fill, threads, options):
        comm, variant = topology.comm, options.get("variant") or _VARIANTS[0]
        side = math.isqrt(comm.size)
        if (
            side * side != comm.size
        ):  # said before its constructor: half of the ranks may be waiting there
            raise UnsupportedError(
                "pylops refuses: Number of processes must be a square number, provided "
                f"{comm.size} instead..."
            )
        for axis in "mnk":
            if any(low == high for low, high in ranges(problem.extent(axis), side)):
                raise UnsupportedError(
                    f"pylops: {axis} = {problem.extent(axis)} leaves ranks of a {side}x{side} grid "
                    "without elements. Use a larger problem."
                )
        from pylops_mpi import DistributedArray, Partition
        from pylops_mpi.basicoperators import MPIMatrixMult

        i, j = divmod(comm.rank, side)
        m, n, k = (ranges(problem.extent(axis), side) for axis in "mnk")
        if variant == "summa":  # A, B and C in blocks of a square grid
            at_a, at_b, self._at_c = (m[i], k[j]), (k[i], n[j]), (m[i], n[j])
            self.layouts, mesh = ("block", "block", "block"), f"{side}x{side}"
        else:  # A by rows in each process row, B and C by columns, one copy a process column
            at_a, at_b, self._at_c = (
                (m[j], (0, problem.k)),
                ((0, problem.k), n[i]),
                ((0, problem.m), n[i]),
            )
            self.layouts = (f"row/c{side}", f"S(1),R@{side}x{side}", f"S(1),R@{side}x{side}")
            self.replicas, mesh = side, None
        self._replica = j if variant == "block" else 0
        own = {}
        for name, ((row0, row1), (col0, col1)) in (("A", at_a), ("B", at_b)):
            own[name] = np.empty((row1 - row0, col1 - col0), problem.dtype)
            fill.into(own[name], name, row0, col0)
        operator = MPIMatrixMult(
            own["A"], problem.n, base_comm=comm, kind=variant, dtype=problem.dtype
        )
        sizes = comm.allgather(own["B"].size)
        b = DistributedArray(
            global_shape=sum(sizes),
            local_shapes=sizes,
            base_comm=comm,
            partition=Partition.SCATTER,
            dtype=problem.dtype,
        )
        b.local_array[:] = own["B"].ravel()
        self.operands = operator, b
        self.blas = load_blas()
        self.resolved = {
            "dataflow": variant,
            "mesh": mesh,
            "transport": "mpi",
            "backend": "pylops-mpi",
        }
        if variant == "summa":
            # in its broadcasts: the blocks of A and B, padded to the largest, of all other process
            # columns and rows
            padded = sum(max(comm.allgather(block.nbytes)) for block in own.values())
            received = (side - 1) * padded
        else:  # in the gather of C: the rows of the other ranks of this process row
            others = sum(high - low for at, (low, high) in enumerate(m) if at != j)
            received = others * (n[i][1] - n[i][0]) * problem.itemsize
        self.moved = {"collective_bytes": received}

    def run(self) -> None:
        operator, b = self.operands
        self.out = operator @ b

    def parts(self):
        (row0, row1), (col0, col1) = self._at_c
        return self._replica, [(row0, col0, self.out.local_array.reshape(row1 - row0, col1 - col0))]

    def close(self) -> None:
        for name in ("_row_comm", "_col_comm"):
            getattr(self.operands[0], name).Free()
        super().close()


PEER = Peer(
    "pylops",
    "pylops-mpi MPIMatrixMult: SUMMA on blocks, or 1-D blocks with a gather of C",
    partial(installed, "pylops_mpi", "Install it with: pip install pylops-mpi."),
    _settings,
    _layout,
    _Multiplication,
    options=PEERS["pylops"],
)
