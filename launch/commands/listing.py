"""``drbench list``: what there is to choose from."""

from __future__ import annotations

from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.table import Table

from algorithms import algorithms
from launch.host.show import console
from partitions import PRESETS

__all__ = ["machines", "show_listing"]

_PARTITIONS = [
    ("row", "row blocks, one tile a rank"),
    ("column", "column blocks, one tile a rank"),
    (
        "block, block:3x2, block:3x2:col",
        "2-D blocks on a near-square or given process grid, ranks row- or column-major",
    ),
    ("tiles:128x96@2x3, ...:col", "block-cyclic: tiles of 128x96 dealt to a 2x3 process grid"),
    ("traditional, traditional:3x4", "tiles of A, B and C that align on one process grid"),
    (".../cN", "N replicas; N divides the ranks"),
    ('S(0), S(1), R, "S(0),S(1)@2x3"', "DTensor placements"),
]
_TRANSPORTS = [
    ("auto", "in place where a rank's memory can be reached, RMA elsewhere"),
    ("direct", "in place only: tiles are read without a copy, added to under locks"),
    ("rma", "MPI Rget and Raccumulate, even on one node"),
    ("throttled:GBps,us", "in place, each transfer completing by a timer; for overlap experiments"),
]


def machines() -> list[tuple[str, str]]:
    """The machine `here`, and the machine files of this installation."""
    files = sorted((Path(__file__).parents[1] / "data" / "machines").glob("*.toml"))
    return [
        ("here", "this machine, as measured by run and mlp; modelled by calibrate"),
        *(
            (
                file.stem,
                "machine model (as tpuv4-4x8)" if file.stem.startswith("tpuv4") else "machine file",
            )
            for file in files
            if file.stem != "here"
        ),
    ]


def show_listing() -> None:
    """Print the five lists."""
    out = console()
    for title, rows in (
        ("algorithms", [(name, entry.about) for name, entry in algorithms().items()]),
        ("partitions", _PARTITIONS),
        (
            "presets",
            [(name, f"{preset.about} ({preset.source})") for name, preset in PRESETS.items()],
        ),
        ("transports", _TRANSPORTS),
        ("machines", machines()),
    ):
        table = Table(
            box=SIMPLE_HEAD,
            show_header=False,
            title=title,
            title_justify="left",
            title_style="bold",
            pad_edge=False,
        )
        table.add_column(no_wrap=True)
        table.add_column()
        for name, about in rows:
            table.add_row(name, about)
        out.print(table)
