"""The bars of FLUX and Triton-distributed have the times, speedups and efficiencies of the rows."""

import re

import pytest

from drbench.launch.papers.overlap.figures import FIGURES
from drbench.launch.papers.overlap.rows import OverlapRange, OverlapRow, table_of
from drbench.plots.draw.description import describe_picture
from drbench.plots.select.cases import Options, SelectionError

FIGURE = {figure.name: figure for figure in FIGURES}


def row(study, method, m=1024, ranks=8, seconds=None, speedup=None, mode="simulated"):
    """A row whose GEMM alone takes a second, and without overlap two."""
    efficiency = None if seconds is None else 100 * (1 - (seconds - 1) / 1)
    program = method, "", None, seconds, 1.0, speedup, efficiency, ""
    return OverlapRow(study, mode, "h800", ranks, "ag", m, 8, 4, *program)


def stated(study, method, quantity, *ends, ranks=8):
    """A range of the paper: low, high, mean."""
    return OverlapRange(study, "h800", ranks, "ag and rs", method, quantity, 64, 8192, *ends, "")


def drawn(name, rows, ranges):
    figure = FIGURE[name]
    return describe_picture(figure.make(table_of(rows, ranges), Options()).picture)


def bars_in(text, name):
    """(middle, begin, end) of the bars of a name, across or not, from the description."""
    (line,) = re.findall(rf"bars, {re.escape(name)} \(.*?\): (.*)", text)
    number = r"(-?[\d.]+)"
    spans = re.findall(rf"\[{number} to {number}; {number} to {number}\]", line)
    return [tuple(map(float, span)) for span in spans]


def test_a_bar_of_flux_is_the_gemm_and_above_it_what_the_method_adds_and_hides():
    rows = [
        row("flux13", "collective", seconds=2.0),
        row("flux13", "chunks", seconds=2.5),
        row("flux13", "flux", seconds=1.25),
    ]
    ranges = [
        stated("flux13", "flux", "efficiency_percent", 37, 93, 72),
        stated("flux13", "flux", "over_chunks", 1.1, 1.51, None),
        stated("flux14", "flux", "efficiency_percent", -165, -82, None),
    ]
    text = drawn("overlap-flux", rows, ranges)
    assert "AllGather + GEMM, H800 / the paper: FLUX 37 to 93 %\n" in text
    assert [span[2:] for span in bars_in(text, "GEMM alone")] == [(0, 1)] * 3
    for place, (name, end, hidden) in enumerate(
        [
            ("no overlap (PyTorch)", 2, None),
            ("chunks (Transformer Engine)", 2.5, -50),
            ("FLUX", 1.25, 75),
        ]
    ):
        ((left, right, *ends),) = bars_in(text, name)
        assert ((left + right) / 2, *ends) == (place, 1, end)
        assert (f"text at ({place}, {end}): {hidden}\n" in text) == (hidden is not None)
    assert "FLUX is the fastest in 1 of 1 simulated cases; it hides 75 to 75 %" in text


def test_groups_of_flux_are_told_apart_by_m_and_gpus_and_ranges_too():
    rows = [
        row(study, method, m, ranks, seconds)
        for study, m, ranks in (("flux14", 64, 8), ("flux14", 512, 8), ("flux15", 512, 16))
        for method, seconds in (("collective", 2.0), ("flux", 1.5 + m / 512))
    ]
    ranges = [
        stated("flux14", "flux", "efficiency_percent", -2, 41, None),
        stated("flux15", "flux", "efficiency_percent", None, 18, None, ranks=16),
    ]
    text = drawn("overlap-flux-small", rows, ranges)
    assert "the paper: FLUX -2 to 41, 16 GPUs up to 18 %" in text
    assert "0.5 = m = 64 / 1 s, 3.5 = m = 512 / 1 s, 6.5 = m = 512, 16 GPUs / 1 s" in text
    assert "FLUX is the fastest in 1 of 3 simulated cases; it hides -50 to 38 %" in text
    assert "the paper" not in drawn("overlap-flux-small", rows, [])[: text.index("\n")]


def test_speedups_are_beside_the_papers_by_shape():
    rows = [
        row("td13", method, m, 16, None, speedup, mode)
        for m, method, ours, paper in (
            (1024, "flux", 1.6, 1.5),
            (1024, "td", 1.5, 1.25),
            (2048, "td", 1.0, 1.25),
        )
        for mode, speedup in (("simulated", ours), ("published", paper))
    ]
    ranges = [stated("td13", "td", "speedup", None, None, 1.33, ranks=16)]
    text = drawn("overlap-td", rows, ranges)
    assert "panel: Figure 13: AllGather + GEMM, 16 H800" in text
    assert "mean of Triton-distributed: ours 1.22, the paper 1.33" in text
    ours = "Triton-distributed, ours"
    assert [span[:2] for span in bars_in(text, ours)] == [(0, 1.5), (0, 1.0)]
    middles = lambda name: [(low + high) / 2 for *_, low, high in bars_in(text, name)]
    assert middles(ours) == [0, 5]
    assert middles("Triton-distributed, the paper") == [1, 6]
    assert middles("FLUX, ours") == [2] and middles("FLUX, the paper") == [3]
    assert bars_in(text, "FLUX, the paper")[0][:2] == (0, 1.5)
    assert "are 0.8 to 1.2 times the paper's, on average 0.98" in text
    only_ours = [each for each in rows if each.mode == "simulated"]
    for incomplete in ((only_ours, ranges), (rows, [])):
        with pytest.raises(SelectionError, match="add results/published/overlap"):
            drawn("overlap-td", *incomplete)
