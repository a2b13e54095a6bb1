"""Shared by the 2-D algorithms: the process mesh, its rows and columns, and the layouts of the
three matrices on it.

Chip (i, j) of a Pr × Pc mesh is rank i·Pc + j. In the dataflow OS all three matrices are divided
into blocks on the mesh. LS computes the paper's C = A·Bᵀ and RS its C = Aᵀ·B (MeshSlice, §2.3.1);
here the matrix stored transposed there is an ordinary one, whose blocks are on a Pc × Pr grid
column by column, so that chip (i, j) holds block (j, i) of it.

========  ==========  =================  =================  =================
dataflow  stationary  A                  B                  C
========  ==========  =================  =================  =================
OS        C           block:PrxPc        block:PrxPc        block:PrxPc
LS        A           block:PrxPc        block:PcxPr:col    block:PrxPc
RS        B           block:PcxPr:col    block:PrxPc        block:PrxPc
========  ==========  =================  =================  =================
"""

from collections.abc import Callable
from copy import copy

from drbench.algorithms.universal.distribution import largest_matrix
from drbench.errors import UsageError
from drbench.options import Option
from drbench.partitions import (
    divisors,
    extents,
    intersect,
    near_square,
    part,
    replica_suffix,
)
from drbench.partitions.intervals import Range
from drbench.program.group_steps import Fragment, Reduce, ReduceScatter
from drbench.program.problem import Operand, Problem
from drbench.program.steps import Block, Gemm, Group, Join, Part, Scratch, Step, Steps

from .registry import Texts, check_layout

DATAFLOWS = ("OS", "LS", "RS")
#: Options of every algorithm on a mesh.
DATAFLOW = Option(
    "dataflow",
    ("auto", *DATAFLOWS),
    help="stationary matrix: C (OS), A (LS) or B (RS); auto: the largest.",
    default_text="auto",
    tried=DATAFLOWS,
)
MESH = Option(
    "mesh",
    metavar="ROWSxCOLS",
    help="process mesh.",
    default_text="near-square",
    group="Algorithm",
    tried=lambda nprocs: [f"{rows}x{nprocs // rows}" for rows in divisors(nprocs)],
)
#: Of the algorithms whose loops have as many iterations as the mesh has rows or columns.
UNROLL = Option(
    "unroll",
    int,
    least=1,
    help="ring steps, or panels, merged into one GEMM.",
    default_text="1",
    tried=(1, 2, 4),
)
_STATIONARY = {"C": "OS", "A": "LS", "B": "RS"}


class Tiles:
    """One matrix on the mesh: one tile a chip, the last of a row or column short or empty.

    Parameters
    ----------
    operand : Operand
        With one tile a process.
    replica : int

    Attributes
    ----------
    row_ranges, col_ranges : list of (int, int)
        Ranges of the rows and columns of tiles; narrower if only a part of the matrix is used.
    """

    def __init__(self, operand: Operand, replica: int = 0):
        self.operand, self.replica, p = operand, replica, operand.partition
        self.row_ranges, self.col_ranges = (
            [part(axis.extent, x, axis.parts) for x in range(axis.parts)]
            for axis in (p.rows, p.cols)
        )

    def rows(self, x: int) -> Range:
        """Rows [start, stop) of the tiles in row ``x`` of the grid."""
        return self.row_ranges[x]

    def cols(self, y: int) -> Range:
        """Columns [start, stop) of the tiles in column ``y`` of the grid."""
        return self.col_ranges[y]

    def tile(self, x: int, y: int) -> Block:
        """The tile (x, y); without elements where the matrix has ended."""
        return self.block(x, y, self.row_ranges[x], self.col_ranges[y])

    def block(self, x: int, y: int, rows: Range, cols: Range) -> Block:
        """The block rows × columns, which must be in tile (x, y)."""
        if rows[0] < rows[1] and cols[0] < cols[1]:
            return self.operand.block(rows, cols, self.replica)
        owner = self.operand.partition.places.rank(x, y, self.replica)
        bounds = *rows, *cols
        return Block(
            self.operand.name, owner, self.replica, (x, y), *bounds, self.operand.transposed
        )


class Transposed:
    """Tiles of the transposed matrix, with the same owners: rows and columns exchanged."""

    def __init__(self, tiles: Tiles):
        self.tiles, self.rows, self.cols = tiles, tiles.cols, tiles.rows

    def tile(self, x: int, y: int) -> Block:
        return self.tiles.tile(y, x)

    def block(self, x: int, y: int, rows: Range, cols: Range) -> Block:
        return self.tiles.block(y, x, cols, rows)


