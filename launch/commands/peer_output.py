"""Tables of ``drbench peers`` on the screen or as Markdown."""

from __future__ import annotations

from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from drbench.measure.record import read_csv
from launch.host.show import console
from launch.studies.peer_tables import best_settings, libraries, lines, summary, table_rows
from launch.studies.peer_triples import ACTIONS, triple_rows

__all__ = ["draw_bars", "markdown_table", "show_tables", "show_triples"]


def markdown_table(header, rows) -> str:
    """A Markdown table.

    Examples
    --------
    >>> print(markdown_table(("a", "b"), [("1", "x|y")]))
    | a | b |
    |---|---|
    | 1 | x\\|y |
    """
    row = lambda cells: "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
    return "\n".join([row(header), "|" + "---|" * len(header), *map(row, rows)])


def _print(title: str, header, rows, markdown: bool) -> None:
    if markdown:
        print(f"{title}\n\n{markdown_table(header, rows)}\n")
        return
    table = Table(
        *header,
        box=SIMPLE_HEAD,
        title=title,
        title_justify="left",
        title_style="bold",
        pad_edge=False,
    )
    for cells in rows:
        table.add_row(*map(Text, cells))
    console().print(table)


def show_tables(csv_path: Path, markdown: bool) -> None:
    """The summary, every contender, and the best setting of each library where several were run."""
    found = lines(read_csv(csv_path))
    if not found:
        return
    _print(
        "Percent of drbench's roof (median repeat; of its own roof where that is another BLAS)",
        *summary(found),
        markdown,
    )
    _print("Libraries", *libraries(found), markdown)
    _print("All contenders", *table_rows(found), markdown)
    if len({line.label for line in found if line.who != "drbench"}) > len(
        {line.who for line in found if line.who != "drbench"}
    ):
        _print(
            "The best setting of each (of those that move anything)",
            *table_rows(best_settings(found)),
            markdown,
        )


def show_triples(csv_path: Path, markdown: bool) -> None:
    """Triple by triple without replication, then counted over all replication factors."""
    single, counted = triple_rows(read_csv(csv_path))
    _print(
        "Without replication (bytes: all ranks together)",
        ("A", "B", "C", "DTensor", "its steps", "its bytes", "drbench", "its bytes"),
        single,
        markdown,
    )
    _print(
        "Over all replication factors: how often DTensor does what; where its ranks repeat no "
        "products, how often drbench moves fewer / as many / more bytes",
        ("A", "B", "C", *ACTIONS, "repeats products", "drbench runs", "fewer / same / more"),
        counted,
        markdown,
    )


def draw_bars(csv_path: Path, out: Path) -> None:
    """The figure of ``drbench plot peers`` as ``out`` with .pdf and .png, and what is not in it."""
    from plots.registry import draw
    from plots.select.selection import SelectionError

    try:
        drawn = draw("peers", [csv_path], out)
    except SelectionError as error:
        print(f"no figure: {error}")
        return
    for line in [*drawn.notes, *(f"figure: {path}" for path in drawn.paths)]:
        print(line)
