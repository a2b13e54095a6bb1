"""The description of a chain: matrices by name, multiplications and functions in order, forward and
backward."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from drbench.errors import UsageError

from .functions import Function, function, gradient


class Matrix(NamedTuple):
    """A matrix of a chain.

    Attributes
    ----------
    name : str
    rows, cols : int
    kind : str
        ``input``, ``weight``, or ``made``: computed by the chain.
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
    """c = op(a) · op(b); ``transpose`` names the transposed operands, as ``--transpose`` does."""

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
        one, two = (f"{name}{'ᵀ' * transposed}" for name, transposed in self.operands)
        return f"{self.c} = {one}·{two}"


class Map(NamedTuple):
    """c = function(inputs): every rank computes its own tiles."""

    c: str
    function: Function
    takes: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.c} = {self.function.name}({', '.join(self.takes)})"


Operation = Matmul | Map


@dataclass
class Chain:
    """Multiplications and functions, in order.

    These have one layout: matrices that a function joins; a matrix and its gradient; the result and
    the input that it replaces (``loops``). Each such set is one *variable*, named after its first
    matrix.

    Examples
    --------
    >>> chain = layers(64, (16, 32, 16), ("relu",))
    >>> [str(each) for each in chain.operations]
    ['Y1 = X·W1', 'H1 = relu(Y1)', 'Y2 = H1·W2']
    >>> chain.variables["H1"], chain.variables["Y2"]  # Y2 replaces X
    ('Y1', 'X')
    """

    name: str
    matrices: dict[str, Matrix] = field(default_factory=dict)
    operations: list[Operation] = field(default_factory=list)
    _alike: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, rows: int, cols: int, kind: str = "made") -> str:
        """Add a matrix; return its name."""
        if name in self.matrices:
            raise UsageError(f"two matrices of a chain are called {name}. Rename one.")
        if min(rows, cols) < 1:
            raise UsageError(f"{name} must have at least one row and column, got {rows}x{cols}.")
        self.matrices[name] = Matrix(name, rows, cols, kind)
        self._alike[name] = name
        return name

    def join(self, one: str, two: str) -> None:
        """Give both matrices the same layout."""
        first, second = self.variable(one), self.variable(two)
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

    def multiply(self, c: str, a: str, b: str, transpose: str = "", kind: str = "made") -> str:
        """Append c = op(a)·op(b), which makes c."""
        one = Matmul(c, a, b, transpose)
        (m, k), (l, n) = (
            self.matrices[name].shape[:: -1 if transposed else 1]
            for name, transposed in one.operands
        )
        if k != l:
            raise UsageError(f"{a} and {b} do not fit: the one gives {k} columns, {l} are needed.")
        self.add(c, m, n, kind)
        self.operations.append(one)
        return c

    def extents(self, each):
        c = self.matrices[each.c]
        return c.rows, c.cols, self.inner(each)

    def inner(self, each: Matmul) -> int:
        """The extent k of a multiplication."""
        return self.matrices[each.a].shape["a" not in each.transpose]

    def between(self, c: str, of: Function, *takes: str) -> str:
        """Append c = of(takes), with the layout of its inputs."""
        first = self.matrices[takes[0]]
        units, left = divmod(first.cols, of.takes[0])
        for x, name in enumerate(takes):
            found = self.matrices[name]
            if (found.rows, found.cols) != (first.rows, units * of.takes[x]) or left:
                raise UsageError(
                    f"{of.name} takes {', '.join(f'{each} columns' for each in of.takes)} a unit; "
                    f"{name} has {found.rows}x{found.cols}."
                )
        if first.rows % of.rows:
            raise UsageError(
                f"{of.name} takes whole sequences of {of.rows} rows, got {first.rows} rows. Use a "
                "multiple."
            )
        self.add(c, first.rows, units * of.gives)
        for name in takes:
            self.join(c, name)
        self.operations.append(Map(c, of, takes))
        return c

    def stays(self, name: str) -> bool:
        """Whether a matrix is a weight or its gradient: each layer has its own."""
        return self.matrices[self.variable(name)].kind == "weight"

    def is_gradient(self, name: str) -> bool:
        """Whether a matrix is made by the backward pass, or is its input."""
        return name[:1] == "d" and name[1:].partition(".")[0] in self.matrices

    @property
    def has_backward(self) -> bool:
        return any(map(self.is_gradient, self.matrices))

    @property
    def multiplications(self) -> list[Matmul]:
        return [each for each in self.operations if isinstance(each, Matmul)]

    @property
    def flops(self) -> int:
        """2·m·n·k of all multiplications, those inside functions included."""
        total = 0
        for each in self.operations:
            c = self.matrices[each.c]
            if isinstance(each, Matmul):
                total += 2 * c.rows * c.cols * self.inner(each)
            else:
                total += sum(2 * m * n * k for m, n, k in each.function.gemms(*c.shape))
        return total


