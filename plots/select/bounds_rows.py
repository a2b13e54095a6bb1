"""Rows of ``drbench bounds``: what one way to multiply needs, beside the lower bound."""

import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from . import typed_rows

#: In how many dimensions ranks divide the products: one of m, n and k; two of them; two, with
#: replicas that divide the third; all three at once.
FAMILIES = ("1-D", "2-D", "2.5-D", "3-D")


class BoundsRow(NamedTuple):
    """One preset or algorithm on one shape and number of ranks.

    Attributes
    ----------
    m, n, k : int
        C is m×n, A m×k.
    limit_bytes : int or None
        What a rank may use, if that was limited.
    bound_bytes : float
        What some rank needs whatever the schedule (:func:`partitions.io_bound`).
    family : str
        Of :data:`FAMILIES`.
    name, how, needed_bytes, moved_bytes, memory_bytes, share, reason
        As of :class:`launch.models.needs.Need`; the numbers are None if it does not run.
    """

    m: int
    n: int
    k: int
    dtype: str
    ranks: int
    limit_bytes: int | None
    bound_bytes: float
    family: str
    name: str
    how: str
    needed_bytes: int | None
    moved_bytes: int | None
    memory_bytes: int | None
    share: float | None
    reason: str

    @property
    def ratio(self) -> float | None:
        """What is needed over the bound."""
        return None if self.needed_bytes is None else self.needed_bytes / self.bound_bytes


def write_rows(path: str | os.PathLike, rows: Iterable[BoundsRow]) -> None:
    """Write a file anew, whole or not at all."""
    typed_rows.write_rows(path, BoundsRow, rows)


def read_rows(paths: Sequence[str | os.PathLike]) -> list[BoundsRow]:
    """Read the rows of files, and of all CSV files of folders.

    Raises
    ------
    ValueError
        If a file has other columns, or a cell does not parse.
    """
    return typed_rows.read_rows(paths, BoundsRow, "needs", "drbench bounds --csv FILE")
