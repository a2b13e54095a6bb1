"""Files that cannot be written once the work is done: the results are printed, and one line names
the file. /dev/full is a disk that is always full."""

import errno
import os

import pytest
from made_up import made_up
from starting import ROOT

from drbench.errors import CaseFailed
from drbench.launch.host.files import output_record
from drbench.measure.record_file import append_csv

SIZES = "-m 32 -n 32 -k 32 -p 2".split()
FULL = "No space left on device"

pytestmark = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")


@pytest.fixture
def records(tmp_path):
    path = tmp_path / "records.csv"
    append_csv(path, made_up(status="ok"))
    return path


@pytest.mark.mpi
def test_a_measurement_is_shown_though_its_timeline_cannot_be_written(drbench):
    run = ["run", *SIZES, *"--iters 1 -o gemm_only=false --threads 1".split()]
    ended = drbench(*run, "--timeline", "/dev/full", timeout=60)
    assert ended.returncode == 5 and "Result exact" in ended.stdout
    assert ended.stderr.startswith(f"drbench: --timeline /dev/full: {FULL}")
    assert ended.stderr.count("\n") == 1


def test_simulations_and_pages_name_the_file(run_cli, records):
    for words in (
        ["simulate", *SIZES, "--machine", "pvc12", "--timeline", "/dev/full"],
        ["explain", *SIZES, "--save", "/dev/full"],
        ["report", records, "--save", "/dev/full"],
        ["compare", records, records, "--csv", "/dev/full"],
    ):
        ended = run_cli(*words)
        assert ended.returncode == 5 and ended.stderr.count("\n") == 1
        assert f"/dev/full: {FULL}" in ended.stderr


def test_a_figure_names_the_file(run_cli, tmp_path):
    records = ROOT / "results/measured/epyc-2core/exhaustive-p4/records.csv"
    picture = tmp_path / "best.png"
    picture.symlink_to("/dev/full")
    assert f"{picture}: {FULL}" in run_cli("plot", "best", records, "--save", picture).refusal(5)


def test_a_record_that_cannot_be_appended_is_printed_nevertheless(tmp_path, capsys, monkeypatch):
    """The disk fills while the case is measured."""

    def full(descriptor, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    path = tmp_path / "one.csv"
    with pytest.raises(CaseFailed, match="--csv .*one.csv: No space left on device"):
        output_record(made_up(m=4321), str(path), "brief")
    monkeypatch.undo()
    assert "4321" in capsys.readouterr().out
