"""Wang's algorithm (Wang et al., ASPLOS 2023; MeshSlice, §2.3.4): one direction of the mesh as a
collective, the other as ring shifts that overlap with partial GEMMs."""

from math import prod

from drbench.program.group_steps import AllGather, ReduceScatter
from drbench.program.problem import Problem
from drbench.program.steps import Gemm, Get, Part, Scratch, Step, Steps, joined_shape

from .mesh import DATAFLOW, MESH, UNROLL, Mesh, all_groups, joined, mesh_layout, on_mesh, parse_mesh
from .registry import algorithm
from .rings import gather_ring, reduce_ring

#: Which matrix moves along process rows, and which along process columns.
_ALONG_ROWS = {"OS": "A", "LS": "C", "RS": "A"}
_ALONG_COLUMNS = {"OS": "B", "LS": "B", "RS": "C"}


def costlier_direction(problem: Problem, dataflow: str, mesh: str) -> str:
    """``"row"`` or ``"column"``: the direction that moves more bytes a chip and so is overlapped;
    rows on a tie.

    Along rows a chip receives (Pc - 1) / (Pr·Pc) of a matrix, along columns (Pr - 1) / (Pr·Pc)
    (MeshSlice, §2.3.1).

    Examples
    --------
    >>> (
    ...     costlier_direction(Problem(64, 8, 64, 4), "OS", "2x2"),
    ...     costlier_direction(Problem(64, 64, 64, 4), "OS", "4x1"),
    ... )
    ('row', 'column')
    """
    nrows, ncols = parse_mesh(mesh, problem.nprocs)
    size = lambda name: prod(problem.operand(name).partition.shape)
    along_rows = (ncols - 1) * size(_ALONG_ROWS[dataflow])
    along_columns = (nrows - 1) * size(_ALONG_COLUMNS[dataflow])
    return "row" if along_rows >= along_columns else "column"


@algorithm(
    "wang",
    options=(DATAFLOW, MESH, UNROLL),
    resolve=on_mesh("wang", unroll=1),
    layout=mesh_layout,
    congruent=all_groups,
)
def program(problem: Problem, rank: int, *, dataflow: str, mesh: str, unroll: int = 1) -> Steps:
    """The costlier direction as ring shifts overlapped with GEMMs, the other as a collective (Wang
    et al.)."""
    yield from wang(
        Mesh(problem, rank, mesh), dataflow, costlier_direction(problem, dataflow, mesh), unroll
    )


def wang(chip: Mesh, dataflow: str, ring: str, unroll: int) -> Steps:
    """The program of one chip; ``ring`` is the direction that shifts.

    RS is LS, and OS along columns is OS along rows, of Cᵀ = Bᵀ · Aᵀ, in which rows are columns.
    """
    transposed = dataflow == "RS" or (dataflow == "OS" and ring == "column")
    rows, cols = (1, 0) if transposed else (0, 1)  # the axes
    chip = chip.transposed() if transposed else chip
    a, b, c = chip.a, chip.b, chip.c
    i, j, row, column, in_row, in_column = chip.place
    gemm = lambda x, y, into: Gemm(*((y, x) if transposed else (x, y)), into=into)

    if dataflow == "OS":
        own = yield Get(a.tile(i, j))
        gathered = yield AllGather([b.tile(l, j) for l in in_column], column, axis=rows)  # B[:, j]

        def multiply(sources, tokens):  # C[i, j] += A[i, l] · B[l, j]
            right = yield from parts(gathered, rows, [a.cols(l) for l in sources])
            yield gemm((yield from joined(tokens, cols)), right, c.tile(i, j))

        yield from gather_ring(own, lambda l: a.tile(i, l), row, unroll, multiply)
    elif (ring == "column") != transposed:  # the moving input shifts
        left, own = (yield Get(a.tile(i, j))), (yield Get(b.tile(j, i)))
        fragments, scratch = [c.tile(i, l) for l in in_row], None
        if len(row) > 1:
            scratch = yield Scratch(joined_shape([fragment.shape for fragment in fragments], cols))

        def multiply(sources, tokens):  # C'[:, l] = A[i, j] · B[j, l]
            right, ranges = (yield from joined(tokens, cols)), [b.cols(l) for l in sources]
            if scratch is not None:
                return (yield gemm(left, right, (yield from parts(scratch, cols, ranges))))
            offset = 0  # alone in its row: its tile is all of C'
            for start, stop in ranges:
                part = right
                if len(ranges) > 1:
                    part = yield Part(right, cols, offset, offset + stop - start)
                yield gemm(left, part, c.block(i, j, c.rows(i), (start, stop)))
                offset += stop - start

        last = yield from gather_ring(own, lambda l: b.tile(j, l), column, unroll, multiply)
        if scratch is not None:
            yield ReduceScatter(scratch, fragments, row, axis=cols, after=last)  # C[i, :] = Σ C'
    else:  # partial sums shift
        left = yield Get(a.tile(i, j))
        gathered = yield AllGather([b.tile(j, l) for l in in_column], column, axis=cols)  # B[j, :]

        def multiply(targets, into):  # C[i, l] += A[i, j] · B[j, l]
            right = yield from parts(gathered, cols, [c.cols(l) for l in targets])
            return (yield gemm(left, right, into))

        yield from reduce_ring(lambda l: c.tile(i, l), row, cols, unroll, multiply)


def parts(token: Step, axis: int, ranges: list) -> Steps:
    """The ranges of a gathered matrix, side by side."""
    pieces = []
    for start, stop in ranges:
        pieces.append((yield Part(token, axis, start, stop)))
    return (yield from joined(pieces, axis))
