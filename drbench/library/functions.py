"""The three public functions: init, multiply and redistribute."""

from __future__ import annotations

from typing import Any

from mpi4py import MPI

from drbench.device.base import Device

from .context import Context, context_of
from .matrix import Matrix
from .spec import Layout


def init(
    comm: MPI.Intracomm | None = None,
    heap: str | int = "1G",
    blas: Any = "auto",
    *,
    transport: str = "auto",
    threads: int | None = None,
    device: str | Device | None = None,
) -> Context:
    """Open a context over the ranks of a communicator (collective over it).

    Parameters
    ----------
    comm : MPI.Intracomm, optional
        The ranks; ``MPI.COMM_WORLD`` by default. It is duplicated. Several contexts may be open at
        once.
    heap : str or int
        Bytes of each rank's part of the heap, as ``"1G"`` or ``"64M"``. Memory is used only once
        matrices are allocated.
    blas : "auto" or object
        Performs local GEMMs: NumPy's own BLAS, or an object with the method ``gemm`` of
        :class:`drbench.host.blas.Blas`.
    transport : str
        ``auto``: arrays of other ranks are read in place if their memory can be mapped, else by
        MPI's one-sided operations; ``direct``: only in place, or an error; ``rma``: never in place.
    threads : int, optional
        Limits the threads of BLAS in this process. By default they are left as they are: set
        ``OMP_NUM_THREADS`` to the cores of a rank.
    device : str or Device, optional
        Where matrices are stored and multiplied: ``"cpu"``, the default, or ``"gpu"``: each rank
        uses one GPU of its node, and local arrays are CuPy's. An object of
        :class:`drbench.device.base.Device` is used, but not closed.

    Returns
    -------
    Context
        Makes matrices and multiplies them; close it, or use it in ``with``.

    Raises
    ------
    UsageError, OutOfMemory, UnsupportedError, MissingError
        On every rank: an argument cannot be read, the node (or a GPU) has too little memory,
        ``direct`` is not possible, or there is no GPU, or no CuPy.

    Examples
    --------
    >>> import numpy as np
    >>> from mpi4py import MPI
    >>> import drbench
    >>> ctx = drbench.init(MPI.COMM_SELF, heap="1M")
    >>> A = ctx.from_global(np.eye(3), "row")
    >>> drbench.multiply(A, A).to_global().tolist()[0]
    [1.0, 0.0, 0.0]
    >>> ctx.close()

    A GEMM of one's own; with ``beta`` 0 the old C may be NaN:

    >>> class Counting:
    ...     calls = 0
    ...
    ...     def gemm(self, a, b, c, beta, alpha=1.0):
    ...         c[...] = alpha * (a @ b) + (beta * c if beta else 0)
    ...         self.calls += 1
    >>> with drbench.init(MPI.COMM_SELF, heap="1M", blas=(mine := Counting())) as ctx:
    ...     A = ctx.from_global(np.eye(2), "row")
    ...     print((A @ A).local.tolist(), mine.calls)
    [[1.0, 0.0], [0.0, 1.0]] 1
    """
    return Context(comm, heap, blas, transport, threads, device)


def multiply(
    A: Matrix,
    B: Matrix,
    out: Matrix | Layout | None = None,
    *,
    stationary: str = "auto",
    alpha: complex = 1.0,
    beta: complex = 0.0,
    transpose: str = "",
) -> Matrix:
    """C = beta·C + alpha·A·B, for any layouts (collective).

    Parameters
    ----------
    A, B : Matrix
        m×k and k×n, of one context and one element type. ``A.T`` and ``A.H`` need no copy.
    out : Matrix, str or Partition, optional
        The matrix that C is written into, m×n, or the layout of a new one; by default the layout of
        A. It must share no memory with A or B.
    stationary : str
        The matrix whose tiles do not move: ``A``, ``B``, ``C``, or ``auto``: the one with which the
        busiest rank moves the fewest bytes, an accumulate counted three times.
    alpha, beta : float, or complex if the elements are
        As in BLAS, which does not read A and B if ``alpha`` is 0, nor C if ``beta`` is 0; finite,
        and the same on every rank. ``beta`` needs a matrix as ``out``.
    transpose : str
        The letters of BLAS for A and B, ``N``, ``T`` or ``C``: ``"CN"`` multiplies ``A.H`` by B.
        One letter is for A.

    Returns
    -------
    Matrix
        C, m×n, complete on every rank, in every replica.

    Raises
    ------
    UsageError
        On every rank: shapes or types do not fit, a matrix is of another context, the context is
        closed, C overlaps an operand, or ranks make different calls or give different matrices.
    OutOfMemory
        On every rank, if the heap of one is too small for C.

    Examples
    --------
    >>> import numpy as np
    >>> from mpi4py import MPI
    >>> import drbench
    >>> with drbench.init(MPI.COMM_SELF, heap="1M") as ctx:
    ...     A = ctx.from_global(np.arange(6.0).reshape(2, 3), "row")
    ...     C = drbench.multiply(A, A.T, "column", alpha=2.0)
    ...     print(C, C.to_global().tolist())
    2x2 float64 column [[10.0, 28.0], [28.0, 100.0]]
    """
    return context_of(A).multiply(
        A, B, out, stationary=stationary, alpha=alpha, beta=beta, transpose=transpose
    )


def redistribute(A: Matrix, layout: Matrix | Layout, *, copy: bool = False) -> Matrix:
    """A in another layout (collective). Each element that must change its rank moves once.

    Parameters
    ----------
    A : Matrix
        Any matrix of an open context.
    layout : str, Partition or Matrix
        The new layout, or a matrix of A's shape and type that has it and is overwritten.
    copy : bool
        If no element has to move (each rank keeps its elements, or a part of them), the result
        shares A's memory, like a slice of an array; with ``copy`` it has memory of its own.

    Returns
    -------
    Matrix
        The same elements, in the new layout.

    Raises
    ------
    UsageError
        On every rank: a layout does not fit, a matrix is of another context, the context is closed,
        or ranks make different calls or give different matrices.
    OutOfMemory
        On every rank, if the heap of one is too small for the result.

    Examples
    --------
    >>> import numpy as np
    >>> from mpi4py import MPI
    >>> import drbench
    >>> with drbench.init(MPI.COMM_SELF, heap="1M") as ctx:
    ...     A = ctx.from_global(np.arange(6.0).reshape(2, 3), "row")
    ...     print(drbench.redistribute(A, "column"))
    2x3 float64 column
    """
    return context_of(A).redistribute(A, layout, copy=copy)
