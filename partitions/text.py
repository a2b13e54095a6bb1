"""The text form of a partition, as the command line, sweep files and records have it.

:data:`LAYOUT_FORMS` lists the forms. DTensor placements are a second vocabulary, see
:mod:`drbench.partitions.dtensor`; names of all three operands at once a third, see
:mod:`drbench.partitions.presets`. Case and surrounding blanks do not matter.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from math import lcm

from .arithmetic import ProcessGrid, ceil_div, divisors, most_replicas, near_square
from .axes import CyclicAxis
from .blocks import BlocksSpec, OnRanksSpec, parse_blocks, parse_ranks
from .dtensor import PlacementSpec, parse_placements
from .errors import LayoutError, needs_role
from .grids import GridSpec, parse_grid
from .intervals import Pair
from .optimal_grids import optimal_grid
from .partition import TRANSPOSED, Partition, replica_suffix
from .places import grid_places
from .presets import GRID, PRESETS, REPLICATED

KINDS = ("row", "column", "block", "tiles", "traditional")

#: The function that makes partitions of a kind that users add.
Maker = Callable[[str, Pair, int, str | None], Partition]
_ADDED: dict[str, Maker] = {}

#: Each form with its meaning: ``drbench list partitions`` and docs/reference have this list.
LAYOUT_FORMS = (
    ("row", "row blocks, one tile for each rank"),
    ("column", "column blocks, one tile for each rank"),
    (
        "block, block:3x2, block:3x2:col",
        "2-D blocks on a near-square or given process grid, ranks in row- or column-major order",
    ),
    (
        "tiles:128x96, tiles:128x96@2x3, ...:col, ...:from1x0",
        "block-cyclic: tiles of 128 x 96 elements on a near-square or given process grid, from "
        "process row 0 and column 0 on, or from others (ScaLAPACK's RSRC and CSRC)",
    ),
    (
        "traditional, traditional:3x4",
        "2-D blocks of A, B and C on one process grid, whose tiles align along m, n and k",
    ),
    (
        "grid:2x3x4",
        "A, B and C each stored once on one grid over m, n and k; further ranks store nothing",
    ),
    (
        "...:3+4*x2",
        "tiles of sizes of your own: one of 3 rows, then of 4 rows to the end (* repeats the last "
        "size), all of 2 columns",
    ),
    (
        "...:1+3+2x4@0+1+1x0",
        "tiles of 1, 3 and 2 rows, which fill the matrix; after @ the process row of each, then "
        "the process column of each tile column: this grid has rows 0 and 1, and column 0",
    ),
    (".../cN", "N replicas, each on 1/N of the ranks; N divides the ranks; not for grid"),
    (".../on0-3, .../on5+2", "on these ranks, in this order; the others hold nothing"),
    (
        'S(0), S(1), R, "S(0),R@2x3"',
        "DTensor placements, one for each dimension of a mesh: rows, columns or all on each rank",
    ),
    ("_S(0,2)", "DTensor's _StridedShard, with split factor 2"),
    ("P", "DTensor's Partial, for C: each rank has a term of a sum that stays pending"),
)

FORMS = (
    "row, column, block[:PxQ[:col]], tiles:RxC[@PxQ[:col][:fromIxJ]], traditional[:PxQ],"
    " each with an optional /cN and /onRANKS, grid:PMxPNxPK, or DTensor placements such as S(0), R"
    " or S(0),S(1)"
)

# texts meant as DTensor placements, valid or not
_STARTS = re.compile(r"[\[(\s]*(_?s|shard|_stridedshard|r|replicate|p|_?partial)\s*([(,@/)\]]|$)")


@dataclass(frozen=True, slots=True)
class PartitionSpec:
    """A partition without a matrix: the content of its text.

    ``str`` of a spec is its canonical text, and :func:`drbench.partitions.parse` reads that
    back to an equal spec.

    Parameters
    ----------
    kind : {"row", "column", "block", "tiles", "traditional"}
        How the matrix is divided.
    tile : (int, int), optional
        Tile shape in elements, for ``tiles`` only (and needed there).
    grid : ProcessGrid, optional
        Process grid of one replica; by default near-square. Not for row and column.
    replicas : int
        Replication factor.

    Raises
    ------
    LayoutError
        If the parts do not fit together.

    Examples
    --------
    >>> str(PartitionSpec("block", grid=ProcessGrid(3, 2, "col"), replicas=2))
    'block:3x2:col/c2'
    """

    kind: str
    tile: Pair | None = None
    grid: ProcessGrid | None = None
    replicas: int = 1

    def __post_init__(self) -> None:
        if self.kind == "traditional" and self.grid and self.grid.order != "row":
            raise LayoutError(
                f"traditional has row-major ranks, got {self.grid};"
                f" use traditional:{self.grid.rows}x{self.grid.cols}"
            )
        if self.tile is not None and min(self.tile) < 1:
            raise LayoutError(
                f"tile shape {self.tile[0]}x{self.tile[1]} holds no element;"
                f" both extents must be at least 1"
            )

    def __str__(self) -> str:
        text = self.kind
        if self.tile:
            text += f":{self.tile[0]}x{self.tile[1]}"
        if self.grid:
            text += f"@{self.grid}" if self.tile else f":{self.grid}"
        return text + replica_suffix(self.replicas)

    def bind(self, shape: Pair, nprocs: int, role: str | None = None) -> Partition:
        """Apply the spec to a matrix and a number of ranks.

        Parameters
        ----------
        shape : (int, int)
            Rows and columns of the matrix in elements.
        nprocs : int
            Number of ranks, all replicas together.
        role : {"A", "B", "C"}, optional
            Which operand of C = A·B this is; ``traditional`` needs it, others ignore it.

        Raises
        ------
        LayoutError
            If the replicas do not divide the ranks, the grid does not fit a
            replica, or ``traditional`` has no role.

        Examples
        --------
        >>> p = PartitionSpec("block", replicas=2).bind((9, 10), 8)
        >>> str(p.grid), p.tile_shape, p.replicas
        ('2x2', (5, 5), 2)
        """
        grid = self._fit_grid(nprocs)
        if self.tile:
            tile = self.tile
        elif self.kind == "traditional":
            tile = _aligned_tile(shape, grid, role)
        else:
            tile = ceil_div(shape[0], grid.rows), ceil_div(shape[1], grid.cols)
        # a matrix without elements still needs a tile shape
        tile = max(1, tile[0]), max(1, tile[1])
        rows, cols = map(CyclicAxis, shape, tile, (grid.rows, grid.cols))
        return Partition.of(rows, cols, grid_places(grid, self.replicas), str(self), grid)

    def _fit_grid(self, nprocs: int) -> ProcessGrid:
        """The process grid of one replica of ``nprocs / replicas`` ranks."""
        if nprocs < 1 or nprocs % self.replicas:
            valid = ", ".join(map(str, divisors(nprocs)))
            raise LayoutError(
                f"{self} needs a replication factor that divides the number of ranks;"
                f" got {nprocs} ranks. Use one of {valid}."
            )
        ranks = nprocs // self.replicas
        if self.kind == "row":
            return ProcessGrid(ranks, 1)
        if self.kind == "column":
            return ProcessGrid(1, ranks)
        if self.grid is None:
            return ProcessGrid(*near_square(ranks))
        if self.grid.size != ranks:
            raise self._misfit(self.grid, nprocs, ranks)
        return self.grid

    def _misfit(self, grid: ProcessGrid, nprocs: int, ranks: int) -> LayoutError:
        rows, cols = near_square(ranks)
        shapes = ((rows, cols), (cols, rows))
        grids = dict.fromkeys(ProcessGrid(*shape, grid.order) for shape in shapes)
        fitting = " or ".join(
            str(PartitionSpec(self.kind, self.tile, grid, self.replicas)) for grid in grids
        )
        needed = grid.size * self.replicas
        few = f", or name its ranks, as {self}/on0-{needed - 1}" if needed < nprocs else ""
        return LayoutError(
            f"{self} is for {_count(needed, 'rank')}, got {nprocs}. Use {fitting}{few}."
        )


@dataclass(frozen=True, slots=True)
class TransposedSpec:
    """The partition of a transposed matrix, without a matrix."""

    stored: "Spec"

    def __str__(self) -> str:
        return f"{TRANSPOSED}{self.stored}"

    def bind(self, shape: Pair, nprocs: int, role: str | None = None) -> Partition:
        """Apply the spec, as :meth:`PartitionSpec.bind` does; ``role`` is the stored matrix's."""
        return self.stored.bind((shape[1], shape[0]), nprocs, role).transposed()


