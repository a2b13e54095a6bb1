"""``drbench mlp``: from nothing to two figures, every row verified."""

import os
from types import SimpleNamespace

import pytest

import launch.commands.sweep
import launch.host.kernels
import launch.sweeps.sweep
from drbench.measure.record import Record
from drbench.measure.record_file import read_csv
from launch.cases.case import case_keys
from launch.cases.sweep_file import load_sweep
from launch.host.kernels import Kernels
from launch.peers import Availability
from plots.select.cases import line_of


@pytest.mark.mpi
@pytest.mark.timeout(60)
def test_a_tiny_run_leaves_verified_rows_and_figures(drbench, tmp_path):
    ended = drbench(
        "mlp",
        "-p",
        2,
        "--scale",
        "1/192",
        "--iters",
        1,
        "--budget",
        0,
        "--layer",
        "mlp1",
        "--out",
        "out/deeper",
        "--label",
        "tiny",
        timeout=50,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    folder = tmp_path / "out" / "deeper"
    # which is there where torch is
    names = sorted(path.name for path in folder.iterdir() if "dtensor" not in path.name)
    assert names == ["mlp1-h64-p2", "mlp1-h64-p2.pdf", "mlp1-h64-p2.png"]
    assert (folder / "mlp1-h64-p2.png").read_bytes()[:4] == b"\x89PNG" and (
        folder / "mlp1-h64-p2.pdf"
    ).read_bytes()[:4] == b"%PDF"
    for name in ("mlp1-h64-p2/records.csv", "mlp1-h64-p2.pdf", "mlp1-h64-p2.png"):
        assert os.path.join("out", "deeper", name) in ended.stdout
    records = read_csv(folder / "mlp1-h64-p2" / "records.csv")
    # batches, partitionings, Stationary C and B
    assert len(records) == 4 * 6 * 2
    assert {
        (record.status, record.error, record.machine, record.ranks, len(record.samples_s))
        for record in records
    } == {("ok", 0, "tiny", 2, 1)}
    assert all(record.percent_of_roof > 0 for record in records)
    assert {(record.m, record.n, record.k) for record in records} == {
        (m, 256, 64) for m in (5, 10, 21, 42)
    }
    count = len(records) + sum(
        len(read_csv(path)) for path in folder.glob("mlp1-dtensor*/records.csv")
    )
    assert "mlp1-small: 48 cases" in ended.stdout and f"{count} of {count} cases ok" in ended.stdout


@pytest.mark.mpi
def test_under_mpiexec_it_starts_nothing_and_says_how_it_is_run(under_mpiexec, tmp_path):
    """``mpirun -n N drbench mlp`` would be N copies that start ranks of their own and write into
    one file."""
    options = (
        "-p",
        1,
        "--scale",
        "1/3072",
        "--iters",
        1,
        "--budget",
        0,
        "--layer",
        "mlp1",
        "--out",
        "out",
    )
    ended = under_mpiexec(2, "mlp", *options, timeout=40)
    assert ended.codes == (2, 2)
    assert "drbench mlp starts its own ranks. Run it without mpirun" in ended.refusal()
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "name, shape, factors",
    [
        ("mlp1", (49152, 12288), 3),
        ("mlp2", (12288, 49152), 9),
        ("mlp1-small", (6144, 1536), 1),
        ("mlp2-small", (1536, 6144), 1),
    ],
)
def test_the_cases_are_the_paper_s(name, shape, factors):
    cases = load_sweep(name, 4).cases
    assert len(cases) == 4 * 6 * factors * 2
    assert {(case.n, case.k) for case in cases} == {shape}
    assert sorted({12288 * case.m // min(shape) for case in cases}) == [
        1024 << step for step in range(4)
    ]
    assert {case.preset for case in cases} == {
        "row",
        "column",
        "block",
        "inner",
        "outer",
        "traditional",
    }
    assert {case.options["stationary"] for case in cases} == {"B", "C"}
    replicated = {case.c.partition("/")[2] for case in cases}
    assert replicated == ({"", "c2", "c4"} if factors > 1 else {""})
    assert all(case.a.partition("/")[2] == case.b.partition("/")[2] for case in cases)
    assert all(
        case.check and case.roof and case.iters == (10 if factors > 1 else 5) for case in cases
    )


@pytest.fixture
def recorded(say, monkeypatch, tmp_path):
    """``recorded(status, *options)``: mlp without ranks, each case ending so; the environment its
    ranks were to get, and how it ended."""
    seen = {}

    def run_cases(todo, store, settings, watch):
        seen.update(environ=settings.environ)
        for name, case in todo:
            ok = case.k != seen["bad_k"]
            rates = {
                "best_s": 1e-3,
                "gflops": 1.0,
                "percent_of_roof": 50.0,
                "percent_of_roof_min": 40.0,
                "percent_of_roof_max": 60.0,
            }
            record = Record(
                mode="measured",
                status="ok" if ok else "wrong",
                reason=None if ok else "struck by the test",
                case=name,
                ranks=settings.ranks,
                **case_keys(case),
                **(rates if ok else {}),
            )
            store.add(record)
            watch.ended(case, record)

    monkeypatch.setattr(launch.sweeps.sweep, "run_cases", run_cases)
    monkeypatch.setattr(
        launch.commands.sweep,
        "get_peer",
        lambda name: SimpleNamespace(
            available=lambda: Availability(seen["torch"], "no torch", "Get it.")
        ),
    )
    monkeypatch.setattr(launch.commands.sweep, "_draw", lambda *_: None)

    def run(*options, bad_k=None, torch=False):
        seen.update(bad_k=bad_k, torch=torch)
        ended = say(
            "mlp",
            "-p",
            2,
            "--scale",
            "1/192",
            "--iters",
            1,
            "--budget",
            0,
            "--out",
            tmp_path / "out",
            *options,
        )
        return ended, seen.get("environ")

    return run


def test_a_case_that_is_not_ok_is_named_and_exits_1(recorded):
    ended, _ = recorded(bad_k=256)
    assert ended.returncode == 1
    assert "48 of 96 cases ok" in ended.stdout and ended.stdout.count("struck by the test") >= 20


def test_where_torch_is_dtensor_runs_on_the_same_problems_and_has_its_lines(recorded, tmp_path):
    assert (
        "without DT - Row and DT - Column: no torch. Get it."
        in recorded("--layer", "mlp2")[0].stdout
    )
    ended, _ = recorded(torch=True)
    assert (
        ended.returncode == 0
        and "112 of 112 cases ok" in ended.stdout
        and "without DT" not in ended.stdout
    )
    for layer in ("mlp1", "mlp2"):
        ours, theirs = (
            read_csv(tmp_path / "out" / f"{name}-h64-p2" / "records.csv")
            for name in (layer, f"{layer}-dtensor")
        )
        assert {(r.m, r.n, r.k) for r in theirs} == {(r.m, r.n, r.k) for r in ours}
        assert sorted(map(line_of, theirs)) == ["DT - Column"] * 4 + ["DT - Row"] * 4
        assert {(r.algorithm, r.a, r.b, r.c) for r in theirs} == {
            ("dtensor", text, text, text) for text in ("row", "column")
        }


def test_what_is_complete_and_ok_is_not_measured_again(recorded, tmp_path):
    first, again = (recorded("--layer", "mlp2")[0] for _ in range(2))
    assert "measured before" not in first.stdout
    assert "48 cases on 2 ranks, 48 done before" in again.stdout
    assert "give another --out" in again.stdout and "48 of 48 cases ok" in again.stdout
    assert not (tmp_path / "out" / "mlp2-h64-p2" / "previous-1").exists()


@pytest.mark.parametrize("options, bad_k", [(["--iters", 2], None), ([], 256)])
def test_a_complete_run_of_other_options_or_with_a_bad_case_is_moved_aside(
    recorded, tmp_path, options, bad_k
):
    recorded("--layer", "mlp2", bad_k=bad_k)
    ended, _ = recorded("--layer", "mlp2", *options)
    assert ended.returncode == 0 and "done before" not in ended.stdout
    folder = tmp_path / "out" / "mlp2-h64-p2"
    assert [
        len(read_csv(path))
        for path in (folder / "records.csv", folder / "previous-1" / "records.csv")
    ] == [48, 48]


def test_weaker_kernels_are_lifted_for_its_ranks_and_it_says_so(recorded, monkeypatch):
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    monkeypatch.setattr(
        launch.host.kernels,
        "weaker_pins",
        lambda: (Kernels("Haswell", 40e9), Kernels("SkylakeX", 60e9)),
    )
    ended, environ = recorded("--layer", "mlp1")
    assert "OPENBLAS_CORETYPE" not in environ and "PATH" in environ
    assert (
        "OPENBLAS_CORETYPE=Haswell" in ended.stdout
        and "unset for this run" in ended.stdout
        and "60 GFLOP/s" in ended.stdout
    )
    assert os.environ["OPENBLAS_CORETYPE"] == "Haswell"


def test_pins_that_cost_nothing_are_left_alone(recorded, monkeypatch):
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    monkeypatch.setattr(launch.host.kernels, "weaker_pins", lambda: None)
    ended, environ = recorded("--layer", "mlp1")
    assert environ["OPENBLAS_CORETYPE"] == "Haswell" and "OPENBLAS" not in ended.stdout
