"""Traces of runs are read back as written, on tracks where nothing overlaps."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drbench.algorithms import get_algorithm
from drbench.clock import StepTime
from drbench.measure.timeline import chrome_trace, read_chrome_trace
from drbench.plan.explain import events_of


def events():
    start = st.integers(0, 1000)
    return st.lists(
        st.builds(
            lambda rank, track, index, a, b: StepTime(
                rank, track, index, f"step {index}", a / 1000, (a + b) / 1000
            ),
            st.integers(0, 3),
            st.sampled_from(["compute", "row", "column", "one-sided", "fence"]),
            st.integers(0, 99),
            start,
            st.integers(0, 300),
        ),
        max_size=30,
    )


@given(events())
def test_every_event_is_read_back(found):
    read, description = read_chrome_trace(chrome_trace(found, {"algorithm": "wang", "m": 8}))
    assert description == {"algorithm": "wang", "m": 8}
    rounded = lambda all_: sorted(
        (e.rank, e.track, e.index, e.name, round(e.start_s, 9), round(e.stop_s, 9)) for e in all_
    )
    assert rounded(read) == rounded(found)


@given(events())
def test_no_two_steps_of_a_thread_overlap_and_every_thread_has_a_name(found):
    shown = json.loads(chrome_trace(found, {}))["traceEvents"]
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in shown if e["name"] == "thread_name"}
    threads = {}
    for e in shown:
        if e["ph"] == "X":
            threads.setdefault((e["pid"], e["tid"]), []).append(
                (e["ts"], e["ts"] + e["dur"], e["cat"])
            )
    assert set(threads) == set(names)
    for key, spans in threads.items():
        assert {track for _, _, track in spans} == {names[key].split(" ")[0]}
        for (_, stop, _), (start, _, _) in zip(sorted(spans), sorted(spans)[1:]):
            assert start >= stop - 1e-6


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"traceEvents": [{"ph": "X"}], "metadata": {}}',
        '{"traceEvents": [], "metadata": 3}',
    ],
)
def test_a_file_that_is_no_trace_is_refused(text):
    with pytest.raises(ValueError, match="no trace of drbench run --timeline"):
        read_chrome_trace(text)


def test_steps_are_on_the_track_of_their_ring():
    algorithm = get_algorithm("wang")
    problem = algorithm.problem(24, 24, 24, 4, dataflow="OS", mesh="2x2")
    trace = algorithm.trace(problem, 1, dataflow="OS", mesh="2x2", unroll=1)
    tracks = {
        e.name.split("(")[0]: e.track
        for e in events_of(trace, [(step.index, 5.0, 6.0) for step in trace.steps], 5.0)
    }
    assert tracks == {
        "Get": "one-sided",
        "AllGather": "column",
        "Part": "one-sided",
        "Gemm": "compute",
        "Shift": "row",
    }
