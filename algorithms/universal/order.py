"""The order of ranges of an axis: rotated, spread, cut evenly, around the end of the axis."""

from drbench.partitions import ceil_div
from drbench.partitions.intervals import Range, between, intersect


def rotated(items: list, by: int) -> list:
    """The items from number ``by`` on, modulo their number, then those before it.

    Examples
    --------
    >>> rotated(["k0", "k1", "k2"], 1), rotated(["k0", "k1", "k2"], 5)
    (['k1', 'k2', 'k0'], ['k2', 'k0', 'k1'])
    """
    if len(items) < 2:
        return items
    by %= len(items)
    return [*items[by:], *items[:by]]


def spread(items: list, moves: list[bool]) -> list:
    """Items without transfers spread evenly between those with, each kind in its own order, one
    without first.

    Examples
    --------
    >>> (
    ...     "".join(spread(list("ABCdef"), [True] * 3 + [False] * 3)),
    ...     "".join(spread(list("aBCDE"), [False] + [True] * 4)),
    ... )
    ('dAeBfC', 'aBCDE')
    """
    local = [item for item, moving in zip(items, moves) if not moving]
    if not local or len(local) == len(items):
        return items
    moving = [item for item, moves_it in zip(items, moves) if moves_it]
    places = [((2 * x) / (2 * len(local)), 0, x, item) for x, item in enumerate(local)]
    places += [((2 * x + 1) / (2 * len(moving)), 1, x, item) for x, item in enumerate(moving)]
    return [item for *_, item in sorted(places, key=lambda place: place[:3])]


def hide_transfers(
    ranges: list[tuple[Range, list[Range]]], moves: dict[Range, bool], cut_local: bool
) -> list[Range]:
    """The ranges in an order in which GEMMs hide transfers.

    Parameters
    ----------
    ranges : list of (range, list of ranges)
        Each with its chunks, which take its place where its blocks move.
    moves : dict of range to bool
        Whether blocks of a range, or of a chunk, move.
    cut_local : bool
        The chunks of ranges that do not move are used too if another range moves: their GEMMs hide
        its transfers.
    """
    cut_all = cut_local and any(moves[whole] for whole, _ in ranges)
    order = []
    for whole, chunks in ranges:
        order += chunks if chunks and (cut_all or moves[whole]) else [whole]
    return spread(order, [moves[part] for part in order])


def cut_evenly(whole: Range, longest: int | None) -> list[Range]:
    """Equal parts of a range of at most a number of elements; none where it is not longer.

    Examples
    --------
    >>> cut_evenly((0, 10), 4), cut_evenly((0, 4), 4), cut_evenly((0, 4), None)
    ([(0, 3), (3, 6), (6, 10)], [], [])
    """
    low, high = whole
    if not longest or high - low <= longest:
        return []
    count = ceil_div(high - low, longest)
    return between([low + (high - low) * s // count for s in range(count + 1)])


def on_ring(start: int, stop: int, extent: int) -> list[Range]:
    """The ranges of an interval that continues at 0 where the axis ends; the whole axis has no
    beginning.

    Examples
    --------
    >>> on_ring(2, 5, 8), on_ring(6, 9, 8), on_ring(9, 11, 8), on_ring(3, 11, 8)
    ([(2, 5)], [(6, 8), (0, 1)], [(1, 3)], [(0, 8)])
    """
    if stop - start == extent:
        return [(0, extent)]
    around = (start - extent, stop - extent)
    parts = [intersect(interval, (0, extent)) for interval in ((start, stop), around)]
    return [(low, high) for low, high in parts if low < high]
