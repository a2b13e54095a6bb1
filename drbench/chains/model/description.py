"""The description of a chain: matrices by name, multiplications and functions in order, forward and
backward, read from a text."""

import ast
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from keyword import iskeyword
from typing import NamedTuple

from drbench.errors import UsageError, shown

from .functions import (
    BETWEEN,
    Function,
    attention,
    columns,
    function,
    functions,
    gradient,
    latent_attention,
)

#: Names in chain files and in scripts.
_RESERVED = {*functions(), "attention", "latent_attention", "columns", "experts", "input", "weight"}
_RESERVED |= {"multiply", "tiles"}


class ChainMatrix(NamedTuple):
    """A matrix of a chain, or one for each expert.

    Attributes
    ----------
    name : str
    rows, cols : int
    kind : str
        ``input``, ``weight``, or ``made``: computed by the chain.
    count : int
        Experts, or 1.
    """

    name: str
    rows: int
    cols: int
    kind: str
    count: int = 1

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows, self.cols


class Matmul(NamedTuple):
    """c = op(a) · op(b); ``transpose`` names the transposed operands, as ``--transpose`` does.

    ``experts``: their number, and those of a token. Rows of tokens make those of pairs, or the
    reverse (:mod:`drbench.algorithms.overlap.experts`); with ``a`` transposed, the gradient of
    weights.
    """

    c: str
    a: str
    b: str
    transpose: str = ""
    experts: tuple[int, int] = (0, 0)

    @property
    def takes(self) -> tuple[str, ...]:
        return self.a, self.b

    @property
    def operands(self) -> tuple[tuple[str, bool], tuple[str, bool]]:
        """(name, whether it is transposed) of both operands."""
        return (self.a, "a" in self.transpose), (self.b, "b" in self.transpose)

    def __str__(self) -> str:
        left, right = (f"{name}{'ᵀ' * transposed}" for name, transposed in self.operands)
        count, topk = self.experts
        return f"{self.c} = {left}·{right}" + (
            f" ({count} experts, {topk} a token)" if topk else ""
        )


class LocalMap(NamedTuple):
    """c = function(inputs): every rank computes its own tiles."""

    c: str
    function: Function
    takes: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.c} = {self.function.name}({', '.join(self.takes)})"


Operation = Matmul | LocalMap


