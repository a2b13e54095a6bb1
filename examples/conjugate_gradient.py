"""A·X = B for many right-hand sides at once, A symmetric and positive definite, by conjugate
gradients.

mpiexec -n 4 python examples/conjugate_gradient.py [n right-hand-sides]
"""

import sys

import numpy as np

import drbench


def matrix(rows, columns):
    """Elements of A, from their indices: each rank makes its own."""
    decay = np.exp(-0.1 * np.abs(rows[:, None] - columns[None, :]))
    return decay + 2.0 * (rows[:, None] == columns[None, :])


def solve(ctx, A, B, tolerance=1e-10, most=1000):
    """X with |B - A·X| <= tolerance·|B| in each column, and the number of steps.

    A may have any layout. X, R, P and A·P are divided by rows, so that only one multiplication and
    the reductions of a step communicate.
    """
    total = lambda local: ctx.comm.allreduce(local.sum(axis=0))  # of each column
    X, R, P = (ctx.zeros(B.shape, "row", B.dtype) for _ in range(3))
    R.local[...] = P.local[...] = B.local
    AP = ctx.empty(B.shape, "row", B.dtype)
    multiply = ctx.plan(A, P, AP)  # AP = A·P
    squares, wanted = total(R.local**2), tolerance**2 * total(B.local**2)
    for step in range(most):
        if (squares <= wanted).all():
            return X, step
        multiply()
        length = squares / np.maximum(total(P.local * AP.local), 1e-300)
        X.local[...] += length * P.local
        R.local[...] -= length * AP.local
        before, squares = squares, total(R.local**2)
        P.local[...] = R.local + squares / np.maximum(before, 1e-300) * P.local
    raise ArithmeticError(f"no convergence in {most} steps")


if __name__ == "__main__":
    n, sides = map(int, sys.argv[1:] or (500, 8))
    with drbench.init(heap="256M") as ctx:
        A = ctx.empty((n, n), "block", "float64")
        A.local[...] = matrix(A.rows, A.columns)
        B = ctx.empty((n, sides), "row", "float64")
        B.local[...] = np.cos(0.01 * B.rows[:, None] * (1 + B.columns[None, :]))
        X, steps = solve(ctx, A, B)
        R = drbench.multiply(A, X, "row")  # the residual, by rows like B
        error = max(ctx.comm.allgather(np.abs(R.local - B.local).max(initial=0.0)))
        if ctx.rank == 0:
            print(f"{steps} steps, largest residual {error:.2g}")
