"""The figure shows every selected point, says what it does not show, and can be read."""

import subprocess
import sys
from dataclasses import replace

import matplotlib
import pytest
from colours import seen_by
from figure_records import case, sweep
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_hex

from plots.draw.style import STYLES
from plots.draw.telling import tell
from plots.figures.mlp import ends, figure
from plots.registry import draw
from plots.select.cases import SelectionError
from plots.select.selection import select


@pytest.fixture(scope="module")
def twelve():
    return sweep(ranks=12)


@pytest.fixture(scope="module")
def four():
    """A small measured sweep without a sourced peak, without peers, with some points above 100."""
    records = [
        r for r in sweep(ranks=4, h=512, quantity="percent_of_roof") if r.mode != "published"
    ]
    raised = [
        replace(r, percent_of_roof=r.percent_of_roof and 1.22 * r.percent_of_roof) for r in records
    ]
    return [
        replace(r, mode="measured", machine="laptop", iters=10)
        for r in raised
        if (r.a[:5], r.m) != ("block", 4096)
    ]


@pytest.fixture(scope="module")
def picture(twelve):
    return figure({layer: select(twelve, layer) for layer in ("mlp1", "mlp2")})


def rows_of(picture):
    return [text.get_text() for text in picture.texts]


def test_every_selected_point_is_drawn_at_its_value_and_no_other(twelve, picture):
    for axes, layer in zip(picture.axes[:2], ("mlp1", "mlp2"), strict=True):
        shown = set()
        for line in axes.lines:
            if line.get_marker() not in (None, "None"):
                shown |= {
                    (to_hex(line.get_color()).upper(), x, y)
                    for x, y in zip(*line.get_data(), strict=True)
                }
        expected = {
            (STYLES[line.name].color.upper(), point.m, point.value)
            for line in select(twelve, layer)
            for point in line.points
        }
        assert shown == expected and len(expected) == 36


def test_factors_are_said_where_one_is_not_1(twelve, picture):
    (told,) = [text.told for text in picture.texts if "eplication factors" in text.told]
    for layer in ("mlp1", "mlp2"):
        for line in select(twelve, layer):
            factors = [point.factor for point in line.points]
            said = f"{line.legend.removeprefix('UA - ')} {', '.join(factors)}"
            assert (said in told) == any(each not in ("", "1") for each in factors)


def test_panels_share_an_axis_and_lines_have_their_names_at_their_ends(twelve, picture):
    first, second = picture.axes
    assert first.get_ylim() == second.get_ylim()
    names = {line.legend.removeprefix("UA - ") for line in select(twelve, "mlp1") if line.points}
    assert {text.told for text in first.texts} == names


def test_the_ticks_are_the_batch_sizes_on_a_log2_axis(picture):
    for axes in picture.axes[:2]:
        assert list(axes.get_xticks()) == [1024, 2048, 4096, 8192]
        assert [label.get_text() for label in axes.get_xticklabels()] == [
            "1024",
            "2048",
            "4096",
            "8192",
        ]
        assert axes.get_xscale() == "log" and len(axes.get_xticks(minor=True)) == 0
        places = axes.transData.transform([(m, 0) for m in (1024, 2048, 4096, 8192)])[:, 0]
        assert max(abs((places[1:] - places[:-1]) - (places[1] - places[0]))) < 1e-6


def test_the_axis_fits_the_data_or_is_the_papers_and_names_peak_and_devices(twelve, picture):
    axes = picture.axes[1]
    values = [point.value for line in select(twelve, "mlp2") for point in line.points]
    low, high = axes.get_ylim()
    assert low <= min(values) < max(values) <= high
    assert axes.get_ylabel() == "percent of peak (%), all 12 ranks together"
    assert axes.told.splitlines() == [
        "MLP-2:  n = 12288, k = 49152",
        "12 ranks, pvc12, float32, simulated",
    ]
    paper = figure({"mlp2": select(twelve, "mlp2")}, "paper").axes[0]
    assert paper.get_ylim() == (0, 100) and list(paper.get_yticks()) == [*range(0, 101, 10)]


