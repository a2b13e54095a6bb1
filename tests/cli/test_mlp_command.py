"""``drbench mlp``: from nothing to two figures, every row verified."""

import os
from types import SimpleNamespace

import pytest

import launch.mlp
from drbench.record import Record, append_csv, read_csv
from launch.kernels import Kernels
from launch.mlp import mlp_cases
from launch.peers import Availability


@pytest.mark.mpi
@pytest.mark.timeout(60)
def test_a_tiny_run_leaves_verified_rows_and_figures(drbench, tmp_path):
    ended = drbench("mlp", "-p", 2, "--scale", 192, "--iters", 1, "--layer", "mlp1", "--out", "out/deeper", "--machine", "tiny", timeout=50)
    assert (ended.returncode, ended.stderr) == (0, "")
    folder = tmp_path / "out" / "deeper"
    assert sorted(path.name for path in folder.iterdir()) == ["mlp1-h64-p2.csv", "mlp1-h64-p2.pdf", "mlp1-h64-p2.png"]
    assert (folder / "mlp1-h64-p2.png").read_bytes()[:4] == b"\x89PNG" and (folder / "mlp1-h64-p2.pdf").read_bytes()[:4] == b"%PDF"
    for name in ("mlp1-h64-p2.csv", "mlp1-h64-p2.pdf", "mlp1-h64-p2.png"):
        assert os.path.join("out", "deeper", name) in ended.stdout
    everyone = read_csv(folder / "mlp1-h64-p2.csv")
    records = [record for record in everyone if record.algorithm == "universal"]         # the others are DTensor's, where torch is
    assert len(records) == 4 * 6 * 2 * 2         # batches, partitionings, replication factors, Stationary C and B
    assert {(record.status, record.error, record.machine, record.ranks, len(record.samples_s)) for record in records} == {("ok", 0, "tiny", 2, 1)}
    assert all(record.percent_of_roof > 0 for record in records)
    assert {(record.m, record.n, record.k) for record in records} == {(m, 256, 64) for m in (5, 10, 21, 42)}
    assert f"{len(everyone)} cases" in ended.stdout and f"{len(everyone)} of {len(everyone)} cases ok" in ended.stdout


@pytest.mark.mpi
def test_under_mpiexec_the_ranks_do_not_each_run_all_of_it(under_mpiexec, tmp_path):
    """``mpirun -n N drbench mlp`` runs N copies at once that start ranks of their own and write into one file."""
    ended = under_mpiexec(2, "mlp", "-p", 1, "--scale", 3072, "--iters", 1, "--layer", "mlp1", "--out", "out", timeout=40)
    assert ended.stdout.count("48 cases on") <= 1
    rows = [len([record for record in read_csv(path) if record.algorithm == "universal"]) for path in (tmp_path / "out").glob("*.csv")]
    assert rows in ([], [48])


def test_the_cases_are_the_paper_s(say):
    cases = mlp_cases(4, scale=16, layer="both", iters=5)
    assert len(cases) == 2 * 4 * 6 * 3 * 2
    assert {(case.n, case.k) for case in cases} == {(3072, 768), (768, 3072)}
    assert sorted({case.m for case in cases}) == [64, 128, 256, 512]
    assert {case.preset for case in cases} == {"row", "column", "block", "inner", "outer", "traditional"}
    assert {case.options["stationary"] for case in cases} == {"B", "C"}
    assert {case.c.partition("/")[2] for case in cases} == {"", "c2", "c4"}
    assert all(case.check and case.roof and case.iters == 5 for case in cases)


@pytest.fixture
def recorded(say, monkeypatch, tmp_path):
    """``recorded(status, *options)``: mlp without ranks, each case ending so; the environment its ranks were to get, and how it ended."""
    seen = {}

    def run_batch(cases, ranks, csv_path, on_case, environ):
        seen.update(environ=environ)
        for index, case in enumerate(cases):
            ok = case.k != seen["bad_k"]
            fields = {"m": case.m, "n": case.n, "k": case.k, "a": case.a, "b": case.b, "c": case.c, "preset": case.preset, "ranks": ranks,
                      "stationary": case.options["stationary"], "iters": 1, "dtype": "float32", "machine": case.machine, "algorithm": "universal"}
            rates = {"best_s": 1e-3, "gflops": 1.0, "percent_of_roof": 50.0, "percent_of_roof_min": 40.0, "percent_of_roof_max": 60.0}
            append_csv(csv_path, Record(mode="measured", status="ok" if ok else "wrong", reason=None if ok else "struck by the test", **fields,
                                        **(rates if ok else {})))
            on_case(index, {"status": "ok" if ok else "wrong", "reason": None if ok else "struck by the test",
                            "gflops": 1.0 if ok else None, "percent_of_roof": 50.0 if ok else None})

    monkeypatch.setattr(launch.mlp, "run_batch", run_batch)
    monkeypatch.setattr(launch.mlp, "get_peer", lambda name: SimpleNamespace(available=lambda: Availability(False, "no torch", "Get it.")))
    monkeypatch.setattr(launch.mlp, "_draw", lambda *_: None)

    def run(*options, bad_k=None):
        seen["bad_k"] = bad_k
        ended = say("mlp", "-p", 2, "--scale", 192, "--iters", 1, "--out", tmp_path / "out", *options)
        return ended, seen.get("environ")
    return run


def test_a_case_that_is_not_ok_is_named_and_exits_1(recorded):
    ended, _ = recorded(bad_k=256)
    assert ended.returncode == 1
    assert "96 of 192 cases ok" in ended.stdout and ended.stdout.count("struck by the test") >= 96


def test_a_second_run_starts_its_file_anew(recorded, tmp_path):
    for _ in range(2):
        assert recorded("--layer", "mlp2")[0].returncode == 0
    assert len(read_csv(tmp_path / "out" / "mlp2-h64-p2.csv")) == 96


def test_weaker_kernels_are_lifted_for_its_ranks_and_it_says_so(recorded, monkeypatch):
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    monkeypatch.setattr(launch.mlp, "weaker_pins", lambda: (Kernels("Haswell", 40e9), Kernels("SkylakeX", 60e9)))
    ended, environ = recorded("--layer", "mlp1")
    assert "OPENBLAS_CORETYPE" not in environ and "PATH" in environ
    assert "OPENBLAS_CORETYPE=Haswell" in ended.stdout and "unset for this run" in ended.stdout and "60 GFLOP/s" in ended.stdout
    assert os.environ["OPENBLAS_CORETYPE"] == "Haswell"


def test_pins_that_cost_nothing_are_left_alone(recorded, monkeypatch):
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    monkeypatch.setattr(launch.mlp, "weaker_pins", lambda: None)
    ended, environ = recorded("--layer", "mlp1")
    assert environ["OPENBLAS_CORETYPE"] == "Haswell" and "OPENBLAS" not in ended.stdout