@dataclass(frozen=True, slots=True)
class AddedSpec:
    """A partition, without a matrix, of a kind that a user added (:func:`partition_kind`)."""

    kind: str
    details: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.details}" if self.details else self.kind

    def bind(self, shape: Pair, nprocs: int, role: str | None = None) -> Partition:
        """Apply the spec, as :meth:`PartitionSpec.bind` does."""
        layout = _ADDED[self.kind](self.details, shape, nprocs, role)
        return Partition.of(layout.rows, layout.cols, layout.places, str(self))


Spec = (
    PartitionSpec | BlocksSpec | OnRanksSpec | PlacementSpec | GridSpec | AddedSpec | TransposedSpec
)


def partition_kind(name: str) -> Callable[[Maker], Maker]:
    """Register a user's kind of partition, whose text form is ``name:DETAILS``.

    The decorated function ``make(details, shape, nprocs, role)`` returns the partition of a matrix,
    which :meth:`Partition.of` makes of two axes and places, or raises a LayoutError.
    Details are in lower case, without a comma.

    Raises
    ------
    LayoutError
        If another kind has that name, or it is not a word in lower case.

    Examples
    --------
    >>> @partition_kind("thirds")
    ... def thirds(details, shape, nprocs, role):
    ...     return partition(f"tiles:{max(1, shape[0] // 3)}x{shape[1]}@{nprocs}x1", shape, nprocs)
    >>> p = partition("thirds", (9, 4), 2)
    >>> p.text, p.tiles_of(0)
    ('thirds', [(0, 0), (2, 0)])
    """

    def register(make: Maker) -> Maker:
        known = (*KINDS, *_ADDED, "grid")
        if name in known or is_placements(name) or not re.fullmatch("[a-z][a-z_]*", name):
            raise LayoutError(f"no kind of partition can be added as {name!r}; use another word")
        _ADDED[name] = make
        return make

    return register