class Mesh:
    """The mesh as one chip (i, j) sees it: that of its replica, if the matrices are replicated.

    Attributes
    ----------
    i, j : int
        The chip.
    replica : int
    nrows, ncols : int
        Pr and Pc.
    row, column : Group
        Of the chip.
    a, b, c : Tiles
    """

    def __init__(self, problem: Problem, rank: int, text: str):
        chips = problem.c.partition.ranks_per_replica
        self.nrows, self.ncols = rows, cols = parse_mesh(text, chips)
        self.replica, chip = divmod(rank, chips)
        self.i, self.j = divmod(chip, cols)
        first = rank - chip
        self.row = Group("row", tuple(first + self.i * cols + l for l in range(cols)), self.j)
        self.column = Group("column", tuple(first + l * cols + self.j for l in range(rows)), self.i)
        self.a, self.b, self.c = (Tiles(operand, self.replica) for operand in problem.operands)

    @property
    def place(self) -> tuple[int, int, Group, Group, range, range]:
        """i and j, row and column, and the other positions in both."""
        return self.i, self.j, self.row, self.column, range(self.ncols), range(self.nrows)

    def transposed(self) -> "Mesh":
        """The mesh on which Cᵀ = Bᵀ · Aᵀ is the same multiplication: its rows are the columns."""
        mesh = copy(self)
        mesh.i, mesh.j, mesh.nrows, mesh.ncols = self.j, self.i, self.ncols, self.nrows
        mesh.row, mesh.column = self.column, self.row
        mesh.a, mesh.b, mesh.c = (Transposed(tiles) for tiles in (self.b, self.a, self.c))
        return mesh


def parse_mesh(text: str | None, nprocs: int, square: bool = False) -> tuple[int, int]:
    """Pr and Pc of a text such as ``2x3``; the near-square mesh if it is None. With ``square`` an
    error suggests square meshes.

    Examples
    --------
    >>> parse_mesh("2x3", 6), parse_mesh(None, 12)
    ((2, 3), (3, 4))
    """
    if text is None:
        return near_square(nprocs)
    rows, cols = extents(str(text).strip().lower()) or (0, 0)
    if not rows * cols:
        raise UsageError(f"mesh must be rows x columns such as 2x3, got {text!r}.")
    if rows * cols != nprocs:
        fits = [grid for grid in MESH.tried(nprocs) if not square or len({*grid.split("x")}) == 1]
        raise UsageError(
            f"mesh {rows}x{cols} needs {rows * cols} ranks, got {nprocs}. Use "
            f"{', '.join([*fits, ''])}{'or ' * bool(fits)}{rows * cols} ranks."
        )
    return rows, cols


