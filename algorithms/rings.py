"""Ring algorithms of one direction: gathers and reductions divided into shifts, so that they
overlap with GEMMs (Wang et al.; MeshSlice, §2.3.4 and §4.3). One chain of shifts uses each
direction of the ring.
"""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice

from drbench.program.group_steps import Shift
from drbench.program.steps import Add, Block, Group, Step, Steps

from .mesh import gemm_in_parts


def gather_order(size: int, position: int) -> list[tuple[int, int]]:
    """The positions whose tiles reach a position, and their shifts: nearest first, the two sides
    alternating.

    Examples
    --------
    >>> gather_order(4, 0)
    [(1, -1), (3, 1), (2, -1)]
    """
    return [
        (source, -direction)
        for source, direction in _around(size, position, range(1, size // 2 + 1))
    ]


def reduce_order(size: int, position: int) -> list[tuple[int, int]]:
    """The positions to whose partial sums a position adds, and the shifts that forward them:
    farthest first, the two sides alternating.

    Examples
    --------
    >>> reduce_order(4, 0)
    [(2, 1), (1, 1), (3, -1)]
    """
    return list(_around(size, position, range(size // 2, 0, -1)))


def _around(size: int, position: int, distances: range) -> Iterator[tuple[int, int]]:
    """The positions at a distance, and their sides: ahead first; the opposite position only
    once."""
    for d in distances:
        for direction in (1,) if 2 * d == size else (1, -1):
            yield (position + direction * d) % size, direction


def gather_ring(
    own: Step,
    tile_of: Callable[[int], Block],
    group: Group,
    unroll: int,
    multiply: Callable[[list, list], Steps],
) -> Steps:
    """Receive and forward every member's tile; ``multiply(positions, tokens)`` uses those of
    ``unroll`` shifts at a time. Returns the result of its last call.

    Parameters
    ----------
    own : token
        Of this member's tile.
    tile_of : callable
        The tile of a position.
    multiply : callable
        A generator of steps.
    """
    held = {-1: own, 1: own}
    last = yield from multiply([group.position], [own])
    for batch in batches(gather_order(len(group), group.position), unroll):
        tokens = []
        for source, by in batch:
            held[by] = yield Shift(held[by], group, by, receives=tile_of(source))
            tokens.append(held[by])
        last = yield from multiply([source for source, _ in batch], tokens)
    return last


def reduce_ring(
    tile_of: Callable[[int], Block],
    group: Group,
    axis: int,
    unroll: int,
    multiply: Callable[[list, object], Steps],
) -> Steps:
    """Receive the partial sums of every member's tile, add to them and forward them; this member's
    tile is complete at the end.

    ``multiply(positions, into)`` is a generator that yields the GEMM for the tiles of some
    positions, joined along ``axis``, into a token or a block, and returns it.
    """
    waiting: dict[int, Step | None] = {-1: None, 1: None}
    order = reduce_order(len(group), group.position)
    # the short batch is first: after the single farthest sum, pairs use both directions at once
    first = order[: len(order) % unroll]
    for batch in [first] * bool(first) + list(batches(order[len(first) :], unroll)):
        if len(batch) == 1:
            ((target, by),) = batch
            parts = [(yield from multiply([target], waiting[by]))]  # added to the received sum
            waiting[by] = None
        else:
            targets = [target for target, _ in batch]
            shapes = [tile_of(target).shape for target in targets]
            parts = yield from gemm_in_parts(shapes, axis, partial(multiply, targets))
        size = len(group)
        for (target, by), part in zip(batch, parts):
            if waiting[by] is not None:
                part = yield Add(waiting[by], into=part)
            waiting[by] = yield Shift(part, group, by, receives=tile_of((target - by) % size))
    own = tile_of(group.position)
    yield from multiply([group.position], own)
    for token in waiting.values():
        if token is not None:
            yield Add(token, own)


def batches(entries: list, count: int) -> Iterator[list]:
    """The entries, as many at a time."""
    entries = iter(entries)
    while batch := list(islice(entries, count)):
        yield batch