@given(st.lists(st.floats(1, 300), min_size=1, max_size=9))
def test_a_fitted_axis_holds_every_value_between_round_ends(values):
    (low, high), step = ends(values)
    assert 0 <= low <= min(values) and max(values) <= high and high - low >= 20
    assert low % step == high % step == 0 and 2 <= (high - low) / step <= 12


def test_without_a_peak_the_axis_says_roof_and_holds_points_above_100(four):
    lines = select(four, "mlp1")
    axes = figure({"mlp1": lines}).axes[0]
    assert axes.get_ylabel() == "percent of the roof (%)"
    highest = max(point.value for line in lines for point in line.points)
    assert 100 < highest < axes.get_ylim()[1]
    assert axes.told.splitlines()[1] == "4 ranks, laptop, float32, measured, medians of 10"


def test_noisy_points_are_hollow_and_intervals_are_drawn(four):
    records = [
        replace(
            r,
            noisy=r.m == 2048,
            oversubscribed=True,
            percent_of_roof_low=r.percent_of_roof and r.percent_of_roof - 3,
            percent_of_roof_high=r.percent_of_roof and r.percent_of_roof + 4,
        )
        for r in four
    ]
    told = tell(figure({"mlp1": select(records, "mlp1")})).splitlines()
    points = [point for line in select(records, "mlp1") for point in line.points]
    hollow = [line for line in told if " hollow): " in line]
    assert len(hollow) == 6 and all(" hollow): (2048, " in line for line in hollow)
    spans = [line for line in told if line.startswith("  spans, ")]
    assert len(spans) == 6 and sum(line.count("[") for line in spans) == len(points)
    assert "  Hollow: 6 noisy cases, no best of anything." in told
    # not "not with a roof": the axis is percent of the roof
    crowded = "cases with more ranks than cores: compare them with each other only."
    assert f"  {len(points)} {crowded}" in told


def test_a_missing_batch_size_breaks_the_line_and_is_said(four):
    picture = figure({"mlp1": select(four, "mlp1")})
    (block,) = [
        line
        for line in picture.axes[0].lines
        if to_hex(line.get_color()) == STYLES["UA - Block"].color.lower()
    ]
    assert [y != y for y in block.get_ydata()] == [False, False, True, False]
    printed = " ".join(rows_of(picture))
    assert "UA - Block (S-C) has no case at batch 4096." in printed
    assert "Not drawn: DT - Row, DT - Column, COSMA-NCCL (no record)." in printed


def test_small_text_is_dark_enough_for_white_paper():
    for name, style in STYLES.items():
        light = sum(w * x for w, x in zip((0.2126, 0.7152, 0.0722), seen_by("all", style.text)))
        assert 1.05 / (light + 0.05) >= 4.0, name  # WCAG contrast


def test_drawing_touches_no_global_state_of_matplotlib():
    before = dict(matplotlib.rcParams)
    figure({"mlp1": select([case()], "mlp1")})
    assert dict(matplotlib.rcParams) == before


def test_lines_from_elsewhere_are_named_as_such(picture):
    assert "DT - Row, DT - Column, COSMA-NCCL: published, h100x8." in rows_of(picture)


def test_a_layer_with_nothing_to_draw_is_said_and_the_other_is_drawn(tmp_path):
    failed = case(n=64, k=256, status="failed")
    made = draw("mlp", [case(), failed], tmp_path / "figure")
    assert "mlp2: not drawn: UA - Row (no case is ok: 1 failed)" in made.notes
    with pytest.raises(SelectionError, match="nothing to draw for mlp2: not drawn: UA - Row"):
        draw("mlp", [failed], tmp_path / "none")
    assert not (tmp_path / "none.pdf").exists()


def test_records_without_an_mlp_layer_are_refused(tmp_path):
    with pytest.raises(SelectionError, match="no MLP layer in 1 records"):
        draw("mlp", [case(n=100, k=100)], tmp_path / "none")


def test_pyplot_is_not_imported_and_selecting_needs_no_matplotlib():
    code = (
        "import sys, plots, plots.select.selection, plots.select.records, "
        "plots.draw.style\n"
        "assert 'matplotlib' not in sys.modules\n"
        "import plots.figures.mlp\n"
        "assert not {'matplotlib.pyplot', 'mpi4py'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
