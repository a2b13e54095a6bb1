"""Rows of GEMMs that overlap with their AllGather or ReduceScatter, simulated and published: the
data of the figures and claims of FLUX and Triton-distributed (TD).

``python -m drbench.launch.papers`` writes the simulated ones, one CSV file per study;
``results/published/overlap`` has the published ones.
"""

import os
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from pandas import DataFrame

from drbench.plots.select.typed_rows import RowFiles

from ..claims import ResultRows


class OverlapRow(NamedTuple):
    """One operation on one machine, by one method.

    Attributes
    ----------
    study : str
        A figure or table, as ``flux13`` or ``td11``.
    mode : str
        ``simulated`` or ``published``.
    product : str
        ``ag`` (AllGather, then GEMM), ``rs`` (GEMM, then ReduceScatter), ``ag_moe`` or ``moe_rs``;
        ``ag2``, ``dispatch_moe`` or ``moe_combine`` without the time of the GEMMs; ``training``,
        ``prefill`` or ``decoding`` of a block.
    m, n, k : int
        Of the whole multiplication, before division over the ranks; of a block the first of its
        MLP.
    method : str
        ``collective`` (nothing overlaps; in a block what Megatron-LM overlaps), ``chunks``
        (Transformer Engine), ``flux``, ``td``, ``deepep``, ``pytorch``, or ``signals`` (TD's
        AllGather without flags in words).
    variant : str
        Mode and order of communication, a block's model, or another difference between otherwise
        equal rows.
    tile : int or None
        Rows of a communication tile.
    seconds, gemm_s : float or None
        The whole operation, and the fastest GEMM alone, not split; of a block all but
        communication.
    speedup : float or None
        Over the method ``collective``.
    efficiency_percent : float or None
        FLUX's overlap efficiency, 1 - ECT / ECT of ``collective`` (Eq. 2); ECT is ``seconds -
        gemm_s`` (Eq. 1).
    source : str
        For published rows: the place of the number, and how it was read.
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
    """The range of a whole figure that a text gives: the ends of its values and their mean, if
    given.

    Attributes
    ----------
    quantity : str
        ``efficiency_percent``, ``speedup`` (over ``collective``, or PyTorch), ``over_chunks``
        (speedup over Transformer Engine), ``over_flux`` or ``over_deepep``.
    least_m, most_m : int
        The range of m; 0 for all rows of a table.
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


_COMMAND = "python -m drbench.launch.papers DIR"
ROWS = RowFiles(OverlapRow, "rows of overlapped GEMMs", _COMMAND)
RANGES = RowFiles(OverlapRange, "ranges of overlapped GEMMs", _COMMAND)


#: What makes two rows of a study the same GEMM; and a published and a simulated one the same case:
#: rows of tables have their experts as variant, those of figures ours.
GEMM = ["machine", "product", "m", "n", "k"]
SAME = ["study", "ranks", *GEMM, "method", "experts"]


def table_of(rows: Iterable[OverlapRow], ranges: Iterable[OverlapRange]) -> ResultRows:
    """Rows and ranges as tables; ``experts`` is the variant of rows with experts."""
    table = DataFrame(rows, columns=OverlapRow._fields)
    experts = table.variant.where(table["product"].str.contains("moe"), "")
    ends = DataFrame(ranges, columns=OverlapRange._fields)
    numbers = dict.fromkeys(("low", "high", "mean"), float)
    return ResultRows(table.assign(experts=experts), ResultRows(ends.astype(numbers)))


def read_tables(paths: Sequence[str | os.PathLike]) -> ResultRows:
    """Rows of CSV files and of folders of them; ``ranges.csv`` has ranges."""
    folders = ([*path.glob("*.csv")] if path.is_dir() else [path] for path in map(Path, paths))
    files = sorted(chain.from_iterable(folders))
    ranges = [file for file in files if file.name == "ranges.csv"]
    return table_of(ROWS.read([file for file in files if file not in ranges]), RANGES.read(ranges))
