"""``torch.mm`` as PyTorch's DTensor runs it on a one-dimensional device mesh: it redistributes one
operand, calls one local GEMM, then scatters the partial sums; nothing overlaps.

Its collectives divide and join rows alone, so PyTorch copies what is divided by columns: a matrix
gathered along columns (``torch.cat`` in ``all_gather_tensor``), one that is redistributed from rows
to columns or back (``contiguous`` in ``shard_dim_alltoall``, before it is sent or after), and a
partial sum before it is scattered along columns (``torch.cat`` in ``reduce_scatter_tensor``). Here
a rank makes each copy of its own tile: after a receive, or before a send. PyTorch's padding where
ranks do not divide an extent is left out.
"""

from math import prod

from drbench.errors import UnsupportedError
from drbench.options import Option
from drbench.partitions import part, partition
from drbench.program.group_steps import AllGather, ReduceScatter
from drbench.program.problem import Operand, Problem
from drbench.program.steps import Copy, Gemm, Get, Group, Join, Steps

from .mesh import Tiles
from .registry import algorithm

#: Strategy -> placements of A and B that it needs, and of C that it makes; DTensor has Shard(0),
#: Shard(1), Replicate and, for pending partial sums, Partial.
_STRATEGIES = {
    "rows": ("row", "R", "row"),
    "columns": ("R", "column", "column"),
    "partial": ("column", "row", "partial"),
}
_PLACEMENTS = "row", "column"


def resolve(problem: Problem, in_place: bool = True, *, strategy: str | None = None) -> dict:
    """Choose as DTensor does: the strategy that redistributes the fewest bytes of A and B, not
    always the fastest (the reduction of a partial C is not counted)."""
    placed = [_placement(operand) for operand in problem.operands]
    fits = {
        name: sum(_count_received(*move) for move in zip((problem.a, problem.b), placed, wanted))
        for name, (*wanted, left) in _STRATEGIES.items()
        if left in ("partial", placed[2]) or problem.nprocs == 1
    }
    chosen = min(fits, key=fits.__getitem__) if strategy in (None, "auto") else strategy
    if chosen not in fits:
        raise UnsupportedError(
            f"dtensor_mm with strategy {chosen} leaves C by {_STRATEGIES[chosen][2]}s; got C by "
            f"{placed[2]}s. Use {' or '.join(fits)}."
        )
    return {"strategy": chosen}


STRATEGY = Option(
    "strategy",
    ("auto", *_STRATEGIES),
    help="gather B (rows), gather A (columns), or sum partial results (partial); auto: fewest "
    "bytes.",
    default_text="auto",
    tried=("auto", "columns", "partial"),
)


def layout(m: int, n: int, k: int, nprocs: int, *, strategy: str | None = None) -> tuple:
    """Partitions of A, B and C: those of the two linear layers of Megatron's sequence-parallel MLP
    (Korthikanti et al., 2022) for their strategies: tokens are by rows between the layers, gathered
    for weights by columns; partial sums of weights by rows are scattered."""
    layers = {"columns": ("row", "column", "column"), "partial": ("column", "row", "row")}
    return layers.get(strategy, ("row", "row", "row"))


@algorithm(
    "dtensor_mm",
    options=(STRATEGY,),
    resolve=resolve,
    layout=layout,
    dispatches=lambda problem, **resolved: 1,  # then the host runs ahead of the device
)
def program(problem: Problem, rank: int, *, strategy: str) -> Steps:
    """torch.mm of DTensor on row and column shards: redistribute, multiply, reduce-scatter
    (PyTorch)."""
    everyone = Group("row", tuple(range(problem.nprocs)), rank)
    a_wanted, b_wanted, left = _STRATEGIES[strategy]
    a = yield from _redistributed(problem.a, a_wanted, everyone)
    b = yield from _redistributed(problem.b, b_wanted, everyone)
    by = _placement(problem.c)
    tiles = _tiles(problem.c, by, len(everyone))
    if left == "partial" and len(everyone) > 1:  # C = Σ A[:, l] · B[l, :]
        partial = yield Gemm(a, b)
        if by == "column":
            partial = yield Copy(partial)
        yield ReduceScatter(partial, tiles, everyone, axis=_axis(by))
    else:
        yield Gemm(a, b, into=tiles[rank])


def _redistributed(operand: Operand, wanted: str, everyone: Group) -> Steps:
    """The part of op(A) or op(B) that a strategy needs, as one token."""
    have, p, rank = _placement(operand), len(everyone), everyone.position
    tiles = _tiles(operand, have, p)
    if have == wanted:
        token = yield Get(tiles[rank])
    elif wanted == "R":
        token = yield AllGather(tiles, everyone, axis=_axis(have))
        if have == "column" and p > 1:
            token = yield Copy(token)
    else:  # all to all: of each tile this rank's rows or columns
        stored, across = Tiles(operand), _cut(operand, wanted, p)[rank]
        fragments = []
        for other, own in enumerate(_cut(operand, have, p)):
            if have == "row":
                block = stored.block(other, 0, own, across)
            else:
                block = stored.block(0, other, across, own)
            fragments.append((yield Get(block)))
        token = yield Join(fragments, axis=_axis(have))
        if p > 1:
            token = yield Copy(token)
    return token


def _cut(operand: Operand, by: str, p: int) -> list[tuple[int, int]]:
    """The rows or columns of each rank."""
    return [part(operand.partition.shape[_axis(by)], q, p) for q in range(p)]


def _tiles(operand: Operand, by: str, p: int) -> list:
    tiles = Tiles(operand)
    return [tiles.tile(q, 0) if by == "row" else tiles.tile(0, q) for q in range(p)]


def _axis(by: str) -> int:
    return _PLACEMENTS.index(by)


def _count_received(operand: Operand, have: str, wanted: str) -> float:
    """Elements that a rank receives."""
    if have == wanted:
        return 0.0
    size, p = prod(operand.partition.shape), operand.partition.nprocs
    return size * (p - 1) / p / (1 if wanted == "R" else p)


def _placement(operand: Operand) -> str:
    """``row`` or ``column``.

    Raises
    ------
    UnsupportedError
        If the operand has another layout.
    """
    placed = operand.partition
    for by in _PLACEMENTS:
        needed = partition(by, operand.partition.shape, placed.nprocs)
        if placed == needed and placed.places == needed.places:
            return by
    raise UnsupportedError(
        f"dtensor_mm takes matrices by row or by column on all ranks (our implementation), got "
        f"{operand.name} as {operand.stored.text}. Use --algorithm universal."
    )