@dataclass
class Chain:
    """Multiplications and functions, in order.

    These have one layout: matrices that a function joins; a matrix and its gradient; the result and
    the input that it replaces (``loops``). Each such set is one *variable*, named after its first
    matrix.

    Examples
    --------
    >>> chain = read(lines("X", (16, 32, 16), "relu", rows=64), "two layers")
    >>> [str(each) for each in chain.operations]
    ['Y1 = X·W1', 'H1 = relu(Y1)', 'Y2 = H1·W2']
    >>> chain.variables["H1"], chain.variables["Y2"]  # Y2 replaces X
    ('Y1', 'X')
    """

    name: str
    matrices: dict[str, ChainMatrix] = field(default_factory=dict)
    operations: list[Operation] = field(default_factory=list)
    _alike: dict[str, str] = field(default_factory=dict)
    forward: frozenset[str] = frozenset()  # matrices of the forward pass, once there is another

    @property
    def has_backward(self) -> bool:
        return bool(self.forward)

    def add(self, name: str, rows: int, cols: int, kind: str = "made", count: int = 1) -> str:
        """Add a matrix, or ``count`` of experts; return the name."""
        if name in self.matrices:
            raise UsageError(f"two matrices of a chain are called {name}. Rename one.")
        if name in _RESERVED or iskeyword(name):
            raise UsageError(f"no matrix can be called {name}, as functions are. Rename it.")
        if min(rows, cols) < 1:
            raise UsageError(f"{name} must have at least one row and column, got {rows}x{cols}.")
        self.matrices[name] = ChainMatrix(name, rows, cols, kind, count)
        self._alike[name] = name
        return name

    def join(self, name: str, other: str) -> None:
        """Give both matrices the same layout."""
        first, second = self.variable(name), self.variable(other)
        if first != second:
            order = list(self.matrices)
            first, second = sorted((first, second), key=order.index)
            self._alike[second] = first

    def variable(self, name: str) -> str:
        """The variable of a matrix: its layout."""
        while self._alike[name] != name:
            name = self._alike[name]
        return name

    @property
    def variables(self) -> dict[str, str]:
        """The variable of each matrix."""
        return {name: self.variable(name) for name in self.matrices}

    def multiply(
        self, c: str, a: str, b: str, transpose: str = "", experts: tuple[int, int] = (0, 0)
    ) -> str:
        """Append c = op(a)·op(b), which makes c; with ``experts``, rows of X are tokens."""
        matmul, (count, topk) = Matmul(c, a, b, transpose, experts), experts
        (m, k), (l, n) = (
            self.matrices[name].shape[:: -1 if transposed else 1]
            for name, transposed in matmul.operands
        )
        most = max(count, self.matrices[a].count, self.matrices[b].count)
        if most > 1 or topk:
            tokens, rows = self.matrices["X"].rows, self.matrices[a].rows
            other = {tokens: tokens * topk, tokens * topk: tokens}
            if not 0 < topk <= most or rows not in other:
                raise UsageError(
                    f"{b} has {most} experts, {a} {rows} rows. Use experts({a}, {b}, topk=1 to "
                    f"{most}), where {a} has the {tokens} rows of X, or topk for each."
                )
            m, k = (m, other[k]) if "a" in transpose else (other[m], k)
        if k != l:
            raise UsageError(f"{a} and {b} do not fit: the one gives {k} columns, {l} are needed.")
        self.add(c, m, n, count=most if "a" in transpose else 1)
        self.operations.append(matmul)
        return c

    def extents(self, matmul: Matmul) -> tuple[int, int, int]:
        """m, n and k of a multiplication; of experts the rows are pairs.

        Examples
        --------
        >>> text = "X = input(6, 4)\\nW = weight(4, 5, experts=3)\\nY = experts(X, W, topk=2)"
        >>> chain = read(text, "one layer", backward=True)
        >>> [chain.extents(each) for each in chain.multiplications]
        [(12, 5, 4), (4, 5, 12), (12, 4, 5)]
        """
        a, b, c = (self.matrices[name] for name in (matmul.a, matmul.b, matmul.c))
        if "a" in matmul.transpose:
            return c.rows, c.cols, max(a.rows, b.shape["b" in matmul.transpose])
        return max(a.rows, c.rows), c.cols, a.cols

    def between(self, c: str, of: Function, *takes: str) -> str:
        """Append c = of(takes), with the layout of its inputs."""
        first = self.matrices[takes[0]]
        units, left = divmod(first.cols, of.takes[0])
        for x, name in enumerate(takes):
            matrix = self.matrices[name]
            if matrix[1:3] != (first.rows, units * of.takes[x]) or left or matrix.count > 1:
                columns = ", ".join(f"{count} columns" for count in of.takes)
                raise UsageError(f"{of.name} takes {columns} a unit; got {matrix}.")
        if first.rows % of.rows:
            raise UsageError(
                f"{of.name} takes whole sequences of {of.rows} rows, got {first.rows} rows. Use a "
                "multiple."
            )
        self.add(c, first.rows, units * of.gives)
        for name in takes:
            self.join(c, name)
        self.operations.append(LocalMap(c, of, takes))
        return c

    @property
    def experts(self) -> int:
        """The number of experts, or 0."""
        return max(
            (matrix.count for matrix in self.matrices.values() if matrix.count > 1), default=0
        )

    def is_of_weight(self, name: str) -> bool:
        """Whether a matrix is a weight or its gradient: each layer has its own."""
        return self.matrices[self.variable(name)].kind == "weight"

    def is_gradient(self, name: str) -> bool:
        """Whether a matrix belongs to the backward pass."""
        return self.has_backward and name not in self.forward

    @property
    def multiplications(self) -> list[Matmul]:
        return [operation for operation in self.operations if isinstance(operation, Matmul)]

    @property
    def flops(self) -> int:
        """2·m·n·k of all multiplications, those inside functions included."""
        return self._count_flops(1)

    @property
    def least_flops(self) -> float:
        """The same without the masked half of causal attention, which fused kernels skip."""
        return self._count_flops(0.5)

    @property
    def model_flops(self) -> float:
        """FLOPs as model FLOPs utilisation counts them: gradients of attention take twice those of
        attention, whatever a kernel computes again."""
        forward = [x for x in self.operations if not self.is_gradient(x.c)]
        inside = self._count_flops(1, forward) - self._count_flops(0, forward)
        return self._count_flops(0) + inside * (3 if self.has_backward else 1)

    def _count_flops(self, inside, operations=None):
        return sum(
            2 * m * n * k * share
            for operation in operations or self.operations
            for share, gemms in (
                [(1, [self.extents(operation)])]
                if isinstance(operation, Matmul)
                else [(inside, operation.function.gemms(*self.matrices[operation.c].shape))]
            )
            for m, n, k in gemms
        )


