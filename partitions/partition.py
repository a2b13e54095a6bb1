"""A partition: which rank holds which part of one matrix, as pure index arithmetic.

ScaLAPACK's conventions, plus replication. A tile shape splits the matrix into a
tile grid; a process grid deals the tiles cyclically, in both dimensions, to the
p/c ranks of each of c replicas; contiguous ranks form a replica.
"""

from dataclasses import dataclass, field
from operator import index

from .arithmetic import Interval, ProcessGrid, ceil_div, covering, cuts, local_extent
from .errors import LayoutError


@dataclass(frozen=True, slots=True)
class Partition:
    """One matrix shape, split into tiles and dealt to a number of ranks.

    Every method is O(1) or O(what it returns): none looks at the whole grid.
    Two partitions are equal when the same ranks hold the same tiles, whatever text they
    came from: ``block:1x4`` is ``block:1x4:col``.

    Parameters
    ----------
    shape : (int, int)
        Rows and columns of the matrix in elements; an extent may be 0.
    tile_shape : (int, int)
        Rows and columns of a tile in elements, at least 1 each; tiles on the last
        tile row and column may be short, and a tile may be larger than the matrix.
    grid : ProcessGrid
        Arrangement of the ranks of one replica.
    replicas : int
        Replication factor c: the number of complete copies of the matrix.
    text : str
        Text form that :func:`partitions.partition` reads back; the explicit
        ``tiles:`` form when not given. Takes no part in comparisons.

    Attributes
    ----------
    grid_shape : (int, int)
        Rows and columns of the tile grid, 0 where the matrix has no element.

    Raises
    ------
    LayoutError
        If an extent is negative, a tile extent below 1, or ``replicas`` below 1.

    Examples
    --------
    Ten rows and four columns in tiles of 3x4, dealt to two ranks; the last tile is short:

    >>> p = Partition((10, 4), (3, 4), ProcessGrid(2, 1))
    >>> p.text, p.grid_shape
    ('tiles:3x4@2x1', (4, 1))
    >>> p.tiles_of(1)
    [(1, 0), (3, 0)]
    >>> p.tile_bounds((3, 0))
    (Interval(start=9, stop=10), Interval(start=0, stop=4))
    """

    shape: tuple[int, int]
    tile_shape: tuple[int, int]
    grid: ProcessGrid
    replicas: int = 1
    text: str = field(default="", compare=False)
    # derived once: nearly every method needs it
    grid_shape: tuple[int, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # frozen, so derived and normalised values go in by the back door, here only
        put = object.__setattr__
        put(self, "shape", _pair(self.shape, "matrix shape", least=0))
        put(self, "tile_shape", _pair(self.tile_shape, "tile shape", least=1))
        if self.replicas < 1:
            raise LayoutError(f"{self.replicas} replicas hold no matrix; use at least 1")
        put(self, "grid_shape", tuple(map(ceil_div, self.shape, self.tile_shape)))
        if not self.text:
            put(self, "text", explicit_text(self))

    def _placed(self) -> tuple:
        """What decides which rank of a replica holds which tile; tiles beyond the matrix, and
        process rows and columns without a tile, take no part."""
        grid = self.grid
        key: list = [self.shape, grid.size, self.replicas]
        strides = (grid.cols, 1) if grid.order == "row" else (1, grid.rows)
        for extent, tile, tiles, parts, stride in zip(
            self.shape, self.tile_shape, self.grid_shape, (grid.rows, grid.cols), strides
        ):
            turns = min(tiles, parts)
            key.append((min(tile, max(1, extent)), (turns, stride) if turns > 1 else None))
        return tuple(key)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Partition):
            return NotImplemented
        return self._placed() == other._placed()

    def __hash__(self) -> int:
        return hash(self._placed())

    @property
    def nprocs(self) -> int:
        """Number of ranks p, all replicas together."""
        return self.grid.size * self.replicas

    @property
    def ranks_per_replica(self) -> int:
        """Number of ranks p/c that share one copy of the matrix."""
        return self.grid.size

    # -- tiles ---------------------------------------------------------------

    def tile_bounds(self, idx: tuple[int, int]) -> tuple[Interval, Interval]:
        """Return the global rows and columns that tile ``idx`` covers.

        Raises
        ------
        LayoutError
            If ``idx`` is outside the tile grid.
        """
        i, j = self._checked(idx)
        height, width = self.tile_shape
        rows, cols = self.shape
        top, left = i * height, j * width
        return (
            Interval(top, top + height if top + height < rows else rows),
            Interval(left, left + width if left + width < cols else cols),
        )

    def tile_index(self, row: int, col: int) -> tuple[int, int]:
        """Return the index of the tile that holds one element of the matrix.

        Raises
        ------
        LayoutError
            If the element is outside the matrix.
        """
        rows, cols = self.shape
        if not (0 <= row < rows and 0 <= col < cols):
            raise LayoutError(
                f"element ({row}, {col}) is outside the {rows}x{cols} matrix; indices start at 0"
            )
        return row // self.tile_shape[0], col // self.tile_shape[1]

    def overlapping_tiles(
        self, rows: tuple[int, int], cols: tuple[int, int]
    ) -> list[tuple[int, int]]:
        """List the tiles that a region of the matrix touches, row by row.

        Parameters
        ----------
        rows, cols : Interval or (start, stop)
            Half-open global ranges, clipped to the matrix; an empty one touches nothing.

        Examples
        --------
        >>> p = Partition((10, 10), (4, 4), ProcessGrid(1, 1))
        >>> p.overlapping_tiles((3, 5), (8, 100))
        [(0, 2), (1, 2)]
        """
        height, width = self.tile_shape
        across = covering(cols[0], cols[1], width, self.shape[1])
        return [(i, j) for i in covering(rows[0], rows[1], height, self.shape[0]) for j in across]

    def row_cuts(self, start: int, stop: int) -> list[int]:
        """Cut the rows ``[start, stop)``, clipped to the matrix, at tile boundaries.

        Returns ``start``, every tile boundary strictly inside, and ``stop``; ``[]``
        when the range is empty.

        Examples
        --------
        >>> Partition((10, 4), (3, 4), ProcessGrid(2, 1)).row_cuts(1, 7)
        [1, 3, 6, 7]
        """
        return cuts(start, stop, self.tile_shape[0], self.shape[0])

    def col_cuts(self, start: int, stop: int) -> list[int]:
        """Cut the columns ``[start, stop)`` as :meth:`row_cuts` cuts rows."""
        return cuts(start, stop, self.tile_shape[1], self.shape[1])

    # -- ranks ---------------------------------------------------------------

    def replica_of(self, rank: int) -> int:
        """Return the replica that ``rank`` belongs to: contiguous ranks form one.

        Raises
        ------
        LayoutError
            If there is no such rank.
        """
        if not 0 <= rank < self.nprocs:
            raise LayoutError(
                f"rank {rank} takes no part in {self.text};"
                f" its ranks go from 0 to {self.nprocs - 1}"
            )
        return rank // self.grid.size

    def owner(self, idx: tuple[int, int], replica: int = 0) -> int:
        """Return the global rank that holds tile ``idx`` of one replica.

        Raises
        ------
        LayoutError
            If ``idx`` is outside the tile grid, or there is no such replica.

        Examples
        --------
        >>> p = Partition((8, 8), (4, 4), ProcessGrid(2, 2), replicas=2)
        >>> p.owner((1, 0)), p.owner((1, 0), replica=1)
        (2, 6)
        """
        i, j = self._checked(idx)
        if not 0 <= replica < self.replicas:
            raise LayoutError(
                f"replica {replica} of {self.text} does not exist;"
                f" its replicas go from 0 to {self.replicas - 1}"
            )
        grid = self.grid
        return replica * grid.size + grid.rank(i % grid.rows, j % grid.cols)

    def tiles_of(self, rank: int) -> list[tuple[int, int]]:
        """List the tiles that ``rank`` holds, row by row: none, one or many.

        Raises
        ------
        LayoutError
            If there is no such rank.
        """
        i, j = self._position(rank)
        tile_rows, tile_cols = self.grid_shape
        across = range(j, tile_cols, self.grid.cols)
        return [(ti, tj) for ti in range(i, tile_rows, self.grid.rows) for tj in across]

    # -- local storage -------------------------------------------------------

    def local_shape(self, rank: int) -> tuple[int, int]:
        """Return how many rows and columns of the matrix ``rank`` holds (NUMROC, twice).

        Raises
        ------
        LayoutError
            If there is no such rank.

        Examples
        --------
        >>> p = Partition((10, 4), (3, 4), ProcessGrid(2, 1))
        >>> p.local_shape(0), p.local_shape(1)
        ((6, 4), (4, 4))
        """
        i, j = self._position(rank)
        return (
            local_extent(self.shape[0], self.tile_shape[0], i, self.grid.rows),
            local_extent(self.shape[1], self.tile_shape[1], j, self.grid.cols),
        )

    def local_size(self, rank: int) -> int:
        """Return how many elements of the matrix ``rank`` holds.

        Raises
        ------
        LayoutError
            If there is no such rank.
        """
        rows, cols = self.local_shape(rank)
        return rows * cols

    def tile_offset(self, idx: tuple[int, int]) -> int:
        """Return where tile ``idx`` starts in its owner's storage, in elements.

        A rank stores its tiles one after another in the order of :meth:`tiles_of`,
        each contiguous and row-major with its own width as leading dimension, so
        that one get moves one contiguous tile. The same in every replica.

        Raises
        ------
        LayoutError
            If ``idx`` is outside the tile grid.

        Examples
        --------
        Tiles of 3x2 on one rank; the 10x4 matrix has two tiles in each tile row:

        >>> p = Partition((10, 4), (3, 2), ProcessGrid(1, 1))
        >>> [p.tile_offset(t) for t in [(0, 0), (0, 1), (1, 0), (3, 0), (3, 1)]]
        [0, 6, 12, 36, 38]
        """
        i, j = self._checked(idx)
        height, width = self.tile_shape
        grid = self.grid
        local_i, local_j = i // grid.rows, j // grid.cols
        if not local_i and not local_j:
            return 0
        local_cols = local_extent(self.shape[1], width, j % grid.cols, grid.cols)
        # only the last tile row is short, and it comes last: all before it are whole
        own_height = min(height, self.shape[0] - i * height)
        return local_i * height * local_cols + own_height * local_j * width

    # -- checks --------------------------------------------------------------

    def _checked(self, idx: tuple[int, int]) -> tuple[int, int]:
        i, j = idx
        tile_rows, tile_cols = self.grid_shape
        if not (0 <= i < tile_rows and 0 <= j < tile_cols):
            raise LayoutError(
                f"tile ({i}, {j}) is outside the {tile_rows}x{tile_cols} tile grid of {self.text};"
                f" overlapping_tiles and tiles_of list valid indices"
            )
        return i, j

    def _position(self, rank: int) -> tuple[int, int]:
        """Process row and column of a global rank within its replica."""
        return self.grid.coords(rank - self.replica_of(rank) * self.grid.size)


def explicit_text(partition: Partition) -> str:
    """Spell a partition out, so that its text needs no default and no operand role.

    Examples
    --------
    >>> explicit_text(Partition((8, 8), (4, 2), ProcessGrid(2, 2, "col"), replicas=3))
    'tiles:4x2@2x2:col/c3'
    """
    height, width = partition.tile_shape
    return f"tiles:{height}x{width}@{partition.grid}{replica_suffix(partition.replicas)}"


def replica_suffix(replicas: int) -> str:
    """Return how the text form writes a replication factor: ``/cN``, and nothing for 1.

    Examples
    --------
    >>> "row" + replica_suffix(2), "row" + replica_suffix(1)
    ('row/c2', 'row')
    """
    return f"/c{replicas}" if replicas > 1 else ""


def _pair(values: tuple[int, int], what: str, least: int) -> tuple[int, int]:
    try:
        rows, cols = map(index, values)  # NumPy integers become plain ones
    except (TypeError, ValueError):
        raise LayoutError(
            f"{what} must be two integers, got {values!r}; write (rows, columns)"
        ) from None
    if rows < least or cols < least:
        raise LayoutError(
            f"{what} {rows}x{cols} is too small; both extents must be at least {least}"
        )
    return rows, cols