def added_kinds() -> list[tuple[str, str]]:
    """The added kinds, each with the first line of its docstring."""
    return [(name, (make.__doc__ or "").partition("\n")[0]) for name, make in _ADDED.items()]


def partition(text: str, shape: Pair, nprocs: int, role: str | None = None) -> Partition:
    """Read a text form and bind it to a matrix and a number of ranks.

    Parameters
    ----------
    text : str
        Any form of this module or of :mod:`drbench.partitions.dtensor`.
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
    if min(shape) < 0:
        raise LayoutError(f"matrix shape {shape[0]}x{shape[1]} is too small; use at least 0")
    return parse(text).bind(shape, nprocs, role)


def parse(text: str) -> Spec:
    """Read a text form, without a matrix and ranks.

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
    drbench.partitions.errors.LayoutError: unknown partition 'colum'; did you mean column? \
Forms: row, column, block[:PxQ[:col]], tiles:RxC[@PxQ[:col][:fromIxJ]], traditional[:PxQ], each \
with an optional /cN and /onRANKS, grid:PMxPNxPK, or DTensor placements such as S(0), R or \
S(0),S(1).
    """
    lowered = text.strip().lower()
    if lowered.startswith(TRANSPOSED):
        return TransposedSpec(parse(lowered.removeprefix(TRANSPOSED)))
    layout, on, ranks = lowered.rpartition("/on")
    if on:
        return OnRanksSpec(parse(layout), parse_ranks(ranks))
    if is_placements(lowered):
        return parse_placements(lowered)
    added, _, details = lowered.partition(":")
    if added in _ADDED:
        return AddedSpec(added, details)
    form, slash, factor = lowered.partition("/")
    kind, colon, details = form.partition(":")
    if kind == "grid":
        if slash:
            raise LayoutError(f"{lowered!r}: a grid stores each matrix once; leave /{factor} out")
        return GridSpec(parse_grid(details))
    if kind not in KINDS:
        raise unknown_kind(kind)
    replicas = parse_factor(lowered, factor) if slash else 1
    tile = grid = None
    if kind == "tiles" and re.search(r"[+*]|:from", details):
        return parse_blocks(form, replicas)
    if kind == "tiles":
        tile_text, at, details = details.partition("@")
        tile, colon = _extents(lowered, tile_text, "a tile shape like tiles:128x96"), at
    if colon and kind in ("row", "column"):
        raise LayoutError(
            f"{lowered!r} cuts one dimension and takes no details; use {kind}, or block:PxQ"
        )
    if colon:
        shape, _, order = details.partition(":")
        grid = ProcessGrid(
            *_extents(lowered, shape, "a process grid like 3x2"), _order(lowered, order)
        )
    return PartitionSpec(kind, tile, grid, replicas)


def is_placements(text: str) -> bool:
    """Return whether a lower-case text is meant as DTensor placements, valid or not.

    Examples
    --------
    >>> [is_placements(t) for t in ("s(0)", "r", "row", "s", "partial()")]
    [True, True, False, True, True]
    """
    return "," in text or bool(_STARTS.match(text))


def preset(
    name: str,
    nprocs: int,
    sizes: tuple[int, int, int] | None = None,
    memory: int | None = None,
) -> tuple[str, str, str]:
    """Return the text forms of A, B and C of a named partitioning.

    Parameters
    ----------
    name : str
        A key of :data:`PRESETS`; those that do not fix their replication take a
        suffix ``/cN``, which sets the replication factor of all three operands.
    nprocs : int
        Number of ranks, which "replicated" and 2.5D depend on.
    sizes : (int, int, int), optional
        m, n and k, which optimal depends on.
    memory : int, optional
        Elements that fit into a rank's memory, for optimal
        (:func:`drbench.partitions.optimal_grids.held`).

    Raises
    ------
    LayoutError
        If the name is unknown, or the preset fixes its own factors; for optimal, if sizes are
        missing or no grid fits. :func:`partition` checks whether a factor or a grid fits the ranks.

    Examples
    --------
    >>> preset("inner/c2", 4)
    ('row/c2', 'column/c2', 'column/c2')
    >>> preset("megatron", 4)
    ('row/c4', 'column', 'column')
    >>> preset("2.5d", 8)
    ('block/c2', 'block/c2', 'block/c2')
    >>> preset("optimal", 5, (64, 64, 64)) == preset("optimal:2x2x1", 5)
    True
    """
    base, slash, factor = name.strip().lower().partition("/")
    base, colon, grid = base.partition(":")
    if base not in PRESETS:
        raise LayoutError(
            f"unknown preset {base!r}; {_meant(base, PRESETS)}Presets: {', '.join(PRESETS)}."
        )
    chosen = PRESETS[base]
    if slash and chosen.fixed:
        raise LayoutError(
            f"{base} sets its own replication factors, got {name.strip()!r};"
            f" use {base} alone, or give A, B and C one by one"
        )
    if chosen.operands[0] == GRID:
        return _on_grid(base, grid, nprocs, sizes, memory)
    if colon:
        raise LayoutError(f"{base} takes no details, got {name.strip()!r}; use {base} alone")
    replicas = parse_factor(name, factor) if slash else 1
    if base == "2.5d":
        replicas = most_replicas(nprocs)
    a, b, c = (
        f"row{replica_suffix(nprocs)}"
        if operand == REPLICATED
        else f"{operand}{replica_suffix(replicas)}"
        for operand in chosen.operands
    )
    return a, b, c


def _on_grid(
    name: str,
    grid: str,
    nprocs: int,
    sizes: tuple[int, int, int] | None,
    memory: int | None,
) -> tuple[str, str, str]:
    """The three matrices stored once on a grid: the named or the best one."""
    if not grid and sizes is None:
        raise LayoutError(f"{name} depends on m, n and k; name a grid, as {name}:2x2x1")
    if sizes and not grid:
        grid = str(optimal_grid(*sizes, nprocs, memory))
    return (str(GridSpec(parse_grid(grid))),) * 3


def parse_factor(text: str, factor: str) -> int:
    """Read the replication factor, the ``cN`` that follows the slash in ``text``.

    Raises
    ------
    LayoutError
        If ``factor`` is not ``cN``, or N is 0.

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
    if not int(match[1]):
        raise LayoutError(f"/{factor} asks for no replica; use /c1 or more")
    return int(match[1])


