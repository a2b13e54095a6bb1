"""A row that was measured next to other work records the share of their cores that the ranks had,
the number of disturbed repeats, and that it is noisy."""

import json
import os
import sys

import pytest
from busy import busy_cores
from starting import run_process

from drbench.measure.noise import LEAST_SHARE, doubts
from drbench.measure.record import Record
from drbench.measure.record_file import read_csv

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(200)]

SWEEP = """
name = "two"
[defaults]
iters = 3
budget = 0
gemm_only = true
check = false
[[cases]]
m = 1024
n = 1024
k = 256
preset = ["row", "column"]
stationary = "C"
"""
ONCE = "--iters 6 --budget 0 -o check=false"
#: Commands that run at the same time.
COMMANDS = {
    "run": f"run -p 2 -m 1024 -n 1024 -k 512 {ONCE} --csv rows.csv",
    "crowd": f"run -m 256 -n 256 -k 256 {ONCE} --json -p {1 + len(os.sched_getaffinity(0))}",
    # long enough that other processes have their turn meanwhile
    "bandwidth": "bandwidth -p 2 --sizes 16MiB --only get",
    "sweep": "sweep two.toml -p 2 --out two",
}


@pytest.fixture(scope="module")
def busy(mpiexec, tmp_path_factory):
    """The folder in which the commands ran next to busy processes, with what they printed."""
    folder = tmp_path_factory.mktemp("busy")
    (folder / "two.toml").write_text(SWEEP)
    lines = (f"$0 -m drbench {words} >{name}.txt & " for name, words in COMMANDS.items())
    with busy_cores():
        ended = run_process(
            ["sh", "-c", f"{''.join(lines)} wait", sys.executable], folder, timeout=150
        )
    assert ended.stderr == ""
    return folder


def test_a_run_next_to_busy_processes_is_noisy_and_reports_its_share_of_the_cores(busy):
    """Where most repeats are disturbed none is left out, and the row is noisy."""
    (row,) = read_csv(busy / "rows.csv")
    assert row.noisy and 4 <= row.disturbed <= 6 and 0 < row.core_share < LEAST_SHARE
    assert "noisy" in doubts(row)
    text = " ".join((busy / "run.txt").read_text().split())
    share = f"{100 * row.core_share:.0f} % of their cores, {row.disturbed} repeats disturbed"
    assert f"TIME NOT USABLE (the ranks had {share})" in text


def test_ranks_that_share_cores_with_others_are_noisy_by_their_share_of_the_cores(busy):
    """More ranks than cores are no disturbance; other processes on these cores are."""
    row = Record(**json.loads((busy / "crowd.txt").read_text()))
    assert row.oversubscribed and row.noisy and row.core_share < LEAST_SHARE and row.disturbed == 0


def test_bandwidths_next_to_busy_processes_are_noisy(busy):
    shown = (busy / "bandwidth.txt").read_text()
    assert "usable: " in shown.splitlines()[0].lower() and "~ noisy:" in shown


def test_a_sweep_next_to_busy_processes_decide_nothing(busy):
    lines = (busy / "sweep.txt").read_text().splitlines()
    said = "2 results correct, but no time can be used (a quiet machine would decide)."
    assert said in lines
    assert not any("fastest" in line or "tied" in line for line in lines)
    assert all(row.noisy and row.disturbed for row in read_csv(busy / "two" / "records.csv"))
