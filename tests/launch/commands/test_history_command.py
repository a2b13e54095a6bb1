"""``drbench history``: a list with the steps of each case, and a figure."""

import json
import shutil

import pytest
from made_up import of_universal

from drbench.measure.record_file import append_csv


def night(folder, day, commit, factor=1.0, **more):
    """The folder of a sweep of two cases, of which the second is slower by a factor."""
    (folder / "environments").mkdir(parents=True)
    state = {"drbench": {"version": "1.0", "commit": commit, "dirty": commit == "e" * 40}}
    (folder / "environments/x.json").write_text(json.dumps(state))
    known = {"timestamp": f"2025-03-{day:02}T02:00:00+00:00", "environment": "x", **more}
    for m, times in ((64, 1 + day % 3 / 300), (128, factor)):
        times = {"best_s": times, "median_s": times, "samples_s": [times] * 6}
        percent = {"percent_of_gemm_only": 90 / times["best_s"]}
        append_csv(folder / "records.csv", of_universal(m=m, **times, **percent, **known))


@pytest.fixture
def nights(tmp_path):
    commits = [letter * 40 for letter in "aaabbbcdeeef"]
    for day, commit in enumerate(commits, 1):
        slower, mpi = (1.1, "MPICH 5") if day > 6 else (1.0, "MPICH 4")
        night(tmp_path / f"nightly/{day}", day, commit, slower, mpi=mpi)
    night(tmp_path / "nightly/1/rounds", 1, "f" * 40, 7.0)
    inside = tmp_path / "nightly/7/rounds"  # as of a sweep in rounds
    inside.mkdir()
    (inside.parent / "environments").rename(inside / "environments")
    shutil.copy(inside.parent / "records.csv", inside)
    return tmp_path / "nightly"


def test_a_step_is_listed_with_its_first_run_and_what_changed(run_cli, nights):
    ended = run_cli("history", nights)
    assert ended.returncode == 0 and ended.stdout.startswith("1 of 2 cases changed in steps.")
    first = next(line for line in ended.stdout.splitlines() if " m=" in f" {line}")
    assert first.split()[:7] == ["m=128", "here", "gemm_only", "90.0", "%", "81.8", "%"]
    assert "× 0.909 at 2025-03-07 02:00, commit cccccccccc, mpi MPICH 5" in first
    rows = run_cli("history", nights, "--by", "commit", "--quantity", "time", "--json").json()
    assert [row["steps"] for row in rows] == [
        "× 1.100 at cccccccccc, commit cccccccccc, mpi MPICH 5",
        "",
    ]
    (row,) = run_cli("history", nights, "--case", "m=64", "--case", "n=256", "--json").json()
    assert row["case"].count("m=64") == 1 and row["steps"] == ""
    assert run_cli("history", nights, "--tolerance", 0.2, "--json").json()[0]["steps"] == ""


@pytest.mark.thorough
def test_the_history_is_drawn_alone_and_with_its_list(run_cli, nights, tmp_path):
    ended = run_cli("history", nights, "--save", tmp_path / "a.txt", "--csv", tmp_path / "a.csv")
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "a.csv").read_text().startswith("case,label,quantity,first,last,steps\n")
    assert run_cli("plot", "history", nights, "--save", tmp_path / "b.txt").returncode == 0
    text = (tmp_path / "a.txt").read_text()
    assert text == (tmp_path / "b.txt").read_text() and "m=128" in text and "81.82" in text


@pytest.mark.thorough
def test_rows_that_cannot_be_compared_are_no_points(run_cli, tmp_path):
    night(tmp_path / "1", 1, None)
    night(tmp_path / "2", 2, None, noisy=True)
    night(tmp_path / "3", 3, None, status="failed", reason="x")
    append_csv(tmp_path / "4.csv", of_universal())
    rows = run_cli("history", tmp_path, "--by", "commit", "--json").json()
    assert len(rows) == 2
    for words in ("4.csv",), ("3",), ("1", "--case", "m=1"):
        words = [tmp_path / words[0], *words[1:]]
        assert "no row of" in run_cli("history", *words).refusal()


@pytest.mark.thorough
def test_a_damaged_environment_is_no_commit(run_cli, tmp_path):
    for name, text in (("1", "{"), ("2", "[]"), ("3", '{"drbench": {}}')):
        night(tmp_path / name, 1, "a")
        (tmp_path / name / "environments/x.json").write_text(text)
    assert "with a commit" in run_cli("history", tmp_path, "--by", "commit").refusal()
    assert run_cli("history", tmp_path).returncode == 0
