"""Shared by the programs of this folder: rows of ranks in communication tiles, the parts of a GEMM,
orders of ranks, and their options.

A *chunk* is one rank's part of the rows that move; it is divided into *tiles*, each of which is
sent and signalled separately. A *part* is the tiles of one GEMM: one, or several where tiles have
fewer rows than an efficient GEMM (a tile of the kernel waits for all tiles that it reads: TD §3.2,
FLUX §3.2).
"""

from collections.abc import Callable, Iterable, Sequence

from drbench.algorithms.registry import Layout, algorithm, check_layout
from drbench.errors import UnsupportedError
from drbench.options import Option
from drbench.partitions import divisors
from drbench.program.problem import Operand, Problem
from drbench.program.steps import Block, Kernel, Part, Step, Steps

#: Rows [start, stop) of a tile; also the key of its signals.
Tile = tuple[int, int]

#: Default number of tiles in a chunk, and the least rows of such a tile.
_TILES, LEAST = 4, 128

TILE = Option(
    "tile",
    int,
    least=1,
    unit="elements",
    help="rows of a communication tile.",
    default_text="1/4 of a rank's rows, at least 128; all if read in place",
    tried=tuple(2**power for power in range(7, 14)),
)
PART = Option(
    "part",
    int,
    least=1,
    unit="elements",
    help="least rows of one part of the GEMM; smaller tiles are awaited together.",
    default_text="128",
)
SWIZZLE = Option(
    "swizzle",
    ("ranks", "naive"),
    help="order of the parts: from the own rank on (ranks), or by rows (naive).",
    default_text="ranks",
    tried=("ranks", "naive"),
)
KERNEL = Option(
    "kernel",
    ("fused", "parts"),
    help="all parts in one kernel launch (fused), or a GEMM for each (parts).",
    default_text="fused",
    tried=("fused", "parts"),
)
UNITS = Option(
    "units",
    int,
    least=1,
    help="multiprocessors of the fused kernel; the others do reductions (performance models only).",
    default_text="all",
)
PER_NODE = Option(
    "per_node",
    int,
    least=1,
    help="ranks of a node; they are numbered node by node.",
    default_text="half of all ranks; all if odd",
    tried=lambda nprocs: divisors(nprocs)[1:-1],
)


def tiled(
    name: str,
    layout: Layout,
    *options: Option,
    checks: Iterable[Callable] = (),
    signals: bool = True,
    **more,
):
    """Register a program in tiles (:func:`drbench.algorithms.registry.algorithm`): the default
    of an option is its first word; each of ``checks(name, problem, options)`` may refuse options
    or decide more."""
    words = {option.name: option.type[0] for option in options if isinstance(option.type, tuple)}

    def resolve(problem: Problem, in_place: bool = True, **given) -> dict:
        decided = words | {option: value for option, value in given.items() if value is not None}
        check_layout(
            problem, " ".join((name, decided.get("dataflow", ""))).strip(), layout, **decided
        )
        if TILE in options:
            tile = decided.get("tile")
            decided["tile"] = tile_rows(problem.m, problem.nprocs, tile, in_place)
            decided.setdefault("part", LEAST)
        if "units" in decided and decided["kernel"] != "fused":
            raise UnsupportedError(
                f"{name} -o units is about the one kernel of all parts (our implementation), got "
                f"-o kernel={decided['kernel']}. Leave one of them out."
            )
        for check in checks:
            check(name, problem, decided)
        return decided

    return algorithm(name, options=options, resolve=resolve, layout=layout, signals=signals, **more)


