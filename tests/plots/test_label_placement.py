"""Labels keep clear of each other and stay in the frame, whatever the points."""

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from plots.draw.labels import Anchor, Box, length_inside, overlap, place

FRAME = Box(0, 0, 213, 198)  # the axes of one panel, in points
COLUMNS = (21, 78, 135, 192)
RADIUS = 2.8


def overlap_by_sampling(one, other, step=0.25):
    """Count the centres of a fine grid that lie in both boxes."""
    inside = 0
    for i in range(int(20 / step)):
        for j in range(int(20 / step)):
            x, y = (i + 0.5) * step, (j + 0.5) * step
            inside += all(b.left < x < b.right and b.bottom < y < b.top for b in (one, other))
    return inside * step * step


boxes = st.builds(
    lambda x, y, w, h: Box(x, y, x + w, y + h), *[st.integers(0, 9)] * 2, *[st.integers(1, 10)] * 2
)


@settings(max_examples=15, deadline=None)
@given(boxes, boxes)
def test_the_overlap_of_two_boxes_is_the_area_in_both(one, other):
    assert overlap(one, other) == overlap_by_sampling(one, other)


@settings(max_examples=60, deadline=None)
@given(st.tuples(*[st.floats(-10, 20)] * 4), boxes)
def test_the_length_inside_a_box_is_that_of_the_sampled_points_inside(segment, box):
    x0, y0, x1, y1 = segment
    length = ((x1 - x0) ** 2 + (y1 - y0) ** 2) ** 0.5
    samples = 2000
    inside = 0
    for number in range(samples):
        t = (number + 0.5) / samples
        x, y = x0 + t * (x1 - x0), y0 + t * (y1 - y0)
        inside += box.left <= x <= box.right and box.bottom <= y <= box.top
    assert (
        abs(length_inside(segment, box) - length * inside / samples) <= length * 2 / samples + 1e-9
    )


anchors = st.builds(
    Anchor,
    st.sampled_from(COLUMNS),
    st.floats(0, 190),
    st.sampled_from([5.0, 11.0, 16.0]),
    st.just(6.0),
)


@settings(max_examples=25, deadline=None)
@given(st.lists(anchors, max_size=24))
def test_no_two_labels_overlap_and_none_leaves_the_frame(points):
    placed = place(points, FRAME, RADIUS)
    assert len(placed) == len(points)
    for one, other in combinations(placed, 2):
        assert overlap(one, other) < 1e-6
    for anchor, box in zip(points, placed, strict=True):
        assert abs(overlap(box, FRAME) - anchor.width * anchor.height) < 1e-6


def test_nine_labels_on_one_point_are_all_readable():
    placed = place([Anchor(192, 100, 16, 6)] * 9, FRAME, RADIUS)
    assert all(overlap(one, other) < 1e-6 for one, other in combinations(placed, 2))
    marker = Box(192 - RADIUS, 100 - RADIUS, 192 + RADIUS, 100 + RADIUS)
    assert all(overlap(box, marker) < 1e-6 for box in placed)


def test_a_label_alone_stands_above_its_point():
    (box,) = place([Anchor(78, 50, 5, 6)], FRAME, RADIUS)
    assert box.bottom >= 50 + RADIUS and (box.left + box.right) / 2 == 78


def test_a_label_moves_aside_for_a_line_through_the_place_above():
    (box,) = place([Anchor(78, 50, 5, 6)], FRAME, RADIUS, segments=[(60, 57, 100, 57)])
    assert length_inside((60, 57, 100, 57), box) == 0


def test_a_label_does_not_cover_a_marker_without_label():
    (box,) = place([Anchor(78, 50, 5, 6)], FRAME, RADIUS, obstacles=[(78, 57)])
    assert overlap(box, Box(78 - RADIUS, 57 - RADIUS, 78 + RADIUS, 57 + RADIUS)) == 0


def test_the_same_points_give_the_same_places():
    points = [Anchor(x, 40 + 3 * (x % 7), 11, 6) for x in COLUMNS for _ in range(4)]
    assert place(points, FRAME, RADIUS) == place(points, FRAME, RADIUS)
