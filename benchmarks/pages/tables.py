"""Markdown of tables, and the register of those that pages have."""

import ast
from collections.abc import Callable, Iterable

#: By name; pages call them: ``<!-- docs: NAME(constants) -->``.
BLOCKS: dict[str, Callable[..., str]] = {}


def block(function: Callable[..., str]) -> Callable[..., str]:
    """Pages may call it: ``<!-- docs: NAME(constants) -->``."""
    BLOCKS[function.__name__] = function
    return function


def table(header: Iterable[str], lines: Iterable[Iterable[object]]) -> str:
    """Markdown.

    Examples
    --------
    >>> print(table(["a", "b"], [[1, "x"]]), end="")
    | a | b |
    |---|---|
    | 1 | x |
    """
    header = list(header)
    rule = f"|{'---|' * len(header)}\n"
    head, *rows = (f"| {' | '.join(map(str, line))} |\n" for line in (header, *lines))
    return "".join([head, rule, *rows])


def say_yes(met: bool | None) -> str:
    """``yes``, ``no``, or nothing where it is not decided."""
    return {True: "yes", False: "no", None: ""}[met]


def make(call: str) -> str:
    """The lines of a block, from its call as pages write it.

    Raises
    ------
    ValueError
        If it is no name of a block with constants.
    """
    node = ast.parse(call, mode="eval").body
    if not isinstance(node, ast.Call) or ast.unparse(node.func) not in BLOCKS:
        raise ValueError(f"no block {call}; there are {', '.join(BLOCKS)}")
    named = {each.arg: ast.literal_eval(each.value) for each in node.keywords}
    return BLOCKS[node.func.id](*map(ast.literal_eval, node.args), **named)
