"""Functions between two multiplications of a chain, of local arrays: element by element, or of
whole sequences and heads. NumPy computes them, some rows at a time.

A function describes how its blocks fit together, so that a layout is checked without data: the
number of columns in a unit of the result and of each input, and of rows in a group.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import pi, sqrt

import numpy as np

from drbench.errors import UsageError

#: Elements of the result that are computed at once: NumPy's temporary arrays for them stay in a
#: core's cache, and their pages are not freed and faulted in again for each operation.
_CHUNK = 1 << 15
_SLOPE, _CUBE = sqrt(2 / pi), 0.044715  # of gelu


@dataclass(frozen=True)
class Function:
    """A function of blocks.

    Attributes
    ----------
    name : str
    takes : tuple of int
        Columns of each input for one unit of columns of the result.
    gives : int
        Columns of such a unit.
    rows : int
        Rows that are computed together: the length of a sequence, or 1.
    heads, head_dim : int
        Of attention: query heads that share a key and a value, and the width of each.

    Examples
    --------
    SwiGLU computes one column from two, gate and up side by side:

    >>> function("swiglu").takes, function("swiglu").gives
    ((2,), 1)
    """

    name: str
    takes: tuple[int, ...] = (1,)
    gives: int = 1
    rows: int = 1
    heads: int = 0
    head_dim: int = 0

    def gemms(self, rows: int, cols: int) -> list[tuple[int, int, int]]:
        """The (m, n, k) of GEMMs inside the function, those of all heads and sequences stacked:
        scores and values of attention; five of its gradient."""
        if not self.heads:
            return []
        width = self.gives if self.name == "attention" else self.takes[0]
        stacked = rows * (cols // self.gives) * (width // self.head_dim)
        scores, values = (stacked, self.rows, self.head_dim), (stacked, self.head_dim, self.rows)
        if self.name == "attention":
            return [scores, values]
        return [scores, scores, values, values, values]

    def elements(self, rows: int, cols: int) -> int:
        """Elements on which the time depends: those of the result, of attention its scores.

        Examples
        --------
        >>> function("swiglu").elements(4, 6), attention(4, 2, 8, 16).elements(16, 32)
        (24, 1024)
        """
        gemms = self.gemms(rows, cols)
        return gemms[0][0] * gemms[0][1] if gemms else rows * cols


def _sigmoid(x):
    """1 / (1 + exp(-x)), without overflow."""
    return 0.5 * (1 + np.tanh(0.5 * x))


def _silu(x):
    return x * _sigmoid(x)


def _silu_grad(g, x):
    s = _sigmoid(x)
    return g * s * (1 + x * (1 - s))


def _gelu_tanh(x):
    """tanh(√(2/π) · x · (1 + 0.044715 · x²)) (Hendrycks and Gimpel, 2016)."""
    return np.tanh(_SLOPE * x * (1 + _CUBE * x * x))


def _gelu_grad(g, x):
    t = _gelu_tanh(x)
    return 0.5 * g * (1 + t + x * (1 - t * t) * _SLOPE * (1 + 3 * _CUBE * x * x))


def _swiglu_grad(g, x):
    gate, up, out = x[:, 0::2], x[:, 1::2], np.empty_like(x)
    out[:, 0::2] = _silu_grad(g * up, gate)
    out[:, 1::2] = g * _silu(gate)
    return out


#: Name -> columns of each input, columns of the result, and the function.
_ELEMENTWISE: dict[str, tuple[tuple[int, ...], int, Callable]] = {
    "relu": ((1,), 1, lambda x: np.maximum(x, 0)),
    "gelu": ((1,), 1, lambda x: 0.5 * x * (1 + _gelu_tanh(x))),
    "silu": ((1,), 1, _silu),
    "swiglu": ((2,), 1, lambda x: _silu(x[:, 0::2]) * x[:, 1::2]),
    "relu_grad": ((1, 1), 1, lambda g, x: g * (x > 0)),
    "gelu_grad": ((1, 1), 1, _gelu_grad),
    "silu_grad": ((1, 1), 1, _silu_grad),
    "swiglu_grad": ((1, 2), 2, _swiglu_grad),
    "add": ((1, 1), 1, np.add),
}

#: Functions between two multiplications, of one matrix.
BETWEEN = ("relu", "gelu", "silu", "swiglu")


def functions() -> list[str]:
    """Names of all element-wise functions, gradients included.

    Examples
    --------
    >>> "swiglu" in functions(), "swiglu_grad" in functions()
    (True, True)
    """
    return list(_ELEMENTWISE)


def function(name: str) -> Function:
    """The function of that name.

    Raises
    ------
    UsageError
        If no function has that name.
    """
    if name not in _ELEMENTWISE:
        raise UsageError(
            f"no function {name!r} between multiplications; there are {', '.join(BETWEEN)}."
        )
    return Function(name, *_ELEMENTWISE[name][:2])


def attention(heads: int, kv_heads: int, head_dim: int, sequence: int) -> Function:
    """Softmax attention of sequences that follow each other in the rows, causal. The columns hold,
    for each key/value head, its query heads, the key, the value.

    Examples
    --------
    Llama-3 70B: eight query heads share a key and a value.

    >>> found = attention(64, 8, 128, 8192)
    >>> found.takes, found.gives, found.rows
    ((1280,), 1024, 8192)
    """
    if heads % kv_heads:
        raise UsageError(f"{heads} query heads cannot share {kv_heads} key/value heads evenly.")
    shared = heads // kv_heads
    unit, inputs = shared * head_dim, ((shared + 2) * head_dim,)
    return Function("attention", inputs, unit, sequence, shared, head_dim)


def gradient(of: Function) -> Function:
    """The function that computes the gradient of the input from that of the result and the input
    itself.

    Examples
    --------
    >>> gradient(function("gelu")).name, gradient(function("swiglu")).gives
    ('gelu_grad', 2)
    """
    if of.heads:
        (taken,) = of.takes
        return Function("attention_grad", (of.gives, taken), taken, of.rows, of.heads, of.head_dim)
    return function(f"{of.name}_grad")


def apply(of: Function, out: np.ndarray, inputs: Sequence[np.ndarray]) -> None:
    """Write a function of local arrays into ``out``.

    Parameters
    ----------
    of : Function
    out : ndarray, shape (rows, columns)
        Columns in whole units of the function, rows in whole sequences.
    inputs : sequence of ndarray
        With as many rows, and the columns that the function needs.

    Examples
    --------
    >>> out = np.empty((1, 3))
    >>> apply(function("relu"), out, [np.array([[-1.0, 0.0, 2.0]])])
    >>> out.tolist()
    [[0.0, 0.0, 2.0]]
    """
    if of.heads:
        _attend(of, out, inputs)
        return
    compute, height = _ELEMENTWISE[of.name][2], max(1, _CHUNK // max(1, out.shape[1]))
    for row in range(0, out.shape[0], height):
        chunk = slice(row, row + height)
        out[chunk] = compute(*(array[chunk] for array in inputs))


def _attend(of: Function, out: np.ndarray, inputs: Sequence[np.ndarray]) -> None:
    """Attention, or its gradient, of every sequence and head of a block."""
    d, grad, qkv = of.head_dim, of.name == "attention_grad", inputs[-1]
    unit, width = (of.heads + 2) * d, of.heads * d
    past = np.tril(np.ones((of.rows, of.rows), bool))
    for row in range(0, out.shape[0], of.rows):
        for x in range(qkv.shape[1] // unit):
            block = slice(row, row + of.rows), slice(x * unit, (x + 1) * unit)
            here = qkv[block]
            key, value = here[:, width : width + d], here[:, width + d :]
            if grad:
                result = out[block]
                result[:, width:] = 0
            for head in range(of.heads):
                query = here[:, head * d : (head + 1) * d]
                scores = np.where(past, query @ key.T / sqrt(d), -np.inf)
                scores = np.exp(scores - scores.max(axis=1, keepdims=True))
                scores /= scores.sum(axis=1, keepdims=True)
                at = block[0], slice(x * width + head * d, x * width + (head + 1) * d)
                if not grad:
                    out[at] = scores @ value
                    continue
                g = inputs[0][at]
                result[:, width + d :] += scores.T @ g
                change = g @ value.T
                change = scores * (change - (change * scores).sum(axis=1, keepdims=True)) / sqrt(d)
                result[:, head * d : (head + 1) * d] = change @ key
                result[:, width : width + d] += change.T @ query


#: Sizes for timing: rows and columns of the result, larger than a core's caches; for attention the
#: heads, those that share a key, their width, and tokens of a sequence.
_SHAPE, _HEADS = (2048, 2048), (8, 4, 64, 256)


def function_seconds(measure: Callable[[Callable[[], None]], float], code: str) -> dict[str, float]:
    """Seconds an element of every function, all ranks at once (collective); of attention an element
    of the scores, without the GEMMs.

    Parameters
    ----------
    measure : callable
        ``measure(function)``: seconds of a call on all ranks at once (collective).
    code : str
        NumPy's element type.
    """
    rng, by_name = np.random.default_rng(0), {}
    heads = attention(*_HEADS)
    for of in (*map(function, functions()), heads, gradient(heads)):
        rows, units = (of.rows, 1) if of.heads else (_SHAPE[0], _SHAPE[1] // of.gives)
        out = np.empty((rows, units * of.gives), code)
        inputs = [rng.standard_normal((rows, units * columns)).astype(code) for columns in of.takes]
        seconds = measure(partial(apply, of, out, inputs))
        for m, n, k in of.gemms(*out.shape):
            a, b, c = (rng.random(shape).astype(code) for shape in ((m, k), (k, n), (m, n)))
            seconds -= measure(partial(np.matmul, a, b, c))
        by_name[of.name] = max(0.0, seconds) / of.elements(*out.shape)
    return by_name
