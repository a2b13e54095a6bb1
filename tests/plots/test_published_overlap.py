"""The published points of Triton-distributed agree with the text of its paper."""

from collections import defaultdict
from pathlib import Path
from statistics import geometric_mean

import pytest

from drbench.launch.papers.overlap.rows import RANGES, ROWS

pytestmark = pytest.mark.papers
FOLDER = Path(__file__).parents[2] / "results/published/overlap"


def test_digitised_speedups_and_printed_times_have_the_geometric_means_of_the_text():
    """Bars are read to 0.01; a mean of a few can be off by as much, and is printed to 0.01. FLUX
    has one bar next to each of theirs."""
    rows = ROWS.read([FOLDER / "speedups.csv", FOLDER / "moe.csv"])
    shape = lambda row: (row.study, row.ranks, row.m, row.n, row.k, row.variant)
    rate = lambda row: row.speedup or 1 / row.seconds
    others = {(row.method, *shape(row)): rate(row) for row in rows if row.method != "td"}
    points = defaultdict(list)
    for row in (each for each in rows if each.method == "td"):
        base = others.get(("pytorch", *shape(row)), 1)
        points["speedup", row.study, row.ranks].append(rate(row) / base)
        if flux := others.get(("flux", *shape(row))):
            points["over_flux", row.study, row.ranks].append(rate(row) / flux)
    stated = {
        (each.quantity, each.study, each.ranks): each.mean
        for each in RANGES.read([FOLDER / "ranges.csv"])
        if each.method == "td" and each.quantity in ("speedup", "over_flux") and each.mean
    }
    found = {key: geometric_mean(values) for key, values in points.items() if key in stated}
    assert len(found) == 14 and found == pytest.approx(stated, abs=0.02, rel=0.01)
