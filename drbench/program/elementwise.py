"""What stands between two products of a chain: functions of own tiles, element by element, or of
whole sequences and heads.

A function says how its blocks fit together, so that a layout can be judged without data: a unit of
the result has so many columns, and of each input, and rows come in groups that stay together.
:mod:`drbench.host.kernels.elementwise` computes them.
"""

from __future__ import annotations

from dataclasses import dataclass

from drbench.errors import UsageError

from .steps import Block, Step


@dataclass(frozen=True)
class Function:
    """A function of blocks.

    Attributes
    ----------
    name : str
    takes : tuple of int
        Columns of each input that one unit of columns of the result is made of.
    gives : int
        Columns of such a unit.
    rows : int
        Rows that are made together: the length of a sequence, or 1.
    heads, head_dim : int
        Of attention: query heads that share a key and a value, and the width of each.

    Examples
    --------
    SwiGLU makes one column of two, gate and up side by side:

    >>> function("swiglu").takes, function("swiglu").gives
    ((2,), 1)
    """

    name: str
    takes: tuple[int, ...] = (1,)
    gives: int = 1
    rows: int = 1
    heads: int = 0
    head_dim: int = 0

    def fits(self, rows: tuple[int, int], cols: tuple[int, int]) -> bool:
        """Whether a block of the result holds whole units."""
        return not any(end % self.rows for end in rows) and not any(
            end % self.gives for end in cols
        )

    def taken(self, cols: tuple[int, int], x: int) -> tuple[int, int]:
        """The columns of input ``x`` that columns of the result are made of.

        Examples
        --------
        >>> function("swiglu").taken((4, 6), 0)
        (8, 12)
        """
        start, stop = (end // self.gives * self.takes[x] for end in cols)
        return start, stop

    def products(self, rows: int, cols: int) -> list[tuple[int, int, int]]:
        """The (m, n, k) of products inside the function, those of all heads and sequences stacked:
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
        """Elements that time is counted by: those of the result, of attention its scores.

        Examples
        --------
        >>> function("swiglu").elements(4, 6), attention(4, 2, 8, 16).elements(16, 32)
        (24, 1024)
        """
        products = self.products(rows, cols)
        return products[0][0] * products[0][1] if products else rows * cols


_PLAIN = {
    name: Function(name, takes)
    for name, takes in {
        "relu": (1,),
        "gelu": (1,),
        "silu": (1,),
        "relu_grad": (1, 1),
        "gelu_grad": (1, 1),
        "silu_grad": (1, 1),
        "add": (1, 1),
    }.items()
} | {
    "swiglu": Function("swiglu", (2,)),
    "swiglu_grad": Function("swiglu_grad", (1, 2), 2),
}

#: What may stand between two products on the command line.
BETWEEN = ("none", "relu", "gelu", "silu", "swiglu")


def functions() -> list[str]:
    """Names of all that go element by element, gradients included.

    Examples
    --------
    >>> "swiglu" in functions(), "swiglu_grad" in functions()
    (True, True)
    """
    return list(_PLAIN)


def function(name: str) -> Function:
    """The function of that name.

    Raises
    ------
    UsageError
        If there is none.
    """
    if name not in _PLAIN:
        raise UsageError(
            f"no function {name!r} between products; there are {', '.join(BETWEEN[1:])}."
        )
    return _PLAIN[name]


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
    return Function(
        "attention",
        ((shared + 2) * head_dim,),
        shared * head_dim,
        sequence,
        shared,
        head_dim,
    )


def gradient(of: Function) -> Function:
    """The function that makes the gradient of the input from that of the result and the input
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


class Map(Step):
    """A block of an own tile made of own blocks by a function."""

    __slots__ = ("inputs", "block", "function")
    does = "copy"
    computes = True
    block: Block

    def __init__(self, function: Function, tokens: tuple[Step, ...], into: Block):
        self.function, self.inputs, self.block = function, tokens, into

    def __repr__(self):
        taken = ", ".join(f"%{token.index}" for token in self.inputs)
        return f"Map({self.function.name}: {taken} -> {self.block!r})"
