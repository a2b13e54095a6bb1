"""A context: some ranks, their heap, and their plans. No state is global: several contexts may
be open at once."""

from __future__ import annotations

import atexit
import gc
import os
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from types import TracebackType
from typing import Any

import numpy as np
import threadpoolctl
from mpi4py import MPI
from numpy.typing import ArrayLike, DTypeLike

from drbench.device.base import Device
from drbench.errors import (
    CaseFailed,
    DrbenchError,
    UnsupportedError,
    UsageError,
    did_you_mean,
    shown,
)
from drbench.host.launcher import end_ranks
from drbench.host.matrix import Window
from drbench.host.topology import start_mpi
from drbench.model.machine import Machine
from drbench.program.problem import Operand
from drbench.transport import parse_transport

from .exchange import Exchange
from .explain import PlanExplanation
from .heap import parse_bytes
from .matrix import Matrix
from .on_device import open_runtime
from .plan import Multiplication, Redistribution
from .relabel import Relabelling, relabel
from .scalapack import columns_of, layout_of
from .spec import Layout, Spec, as_int, factor, plain

#: How long a rank that ends with an error waits for the others before it ends them.
_PATIENCE_S = 5.0
#: Plans that a context keeps.
_MOST_PLANS = 512


class Context:
    """Ranks that multiply together. :func:`drbench.init` makes it, with the same parameters;
    :meth:`close` or ``with`` closes it.

    Every rank makes the same matrices. Those of one shape, type and layout are numbered in the
    order in which a rank makes them, which must be the same on every rank.

    Attributes
    ----------
    rank : int
        The number of this rank, from 0.
    size : int
        How many ranks there are.
    comm : MPI.Comm
        A duplicate of the communicator that was given.
    heap : Heap
        This rank's part of the heap: ``heap.taken`` of ``heap.nbytes`` bytes are in use.
    closed : bool
        Whether the context was closed: then it makes and multiplies nothing more.

    Examples
    --------
    >>> import drbench
    >>> with drbench.init(MPI.COMM_SELF, heap="1M") as ctx:
    ...     A = ctx.from_global(np.arange(6.0).reshape(2, 3), "row")
    ...     B = ctx.zeros((3, 4), "column", "float64")
    ...     print(ctx.rank, ctx.size, ctx.multiply(A, B))
    0 1 2x4 float64 row
    """

    def __init__(
        self,
        comm: MPI.Intracomm | None,
        heap: str | int,
        blas: Any,
        transport: str,
        threads: int | None,
        device: str | Device | None,
    ):
        nbytes, choice = parse_bytes(heap), parse_transport(transport)
        if choice.kind == "throttled":
            raise UsageError("transport must be auto, direct or rma, got throttled.")
        world = start_mpi(comm)
        if not isinstance(world, MPI.Intracomm) or world == MPI.COMM_NULL:
            what = "COMM_NULL" if world == MPI.COMM_NULL else type(comm).__name__
            raise UsageError(f"comm must be a communicator of mpi4py, got {what}.")
        if not callable(getattr(blas, "gemm", None)) and not (
            isinstance(blas, str) and blas == "auto"
        ):
            raise UsageError(f"blas must be auto or an object with a method gemm, got {blas!r}.")
        if threads is not None and (as_int(threads) or 0) < 1:
            raise UsageError(f"threads must be at least 1, got {threads!r}.")
        self.runtime = open_runtime(world, nbytes, blas, choice, device)
        self.comm, self.heap = self.runtime.comm, self.runtime.heap
        self.rank, self.size = self.runtime.rank, self.runtime.size
        # for callers that keep matrices of their own, as drbench.torch: they get plans of specs
        # from multiplication() and redistribution(), and run these themselves
        self.specs = self.runtime.specs
        if threads is not None:
            threadpoolctl.threadpool_limits(int(threads))
        self.closed = self._freed = False
        self._plans: dict = {}
        self._made: Counter[Spec] = Counter()  # matrices by spec
        self.lock = threading.RLock()  # held by the thread that runs a plan
        self._closing = Exchange(self.comm, "close()")
        self._end = _LastResort(self.comm)
        atexit.register(self._at_exit)

    # -- matrices

    def empty(
        self, shape: Sequence[int], layout: Layout = "block", dtype: DTypeLike = "float32"
    ) -> Matrix:
        """An uninitialised matrix (not collective).

        Parameters
        ----------
        shape : (int, int)
            Rows and columns of the whole matrix.
        layout : str or Partition
            How it is distributed, as ``"row"``, ``"block:2x3"`` or, in the words of DTensor,
            ``"S(0),R@2x2"``.
        dtype : str or numpy dtype
            float32, float64, on cores also complex64, complex128, or bfloat16 (of the package
            ml_dtypes).

        Returns
        -------
        Matrix
            Uninitialised; each rank holds its own rows and columns.

        Raises
        ------
        UsageError
            If the layout does not fit.
        OutOfMemory
            If this rank's part of the heap is full; the others get the error when they wait for
            this rank.

        Examples
        --------
        >>> import drbench
        >>> with drbench.init(MPI.COMM_SELF, heap="1M") as ctx:
        ...     A = ctx.empty((100, 60), "block", "float32")
        ...     print(A.local.shape, A.dtype, ctx.heap.taken >= A.local.nbytes)
        (100, 60) float32 True
        """
        with self.lock:
            self._check_open()
            spec = self.specs.of(shape, layout, dtype)
            return self._numbered(Matrix(self, spec, *self._allocate(spec)))

    def zeros(
        self, shape: Sequence[int], layout: Layout = "block", dtype: DTypeLike = "float32"
    ) -> Matrix:
        """A matrix of zeros (not collective).

        Parameters
        ----------
        shape : (int, int)
            Rows and columns of the whole matrix.
        layout : str or Partition
            How it is distributed, as for :meth:`empty`.
        dtype : str or numpy dtype
            float32, float64, on cores also complex64, complex128, or bfloat16 (of the package
            ml_dtypes).

        Returns
        -------
        Matrix
            Every element is 0.

        Raises
        ------
        UsageError, OutOfMemory
            For the reasons of :meth:`empty`.

        Examples
        --------
        >>> import drbench
        >>> with drbench.init(MPI.COMM_SELF, heap="1M") as ctx:
        ...     print(ctx.zeros((2, 3), "row").local.tolist())
        [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
        """
        matrix = self.empty(shape, layout, dtype)
        self.runtime.zero(matrix.local)
        return matrix

    def wrap(
        self, local: ArrayLike, layout: Layout, shape: Sequence[int], copy: bool = False
    ) -> Matrix:
        """A matrix made of existing local arrays (not collective).

        Parameters
        ----------
        local : array
            This rank's rows × its columns: NumPy's, on a GPU CuPy's or one with DLPack or
            ``__cuda_array_interface__`` (NumPy's is copied there).
        layout : str or Partition
            How the whole matrix is distributed, as for :meth:`empty`.
        shape : (int, int)
            Rows and columns of the whole matrix.
        copy : bool
            The matrix gets memory of its own, with the elements that the array has now.

        Returns
        -------
        Matrix
            Of this array: operations read it and write into it. They do so in place where it is in
            the heap and its strides suit BLAS (:meth:`holds`); else each copies it into the heap,
            and a result back (:meth:`MultiplicationPlan.explain` says how much).

        Raises
        ------
        UsageError
            If the array has not the shape of this rank's part of the layout.
        OutOfMemory
            If a copy does not fit into this rank's part of the heap.

        Examples
        --------
        >>> import drbench
        >>> with drbench.init(MPI.COMM_SELF, heap="1M") as ctx:
        ...     mine = np.zeros((2, 2))
        ...     A, C = ctx.wrap(np.eye(2), "row", (2, 2)), ctx.wrap(mine, "row", (2, 2))
        ...     product = ctx.multiply(A, A, out=C)
        >>> mine.tolist()
        [[1.0, 0.0], [0.0, 1.0]]
        """
        with self.lock:
            self._check_open()
            given = plain(local)
            local = self.runtime.taken(given)
            spec = self.specs.of(shape, layout, local.dtype)
            if local.shape != spec.local_shape:
                rows, cols = spec.local_shape
                raise UsageError(
                    f"rank {self.rank} of {spec} has {rows}x{cols}, the array to wrap is "
                    f"{'x'.join(map(str, local.shape))}. Wrap an array of that shape."
                )
            offset, outside = self.heap.offset_of(local) if local.size else 0, None
            if offset is None or copy:
                # lists, and arrays of cores on a GPU, are copies already
                if not copy and (
                    given is local or not isinstance(given, np.ndarray | list | tuple)
                ):
                    outside = local
                transposed = _by_columns(local)  # a transposed array stays transposed
                copied, offset = self._allocate(spec, transposed)
                copied = copied.T if transposed else copied
                self.runtime.copy(copied, local)
                local = copied
            return self._numbered(Matrix(self, spec, local, offset, outside=outside))

    def from_scalapack(
        self,
        descriptor: Sequence[int],
        local: ArrayLike,
        grid: str | None = None,
        ranks: Collection[int] | None = None,
    ) -> Matrix:
        """A matrix made of an array of ScaLAPACK and its descriptor (not collective).

        Parameters
        ----------
        descriptor : sequence of int
            The nine integers of ``descinit``: DTYPE, CTXT, M, N, MB, NB, RSRC, CSRC, LLD. CTXT is
            not used.
        local : array
            This rank's elements by columns: LLD or LOCr rows × at least LOCc columns, or one
            dimension, of LLD·LOCc elements (on cores the last column may end with the matrix). A
            rank without elements may give any array of the matrix's type.
        grid : str, optional
            The BLACS grid, as ``2x3`` or, with column-major ranks, ``2x3:col``; by default the most
            square one.
        ranks : collection of int, optional
            The ranks of the grid, in its order; by default all. The others hold nothing, and call
            this with an empty array.

        Returns
        -------
        Matrix
            Of your array, as of :meth:`wrap`: operations read it and write into it. The submatrix
            of ScaLAPACK's IA, JA, M, N is ``A[IA-1:IA-1+M, JA-1:JA-1+N]``.

        Raises
        ------
        UsageError
            If this is no descriptor of a dense matrix, or the array does not fit it.

        Examples
        --------
        >>> import drbench
        >>> with drbench.init(MPI.COMM_SELF, heap="1M") as ctx:
        ...     local = np.arange(12.0)  # three columns of LLD = 4
        ...     A = ctx.from_scalapack([1, 0, 3, 3, 2, 2, 0, 0, 4], local)
        ...     print(A, A.local.tolist())
        3x3 float64 tiles:2x2@1x1 [[0.0, 4.0, 8.0], [1.0, 5.0, 9.0], [2.0, 6.0, 10.0]]
        """
        layout, shape, lld = layout_of(descriptor, self.size, grid, ranks)
        local = self.runtime.taken(plain(local))
        local_shape = self.specs.of(shape, layout, local.dtype).local_shape
        local = columns_of(local, lld, local_shape, f"rank {self.rank} of {layout}")
        return self.wrap(local, layout, shape)

    def from_global(self, array: ArrayLike, layout: Layout = "block") -> Matrix:
        """A matrix made of an array that every rank has in full (not collective).

        Parameters
        ----------
        array : array
            m×n; the same on every rank.
        layout : str or Partition
            How the matrix is distributed, as for :meth:`empty`.

        Returns
        -------
        Matrix
            Of the array's type; each rank copies its own rows and columns.

        Raises
        ------
        UsageError, OutOfMemory
            For the reasons of :meth:`empty`.

        Examples
        --------
        >>> import drbench
        >>> with drbench.init(MPI.COMM_SELF, heap="1M") as ctx:
        ...     A = ctx.from_global(np.arange(6.0).reshape(2, 3), "column")
        ...     print(A, A.rows.tolist(), A.columns.tolist())
        2x3 float64 column [0, 1] [0, 1, 2]
        """
        array = self.runtime.taken(plain(array))
        matrix = self.empty(array.shape, layout, array.dtype)
        whole = matrix.spec.partition
        if whole.term_of(whole.replica_of(self.rank)):  # of a pending sum the first term has all
            self.runtime.zero(matrix.local)
            return matrix
        for there, here in matrix.spec.fragments():
            self.runtime.copy(matrix.local[here], array[there])
        return matrix

    def holds(self, local: np.ndarray) -> bool:
        """Whether :meth:`wrap` uses a local array without a copy (not collective).

        Parameters
        ----------
        local : ndarray
            An array of this rank; on a GPU CuPy's.

        Returns
        -------
        bool
            True if it is in this rank's part of the heap, and contiguous along one axis.

        Examples
        --------
        >>> import drbench
        >>> with drbench.init(MPI.COMM_SELF, heap="1M") as ctx:
        ...     A = ctx.zeros((4, 4), "row")
        ...     print(ctx.holds(A.local), ctx.holds(A.local.T), ctx.holds(np.ones((4, 4))))
        True True False
        """
        return self.heap.offset_of(local) is not None

    # -- collective operations

    def multiply(
        self,
        A: Matrix,
        B: Matrix,
        out: Matrix | Layout | None = None,
        *,
        stationary: str = "auto",
        alpha: complex = 1.0,
        beta: complex = 0.0,
        transpose: str = "",
    ) -> Matrix:
        """C = beta·C + alpha·A·B, for any layouts (collective): :func:`drbench.multiply`, which has
        the same parameters, result and errors.
        """
        with self.lock:
            self._check(A, B)
            A, B = _transposed(A, B, transpose)
            alpha, beta = factor(alpha, A.dtype), factor(beta, A.dtype)
            A, B = self._summed(A), self._summed(B)
            plan = self._multiplication(A, B, out, stationary, beta)
            for matrix in (A, B, *((out,) if beta else ())):
                matrix.copy_in()
            C, fault = (out, None) if isinstance(out, Matrix) else self._new(plan.specs["C"])
            locations = () if C is None else A.location + B.location + C.location
            serials = A.serial, B.serial, C.serial if C else 0
            plan.run(locations, fault, serials, alpha=alpha, beta=beta)
            assert C is not None  # a fault ends every rank
            C.copy_out()
            return self._numbered(C)

    def plan(
        self,
        A: Matrix,
        B: Matrix,
        C: Matrix,
        *,
        stationary: str = "auto",
        alpha: complex = 1.0,
        beta: complex = 0.0,
        transpose: str = "",
    ) -> MultiplicationPlan:
        """The multiplication of these three matrices, to be called repeatedly (not collective).

        Parameters
        ----------
        A, B, C : Matrix
            m×k, k×n and m×n, of this context and one element type.
        stationary : str
            The matrix whose tiles do not move: ``A``, ``B``, ``C`` or ``auto``.
        alpha, beta : float, or complex if the elements are
            The factors of A·B and of the old C.
        transpose : str
            As of :func:`drbench.multiply`.

        Returns
        -------
        MultiplicationPlan
            Call it to multiply what the local arrays hold then.

        Raises
        ------
        UsageError
            If shapes or types do not fit, or C is no matrix.

        Examples
        --------
        >>> import drbench
        >>> with drbench.init(MPI.COMM_SELF, heap="1M") as ctx:
        ...     A, C = ctx.from_global(np.ones((2, 2)), "row"), ctx.zeros((2, 2), "row", "float64")
        ...     p = ctx.plan(A, A, C)
        ...     C = p()
        ...     print(C.local.tolist(), p.explain().moved_bytes)
        [[2.0, 2.0], [2.0, 2.0]] [0]
        """
        with self.lock:
            if not isinstance(C, Matrix):
                raise UsageError(f"a plan needs the matrix that it writes, got {C!r}.")
            self._check(A, B)
            A, B = _transposed(A, B, transpose)
            alpha, beta = factor(alpha, A.dtype), factor(beta, A.dtype)
            operands = self._with_sum(A), self._with_sum(B)
            plan = self._multiplication(*operands, C, stationary, beta)
            return MultiplicationPlan(self, plan, (A, B, C), operands, alpha, beta)

    def _multiplication(
        self, A: Matrix, B: Matrix, out: Matrix | Layout | None, stationary: str, beta: complex
    ) -> Multiplication:
        """The plan of a multiplication; raises every error that follows from the specs alone."""
        if isinstance(out, Matrix):
            self._check(out)
            c = out.spec
            if isinstance(out.outside, np.ndarray) and not out.outside.flags.writeable:
                raise UsageError(f"{out} is of an array that cannot be written. Give another out.")
        elif beta:
            raise UsageError(f"beta={beta:g} adds to a matrix: give it as out.")
        else:
            layout = A.layout if out is None else out
            c = self.specs.of((A.shape[0], B.shape[1]), layout, A.dtype)
        return self.multiplication(A.spec, B.spec, c, stationary, beta != 0)

    def multiplication(
        self, a: Spec, b: Spec, c: Spec, stationary: str = "auto", update: bool = False
    ) -> Multiplication:
        """The plan of a multiplication of three specs (not collective).

        Parameters
        ----------
        a, b, c : Spec
            Of :attr:`specs`; no reduction of A or B is pending (:attr:`Spec.whole`).
        stationary : str
            The matrix whose tiles do not move: ``A``, ``B``, ``C`` or ``auto``.
        update : bool
            Whether the old C is added to.

        Returns
        -------
        Multiplication
            The same object for the same specs.

        Raises
        ------
        UsageError
            If shapes or types do not fit.
        """

        def make() -> Multiplication:
            self._check_fit(a, b, c, stationary)
            return Multiplication(self.runtime, *key)

        key = (a, b, c, stationary, update)
        return self._cached(key, make)

    def _check_fit(self, a: Spec, b: Spec, c: Spec, stationary: str) -> None:
        (m, k), (l, n) = a.shape, b.shape
        if k != l or c.shape != (m, n):
            raise UsageError(
                f"shapes do not fit: A is {m}x{k}, B {l}x{n}, C {c.shape[0]}x{c.shape[1]}; "
                "C (m×n) = A (m×k) · B (k×n)."
            )
        if not a.dtype == b.dtype == c.dtype:
            raise UsageError(
                f"types differ: A is {a.dtype}, B {b.dtype}, C {c.dtype}. Use one type for all."
            )
        if c.conjugated:
            raise UsageError(f"C is written as it is stored, got {c}. Write into C, and use C.H.")
        if stationary not in ("A", "B", "C", "auto"):
            hint = did_you_mean(str(stationary), ("A", "B", "C", "auto"))
            raise UsageError(f"stationary must be A, B, C or auto, got {stationary!r}.{hint}")

    def redistribute(self, A: Matrix, layout: Matrix | Layout, *, copy: bool = False) -> Matrix:
        """A in another layout (collective): :func:`drbench.redistribute`, which has the same
        parameters, result and errors.
        """
        out: Matrix | None
        with self.lock:
            self._check(A)
            if isinstance(layout, Matrix):
                self._check(layout)
                new = layout.spec
                if new.shape != A.shape or new.dtype != A.dtype:
                    raise UsageError(f"{A} cannot become {layout}: shapes or types differ.")
                out, fault = layout, None
            else:
                new = self.specs.of(A.shape, layout, A.dtype)
                within = self._cached(("within", new, A.spec), lambda: new.within(A.spec))
                if within is not None and not copy and not A.spec.conjugated:
                    (row, col), (rows, cols) = within, new.local_shape
                    at, by_row, by_col = A.location
                    at += row * by_row + col * by_col
                    region = slice(row, row + rows), slice(col, col + cols)
                    return A._view(new, lambda array: array[region], at, A.serial)
                out, fault = self._new(new)
            plan = self.redistribution(A.spec, new)
            A.copy_in()
            locations = () if out is None else A.location + out.location
            plan.run(locations, fault, (A.serial, out.serial if out else 0))
            assert out is not None  # a fault ends every rank
            if A.spec.conjugated != out.spec.conjugated:
                np.conjugate(out.memory, out=out.memory)
            out.copy_out()
            return self._numbered(out)

    def relabel(self, A: Matrix, layout: str) -> Relabelling:
        """A layout whose parts are on those ranks that have most of them already, so that
        :meth:`redistribute` moves the fewest bytes (not collective).

        Use it where it does not matter which rank has which part. SciPy (``pip install
        'drbench[relabel]'``) finds the best ranks, else they are chosen greedily.

        Parameters
        ----------
        A : Matrix
            Any matrix of this context.
        layout : str
            The layout to change to.

        Returns
        -------
        Relabelling
            Its ``layout`` is a text; ``moved_bytes`` and ``saved_bytes``, of all ranks.

        Raises
        ------
        UsageError
            If the layout does not fit.
        UnsupportedError
            If a sum is pending in one of the two layouts.

        Examples
        --------
        >>> import drbench
        >>> with drbench.init(MPI.COMM_SELF, heap="1M") as ctx:
        ...     print(ctx.relabel(ctx.zeros((4, 4), "row"), "column"))
        Relabelling(layout='column', moved_bytes=0, saved_bytes=0)
        """
        self._check(A)
        new = self.specs.of(A.shape, layout, A.dtype)
        return relabel(A.spec.partition, new.partition, A.dtype.itemsize)

    def fence(self, A: Matrix) -> None:
        """Complete the puts and accumulates of all ranks (collective).

        Parameters
        ----------
        A : Matrix
            Whose tiles are read or changed one by one (:meth:`Matrix.fence`).

        Raises
        ------
        UnsupportedError
            If the matrix is on a device.
        """
        self.open_tiles(A, f"fence({A})")

    def open_tiles(self, A: Matrix, what: str) -> None:
        """Begin an operation on single tiles with a :meth:`fence` (collective).

        Parameters
        ----------
        A : Matrix
            The matrix whose tiles are read or changed.
        what : str
            The operation in words; an error if ranks begin different ones.
        """
        with self.lock:
            self._check(A)
            if A.spec.conjugated:
                raise UnsupportedError(
                    f"{A} is a conjugate, whose tiles are those of another matrix. Use the tiles "
                    "of that one, or redistribute(A.H, copy=True)."
                )
            if A.outside is not None:
                raise UnsupportedError(
                    f"tiles of {A} are in an array that other ranks cannot read. Give it to wrap "
                    "with copy=True, or allocate it by ctx.heap.array."
                )
            if not isinstance(self.heap.window, Window):
                raise UnsupportedError(
                    f"tiles of {A} are on a device, where drbench cannot read or change single "
                    "tiles. Use redistribute or to_global."
                )
            exchange = self._cached((what, A.spec), lambda: Exchange(self.comm, what))
            window = self.heap.window
            window.flush()
            window.sync()
            exchange.handshake(A.location, serials=(A.serial,))
            exchange.check()
            window.sync()
            if A.placed is None:
                operand = Operand("C", A.spec.partition)
                A.placed = self.runtime.matrix(operand, A.dtype, exchange.locations(0))

    def to_global(self, A: Matrix, root: int | None = None) -> np.ndarray | None:
        """The whole matrix on every rank, or on one (collective).

        Parameters
        ----------
        A : Matrix
            Any matrix of this context.
        root : int, optional
            The only rank that gets it.

        Returns
        -------
        ndarray or None
            m×n, an array of this rank's own, of the type of ``A.local``; with ``root``, None on the
            other ranks.

        Raises
        ------
        UsageError
            If ``root`` is no rank.

        Examples
        --------
        >>> import drbench
        >>> with drbench.init(MPI.COMM_SELF, heap="1M") as ctx:
        ...     A = ctx.from_global(np.arange(4.0).reshape(2, 2), "row")
        ...     print(ctx.to_global(A, root=0).tolist())
        [[0.0, 1.0], [2.0, 3.0]]
        """
        with self.lock:
            self._check(A)
            if root is not None:
                rank = as_int(root)
                if rank is None or not 0 <= rank < self.size:
                    raise UsageError(
                        f"root must be a rank from 0 to {self.size - 1}, got {root!r}."
                    )
                root = rank
            whole = self.specs.of(A.shape, f"row/c{self.size}", A.dtype)
            A.copy_in()
            here = root in (None, self.rank)
            array = self.runtime.empty(A.shape if here else (0, 0), A.dtype)
            self.redistribution(A.spec, whole, root).run(A.location, None, (A.serial,), array)
            if A.spec.conjugated:
                np.conjugate(array, out=array)
            return array if here else None

    def _summed(self, A: Matrix) -> Matrix:
        """A, or if A is Partial its reduction in another layout (collective then)."""
        return A if A.spec.whole is A.spec else self.redistribute(A, A.spec.whole)

    def _with_sum(self, A: Matrix) -> Matrix:
        """A, or if A is Partial a new matrix for its reduction."""
        return A if A.spec.whole is A.spec else self.empty(A.shape, A.spec.whole, A.dtype)

    def redistribution(self, a: Spec, c: Spec, root: int | None = None) -> Redistribution:
        """The plan that redistributes one spec to another (not collective).

        Parameters
        ----------
        a, c : Spec
            The old and the new layout of one matrix.
        root : int, optional
            The only rank that receives.

        Returns
        -------
        Redistribution
            The same object for the same specs.
        """
        return self._cached((a, c, root), lambda: Redistribution(self.runtime, a, c, root))

    def _cached(self, key: tuple, make: Callable[[], Any]) -> Any:
        """The plan of a key, made once; if there are many, the oldest are forgotten."""
        if key not in self._plans:
            plan = make()
            if len(self._plans) >= _MOST_PLANS:
                del self._plans[next(iter(self._plans))]
            self._plans[key] = plan
        return self._plans[key]

    def _new(self, spec: Spec) -> tuple[Matrix | None, DrbenchError | None]:
        """A new matrix, not numbered, or the error why this rank cannot allocate it."""
        try:
            return Matrix(self, spec, *self._allocate(spec)), None
        except DrbenchError as error:
            return None, error

    def _numbered(self, A: Matrix) -> Matrix:
        """A matrix with its number, if it has none."""
        if not A.serial:
            self._made[A.spec] += 1
            A.serial = self._made[A.spec]
        return A

    def _allocate(self, spec: Spec, transposed: bool = False) -> tuple[np.ndarray, int]:
        """A local array in the heap, its rows padded where BLAS reads all of them in place."""
        rows, cols = spec.local_shape
        shape = (cols, rows) if transposed else (rows, cols)
        return self.heap.allocate(shape, spec.dtype, self.runtime.pads)

    # -- checks

    def _check_open(self) -> None:
        if self.closed:
            raise UsageError("the context is closed. Make another with drbench.init.")

    def _check(self, *matrices: Matrix) -> None:
        self._check_open()
        for matrix in matrices:
            if context_of(matrix) is not self:
                raise UsageError(
                    f"{matrix} is of another context. Wrap its local arrays in this one."
                )

    # -- the end

    def close(self) -> None:
        """End the context (collective).

        Arrays that are still in use stay valid: then the heap's memory is kept until the process
        ends. Otherwise it is freed now.

        Raises
        ------
        UsageError
            If other ranks do something else instead. The context is closed then too.
        """
        refusal = self._close(None)
        if refusal is not None:
            raise refusal

    def _close(self, leaving: DrbenchError | None) -> DrbenchError | None:
        with self.lock:
            if self.closed:
                return None
            refusal = None
            if self.heap.taken:
                gc.collect()
            self._plans.clear()
            self.runtime.forget()
            while True:  # until all ranks call close
                self._closing.handshake((self.heap.taken, 0, 0), leaving)
                if self._closing.agreed:
                    break
                try:
                    self._closing.check(leaving)
                except DrbenchError as error:
                    refusal = error
            self.closed = True
            if any(taken for taken, *_ in self._closing.locations(0)):
                self._end.close()  # no thread waits for the end of the process
            else:
                self._free()
            return refusal

    def _free(self) -> None:
        """Free the heap, the plans and the communicator (collective)."""
        self._end.close()
        self.runtime.close()
        self._freed = True
        atexit.unregister(self._at_exit)

    def _at_exit(self) -> None:
        """End a context that was not closed, or kept its heap, when the process ends."""
        if self._freed or MPI.Is_finalized():
            return
        died = getattr(sys, "last_value", None)
        if not self.closed:
            if died is not None:
                self._end.set(died)
            self._close(_leaving(died))
        if not self._freed:
            self._end.wait(self.comm.Ibarrier(), died)
            self._free()

    def __enter__(self) -> Context:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        if error is None:
            self.close()
            return
        self._end.set(error)
        self._close(_leaving(error))  # the user sees the error that is being raised
        self._end.clear()

    def __repr__(self) -> str:
        state = f"{self.heap.taken} of {self.heap.nbytes} bytes in use, {len(self._plans)} plans"
        return f"Context of {self.size} ranks, {'closed' if self.closed else state}"


