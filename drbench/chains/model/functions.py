"""Functions between two multiplications of a chain, of local arrays: element by element, or of
whole sequences and heads. NumPy computes them, some rows at a time.

A function describes how its blocks fit together, so that a layout is checked without data: the
number of columns in a unit of the result and of each input, and of rows in a group.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import pi, sqrt

import numpy as np

from drbench.errors import UnsupportedError, UsageError

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
    window : int
        Tokens that a token of attention sees, itself too; 0: all before it.
    context : int
        Each row is the new token of a sequence, with a cache of so many tokens; 0: no cache.
    rotary : int
        Columns of latent attention with positions (:func:`latent_attention`).

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
    window: int = 0
    context: int = 0
    rotary: int = 0

    @property
    def seen(self) -> int:
        """Tokens for which attention computes scores of a row."""
        tokens = self.context or self.rows
        return min(self.window or tokens, tokens)

    @property
    def cached(self) -> int:
        """Columns that a cache has for a token and a key/value head; for all heads of latent
        attention, whose cache is 4·head_dim + rotary wide (DeepSeek-V2, 2024, §2.1.4)."""
        return 4 * self.head_dim + self.rotary if self.rotary else 2 * self.head_dim

    def gemms(self, rows: int, cols: int) -> list[tuple[int, int, int]]:
        """The (m, n, k) of GEMMs inside the function, those of all heads and sequences stacked:
        scores and values of attention; five of its gradient. Latent attention to a cache multiplies
        the cache itself."""
        m, tokens, value = rows * (cols // self.gives) * self.heads, self.seen, self.head_dim
        key = value + self.rotary
        if self.rotary and self.context:
            key, value = self.cached, 4 * value
        scores, change = (m, tokens, key), (m, tokens, value)
        of_key, of_value = (m, key, tokens), (m, value, tokens)
        by_name = {
            "attention_grad": [scores, change, of_key, of_key, of_value],
            "latent_query_grad": [of_key],
            "latent_key_grad": [scores, change, of_key, of_value],
        }
        return by_name.get(self.name, [scores, of_value]) if self.heads else []

    def elements(self, rows: int, cols: int) -> int:
        """Elements on which the time depends: those of the result, of attention its scores.

        Examples
        --------
        >>> function("swiglu").elements(4, 6), attention(4, 2, 8, 16).elements(16, 32)
        (24, 1024)
        """
        return rows * (cols // self.gives) * self.heads * self.seen if self.heads else rows * cols


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


def _gelu(x):
    return 0.5 * x * (1 + _gelu_tanh(x))


def _gelu_grad(g, x):
    t = _gelu_tanh(x)
    return 0.5 * g * (1 + t + x * (1 - t * t) * _SLOPE * (1 + 3 * _CUBE * x * x))


def _gated_grad(of, of_grad, g, x):
    gate, up, out = x[:, 0::2], x[:, 1::2], np.empty_like(x)
    out[:, 0::2] = of_grad(g * up, gate)
    out[:, 1::2] = g * of(gate)
    return out


#: Name -> columns of each input, columns of the result, and the function.
_ELEMENTWISE: dict[str, tuple[tuple[int, ...], int, Callable]] = {
    "relu": ((1,), 1, lambda x: np.maximum(x, 0)),
    "gelu": ((1,), 1, _gelu),
    "silu": ((1,), 1, _silu),
    "swiglu": ((2,), 1, lambda x: _silu(x[:, 0::2]) * x[:, 1::2]),
    "geglu": ((2,), 1, lambda x: _gelu(x[:, 0::2]) * x[:, 1::2]),
    "relu_grad": ((1, 1), 1, lambda g, x: g * (x > 0)),
    "gelu_grad": ((1, 1), 1, _gelu_grad),
    "silu_grad": ((1, 1), 1, _silu_grad),
    "swiglu_grad": ((1, 2), 2, partial(_gated_grad, _silu, _silu_grad)),
    "geglu_grad": ((1, 2), 2, partial(_gated_grad, _gelu, _gelu_grad)),
    "add": ((1, 1), 1, np.add),
}

#: Functions between two multiplications, of one matrix.
BETWEEN = ("relu", "gelu", "silu", "swiglu", "geglu")


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


def attention(
    heads: int, kv_heads: int, head_dim: int, sequence: int = 1, window: int = 0, context: int = 0
) -> Function:
    """Softmax attention of sequences that follow each other in the rows, causal; or, with
    ``context``, of a new token of each sequence to a cache. The columns hold, for each key/value
    head, its query heads, the key, the value.

    Examples
    --------
    Llama-3 70B: eight query heads share a key and a value.

    >>> found = attention(64, 8, 128, 8192)
    >>> found.takes, found.gives, found.rows
    ((1280,), 1024, 8192)
    >>> attention(64, 8, 128, context=4096).gemms(1, 8192)
    [(64, 4096, 128), (64, 128, 4096)]
    """
    if heads % kv_heads:
        raise UsageError(f"{heads} query heads cannot share {kv_heads} key/value heads evenly.")
    shared = heads // kv_heads
    inputs, unit = ((shared + 2) * head_dim,), shared * head_dim
    return Function("attention", inputs, unit, sequence, shared, head_dim, window, context)


def latent_attention(
    heads: int, head_dim: int, rotary: int, sequence: int = 1, context: int = 0
) -> Function:
    """The latent attention of DeepSeek-V2 (2024). The columns of the first input hold each head's
    query with ``rotary`` columns more, which have positions; those of the second its key and value,
    which a chain multiplies out of the latent columns.

    The rotary key, one for all heads, is not among the inputs. On cores the first columns of a
    head's own key stand for it, so that FLOPs and bytes are those of the model. With a cache
    the products absorb the matrices of keys and values: they have as many FLOPs as the chain's.

    Examples
    --------
    >>> found = latent_attention(128, 128, 64, 4096)
    >>> found.takes, found.gives, gradient(found, 1).gives
    ((192, 256), 128, 256)
    """
    if rotary > head_dim:
        raise UsageError(f"rotary must be at most head_dim, {head_dim}, got {rotary}.")
    inputs, more = (head_dim + rotary, 2 * head_dim), {"context": context, "rotary": rotary}
    return Function("latent_attention", inputs, head_dim, sequence, 1, head_dim, **more)


def columns(total: int, first: int) -> Function:
    """The first columns of each row: a view, which takes no time.

    Examples
    --------
    >>> columns(576, 512).takes, gradient(columns(576, 512)).gives
    ((576,), 576)
    """
    if first > total:
        raise UsageError(f"no {first} first columns of {total}. Use at most {total}.")
    return Function("columns", (total,), first)


def gradient(of: Function, position: int = 0) -> Function:
    """The function that computes the gradient of one of the inputs from that of the result and, but
    for ``columns``, the inputs themselves.

    Examples
    --------
    >>> gradient(function("gelu")).name, gradient(function("swiglu")).gives
    ('gelu_grad', 2)
    """
    if of.context:
        raise UsageError("--decode has no backward pass: a new token is not trained on. Drop one.")
    if of.heads:
        name = f"latent_{('query', 'key')[position]}_grad" if of.rotary else "attention_grad"
        return replace(of, name=name, takes=(of.gives, *of.takes), gives=of.takes[position])
    if of.name == "columns":
        return Function("columns_grad", (of.gives,), *of.takes)
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
    if of.name.startswith("columns"):
        width = min(of.gives, *of.takes)
        out[:, :width], out[:, width:] = inputs[0][:, :width], 0
        return
    compute, height = _ELEMENTWISE[of.name][2], max(1, _CHUNK // max(1, out.shape[1]))
    for row in range(0, out.shape[0], height):
        chunk = slice(row, row + height)
        out[chunk] = compute(*(array[chunk] for array in inputs))


def _attend(of: Function, out: np.ndarray, inputs: Sequence[np.ndarray]) -> None:
    """Attention, or its gradient, of every sequence and head of a block."""
    if of.context:
        raise UnsupportedError(
            "attention to a cache cannot run, as no matrix of a chain holds the cache. Use it for "
            "estimates, without --run."
        )
    d, past = of.head_dim, np.tri(of.rows, dtype=bool)
    if of.window:
        past &= ~np.tri(of.rows, k=-of.window, dtype=bool)
    for row, unit in np.ndindex(out.shape[0] // of.rows, out.shape[1] // of.gives):
        result, *taken = (
            array[row * of.rows : (row + 1) * of.rows, unit * width : (unit + 1) * width]
            for array, width in zip((out, *inputs), (of.gives, *of.takes))
        )
        queries, pair = taken[-1][:, : -2 * d], taken[-1][:, -2 * d :]
        if of.rotary:
            queries = taken[-2]
        key, value = np.hstack((pair[:, :d], pair[:, : of.rotary])), pair[:, d:]
        changes, change_of_key, change_of_value = [], np.zeros_like(key), np.zeros_like(value)
        grad = of.name.endswith("_grad")
        ends = np.hsplit(taken[0] if grad else result, of.heads)
        for query, end in zip(np.hsplit(queries, of.heads), ends):
            scores = np.where(past, query @ key.T / sqrt(d + of.rotary), -np.inf)
            scores = np.exp(scores - scores.max(axis=1, keepdims=True))
            scores /= scores.sum(axis=1, keepdims=True)
            if not grad:
                end[:] = scores @ value
                continue
            change_of_value += scores.T @ end
            change = end @ value.T
            change = scores * (change - (change * scores).sum(axis=1, keepdims=True))
            change /= sqrt(d + of.rotary)
            changes.append(change @ key)
            change_of_key += change.T @ query
        if grad:
            change_of_key[:, : of.rotary] += change_of_key[:, d:]
            whole = {
                "attention_grad": (*changes, change_of_key, change_of_value),
                "latent_query_grad": changes,
                "latent_key_grad": (change_of_key[:, :d], change_of_value),
            }
            result[:] = np.hstack(whole[of.name])


#: Sizes for timing: rows and columns of the result, larger than a core's caches; for attention the
#: heads, those with a key, their width, and tokens of a sequence; of latent attention the heads,
#: both widths and the tokens.
_SHAPE, _HEADS, _LATENT = (2048, 2048), (8, 4, 64, 256), (8, 64, 32, 256)


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
    heads, latent = attention(*_HEADS), latent_attention(*_LATENT)
    gradients = gradient(heads), gradient(latent, 0), gradient(latent, 1)
    for of in (*map(function, functions()), heads, latent, *gradients):
        rows, units = (of.rows, 1) if of.heads else (_SHAPE[0], _SHAPE[1] // of.gives)
        out = np.empty((rows, units * of.gives), code)
        inputs = [rng.standard_normal((rows, units * columns)).astype(code) for columns in of.takes]
        seconds = measure(partial(apply, of, out, inputs))
        for m, n, k in of.gemms(*out.shape):
            a, b, c = (rng.random(shape).astype(code) for shape in ((m, k), (k, n), (m, n)))
            seconds -= measure(partial(np.matmul, a, b, c))
        by_name[of.name] = max(0.0, seconds) / of.elements(*out.shape)
    return by_name
