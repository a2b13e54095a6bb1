"""The committed records for the numbers of the pages, each read once."""

from functools import cache

import pandas
from pandas import DataFrame

from drbench.launch.host.files import ROOT
from drbench.plots.select.records import read_records

RESULTS = ROOT / "results"
#: Where the algorithms were measured, and DTensor next to drbench.
HERE = "measured/spr-2core"
#: Where everything else was: the core, the libraries, the layers, the performance model.
CORE = "measured/epyc-2core"


@cache
def records(*names: str) -> DataFrame:
    """Cases of files or folders below results/, as
    :func:`drbench.plots.select.records.read_records` gives them."""
    return read_records([RESULTS / name for name in names])


@cache
def rows(name: str) -> DataFrame:
    """A file below results/ that has columns of its own; empty cells are NaN."""
    return pandas.read_csv(RESULTS / name)


def core(section: str, **fields) -> DataFrame:
    """Rows of a section of benchmarks/core.py with these values."""
    return where(rows(f"{CORE}/performance/{section}.csv"), **fields)


def where(table: DataFrame, /, **fields) -> DataFrame:
    """The rows with these values; an error without any.

    Examples
    --------
    >>> where(DataFrame({"a": [1, 2], "b": [3, 4]}), a=2).b.tolist()
    [4]
    """
    for name, value in fields.items():
        table = table[table[name] == value]
    if table.empty:
        raise ValueError(f"no row with {fields}")
    return table
