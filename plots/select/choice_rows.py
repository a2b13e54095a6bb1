"""Rows of a choice: what it was made of, each with its time and interval, and its layouts; of a
chain those of the chosen one, step by step."""

import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from . import typed_rows

#: What a row says: how long something takes, or how it is laid out: one operation of the chosen, or
#: all of a contender.
KINDS = ("time", "step", "layout")


class ChoiceRow(NamedTuple):
    """A contender, or an operation of the chosen one, which is the first.

    Attributes
    ----------
    title : str
        What was asked: rows of one title are one choice.
    ranks : int
    kind : str
        Of :data:`KINDS`.
    name : str
        Who, or the operation.
    time_s, low_s, high_s : float or None
        Of a contender: predicted, and the ends of its interval.
    measured_s : float or None
        The median of a run, if there was one.
    layouts : str
        ``NAME LAYOUT`` of matrices, with semicolons between; of an operation that which it makes
        last.
    how : str
    moved_bytes : int or None
        From rank to rank, all ranks together.
    """

    title: str
    ranks: int
    kind: str
    name: str
    time_s: float | None = None
    low_s: float | None = None
    high_s: float | None = None
    measured_s: float | None = None
    layouts: str = ""
    how: str = ""
    moved_bytes: int | None = None


def write_rows(path: str | os.PathLike, rows: Iterable[ChoiceRow]) -> None:
    """Write a file anew, whole or not at all."""
    typed_rows.write_rows(path, ChoiceRow, rows)


def read_rows(paths: Sequence[str | os.PathLike]) -> list[ChoiceRow]:
    """Read the rows of files, and of all CSV files of folders.

    Raises
    ------
    ValueError
        If a file has other columns, or a cell does not parse.
    """
    return typed_rows.read_rows(paths, ChoiceRow, "choices", "plots.select.choice_rows")
