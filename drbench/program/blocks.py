"""What steps name: blocks and pieces of a distributed matrix, and groups of ranks. No MPI, no
arrays."""

from __future__ import annotations

__all__ = ["Block", "Group", "Piece", "joined_shape"]


class Block:
    """A sub-range of one tile of one replica: rows [row0, row1), columns [col0, col1), in global
    indices.

    Attributes
    ----------
    matrix : str
        ``"A"``, ``"B"`` or ``"C"``.
    owner : int
        Global rank that stores the tile.
    replica : int
        Replica the tile belongs to.
    tile : tuple of int
        Index (i, j) in the tile grid.
    row0, row1, col0, col1 : int
        Half-open bounds in the whole matrix.
    offset : int
        Element offset of the block's first element in the owner's storage.
    ld : int
        Leading dimension in elements: the width of the tile (storage is row-major).
    """

    __slots__ = (
        "matrix",
        "owner",
        "replica",
        "tile",
        "row0",
        "row1",
        "col0",
        "col1",
        "offset",
        "ld",
    )

    def __init__(self, matrix, owner, replica, tile, row0, row1, col0, col1, offset, ld):
        self.matrix = matrix
        self.owner = owner
        self.replica = replica
        self.tile = tile
        self.row0 = row0
        self.row1 = row1
        self.col0 = col0
        self.col1 = col1
        self.offset = offset
        self.ld = ld

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.row1 - self.row0, self.col1 - self.col0

    @property
    def span(self) -> int:
        """Elements of the owner's storage from the first to the last of the block, both
        included."""
        return (self.row1 - self.row0 - 1) * self.ld + self.col1 - self.col0

    @property
    def size(self) -> int:
        """Elements."""
        return (self.row1 - self.row0) * (self.col1 - self.col0)

    @property
    def key(self) -> tuple:
        """What makes two blocks the same memory."""
        return self.matrix, self.replica, self.row0, self.row1, self.col0, self.col1

    def __repr__(self) -> str:
        at = f"@{self.owner}" + (f"/replica {self.replica}" if self.replica else "")
        return f"{self.matrix}[{self.row0}:{self.row1}, {self.col0}:{self.col1}]{at}"


class Piece:
    """A selection of a tile: whole ranges of its rows and columns, packed together in ascending
    order.

    Attributes
    ----------
    block : Block
        The bounding block, inside one tile.
    rows, cols : tuple of (int, int)
        Half-open ranges in global indices, ascending and disjoint; none for a piece without
        elements.

    Examples
    --------
    >>> tile = Block("A", 1, 0, (0, 1), 0, 8, 10, 20, 0, 10)
    >>> Piece(tile, cols=((10, 12), (14, 16))).shape
    (8, 4)
    """

    __slots__ = ("block", "rows", "cols", "shape")

    def __init__(self, block: Block, rows: tuple | None = None, cols: tuple | None = None):
        self.block = block
        self.rows = ((block.row0, block.row1),) if rows is None else rows
        self.cols = ((block.col0, block.col1),) if cols is None else cols
        self.shape = (
            sum(stop - start for start, stop in self.rows),
            sum(stop - start for start, stop in self.cols),
        )

    @property
    def owner(self) -> int:
        return self.block.owner

    @property
    def size(self) -> int:
        """Elements."""
        return self.shape[0] * self.shape[1]

    @property
    def plain(self) -> bool:
        """True if it is one range of rows and one of columns: a view of the tile."""
        return len(self.rows) <= 1 and len(self.cols) <= 1

    @property
    def contiguous(self) -> bool:
        """True if it lies in the tile without gaps."""
        rows, cols = self.shape
        return not rows or not cols or (self.plain and (cols == self.block.ld or rows == 1))

    def blocks(self) -> list[Block]:
        """The piece as blocks, one for each range of rows and columns."""
        b = self.block
        return [
            Block(
                b.matrix,
                b.owner,
                b.replica,
                b.tile,
                r0,
                r1,
                c0,
                c1,
                b.offset + (r0 - b.row0) * b.ld + c0 - b.col0,
                b.ld,
            )
            for r0, r1 in self.rows
            for c0, c1 in self.cols
        ]

    def __repr__(self) -> str:
        b = self.block
        rows = (
            f"{b.row0}:{b.row1}"
            if len(self.rows) == 1
            else f"{len(self.rows)} of {b.row0}:{b.row1}"
        )
        cols = (
            f"{b.col0}:{b.col1}"
            if len(self.cols) == 1
            else f"{len(self.cols)} of {b.col0}:{b.col1}"
        )
        return f"{b.matrix}[{rows}, {cols}]@{b.owner}"


class Group:
    """A process row or column: the ranks that issue its steps together, in the same order.

    Attributes
    ----------
    name : str
        ``"row"`` or ``"column"``; a rank is in at most one group of a name.
    members : tuple of int
        Global ranks, by position.
    position : int
        Of the rank whose program this is.
    """

    __slots__ = ("name", "members", "position")

    def __init__(self, name: str, members: tuple[int, ...], position: int):
        self.name, self.members, self.position = name, members, position

    def __len__(self) -> int:
        return len(self.members)

    def __eq__(self, other) -> bool:
        """The same process row or column, whoever looks at it."""
        return isinstance(other, Group) and (self.name, self.members) == (other.name, other.members)

    def __hash__(self) -> int:
        return hash((self.name, self.members))

    def __repr__(self) -> str:
        return f"{self.name} {list(self.members)}"


def joined_shape(shapes: list[tuple[int, int]], axis: int) -> tuple[int, int]:
    """Shape of arrays joined along an axis."""
    along = sum(shape[axis] for shape in shapes)
    return (along, shapes[0][1]) if axis == 0 else (shapes[0][0], along)
