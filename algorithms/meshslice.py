"""MeshSlice (Nam et al., ISCA 2025, §3.1, Figure 5): partial collectives of S slices in both
directions, overlapped with the GEMMs."""

from bisect import bisect_left, bisect_right
from math import lcm
from operator import itemgetter

from drbench.errors import UnsupportedError
from drbench.options import Option
from drbench.partitions.intervals import Range, union
from drbench.program.group_steps import Fragment
from drbench.program.problem import Problem
from drbench.program.steps import Block, Steps

from .collective import moving_tiles, multiply_gathered
from .mesh import DATAFLOW, MESH, Mesh, mesh_layout, parse_mesh, resolve_mesh
from .registry import algorithm

#: The axis that is sliced: the one along which both moving operands are gathered or scattered.
SLICED = {"OS": "k", "LS": "n", "RS": "m"}
#: Default slices. OS cuts k, which hardly slows GEMMs; LS cuts n and RS m, which does.
_DEFAULT_SLICES = {"OS": 8, "LS": 2, "RS": 2}


def resolve(
    problem: Problem,
    in_place: bool = True,
    *,
    dataflow: str | None = None,
    mesh: str | None = None,
    slices: int | None = None,
    block: int | None = None,
) -> dict:
    """Decide dataflow, mesh, slice count and block; refuse another layout, or more slices than
    blocks."""
    resolved = resolve_mesh(problem, "meshslice", dataflow, mesh)
    axis = SLICED[resolved["dataflow"]]
    extent, shards = problem.extent(axis), lcm(*parse_mesh(resolved["mesh"], problem.nprocs))
    if slices is None:
        slices = max(1, min(_DEFAULT_SLICES[resolved["dataflow"]], extent // (block or 1)))
    if block is None:
        block = max(1, extent // (shards * slices))
    blocks = -(-extent // block)
    if slices > blocks:
        raise UnsupportedError(
            f"meshslice {resolved['dataflow']} cuts {axis} = {extent} into blocks of {block}, "
            f"which is {blocks} (algorithm requirement: at "
            f"least one a slice); got {slices} slices. Use at most {blocks} slices, or a block "
            f"of at most {max(1, extent // slices)}."
        )
    return resolved | {"slices": slices, "block": block}


def comb(extent: int, slices: int, s: int, block: int) -> list[Range]:
    """Ranges of slice ``s``: every ``slices``-th block of an axis (Algorithm 2, for any extent).

    Where S·B divides every shard this is the local slicing of the paper; taken on global indices,
    it also fits shards of other lengths.

    Examples
    --------
    >>> comb(20, slices=2, s=1, block=4)
    [(4, 8), (12, 16)]
    """
    return [
        (start, min(start + block, extent)) for start in range(s * block, extent, slices * block)
    ]


def congruent(
    problem: Problem, *, dataflow: str, mesh: str, slices: int, block: int
) -> tuple[str, ...]:
    """All chips do the same if S·B divides every shard: then slices have equal parts of each."""
    return (
        ("row", "column")
        if problem.extent(SLICED[dataflow])
        % (lcm(*parse_mesh(mesh, problem.nprocs)) * slices * block)
        == 0
        else ()
    )


def slice_col(tile: Block, teeth: list) -> Fragment:
    """The columns of a tile that are in a slice."""
    return Fragment(tile, cols=_clipped(teeth, *tile.cols))


def slice_row(tile: Block, teeth: list) -> Fragment:
    """The rows of a tile that are in a slice."""
    return Fragment(tile, rows=_clipped(teeth, *tile.rows))


def _clipped(teeth: list, start: int, stop: int) -> tuple:
    """Rising ranges cut down to [start, stop); neighbours that touch become one."""
    first = bisect_right(teeth, start, key=itemgetter(1))
    inside = teeth[first : bisect_left(teeth, stop, key=itemgetter(0))]
    return tuple(union((max(low, start), min(high, stop)) for low, high in inside))


#: How the tiles that move along rows, and along columns, are sliced.
_CUTS = {"OS": (slice_col, slice_row), "LS": [slice_col] * 2, "RS": [slice_row] * 2}

SLICES = Option(
    "slices",
    int,
    least=1,
    help="slice count S.",
    default_text="8 for OS, 2 for LS and RS; fewer if the axis is short",
    tried=(1, 2, 4, 8, 16, 32),
)
BLOCK = Option(
    "block",
    int,
    least=1,
    unit="elements",
    help="block B of its slicing.",
    default_text="the longest that divides all shards",
)


@algorithm(
    "meshslice",
    options=(DATAFLOW, MESH, SLICES, BLOCK),
    resolve=resolve,
    layout=mesh_layout,
    congruent=congruent,
)
def program(
    problem: Problem, rank: int, *, dataflow: str, mesh: str, slices: int, block: int
) -> Steps:
    """S partial collectives in both directions of the mesh, overlapped with GEMMs (Nam et al.,
    2025)."""
    chip = Mesh(problem, rank, mesh)
    sides = [*zip(_CUTS[dataflow], moving_tiles(chip, dataflow))]  # the same in all slices
    for s in range(slices):
        teeth = comb(problem.extent(SLICED[dataflow]), slices, s, block)
        # OS: A' = AG_col(A_s), B' = AG_row(B_s), C += A' · B';
        # LS: C_s = RdS_col(A · B'); RS: C_s = RdS_row(A' · B)
        sliced = ([cut(tile, teeth) for tile in tiles] for cut, tiles in sides)
        yield from multiply_gathered(chip, dataflow, *sliced)