class MultiplicationPlan:
    """A planned multiplication; call it to carry it out (collective). Made by
    :meth:`Context.plan`.

    Attributes
    ----------
    matrices : tuple of Matrix
        A, B, C; each call multiplies what their local arrays hold then. A Partial operand is
        reduced at each call.
    alpha, beta : float, or complex if the elements are
        May be set between calls; beta between 0 and another value only by a new plan.
    """

    __slots__ = ("context", "plan", "matrices", "alpha", "beta", "_locations", "_serials", "_sums")

    def __init__(
        self,
        context: Context,
        plan: Multiplication,
        matrices: tuple[Matrix, Matrix, Matrix],
        operands: tuple[Matrix, Matrix],
        alpha: complex,
        beta: complex,
    ):
        self.context, self.plan, self.matrices = context, plan, matrices
        self.alpha, self.beta = alpha, beta
        a, b = operands
        self._locations = a.location + b.location + matrices[2].location
        self._serials = a.serial, b.serial, matrices[2].serial
        self._sums = [pair for pair in zip(matrices, operands) if pair[0] is not pair[1]]

    def __call__(self) -> Matrix:
        """C = beta·C + alpha·A·B (collective).

        Returns
        -------
        Matrix
            C.

        Raises
        ------
        UsageError
            On every rank, if the context is closed or ranks make different calls.
        """
        with self.context.lock:
            self.context._check_open()
            for pending, whole in self._sums:
                self.context.redistribute(pending, whole)
            A, B, C = self.matrices
            alpha, beta = factor(self.alpha, C.dtype), factor(self.beta, C.dtype)
            for matrix in (A, B, *((C,) if beta else ())):
                matrix.copy_in()
            self.plan.run(self._locations, None, self._serials, alpha=alpha, beta=beta)
            C.copy_out()
        return C

    def __repr__(self) -> str:
        return f"Plan of {self.plan.what}, {self.plan.contents}"

    def explain(self, machine: Machine | str | os.PathLike[str] | None = None) -> PlanExplanation:
        """The bytes that the plan moves, its steps and its memory (not collective).

        Parameters
        ----------
        machine : Machine, or path of a machine file, optional
            The performance model that predicts its time.

        Returns
        -------
        PlanExplanation
            In numbers; ``str()`` of it is text.
        """
        outside = dict(zip("ABC", self.matrices))
        copied = {
            x: y.memory.nbytes * (2 if x == "C" and self.beta else 1)
            for x, y in outside.items()
            if y.outside is not None
        }
        return PlanExplanation.of(self.plan, machine, copied)


