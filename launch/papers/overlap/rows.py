"""Rows about products that overlap with their AllGather or ReduceScatter, simulated and published:
what the figures and claims of FLUX and Triton-distributed (TD) are made of.

``python -m launch.papers`` writes the simulated ones, a CSV file a study;
``results/published/overlap`` has the published ones.
"""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from pandas import DataFrame

from plots.select.typed_rows import Rows

from ..claims import Rows as Table


class OverlapRow(NamedTuple):
    """One product on one machine, by one method.

    Attributes
    ----------
    study : str
        A figure or table, as ``flux13`` or ``td11``.
    mode : str
        ``simulated`` or ``published``.
    product : str
        ``ag`` (AllGather, then product), ``rs`` (product, then ReduceScatter), ``ag_moe`` or
        ``moe_rs``.
    m, n, k : int
        Of the whole product, before it is divided over the ranks.
    method : str
        ``collective`` (nothing overlaps), ``chunks`` (Transformer Engine), ``flux``, ``td``,
        ``pytorch``, ``best`` (the fastest program) or ``bound`` (what none can be faster than;
        ``variant`` says why).
    variant : str
        Mode and order of communication, or what else sets rows apart that are otherwise alike.
    tile : int or None
        Rows of a communication tile.
    seconds, gemm_s : float or None
        The whole, and the fastest product alone, not split.
    speedup : float or None
        Over the method ``collective``.
    efficiency_percent : float or None
        FLUX's overlap efficiency, 1 - ECT / ECT of ``collective`` (Eq. 2); ECT is ``seconds -
        gemm_s`` (Eq. 1).
    source : str
        Of published rows: where the number stands, and how it was read.
    """

    study: str
    mode: str
    machine: str
    ranks: int
    product: str
    m: int
    n: int
    k: int
    method: str
    variant: str
    tile: int | None
    seconds: float | None
    gemm_s: float | None
    speedup: float | None
    efficiency_percent: float | None
    source: str


class OverlapRange(NamedTuple):
    """What a text says of a figure as a whole: the ends of its values and their mean, as far as it
    gives them.

    Attributes
    ----------
    quantity : str
        ``efficiency_percent``, ``speedup`` (over ``collective``, or PyTorch), ``over_chunks``
        (speedup over Transformer Engine) or ``over_flux``.
    least_m, most_m : int
        The products that it is about; 0 where a table's rows all are.
    """

    study: str
    machine: str
    ranks: int
    product: str
    method: str
    quantity: str
    least_m: int
    most_m: int
    low: float | None
    high: float | None
    mean: float | None
    source: str


_COMMAND = "python -m launch.papers DIR"
ROWS = Rows(OverlapRow, "rows of overlapped products", _COMMAND)
RANGES = Rows(OverlapRange, "ranges of overlapped products", _COMMAND)


def table_of(rows: Iterable[OverlapRow], ranges: Iterable[OverlapRange]) -> Table:
    """Rows and ranges as tables."""
    numbers = dict.fromkeys(("low", "high", "mean"), float)
    ends = DataFrame(ranges, columns=OverlapRange._fields).astype(numbers)
    return Table(DataFrame(rows, columns=OverlapRow._fields), ends)


def read_tables(paths: Sequence[str | os.PathLike]) -> Table:
    """Rows and ranges of CSV files and of folders of them, told apart by their headers.

    Raises
    ------
    ValueError
        If a file holds neither.
    """
    files: dict[bool, list[Path]] = {True: [], False: []}
    for path in map(Path, paths):
        for file in sorted(path.glob("*.csv")) if path.is_dir() else [path]:
            with open(file, encoding="utf-8", errors="replace") as opened:
                names = opened.readline().strip().split(",")
            files[names == [*OverlapRange._fields]].append(file)
    return table_of(ROWS.read(files[False]), RANGES.read(files[True]))
