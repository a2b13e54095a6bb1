"""The problem: C = α·op(A)·op(B) + β·C with a partition for each matrix, bound to a number of
ranks."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from drbench.errors import UsageError
from partitions import Dealt, LayoutError, Partition, near_square, partition
from partitions.mixture import MOST_WEIGHT, Mixture, Routes, routes_of, shapes

from .steps import Block

#: The two axes of each matrix, rows first: C (m×n) = A (m×k) · B (k×n).
AXES = {"A": ("m", "k"), "B": ("k", "n"), "C": ("m", "n")}

#: Which of the operands are stored transposed: op(A) = Aᵀ with ``a``, op(B) = Bᵀ with ``b``.
TRANSPOSES = ("", "a", "b", "ab")

#: Bytes of an element of A and B. With "bfloat16:float32" products of bfloat16 operands are summed
#: up and kept in float32.
ITEMSIZES = {
    "float32": 4,
    "float64": 8,
    "bfloat16": 2,
    "bfloat16:float32": 2,
    "float16": 2,
    "float8": 1,
}
#: Element types that can be planned and simulated only.
PLANNED = ("bfloat16", "float16", "float8")
#: Bytes of a cache line, and rows of how many of them at least are kept apart.
_LINE_BYTES, _LEAST_LINES = 64, 16


class Operand:
    """One of the three matrices as the product takes it, op(A), op(B) or C: its name, its
    partition, and blocks of it.

    Parameters
    ----------
    name : str
        ``"A"``, ``"B"`` or ``"C"``.
    stored : Partition
        Of the matrix as it is stored, bound to its shape and the number of ranks.
    transposed : bool
        The product takes the transposed matrix. Programs see that one; blocks of it lie in the
        owners' storage with columns contiguous, so nothing is copied to transpose it.
    line : int
        Elements of a cache line, to keep rows apart by an odd number of them: a rank's tiles then
        lie side by side in one array (:func:`pitch`). 0: each tile by itself, without gaps.

    Attributes
    ----------
    partition : Partition
        Of the matrix as the product takes it: ``stored``, or ``stored.transposed()``.
    """

    __slots__ = (
        "name",
        "axes",
        "partition",
        "stored",
        "transposed",
        "line",
        "_equal",
        "_replicas",
        "_rows",
        "_cols",
    )

    def __init__(self, name: str, stored: Partition, transposed: bool = False, line: int = 0):
        self.name, self.line = name, line
        self.axes = AXES[name]
        self.stored, self.transposed = stored, transposed
        self.partition = p = stored.transposed() if transposed else stored
        equal = isinstance(p.rows, Dealt) and isinstance(p.cols, Dealt)
        self._equal = p.tile_shape if equal else None  # of all tiles but the last
        self._replicas = stored.places.replicas
        # of those asked for: rows and columns of stored tiles
        self._rows: dict = {}
        self._cols: dict = {}

    def cuts(self, axis: str, start: int, stop: int) -> list[int]:
        """``start``, the tile boundaries strictly between, ``stop``, along an axis of this
        matrix."""
        p = self.partition
        return p.row_cuts(start, stop) if axis == self.axes[0] else p.col_cuts(start, stop)

    def block(self, rows: tuple[int, int], cols: tuple[int, int], replica: int = 0) -> Block:
        """The block of rows × columns (half-open pairs), which must lie inside one tile.

        Examples
        --------
        >>> c = Problem(6, 8, 4, 4, c="block").c
        >>> c.block((3, 5), (4, 8))
        C[3:5, 4:8]@3

        Of an A stored 4x6, all by rows of it:

        >>> a = Problem(6, 8, 4, 2, a="row", transpose="a").a
        >>> block = a.block((3, 5), (2, 4))
        >>> block, block.offset, block.ld
        (Aᵀ[3:5, 2:4]@1, 3, 6)
        """
        (row, row1), (col, col1) = rows, cols
        if self._equal:
            tall, wide = self._equal
            i, j = row // tall, col // wide
            y, x = row - i * tall, col - j * wide  # within the tile
        else:
            p = self.partition
            i, j = p.rows.at(row), p.cols.at(col)
            y, x = row - p.rows[i].start, col - p.cols[j].start
        if self.transposed:
            height, down, above = self._rows.get(j) or self._row(j)
            width, right, before, all_cols = self._cols.get(i) or self._col(i)
            y, x = x, y
        else:
            height, down, above = self._rows.get(i) or self._row(i)
            width, right, before, all_cols = self._cols.get(j) or self._col(j)
        # whole rows of tiles above it, then those to its left, which are as high as it; with gaps
        # a row of the local array is as high as 1
        at = above * all_cols + height * before + y * width + x
        owner = down + right + self._replicas[replica]
        return Block(
            self.name, owner, replica, (i, j), row, row1, col, col1, at, width, self.transposed
        )

    def _row(self, i: int) -> tuple:
        """Of a row of stored tiles: its height, what it adds to the owner, and the owner's rows
        above it."""
        top, bottom, at, above = self.stored.rows[i]
        height = 1 if self.line else bottom - top
        found = self._rows[i] = height, self.stored.places.rows[at], above
        return found

    def _col(self, j: int) -> tuple:
        """Of a column of stored tiles: its width, what it adds to the owner, the owner's columns
        before it, and all of them."""
        p = self.stored
        left, right, at, before = p.cols[j]
        whole = pitch(p.cols.length(at), self.line)
        width = whole if self.line else right - left
        found = self._cols[j] = width, p.places.cols[at], before, whole
        return found

    def local_size(self, rank: int) -> int:
        """Elements of a rank's storage, with its gaps.

        Examples
        --------
        >>> problem = Problem(8, 512, 8, 2, b="row")
        >>> problem.b.local_size(0), problem.with_gaps().b.local_size(0)
        (2048, 2112)
        """
        rows, cols = self.stored.local_shape(rank)
        return rows * pitch(cols, self.line)

    def tile_block(self, idx: tuple[int, int], replica: int = 0) -> Block:
        """A whole tile as a block."""
        return self.block(*self.partition.tile_bounds(idx), replica)

    def own_tiles(self, rank: int) -> list[Block]:
        """The tiles a rank owns, as blocks of its own replica."""
        replica = self.partition.replica_of(rank)
        return [self.tile_block(idx, replica) for idx in self.partition.tiles_of(rank)]


def pitch(columns: int, line: int) -> int:
    """How far apart rows of a local array lie, in elements: an odd number of cache lines, unless
    rows are short.

    A BLAS packs its operands walking down their columns. Rows a power of two apart fall into a few
    sets of the cache then, and what it fetched beside an element is gone before its turn comes.

    Examples
    --------
    >>> pitch(4096, 16), pitch(4100, 16), pitch(100, 16), pitch(4096, 0)
    (4112, 4112, 100, 4096)
    """
    if not line or columns < _LEAST_LINES * line:
        return columns
    return (-(-columns // line) | 1) * line


@dataclass(frozen=True)
class Problem:
    """C = α·op(A)·op(B) + β·C, how the three matrices are partitioned, and over how many ranks.

    Parameters
    ----------
    m, n, k : int
        C is m×n, op(A) is m×k, op(B) is k×n; all at least 1.
    nprocs : int
        Ranks, at least 1.
    a, b, c : str
        Text forms of the partitions (:mod:`partitions.text`) of the matrices as they are stored;
        bound on construction, when they become :class:`Operand`.
    dtype : str
        ``"float32"`` or ``"float64"``; ``"bfloat16:float32"`` (A and B, C) on devices; those of
        :data:`PLANNED` can be planned and simulated only.
    transpose : str
        One of :data:`TRANSPOSES`: with ``"a"`` A is stored k×m and op(A) is its transpose, with
        ``"b"`` B is stored n×k.
    updates : bool
        β is not 0: what C holds counts. α and β themselves are given when the product is run.
    gaps : str
        Names of the matrices of which rows of a rank's tiles lie an odd number of cache lines apart
        in its storage, which suits products, not messages.
    mixture : Mixture, optional
        Each row is multiplied by the matrices of the experts it is routed to. Then m counts tokens;
        :mod:`partitions.mixture` has the shapes of A, B and C.
    nodes : tuple of int
        For each rank the node that it is on, where ranks are on several; empty where they are not,
        or nobody knows.

    Raises
    ------
    UsageError
        If a size is below 1, ``transpose`` is another word, or a partition does not fit the shape
        and the number of ranks.

    Examples
    --------
    >>> problem = Problem(1024, 3072, 768, 4, a="row", b="column", c="block")
    >>> problem.c.partition.tile_shape, problem.flops
    ((512, 1536), 4831838208)
    """

    m: int
    n: int
    k: int
    nprocs: int
    a: Operand = field(default="block")  # type: ignore[assignment]  # a text until it is bound
    b: Operand = field(default="block")  # type: ignore[assignment]  # a text until it is bound
    c: Operand = field(default="block")  # type: ignore[assignment]  # a text until it is bound
    dtype: str = "float32"
    transpose: str = ""
    updates: bool = False
    mixture: Mixture | None = None
    gaps: str = ""
    nodes: tuple[int, ...] = ()

    def __post_init__(self):
        for name in ("m", "n", "k", "nprocs"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 1, got {getattr(self, name)}.")
        if self.dtype not in ITEMSIZES:
            raise UsageError(f"dtype must be one of {', '.join(ITEMSIZES)}, got {self.dtype!r}.")
        if self.transpose not in TRANSPOSES:
            raise UsageError(
                f"transpose must be a, b, ab or nothing, got {self.transpose!r}: the operands that "
                "are stored transposed."
            )
        for name, shape in shapes(self.m, self.n, self.k, self.mixture).items():
            text, transposed = getattr(self, name.lower()), name.lower() in self.transpose
            text = text.stored if isinstance(text, Operand) else text
            shape = (shape[1], shape[0]) if transposed else shape
            try:
                bound = (
                    text
                    if isinstance(text, Partition)
                    else partition(text, shape, self.nprocs, role=name)
                )
            except LayoutError as error:
                raise UsageError(f"--{name.lower()}: {error}") from None
            line = _LINE_BYTES // ITEMSIZES[self.type_of(name)] if name in self.gaps else 0
            object.__setattr__(self, name.lower(), Operand(name, bound, transposed, line))

    def with_gaps(self, names: str = "ABC") -> "Problem":
        """The same problem, with ``gaps`` in these matrices."""
        return replace(self, gaps=names)

    def on_nodes(self, nodes: Sequence[int]) -> "Problem":
        """The same problem on ranks of these nodes; if all are on one, as if nobody knew.

        Examples
        --------
        >>> problem = Problem(8, 8, 8, 4)
        >>> [sorted(each.near(2)) for each in (problem, problem.on_nodes([0, 1, 0, 1]))]
        [[2], [0, 2]]
        """
        return replace(self, nodes=tuple(nodes) if len({*nodes}) > 1 else ())

    def near(self, rank: int) -> set[int]:
        """The ranks of the node of a rank, as far as ``nodes`` tells: itself at least."""
        if not self.nodes:
            return {rank}
        return {other for other, node in enumerate(self.nodes) if node == self.nodes[rank]}

    def operand(self, name: str) -> Operand:
        """A, B or C by name."""
        return getattr(self, name.lower())

    @property
    def operands(self) -> tuple[Operand, Operand, Operand]:
        return self.a, self.b, self.c

    @property
    def texts(self) -> dict[str, str]:
        """The text forms of the partitions of A, B and C as they are stored, by name.

        Examples
        --------
        >>> Problem(8, 8, 8, 4, a="row", b="S(0)", transpose="ab").texts
        {'a': 'row', 'b': 'S(0)', 'c': 'block'}
        """
        return {operand.name.lower(): operand.stored.text for operand in self.operands}

    def keeps(self, rank: int) -> bool:
        """Whether what a rank's tiles of C hold counts: β is not 0, and they are of the copy that
        the sum ends up in (of each term, if C is Partial), so that β·C is added once."""
        replica = self.c.partition.replica_of(rank)
        return self.updates and self.c.partition.copies(replica)[0] == replica

    @property
    def routes(self) -> Routes:
        """Of a product of experts: which rows go to which expert."""
        assert self.mixture is not None, "a product of one B has no routes"
        return routes_of(self.m, self.mixture)

    @property
    def rows(self) -> int:
        """Rows that are multiplied: m, or the pairs of a product of experts."""
        return self.m * (self.mixture.topk if self.mixture else 1)

    @property
    def summands(self) -> int:
        """How many products of two elements an element of C is the sum of, weighted ones counted as
        often as they weigh, at most.

        Examples
        --------
        >>> Problem(8, 8, 8, 1).summands, Problem(8, 8, 8, 1, mixture=Mixture(4, 2)).summands
        (8, 8)
        >>> Problem(8, 8, 8, 1, mixture=Mixture(4, 2, combines=True)).summands
        64
        """
        if self.mixture is None or not self.mixture.combines:
            return self.k
        return self.k * self.mixture.topk * MOST_WEIGHT

    @property
    def flops(self) -> int:
        """2·m·n·k, of each pair in a product of experts."""
        return 2 * self.rows * self.n * self.k

    @property
    def itemsize(self) -> int:
        """Bytes of one element of A and B."""
        return ITEMSIZES[self.dtype]

    def type_of(self, matrix: str) -> str:
        """Name of the type of a matrix's elements.

        Examples
        --------
        >>> Problem(8, 8, 8, 1, dtype="bfloat16:float32").type_of("C")
        'float32'
        """
        operands, _, result = self.dtype.partition(":")
        return result if result and matrix == "C" else operands

    @property
    def itemsizes(self) -> dict[str, int]:
        """Bytes of one element of each matrix."""
        return {name: ITEMSIZES[self.type_of(name)] for name in AXES}

    def tile_bytes(self, rank: int) -> dict[str, int]:
        """Bytes of a rank's tiles of each matrix."""
        sizes = self.itemsizes
        return {op.name: op.local_size(rank) * sizes[op.name] for op in self.operands}

    def extent(self, axis: str) -> int:
        """Extent of axis ``"m"``, ``"n"`` or ``"k"``."""
        return getattr(self, axis)

    def local_shapes(self) -> list[tuple[tuple[int, ...], int, int]]:
        """(rows, n, k) of the local products of the roof: one axis, or two as a near-square grid,
        divided over the ranks; k only where C is not the largest matrix, so that a rank never has
        to hold all of the largest for that. ``rows`` are those of each product: one, or one an
        expert that has any.

        Examples
        --------
        >>> Problem(1024, 2048, 8192, 2).local_shapes()
        [((512,), 2048, 8192), ((1024,), 1024, 8192), ((1024,), 2048, 4096)]
        >>> len(Problem(1024, 2048, 8192, 4).local_shapes())
        6
        >>> Problem(4, 64, 64, 2, mixture=Mixture(3, 2)).local_shapes()[1]
        ((1, 4, 3), 32, 64)
        """
        every = [count for count in self.routes.counts if count] if self.mixture else [self.m]
        n, k = self.n, self.k
        rows, cols = near_square(self.nprocs)
        parts = [(self.nprocs, 1, 1), (1, self.nprocs, 1), (rows, cols, 1)]
        a, b, c = map(_elements, ((every, k), ([k] * len(every), n), (every, n)))
        if c <= max(a, b):
            parts += [(1, 1, self.nprocs), (rows, 1, cols), (1, rows, cols)]
        return list(
            dict.fromkeys(
                (tuple(-(-m // p) for m in every), -(-n // q), -(-k // r)) for p, q, r in parts
            )
        )

    def roof_sizes(self) -> tuple[int, int, int]:
        """Elements of the roof's three local operands, enough for every local shape."""
        sizes = [
            (sum(rows) * k, len(rows) * k * n, sum(rows) * n) for rows, n, k in self.local_shapes()
        ]
        a, b, c = map(max, zip(*sizes))
        return a, b, c


def _elements(matrix: tuple[list[int], int]) -> int:
    """Elements of matrices one below the other: of their rows, and columns."""
    rows, columns = matrix
    return sum(rows) * columns
