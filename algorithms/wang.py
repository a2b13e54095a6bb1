"""Wang's algorithm (Wang et al., ASPLOS 2023; MeshSlice, §2.3.4): one direction of the mesh as a
collective, the other as ring shifts that overlap with partial products."""

from __future__ import annotations

from collections.abc import Iterator

from drbench.program.group_steps import AllGather, ReduceScatter
from drbench.program.problem import Problem
from drbench.program.steps import Gemm, Get, Join, Part, Scratch, Step

from .mesh import DATAFLOW, MESH, UNROLL, Mesh, everywhere, mesh_layout, parse_mesh, settle_mesh
from .registry import algorithm
from .rings import gather_ring, reduce_ring

__all__ = ["costlier_direction", "program", "wang"]

#: Which matrix moves along process rows, and which along process columns.
_ALONG_ROWS = {"OS": "A", "LS": "C", "RS": "A"}
_ALONG_COLUMNS = {"OS": "B", "LS": "B", "RS": "C"}


def settle(
    problem: Problem,
    in_place: bool = True,
    *,
    dataflow: str | None = None,
    mesh: str | None = None,
    unroll: int | None = None,
) -> dict:
    """Decide dataflow and mesh; refuse another layout."""
    return settle_mesh(problem, "wang", dataflow, mesh) | {"unroll": unroll or 1}


def costlier_direction(problem: Problem, dataflow: str, mesh: str) -> str:
    """``"row"`` or ``"column"``: the direction that moves more bytes a chip, which is the one to
    overlap; rows on a tie.

    Along rows a chip takes part in (Pc - 1) / (Pr·Pc) of a matrix, along columns in (Pr - 1) /
    (Pr·Pc) (MeshSlice, §2.3.1).

    Examples
    --------
    >>> (
    ...     costlier_direction(Problem(64, 8, 64, 4), "OS", "2x2"),
    ...     costlier_direction(Problem(64, 64, 64, 4), "OS", "4x1"),
    ... )
    ('row', 'column')
    """
    nrows, ncols = parse_mesh(mesh, problem.nprocs)
    size = lambda name: (
        problem.operand(name).partition.shape[0] * problem.operand(name).partition.shape[1]
    )
    along_rows = (ncols - 1) * size(_ALONG_ROWS[dataflow])
    along_columns = (nrows - 1) * size(_ALONG_COLUMNS[dataflow])
    return "row" if along_rows >= along_columns else "column"


@algorithm(
    "wang",
    options=(DATAFLOW, MESH, UNROLL),
    settle=settle,
    layout=mesh_layout,
    congruent=everywhere,
)
def program(
    problem: Problem, rank: int, *, dataflow: str, mesh: str, unroll: int = 1
) -> Iterator[Step]:
    """The costlier direction as ring shifts that overlap with products, the other as a collective
    (Wang et al.)."""
    yield from wang(
        Mesh(problem, rank, mesh), dataflow, costlier_direction(problem, dataflow, mesh), unroll
    )


