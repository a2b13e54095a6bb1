"""The LU factors of a matrix that is distributed block-cyclically over all ranks, without pivoting:
A = L·U, a block of columns and rows at a time.

mpiexec -n 4 python examples/lu.py [n block]
"""

import sys

import numpy as np

import drbench


def matrix(rows, columns, n):
    """Elements of A, from their indices: each rank makes its own. The diagonal is the largest."""
    i, j = rows[:, None], columns[None, :]
    return np.sin(1 + 3 * i + j * j) + n * (i == j)


def factor_block(block):
    """L and U of one block, in one array."""
    for x in range(len(block)):
        block[x + 1 :, x] /= block[x, x]
        block[x + 1 :, x + 1 :] -= np.outer(block[x + 1 :, x], block[x, x + 1 :])
    return block


def lu(A, block):
    """Overwrite A with L below the diagonal, whose own diagonal is 1, and U.

    A is stored in tiles of block × block. ``A[a:b, c:d]`` is a matrix in the same memory.
    """
    n = A.shape[0]
    for start in range(0, n, block):
        stop = min(n, start + block)
        corner = A[start:stop, start:stop]
        factor = factor_block(corner.to_global())  # one block, on every rank
        corner.local[...] = factor[np.ix_(corner.rows, corner.columns)]
        lower, upper = np.tril(factor, -1) + np.eye(len(factor)), np.triu(factor)
        below, right = A[stop:, start:stop], A[start:stop, stop:]
        if below.local.size:  # L21 = A21·U11⁻¹: whole rows of the block are on one rank
            below.local[...] = np.linalg.solve(upper.T, below.local.T).T
        if right.local.size:  # U12 = L11⁻¹·A12: whole columns of the block are on one rank
            right.local[...] = np.linalg.solve(lower, right.local)
        # A22 = A22 - L21·U12; after the last block there is none, and nothing happens
        drbench.multiply(below, right, out=A[stop:, stop:], alpha=-1, beta=1)


def factor(ctx, n, block):
    """L and U in one matrix, and the largest element of |A - L·U|."""
    A, L, U = (ctx.empty((n, n), f"tiles:{block}x{block}", "float64") for _ in range(3))
    A.local[...] = matrix(A.rows, A.columns, n)
    whole = A.redistribute(A.layout, copy=True)
    lu(A, block)
    at = A.rows[:, None] - A.columns[None, :]
    L.local[...] = np.where(at > 0, A.local, at == 0)
    U.local[...] = np.where(at > 0, 0, A.local)
    drbench.multiply(L, U, out=whole, alpha=-1, beta=1)
    return A, max(ctx.comm.allgather(np.abs(whole.local).max(initial=0.0)))


if __name__ == "__main__":
    n, block = map(int, sys.argv[1:] or (512, 64))
    with drbench.init(heap="256M") as ctx:
        A, error = factor(ctx, n, block)
        pivots = A.local[A.rows[:, None] == A.columns[None, :]]
        logarithm = ctx.comm.allreduce(np.log(pivots).sum())
        if ctx.rank == 0:
            print(f"log determinant {logarithm:.12g}, largest residual {error:.2g}")
