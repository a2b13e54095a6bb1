"""The figure ``choice``: times with intervals and measured medians as they are, and each matrix cut
as it is laid out."""

import pytest

from plots.draw.telling import tell
from plots.figures.choice import ROWS, ChoiceRow, finding, parts
from plots.registry import draw, find
from plots.select.cases import Options, SelectionError

CHAIN = [
    ChoiceRow("mlp on 4 ranks", 4, "time", "chosen", 2e-3, 1.5e-3, 2.75e-3, 1.9e-3),
    ChoiceRow("mlp on 4 ranks", 4, "time", "megatron", 3e-3),
    ChoiceRow(
        "mlp on 4 ranks", 4, "step", "Y = X·W", None, None, None, None, "X row; W R; Y row",
        "universal C", 3 << 20,
    ),
    ChoiceRow("mlp on 4 ranks", 4, "step", "H = relu(Y)", layouts="Y row; H row", how="own tiles"),
]  # fmt: skip


def test_dots_are_the_times_and_lines_their_intervals():
    made = find("choice").make(CHAIN, Options())
    bars, _ = made.picture.axes
    dots = [list(line.get_xdata()) for line in bars.lines if line.get_marker() == "o"]
    assert sorted(dots) == [[2.0], [3.0]]  # in ms
    (ends,) = [each.get_paths() for each in bars.collections]
    assert [(path.vertices[0][0], path.vertices[1][0]) for path in ends] == [(1.5, 2.75)]
    measured = [list(line.get_xdata()) for line in bars.lines if line.get_marker() == "D"]
    assert measured == [[1.9]]
    assert [label.told for label in bars.get_yticklabels()] == ["chosen", "megatron"]


@pytest.mark.parametrize(
    "low, told",
    [
        (2.5e-3, "The model does not tell chosen from 1 of 1 others"),
        (2.9e-3, "chosen is the fastest: the next takes 1.5 × its time"),
    ],
)
def test_the_finding_is_whether_the_first_is_told_apart(low, told):
    rows = [CHAIN[0], CHAIN[1]._replace(low_s=low, high_s=3.5e-3)]
    assert finding(rows) == told


def test_a_line_says_what_an_operation_takes_and_makes_how_and_what_moves():
    told = tell(find("choice").make(CHAIN, Options()).picture)
    for text in ("Y = X·W", "universal C", "3 MiB move", "nothing moves", "own tiles", "H row"):
        assert f": {text}\n" in told
    assert "layouts of the chosen" in told
    rows = next(line for line in told.splitlines() if "spans, X row" in line)
    assert rows.count(" to ") == 2 * 4  # a stripe a rank
    assert next(line for line in told.splitlines() if "spans, W R" in line).count(" to ") == 2


@pytest.mark.parametrize(
    "layout, ranks, down, across",
    [
        ("row", 4, 4, 1),
        ("column", 4, 1, 4),
        ("block", 6, 2, 3),
        ("block:3x2", 6, 3, 2),
        ("block:4x2:col", 8, 4, 2),
        ("row/c2", 8, 4, 1),
        ("R", 8, 1, 1),
        ("P", 8, 1, 1),
        ("row", 64, 8, 1),  # of many ranks the first few
    ],
)
def test_a_square_is_cut_as_the_matrix_is(layout, ranks, down, across):
    boxes, colors = parts(layout, ranks)
    wanted = {(j / across, i / down) for i in range(down) for j in range(across)}
    assert {box[:2] for box in boxes} == wanted and len(boxes) == len(colors)
    area = sum((x1 - x0) * (y1 - y0) for x0, y0, x1, y1 in boxes)
    assert area == pytest.approx(1)


def test_long_names_keep_their_whole_text_and_the_rest_is_counted():
    name = "universal with a very long list of options that nobody can read in a margin"
    rows = [ChoiceRow("p", 2, "time", f"{at} {name}", 1.0 + at) for at in range(20)]
    made = find("choice").make(rows, Options())
    labels = made.picture.axes[0].get_yticklabels()
    assert len(labels) == 16 and labels[0].told == f"0 {name}" and "…" in labels[0].get_text()
    assert made.notes == ["p: 4 more contenders"]


def test_rows_are_read_back_and_nothing_to_draw_is_refused(tmp_path):
    ROWS.write(tmp_path / "rows.csv", CHAIN)
    assert ROWS.read([tmp_path / "rows.csv"]) == CHAIN
    (path,) = draw("choice", [tmp_path / "rows.csv"], tmp_path / "out.txt").paths
    assert "mlp on 4 ranks" in path.read_text()
    with pytest.raises(SelectionError, match="drbench chain"):
        draw("choice", [], tmp_path / "none.png")