def lines(
    x: str,
    widths: Sequence[int],
    between: str = "",
    experts: tuple[int, int] = (0, 0),
    rows: int = 0,
    first: int = 1,
) -> str:
    """The text of x·W1 → f → ·W2 → …, for :func:`read`.

    Parameters
    ----------
    x : str
    widths : sequence of int
        Columns of x, and of each multiplication's result after its function.
    between : str
        The function after each multiplication but the last: one of
        :data:`drbench.chains.model.functions.BETWEEN`, or none.
    experts : (int, int)
        The number of experts, and those of a token.
    rows : int
        Rows of x, if the text shall begin with it.
    first : int
        The number in the first names.

    Examples
    --------
    >>> print(lines("X", (16, 32), experts=(8, 2), rows=64))
    X = input(64, 16)
    W1 = weight(16, 32, experts=8)
    Y1 = experts(X, W1, topk=2)
    """
    count, topk = experts
    text = [f"{x} = input({rows}, {widths[0]})"] if rows else []
    for number, (high, wide) in enumerate(pairwise(widths), first):
        of = between if number < first + len(widths) - 2 else ""
        y, w = f"Y{number}", f"W{number}"
        wide *= function(of).takes[0] if of else 1
        text.append(f"{w} = weight({high}, {wide}{f', experts={count}' if topk else ''})")
        text.append(f"{y} = {f'experts({x}, {w}, topk={topk})' if topk else f'{x} @ {w}'}")
        x = y
        if of:
            x = f"H{number}"
            text.append(f"{x} = {of}({y})")
    return "\n".join(text)


_FORMS = (
    "input(rows, columns), weight(rows, columns), weight(rows, columns, experts=8), A @ B, A + B, "
    "experts(A, B, topk=2), attention(A, heads=32, kv_heads=8, head_dim=128, sequence=8192), "
    "latent_attention(A, B, heads=128, head_dim=128, rotary=64, sequence=4096), (context=4096 in "
    "place of sequence: a new token; window=128 too), columns(A, first=512), "
    + ", ".join(f"{name}(A)" for name in BETWEEN)
)


def read(text: str, name: str, *, backward: bool = False) -> Chain:
    """The chain of a text, in which each line makes a matrix: X the input, the last the result.
    After ``#`` are comments.

    Raises
    ------
    UsageError
        If a line has another form, or its matrix is not used.

    Examples
    --------
    >>> text = "X = input(8 * 1024, 64)  # tokens\\nW = weight(64, 32)\\nY = X @ W\\nH = swiglu(Y)"
    >>> chain = read(text, "mine", backward=True)
    >>> [str(each) for each in chain.operations]
    ['Y = X·W', 'H = swiglu(Y)', 'dY = swiglu_grad(dH, Y)', 'dW = Xᵀ·dY', 'dX = dY·Wᵀ']
    >>> chain.matrices["H"].shape
    (8192, 16)
    """
    chain, places = Chain(name), {}
    for number, line in enumerate(text.splitlines(), 1):
        line = line.partition("#")[0].strip()
        try:
            if line:
                places[_read(chain, line)] = number
        except (KeyError, UsageError) as error:
            why = f"no line above makes {error}." if isinstance(error, KeyError) else error
            raise UsageError(f"line {number} of {name}: {why}") from None
    given = chain.matrices.get("X")
    if not given or given.kind != "input" or not chain.multiplications:
        raise UsageError(f"{name} needs a line X = input(rows, columns), and a multiplication.")
    *others, result = chain.matrices
    taken = {name for operation in chain.operations for name in operation.takes}
    if unused := [matrix for matrix in others if matrix not in taken]:
        raise UsageError(
            f"line {places[unused[0]]} of {name}: {unused[0]} is not used, and the result is "
            f"{result}, the last. Use it, or delete the line."
        )
    # A residual connection and the next layer need the result in the layout of X.
    if given.shape == chain.matrices[result].shape:
        chain.join("X", result)
    if backward:
        _differentiate(chain, result)
    return chain


