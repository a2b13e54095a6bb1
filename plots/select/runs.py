"""Runs from files of ``drbench explain --save FILE.json``: their layouts, and what each rank did
when."""

import json
from collections.abc import Iterator, Sequence
from itertools import pairwise, product
from pathlib import Path
from typing import Any, NamedTuple

from .cases import SelectionError

#: A run, a matrix of it or a fact about it, as in the file.
Json = dict[str, Any]


class Bar(NamedTuple):
    """A step of a rank, as ``launch/models/run_description.py`` describes it."""

    step: int
    does: str
    start_s: float
    stop_s: float
    held_s: float
    nbytes: int
    reads: list[int]
    writes: list[int]
    moves: list[list[int]]
    computes: bool


class Tile(NamedTuple):
    """A tile: its rows and columns, and the rank that stores it in each replica."""

    rows: tuple[int, int]
    cols: tuple[int, int]
    owners: tuple[int, ...]


def read(paths: Sequence[str]) -> list[Json]:
    """The cases of the files, the steps of their ranks as :class:`Bar`.

    Raises
    ------
    SelectionError
        If a file is no such file.
    """
    cases = []
    for path in paths:
        try:
            runs = json.loads(Path(path).read_text(encoding="utf-8"))["cases"]
            for case in runs:
                ranks = [[Bar(*bar) for bar in bars] for bars in case["ranks"]]
                _ = case["matrices"], case["time_s"], case["name"]
                cases.append(case | {"ranks": ranks})
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise SelectionError(
                f"{path}: not the data of a run ({error}). Give it a file of drbench explain "
                "--save FILE.json."
            ) from None
    return cases


def tiles(matrix: Json) -> Iterator[Tile]:
    """The tiles of a matrix, row by row.

    Examples
    --------
    Two replicas of two column blocks on four ranks:

    >>> cuts = {"rows": [[8, 0]], "cols": [[4, 0], [8, 1]], "places": [[0], [0, 1], [0, 2]]}
    >>> [tile.owners for tile in tiles(cuts)]
    [(0, 2), (1, 3)]
    """
    (by_row, by_column, by_replica), ranks = matrix["places"], matrix.get("ranks")
    ranges = [
        [(start[0], *stop) for start, stop in pairwise([[0], *matrix[axis]])]
        for axis in ("rows", "cols")
    ]
    for (top, low, row), (start, stop, column) in product(*ranges):
        owners = tuple(by_row[row] + by_column[column] + replica for replica in by_replica)
        owners = tuple(ranks[owner] for owner in owners) if ranks else owners
        yield Tile((top, low), (start, stop), owners)


def owners_of(case: Json, region: int) -> tuple[str, list[int]]:
    """The matrix of a region of the run, and the ranks whose tiles it is in."""
    name, replica, rows, cols = case["regions"][region]
    (matrix,) = [matrix for matrix in case["matrices"] if matrix["name"] == name]
    meets = lambda ranges, span: any(start < span[1] and span[0] < stop for start, stop in ranges)
    met = [tile for tile in tiles(matrix) if meets(rows, tile.rows) and meets(cols, tile.cols)]
    return name, sorted({tile.owners[replica] for tile in met})
