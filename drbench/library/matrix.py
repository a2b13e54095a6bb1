"""A distributed matrix as a user holds it: a spec, and this rank's local array."""

from __future__ import annotations

import numpy as np

from .spec import Spec


class Matrix:
    """A matrix over the ranks of a context; made by its methods.

    Attributes
    ----------
    context : Context
    spec : Spec
        Shape, type and layout.
    local : ndarray
        This rank's rows × this rank's columns, in the order of the whole matrix; on a GPU
        CuPy's. Read and write it as any array, but not while ranks multiply. It stays valid after
        the context is closed.
    place : (int, int, int)
        Where ``local`` begins in this rank's part of the heap, and its strides, in bytes.

    Examples
    --------
    One rank has it all:

    >>> from mpi4py import MPI
    >>> import drbench
    >>> with drbench.init(MPI.COMM_SELF, heap="1M") as ctx:
    ...     A = ctx.from_global(np.arange(6.0).reshape(2, 3), "row")
    ...     print(A, A.T.local.shape, (A @ A.T).local.tolist())
    2x3 float64 row (3, 2) [[5.0, 14.0], [14.0, 50.0]]
    """

    __slots__ = ("context", "spec", "local", "place", "__weakref__")
    __array_ufunc__ = None  # array @ matrix is an error, not an array of objects

    def __init__(self, context, spec: Spec, local: np.ndarray, offset: int = 0):
        self.context, self.spec, self.local = context, spec, local
        self.place = (offset, *local.strides)

    @property
    def shape(self) -> tuple[int, int]:
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
        """The row of the whole matrix that each row of ``local`` is."""
        return self.spec.indices[0]

    @property
    def columns(self) -> np.ndarray:
        """The column of the whole matrix that each column of ``local`` is."""
        return self.spec.indices[1]

    @property
    def T(self) -> Matrix:
        """The transposed matrix, in the same memory."""
        return Matrix(self.context, self.spec.T, self.local.T, self.place[0])

    def __getitem__(self, ranges) -> Matrix:
        """A range of rows and one of columns, in the same memory, as a matrix.

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
        offset, by_row, by_col = self.place
        offset += down.start * by_row + across.start * by_col
        return Matrix(self.context, spec, self.local[down, across], offset)

    def __matmul__(self, other: Matrix) -> Matrix:
        if not isinstance(other, Matrix):
            return NotImplemented
        return self.context.multiply(self, other)

    def to_global(self, root: int | None = None) -> np.ndarray | None:
        """The whole matrix as an array of this rank's own, of the kind of ``local`` (collective).

        Parameters
        ----------
        root : int, optional
            Only this rank gets it; the others get None.
        """
        return self.context.to_global(self, root)

    def redistribute(self, layout, *, copy: bool = False) -> Matrix:
        """This matrix in another layout (:func:`drbench.redistribute`)."""
        return self.context.redistribute(self, layout, copy=copy)

    def __repr__(self) -> str:
        return repr(self.spec)
