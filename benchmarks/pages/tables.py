"""Markdown of tables, and the register of those that pages have."""

import ast
from collections.abc import Callable, Iterable

from pandas import DataFrame

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
    written = [[str(cell) for cell in line] for line in (header, *lines)]
    written.insert(1, ["---"] * len(written[0]))
    text = "".join(f"| {' | '.join(line)} |\n" for line in written)
    return (
        text.replace("| --- ", "|---").replace("--- |\n", "---|\n").replace("---|--- ", "---|---")
    )


def list_rows(header: str, cells: str, found: DataFrame, **more) -> str:
    """A table with a line a row: header and cells have a column between bars; cells are formatted
    with the columns of the row, and with ``more``: functions of the row by name.

    Examples
    --------
    >>> found = DataFrame({"case": ["x"], "ratio": [0.98], "bar": [0.9]})
    >>> met = lambda row: say_yes(row.ratio >= row.bar)
    >>> print(list_rows("case|ratio|met", "{case}|{ratio:.1f}|{met}", found, met=met), end="")
    | case | ratio | met |
    |---|---|---|
    | x | 1.0 | yes |
    """
    lines = []
    for row in found.itertuples():
        fields = row._asdict() | {name: of(row) for name, of in more.items()}
        lines.append([cell.format(**fields) for cell in cells.split("|")])
    return table(header.split("|"), lines)


def say_yes(met: bool) -> str:
    """``yes`` or ``no``."""
    return "yes" if met else "no"


def describe_time(seconds: float) -> str:
    """
    Examples
    --------
    >>> describe_time(0.1), describe_time(0.0005), describe_time(3.4e-6), describe_time(42)
    ('100 ms', '0.5 ms', '3.4 µs', '42 s')
    """
    for unit, least in (("s", 1), ("ms", 1e-4), ("µs", 0)):
        if seconds >= least:
            scaled = seconds * {"s": 1, "ms": 1e3, "µs": 1e6}[unit]
            return f"{scaled:.0f} {unit}" if scaled >= 10 else f"{scaled:.1f} {unit}"
    raise ValueError(f"a time of {seconds} s")


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
