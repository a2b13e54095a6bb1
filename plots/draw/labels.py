"""Place small labels next to their points so that they keep clear of each other, of markers and
lines.

Pure geometry in points (1/72 inch), x to the right, y up; deterministic: the same input gives the
same places.
"""

from collections.abc import Sequence
from math import hypot
from typing import NamedTuple

Segment = tuple[float, float, float, float]  # x0, y0, x1, y1


class Box(NamedTuple):
    """An axis-parallel rectangle by its edges."""

    left: float
    bottom: float
    right: float
    top: float


class Anchor(NamedTuple):
    """A point that wants a label of the given width and height."""

    x: float
    y: float
    width: float
    height: float


_SWEEPS = 12
# costs: of covering a label, leaving the frame and covering a marker (each a square point), of
# covering a line, standing in the wrong order, the distance, and another point that is nearer (each
# a point)
_ON_LABEL, _OUTSIDE, _ON_MARKER, _ON_LINE, _INVERTED = 1000.0, 1000.0, 200.0, 2.0, 6.0
_DISTANCE, _CONFUSED = 2.0, 2.0
_BESIDE, _BELOW = 3.0, 6.0  # of not being above, where the paper prints the factor


def overlap(one: Box, other: Box) -> float:
    """Give the common area of two boxes.

    Examples
    --------
    >>> overlap(Box(0, 0, 2, 2), Box(1, 1, 3, 3)), overlap(Box(0, 0, 1, 1), Box(1, 0, 2, 1))
    (1, 0)
    """
    width = min(one.right, other.right) - max(one.left, other.left)
    height = min(one.top, other.top) - max(one.bottom, other.bottom)
    return width * height if width > 0 and height > 0 else 0


def length_inside(segment: Segment, box: Box) -> float:
    """Give the length of a segment that lies inside a box (Liang and Barsky 1984).

    Examples
    --------
    >>> (
    ...     length_inside((0, 0, 10, 0), Box(2, -1, 5, 1)),
    ...     length_inside((0, 0, 10, 0), Box(2, 1, 5, 2)),
    ... )
    (3.0, 0.0)
    """
    x0, y0, x1, y1 = segment
    enter, leave = 0.0, 1.0
    for start, delta, low, high in (
        (x0, x1 - x0, box.left, box.right),
        (y0, y1 - y0, box.bottom, box.top),
    ):
        if delta == 0:
            if not low <= start <= high:
                return 0.0
            continue
        at = sorted(((low - start) / delta, (high - start) / delta))
        enter, leave = max(enter, at[0]), min(leave, at[1])
    return max(0.0, leave - enter) * hypot(x1 - x0, y1 - y0)


def place(
    anchors: Sequence[Anchor],
    bounds: Box,
    marker_radius: float,
    obstacles: Sequence[tuple[float, float]] = (),
    segments: Sequence[Segment] = (),
) -> list[Box]:
    """Choose a box for every label: above its point where that is free, else close to it.

    Parameters
    ----------
    anchors : sequence of Anchor
        The points with labels.
    bounds : Box
        Labels stay inside.
    marker_radius : float
        Half the size of a marker, for the points with and without labels.
    obstacles : sequence of (x, y)
        Points without labels, which a label must not cover either.
    segments : sequence of Segment
        Lines that a label rather does not cover.

    Returns
    -------
    list of Box
        In the order of the anchors.

    Notes
    -----
    Every label has a fixed list of candidate places around its point, with a cost for what they
    cover and for their distance; labels of points in one column also pay for standing in another
    order than their points. Labels take their cheapest place in turn until nobody moves (coordinate
    descent), from three starting orders, of which the cheapest result stays.

    Examples
    --------
    Two labels on one point: the first above, the second beside it.

    >>> first, second = place([Anchor(50, 50, 6, 6)] * 2, Box(0, 0, 100, 100), marker_radius=3)
    >>> first.bottom > 53, overlap(first, second)
    (True, 0)
    """
    markers = [(anchor.x, anchor.y) for anchor in anchors] + list(obstacles)
    candidates = [
        _candidates(anchor, bounds, marker_radius, markers, segments) for anchor in anchors
    ]
    numbers = range(len(anchors))
    rising = sorted(numbers, key=lambda number: anchors[number].y)
    reach = [_hull([box for _, box in options]) for options in candidates]
    # labels whose places never meet cost each other nothing
    near = [[j for j in numbers if j != i and overlap(reach[i], reach[j])] for i in numbers]
    results = [
        _descend(anchors, candidates, near, order) for order in (numbers, rising, rising[::-1])
    ]
    return min(results, key=lambda result: result[0])[1]


