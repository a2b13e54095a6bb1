"""The Cholesky factor of a Hermitian, positive definite matrix that is distributed block-cyclically
over all ranks: A = L·Lᴴ, a block of columns at a time.

mpiexec -n 4 python examples/cholesky.py [n block]
"""

import sys

import numpy as np

import drbench


def matrix(rows, columns):
    """Elements of A, from their indices: each rank makes its own."""
    distance = rows[:, None] - columns[None, :]
    return np.exp(-0.1 * np.abs(distance) + 0.5j * distance) + 2.0 * (distance == 0)


def cholesky(A, block):
    """Overwrite the lower triangle of A with L; elements above the diagonal are unused.

    A is stored in tiles of block × block. ``A[a:b, c:d]`` is a matrix in the same memory.
    """
    n = A.shape[0]
    for start in range(0, n, block):
        stop = min(n, start + block)
        corner = A[start:stop, start:stop]
        factor = np.linalg.cholesky(corner.to_global())  # one block, on every rank
        corner.local[...] = factor[np.ix_(corner.rows, corner.columns)]
        below = A[stop:, start:stop]
        if below.local.size:  # L21 = A21·L11⁻ᴴ: whole rows of the block are on one rank
            below.local[...] = np.linalg.solve(factor.conj(), below.local.T).T
        # A22 = A22 - L21·L21ᴴ; after the last block there is none, and nothing happens
        drbench.multiply(below, below.H, out=A[stop:, stop:], alpha=-1, beta=1)


def factor(ctx, n, block):
    """L, and the largest element of |A - L·Lᴴ|."""
    A, whole = (ctx.empty((n, n), f"tiles:{block}x{block}", "complex128") for _ in range(2))
    A.local[...] = whole.local[...] = matrix(A.rows, A.columns)
    cholesky(A, block)
    A.local[A.rows[:, None] < A.columns[None, :]] = 0
    drbench.multiply(A, A.H, out=whole, alpha=-1, beta=1)
    return A, max(ctx.comm.allgather(np.abs(whole.local).max(initial=0.0)))


if __name__ == "__main__":
    n, block = map(int, sys.argv[1:] or (512, 64))
    with drbench.init(heap="256M") as ctx:
        L, error = factor(ctx, n, block)
        logarithm = 2 * ctx.comm.allreduce(
            np.log(L.local[L.rows[:, None] == L.columns[None, :]].real).sum()
        )
        if ctx.rank == 0:
            print(f"log determinant {logarithm:.12g}, largest residual {error:.2g}")
