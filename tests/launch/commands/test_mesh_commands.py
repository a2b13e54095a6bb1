"""The 2-D algorithms from the command line: run, plan, --timeline, plot timeline, and compared on
the same tiles."""

import json

import pytest

from drbench.measure.record_file import read_csv
from drbench.measure.timeline import read_chrome_trace

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]
SIZES = ["-m", 30, "-n", 40, "-k", 50]


def test_overlap_efficiency_is_zero_for_collective_and_there_for_universal_on_a_2d_layout_only(
    drbench,
):
    record = drbench(
        "run", "-p", 2, *SIZES, "--algorithm", "collective", "--iters", 1, "--budget", 0, "--json"
    ).json()
    assert record["overlap_efficiency"] == 0
    on_blocks = drbench("run", "-p", 2, *SIZES, "--iters", 1, "--budget", 0, "--json").json()
    elsewhere = drbench(
        "run", "-p", 2, *SIZES, "--a", "tiles:7x9", "--iters", 1, "--budget", 0, "--json"
    ).json()
    without = drbench(
        "run", "-p", 2, *SIZES, "--iters", 1, "--budget", 0, "-o", "roof=false", "--json"
    ).json()
    assert on_blocks["overlap_efficiency"] is not None and elsewhere["overlap_efficiency"] is None
    assert (
        elsewhere["effective_communication_s"] is not None
        and without["effective_communication_s"] is None
    )


@pytest.mark.parametrize(
    "words, code, said",
    [
        (["--algorithm", "cannon", "--mesh", "1x2"], 3, ["square", "1x2", "summa"]),
        (
            ["--algorithm", "meshslice", "-o", "slices=60", "-o", "block=5"],
            3,
            ["60 slices", "at most"],
        ),
        (
            ["--algorithm", "collective", "-o", "dataflow=OS", "--mesh", "1x2", "--a", "row"],
            3,
            ["A as block:1x2", "got row"],
        ),
        (["--algorithm", "summa", "-o", "slices=2"], 2, ["summa takes no slices", "panel"]),
        (["--algorithm", "summa", "--mesh", "2x2"], 2, ["mesh 2x2 needs 4 ranks", "1x2"]),
        (["--algorithm", "fsdp", "-o", "dataflow=OS"], 2, ["fsdp takes no dataflow"]),
        (["--algorithm", "tensor_parallel_1d", "-o", "dataflow=LS"], 2, ["AG", "RdS"]),
        (
            ["--algorithm", "wang", "-o", "dataflow=AG"],
            2,
            ["-o dataflow", "must be one of auto, OS, LS, RS"],
        ),
    ],
)
@pytest.mark.parametrize("command", ["run", "plan"])
def test_what_does_not_fit_is_said_in_one_line_before_any_rank_starts(
    say, command, words, code, said
):
    line = say(command, "-p", 2, *SIZES, *words).refusal(code)
    assert all(word in line for word in said), line


def test_plan_counts_what_run_moves(drbench, say):
    words = [
        "-p",
        4,
        *SIZES,
        "--algorithm",
        "meshslice",
        "-o",
        "dataflow=RS",
        "--mesh",
        "4x1",
        "-o",
        "slices=3",
    ]
    assert (
        say("plan", *words, "--rank", "all", "--json").json()["collective_bytes"]
        == drbench("run", *words, "--iters", 1, "--budget", 0, "--json").json()["collective_bytes"]
    )
    assert (
        "AllGather(A["
        in say("plan", "-p", 4, *SIZES, "--algorithm", "collective", "-o", "dataflow=OS").stdout
    )


def test_a_trace_has_every_step_of_every_rank_and_draws_a_timeline(drbench, say, tmp_path):
    path = tmp_path / "out.json"
    drbench(
        "run",
        "-p",
        4,
        *SIZES,
        "--algorithm",
        "wang",
        "--mesh",
        "2x2",
        "--iters",
        1,
        "--budget",
        0,
        "--timeline",
        path,
    )
    events, about = read_chrome_trace(path.read_text())
    assert {e.rank for e in events} == {0, 1, 2, 3} and about["algorithm"] == "wang"
    assert {e.track for e in events} == {"compute", "row", "column"}
    assert all(0 <= e.start_s <= e.stop_s for e in events)
    drawn = say("plot", "timeline", path, "-o", tmp_path / "timeline.pdf")
    assert (tmp_path / "timeline.pdf").stat().st_size > 1000 and "timeline.pdf" in drawn.stdout
    (tmp_path / "no.json").write_text(json.dumps({"traceEvents": 3}))
    assert (
        "no trace"
        in say("plot", "timeline", tmp_path / "no.json", "-o", tmp_path / "x.pdf").refusal()
    )


WORDS = ["sweep", "same-tiles", "-p", 2, "--peak", "none", "--out", "out"]


def given(*pairs):
    return [word for pair in ("iters=1", "budget=0", *pairs) for word in ("-o", pair)]


def test_algorithms_are_compared_on_the_same_tiles_and_the_sweep_resumes(drbench, tmp_path):
    words = [*WORDS, *given("m=30", "n=40", "k=50", "mesh=2x1", "dataflow=OS")]
    said = drbench(*words).stdout
    assert "1 (the fastest)" in said and "fastest: " in said
    records = read_csv(tmp_path / "out" / "records.csv")
    ok = [record for record in records if record.status == "ok"]
    first = [record.algorithm for record in ok if record.a == "block:2x1"]
    assert sorted(first) == ["collective", "meshslice", "summa", "universal", "wang"]
    assert "30x40x50 float32, 2 ranks: A block:2x1" in said
    assert {"fsdp", "ag_gemm", "gemm_rs"} < {record.algorithm for record in ok}
    turns = read_csv(tmp_path / "out" / "rounds" / "records.csv")
    drbench(*words)
    assert read_csv(tmp_path / "out" / "records.csv") == records
    assert read_csv(tmp_path / "out" / "rounds" / "records.csv") == turns
