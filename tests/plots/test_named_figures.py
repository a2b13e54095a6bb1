"""Every figure that ``drbench plot`` knows: drawn from any records, readable, the same
bytes every time."""

import itertools
import random
import re
import sys
import warnings
from dataclasses import replace
from itertools import combinations
from xml.etree import ElementTree

import pytest
from boxes import Box, overlap
from figure_records import case, comparison, exhaustive, published, sweep, weak
from matplotlib.text import Text

import drbench.launch.papers
import drbench.plots.figures
from drbench.plots.draw import style
from drbench.plots.draw.description import describe_picture
from drbench.plots.draw.page import PageStyle, line_keywords, save
from drbench.plots.draw.svg import description_in
from drbench.plots.registry import draw, figures, find, suffixes
from drbench.plots.select.cases import Options, SelectionError
from drbench.plots.select.records import read_records

#: Figures that cannot be made of one case of MLP-1, and their messages.
ALONE = {
    "strong": "no problem",
    "weak": "no work a rank",
    "operations": "there is no chain to draw. Predict one",
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
        *exhaustive(ranks=2)[::16],
        *comparison(),
        *weak(),
        *sweep(ranks=2, h=64, quantity="percent_of_gemm_only")[:120],
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
    """No two texts overlap, none leaves the page."""
    width, height = picture.canvas.get_width_height()
    placed = list(texts_with_boxes(picture))
    assert placed
    for text, box in placed:
        assert min(box.left, box.bottom, width - box.right, height - box.top) >= -1, text
    area = lambda box: (box.right - box.left) * (box.top - box.bottom)
    for (text, box), (other, beside) in combinations(placed, 2):
        both = overlap(box, beside)
        assert both <= 4 or both <= 0.12 * min(area(box), area(beside)) + 4, (text, other)


def test_a_file_in_plots_is_all_a_figure_needs(tmp_path, monkeypatch):
    (tmp_path / "mine.py").write_text(
        "from matplotlib.figure import Figure as F\n"
        "from drbench.plots.draw.figure import Figure, Made\n"
        "FIGURES = (Figure('mine', 'of my own', lambda records, options: Made(F(), "
        "[str(len(records))])),)\n"
    )
    monkeypatch.setattr(
        drbench.plots.figures, "__path__", [*drbench.plots.figures.__path__, str(tmp_path)]
    )
    try:
        assert "mine" in figures() and find("mine").summary == "of my own"
        assert draw("mine", [], tmp_path / "x.png").notes == ["0"]
    finally:
        sys.modules.pop("drbench.plots.figures.mine", None)


def test_the_order_of_the_records_changes_neither_what_is_drawn_nor_its_bytes(tmp_path):
    records = weak()
    shuffled = random.Random(3).sample(records, len(records))
    files = []
    for name, each in ("one", records), ("two", shuffled):
        made = find("weak").make(each, Options())
        files.append(save(made.picture, tmp_path / name, [".txt", ".pdf", ".png", ".svg"]))
    for one, two in zip(*files, strict=True):
        written = one.read_bytes()
        assert written == two.read_bytes() != b"", one.suffix
        assert b"CreationDate" not in written and b"dc:date" not in written


@pytest.mark.parametrize("name", ["algorithms", "best", "mlp", "strong"])
def test_texts_neither_overlap_nor_leave_the_page_nor_are_too_small(rich, name):
    picture = find(name).make(rich, Options()).picture
    check_readable(picture)
    texts = [text for text in picture.findobj(Text) if text.get_text().strip()]
    assert min(text.get_fontsize() for text in texts) >= style.SMALL_PT == 6.5


def test_a_star_is_as_legible_as_other_markers():
    """Six pixels at the width of a page, 672 pixels; its arms are thin."""
    pixels = 96 / 72 * line_keywords(style.style_of("heat"))["markersize"]
    assert style.style_of("heat").marker == "*" and pixels >= 1.5 * 6


@pytest.mark.parametrize("name", ["algorithms", "mlp1"])
def test_a_title_names_what_fits_in_two_rows_and_counts_the_others(name):
    layouts = list(itertools.product(("row", "column", "block"), repeat=3))
    records = [
        case(**dict(zip("abc", forms)), algorithm=f"an_algorithm_with_a_long_name_{at}")
        if name == "algorithms"
        else case(**dict(zip("abc", forms)))
        for at, forms in enumerate(layouts)
    ]
    picture = find(name).make(records, Options(), PageStyle(3.4)).picture
    bold = [text.get_text() for text in picture.texts if text.get_fontsize() > style.FONT_PT + 1.2]
    assert len(bold) <= 2 and re.search(r"and \d+ more", " ".join(bold))


def test_strange_and_many_names_are_texts_and_no_markup():
    """matplotlib warns of a character that the font lacks, and draws a box."""
    strange = [
        "$x^{",
        "_hidden",
        "<script>",
        "a" * 30,
        "\\frac{1}{0}$",
        "日本 € ✓",
        "%s {0} \x07",
        " ",
    ]
    chance = random.Random(5)
    hostile = [
        replace(each, algorithm=f"{chance.choice(strange)}{chance.randrange(9)}", label="$x^{")
        for each in comparison(shapes=((64, 768, 192),))
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = find("algorithms").make(hostile, Options())
        check_readable(made.picture)
    assert made.picture.get_size_inches()[1] < 60
    described = describe_picture(made.picture)
    for name in ("$x^{", "<script>", "\\frac{1}{0}$", "日本 € ✓"):
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


@pytest.mark.parametrize("name", ["best", "volume", "algorithms", "libraries"])
def test_cases_that_failed_or_move_nothing_are_counted_and_unstable_ones_are_listed(name):
    records = [case(a="block", stable=False), case(status="timeout"), case(get_bytes=0)]
    made = find(name).make(records, Options(moving_only=True))
    assert "not drawn: 1 case not ok (1 timeout)" in made.notes
    assert "not drawn: 1 case that move no bytes" in made.notes
    described = " ".join(describe_picture(made.picture).split())
    assert "1 case not stable: the median is not known within 2 %" in described
    whole = find(name).make(records, Options())
    assert any("case mov" in note or "move no" in note for note in whole.notes) == (name != "best")


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
    assert description_in(text) == (tmp_path / "e.txt").read_text()
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
    library = {"algorithm": "dtensor", "preset": "row", "stationary": None}
    theirs = case(mode="measured", label="here", ranks=2, percent_of_peak=33.0, **library)
    panels = find("mlp1").make([ours, theirs, *published(64)], Options()).picture.axes
    assert sum(axes.axison for axes in panels) == 2
    points = [line for line in panels[0].lines if line.get_marker() not in (None, "None")]
    assert sorted(y for line in points for y in line.get_ydata() if y == y) == [33.0, 50.0]


def test_a_figure_is_as_wide_as_asked_with_a_title_of_its_own_and_without_small_print(rich):
    narrow = (
        find("libraries").make(rich, Options(), PageStyle(3.4, "of my own", notes=False)).picture
    )
    check_readable(narrow)
    assert narrow.get_size_inches()[0] == 3.4
    texts = [text.get_text() for text in narrow.texts]
    assert texts.count("of my own") == 1
    assert not any(text.startswith("Dot: ") for text in texts)


@pytest.mark.thorough
@pytest.mark.parametrize("family", ["serif", "STIXGeneral"])
def test_a_figure_for_a_paper_has_its_font_height_and_no_title(rich, tmp_path, family):
    page_style = PageStyle(6.5, " ", False, family)
    figure = find("libraries")
    low, high = (figure.make(rich, Options(height=x), page_style).picture for x in (1.0, 1.5))
    check_readable(high)
    panels = [round(axes.get_position().height * high.get_figheight(), 3) for axes in high.axes]
    assert {*panels} == {1.5}
    assert low.get_figheight() < high.get_figheight()
    titled = figure.make(rich, Options(height=1.5), page_style._replace(title="a title")).picture
    assert len(titled.texts) == len(high.texts) + 1
    (path,) = save(high, tmp_path / "paper.pdf", [".pdf"])
    content = path.read_bytes()
    name = {"serif": b"DejaVuSerif", "STIXGeneral": b"STIXGeneral"}[family]
    fonts = re.findall(rb"/BaseFont /[A-Z]+\+(\w+)", content)
    assert fonts and all(font.startswith(name) for font in fonts)
    assert content.count(b"/FontFile2") and b"/Type3" not in content  # TrueType, whole
    with pytest.raises(SelectionError, match="no font 'No Such'"):
        figure.make(rich, Options(), PageStyle(font="No Such"))
    with pytest.raises(SelectionError, match="--height"):
        draw("best", rich, tmp_path / "best.pdf", height=2.0)
