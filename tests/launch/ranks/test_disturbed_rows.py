"""A row that was measured next to other work records the share of their cores that the ranks had,
the number of disturbed repeats, and that it is noisy."""

import json
import os

import pytest
from busy import busy_cores

from drbench.measure.noise import LEAST_SHARE, doubts
from drbench.measure.record import Record
from drbench.measure.record_file import read_csv

pytestmark = pytest.mark.mpi


def test_a_run_next_to_busy_processes_is_noisy_and_reports_its_share_of_the_cores(
    drbench, tmp_path
):
    """Where most repeats are disturbed none is left out, and the row is noisy."""
    words = (
        "run -p 2 -m 1024 -n 1024 -k 512 --iters 6 --budget 0 -o check=false --csv rows.csv".split()
    )
    with busy_cores():
        ended = drbench(*words, timeout=120)
    assert ended.returncode == 0, ended.stderr
    (row,) = read_csv(tmp_path / "rows.csv")
    assert row.noisy and 4 <= row.disturbed <= 6 and 0 < row.core_share < LEAST_SHARE
    assert "noisy" in doubts(row)
    text = " ".join(ended.stdout.split())
    share = f"{100 * row.core_share:.0f} % of their cores, {row.disturbed} repeats disturbed"
    assert f"noisy: the ranks had {share}; nothing can be concluded" in text


def test_ranks_that_share_cores_with_others_are_noisy_by_their_share_of_the_cores(drbench):
    """Two ranks a core are no disturbance; other processes on these cores are."""
    words = "run -m 256 -n 256 -k 256 --iters 6 --budget 0 -o check=false --json -p".split()
    with busy_cores():
        ended = drbench(*words, 2 * len(os.sched_getaffinity(0)), timeout=120)
    row = Record(**json.loads(ended.stdout))
    assert row.oversubscribed and row.noisy and row.core_share < LEAST_SHARE and row.disturbed == 0


def test_bandwidths_next_to_busy_processes_are_noisy(drbench):
    # long enough that other processes have their turn meanwhile
    with busy_cores():
        shown = drbench(*"bandwidth -p 2 --sizes 64MiB --only get".split(), timeout=120).stdout
    assert "noisy:" in shown and "% of" in shown


SWEEP = """
name = "two"
[defaults]
iters = 3
budget = 0
gemm_only = true
[[cases]]
m = 1024
n = 1024
k = 512
preset = ["row", "column"]
stationary = "C"
"""


def test_a_sweep_next_to_busy_processes_decide_nothing(drbench, tmp_path):
    (tmp_path / "two.toml").write_text(SWEEP)
    with busy_cores():
        ended = drbench(*"sweep two.toml -p 2 --out two".split(), timeout=200)
    assert ended.returncode == 0, ended.stderr
    lines = ended.stdout.splitlines()
    assert "1 problem without a ranked case: a quiet machine would decide" in lines
    assert not any("fastest" in line or "tied" in line for line in lines)
    assert all(row.noisy and row.disturbed for row in read_csv(tmp_path / "two" / "records.csv"))


@pytest.mark.thorough  # the noise of a row and the table of noisy rows have tests of their own
def test_libraries_next_to_busy_processes_have_no_best(drbench):
    words = "sweep libraries -p 2 -o m=512 -o n=1Ki -o k=1Ki -o rounds=1 -o preset=row --out out"
    words += " -o libraries=scalapack -o algorithm=summa -o budget=0"
    with busy_cores():
        ended = drbench(*words.split(), timeout=120)
    assert ended.returncode == 0, ended.stderr
    assert "never ranked" in ended.stdout