def wang(chip: Mesh, dataflow: str, ring: str, unroll: int) -> Iterator[Step]:
    """The program of one chip; ``ring`` is the direction that shifts."""
    a, b, c, i, j, row, column, in_row, in_column = (
        chip.a,
        chip.b,
        chip.c,
        chip.i,
        chip.j,
        chip.row,
        chip.column,
        range(chip.ncols),
        range(chip.nrows),
    )
    if dataflow == "OS" and ring == "row":
        own = yield Get(a.tile(i, j))
        gathered = yield AllGather([b.tile(l, j) for l in in_column], column, axis=0)  # B[:, j]

        def multiply(sources, tokens):  # C[i, j] += A[i, l] · B[l, j]
            right = yield from parts(gathered, 0, [a.cols(l) for l in sources])
            yield Gemm((yield from side_by_side(tokens, 1)), right, into=c.tile(i, j))

        yield from gather_ring(own, lambda l: a.tile(i, l), row, unroll, multiply)
    elif dataflow == "OS":
        own = yield Get(b.tile(i, j))
        gathered = yield AllGather([a.tile(i, l) for l in in_row], row, axis=1)  # A[i, :]

        def multiply(sources, tokens):
            left = yield from parts(gathered, 1, [b.rows(l) for l in sources])
            yield Gemm(left, (yield from side_by_side(tokens, 0)), into=c.tile(i, j))

        yield from gather_ring(own, lambda l: b.tile(l, j), column, unroll, multiply)
    elif dataflow == "LS" and ring == "column":
        left, own = (yield Get(a.tile(i, j))), (yield Get(b.tile(j, i)))
        pieces = [c.tile(i, l) for l in in_row]
        room = (
            None
            if len(row) == 1
            else (yield Scratch((left.shape[0], sum(piece.shape[1] for piece in pieces))))
        )

        def multiply(sources, tokens):  # C'[:, l] = A[i, j] · B[j, l]
            right = yield from side_by_side(tokens, 1)
            return (
                yield from into_ranges(
                    left, right, room, c, (i, j), 1, [b.cols(l) for l in sources]
                )
            )

        last = yield from gather_ring(own, lambda l: b.tile(j, l), column, unroll, multiply)
        if room is not None:
            yield ReduceScatter(room, pieces, row, axis=1, after=last)  # C[i, :] = Σ C'
    elif dataflow == "LS":
        left = yield Get(a.tile(i, j))
        gathered = yield AllGather([b.tile(j, l) for l in in_column], column, axis=1)  # B[j, :]

        def multiply(targets, into):  # C[i, l] += A[i, j] · B[j, l]
            return (
                yield Gemm(
                    left, (yield from parts(gathered, 1, [c.cols(l) for l in targets])), into=into
                )
            )

        yield from reduce_ring(lambda l: c.tile(i, l), row, 1, unroll, multiply)
    elif ring == "row":
        right, own = (yield Get(b.tile(i, j))), (yield Get(a.tile(j, i)))
        pieces = [c.tile(l, j) for l in in_column]
        room = (
            None
            if len(column) == 1
            else (yield Scratch((sum(piece.shape[0] for piece in pieces), right.shape[1])))
        )

        def multiply(sources, tokens):  # C'[l, :] = A[l, i] · B[i, j]
            left = yield from side_by_side(tokens, 0)
            return (
                yield from into_ranges(
                    left, right, room, c, (i, j), 0, [a.rows(l) for l in sources]
                )
            )

        last = yield from gather_ring(own, lambda l: a.tile(l, i), row, unroll, multiply)
        if room is not None:
            yield ReduceScatter(room, pieces, column, axis=0, after=last)  # C[:, j] = Σ C'
    else:
        right = yield Get(b.tile(i, j))
        gathered = yield AllGather([a.tile(l, i) for l in in_row], row, axis=0)  # A[:, i]

        def multiply(targets, into):  # C[l, j] += A[l, i] · B[i, j]
            return (
                yield Gemm(
                    (yield from parts(gathered, 0, [c.rows(l) for l in targets])), right, into=into
                )
            )

        yield from reduce_ring(lambda l: c.tile(l, j), column, 0, unroll, multiply)


def parts(token: Step, axis: int, ranges: list) -> Iterator[Step]:
    """The ranges of a gathered matrix, side by side."""
    found = []
    for start, stop in ranges:
        found.append((yield Part(token, axis, start, stop)))
    return (yield from side_by_side(found, axis))


def side_by_side(tokens: list, axis: int) -> Iterator[Step]:
    """One token for several."""
    return tokens[0] if len(tokens) == 1 else (yield Join(tokens, axis))


def into_ranges(
    left: Step, right: Step, room: Step | None, c, at, axis: int, ranges: list
) -> Iterator[Step]:
    """left · right into ranges of rows (axis 0) or columns (1): of the room for C', or of the own
    tile, which then is all of C'."""
    if room is not None:
        return (yield Gemm(left, right, into=(yield from parts(room, axis, ranges))))
    token, offset = (left, right)[axis], 0
    for start, stop in ranges:
        part = (
            token if len(ranges) == 1 else (yield Part(token, axis, offset, offset + stop - start))
        )
        rows, cols = (c.rows(at[0]), (start, stop)) if axis == 1 else ((start, stop), c.cols(at[1]))
        yield Gemm(*((left, part) if axis == 1 else (part, right)), into=c.block(*at, rows, cols))
        offset += stop - start
