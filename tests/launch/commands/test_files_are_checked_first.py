"""A file or folder that cannot be used is refused in one line, before work that would be lost."""

import pytest
from made_up import made_up

import launch.models.tune  # noqa: F401  (before anything in it is replaced)
from drbench.measure.record_file import append_csv

SIZES = "-m 64 -n 64 -k 64 -p 2".split()


@pytest.fixture
def no_work(monkeypatch):
    """Long work fails the test."""
    for name in ("launch.models.predict.predict_with", "launch.models.tune.tune"):
        monkeypatch.setattr(name, lambda *_, **__: pytest.fail("work was done"))


@pytest.mark.parametrize("command", ["simulate", "tune"])
@pytest.mark.parametrize("content", [None, "notes of mine\n"])
def test_records_that_could_not_be_written_are_not_made(
    run_cli, no_work, tmp_path, command, content
):
    """Refused before the measurement, which would be lost."""
    path = tmp_path / "no" / "x.csv"
    if content:
        path = tmp_path / "notes.csv"
        path.write_text(content)
    line = run_cli(command, *SIZES, "--machine", "pvc12", "--csv", path).refusal()
    assert "--csv" in line and str(path) in line


@pytest.mark.parametrize("command", ["simulate", "tune"])
def test_a_file_of_records_is_appended_to(run_cli, tmp_path, command):
    path = tmp_path / "runs.csv"
    append_csv(path, made_up(status="failed", reason="first"))
    assert run_cli(command, *SIZES, "--machine", "pvc12", "--csv", path).returncode == 0
    assert path.read_text().count("\n") > 2


def test_an_extent_of_400_digits_is_refused(run_cli):
    """One line, no OverflowError."""
    line = run_cli("run", "-p", 2, "-m", "9" * 400, "-n", 8, "-k", 8).refusal()
    assert "-m" in line