def extents(text: str) -> Pair | None:
    """Read two integers written as ``RxC``; None if the text is something else.

    Examples
    --------
    >>> extents("3x2"), extents("3 by 2")
    ((3, 2), None)
    """
    match = re.fullmatch(r"([0-9]{1,12})x([0-9]{1,12})", text)
    return (int(match[1]), int(match[2])) if match else None


def _extents(text: str, part: str, wanted: str) -> Pair:
    numbers = extents(part)
    if not numbers:
        raise LayoutError(f"{text!r} needs {wanted}, got {part!r}; write two integers as RxC")
    return numbers


def _order(text: str, order: str) -> str:
    if order not in ("", "row", "col"):
        raise LayoutError(
            f"{text!r} has an unknown rank order {order!r};"
            f" use :col for column-major ranks, nothing for row-major"
        )
    return order or "row"


def unknown_kind(kind: str) -> LayoutError:
    """Make the error that lists every form, and the kind that may have been meant."""
    meant = _meant(kind, (*KINDS, *_ADDED))
    if "cyclic" in kind:
        meant = "block-cyclic is tiles:RxC@PxQ, as tiles:64x64@2x2. "
    hint = f"; {meant}" if meant else ". "
    return LayoutError(f"unknown partition {kind!r}{hint}Forms: {FORMS}.")


def _meant(word: str, known: Iterable[str]) -> str:
    close = get_close_matches(word, known, n=1)
    return f"did you mean {close[0]}? " if close else ""


def _aligned_tile(shape: Pair, grid: ProcessGrid, role: str | None) -> Pair:
    """Tile shape of one operand of C = A·B such that the tiles of all three align.

    k is divided into lcm(Pr, Pc) parts: an integer number for each process column,
    over which A divides k, and for each process row, over which B does.
    """
    k_tiles = lcm(grid.rows, grid.cols)
    parts = {
        "A": (grid.rows, k_tiles),
        "B": (k_tiles, grid.cols),
        "C": (grid.rows, grid.cols),
    }
    if role not in parts:
        raise needs_role(f"traditional:{grid}", role)
    rows, cols = parts[role]
    return ceil_div(shape[0], rows), ceil_div(shape[1], cols)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
