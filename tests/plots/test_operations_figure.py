"""``drbench plot operations``: where the time of a layer goes in each sharding of a chain."""

import pytest
from boxes import Box, overlap
from matplotlib.text import Text

from drbench.measure.record import Record
from drbench.measure.record_file import append_csv
from drbench.plots.draw.page import PageStyle
from drbench.plots.registry import draw, find
from drbench.plots.select.cases import Options

ABOUT = {"mode": "simulated", "status": "ok", "preset": "mine:block", "m": 512}
ABOUT |= {"label": "toy", "machine": "toy", "ranks": 8, "dtype": "bfloat16"}
#: Milliseconds of computing, exposed and hidden communication of (kind, operation).
BEST = {
    ("GEMM", "Y: X·W"): (2.0, 0.5, 0.25),
    ("attention", "O: attention(Y)"): (1.0, 0.0, 0.0),
    ("experts", "Z: O·V"): (4.0, 1.0, 0.5),
    ("element-wise", "H: gelu(Z)"): (0.5, 0.0, 0.0),
    ("waits", "waits"): (0.0, 1.0, -0.25),
}


def sharding(case, operations, high_s=None, mesh="dp=2,tp=4", options="X=R@2x4;backward=true"):
    """The records of a sharding as ``drbench chain --csv`` writes them."""
    total_s = sum(compute + exposed for compute, exposed, _ in operations.values()) / 1e3
    whole = {"algorithm": "chain", "options": options, "median_high_s": high_s}
    whole |= {"median_low_s": high_s and 0.9 * total_s}
    records = [Record(**ABOUT, case=case, best_s=total_s, median_s=total_s, **whole)]
    for (kind, name), (compute, exposed, hidden) in operations.items():
        texts = f"operation={name};pass=forward;kind={kind};mesh={mesh}"
        own = {"best_s": (compute + exposed) / 1e3, "phase_gemm_s": compute / 1e3}
        own |= {"phase_collective_wait_s": exposed / 1e3, "algorithm": "chain operation"}
        own |= {"effective_communication_s": (exposed + hidden) / 1e3, "options": texts}
        records.append(Record(**ABOUT, case=case, **own))
    return records


def slower(factor):
    return {key: tuple(factor * ms for ms in times) for key, times in BEST.items()}


def drawn(records):
    """The title, the labels from the top, the ends of bars by kind in ms, and all texts."""
    picture = find("operations").make(records, Options()).picture
    (axes,) = picture.axes
    top, bottom = sorted(axes.get_ylim()), axes.get_ylim()
    assert bottom == tuple(reversed(top))  # the first is at the top
    bars = [
        [(1e3 * bar.get_x(), 1e3 * (bar.get_x() + bar.get_width())) for bar in each]
        for each in axes.containers
    ]
    labels = [label.get_text() for label in axes.get_yticklabels()]
    head = [text.get_text() for text in picture.texts if text.get_weight() == "bold"]
    texts = [text.get_text() for text in picture.findobj(Text)]
    return " ".join(head), labels, bars, texts


def test_a_bar_is_stacked_by_kind_and_hidden_communication_is_below_it():
    head, labels, bars, texts = drawn(sharding("chosen", BEST))
    gemm, attention, pointwise, exposed, hidden = (ends for (ends,) in bars)
    assert gemm == pytest.approx((0, 6)) and attention == pytest.approx((6, 7))
    assert pointwise == pytest.approx((7, 7.5)) and exposed == pytest.approx((7.5, 10))
    assert hidden == pytest.approx((0, 0.5))
    assert labels == ["A sharding found here on dp=2,tp=4"]
    assert "found here on dp=2,tp=4 is fastest: 10 ms, 60 % of it GEMM" in head
    assert "mine:block, 512 tokens, backward=true" in head
    assert {"6 ms", "2.5 ms", "10 ms", "500 µs hidden"} <= {*texts}


def test_the_six_fastest_are_drawn_and_the_best_has_the_name_of_the_known_scheme_that_it_is():
    records = sharding("chosen", BEST)
    for at in range(8):
        records += sharding(f"S{at}", slower(1 + at / 8), mesh=f"tp={at}")
    _, labels, bars, texts = drawn(records)
    assert labels == [f"S{at} on tp={at}" for at in range(6)]
    ends = [stop for _, stop in bars[3]]
    assert ends == pytest.approx([10 + 10 * at / 8 for at in range(6)])
    assert {"10 ms", "11.2 ms", "16.2 ms"} <= {*texts}


@pytest.mark.parametrize("high_s, tied", [(None, False), (0.0109, False), (0.0111, True)])
def test_shardings_in_the_interval_of_the_best_are_tied_with_it(high_s, tied):
    records = sharding("chosen", BEST, high_s) + sharding("TP", slower(1.1), 1.0)
    head, labels, *_ = drawn(records + sharding("FSDP", slower(1.2), 1.0))
    assert [label.partition(" on ")[0] for label in labels[1:]] == ["TP", "FSDP"]
    wanted = "is tied with TP on dp=2,tp=4 for fastest" if tied else "dp=2,tp=4 is fastest"
    assert wanted in head and "FSDP" not in head


def test_the_last_choice_of_a_file_is_drawn_and_its_measured_run_is_not(tmp_path):
    path = tmp_path / "chains.csv"
    older = sharding("chosen", slower(0.5)) + sharding("TP", slower(0.6))
    run = Record(**ABOUT | {"mode": "measured"}, algorithm="chain", best_s=0.001)
    append_csv(path, *older, *sharding("chosen", BEST), *sharding("HSDP", slower(2)), run)
    (text,) = draw("operations", [path], tmp_path / "x.txt").paths
    described = text.read_text()
    assert "found here on dp=2,tp=4 is fastest: 10 ms" in described
    assert "1 = HSDP on dp=2,tp=4" in described and "ticks 0 = A sharding" in described
    assert "1): 20 ms" in described and "2 = " not in described and "): 5 ms" not in described


@pytest.mark.parametrize("wide_in", [7.0, 3.4])
def test_texts_of_the_rows_stay_on_the_page_and_do_not_overlap(wide_in):
    records = sharding("chosen", BEST) + sharding("TP", slower(1.1)) + sharding("FSDP", slower(4))
    if wide_in == 7:
        records += sharding("HSDP", slower(3), mesh="a_long_name=16,another_name=16")
    picture = find("operations").make(records, Options(), PageStyle(wide_in)).picture
    picture.draw_without_rendering()
    renderer, (wide, _) = picture.canvas.get_renderer(), picture.canvas.get_width_height()
    boxes = []
    for text in (*picture.axes[0].texts, *picture.axes[0].get_yticklabels()):
        box = text.get_window_extent(renderer)
        if text.get_text():
            assert 0 <= box.x0 and box.x1 <= wide, text.get_text()
            boxes.append(Box(box.x0, box.y0, box.x1, box.y1))
    assert len(boxes) >= 9
    assert max(overlap(a, b) for at, a in enumerate(boxes) for b in boxes[:at]) < 2