def mesh_layout(
    m: int,
    n: int,
    k: int,
    nprocs: int,
    *,
    dataflow: str | None = None,
    mesh: str | None = None,
    replicas: int | None = None,
    **options,
) -> Texts:
    """Text forms of the partitions of A, B and C for a dataflow on a mesh, or on one a replica.

    Examples
    --------
    >>> mesh_layout(8, 8, 8, 6, dataflow="LS", mesh="2x3")
    ('block:2x3', 'block:3x2:col', 'block:2x3')
    """
    copies = replica_suffix(replicas or 1)
    rows, cols = parse_mesh(mesh, max(1, nprocs // (replicas or 1)))
    dataflow = _dataflow(dataflow, m, n, k)
    upright, by_columns = f"block:{rows}x{cols}{copies}", f"block:{cols}x{rows}:col{copies}"
    return (
        (by_columns if dataflow == "RS" else upright),
        (by_columns if dataflow == "LS" else upright),
        upright,
    )


def _dataflow(dataflow: str | None, m: int, n: int, k: int) -> str:
    """The dataflow; by default the largest matrix does not move (MeshSlice, §3.2.1); on a tie C,
    then B.

    Examples
    --------
    >>> _dataflow("auto", 8, 8, 8), _dataflow(None, 1, 8, 4), _dataflow(None, 8, 1, 4)
    ('OS', 'RS', 'LS')
    """
    return _STATIONARY[largest_matrix(m, n, k)] if dataflow in (None, "auto") else dataflow


def resolve_mesh(
    problem: Problem, name: str, dataflow: str | None, mesh: str | None, replicas: int = 1
) -> dict:
    """Decide dataflow and mesh, and check that the matrices have the algorithm's layout.

    Raises
    ------
    UnsupportedError
        If a partition is another one.
    """
    rows, cols = parse_mesh(mesh, max(1, problem.nprocs // replicas))
    dataflow = _dataflow(dataflow, problem.m, problem.n, problem.k)
    resolved = {"dataflow": dataflow, "mesh": f"{rows}x{cols}"}
    check_layout(
        problem,
        f"{name} {dataflow} on a {rows}x{cols} mesh" + f" a replica, {replicas}" * (replicas > 1),
        mesh_layout,
        replicas=replicas,
        **resolved,
    )
    return resolved


def on_mesh(name: str, **defaults) -> Callable[..., dict]:
    """``resolve`` of an algorithm that decides nothing but dataflow and mesh: its other options are
    as given, or these."""

    def resolve(
        problem: Problem,
        in_place: bool = True,
        *,
        dataflow: str | None = None,
        mesh: str | None = None,
        **options,
    ) -> dict:
        given = {option: value for option, value in options.items() if value is not None}
        return resolve_mesh(problem, name, dataflow, mesh) | defaults | given

    return resolve


def all_groups(problem: Problem, **resolved) -> tuple[str, ...]:
    """All chips of the mesh run congruent programs if all tiles are alike (``congruent`` of an
    algorithm)."""
    return "row", "column"


def panels(first, second, width: int | None) -> list[tuple[int, int, int, int]]:
    """Panels of one axis that cross no cut of either of two divisions of it, none wider than
    ``width``.

    ``first`` and ``second`` are lists of half-open ranges that divide the axis. Gives (start, stop,
    x, y): the panel, and the index of its range in either division.

    Examples
    --------
    Two ranges against three: lcm(2, 3) panels where the extents divide (SUMMA; MeshSlice, §2.3.3),
    ragged ones elsewhere.

    >>> panels([(0, 6), (6, 12)], [(0, 4), (4, 8), (8, 12)], None)
    [(0, 4, 0, 0), (4, 6, 0, 1), (6, 8, 1, 1), (8, 12, 1, 2)]
    >>> panels([(0, 5)], [(0, 5)], 2)
    [(0, 2, 0, 0), (2, 4, 0, 0), (4, 5, 0, 0)]
    """
    return [
        (begin, min(end, begin + (width or end)), x, y)
        for x, span in enumerate(first)
        for y, other in enumerate(second)
        for start, end in [intersect(span, other)]
        for begin in range(start, end, width or max(1, end))
    ]


def joined(tokens: list[Step], axis: int = 0) -> Steps:
    """One token for several, side by side along an axis."""
    return tokens[0] if len(tokens) == 1 else (yield Join(tokens, axis))


def gemm_reduce_scattered(a: Step, b: Step, fragments: list, group: Group, axis: int) -> Steps:
    """C' = a·b, reduce-scattered along a group; a chip alone in it multiplies directly into its
    tile."""
    fragment = fragments[0] if type(fragments[0]) is Fragment else Fragment(fragments[0])
    if len(group) == 1 and fragment.plain:
        yield Gemm(a, b, into=fragment.blocks()[0])
    else:
        partial = yield Gemm(a, b)
        yield ReduceScatter(partial, fragments, group, axis)


def gemm_reduced(a: Step, b: Step, targets: list[Block], group: Group, axis: int) -> Steps:
    """C' = a·b, whose parts along an axis are each reduced to their owners; if there is one part, a
    chip alone in the group multiplies directly into its tile."""
    if len(group) == len(targets) == 1:
        yield Gemm(a, b, into=targets[0])
        return
    if len(targets) == 1:
        sums = [(yield Gemm(a, b))]
    else:
        sums = yield from gemm_in_parts(
            [target.shape for target in targets], axis, lambda into: _multiplied(a, b, into)
        )
    for partial, target in zip(sums, targets):
        yield Reduce(partial, target, group)


def gemm_in_parts(shapes: list[tuple[int, int]], axis: int, multiply: Callable) -> Steps:
    """The parts of one GEMM's result along an axis, each without gaps; ``multiply(into)`` is a
    generator that yields the GEMM and returns it."""
    scratches, sums, start = [], [], 0
    for shape in shapes:
        scratches.append((yield Scratch(shape)))
    product = yield from multiply((yield Join(scratches, axis)))
    for shape in shapes:
        stop = start + shape[axis]
        sums.append((yield Part(product, axis, start, stop)))
        start = stop
    return sums


def _multiplied(a: Step, b: Step, into: Step) -> Steps:
    return (yield Gemm(a, b, into=into))