def tile_rows(rows: int, nprocs: int, tile: int | None, in_place: bool = False) -> int:
    """The rows of a communication tile if ``tile`` is None: all rows of a rank if tiles are read
    ``in_place``, since then there is no transfer to hide and parts of a GEMM take longer than the
    whole.

    Examples
    --------
    >>> tile_rows(8192, 8, None), tile_rows(64, 8, None), tile_rows(64, 8, 4)
    (256, 8, 4)
    >>> tile_rows(8192, 8, None, in_place=True)
    1024
    """
    chunk = -(-rows // nprocs)
    return min(chunk, tile or (chunk if in_place else max(LEAST, -(-chunk // _TILES))))


class TiledRows:
    """The rows of a matrix that is divided by rows, one chunk a rank, in tiles.

    Parameters
    ----------
    chunks : sequence of (int, int)
        Rows [start, stop) of each rank.
    tile : int
        Rows of a tile; the last of a chunk may be lower.
    operand : Operand, optional
        The matrix, for :meth:`block`.

    Examples
    --------
    >>> rows = TiledRows([(0, 5), (5, 9)], 2)
    >>> rows.tiles[0], rows.owner((5, 7))
    ([(0, 2), (2, 4), (4, 5)], 1)
    >>> rows.parts(4)
    [[(0, 2), (2, 4)], [(4, 5), (5, 7), (7, 9)]]
    """

    def __init__(self, chunks: Sequence[Tile], tile: int, operand: Operand | None = None):
        self.operand = operand
        self.tiles = [
            [(start, min(stop, start + tile)) for start in range(first, stop, tile)]
            for first, stop in chunks
        ]
        self._owners = {tile: rank for rank, tiles in enumerate(self.tiles) for tile in tiles}

    @classmethod
    def of(cls, operand: Operand, tile: int) -> "TiledRows":
        """The rows of the ranks that own a matrix by rows."""
        own = (own_tile(operand, rank) for rank in range(operand.partition.nprocs))
        return cls([block.rows if block else (0, 0) for block in own], tile, operand)

    def block(self, tile: Tile) -> Block:
        """All columns of a tile, of the rows' matrix."""
        return self.operand.block(tile, (0, self.operand.partition.cols.extent))

    def owner(self, tile: Tile) -> int:
        """The rank that owns a tile."""
        return self._owners[tile]

    def place(self, tile: Tile) -> int:
        """The number of a tile among its rank's, from 1.

        Examples
        --------
        >>> TiledRows([(0, 5), (5, 9)], 2).place((7, 9))
        2
        """
        return 1 + self.tiles[self.owner(tile)].index(tile)

    def parts(self, least: int, ranks: Iterable[int] | None = None) -> list[list[Tile]]:
        """All tiles (or those of some ranks), in row order, grouped into parts of at least a number
        of rows; the last part also has the remaining tiles."""
        groups: list[list[Tile]] = []
        part: list[Tile] = []
        for tile in sorted(
            tile
            for rank in (range(len(self.tiles)) if ranks is None else ranks)
            for tile in self.tiles[rank]
        ):
            if part and (part[-1][1] != tile[0] or part[-1][1] - part[0][0] >= least):
                groups.append(part)
                part = []
            part.append(tile)
        if part:
            joins = groups and groups[-1][-1][1] == part[0][0]
            if joins and part[-1][1] - part[0][0] < least:
                groups[-1] += part
            else:
                groups.append(part)
        return groups

    def order_key(self, order: Sequence[int]) -> Callable[[Tile], tuple]:
        """A sort key of tiles by the order of their ranks.

        Examples
        --------
        >>> rows = TiledRows([(0, 5), (5, 9)], 2)
        >>> sorted([(2, 4), (5, 7), (7, 9)], key=rows.order_key([1, 0]))
        [(5, 7), (7, 9), (2, 4)]
        """
        place = {rank: x for x, rank in enumerate(order)}
        return lambda tile: (place[self.owner(tile)], tile)

    def of_ranks(self, order: Sequence[int]) -> list[Tile]:
        """The tiles of ranks in this order."""
        return [tile for rank in order for tile in self.tiles[rank]]


def span(part: list[Tile]) -> Tile:
    """All rows of a part."""
    return part[0][0], part[-1][1]


def ring(rank: int, nprocs: int, start: int = 0) -> list[int]:
    """All ranks in ring order, from ``rank + start`` on.

    Examples
    --------
    >>> ring(5, 8), ring(1, 3, 1)
    ([5, 6, 7, 0, 1, 2, 3, 4], [2, 0, 1])
    """
    return [(rank + i) % nprocs for i in range(start, start + nprocs)]


def cut(gemm: Step, part: list[Tile], tile: Tile) -> Steps:
    """A tile's rows of the result of a part."""
    if len(part) == 1:
        return gemm
    top = part[0][0]
    return (yield Part(gemm, 0, tile[0] - top, tile[1] - top))


def own_tile(operand: Operand, rank: int) -> Block | None:
    """The one tile of a rank; None if it owns nothing."""
    tiles = operand.own_tiles(rank)
    return tiles[0] if tiles else None


def kernel_of(kernel: str, m: int, n: int, k: int, units: int | None = None) -> Kernel | None:
    """The kernel of a GEMM's parts, if they share one, on a number of multiprocessors."""
    return Kernel(m, n, k, units) if kernel == "fused" else None


def owners(problem: Problem, name: str) -> list[bool]:
    """The ranks that own part of a matrix."""
    partition = problem.operand(name).partition
    return [bool(partition.tiles_of(rank)) for rank in range(problem.nprocs)]
