"""A partition: the rank that holds each part of one matrix, as pure index arithmetic.

Rows and columns are distributed independently, each an axis of segments; a tile is a segment of
rows times a segment of columns. Places map coordinates and replicas to ranks. ScaLAPACK's
block-cyclic layouts with contiguous replicas are the common case; DTensor's placements and every
other Cartesian product of two axes are the same class.
"""

import re
from dataclasses import dataclass
from functools import partial

from .arithmetic import ProcessGrid
from .axes import Axis, CyclicAxis, axis_of
from .errors import LayoutError
from .intervals import Interval, Pair, Range
from .places import Places, regular


@dataclass(frozen=True, init=False, eq=False, repr=False, slots=True)
class Partition:
    """One matrix shape, split into tiles and distributed to a number of ranks.

    Made by :func:`drbench.partitions.partition` of a text, or by :meth:`of`. With equal tiles every
    method is O(1) or O(what it returns). Two partitions are equal when the same ranks hold the same
    tiles, whatever text they came from: ``block:1x4`` is ``block:1x4:col``.

    Attributes
    ----------
    rows, cols : CyclicAxis or ExplicitAxis
        How each dimension is divided and distributed (:mod:`drbench.partitions.axes`).
    places : Places
        The rank at each (row, column, replica) coordinate.
    text : str
        Text form for :func:`drbench.partitions.partition`; ignored in comparisons.
    shape : (int, int)
        Rows and columns of the matrix in elements; an extent may be 0.
    replicas : int
        Replication factor c: the number of complete copies of the matrix.
    grid_shape : (int, int)
        Rows and columns of the tile grid, 0 where the matrix has no element.
    tile_shape : (int, int)
        Of the largest tile.
    grid : ProcessGrid or None
        Of a replica; None if replicas are not contiguous ranks on a grid.
    part_of : (Partition, Interval, Interval) or None
        The source of a :meth:`part`: another partition, its rows and columns.

    Examples
    --------
    Ten rows and four columns in tiles of 3x4, distributed to two ranks; the last tile is short:

    >>> from drbench.partitions import partition
    >>> p = partition("tiles:3x4@2x1", (10, 4), 2)
    >>> p.grid_shape, p.tiles_of(1)
    ((4, 1), [(1, 0), (3, 0)])
    >>> p.tile_bounds((3, 0))
    (Interval(start=9, stop=10), Interval(start=0, stop=4))

    Replicas need not be contiguous ranks:

    >>> p = partition("S(0),R@2x2", (8, 8), 4)
    >>> p.members(0), p.members(1)
    ([0, 2], [1, 3])
    """

    rows: Axis
    cols: Axis
    places: Places
    text: str
    shape: Pair
    grid_shape: Pair
    tile_shape: Pair
    replicas: int
    part_of: "tuple[Partition, Interval, Interval] | None"
    grid: ProcessGrid | None

    @classmethod
    def of(
        cls, rows: Axis, cols: Axis, places: Places, text: str = "", grid: ProcessGrid | None = None
    ) -> "Partition":
        """Make the Cartesian product of two axes on any places.

        Parameters
        ----------
        rows, cols : CyclicAxis or ExplicitAxis
            With as many coordinates as the places have.
        places : Places
        text : str
            Text that :func:`drbench.partitions.partition` reads back to an equal partition; needed
            where no process grid and tile shape describe it.
        grid : ProcessGrid, optional
            Of the places, where they are of one and its order is known.

        Raises
        ------
        LayoutError
            If axes and places do not fit together, or a text is missing.

        Examples
        --------
        >>> from drbench.partitions.axes import CyclicAxis
        >>> from drbench.partitions.places import mesh_places
        >>> places = mesh_places([(2, "cols"), (3, "rows")])
        >>> Partition.of(CyclicAxis(6, 2, 3), CyclicAxis(6, 3, 2), places).text
        'tiles:2x3@3x2:col'
        """
        parts, placed = (rows.parts, cols.parts), (len(places.rows), len(places.cols))
        if parts != placed:
            raise LayoutError(
                f"axes of {parts[0]}x{parts[1]} coordinates do not fit places of "
                f"{placed[0]}x{placed[1]}; use one coordinate each"
            )
        # the class is frozen; attributes are set here only
        partition = object.__new__(cls)
        put = partial(object.__setattr__, partition)
        put("rows", rows)
        put("cols", cols)
        put("places", places)
        put("shape", (rows.extent, cols.extent))
        put("grid_shape", (len(rows), len(cols)))
        put("tile_shape", (rows.longest, cols.longest))
        put("replicas", len(places.replicas))
        put("grid", grid or places.grid)
        put("part_of", None)
        put("text", text)
        if not text:
            put("text", explicit_text(partition))
        return partition

    def __reduce__(self):
        if self.part_of is not None:
            return Partition.part, self.part_of
        return Partition.of, (self.rows, self.cols, self.places, self.text, self.grid)

    def __repr__(self) -> str:
        return f"<Partition {self.text} of {self.shape[0]}x{self.shape[1]} on {self.nprocs} ranks>"

    def _key(self) -> tuple:
        """The key that decides which rank of a replica holds which tile; tiles beyond the matrix,
        and coordinates without a tile, are ignored."""
        places, rows, cols = self.places, self.rows, self.cols
        return (
            places.nprocs,
            places.idle,
            places.ranks,
            places.replicas,
            places.terms,
            rows.key,
            regular(places.rows[: rows.used]),
            cols.key,
            regular(places.cols[: cols.used]),
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Partition):
            return NotImplemented
        return self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    @property
    def nprocs(self) -> int:
        """Number of ranks p, all replicas together."""
        return self.places.nprocs

    @property
    def ranks_per_replica(self) -> int:
        """Number of ranks p/c that share one copy of the matrix."""
        return self.places.holders // self.replicas

    def transposed(self) -> "Partition":
        """The partition of the transposed matrix: every element with the rank that holds it here.

        Examples
        --------
        >>> from drbench.partitions import partition
        >>> [
        ...     partition(text, (8, 6), 4).transposed().text
        ...     for text in ("row/c2", "block:1x4", "tiles:4x2@2x2", "S(0),R@2x2")
        ... ]
        ['column/c2', 'block:4x1', 'tiles:2x4@2x2:col', 'S(1),R@2x2']

        A grid with idle ranks, or in another rank order, has no text but that:

        >>> flipped = partition("grid:1x1x2", (8, 6), 3, "A").transposed()
        >>> flipped.text, flipped == partition(flipped.text, (6, 8), 3, "A")
        ('transposed grid:1x1x2', True)
        """
        if self.part_of is not None:
            whole, rows, cols = self.part_of
            return whole.transposed().part(cols, rows)
        places = self.places.transposed()
        text = _transposed_text(self.text)
        if re.split("[:/]", self.text)[0] == "block" and places.grid:
            text = f"block:{places.grid}{replica_suffix(self.replicas)}"
        if not (text or _explicit(self)):
            text = self.text.removeprefix(TRANSPOSED)
            text = text if text != self.text else TRANSPOSED + text
        return Partition.of(self.cols, self.rows, places, text)

    def part(self, rows: Range, cols: Range) -> "Partition":
        """The partition of a range of rows and columns: every element with the rank that holds it
        here. A rank's share of the part is also a range of its local array.

        Parameters
        ----------
        rows, cols : (start, stop)
            Half-open global ranges, inside the matrix.

        Examples
        --------
        >>> from drbench.partitions import partition
        >>> p = partition("tiles:3x4@2x1", (10, 4), 2)
        >>> part = p.part((4, 10), (0, 4))
        >>> part.text, [part.local_shape(rank) for rank in (0, 1)]
        ('[4:10, 0:4] of tiles:3x4@2x1', [(3, 4), (3, 4)])
        """
        rows, cols = Interval(*rows), Interval(*cols)
        if self.part_of is not None:
            whole, top, left = self.part_of
            return whole.part(
                (top.start + rows.start, top.start + rows.stop),
                (left.start + cols.start, left.start + cols.stop),
            )
        (down, i), (across, j) = _clipped(self.rows, rows), _clipped(self.cols, cols)
        text = f"[{rows.start}:{rows.stop}, {cols.start}:{cols.stop}] of {self.text}"
        partition = Partition.of(down, across, self.places.renumbered(i, j), text)
        object.__setattr__(partition, "part_of", (self, rows, cols))
        return partition

    # -- tiles ---------------------------------------------------------------

    def tile_bounds(self, idx: Pair) -> tuple[Interval, Interval]:
        """Return the global rows and columns of tile ``idx``.

        Raises
        ------
        LayoutError
            If ``idx`` is outside the tile grid.
        """
        i, j = self._checked(idx)
        return Interval(*self.rows[i][:2]), Interval(*self.cols[j][:2])

    def tile_index(self, row: int, col: int) -> Pair:
        """Return the index of the tile that holds one element of the matrix."""
        return self.rows.at(row), self.cols.at(col)

    def overlapping_tiles(self, rows: Range, cols: Range) -> list[Pair]:
        """List the tiles that a region of the matrix touches, row by row.

        Parameters
        ----------
        rows, cols : Interval or (start, stop)
            Half-open global ranges, clipped to the matrix; an empty one touches nothing.

        Examples
        --------
        >>> from drbench.partitions import partition
        >>> p = partition("tiles:4x4", (10, 10), 1)
        >>> p.overlapping_tiles((3, 5), (8, 100))
        [(0, 2), (1, 2)]
        """
        across = self.cols.covering(*cols)
        return [(i, j) for i in self.rows.covering(*rows) for j in across]

    # -- ranks ---------------------------------------------------------------

    def replica_of(self, rank: int) -> int:
        """Return the replica that ``rank`` belongs to; 0 for an idle one.

        Raises
        ------
        LayoutError
            If there is no such rank.
        """
        return self.places.coords(rank)[2] if self.holds(rank) else 0

    def members(self, replica: int = 0) -> list[int]:
        """Return the ranks that share one replica, in rising order; not always contiguous.

        Raises
        ------
        LayoutError
            If there is no such replica.
        """
        self._check_replica(replica)
        places = self.places
        at = places.replicas[replica]
        return sorted(places.numbered(at + row + col) for row in places.rows for col in places.cols)

    def owner(self, idx: Pair, replica: int = 0) -> int:
        """Return the global rank that holds tile ``idx`` of one replica.

        Raises
        ------
        LayoutError
            If ``idx`` is outside the tile grid, or there is no such replica.

        Examples
        --------
        >>> from drbench.partitions import partition
        >>> p = partition("tiles:4x4@2x2/c2", (8, 8), 8)
        >>> p.owner((1, 0)), p.owner((1, 0), replica=1)
        (2, 6)
        """
        i, j = self._checked(idx)
        self._check_replica(replica)
        return self.places.rank(self.rows[i].coordinate, self.cols[j].coordinate, replica)

    def tiles_of(self, rank: int) -> list[Pair]:
        """List the tiles that ``rank`` holds, row by row: none, one or many.

        Raises
        ------
        LayoutError
            If there is no such rank.
        """
        if not self.holds(rank):
            return []
        i, j, _ = self.places.coords(rank)
        across = self.cols.held_by(j)
        return [(ti, tj) for ti in self.rows.held_by(i) for tj in across]

    # -- pending sums --------------------------------------------------------

    @property
    def terms(self) -> int:
        """Number of terms whose sum is the matrix (DTensor's Partial); 1 where nothing is pending.

        Examples
        --------
        Copies along the first dimension of the mesh, terms along the second:

        >>> from drbench.partitions import partition
        >>> p = partition("R,P@2x2", (8, 8), 4)
        >>> p.terms, [p.term_of(q) for q in range(4)], p.copies(1)
        (2, [0, 1, 0, 1], [1, 3])
        """
        return max(self.places.terms, default=0) + 1

    def term_of(self, replica: int) -> int:
        """Return which term of a pending sum a replica holds; 0 where nothing is pending."""
        self._check_replica(replica)
        return self.places.terms[replica] if self.places.terms else 0

    def copies(self, replica: int = 0) -> list[int]:
        """Return the replicas with the same values as ``replica``, itself included, in order.

        All of them, unless a sum is pending: then those with the same term.
        """
        term = self.term_of(replica)
        return [q for q in range(self.replicas) if not self.places.terms or self.term_of(q) == term]

    # -- local storage -------------------------------------------------------

    def local_shape(self, rank: int) -> Pair:
        """Return how many rows and columns of the matrix ``rank`` holds (NUMROC, twice).

        Raises
        ------
        LayoutError
            If there is no such rank.

        Examples
        --------
        >>> from drbench.partitions import partition
        >>> p = partition("tiles:3x4@2x1", (10, 4), 2)
        >>> p.local_shape(0), p.local_shape(1)
        ((6, 4), (4, 4))
        """
        if not self.holds(rank):
            return 0, 0
        i, j, _ = self.places.coords(rank)
        return self.rows.length(i), self.cols.length(j)

    def local_size(self, rank: int) -> int:
        """Return how many elements of the matrix ``rank`` holds.

        Raises
        ------
        LayoutError
            If there is no such rank.
        """
        rows, cols = self.local_shape(rank)
        return rows * cols

    def local_start(self, idx: Pair) -> Pair:
        """Return the first row and column of tile ``idx`` in its owner's local array.

        The local array has :meth:`local_shape`: what ScaLAPACK and DTensor store. The same in every
        replica.

        Raises
        ------
        LayoutError
            If ``idx`` is outside the tile grid.

        Examples
        --------
        >>> from drbench.partitions import partition
        >>> partition("tiles:3x2@2x1", (10, 4), 2).local_start((3, 1))
        (3, 2)
        """
        i, j = self._checked(idx)
        return self.rows[i].local, self.cols[j].local

    def _checked(self, idx: Pair) -> Pair:
        i, j = idx
        tile_rows, tile_cols = self.grid_shape
        if not (0 <= i < tile_rows and 0 <= j < tile_cols):
            raise LayoutError(
                f"tile ({i}, {j}) is outside the {tile_rows}x{tile_cols} tile grid of {self.text};"
                f" overlapping_tiles and tiles_of list valid indices"
            )
        return i, j

    def _check_replica(self, replica: int) -> None:
        if not 0 <= replica < self.replicas:
            raise LayoutError(
                f"replica {replica} of {self.text} does not exist;"
                f" its replicas go from 0 to {self.replicas - 1}"
            )

    def holds(self, rank: int) -> bool:
        """Whether a rank has coordinates; an idle one has none, and holds nothing.

        Raises
        ------
        LayoutError
            If there is no such rank.

        Examples
        --------
        >>> from drbench.partitions import partition
        >>> p = partition("grid:2x2x1", (4, 4), 5, "C")
        >>> [p.holds(rank) for rank in (3, 4)], p.tiles_of(4), p.local_shape(4)
        ([True, False], [], (0, 0))
        """
        if not 0 <= rank < self.places.nprocs:
            raise LayoutError(
                f"rank {rank} takes no part in {self.text};"
                f" its ranks go from 0 to {self.nprocs - 1}"
            )
        return self.places.holds(rank)


