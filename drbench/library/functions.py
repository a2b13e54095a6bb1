"""The three functions that a user begins with."""

from __future__ import annotations

from .context import Context, context_of
from .matrix import Matrix


def init(
    comm=None, heap="1G", blas="auto", *, transport="auto", threads=None, device=None
) -> Context:
    """Open a context over the ranks of a communicator (collective over it).

    Parameters
    ----------
    comm : MPI.Comm, optional
        The ranks; all by default. It is duplicated. Several contexts may be open at once.
    heap : str or int
        Bytes of each rank's part of the heap, as ``"1G"`` or ``"64M"``. Memory is used only once
        matrices lie in it.
    blas : "auto" or object
        What multiplies local blocks: NumPy's own BLAS, or an object with the method
        ``gemm`` of :class:`drbench.host.blas.Blas`.
    transport : str
        ``auto``: other ranks' arrays are read in place where their memory is in reach, by MPI's
        one-sided operations elsewhere; ``direct``: only in place, or refuse; ``rma``: never in
        place.
    threads : int, optional
        Limits the threads of BLAS in this process. By default they are left as they are: set
        ``OMP_NUM_THREADS`` to the cores of a rank.

    device : str or Device, optional
        Where matrices lie and are multiplied: ``"cpu"``, the default, or ``"gpu"``: each rank takes
        one of its node's GPUs, and local arrays are CuPy's. An object of
        :class:`drbench.device.base.Device` is used as it is, and closed by whoever made it.

    Raises
    ------
    UsageError, OutOfMemory, UnsupportedError, MissingError
        On every rank: the size cannot be read, the node (or a GPU) has not so much memory,
        ``direct`` cannot be had, or there is no GPU, or no CuPy.

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
    """
    return Context(comm, heap, blas, transport=transport, threads=threads, device=device)


def multiply(
    A: Matrix,
    B: Matrix,
    out=None,
    *,
    stationary: str = "auto",
    alpha: float = 1.0,
    beta: float = 0.0,
) -> Matrix:
    """C = beta·C + alpha·A·B, whatever the layouts (collective).

    Parameters
    ----------
    A, B : Matrix
        m×k and k×n, of one context and one type. ``A.T`` is as good as ``A``.
    out : Matrix, layout, or None
        Where the result goes, or how it is laid out; by default as A is. It must share no memory
        with A or B.
    stationary : str
        The matrix whose tiles do not move: ``A``, ``B``, ``C``, or ``auto``: the one with which the
        busiest rank moves least, an accumulate counted three times.
    alpha, beta : float
        As in BLAS; ``beta`` needs a matrix as ``out``.

    Returns
    -------
    Matrix
        C, complete on every rank, in every copy.

    Raises
    ------
    UsageError
        On every rank: shapes or types do not fit, a matrix is of another context, the context is
        closed, C overlaps an operand, or ranks do different things.
    OutOfMemory
        On every rank, if one has no room for C.
    """
    return context_of(A).multiply(A, B, out, stationary=stationary, alpha=alpha, beta=beta)


def redistribute(A: Matrix, layout, *, copy: bool = False) -> Matrix:
    """A in another layout (collective). Each element that must change its rank moves once.

    Parameters
    ----------
    A : Matrix
    layout : layout or Matrix
        The new layout, or a matrix that has it and is overwritten.
    copy : bool
        Where nothing has to move (each rank keeps a part of what it has, or all), the result
        shares A's memory, as a slice of an array does; with ``copy`` it is a matrix of its own.

    Raises
    ------
    UsageError, OutOfMemory
        As of :func:`multiply`.

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
