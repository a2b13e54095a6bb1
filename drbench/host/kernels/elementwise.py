"""The functions between the products of a chain, on arrays.

They go panel by panel, so that what they hold on the way stays in a core's cache, and hold it in
memory that is allocated once: arrays of a panel's size, made for each step of a formula, would be
given back to the system and faulted in again each time, which took five times as long.
"""

from collections.abc import Callable, Sequence
from math import pi, sqrt

import numpy as np

from drbench.program.elementwise import Function

_PANEL = 1 << 15  # elements of the result
_HELD = 2  # arrays of a panel that a function may write on the way
_SLOPE = sqrt(2 / pi)
_CUBE = 0.044715


def panels(function: Function, out: np.ndarray) -> np.ndarray | None:
    """Memory that a function writes on the way to a result of this shape and type; none of
    attention, which is not made in panels.

    Examples
    --------
    >>> from drbench.program.elementwise import function
    >>> panels(function("gelu"), np.empty((4096, 1024), np.float32)).shape
    (2, 32, 1024)
    """
    if function.heads:
        return None
    cols = out.shape[1]
    height = max(1, _PANEL // max(1, cols))
    return np.zeros((_HELD, height, cols // function.gives), out.dtype)


def apply(
    function: Function,
    out: np.ndarray,
    inputs: Sequence[np.ndarray],
    held: np.ndarray | None = None,
) -> None:
    """out = function(inputs).

    Parameters
    ----------
    function : Function
    out : ndarray, shape (rows, columns)
        Columns in whole units of the function, rows in whole sequences.
    inputs : sequence of ndarray
        With as many rows, and the columns that the function takes.
    held : ndarray, optional
        What :func:`panels` answers for it; whoever is timed makes it before.

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
    make, rows = _MADE[function.name], out.shape[0]
    if held is None:
        held = panels(function, out)
    height = held.shape[1]
    for row in range(0, rows, height):
        panel = slice(row, min(rows, row + height))
        room = held[:, : panel.stop - row]
        make(out[panel], *(each[panel] for each in inputs), *room)


def _relu(out, x, *_):
    np.maximum(x, 0, out=out)


def _relu_grad(out, g, x, s, _):
    np.greater(x, 0, out=s)
    np.multiply(g, s, out=out)


def _gelu(out, x, t, _):
    """The tanh form (Hendrycks and Gimpel, 2016)."""
    np.multiply(x, x, out=t)
    _gelu_tanh(x, t)
    t += 1
    t *= 0.5
    np.multiply(t, x, out=out)


def _gelu_tanh(x, t):
    """t = tanh(√(2/π) · x · (1 + 0.044715 · x²)), where t holds x²."""
    t *= _CUBE
    t += 1
    t *= x
    t *= _SLOPE
    np.tanh(t, out=t)


def _gelu_grad(out, g, x, s, t):
    """g · (1 + t + x · (1 - t²) · √(2/π) · (1 + 3 · 0.044715 · x²)) / 2."""
    np.multiply(x, x, out=s)
    np.copyto(t, s)
    _gelu_tanh(x, t)
    s *= 3 * _CUBE
    s += 1
    s *= _SLOPE
    s *= x
    np.multiply(t, t, out=out)
    np.subtract(1, out, out=out)
    s *= out
    s += t
    s += 1
    s *= 0.5
    np.multiply(g, s, out=out)


def _sigmoid(x, s):
    """s = 1 / (1 + exp(-x)), without overflow."""
    np.multiply(x, 0.5, out=s)
    np.tanh(s, out=s)
    s += 1
    s *= 0.5


def _silu(out, x, s, _):
    _sigmoid(x, s)
    np.multiply(x, s, out=out)


def _silu_slope(x, s, t):
    """t = s · (1 + x · (1 - s)), where s is the sigmoid of x."""
    np.subtract(1, s, out=t)
    t *= x
    t += 1
    t *= s


def _silu_grad(out, g, x, s, t):
    _sigmoid(x, s)
    _silu_slope(x, s, t)
    np.multiply(g, t, out=out)


def _add(out, one, two, *_):
    np.add(one, two, out=out)


def _swiglu(out, x, s, _):
    gate, up = x[:, 0::2], x[:, 1::2]
    _sigmoid(gate, s)
    s *= gate
    np.multiply(s, up, out=out)


def _swiglu_grad(out, g, x, s, t):
    gate, up = x[:, 0::2], x[:, 1::2]
    _sigmoid(gate, s)
    _silu_slope(gate, s, t)
    t *= up
    np.multiply(t, g, out=out[:, 0::2])
    s *= gate
    np.multiply(s, g, out=out[:, 1::2])


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
