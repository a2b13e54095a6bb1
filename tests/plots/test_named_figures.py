"""Every figure that ``drbench plot`` knows: drawn from any records, readable, the same
bytes every time."""

import random
import sys
from dataclasses import replace
from functools import cache
from xml.etree import ElementTree

import pytest
from boxes import Box, overlap
from figure_records import case, comparison, exhaustive, published, sweep, weak
from matplotlib.text import Text

import plots.figures
from plots.draw.description import describe_picture
from plots.draw.page import PageStyle, save
from plots.registry import draw, figures, find, suffixes
from plots.select.cases import Options, SelectionError
from plots.select.records import read_records

#: Figures that cannot be made of one case of MLP-1, and their messages.
ALONE = {
    "strong": "no problem",
    "weak": "no work a rank",
    "mlp2": "no case of mlp2 in 1 records: none has k = 4n",
}


#: The figures that are drawn from records; timeline reads traces
#: (tests/launch/commands/test_mesh_commands.py).
OF_RECORDS = sorted(name for name, figure in figures().items() if figure.read is read_records)


@pytest.fixture(scope="module")
def rich():
    """Records from which every figure can be drawn: all algorithms, several shapes and numbers of
    ranks."""
    return [
        *exhaustive(ranks=2)[::4],
        *comparison(),
        *weak(),
        *sweep(ranks=2, h=64, quantity="percent_of_gemm_only")[:120],
    ]


@pytest.fixture(scope="module")
def made(rich):
    """``made(name)``: the figure of these records, made once."""
    return cache(lambda name: find(name).make(rich, Options()))


@pytest.fixture(scope="module")
def hostile(rich):
    """The same with many strange names."""
    chance = random.Random(5)
    strange = [
        "$x^{",
        "_hidden",
        "<script>alert(1)</script>",
        "a" * 300,
        "\\frac{1}{0}$",
        "日本 € ✓",
        "=cmd()",
        "%s {0} \x07",
        " ",
    ]
    return [
        replace(
            r,
            algorithm=r.algorithm
            if chance.random() < 0.5
            else f"{chance.choice(strange)}{chance.randrange(30)}",
            label=chance.choice(strange[:2]),
        )
        for r in rich[::3]
    ]


def texts_with_boxes(picture):
    """Every text that is drawn, with its box; ticks outside their axis are not drawn."""
    picture.draw_without_rendering()
    renderer = picture.canvas.get_renderer()
    outside = set()
    for axes in picture.axes:
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
                if not low <= tick.get_loc() <= high:
                    outside |= {id(tick.label1), id(tick.label2)}
    for text in picture.findobj(Text):
        if text.get_visible() and text.get_text().strip() and id(text) not in outside:
            extent = text.get_window_extent(renderer)
            yield text.get_text(), Box(extent.x0, extent.y0, extent.x1, extent.y1)


def check_readable(picture):
    """No two texts overlap, none leaves the page; a sweep line keeps this from being quadratic."""
    width, height = picture.canvas.get_width_height()
    placed = sorted(texts_with_boxes(picture), key=lambda item: item[1].left)
    assert placed
    open_boxes = []
    for text, box in placed:
        assert (
            box.left >= -1 and box.right <= width + 1 and box.bottom >= -1 and box.top <= height + 1
        ), text
        open_boxes = [
            (other, other_box) for other, other_box in open_boxes if other_box.right > box.left
        ]
        for other, other_box in open_boxes:
            assert overlap(box, other_box) <= 0.12 * min(_area(box), _area(other_box)) + 4, (
                text,
                other,
            )
        open_boxes.append((text, box))


def _area(box):
    return (box.right - box.left) * (box.top - box.bottom)


