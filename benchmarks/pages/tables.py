"""Markdown of tables."""

from collections.abc import Iterable


def table(header: Iterable[str], lines: Iterable[Iterable[object]]) -> str:
    """Markdown.

    Examples
    --------
    >>> print(table(["a", "b"], [[1, "x"]]), end="")
    | a | b |
    |---|---|
    | 1 | x |
    """
    head, *rows = (f"| {' | '.join(map(str, line))} |\n" for line in (header, *lines))
    return "".join([head, f"|{'---|' * (head.count(' | ') + 1)}\n", *rows])


def say_yes(met: bool | None) -> str:
    """``yes``, ``no``, or nothing where it is not decided."""
    return {True: "yes", False: "no", None: ""}[met]


def describe_ratio(ratio: object) -> str:
    """The text of a ratio with its interval."""
    return str(ratio).replace("-", "–")