def _hull(boxes: Sequence[Box]) -> Box:
    left, bottom, right, top = zip(*boxes, strict=True)
    return Box(min(left), min(bottom), max(right), max(top))


def _descend(
    anchors: Sequence[Anchor],
    candidates: Sequence[list[tuple[float, Box]]],
    near: Sequence[list[int]],
    order: Sequence[int],
) -> tuple[float, list[Box]]:
    chosen: dict[int, tuple[float, Box]] = {}
    for _ in range(_SWEEPS):
        before = dict(chosen)
        for number in order:
            anchor = anchors[number]
            others = [
                (anchors[other], chosen[other][1]) for other in near[number] if other in chosen
            ]
            chosen[number] = min(
                candidates[number],
                key=lambda option: (
                    option[0] + sum(_between(anchor, option[1], *other) for other in others)
                ),
            )
        if chosen == before:
            break
    pairs = [(i, j) for i in chosen for j in near[i] if i < j]
    total = sum(cost for cost, _ in chosen.values())
    total += sum(_between(anchors[i], chosen[i][1], anchors[j], chosen[j][1]) for i, j in pairs)
    return total, [chosen[number][1] for number in range(len(anchors))]


def _between(anchor: Anchor, box: Box, other_anchor: Anchor, other: Box) -> float:
    """Give the cost of two labels for each other: their overlap, and standing in the wrong
    order."""
    cost = _ON_LABEL * overlap(box, other)
    if abs(anchor.x - other_anchor.x) < anchor.width and anchor.y != other_anchor.y:
        rise = box.bottom - other.bottom if anchor.y > other_anchor.y else other.bottom - box.bottom
        cost += _INVERTED * max(0.0, -rise)
    return cost


def _candidates(
    anchor: Anchor,
    bounds: Box,
    radius: float,
    markers: Sequence[tuple[float, float]],
    segments: Sequence[Segment],
) -> list[tuple[float, Box]]:
    width, height = anchor.width, anchor.height
    up, aside = radius + 1 + height / 2, radius + 1 + width / 2  # the label touches the marker
    offsets = [(0.0, up + step * height / 2, 0.0) for step in range(9)]
    offsets += [(0.0, -up - step * height / 2, _BELOW) for step in range(9)]
    for x in (aside, -aside, aside + width + 1, -aside - width - 1):
        offsets += [
            (x, step * height / 2, _BESIDE if step >= 0 else _BELOW) for step in range(-10, 11)
        ]
    options = []
    for x, y, preference in offsets:
        left, bottom = anchor.x + x - width / 2, anchor.y + y - height / 2
        box = Box(left, bottom, left + width, bottom + height)
        distance = hypot(x, y)
        nearest = min(hypot(anchor.x + x - mx, anchor.y + y - my) for mx, my in markers)
        cost = preference + _DISTANCE * distance + _CONFUSED * (distance - nearest)
        cost += _OUTSIDE * (width * height - overlap(box, bounds))
        cost += sum(
            _ON_MARKER * overlap(box, Box(mx - radius, my - radius, mx + radius, my + radius))
            for mx, my in markers
        )
        cost += _ON_LINE * sum(length_inside(segment, box) for segment in segments)
        options.append((cost, box))
    return options
