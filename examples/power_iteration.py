"""The largest eigenvalue of a symmetric matrix in blocks on all ranks.

mpiexec -n 4 python examples/power_iteration.py [n steps]
"""

import sys

import numpy as np

import drbench


def matrix(rows, columns):
    """Elements of the matrix, from their indices: each rank makes its own."""
    return 1.0 / (1.0 + np.abs(rows[:, None] - columns[None, :]))


def power_iteration(ctx, n, steps):
    """(eigenvalue, |A·x - value·x|) after a number of steps."""
    A = ctx.empty((n, n), "block", "float64")
    A.local[...] = matrix(A.rows, A.columns)
    x, y = (ctx.empty((n, 1), "row", "float64") for _ in range(2))
    x.local[...] = 1.0
    norm = lambda local: np.sqrt(ctx.comm.allreduce(np.vdot(local, local)))
    x.local /= norm(x.local)
    multiply = ctx.plan(A, x, y)  # y = A·x, planned once
    for _ in range(steps):
        multiply()
        value = ctx.comm.allreduce(np.vdot(x.local, y.local))
        residual = norm(y.local - value * x.local)
        x.local[...] = y.local / norm(y.local)
    return value, residual


if __name__ == "__main__":
    n, steps = map(int, sys.argv[1:] or (500, 60))
    with drbench.init(heap="256M") as ctx:
        value, residual = power_iteration(ctx, n, steps)
        if ctx.rank == 0:
            print(f"largest eigenvalue {value:.12g}, residual {residual:.2g}")
