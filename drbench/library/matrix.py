"""The distributed matrix of users: a spec, this rank's local array, and the primitives of
the paper's Table 1, which read and change single tiles of any rank."""

from collections.abc import Callable
from typing import Any

import numpy as np
from mpi4py import MPI
from numpy.typing import ArrayLike

from drbench.errors import UnsupportedError, UsageError
from drbench.host.executor import Executor
from drbench.host.matrix import DistributedMatrix
from drbench.host.topology import mpi_adds
from drbench.partitions.intervals import Interval, Pair, Range
from drbench.program.replicas import broadcast_replica, reduce_replicas
from drbench.program.steps import Block
from drbench.program.trace import trace

from .scalapack import descriptor_of
from .spec import Layout, Spec, plain

#: A tile (i, j) of the tile grid.
Tile = tuple[int, int]


class Matrix:
    """A matrix over the ranks of a context; made by its methods.

    Attributes
    ----------
    context : Context
        The context that made it.
    spec : Spec
        Shape, type and layout.

    Notes
    -----
    In the primitives of Table 1 ``idx`` is a tile (i, j) of the tile grid; ``replica=None`` is the
    caller's own replica.

    Examples
    --------
    On one rank:

    >>> from mpi4py import MPI
    >>> import drbench
    >>> with drbench.init(MPI.COMM_SELF, heap="1M") as ctx:
    ...     A = ctx.from_global(np.arange(6.0).reshape(2, 3), "row")
    ...     print(A, A.T.local.shape, (A @ A.T).local.tolist())
    2x3 float64 row (3, 2) [[5.0, 14.0], [14.0, 50.0]]
    """

    __slots__ = (
        "context",
        "spec",
        "memory",
        "outside",
        "location",
        "placed",
        "serial",
        "__weakref__",
    )
    __array_ufunc__ = None  # array @ matrix is an error, not an array of objects

    def __init__(
        self,
        context: Any,
        spec: Spec,
        memory: np.ndarray,
        offset: int = 0,
        serial: int = 0,
        outside: np.ndarray | None = None,
    ):
        self.context, self.spec, self.memory = context, spec, memory
        # The user's array, if it is outside the heap: each operation copies it to and from memory.
        self.outside = outside
        # How many matrices of this shape, type and layout this rank had made with it: the same on
        # every rank, which every collective operation checks. Negative if transposed, 0 before the
        # operation that makes it has ended.
        self.serial = serial
        # Where memory begins in this rank's part of the heap, and its strides, in bytes.
        by_row, by_col = memory.strides
        self.location = offset, by_row, by_col
        # The local arrays of all ranks, known from the first fence on.
        self.placed: DistributedMatrix | None = None

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise UsageError(
            f"a Matrix is distributed, got {self} as one array. Use its local array, .local, or "
            "the whole matrix, to_global()."
        )

    @property
    def local(self) -> np.ndarray:
        """This rank's rows × its columns, in the order of the whole matrix; on a GPU CuPy's.

        Read and write it as any array, but not while ranks multiply. It stays valid after the
        context is closed. Of a conjugate (:attr:`H`) it is a copy, which cannot be written.
        """
        array = self.memory if self.outside is None else self.outside
        if not self.spec.conjugated:
            return array
        local = array.conj()
        local.flags.writeable = False
        return local

    @local.setter
    def local(self, array: np.ndarray) -> None:  # after A.local += 1, which has written into it
        if array is not self.local:
            raise UsageError(f"the array of {self} stays. Write into it: A.local[...] = values.")

    @property
    def shape(self) -> Pair:
        """Rows and columns of the whole matrix."""
        return self.spec.shape

    @property
    def dtype(self) -> np.dtype:
        """Type of the elements."""
        return self.spec.dtype

    @property
    def layout(self) -> str:
        """Text form of the partition; of a part of a matrix, that of the whole."""
        return self.spec.layout

    @property
    def rows(self) -> np.ndarray:
        """The index of each row of ``local`` in this matrix; in a slice from its start."""
        return self.spec.indices[0]

    @property
    def columns(self) -> np.ndarray:
        """The index of each column of ``local`` in this matrix; in a slice from its start."""
        return self.spec.indices[1]

    @property
    def T(self) -> "Matrix":
        """The transposed matrix, in the same memory."""
        return self._view(self.spec.T, lambda array: array.T, self.location[0], -self.serial)

    @property
    def H(self) -> "Matrix":
        """The conjugate transpose, in the same memory; of real numbers the transpose.

        Examples
        --------
        >>> from mpi4py import MPI
        >>> import drbench
        >>> with drbench.init(MPI.COMM_SELF, heap="1M") as ctx:
        ...     A = ctx.from_global(np.array([[1, 2j], [3, 4]]), "row")
        ...     print((A @ A.H).local.tolist())
        [[(5+0j), (3+8j)], [(3-8j), (25+0j)]]
        """
        return self._view(self.spec.H, lambda array: array.T, self.location[0], -self.serial)

    def _view(self, spec: Spec, take: Callable, offset: int, serial: int) -> "Matrix":
        """A matrix of a spec in a part of this one's memory, which ``take`` returns of a local
        array (not collective)."""
        outside = None if self.outside is None else take(self.outside)
        return Matrix(self.context, spec, take(self.memory), offset, serial, outside)

    def copy_in(self) -> int:
        """Copy the user's array, if it is outside the heap, to the memory that ranks read (not
        collective); the bytes that are copied."""
        if self.outside is None:
            return 0
        self.context.runtime.copy(self.memory, self.outside)
        return self.memory.nbytes

    def copy_out(self) -> None:
        """Copy a result to the user's array, if it is outside the heap (not collective)."""
        if self.outside is not None:
            self.context.runtime.copy(self.outside, self.memory)

    def __getitem__(self, ranges: slice | tuple[slice, slice]) -> "Matrix":
        """A range of rows and one of columns, in the same memory (not collective).

        Parameters
        ----------
        ranges : slice, or pair of slices
            Rows, or rows and columns, without steps.

        Returns
        -------
        Matrix
            Those rows and columns; writing into it changes this matrix.

        Raises
        ------
        UsageError
            If they are no ranges, or have steps.

        Examples
        --------
        >>> from mpi4py import MPI
        >>> import drbench
        >>> with drbench.init(MPI.COMM_SELF, heap="1M") as ctx:
        ...     A = ctx.from_global(np.arange(12.0).reshape(3, 4), "row")
        ...     print(A[1:, :2], A[1:, :2].local.tolist())
        2x2 float64 [1:3, 0:2] of row [[4.0, 5.0], [8.0, 9.0]]
        """
        rows, cols = (
            ranges if isinstance(ranges, tuple) and len(ranges) == 2 else (ranges, slice(None))
        )
        spec, down, across = self.spec.part(rows, cols)
        offset, by_row, by_col = self.location
        offset += down.start * by_row + across.start * by_col
        return self._view(spec, lambda array: array[down, across], offset, self.serial)

    def __matmul__(self, other: "Matrix") -> "Matrix":
        if not isinstance(other, Matrix):
            return NotImplemented
        return self.context.multiply(self, other)

    def to_global(self, root: int | None = None) -> np.ndarray | None:
        """The whole matrix as an array of this rank's own (collective).

        Parameters
        ----------
        root : int, optional
            Only this rank gets it; the others get None.

        Returns
        -------
        ndarray or None
            m×n, of the type of ``local``.

        Raises
        ------
        UsageError
            If ``root`` is no rank.

        Examples
        --------
        >>> from mpi4py import MPI
        >>> import drbench
        >>> with drbench.init(MPI.COMM_SELF, heap="1M") as ctx:
        ...     A = ctx.from_global(np.eye(2), "column")
        ...     print((A @ A).to_global().tolist())
        [[1.0, 0.0], [0.0, 1.0]]
        """
        return self.context.to_global(self, root)

    def redistribute(self, layout: "Matrix | Layout", *, copy: bool = False) -> "Matrix":
        """This matrix in another layout (collective).

        Parameters
        ----------
        layout : str, Partition or Matrix
            The new layout, or a matrix of this one's shape and type that has it and is overwritten.
        copy : bool
            Whether the result has memory of its own also where no element has to move.

        Returns
        -------
        Matrix
            The same elements, in the new layout.

        Examples
        --------
        >>> from mpi4py import MPI
        >>> import drbench
        >>> with drbench.init(MPI.COMM_SELF, heap="1M") as ctx:
        ...     A = ctx.from_global(np.eye(2), "row")
        ...     print(A.redistribute("block"))
        2x2 float64 block
        """
        return self.context.redistribute(self, layout, copy=copy)

    def to_scalapack(self, context: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """The descriptor of ScaLAPACK and this rank's array (not collective).

        Parameters
        ----------
        context : int
            The BLACS context of the grid, for the descriptor.

        Returns
        -------
        descriptor : ndarray
            Nine 32-bit integers: DTYPE, CTXT, M, N, MB, NB, RSRC, CSRC, LLD.
        local : ndarray
            By columns; in the memory of the matrix if that is stored by columns (as that of
            :meth:`Context.from_scalapack` and of a transposed matrix is), else a copy.

        Raises
        ------
        UnsupportedError
            If the layout is not block-cyclic on a process grid, or has replicas.

        Examples
        --------
        >>> from mpi4py import MPI
        >>> import drbench
        >>> with drbench.init(MPI.COMM_SELF, heap="1M") as ctx:
        ...     descriptor, local = ctx.zeros((6, 4), "tiles:2x2").to_scalapack()
        ...     print(descriptor.tolist(), local.strides)
        [1, 0, 6, 4, 2, 2, 0, 0, 6] (4, 24)
        """
        local = self.local
        if local.strides[0] != local.itemsize:
            local = np.asfortranarray(local)
        lld = max(1, len(local), local.strides[1] // local.itemsize)
        return descriptor_of(self.spec.partition, context, lld), local

    # -- Table 1 of the paper: tiles one by one

    def grid_shape(self) -> Pair:
        """Rows and columns of the tile grid (not collective).

        Returns
        -------
        (int, int)

        Examples
        --------
        >>> from mpi4py import MPI
        >>> import drbench
        >>> with drbench.init(MPI.COMM_SELF, heap="1M") as ctx:
        ...     print(ctx.zeros((4, 6), "tiles:2x2").grid_shape())
        (2, 3)
        """
        return self.spec.partition.grid_shape

    def tile_bounds(self, idx: Tile) -> tuple[Interval, Interval]:
        """Half-open row and column bounds of a tile (not collective).

        Parameters
        ----------
        idx : (int, int)
            The tile.

        Returns
        -------
        (Interval, Interval)
            In elements of the whole matrix.

        Examples
        --------
        >>> from mpi4py import MPI
        >>> import drbench
        >>> with drbench.init(MPI.COMM_SELF, heap="1M") as ctx:
        ...     rows, cols = ctx.zeros((4, 5), "tiles:2x2").tile_bounds((1, 2))
        ...     print(tuple(rows), tuple(cols))
        (2, 4) (4, 5)
        """
        return self.spec.partition.tile_bounds(idx)

    def overlapping_tiles(
        self, region: tuple[Range, Range], replica: int | None = None
    ) -> list[Tile]:
        """The tiles that overlap a region (not collective).

        Parameters
        ----------
        region : ((int, int), (int, int))
            Half-open bounds of rows and of columns.
        replica : int, optional
            Any: the tiles are the same in every replica.

        Returns
        -------
        list of (int, int)
            In row-major order.

        Examples
        --------
        >>> from mpi4py import MPI
        >>> import drbench
        >>> with drbench.init(MPI.COMM_SELF, heap="1M") as ctx:
        ...     A = ctx.zeros((4, 6), "tiles:2x2")
        ...     print(A.overlapping_tiles(((0, 2), (1, 3))))
        [(0, 0), (0, 1)]
        """
        self._check_replica(replica)
        return self.spec.partition.overlapping_tiles(*region)

    def fence(self) -> None:
        """Complete all puts and accumulates, and make them and all stores into ``local`` visible to
        every rank (collective). The first fence also exchanges the addresses of the tiles: call it
        before any other primitive that reads or changes tiles.

        Raises
        ------
        UnsupportedError
            If the matrix is on a device.

        Examples
        --------
        >>> from mpi4py import MPI
        >>> import drbench
        >>> with drbench.init(MPI.COMM_SELF, heap="1M") as ctx:
        ...     C = ctx.zeros((4, 6), "tiles:2x2")
        ...     C.fence()
        ...     C.put_tile((0, 1), np.ones((2, 2)))
        ...     C.accumulate_tile((0, 1), np.full((2, 2), 4.0))
        ...     C.fence()
        ...     print(C.grid_shape(), C.overlapping_tiles(((0, 2), (1, 3))))
        ...     print(C.get_tile((0, 1)).tolist())
        (2, 3) [(0, 0), (0, 1)]
        [[5.0, 5.0], [5.0, 5.0]]
        """
        self.context.fence(self)

    def tile(self, idx: Tile, replica: int | None = None) -> np.ndarray:
        """A tile in place (not collective).

        Parameters
        ----------
        idx : (int, int)
            The tile.
        replica : int, optional
            The caller's own by default.

        Returns
        -------
        ndarray
            Rows × columns of the tile, valid until the context is closed. Its owner may write into
            it; the tile of another rank is accessible only in shared memory.

        Raises
        ------
        UsageError
            If there is no such replica, or no fence was called before; so for all primitives.
        UnsupportedError
            If this rank cannot map the tile.

        Examples
        --------
        >>> from mpi4py import MPI
        >>> import drbench
        >>> with drbench.init(MPI.COMM_SELF, heap="1M") as ctx:
        ...     A = ctx.zeros((4, 6), "tiles:2x2")
        ...     A.fence()
        ...     A.tile((1, 2))[...] = 7
        ...     print(A.local[2:, 4:].tolist())
        [[7.0, 7.0], [7.0, 7.0]]
        """
        placed, block = self._block(idx, replica)
        return self._reached(placed, block, "Use get_tile.")

    def get_tile_async(
        self, idx: Tile, replica: int | None = None
    ) -> tuple[np.ndarray, MPI.Request]:
        """Start copying a tile (not collective).

        Parameters
        ----------
        idx : (int, int)
            The tile.
        replica : int, optional
            The caller's own by default.

        Returns
        -------
        (ndarray, MPI.Request)
            The copy, rows × columns, and the request to wait for before it is read.

        Examples
        --------
        >>> from mpi4py import MPI
        >>> import drbench
        >>> with drbench.init(MPI.COMM_SELF, heap="1M") as ctx:
        ...     A = ctx.from_global(np.eye(4), "tiles:2x2")
        ...     A.fence()
        ...     tile, request = A.get_tile_async((0, 0))
        ...     request.Wait()  # a GEMM may run before
        ...     print(tile.tolist())
        True
        [[1.0, 0.0], [0.0, 1.0]]
        """
        with self.context.lock:
            placed, block = self._block(idx, replica)
            copy, view = np.empty(block.shape, self.dtype), placed.view(block)
            if view is None:
                return copy, placed.rget(copy, block)
            copy[...] = view
            return copy, MPI.REQUEST_NULL

    def get_tile(self, idx: Tile, replica: int | None = None) -> np.ndarray:
        """A copy of a tile (not collective).

        Parameters
        ----------
        idx : (int, int)
            The tile.
        replica : int, optional
            The caller's own by default.

        Returns
        -------
        ndarray
            Rows × columns of the tile.

        Examples
        --------
        >>> from mpi4py import MPI
        >>> import drbench
        >>> with drbench.init(MPI.COMM_SELF, heap="1M") as ctx:
        ...     A = ctx.from_global(np.eye(4), "tiles:2x2")
        ...     A.fence()
        ...     print(A.get_tile((0, 1)).tolist())
        [[0.0, 0.0], [0.0, 0.0]]
        """
        copy, request = self.get_tile_async(idx, replica)
        request.Wait()
        return copy

    def put_tile(self, idx: Tile, value: ArrayLike, replica: int | None = None) -> None:
        """Overwrite a tile (not collective); visible to every rank after :meth:`fence`. No other
        rank may read or change the tile until then.

        Parameters
        ----------
        idx : (int, int)
            The tile.
        replica : int, optional
            The caller's own by default.
        value : array
            Of the tile's shape.

        Raises
        ------
        UsageError
            If the shape of the value is not that of the tile.

        Examples
        --------
        >>> from mpi4py import MPI
        >>> import drbench
        >>> with drbench.init(MPI.COMM_SELF, heap="1M") as ctx:
        ...     A = ctx.zeros((2, 2), "tiles:1x2")
        ...     A.fence()
        ...     A.put_tile((1, 0), [[3, 4]])
        ...     A.fence()
        ...     print(A.local.tolist())
        [[0.0, 0.0], [3.0, 4.0]]
        """
        with self.context.lock:
            placed, block = self._block(idx, replica)
            value, view = self._value(value, block), placed.view(block)
            if view is None:
                placed.rput(value, block).Wait()
            else:
                view[...] = value

    def accumulate_tile(self, idx: Tile, value: ArrayLike, replica: int | None = None) -> None:
        """Add to a tile, atomically per element (not collective); complete on every rank after
        :meth:`fence`.

        Parameters
        ----------
        idx : (int, int)
            The tile.
        replica : int, optional
            The caller's own by default.
        value : array
            Of the tile's shape.

        Raises
        ------
        UsageError
            If the shape of the value is not that of the tile.
        UnsupportedError
            If the ranks of the tile's replica add in place on a node that this rank is not on, or
            if MPI would have to add bfloat16.

        Examples
        --------
        >>> from mpi4py import MPI
        >>> import drbench
        >>> with drbench.init(MPI.COMM_SELF, heap="1M") as ctx:
        ...     C = ctx.zeros((2, 2), "tiles:1x2")
        ...     C.fence()
        ...     for _ in range(3):
        ...         C.accumulate_tile((0, 0), [[1, 2]])
        ...     C.fence()
        ...     print(C.local.tolist())
        [[3.0, 6.0], [0.0, 0.0]]
        """
        with self.context.lock:
            placed, block = self._block(idx, replica)
            value = self._value(value, block)
            if placed.protocols[block.replica] == "mpi":
                if not mpi_adds(self.dtype):
                    raise UnsupportedError(
                        f"tiles of {self} are accumulated by MPI, which cannot add {self.dtype}. "
                        "Use float32, or ranks of one node."
                    )
                placed.raccumulate(value, block).Wait()
                return
            remedy = (
                f"Replica {block.replica} is accumulated in place on its own node: accumulate "
                "into the own replica."
            )
            view = self._reached(placed, block, remedy)
            with placed.guard(block):
                np.add(view, value, out=view)

    def reduce_replicas(self, origin: int = 0) -> None:
        """Add the tiles of all other replicas to those of one (collective).

        Parameters
        ----------
        origin : int
            The replica that is added to.

        Raises
        ------
        UsageError
            If there is no such replica.

        Examples
        --------
        >>> from mpi4py import MPI
        >>> import drbench
        >>> with drbench.init(MPI.COMM_SELF, heap="1M") as ctx:
        ...     C = ctx.from_global(np.eye(2), "row")
        ...     C.reduce_replicas()  # C has one replica here: nothing is added
        ...     print(C.local.tolist())
        [[1.0, 0.0], [0.0, 1.0]]
        """
        self._among_replicas(reduce_replicas, origin)

    def broadcast_replica(self, origin: int = 0) -> None:
        """Copy the tiles of one replica to all others (collective).

        Parameters
        ----------
        origin : int
            The replica that is copied.

        Raises
        ------
        UsageError
            If there is no such replica.

        Examples
        --------
        >>> from mpi4py import MPI
        >>> import drbench
        >>> with drbench.init(MPI.COMM_SELF, heap="1M") as ctx:
        ...     C = ctx.from_global(np.eye(2), "row")
        ...     C.broadcast_replica()  # to no other replica here
        ...     print(C.local.tolist())
        [[1.0, 0.0], [0.0, 1.0]]
        """
        self._among_replicas(broadcast_replica, origin)

    def _among_replicas(self, program: Callable, origin: int) -> None:
        copies = len(self.spec.partition.copies())  # of a pending sum those of each term
        if not 0 <= origin < copies:
            raise UsageError(f"{self} has copies 0 to {copies - 1}, got {origin}.")
        runtime = self.context.runtime
        with self.context.lock:
            self.context.open_tiles(self, f"{program.__name__}({self}, origin={origin})")
            assert self.placed is not None  # from the first fence on
            steps = program(self.placed.operand, runtime.rank, origin)
            name = self.placed.operand.name
            traced = trace(steps, None, runtime.rank, fresh=False, written=name)
            with Executor(traced, {name: self.placed}) as executor:
                executor.yields = runtime.yields
                executor.run()

    def _block(self, idx: Tile, replica: int | None) -> tuple[DistributedMatrix, Block]:
        """A tile as a block, and the matrix that it is a block of."""
        self._check_replica(replica)
        if self.placed is None or self.context.closed:
            raise UsageError(
                f"the addresses of the tiles of {self} are unknown. Call its fence() on all ranks "
                "first, in an open context."
            )
        replica = self.placed.replica if replica is None else replica
        return self.placed, self.placed.operand.tile_block((int(idx[0]), int(idx[1])), replica)

    def _check_replica(self, replica: int | None) -> None:
        replicas = self.spec.partition.replicas
        if replica is not None and not 0 <= replica < replicas:
            raise UsageError(f"{self} has replicas 0 to {replicas - 1}, got {replica}.")

    def _value(self, value: ArrayLike, block: Block) -> np.ndarray:
        value = np.ascontiguousarray(plain(value), dtype=self.dtype)
        if value.shape != block.shape:
            raise UsageError(
                f"tile {block.tile} of {self} is {block.shape[0]}x{block.shape[1]}, got "
                f"{'x'.join(map(str, value.shape))}."
            )
        return value

    def _reached(self, placed: DistributedMatrix, block: Block, remedy: str) -> np.ndarray:
        view = placed.view(block)
        if view is None:
            raise UnsupportedError(
                f"tile {block.tile} of {self} is on rank {block.owner}, out of reach of rank "
                f"{self.context.rank}. {remedy}"
            )
        return view

    def __repr__(self) -> str:
        return repr(self.spec)