def _read(chain: Chain, line: str) -> str:
    """Append what a line makes; the name of its matrix."""
    c, _, right = (side.strip() for side in line.partition("="))
    try:
        tree = ast.parse(right, mode="eval").body if c.isidentifier() else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        tree = None
    match tree:
        case ast.BinOp(ast.Name(a), ast.MatMult(), ast.Name(b)):
            return chain.multiply(c, a, b)
        case ast.BinOp(ast.Name(a), ast.Add(), ast.Name(b)):
            return chain.between(c, function("add"), a, b)
        case ast.Call(ast.Name(of), args, given):
            sizes = {str(argument.arg): _size(argument.value) for argument in given}
            match of, args, sorted(sizes):
                case "input", [rows, cols], []:
                    return chain.add(c, _size(rows), _size(cols), "input")
                case "weight", [rows, cols], [] | ["experts"] if sizes.get("experts", 2) > 1:
                    return chain.add(c, _size(rows), _size(cols), "weight", *sizes.values())
                case "experts", [ast.Name(a), ast.Name(b)], ["topk"]:
                    experts = chain.matrices[b].count, sizes["topk"]
                    return chain.multiply(c, a, b, experts=experts)
                case "columns", [ast.Name(a)], ["first"]:
                    return chain.between(c, columns(chain.matrices[a].cols, **sizes), a)
                case (
                    "attention",
                    [ast.Name(a)],
                    ["head_dim", "heads", "kv_heads", "sequence", *more]
                    | ["context", "head_dim", "heads", "kv_heads", *more],
                ) if more in ([], ["window"]):
                    return _attend(chain, c, attention(**sizes), sizes["heads"], a)
                case (
                    "latent_attention",
                    [ast.Name(a), ast.Name(b)],
                    ["head_dim", "heads", "rotary", "sequence"]
                    | ["context", "head_dim", "heads", "rotary"],
                ):
                    return _attend(chain, c, latent_attention(**sizes), sizes["heads"], a, b)
                case _, [ast.Name(a)], [] if of in BETWEEN:
                    return chain.between(c, function(of), a)
    raise UsageError(f"{shown(line)} is not understood. Write NAME = one of {_FORMS}.")


def _attend(chain: Chain, c: str, of: Function, heads: int, *takes: str) -> str:
    """Append attention of that number of heads."""
    cols = chain.matrices[chain.between(c, of, *takes)].cols
    if cols != heads * of.head_dim:
        raise UsageError(
            f"{of.name} has {heads} heads of {of.head_dim} columns, but {' and '.join(takes)} "
            f"{cols // of.head_dim}. Correct the heads, or the columns."
        )
    return c


def _size(given: ast.expr) -> int:
    match given:
        case ast.Constant(int(size)) if size > 0:
            return size
        case ast.BinOp(left, ast.Mult(), right):
            return _size(left) * _size(right)
    raise UsageError(f"{ast.unparse(given)} is no size. Use integers above 0, as 8192 or 8 * 1024.")


def _differentiate(chain: Chain, result: str) -> None:
    """Append the gradients of everything that the result depends on, in reverse."""
    last = chain.matrices[result]
    forward, chain.forward = list(chain.operations), frozenset(chain.matrices)
    known = {result: chain.add(f"d{result}", last.rows, last.cols, "input")}
    chain.join(known[result], result)
    left = Counter(name for operation in forward for name in operation.takes)
    for operation in reversed(forward):
        grad = known[operation.c]
        for name, make in _gradients(chain, operation, grad):
            left[name] -= 1
            c = f"d{name}.{left[name]}" if left[name] else f"d{name}"
            if name in known:  # used twice: the gradients add up
                known[name] = chain.between(c, function("add"), known[name], make(f"{c}+"))
            else:
                known[name] = make(c)
            chain.join(known[name], name)


def _gradients(chain: Chain, operation: Operation, grad: str) -> Iterator:
    """(input, function that appends its gradient under a name) of one operation; first of weights,
    for whose gradients no operation waits."""
    if isinstance(operation, Matmul):
        a, b = operation.a, operation.b
        yield b, lambda name: chain.multiply(name, a, grad, "a", operation.experts)
        yield a, lambda name: chain.multiply(name, grad, b, "b", operation.experts)
    elif operation.function.name == "add":
        for name in operation.takes:
            yield name, lambda _: grad  # the same
    else:
        for position, taken in enumerate(operation.takes):
            of = gradient(operation.function, position)
            needs = grad, *operation.takes[: len(of.takes) - 1]
            yield taken, lambda name, of=of, needs=needs: chain.between(name, of, *needs)