class _LastResort:
    """Ends all ranks if one ends with an error and the others do not end, too.

    The thread is started at once, because no thread can be started when the process ends.
    """

    def __init__(self, comm: MPI.Comm):
        self._comm, self._struck, self._over = comm, threading.Event(), threading.Event()
        self._error: BaseException | None = None
        threading.Thread(target=self._wait, name="drbench-last-resort", daemon=True).start()

    def _wait(self) -> None:
        while True:
            self._struck.wait()
            if self._error is None:
                return
            if not self._over.wait(_PATIENCE_S):
                self._end_all(self._error)
            self._struck.clear()

    def _end_all(self, error: BaseException) -> None:
        end_all(
            "".join(traceback.format_exception(error))
            + f"drbench: rank {self._comm.rank} ended with {type(error).__name__} "
            f"and the others did not follow within {_PATIENCE_S:g} s: all are ended.\n",
            CaseFailed(""),
        )

    def wait(self, arrived: MPI.Request, error: BaseException | None) -> None:
        """Wait until all ranks reach the end of the process; if this one ends with an error, at
        most for the time limit. Needs no thread: that of a closed context has ended."""
        if error is None:
            arrived.Wait()
            return
        deadline = time.monotonic() + _PATIENCE_S
        while not arrived.Test():
            if time.monotonic() > deadline:
                self._end_all(error)
            time.sleep(0.001)

    def set(self, error: BaseException) -> None:
        """Start the time limit of the others: this rank ends with an error."""
        self._over.clear()
        self._error = error
        self._struck.set()

    def clear(self) -> None:
        """Stop the time limit: the others have ended, too."""
        self._over.set()

    def close(self) -> None:
        """End the thread: no error is expected any more."""
        self._over.set()
        self._error = None
        self._struck.set()