def layers(
    rows: int,
    widths: Sequence[int],
    between: Sequence[str] = (),
    *,
    backward: bool = False,
    name: str = "",
) -> Chain:
    """X·W1 → f → ·W2 → …

    Parameters
    ----------
    rows : int
        Rows of X: tokens.
    widths : sequence of int
        Columns of X, and of each multiplication's result after its function.
    between : sequence of str
        The function after each multiplication but the last: one of
        :data:`algorithms.chains.functions.BETWEEN`, one for all or one each. Empty: none.
    backward : bool
        Gradients too: of the input and of all weights, from that of the result.

    Raises
    ------
    UsageError
        If there are no two widths, or functions do not fit their number.

    Examples
    --------
    >>> chain = layers(64, (16, 32, 16), ("swiglu",), backward=True)
    >>> [str(each) for each in chain.operations][3:]
    ['dW2 = H1ᵀ·dY2', 'dH1 = dY2·W2ᵀ', 'dY1 = swiglu_grad(dH1, Y1)', 'dW1 = Xᵀ·dY1', 'dX = dY1·W1ᵀ']
    """
    if len(widths) < 2:
        raise UsageError(f"a chain needs at least two widths, got {len(widths)}. Give 4096,16384.")
    inner = len(widths) - 2
    functions = list(between) * inner if len(between) == 1 else list(between) or ["none"] * inner
    if len(functions) != inner:
        raise UsageError(
            f"{len(widths) - 1} multiplications have {inner} places between them, got "
            f"{len(functions)} functions. Give one for all, or one each."
        )
    chain = Chain(name or "·".join(["X", *(f"W{x}" for x in range(1, len(widths)))]))
    x = chain.add("X", rows, widths[0], "input")
    for number, (wide, high) in enumerate(zip(widths[1:], widths), 1):
        of = functions[number - 1] if number <= inner else "none"
        made = None if of == "none" else function(of)
        w = chain.add(f"W{number}", high, wide * (made.takes[0] if made else 1), "weight")
        x = chain.multiply(f"Y{number}", x, w)
        if made:
            x = chain.between(f"H{number}", made, x)
    return finished(chain, x, backward)


def finished(chain: Chain, result: str, backward: bool) -> Chain:
    """The chain with its gradients. A result as large as the input has the input's layout: a
    residual connection and the next layer need it."""
    given, made = chain.matrices["X"], chain.matrices[result]
    if given.shape == made.shape:
        chain.join("X", result)
    if backward:
        _differentiate(chain, result)
    return chain


def _differentiate(chain: Chain, result: str) -> None:
    """Append the gradients of everything that the result depends on, in reverse."""
    last = chain.matrices[result]
    forward = list(chain.operations)
    known = {result: chain.add(f"d{result}", last.rows, last.cols, "input")}
    chain.join(known[result], result)
    left = Counter(name for each in forward for name in each.takes)
    for each in reversed(forward):
        grad = known[each.c]
        for name, made in _gradients(chain, each, grad):
            left[name] -= 1
            if name in known:  # used twice: the gradients add up
                name_of = f"d{name}" if left[name] == 0 else f"d{name}.{left[name]}"
                made = chain.between(name_of, function("add"), known[name], made())
            else:
                made = made(f"d{name}" if left[name] == 0 else f"d{name}.{left[name]}")
            known[name] = made
            chain.join(made, name)


def _gradients(chain: Chain, each: Operation, grad: str) -> Iterator:
    """(input, function that appends its gradient under a name) of one operation; first of weights,
    for whose gradients no operation waits."""
    if isinstance(each, Matmul):
        a, b = each.a, each.b
        yield b, lambda name=f"d{b}+": chain.multiply(name, a, grad, "a")
        yield a, lambda name=f"d{a}+": chain.multiply(name, grad, b, "b")
    elif each.function.name == "add":
        for name in each.takes:
            yield name, lambda _=None: grad  # the same
    else:
        of = gradient(each.function)
        (taken,) = each.takes
        yield taken, lambda name=f"d{taken}+": chain.between(name, of, grad, taken)
