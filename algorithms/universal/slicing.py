"""Slicing: which local products a rank computes, by index arithmetic alone (paper, §4.1, Algorithms
1 and 2).

One function serves the three stationary matrices. Call the stationary matrix's axes p and q and the
third axis f, the *free* one (C: m, n and k; B: k, n and m; A: m, k and n). The matrix X has the
axes p and f, the matrix Y q and f:

==========  ==  ==  ==  ==========  ==========
stationary  p   q   f   X           Y
==========  ==  ==  ==  ==========  ==========
C           m   n   k   A (m×k)     B (k×n)
B           k   n   m   A (m×k)     C (m×n)
A           m   k   n   C (m×n)     B (k×n)
==========  ==  ==  ==  ==========  ==========

A stationary tile is a range of p times a range of q. The free axis is cut at the tile boundaries of
X and Y, the tile's p range at those of X, its q range at those of Y; every combination is one
product whose three blocks lie in one tile each.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from drbench.program.problem import AXES, Problem
from drbench.program.steps import Block
from partitions import part

__all__ = [
    "Product",
    "free_axis",
    "largest_matrix",
    "own_first_balances",
    "result_stays",
    "slices",
    "stationary_matrix",
]


class Product(NamedTuple):
    """One local product c += a·b of blocks. ``first`` and ``last`` mark the ends of a run of
    products with the same c."""

    a: Block
    b: Block
    c: Block
    first: bool
    last: bool


def stationary_matrix(problem: Problem) -> str:
    """The largest matrix; on a tie C, then B (paper, §4).

    Examples
    --------
    >>> [stationary_matrix(Problem(m, n, k, 1)) for m, n, k in [(4, 4, 4), (1, 8, 4), (8, 1, 4)]]
    ['C', 'B', 'A']
    """
    return largest_matrix(problem.m, problem.n, problem.k)


def largest_matrix(m: int, n: int, k: int) -> str:
    """The same from the sizes alone."""
    sizes = {"C": m * n, "B": k * n, "A": m * k}
    return max(sizes, key=sizes.get)  # max keeps the first of equals


def free_axis(stationary: str) -> str:
    """The axis the stationary matrix does not have: C -> k, B -> m, A -> n."""
    (free,) = {"m", "n", "k"} - set(AXES[stationary])
    return free


def result_stays(problem: Problem, stationary: str) -> bool:
    """True if every product of every rank lands in a tile of C of its own, so that no rank
    accumulates into another's.

    Always with Stationary C; with A (or B) if A (B) and C are divided alike, and by rows (columns)
    alone.

    Examples
    --------
    >>> [
    ...     result_stays(Problem(8, 8, 8, 4, b=b, c=c), "B")
    ...     for b, c in [("column", "column"), ("column", "row"), ("block", "block")]
    ... ]
    [True, False, False]
    """
    if stationary == "C":
        return True
    still, c = problem.operand(stationary).partition, problem.c.partition
    along, across = (0, 1) if stationary == "A" else (1, 0)
    grids = [(p.grid.rows, p.grid.cols) for p in (still, c)]
    return (
        still.replicas == c.replicas
        and still.tile_shape[along] == c.tile_shape[along]
        and grids[0][along] == grids[1][along]
        and grids[0][across] == grids[1][across] == 1
    )


def own_first_balances(problem: Problem, stationary: str) -> bool:
    """True if every rank does the same share of its products into its own tile of C (Stationary A
    or B).

    Then a Fence after those products keeps no rank waiting. So it is if all ranks own the same
    number of tiles of C, and of the stationary matrix, which is not replicated, and along the axis
    the two share C is not divided or divided alike.

    Examples
    --------
    >>> [
    ...     own_first_balances(Problem(8, 8, 8, 4, b=b, c=c), "B")
    ...     for b, c in [("row", "row"), ("block", "block"), ("column", "block")]
    ... ]
    [True, True, False]
    """
    still, c = problem.operand(stationary).partition, problem.c.partition
    along = 0 if stationary == "A" else 1
    even = all(
        p.grid_shape[0] % p.grid.rows == 0 and p.grid_shape[1] % p.grid.cols == 0
        for p in (still, c)
    )
    alike = (
        still.grid == c.grid and still.tile_shape[along] == c.tile_shape[along] and c.replicas == 1
    )
    return even and still.replicas == 1 and ((c.grid.rows, c.grid.cols)[along] == 1 or alike)


def slices(
    problem: Problem, rank: int, stationary: str, chunk: int | None = None
) -> Iterator[list[Product]]:
    """The products of one rank, in groups that share a range of the free axis.

    Parameters
    ----------
    problem : Problem
    rank : int
    stationary : str
        ``"A"``, ``"B"`` or ``"C"``.
    chunk : int, optional
        Longest free range of one product, in elements; None leaves ranges as long as the tiles
        allow. Ranges of m or n without transfers are left whole: cutting them would only cost.

    Yields
    ------
    list of Product
        For Stationary C a group is one range of k; for A and B the products of a group that add to
        the same block of C follow each other, so that their sum is accumulated once.

    Notes
    -----
    Replica q of a replicated stationary matrix does the q-th part of the free axis. Order: for the
    stationary tile (i, j) the free ranges between tile boundaries are rotated by i + j, and so are
    the pieces along p and q, so that a whole row or column of ranks never asks the same owner at
    the same time (paper, §4.2, *iteration offset*). Ranges whose operands are all at hand are then
    spread evenly between those that need transfers, to be computed meanwhile.
    """
    p, q = AXES[stationary]
    free = free_axis(stationary)
    still = problem.operand(stationary)
    x, y = (operand for operand in problem.operands if operand is not still)
    if p not in x.axes:
        x, y = y, x
    replicas = {op: op.partition.replica_of(rank) for op in (still, x, y)}

    start, stop = part(problem.extent(free), replicas[still], still.partition.replicas)
    cuts = sorted({*x.cuts(free, start, stop), *y.cuts(free, start, stop)})
    ranges, runs = (
        [],
        [],
    )  # all free ranges; of each stretch between tile boundaries the whole, and its pieces
    for low, high in zip(cuts, cuts[1:]):
        whole, pieces = len(ranges), -(-(high - low) // chunk) if chunk else 1
        edges = [low + (high - low) * s // pieces for s in range(pieces + 1)]
        ranges.append((low, high))
        if pieces > 1:
            ranges.extend(zip(edges, edges[1:]))
        runs.append((whole, range(whole + 1, len(ranges)) if pieces > 1 else [whole]))

    def panel(operand, axis, pieces):
        """Blocks of X or Y: for each free range, those along the stationary tile's axis."""
        rows_first = operand.axes[0] == axis
        replica = replicas[operand]
        return [
            [
                operand.block(s, f, replica) if rows_first else operand.block(f, s, replica)
                for s in pieces
            ]
            for f in ranges
        ]

    panels: dict = {}  # tiles of one tile row (column) share their panel of X (Y)
    for i, j in still.partition.tiles_of(rank):
        p_range, q_range = still.partition.tile_bounds((i, j))
        p_pieces, q_pieces = _pieces(x.cuts(p, *p_range)), _pieces(y.cuts(q, *q_range))
        if (0, i) not in panels:
            panels[0, i] = panel(x, p, p_pieces)
        if (1, j) not in panels:
            panels[1, j] = panel(y, q, q_pieces)
        xs, ys = panels[0, i], panels[1, j]
        own = [[still.block(s, t, replicas[still]) for t in q_pieces] for s in p_pieces]
        p_order, q_order = (
            _rotated(range(len(p_pieces)), i + j),
            _rotated(range(len(q_pieces)), i + j),
        )
        moves = [
            any(b.owner != rank for b in x_blocks) or any(b.owner != rank for b in y_blocks)
            for x_blocks, y_blocks in zip(xs, ys)
        ]
        order = []
        for whole, pieces in _rotated(runs, i + j):
            order += pieces if moves[whole] or free == "k" else [whole]
        for f in _spread(order, [moves[f] for f in order]):
            if stationary == "C":
                yield [
                    Product(xs[f][s], ys[f][t], own[s][t], True, True)
                    for s in p_order
                    for t in q_order
                ]
            elif stationary == "B":  # C[f, t] = sum over the pieces s of A[f, s] · B[s, t]
                yield [
                    Product(xs[f][s], own[s][t], ys[f][t], s == p_order[0], s == p_order[-1])
                    for t in q_order
                    for s in p_order
                ]
            else:  # C[s, f] = sum over the pieces t of A[s, t] · B[t, f]
                yield [
                    Product(own[s][t], ys[f][t], xs[f][s], t == q_order[0], t == q_order[-1])
                    for s in p_order
                    for t in q_order
                ]


def _pieces(cuts: list[int]) -> list[tuple[int, int]]:
    return list(zip(cuts, cuts[1:]))


def _rotated(items, by: int) -> list:
    by %= max(1, len(items))
    return [*items[by:], *items[:by]]


def _spread(items: list, moves: list[bool]) -> list:
    """Items without transfers spread evenly between those with, each kind in its own order, one
    without first.

    Examples
    --------
    >>> (
    ...     "".join(_spread(list("ABCdef"), [True] * 3 + [False] * 3)),
    ...     "".join(_spread(list("aBCDE"), [False] + [True] * 4)),
    ... )
    ('dAeBfC', 'aBCDE')
    """
    still = [item for item, moving in zip(items, moves) if not moving]
    if not still or len(still) == len(items):
        return items
    moving = [item for item, moves_it in zip(items, moves) if moves_it]
    places = [((2 * x) / (2 * len(still)), 0, x, item) for x, item in enumerate(still)]
    places += [((2 * x + 1) / (2 * len(moving)), 1, x, item) for x, item in enumerate(moving)]
    return [item for *_, item in sorted(places, key=lambda place: place[:3])]
