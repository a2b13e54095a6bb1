"""A distributed matrix without a window of its own: local arrays that lie anywhere in one window,
with any strides."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from mpi4py import MPI

from drbench.program.problem import Operand
from drbench.program.steps import Block

from .copies import Move, Strided
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


def by_columns(place: Place) -> bool:
    """Whether columns, not rows, are what is contiguous at a place.

    Examples
    --------
    Rows of 8 elements of 4 bytes, and the transposed view of them:

    >>> by_columns(Place(0, 32, 4)), by_columns(Place(0, 4, 32))
    (False, True)
    """
    return place.by_row < place.by_col


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
        self.window = PlacedWindow(window, self.dtype, self.locate)
        self._agree(reach)

    def locate(self, block: Block) -> Place:
        """Where a block lies in its owner's part of the window."""
        start = self._starts.get(block.tile)
        if start is None:  # element (0, 0) of the matrix, were it in this tile
            rows, cols = self.partition.tile_bounds(block.tile)
            row, col = self.partition.local_start(block.tile)
            start = self._starts[block.tile] = row - rows.start, col - cols.start
        offset, by_row, by_col = self.places[block.owner]
        row, col = start[0] + block.row0, start[1] + block.col0
        return Place(offset + row * by_row + col * by_col, by_row, by_col)

    def turned(self, block: Block) -> bool:
        return by_columns(self.places[block.owner])

    def view(self, block: Block) -> np.ndarray | None:
        memory = self.window.in_reach[block.owner]
        if memory is None:
            return None
        if not block.size:
            return memory[:0].view(self.dtype).reshape(block.shape)
        offset, by_row, by_col = self.locate(block)
        return type(memory)(block.shape, self.dtype, memory, offset, (by_row, by_col))

    def _range(self, block: Block) -> tuple[int, int, int]:
        offset, by_row, by_col = self.locate(block)
        rows, cols = block.shape
        return block.owner, offset, (rows - 1) * by_row + (cols - 1) * by_col + self.dtype.itemsize

    def spoil(self) -> None:
        for _, tile in self.own_blocks():
            tile.fill(np.nan)

    def close(self) -> None:
        """Nothing is held: the window is not this matrix's."""


class PlacedWindow(Window):
    """The shared window as one matrix sees it (not collective).

    Parameters
    ----------
    window : Window
        Of bytes.
    dtype : numpy dtype
    locate : callable
        ``locate(block)``: its :class:`Place` in its owner's part.
    """

    def __init__(self, window: Window, dtype: np.dtype, locate: Callable[[Block], Place]):
        self.win, self.in_reach, self._derived = window.win, window.in_reach, window._derived
        self._dtype, self._mpi_type, self.locate = dtype, mpi_type(dtype), locate

    def _in_runs(self, block: Block) -> tuple[int, tuple[int, int], tuple[int, int]]:
        """Of a block in its owner's part: its offset, how many runs of how many elements it is, and
        how far runs, and elements of a run, are apart."""
        place, shape = self.locate(block), block.shape
        turned = -1 if by_columns(place) else 1
        return place.offset, shape[::turned], place[1:][::turned]

    def _target(self, block: Block):
        offset, (runs, length), (across, along) = self._in_runs(block)
        item = self._dtype.itemsize
        if (along == item or length == 1) and (across == length * item or runs == 1):
            return offset, runs * length, self._mpi_type
        return offset, 1, self._strided(runs, length, across, along)

    def _here(self, array: np.ndarray, block: Block) -> list:
        """Any array; one that lies as the block does is one message without packing."""
        turned = by_columns(self.locate(block))
        array = array.T if turned else array
        if not array.size or array.flags.c_contiguous:
            return [array, array.size, self._mpi_type]
        (rows, cols), (by_row, by_col) = array.shape, array.strides
        span = (rows - 1) * by_row + (cols - 1) * by_col + array.itemsize
        memory = MPI.buffer.fromaddress(array.__array_interface__["data"][0], span)
        return [memory, 1, self._strided(rows, cols, by_row, by_col)]

    def read(self, owner: int, moves: tuple[Move, ...]) -> MPI.Request:
        """Start reading many pieces of a rank's part, each into its place here, as one message.

        Parameters
        ----------
        owner : int
        moves : tuple of (Strided, Strided)
            Addresses here, and offsets in the owner's part; axes in the same order.
        """
        if len(self._derived) > _MOST_TYPES - 2:
            self._forget_types()
        here, there = (self._series(places) for places in zip(*moves))
        return self.win.Rget([MPI.BOTTOM, 1, here], owner, (0, 1, there))

    def _series(self, places: tuple[Strided, ...]) -> MPI.Datatype:
        """Elements of several places, one place after the other."""
        key = self._dtype.char, places
        kind = self._derived.get(key)
        if kind is None:
            parts = [self._spread(place) for place in places]
            starts = [place.start for place in places]
            kind = MPI.Datatype.Create_struct([1] * len(parts), starts, parts).Commit()
            self._derived[key] = kind
            for part in parts:
                part.Free()
        return kind

    def _spread(self, place: Strided) -> MPI.Datatype:
        """Elements of one place, from its first one on."""
        kind, extent = self._mpi_type.Dup(), self._dtype.itemsize
        for n, step in zip(reversed(place.shape), reversed(place.strides)):
            inner = kind
            if step == extent:
                kind, extent = inner.Create_contiguous(n), n * step
            else:
                kind, extent = inner.Create_hvector(n, 1, step), 0
            inner.Free()
        return kind

    def _forget_types(self) -> None:
        for each in self._derived.values():  # MPI keeps those that are in use until then
            each.Free()
        self._derived.clear()

    def _strided(self, runs: int, length: int, across: int, along: int) -> MPI.Datatype:
        """``length`` elements ``along`` bytes apart, ``runs`` times ``across`` bytes apart."""
        key = (self._dtype.char, runs, length, across, along)
        kind = self._derived.get(key)
        if kind is None:
            if len(self._derived) > _MOST_TYPES:
                self._forget_types()
            if along == self._dtype.itemsize:
                kind = self._mpi_type.Create_hvector(runs, length, across)
            else:
                run = self._mpi_type.Create_hvector(length, 1, along)
                kind = run.Create_hvector(runs, 1, across)
                run.Free()
            self._derived[key] = kind.Commit()
        return kind

    def close(self) -> None:
        """Nothing is held."""
