"""The functions between the products of a chain, on arrays.

They go panel by panel, so that what they hold on the way stays in a core's cache.
"""

from collections.abc import Callable, Sequence
from math import pi, sqrt

import numpy as np

from drbench.program.elementwise import Function

_PANEL = 1 << 15  # elements of the result
_SLOPE = sqrt(2 / pi)
_CUBE = 0.044715


def apply(function: Function, out: np.ndarray, inputs: Sequence[np.ndarray]) -> None:
    """out = function(inputs).

    Parameters
    ----------
    function : Function
    out : ndarray, shape (rows, columns)
        Columns in whole units of the function, rows in whole sequences.
    inputs : sequence of ndarray
        With as many rows, and the columns that the function takes.

    Examples
    --------
    >>> from drbench.program.elementwise import function
    >>> out = np.empty((1, 3))
    >>> apply(function("relu"), out, [np.array([[-1.0, 0.0, 2.0]])])
    >>> out.tolist()
    [[0.0, 0.0, 2.0]]
    """
    if function.heads:
        _attended(function, out, inputs)
        return
    rows, cols = out.shape
    height = max(1, _PANEL // max(1, cols))
    make = _MADE[function.name]
    for row in range(0, rows, height):
        panel = slice(row, min(rows, row + height))
        make(out[panel], *(each[panel] for each in inputs))


def _relu(out, x):
    np.maximum(x, 0, out=out)


def _relu_grad(out, g, x):
    np.multiply(g, x > 0, out=out)


def _gelu(out, x):
    """The tanh form (Hendrycks and Gimpel, 2016)."""
    t = np.multiply(x, x)
    t *= _CUBE
    t += 1
    t *= x
    t *= _SLOPE
    np.tanh(t, out=t)
    t += 1
    t *= 0.5
    np.multiply(t, x, out=out)


def _gelu_grad(out, g, x):
    square = x * x
    t = np.tanh(_SLOPE * x * (1 + _CUBE * square))
    slope = _SLOPE * (1 + 3 * _CUBE * square)
    np.multiply(g, 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * slope, out=out)


def _sigmoid(x):
    """1 / (1 + exp(-x)), without overflow."""
    return 0.5 * (1 + np.tanh(0.5 * x))


def _silu(out, x):
    np.multiply(x, _sigmoid(x), out=out)


def _silu_grad(out, g, x):
    s = _sigmoid(x)
    np.multiply(g, s * (1 + x * (1 - s)), out=out)


def _add(out, one, two):
    np.add(one, two, out=out)


def _swiglu(out, x):
    gate, up = x[:, 0::2], x[:, 1::2]
    np.multiply(gate * _sigmoid(gate), up, out=out)


def _swiglu_grad(out, g, x):
    gate, up = x[:, 0::2], x[:, 1::2]
    s = _sigmoid(gate)
    out[:, 0::2] = g * up * s * (1 + gate * (1 - s))
    out[:, 1::2] = g * gate * s


_MADE: dict[str, Callable[..., None]] = {
    "relu": _relu,
    "relu_grad": _relu_grad,
    "gelu": _gelu,
    "gelu_grad": _gelu_grad,
    "silu": _silu,
    "silu_grad": _silu_grad,
    "add": _add,
    "swiglu": _swiglu,
    "swiglu_grad": _swiglu_grad,
}


def _attended(function: Function, out: np.ndarray, inputs: Sequence[np.ndarray]) -> None:
    """Attention, or its gradient, of every sequence and head of a block."""
    s, d, heads = function.rows, function.head_dim, function.heads
    grad = function.name == "attention_grad"
    qkv = inputs[-1]
    unit, width = (heads + 2) * d, heads * d
    past = np.tril(np.ones((s, s), bool))
    for row in range(0, out.shape[0], s):
        for x in range(qkv.shape[1] // unit):
            here = qkv[row : row + s, x * unit : (x + 1) * unit]
            key, value = here[:, width : width + d], here[:, width + d :]
            if grad:
                made = out[row : row + s, x * unit : (x + 1) * unit]
                made[:, width:] = 0
            for head in range(heads):
                query = here[:, head * d : (head + 1) * d]
                scores = np.where(past, query @ key.T / sqrt(d), -np.inf)
                scores = np.exp(scores - scores.max(axis=1, keepdims=True))
                scores /= scores.sum(axis=1, keepdims=True)
                at = slice(x * width + head * d, x * width + (head + 1) * d)
                if not grad:
                    out[row : row + s, at] = scores @ value
                    continue
                g = inputs[0][row : row + s, at]
                made[:, width + d :] += scores.T @ g
                change = g @ value.T
                change = scores * (change - (change * scores).sum(axis=1, keepdims=True)) / sqrt(d)
                made[:, head * d : (head + 1) * d] = change @ key
                made[:, width : width + d] += change.T @ query
