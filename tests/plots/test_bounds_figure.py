"""``drbench plot bounds``: needed bytes over the lower bound, from rows with known ratios."""

from math import isnan

import pytest

from plots.draw.telling import tell
from plots.figures.bounds import ROWS, BoundsRow
from plots.registry import draw, find
from plots.select.cases import Options, SelectionError

CUBE = (64, 64, 64)


def row(name, ranks, ratio, shape=CUBE, **more):
    known = dict(zip("mnk", shape)) | {"dtype": "float32", "ranks": ranks, "limit_bytes": None}
    known |= {
        "bound_bytes": 1000.0,
        "family": "2-D",
        "name": name,
        "how": "S-C",
        "share": 1.0,
        "reason": "",
    }
    known |= {"needed_bytes": int(1000 * ratio), "moved_bytes": 1, "memory_bytes": 2}
    return BoundsRow(**known | more)


def of_each(names, shape=CUBE):
    return [row(name, p, 1 + at, shape) for at, name in enumerate(names) for p in (2, 4, 8)]


def refused(name, ranks):
    empty = dict.fromkeys(("needed_bytes", "moved_bytes", "memory_bytes", "share"))
    return row(name, ranks, 1, reason="no square mesh", **empty)


def test_each_shape_has_a_panel_with_the_ratios_as_they_are():
    rows = of_each(["best", "worse"])
    rows += [each._replace(family="3-D") for each in of_each(["optimal"], (512, 64, 64))]
    rows += [each._replace(needed_bytes=2000) for each in of_each(["row"], (512, 64, 64))]
    made = find("bounds").make([*rows, refused("cannon", 8)], Options())
    square, tall = made.picture.axes
    one, two = (1.0,) * 3, (2.0,) * 3
    for axes, expected in ((square, {one}), (tall, {one, two})):
        assert axes.get_xscale() == axes.get_yscale() == "log"
        lines = {tuple(line.get_ydata()) for line in axes.lines if len(line.get_xdata()) == 3}
        assert lines == expected
    said = tell(made.picture)
    assert "square: 64 × 64 × 64" in said and "tall: 512 × 64 × 64" in said
    assert "lower bound" in said


def test_a_line_is_the_best_of_its_family_at_each_number_of_ranks():
    rows = [row("a", 2, 3), row("b", 2, 2), row("a", 4, 1.5), row("b", 4, 2), row("c", 8, 4)]
    rows += [row("d", 4, 1.1, family="1-D"), refused("e", 8)]
    made = find("bounds").make(rows, Options())
    lines = {line.get_color(): list(line.get_ydata()) for line in made.picture.axes[0].lines}
    assert lines["#E69F00"] == [2.0, 1.5, 4.0]
    assert lines["#CC79A7"][1] == 1.1 and isnan(lines["#CC79A7"][0])
    assert made.notes == ["1-D: d", "2-D: the best of a, b, c"]


def test_of_several_rows_of_one_kind_the_latest_is_drawn(tmp_path):
    rows = [*of_each(["block"]), row("block", 4, 1.5)]
    ROWS.write(tmp_path / "needs.csv", rows)
    assert ROWS.read([tmp_path]) == rows
    made = find("bounds").make(ROWS.read([tmp_path / "needs.csv"]), Options())
    (line,) = [line for line in made.picture.axes[0].lines if len(line.get_ydata()) == 3]
    assert list(line.get_ydata()) == [1.0, 1.5, 1.0]
    (path,) = draw("bounds", rows, tmp_path / "needs.png").paths
    assert path.stat().st_size > 10_000


def test_nothing_to_draw_is_said(tmp_path):
    with pytest.raises(SelectionError, match="drbench bounds --csv"):
        find("bounds").make([refused("cannon", 8)], Options())
    (tmp_path / "x.csv").write_text("a,b\n")
    with pytest.raises(ValueError, match="x.csv holds no needs: its columns are a, b. Use"):
        ROWS.read([tmp_path / "x.csv"])
