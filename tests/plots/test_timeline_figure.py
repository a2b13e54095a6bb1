"""A timeline names its runs, their times and those of their local GEMMs, and leaves out tracks
without time."""

import pytest

from drbench.clock import StepTime
from drbench.measure.timeline import chrome_trace
from drbench.plots.draw.description import describe_picture
from drbench.plots.registry import find
from drbench.plots.select.cases import Options, SelectionError


def trace_of(path, algorithm, dataflow, *spans):
    """A file with steps of one rank: (track, start, stop)."""
    steps = [StepTime(0, track, 0, "step", start, stop) for track, start, stop in spans]
    path.write_text(chrome_trace(steps, {"algorithm": algorithm, "dataflow": dataflow}))
    return path


def drawn(*paths):
    timeline = find("timeline")
    return describe_picture(timeline.make(timeline.read(paths), Options()).picture)


def test_a_title_has_the_time_and_that_of_the_local_gemms(tmp_path):
    run = trace_of(tmp_path / "a", "wang", "OS", ("row", 0, 2), ("compute", 2, 5))
    assert "panel: wang OS: 5 s, local GEMMs 3 s" in drawn(run)
    run = trace_of(tmp_path / "a", "wang", "OS", ("row", 0, 2))
    assert "panel: wang OS: 2 s /" in drawn(run)


def test_a_dataflow_is_named_only_where_it_tells_runs_apart(tmp_path):
    runs = [
        trace_of(tmp_path / str(stop), algorithm, dataflow, ("compute", 0, stop))
        for algorithm, dataflow, stop in (("wang", "OS", 1), ("cannon", "RS", 2), ("wang", "LS", 4))
    ]
    assert "cannon ends first" not in (text := drawn(*runs[:2]))
    assert "wang ends first; cannon takes 2 × its time" in text
    assert "wang OS ends first; wang LS takes 4 × its time" in drawn(*runs)


def test_a_track_without_time_is_not_drawn(tmp_path):
    spans = ("row", 3, 3), ("compute", 0, 3)
    text = drawn(trace_of(tmp_path / "a", "wang", "OS", *spans))
    assert "compute" in text and "row" not in text
    with pytest.raises(SelectionError, match="no steps that take time"):
        drawn(trace_of(tmp_path / "a", "wang", "OS", spans[0]))
