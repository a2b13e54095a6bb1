"""Percent of peak in records, given or kept in a file; and what doctor's ranks measure."""

from itertools import cycle

import numpy as np
import pytest

import launch.ranks.peak
from drbench.measure.noise import Timed
from drbench.measure.record_file import read_csv
from launch.ranks.peak import LEAST_SAMPLES, SHAPES, best_gemm

SMALL = ["-m", 64, "-n", 96, "-k", 48]
ONCE = ["--iters", 1, "--budget", 0]
ONCE_EACH = ["-o", "iters=1", "-o", "budget=0", "-o", "threads=1"]
SWEEP = """
name = "two"
[[cases]]
m = 64
n = 96
k = 48
preset = ["row", "column"]
dtype = ["float32", "float64"]
"""


class FakeRanks:
    """A communicator whose ``timed`` is a table of seconds by shape and count."""

    def __init__(self, size, seconds):
        self.rank, self.size, self.seconds, self.calls = 0, size, seconds, []

    def bcast(self, value):
        return value

    def timed(self, comm, function):
        assert comm is self
        function()
        return Timed(self.seconds(self.calls[-1], self.calls.count(self.calls[-1])))

    def gemm(self, a, b, c, beta):
        assert beta == 0.0 and c.shape == (a.shape[0], b.shape[1]) and a.shape[1] == b.shape[0]
        assert np.isfinite(a).all() and a.flags.c_contiguous and b.flags.c_contiguous
        self.calls.append((*c.shape, a.shape[1]))


def test_the_best_sample_of_the_best_shape_counts_but_for_the_first(monkeypatch):
    """At 10 GFLOP/s all but one shape, which has 20, and 16 in every other sample; the first sample
    of each is quicker than all, and warms up."""

    def seconds(shape, count):
        rate = (20e9 if count % 2 else 16e9) if shape == SHAPES[3] else 10e9
        return 2 * shape[0] * shape[1] * shape[2] / (99e9 if count == 1 else rate)

    ranks = FakeRanks(3, seconds)
    monkeypatch.setattr(launch.ranks.peak, "timed", ranks.timed)
    found = best_gemm(ranks, ranks, "float64", budget_s=0.0)
    assert found["gflops"] == pytest.approx(3 * 20)
    assert found["median_gflops"] < found["gflops"] and found["core_share"] == 1
    assert all(ranks.calls.count(shape) == LEAST_SAMPLES + 1 for shape in SHAPES)


def test_a_peak_keeps_the_share_of_the_cores_that_the_ranks_had(monkeypatch):
    ranks, lost = FakeRanks(1, lambda shape, count: 1.0), cycle([0.5, 0.6, 0.7])
    plain = ranks.timed
    monkeypatch.setattr(
        launch.ranks.peak, "timed", lambda *args: plain(*args)._replace(lost=next(lost))
    )
    assert best_gemm(ranks, ranks, "float32", 0.0)["core_share"] == pytest.approx(0.4)


#: What is given as peak -> the peak of two ranks, where it is known, and the source.
PEAKS = {
    "25": (50.0, "given: --peak 25 of one rank"),
    "FILE": (30.0, "of my own"),
    None: (None, None),
    "none": (None, None),
}


@pytest.fixture(scope="module")
def records(lines_on_ranks, tmp_path_factory):
    """The record of a run on two ranks for each peak that is given."""
    path = tmp_path_factory.mktemp("peak") / "mine.toml"
    path.write_text('[peak.float32]\nrank_gflops = 15\nsource = "of my own"\n')
    line = ["run", *SMALL, "--threads", 1, "--iters", 1, "--budget", 0, "--json"]
    words = {peak: ["--peak", path if peak == "FILE" else peak] if peak else [] for peak in PEAKS}
    ended = lines_on_ranks(2, {peak: [*line, *words[peak]] for peak in PEAKS})
    return {peak: each.json() for peak, each in ended.items()}


@pytest.mark.mpi
@pytest.mark.parametrize("peak", PEAKS)
def test_a_run_has_percent_of_the_peak_it_was_given(records, peak):
    (total, source), record = PEAKS[peak], records[peak]
    assert (record["peak_source"] or "").startswith(source or "")
    if source is None:
        assert [record[name] for name in ("peak_gflops", "percent_of_peak")] == [None, None]
        return
    assert record["peak_gflops"] == total
    percent = 100 * record["gflops"] / record["peak_gflops"]
    assert record["percent_of_peak"] == pytest.approx(percent)


@pytest.mark.mpi
def test_a_bad_peak_is_refused_before_ranks_start(drbench):
    ended = drbench("run", "-p", 2, *SMALL, "--peak", "fast")
    assert "--peak 'fast': is no number of GFLOP/s of one rank" in ended.refusal()


@pytest.mark.mpi
@pytest.mark.parametrize("words, percent", [([], None), (["--peak", "0.5"], True)])
def test_a_sweep_has_percent_of_the_peak_it_is_given(drbench, tmp_path, words, percent):
    (tmp_path / "two.toml").write_text(SWEEP.replace(', "float64"', ""))
    sweep = ["sweep", "two.toml", "-p", 2, "--out", "two", *ONCE_EACH]
    assert drbench(*sweep, *words, timeout=60).returncode == 0
    for record in read_csv(tmp_path / "two" / "records.csv"):
        assert (record.percent_of_peak is None) == (percent is None)
        assert record.peak_gflops == (percent and 1.0)


@pytest.mark.mpi
def test_a_sweep_of_two_element_types_refuses_one_number(drbench, tmp_path):
    (tmp_path / "two.toml").write_text(SWEEP)
    ended = drbench("sweep", "two.toml", "-p", 2, "--out", "two", "--peak", "80")
    assert "peaks of their own" in ended.refusal() and not (tmp_path / "two").exists()
