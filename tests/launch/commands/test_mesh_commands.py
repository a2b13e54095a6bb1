"""The 2-D algorithms from the command line: run, plan, --timeline, plot timeline, and compared on
the same tiles."""

import pytest

from drbench.measure.timeline import read_chrome_trace

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]
SIZES = "-m 30 -n 40 -k 50".split()


def test_overlap_efficiency_is_zero_for_collective_and_there_for_universal_on_a_2d_layout_only(
    lines_on_ranks,
):
    words = ["run", *SIZES, *"--iters 1 --budget 0 --json".split()]
    more = {"collective": ["--algorithm", "collective"], "2-D": [], "tiles": ["--a", "tiles:7x9"]}
    ended = lines_on_ranks(2, {name: [*words, *options] for name, options in more.items()})
    found = {name: each.json() for name, each in ended.items()}
    assert found["collective"]["overlap_efficiency"] == 0
    assert found["2-D"]["overlap_efficiency"] is not None
    assert found["tiles"]["overlap_efficiency"] is None
    assert found["tiles"]["effective_communication_s"] is not None


def test_a_trace_has_every_step_of_every_rank_and_draws_a_timeline(drbench, run_cli, tmp_path):
    path = tmp_path / "out.json"
    words = "run -p 4 --algorithm wang --mesh 2x2 --iters 1 --budget 0 --timeline".split()
    drbench(*words, path, *SIZES)
    events, description = read_chrome_trace(path.read_text())
    assert {e.rank for e in events} == {0, 1, 2, 3} and description["algorithm"] == "wang"
    assert {e.track for e in events} == {"compute", "row", "column"}
    assert all(0 <= e.start_s <= e.stop_s for e in events)
    drawn = run_cli("plot", "timeline", path, "--save", tmp_path / "timeline.pdf")
    assert (tmp_path / "timeline.pdf").stat().st_size > 1000 and "timeline.pdf" in drawn.stdout
