"""Two layers trained on all ranks: Y = relu(X·W1)·W2, in plain NumPy except the multiplications.

The batch is divided by rows, W1 by columns and W2 by rows, as in tensor parallelism; these layouts
alone determine the transfers. Backward uses ``A.T``, a view of A in the same memory.

mpiexec -n 4 python examples/mlp.py [steps]
"""

import sys

import numpy as np

import drbench

BATCH, INPUT, HIDDEN, OUTPUT, RATE = 64, 32, 96, 8, 2e-3


def data():
    """Inputs, expected outputs, and initial weights: the same on every rank."""
    rng = np.random.default_rng(7)
    X = rng.standard_normal((BATCH, INPUT))
    T = np.tanh(X @ rng.standard_normal((INPUT, OUTPUT)))
    W1 = rng.standard_normal((INPUT, HIDDEN)) / np.sqrt(INPUT)
    W2 = rng.standard_normal((HIDDEN, OUTPUT)) / np.sqrt(HIDDEN)
    return X, T, W1, W2


def train(ctx, steps):
    """The loss before each step, and the weights at the end."""
    X, T, W1, W2 = (
        ctx.from_global(array, layout)
        for array, layout in zip(data(), ("row", "row", "column", "row"))
    )
    losses = []
    for _ in range(steps):
        H = drbench.multiply(X, W1, "column")  # forward
        active = H.local > 0
        H.local[~active] = 0
        Y = drbench.multiply(H, W2, "row")

        E = Y  # backward: E = dloss/dY
        E.local[...] -= T.local
        losses.append(0.5 * ctx.comm.allreduce(np.vdot(E.local, E.local)))
        dW2 = drbench.multiply(H.T, E, "row")
        dH = drbench.multiply(E, W2.T, "column")
        dH.local[~active] = 0
        dW1 = drbench.multiply(X.T, dH, "column")

        W1.local[...] -= RATE * dW1.local  # gradients have the layout of the weights
        W2.local[...] -= RATE * dW2.local
    return losses, W1.to_global(), W2.to_global()


if __name__ == "__main__":
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    with drbench.init(heap="64M") as ctx:
        losses, *_ = train(ctx, steps)
        if ctx.rank == 0:
            print(f"loss {losses[0]:.12g} -> {losses[-1]:.12g} in {steps} steps")
