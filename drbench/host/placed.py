"""A distributed matrix without a window of its own: local arrays that lie anywhere in one window,
with any strides."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from drbench.program.problem import Operand
from drbench.program.steps import Block

from .matrix import DistributedMatrix, Window
from .topology import Topology, mpi_type

#: Datatypes of strided blocks that a window keeps.
_MOST_TYPES = 1024


class Place(NamedTuple):
    """Where a rank's local array lies: its first element in the rank's part of the window, and what
    lies between rows and between columns; all in bytes."""

    offset: int
    by_row: int
    by_col: int


class PlacedMatrix(DistributedMatrix):
    """One matrix whose local arrays lie in a window that others share (not collective).

    A local array holds the rank's rows × the rank's columns, in the order of the whole matrix, as
    ScaLAPACK and DTensor store them. Strides may be any that BLAS takes, and differ between ranks:
    a transposed or sliced array, or one wider on some ranks, is no special case.

    Parameters
    ----------
    operand : Operand
    topology : Topology
    dtype : numpy dtype
    window : Window
        Of bytes.
    reach : list of list of bool
        ``reach[r][s]``: rank r loads and stores the memory of rank s.
    places : sequence of Place
        By rank.

    Notes
    -----
    The accumulate protocol follows from ``reach``, as that of a matrix with a window does.
    """

    def __init__(
        self,
        operand: Operand,
        topology: Topology,
        dtype,
        window: Window,
        reach: list[list[bool]],
        places: Sequence[Place],
    ):
        self.operand, self.partition, self.topology = operand, operand.partition, topology
        self.rank, self.dtype = topology.comm.rank, np.dtype(dtype)
        self.replica = self.partition.replica_of(self.rank)
        self.places = places
        self._starts: dict[tuple[int, int], tuple[int, int]] = {}
        self.window = _PlacedWindow(window, self.dtype, self._locate)
        self._agree(reach)

    def _locate(self, block: Block) -> Place:
        """Where a block lies in its owner's part of the window."""
        start = self._starts.get(block.tile)
        if start is None:  # element (0, 0) of the matrix, were it in this tile
            rows, cols = self.partition.tile_bounds(block.tile)
            row, col = self.partition.local_start(block.tile)
            start = self._starts[block.tile] = row - rows.start, col - cols.start
        offset, by_row, by_col = self.places[block.owner]
        row, col = start[0] + block.row0, start[1] + block.col0
        return Place(offset + row * by_row + col * by_col, by_row, by_col)

    def view(self, block: Block) -> np.ndarray | None:
        memory = self.window.in_reach[block.owner]
        if memory is None:
            return None
        if not block.size:
            return memory[:0].view(self.dtype).reshape(block.shape)
        offset, by_row, by_col = self._locate(block)
        return type(memory)(block.shape, self.dtype, memory, offset, (by_row, by_col))

    def _range(self, block: Block) -> tuple[int, int, int]:
        offset, by_row, by_col = self._locate(block)
        rows, cols = block.shape
        return block.owner, offset, (rows - 1) * by_row + (cols - 1) * by_col + self.dtype.itemsize

    def spoil(self) -> None:
        for _, tile in self.own_blocks():
            tile.fill(np.nan)

    def close(self) -> None:
        """Nothing is held: the window is not this matrix's."""


class _PlacedWindow(Window):
    """The shared window as one matrix sees it."""

    def __init__(self, window: Window, dtype: np.dtype, locate: Callable[[Block], Place]):
        self.win, self.in_reach, self._derived = window.win, window.in_reach, window._derived
        self._dtype, self._mpi_type, self._locate = dtype, mpi_type(dtype), locate

    def _target(self, block: Block):
        (rows, cols), item = block.shape, self._dtype.itemsize
        offset, by_row, by_col = self._locate(block)
        if (by_col == item or cols == 1) and (by_row == cols * item or rows == 1):
            return offset, rows * cols, self._mpi_type
        key = (self._dtype.char, rows, cols, by_row, by_col)
        kind = self._derived.get(key)
        if kind is None:
            if (
                len(self._derived) > _MOST_TYPES
            ):  # MPI keeps those that are in use until they are not
                for each in self._derived.values():
                    each.Free()
                self._derived.clear()
            # row by row, as the block lies in the origin's buffer
            row = self._mpi_type.Create_hvector(cols, 1, by_col)
            kind = self._derived[key] = row.Create_hvector(rows, 1, by_row).Commit()
            row.Free()
        return offset, 1, kind

    def close(self) -> None:
        """Nothing is held."""
