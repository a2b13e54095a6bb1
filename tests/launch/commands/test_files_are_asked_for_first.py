"""A file or folder that cannot be used is said in one line, before any work that would be lost."""

import shutil

import pytest
from made_up import made_up

import launch.models.tune  # noqa: F401  (before anything in it is replaced)
from drbench.measure.record_file import append_csv
from launch.cases.sweep_values import shipped
from launch.studies.meshslice_study import STUDIES

SIZES = ["-m", 64, "-n", 64, "-k", 64, "-p", 2]


@pytest.fixture
def no_work(monkeypatch):
    """Whatever takes long fails the test."""
    for name in ("launch.models.predict.predict_with", "launch.models.tune.tune"):
        monkeypatch.setattr(name, lambda *_, **__: pytest.fail("work was done"))


@pytest.mark.parametrize("command", ["simulate", "tune"])
@pytest.mark.parametrize("content", [None, "notes of mine\n"])
def test_records_that_could_not_be_written_are_not_made(say, no_work, tmp_path, command, content):
    """Before anything is measured that would be lost."""
    path = tmp_path / "no" / "x.csv"
    if content:
        path = tmp_path / "notes.csv"
        path.write_text(content)
    line = say(command, *SIZES, "--machine", "pvc12", "--csv", path).refusal()
    assert "--csv" in line and str(path) in line


@pytest.mark.parametrize("command", ["simulate", "tune"])
def test_a_file_of_records_is_appended_to(say, tmp_path, command):
    path = tmp_path / "runs.csv"
    append_csv(path, made_up(status="failed", reason="first"))
    assert say(command, *SIZES, "--machine", "pvc12", "--csv", path).returncode == 0
    assert path.read_text().count("\n") > 2


def test_claims_are_not_checked_on_a_file_of_something_else(say, tmp_path):
    """A line, not a traceback."""
    path = tmp_path / "README.md"
    path.write_text("# Notes\n")
    assert "another header" in say("paper", "check-claims", path).refusal()


def test_a_torus_is_none_that_a_file_describes(say, tmp_path):
    """A path is not taken for a name, to which .toml would be added."""
    path = tmp_path / "file.toml"
    shutil.copy(shipped("machines")["h200x8"], path)
    for command in (["paper", "tune-llm", "--model", "gpt3"], ["paper", "llm-study"]):
        assert "file.toml" in say(*command, "--machine", path).refusal()


def test_the_rows_of_a_study_may_lie_beside_other_records(say, monkeypatch, tmp_path):
    """Which are no rows of a study, and are not read as such."""
    append_csv(tmp_path / "mlp1.csv", made_up(mode="simulated", status="failed"))
    monkeypatch.setattr("launch.studies.meshslice_study.run_study", lambda *_: [])
    ended = say("paper", "llm-study", next(iter(STUDIES)), "--out", tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_an_extent_of_400_digits_is_refused(say):
    """A line, not an OverflowError."""
    line = say("run", "-p", 2, "-m", "9" * 400, "-n", 8, "-k", 8).refusal()
    assert "-m" in line