def test_a_file_in_plots_is_all_a_figure_needs(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(
        "from matplotlib.figure import Figure as F\nfrom plots.registry import Figure, Made\n"
        "FIGURES = (Figure('mine', 'of my own', lambda records, options: Made(F(), "
        "[str(len(records))])),)\n"
    )
    monkeypatch.setattr(plots.figures, "__path__", [*plots.figures.__path__, str(tmp_path)])
    try:
        assert "mine" in figures() and find("mine").summary == "of my own"
        assert draw("mine", [], tmp_path / "x.png").notes == ["0"]
    finally:
        sys.modules.pop("plots.figures.mine", None)


@pytest.mark.parametrize("name", ["best", "weak"])
def test_the_order_of_the_records_changes_neither_what_is_drawn_nor_its_bytes(
    rich, made, name, tmp_path
):
    shuffled = rich[:]
    random.Random(3).shuffle(shuffled)
    formats = [".txt", ".pdf", ".png", ".svg"] if name == "weak" else [".txt"]
    first = save(made(name).picture, tmp_path / "one", formats)
    second = draw(name, shuffled, tmp_path / "two", formats)
    assert made(name).notes == second.notes
    for one, two in zip(first, second.paths):
        written = one.read_bytes()
        assert written == two.read_bytes() != b"", one.suffix
        assert b"CreationDate" not in written and b"dc:date" not in written


@pytest.mark.parametrize("name", ["best", "algorithms", "strong"])
def test_texts_neither_overlap_nor_leave_the_page(made, name):
    check_readable(made(name).picture)


def test_strange_and_many_names_are_texts_and_no_markup(hostile):
    """A character that the font lacks is a box, of which matplotlib warns."""
    with pytest.warns(UserWarning, match="missing from font"):
        made = find("algorithms").make(hostile, Options())
        check_readable(made.picture)
    assert made.picture.get_size_inches()[1] < 60
    described = describe_picture(made.picture)
    for name in ("$x^{", "<script>", "\\frac{1}{0}$", "日本 € ✓", "=cmd()"):
        assert name in described, name


@pytest.mark.parametrize("name", OF_RECORDS)
def test_one_point_is_a_figure_or_a_reason(name, tmp_path):
    one = [case(percent_of_gemm_only=50.0, gemm_only_gflops=9.0)]
    if name in ALONE:
        with pytest.raises(SelectionError, match=ALONE[name]):
            draw(name, one, tmp_path / "one")
        assert list(tmp_path.iterdir()) == []
    else:
        check_readable(find(name).make(one, Options()).picture)


def test_failed_cases_are_counted_by_status_not_drawn_and_unstable_cases_are_listed():
    records = [case(stable=True), case(a="block", stable=False), case(status="timeout")]
    for name in ("best", "volume", "algorithms", "libraries"):
        made = find(name).make(records, Options())
        assert "not drawn: 1 case not ok (1 timeout)" in made.notes
        described = " ".join(describe_picture(made.picture).split())
        assert "1 case not stable: the median is not known within 2 %" in described, name


def test_cases_that_move_nothing_are_left_out_when_asked():
    records = [case(best_s=0.5, get_bytes=0), case(best_s=1.0, a="column")]
    for name in ("best", "volume", "algorithms", "libraries"):
        made = find(name).make(records, Options(moving_only=True))
        assert "not drawn: 1 case that move no bytes" in made.notes
        still = {
            # another problem
            **dict.fromkeys(("algorithms", "libraries"), ["not drawn: 1 case moving nothing"]),
            "volume": ["not drawn: 1 case that move no bytes"],
        }
        assert find(name).make(records, Options()).notes == still.get(name, [])


def test_a_shape_is_chosen_and_others_are_named(tmp_path):
    records = [case(m=m) for m in range(1, 12)]
    notes = draw("volume", records, tmp_path / "all.txt").notes
    assert notes == [
        "not drawn: 5 shapes more (7 × 256 × 64, 8 × 256 × 64, 9 × 256 × 64, 10 × 256 × 64, 11 × "
        "256 × 64); --shape chooses one"
    ]
    assert draw("volume", records, tmp_path / "one.txt", shape=(9, 256, 64)).notes == []
    with pytest.raises(SelectionError, match="no case of shape 99x256x64; there are 1x256x64"):
        draw("volume", records, tmp_path / "one", shape=(99, 256, 64))


def test_the_suffix_selects_the_format_and_an_svg_is_light_or_dark_as_the_reader_likes(tmp_path):
    for out, expected in (
        ("a.pdf", ["a.pdf"]),
        ("b.png", ["b.png"]),
        ("c", ["c.pdf", "c.png"]),
        ("d.svg", ["d.svg"]),
        ("e.txt", ["e.txt"]),
    ):
        assert [path.name for path in draw("volume", [case()], tmp_path / out).paths] == expected
    text = (tmp_path / "d.svg").read_text()
    assert "prefers-color-scheme: dark" in text and ElementTree.fromstring(text).tag.endswith("svg")
    with pytest.raises(SelectionError, match=r"got '\.gif'"):
        suffixes("x.gif")


def test_published_lines_are_in_a_panel_of_their_machine_and_problem_only():
    def drawn(*sources):
        picture = (
            find("mlp1").make([each for every in sources for each in every], Options()).picture
        )
        check_readable(picture)
        return {
            axes.described.partition("\n")[2]: any(
                "DT" in getattr(line, "described", "") for line in axes.lines
            )
            for axes in picture.axes
            if axes.axison
        }

    simulated = [r for r in sweep(ranks=12)[::16] if r.mode == "simulated"]
    measured = [replace(r, mode="measured", label="laptop") for r in simulated]
    h100 = [replace(r, label="h100x4", ranks=4) for r in simulated]
    pvc, alone = "12 ranks, pvc12, float32, simulated", "8 ranks, h100x8, float32, published"
    assert drawn(published(), measured, simulated) == {
        "12 ranks, laptop, float32, measured": False,
        pvc: False,
        alone: True,
    }
    assert drawn(published(), h100, simulated) == {
        "4 ranks, h100x4, float32, simulated": True,
        pvc: False,
    }
    other = [replace(r, n=64, k=16) for r in h100]
    assert drawn(published(), other) == {"4 ranks, h100x4, float32, simulated": False, alone: True}


def test_measured_libraries_are_preferred_to_published_ones():
    ours = case(mode="measured", label="here", ranks=2)
    theirs = case(
        mode="measured",
        label="here",
        ranks=2,
        algorithm="dtensor",
        preset="row",
        stationary=None,
        percent_of_peak=33.0,
    )
    panels = find("mlp1").make([ours, theirs, *published(64)], Options())
    assert sum(axes.axison for axes in panels.picture.axes) == 2
    first = panels.picture.axes[0]
    assert sorted(
        y
        for line in first.lines
        for y in line.get_ydata()
        if line.get_marker() not in (None, "None") and y == y
    ) == [33.0, 50.0]


@pytest.mark.parametrize("name", ["mlp", "libraries"])
def test_a_figure_is_as_wide_as_asked_with_a_title_of_its_own_and_without_small_print(
    rich, made, name
):
    narrow = find(name).make(rich, Options(), PageStyle(3.4, "of my own", notes=False)).picture
    check_readable(narrow)
    assert narrow.get_size_inches()[0] == 3.4 and made(name).picture.get_size_inches()[0] == 7
    texts = [text.get_text() for text in narrow.texts]
    assert texts.count("of my own") == 1
    assert not any(text.startswith(("Dot: ", "S-C, ")) for text in texts)