#: Begins the text of a transposed partition that has no other text form.
TRANSPOSED = "transposed "


def _explicit(partition: Partition) -> bool:
    """Whether a tile shape, a process grid and a number of replicas define the partition."""
    alike = isinstance(partition.rows, CyclicAxis) and isinstance(partition.cols, CyclicAxis)
    return alike and partition.grid is not None and not partition.places.terms


def explicit_text(partition: Partition) -> str:
    """Return a partition's text without defaults and operand role; placements where no tile shape
    and grid describe it.

    Examples
    --------
    >>> from drbench.partitions import partition
    >>> explicit_text(partition("tiles:4x2/c3", (8, 8), 12))
    'tiles:4x2@2x2/c3'
    """
    if _explicit(partition):
        height, width = partition.tile_shape
        return f"tiles:{height}x{width}@{partition.grid}{replica_suffix(partition.replicas)}"
    if not partition.text:
        raise LayoutError(
            "no tile shape on a process grid with contiguous replicas describes this layout; give "
            "its text, for example S(0),R@2x2"
        )
    return partition.text


def replica_suffix(replicas: int) -> str:
    """Return how the text form writes a replication factor: ``/cN``, and nothing for 1.

    Examples
    --------
    >>> "row" + replica_suffix(2), "row" + replica_suffix(1)
    ('row/c2', 'row')
    """
    return f"/c{replicas}" if replicas > 1 else ""


def _clipped(axis: Axis, span: Interval) -> tuple[Axis, list[int]]:
    """The axis of a range of another one's indices, and the coordinates that it numbers."""
    start, stop = span
    held: list[list[Range]] = [[] for _ in range(axis.parts)]
    for x in axis.covering(start, stop):
        low, high, coordinate, _ = axis[x]
        held[coordinate].append((max(low, start) - start, min(high, stop) - start))
    return axis_of(stop - start, held)


def _transposed_text(text: str) -> str:
    """Placements with rows and columns exchanged, or ``row`` for ``column``; empty for texts with a
    grid and for ``block``.

    Examples
    --------
    >>> [_transposed_text(text) for text in ("R,S(0),_S(1,2)@2x2x2", "row/c2", "block")]
    ['R,S(1),_S(0,2)@2x2x2', 'column/c2', '']
    """
    if text[:1] in "RPS_":
        return re.sub(r"S\(([01])", lambda match: f"S({1 - int(match[1])}", text)
    kind, slash, factor = text.partition("/")
    other = {"row": "column", "column": "row"}.get(kind)
    return other + slash + factor if other else ""