def end_all(text: str, why: DrbenchError) -> None:
    """Write a text, and end all ranks with the exit code of an error."""
    sys.stderr.write(text)
    end_ranks(MPI.COMM_WORLD, why.exit_code)


def _leaving(error: BaseException | None) -> DrbenchError | None:
    """The error that the other ranks get if this one leaves with an error."""
    if error is None or isinstance(error, DrbenchError):
        return error
    line = " ".join(str(error).split())[:200]
    return CaseFailed(f"left with {type(error).__name__}: {line}")


def _transposed(A: Matrix, B: Matrix, letters: str) -> tuple[Matrix, Matrix]:
    """A and B as BLAS's letters have them."""
    forms = {"N": lambda matrix: matrix, "T": lambda matrix: matrix.T, "C": lambda matrix: matrix.H}
    given = str(letters).upper().ljust(2, "N")
    if len(given) > 2 or not {*given} <= forms.keys():
        raise UsageError(f"transpose is N, T or C for A and for B, as CN, got {shown(letters)}.")
    of_a, of_b = (forms[letter] for letter in given)
    return of_a(A), of_b(B)


def context_of(matrix: Any) -> Context:
    """The context of a matrix; a UsageError if the argument is no Matrix."""
    if not isinstance(matrix, Matrix):
        raise UsageError(
            f"a Matrix is needed, got {type(matrix).__name__}. Use ctx.wrap or ctx.from_global."
        )
    return matrix.context


def _by_columns(local: np.ndarray) -> bool:
    """Whether a local array is column-major."""
    by_row, by_col = local.strides
    return by_row == local.itemsize and by_col > by_row
