"""The problem: C = α·op(A)·op(B) + β·C with a partition for each matrix, bound to a number of
ranks."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from drbench.errors import UsageError
from drbench.partitions import LayoutError, Partition, near_square, partition
from drbench.partitions.intervals import Pair, Range

from .steps import Block

#: The two axes of each matrix, rows first: C (m×n) = A (m×k) · B (k×n).
AXES = {"A": ("m", "k"), "B": ("k", "n"), "C": ("m", "n")}

#: Which of the operands are stored transposed: op(A) = Aᵀ with ``a``, op(B) = Bᵀ with ``b``.
TRANSPOSES = ("", "a", "b", "ab")

#: Bytes of an element of A and B. With "bfloat16:float32" the GEMM of bfloat16 operands is
#: accumulated and stored in float32.
ITEMSIZES = {
    "float32": 4,
    "float64": 8,
    "complex64": 8,
    "complex128": 16,
    "bfloat16": 2,
    "bfloat16:float32": 2,
    "float16": 2,
    "float8": 1,
}
#: Complex types, and the types of their parts.
REAL_OF = {"complex64": "float32", "complex128": "float64"}
#: Element types that can be planned and simulated only.
PLANNED = ("bfloat16", "float16", "float8")
#: Element types that run.
RUN_TYPES = tuple(name for name in ITEMSIZES if name not in PLANNED)
#: Bytes of a cache line, and cache lines from which on rows are padded.
_LINE_BYTES, _LEAST_LINES = 64, 16


class Operand:
    """One of the three matrices of the multiplication, op(A), op(B) or C: its name, its partition,
    and its blocks.

    Parameters
    ----------
    name : str
        ``"A"``, ``"B"`` or ``"C"``.
    stored : Partition
        Of the matrix as it is stored, bound to its shape and the number of ranks.
    transposed : bool
        The operand is the transpose of the stored matrix. Programs use the operand; columns of its
        blocks, not rows, are contiguous in the owners' local arrays: transposing copies nothing.
    padded : int
        Bytes of an element if rows of the local arrays are padded (:func:`row_bytes`); else 0.

    Attributes
    ----------
    partition : Partition
        Of the operand: ``stored``, or ``stored.transposed()``.
    """

    __slots__ = ("name", "axes", "partition", "stored", "transposed", "padded", "_tiles")

    def __init__(self, name: str, stored: Partition, transposed: bool = False, padded: int = 0):
        self.name, self.padded = name, padded
        self.axes = AXES[name]
        self.stored, self.transposed = stored, transposed
        self.partition = stored.transposed() if transposed else stored
        self._tiles: dict = {}  # results of _tile

    def _key(self) -> tuple:
        return self.name, self.transposed, self.padded, self.stored.text, self.stored.shape

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Operand):
            return NotImplemented
        return self._key() == other._key() and self.stored == other.stored

    def __hash__(self) -> int:
        return hash(self._key())

    def cuts(self, axis: str, start: int, stop: int) -> list[int]:
        """``start``, the tile boundaries strictly between, ``stop``, along an axis of this
        matrix.

        Parameters
        ----------
        axis : str
            ``"m"``, ``"n"`` or ``"k"``, one that the matrix has.
        start, stop : int
            Elements of the axis.

        Examples
        --------
        >>> Problem(6, 8, 4, 4, c="tiles:4x3").c.cuts("n", 1, 8)
        [1, 3, 6, 8]
        """
        p = self.partition
        return (p.rows if axis == self.axes[0] else p.cols).cuts(start, stop)

    def block(self, rows: Range, cols: Range, replica: int = 0) -> Block:
        """The block of rows × columns (half-open pairs), which must be inside one tile, or in
        neighbouring tiles of one rank.

        Parameters
        ----------
        rows, cols : (int, int)
            In elements of the whole matrix.
        replica : int
            The copy of the matrix from which a rank reads, or into which it writes.

        Raises
        ------
        UsageError
            If it has elements of two ranks: cut it there (:meth:`cuts`).

        Examples
        --------
        >>> c = Problem(6, 8, 4, 4, c="block").c
        >>> c.block((3, 5), (4, 8))
        C[3:5, 4:8]@3

        Of an A stored 4x6, all by rows of it:

        >>> a = Problem(6, 8, 4, 2, a="row", transpose="a").a
        >>> [(block, block.full) for block in (a.block((3, 5), (2, 4)), a.block((0, 6), (2, 3)))]
        [(Aᵀ[3:5, 2:4]@1, False), (Aᵀ[0:6, 2:3]@1, True)]
        """
        p = self.partition
        tile = p.rows.at(rows[0]), p.cols.at(cols[0])
        owner, length, row_end, col_end = self._tiles.get(tile) or self._tile(tile)
        if rows[1] > row_end or cols[1] > col_end:
            self._check_owner(rows, cols)
        low, high = rows if self.transposed else cols
        owner += p.places.replicas[replica]
        ranks = p.places.ranks
        return Block(
            self.name,
            ranks[owner] if ranks else owner,
            replica,
            tile,
            *rows,
            *cols,
            self.transposed,
            high - low == length,
        )

    def _check_owner(self, rows: Range, cols: Range) -> None:
        """Raise a UsageError if a range of rows and of columns belongs to several ranks."""
        for axis, name, (start, stop) in zip(
            (self.partition.rows, self.partition.cols), self.axes, (rows, cols)
        ):
            if len({axis[x].coordinate for x in axis.covering(start, stop)}) > 1:
                raise UsageError(
                    f"{self.name}[{rows[0]}:{rows[1]}, {cols[0]}:{cols[1]}] of "
                    f"{self.partition.text} belongs to several ranks. Cut it where its tiles end: "
                    f"problem.{self.name.lower()}.cuts({name!r}, {start}, {stop})."
                )

    def _tile(self, tile: Pair) -> tuple[int, int, int, int]:
        """Of a tile: the rank offset of its owner; the length of a stored row of its local array, 0
        if rows are padded, so that no block fills one; and the ends of the tile's rows and
        columns."""
        p = self.partition
        i, j = (axis[x].coordinate for axis, x in zip((p.rows, p.cols), tile))
        length = p.rows.length(i) if self.transposed else p.cols.length(j)
        if row_bytes(length * self.padded) != length * self.padded:
            length = 0
        ends = (stop for _, stop in p.tile_bounds(tile))
        entry = self._tiles[tile] = p.places.rows[i] + p.places.cols[j], length, *ends
        return entry

    def tile_block(self, idx: Pair, replica: int = 0) -> Block:
        """A whole tile as a block.

        Examples
        --------
        >>> Problem(6, 8, 4, 4, c="tiles:4x3").c.tile_block((1, 2))
        C[4:6, 6:8]@2
        """
        return self.block(*self.partition.tile_bounds(idx), replica)

    def own_tiles(self, rank: int) -> list[Block]:
        """The tiles that a rank owns, as blocks of its own replica.

        Examples
        --------
        >>> Problem(6, 8, 4, 2, c="tiles:3x4@1x2").c.own_tiles(1)
        [C[0:3, 4:8]@1, C[3:6, 4:8]@1]
        """
        replica = self.partition.replica_of(rank)
        return [self.tile_block(idx, replica) for idx in self.partition.tiles_of(rank)]


def product_flops(dtype: str) -> int:
    """FLOPs of one multiply-add: of complex numbers four products and four sums of real ones.

    Examples
    --------
    >>> product_flops("float64"), product_flops("complex64")
    (2, 8)
    """
    return 8 if dtype in REAL_OF else 2


@lru_cache(maxsize=64)  # cases of a sweep share layouts
def bound_operand(
    name: str, text: str, shape: Pair, nprocs: int, transposed: bool, padded: int
) -> Operand:
    """The operand of that name whose stored matrix has a shape, and a partition in its text
    form."""
    return Operand(name, partition(text, shape, nprocs, role=name), transposed, padded)


def row_bytes(nbytes: int, padded: bool = True) -> int:
    """Bytes from one row of a local array to the next: those of a row, padded to an odd number of
    cache lines unless rows are short.

    A BLAS reads its operands by columns when it packs them. Rows whose distance is a power of two
    share a few sets of the cache, so that a cache line is evicted before its next element is read.

    Examples
    --------
    >>> row_bytes(16384), row_bytes(16400), row_bytes(400), row_bytes(16384, padded=False)
    (16448, 16448, 400, 16384)
    """
    if not padded or nbytes < _LEAST_LINES * _LINE_BYTES:
        return nbytes
    return (-(-nbytes // _LINE_BYTES) | 1) * _LINE_BYTES


@dataclass(frozen=True)
class Problem:
    """C = α·op(A)·op(B) + β·C, how the three matrices are partitioned, and over how many ranks.

    Parameters
    ----------
    m, n, k : int
        C is m×n, op(A) is m×k, op(B) is k×n; with k = 0 C becomes β·C.
    nprocs : int
        Ranks, at least 1.
    a, b, c : str
        Text forms of the partitions (:mod:`drbench.partitions.text`) of the matrices as they are
        stored; bound on construction, when they become :class:`Operand`.
    dtype : str
        ``"float32"``, ``"float64"``, ``"complex64"`` or ``"complex128"``; ``"bfloat16:float32"``
        (A and B, C) on devices; those of :data:`PLANNED` can be planned and simulated only.
    transpose : str
        One of :data:`TRANSPOSES`: with ``"a"`` A is stored k×m and op(A) is its transpose, with
        ``"b"`` B is stored n×k.
    updates : bool
        β is not 0: the elements of C before the run count. α and β themselves are set at the run.
    padded : bool
        Rows of the local arrays are padded (:func:`row_bytes`), as whoever allocates them decides.
    nodes : tuple of int
        The node of each rank, if ranks are on several nodes; empty if they are not, or that is not
        known.
    conjugated : str
        Which of the operands are the conjugates of what is stored: ``a``, ``b``, both or none.

    Raises
    ------
    UsageError
        If a size is below 0, ``transpose`` is another word, or a partition does not fit the shape
        and the number of ranks.

    Notes
    -----
    Problems are equal if their fields and the texts and places of their partitions are.

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
    padded: bool = False
    nodes: tuple[int, ...] = ()
    conjugated: str = ""

    def __post_init__(self):
        for name, least in (("m", 0), ("n", 0), ("k", 0), ("nprocs", 1)):
            if getattr(self, name) < least:
                raise UsageError(f"{name} must be at least {least}, got {getattr(self, name)}.")
        if self.dtype not in ITEMSIZES:
            raise UsageError(f"dtype must be one of {', '.join(ITEMSIZES)}, got {self.dtype!r}.")
        if self.transpose not in TRANSPOSES:
            raise UsageError(
                f"transpose must be a, b, ab or nothing, got {self.transpose!r}: the operands that "
                "are stored transposed."
            )
        for name, shape in self.shapes().items():
            text, transposed = getattr(self, name.lower()), name.lower() in self.transpose
            text = text.stored if isinstance(text, Operand) else text
            shape = (shape[1], shape[0]) if transposed else shape
            item = ITEMSIZES[self.type_of(name)] if self.padded else 0
            try:
                bound = (
                    Operand(name, text, transposed, item)
                    if isinstance(text, Partition)
                    else bound_operand(name, text, shape, self.nprocs, transposed, item)
                )
            except LayoutError as error:
                raise UsageError(f"--{name.lower()}: {error}") from None
            object.__setattr__(self, name.lower(), bound)

    def on_nodes(self, nodes: Sequence[int]) -> "Problem":
        """The same problem on ranks of these nodes; without nodes if all ranks are on one.

        Examples
        --------
        >>> problem = Problem(8, 8, 8, 4)
        >>> [sorted(x.ranks_of_node(2)) for x in (problem, problem.on_nodes([0, 1, 0, 1]))]
        [[2], [0, 2]]
        """
        return replace(self, nodes=tuple(nodes) if len({*nodes}) > 1 else ())

    def ranks_of_node(self, rank: int) -> set[int]:
        """The ranks of the node of a rank, by ``nodes``: at least the rank itself."""
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

    def uses_old_c(self, rank: int) -> bool:
        """Whether the elements of a rank's tiles of C before the run count: β is not 0, and the
        tiles are of the copy that gets the sum (of each term, if C is Partial), so that β·C is
        added once."""
        replica = self.c.partition.replica_of(rank)
        return self.updates and self.c.partition.copies(replica)[0] == replica

    #: Whether C = A·B; else it is made of several :meth:`gemms`, and ``baseline`` has the name
    #: and options of the algorithm without any overlap.
    plain = True

    def shapes(self) -> dict[str, Pair]:
        """Rows and columns of op(A), op(B) and C."""
        return {"A": (self.m, self.k), "B": (self.k, self.n), "C": (self.m, self.n)}

    def gemms(self) -> list[tuple[Range, Range, int]]:
        """The GEMMs whose sum is C: rows [start, stop) of C, those of A, and the number of the
        block of k rows of B."""
        return [((0, self.m), (0, self.m), 0)]

    @property
    def rows(self) -> int:
        """Rows that are multiplied."""
        return sum(stop - start for (start, stop), *_ in self.gemms())

    @property
    def summands(self) -> int:
        """The number of multiply-adds for each element of C."""
        return self.k * (self.rows // self.c.partition.shape[0])

    @property
    def flops(self) -> int:
        """2·n·k for each row that is multiplied, 8·n·k of complex numbers."""
        return product_flops(self.dtype) * self.rows * self.n * self.k

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
        """Bytes of a rank's local array of each matrix, with the padding of its rows.

        Examples
        --------
        >>> problem = Problem(8, 512, 8, 2, b="row")
        >>> problem.tile_bytes(0)["B"], replace(problem, padded=True).tile_bytes(0)["B"]
        (8192, 8448)
        """
        sizes = {}
        for name, item in self.itemsizes.items():
            rows, cols = self.operand(name).stored.local_shape(rank)
            sizes[name] = rows * row_bytes(cols * item, self.padded)
        return sizes

    def extent(self, axis: str) -> int:
        """Extent of axis ``"m"``, ``"n"`` or ``"k"``."""
        return getattr(self, axis)

    def local_shapes(self) -> list[tuple[tuple[int, ...], int, int]]:
        """(rows, n, k) of the local GEMMs for GEMM-only speed: one axis, or two as a near-square
        grid, divided over the ranks; k only if C is not the largest matrix, so that no rank has to
        store all of the largest. ``rows`` are those that each block of B multiplies.

        Examples
        --------
        >>> Problem(1024, 2048, 8192, 2).local_shapes()
        [((512,), 2048, 8192), ((1024,), 1024, 8192), ((1024,), 2048, 4096)]
        >>> len(Problem(1024, 2048, 8192, 4).local_shapes())
        6
        """
        counts: Counter = Counter()
        for (start, stop), _, block in self.gemms():
            counts[block] += stop - start
        every = list(counts.values())
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


def _elements(matrix: tuple[list[int], int]) -> int:
    """Elements of stacked matrices, from their rows, and columns."""
    rows, columns = matrix
    return sum(rows) * columns
