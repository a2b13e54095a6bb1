"""The figure shows every selected point, lists what it does not show, and can be read."""

import re
from dataclasses import replace

import pytest
from figure_records import case, sweep
from hypothesis import given
from hypothesis import strategies as st

from drbench.plots.draw.description import describe_picture
from drbench.plots.figures.mlp import ends, figure
from drbench.plots.registry import draw
from drbench.plots.select.cases import SelectionError
from drbench.plots.select.selection import select


@pytest.fixture(scope="module")
def four():
    """A small measured sweep without a sourced peak, without other libraries."""
    found = sweep(ranks=4, h=512, quantity="percent_of_gemm_only", mode="measured", label="laptop")
    return [r for r in found if r.mode == "measured" and (r.a[:5], r.m) != ("block", 4096)]


def test_the_axis_of_the_paper_is_0_to_100():
    axes = figure({"mlp1": select([case()], "mlp1")}).axes[0]
    assert axes.get_ylim() == (0, 100) and list(axes.get_yticks()) == [*range(0, 101, 10)]


def test_lines_that_cannot_be_told_apart_are_one_with_all_names():
    layouts = {("row", "row", "row"): 50.0, ("block/c2",) * 3: 51.5, ("column",) * 3: 70.0}
    records = [
        case(**dict(zip("abc", forms)), m=m, percent_of_peak=percent, best_s=50 / percent)
        for forms, percent in layouts.items()
        for m in (1024, 2048)
    ]
    described = describe_picture(figure({"mlp1": select(records, "mlp1")}))
    assert re.findall(r"line, (.*?) \(#", described) == ["Block, Row (S-C)", "Column (S-C)"]
    assert described.count("text at (1024, 51.5): 2") == 1
    assert "Several names at a line: they differ by less than 2.1 points" in described
    apart = describe_picture(figure({"mlp1": select(records, "mlp1")}, "fitted"))
    assert len(re.findall(r"line, (.*?) \(#", apart)) == 3


def test_factors_are_at_the_points_where_they_change():
    plain, replicated = ("row", "row", "row"), ("row/c4", "row/c4", "row")
    layouts = {1024: plain, 2048: replicated, 4096: replicated, 8192: plain}
    records = [case(**dict(zip("abc", forms)), m=m, n=64, k=256) for m, forms in layouts.items()]
    described = describe_picture(figure({"mlp2": select(records, "mlp2")}))
    assert re.findall(r"text at \((.*), 50\): (.*)", described) == [("2048", "4-1"), ("8192", "1")]
    assert "the replication factor from there on, before the first it is 1; 4-1: of A" in described


@given(st.lists(st.floats(1, 300), min_size=1, max_size=9))
def test_a_fitted_axis_holds_every_value_between_round_ends(values):
    (low, high), step = ends(values, "fitted")
    assert 0 <= low <= min(values) and max(values) <= high and high - low >= 20
    assert low % step == high % step == 0 and 2 <= (high - low) / step <= 12


def test_noisy_points_are_hollow_and_intervals_are_drawn(four):
    records = [
        replace(
            r,
            noisy=r.m == 2048,
            oversubscribed=True,
            percent_of_gemm_only_low=r.percent_of_gemm_only and r.percent_of_gemm_only - 3,
            percent_of_gemm_only_high=r.percent_of_gemm_only and r.percent_of_gemm_only + 4,
        )
        for r in four
    ]
    described = describe_picture(figure({"mlp1": select(records, "mlp1")})).splitlines()
    points = [point for line in select(records, "mlp1") for point in line.points]
    hollow = [line for line in described if " hollow): " in line]
    assert len(hollow) == 6 and all(" hollow): (2048, " in line for line in hollow)
    spans = [line for line in described if line.startswith("  spans, ")]
    assert len(spans) == 6 and sum(line.count("[") for line in spans) == len(points)
    assert "  Hollow: 6 noisy cases, never ranked." in described
    # not "not with a roof": the axis is percent of the roof
    oversubscribed = "cases with more ranks than cores: compare them with each other only."
    assert f"  {len(points)} {oversubscribed}" in described


def test_a_missing_batch_size_breaks_the_line_and_is_listed(four):
    described = describe_picture(figure({"mlp1": select(four, "mlp1")}))
    assert re.search(r"line, Block .*: \(1024, .*\) \(2048, .*\) \(4096, -\) \(8192, \d", described)
    assert "UA - Block (S-C) has no case at batch 4096." in described
    assert "DT - Row" not in described and "no record" not in described


def test_a_layer_with_nothing_to_draw_is_listed_and_the_other_is_drawn(tmp_path):
    failed = case(n=64, k=256, status="failed")
    made = draw("mlp", [case(), failed], tmp_path / "figure")
    assert "mlp2: not drawn: UA - Row (no case is ok: 1 failed)" in made.notes
    with pytest.raises(SelectionError, match="nothing to draw for mlp2: not drawn: UA - Row"):
        draw("mlp", [failed], tmp_path / "none")
    assert not (tmp_path / "none.pdf").exists()
