"""The text form of a partition: what the command line, a sweep file and a CSV say.

========================  ====================================================
``row``, ``column``       one tile a rank, cut along rows or along columns
``block``, ``block:3x2``  one tile a rank on a process grid (default: near-square)
``tiles:128x96@2x3``      tiles of 128x96 dealt cyclically on a 2x3 process grid
``traditional:3x4``       aligned tiles of A, B and C on one process grid
========================  ====================================================

A grid given to ``block`` or ``tiles`` may end in ``:col`` (column-major ranks). Any
form may end in ``/cN`` (N replicas). DTensor placements are a second vocabulary,
see :mod:`partitions.dtensor`. Case and surrounding blanks do not matter.
"""

import re

from .dtensor import PlacementSpec, looks_like_placements, parse_placements
from .errors import LayoutError
from .grids import ProcessGrid
from .partition import Partition
from .spec import KINDS, PartitionSpec, unknown_kind


def partition(text: str, shape: tuple[int, int], nprocs: int, role: str | None = None) -> Partition:
    """Read a text form and bind it to a matrix and a number of ranks.

    Parameters
    ----------
    text : str
        Any form of this module or of :mod:`partitions.dtensor`.
    shape, nprocs, role
        As in :meth:`PartitionSpec.bind`.

    Raises
    ------
    LayoutError
        If the text cannot be read, or does not fit.

    Examples
    --------
    >>> p = partition("tiles:4x4@2x2", (10, 10), 4)
    >>> p.tiles_of(0)
    [(0, 0), (0, 2), (2, 0), (2, 2)]
    >>> partition("traditional:2x3", (8, 12), 6, role="A").tile_shape
    (4, 2)
    """
    return parse(text).bind(shape, nprocs, role)


def parse(text: str) -> PartitionSpec | PlacementSpec:
    """Read a text form; nothing is known of the matrix or the ranks yet.

    Raises
    ------
    LayoutError
        If the text is in no known form.

    Examples
    --------
    >>> parse(" Row/C2 ")
    PartitionSpec(kind='row', tile=None, grid=None, replicas=2)
    >>> str(parse("Shard(0), Shard(1)"))
    'S(0),S(1)'
    >>> parse("colum")
    Traceback (most recent call last):
    partitions.errors.LayoutError: unknown partition 'colum'; did you mean column? Forms: row, \
column, block[:PxQ[:col]], tiles:RxC[@PxQ[:col]], traditional[:PxQ], each with an optional /cN, \
or DTensor placements such as S(0), R or S(0),S(1).
    """
    lowered = text.strip().lower()
    if looks_like_placements(lowered):
        return parse_placements(lowered)
    form, slash, factor = lowered.partition("/")
    kind, colon, details = form.partition(":")
    if kind not in KINDS:
        raise unknown_kind(kind)
    replicas = parse_factor(lowered, factor) if slash else 1
    tile = grid = None
    if kind == "tiles":
        tile_text, at, details = details.partition("@")
        tile, colon = _extents(lowered, tile_text, "a tile shape like tiles:128x96"), at
    if colon and kind in ("row", "column"):
        raise LayoutError(
            f"{lowered!r} cuts one dimension and takes no details; use {kind}, or block:PxQ"
        )
    if colon:
        extents, _, order = details.partition(":")
        grid = ProcessGrid(
            *_extents(lowered, extents, "a process grid like 3x2"), _order(lowered, order)
        )
    return PartitionSpec(kind, tile, grid, replicas)


def parse_factor(text: str, factor: str) -> int:
    """Read the replication factor, the ``cN`` that follows the slash in ``text``.

    Raises
    ------
    LayoutError
        If ``factor`` is not ``cN``.

    Examples
    --------
    >>> parse_factor("row/c2", "c2")
    2
    """
    match = re.fullmatch(r"c([0-9]{1,12})", factor)
    if not match:
        raise LayoutError(
            f"{text!r} needs a replication factor after the slash, got {factor!r};"
            f" write /cN, for example /c2"
        )
    return int(match[1])


def _extents(text: str, extents: str, wanted: str) -> tuple[int, int]:
    match = re.fullmatch(r"([0-9]{1,12})x([0-9]{1,12})", extents)
    if not match:
        raise LayoutError(f"{text!r} needs {wanted}, got {extents!r}; write two integers as RxC")
    return int(match[1]), int(match[2])


def _order(text: str, order: str) -> str:
    if order not in ("", "row", "col"):
        raise LayoutError(
            f"{text!r} has an unknown rank order {order!r};"
            f" use :col for column-major ranks, nothing for row-major"
        )
    return order or "row"
