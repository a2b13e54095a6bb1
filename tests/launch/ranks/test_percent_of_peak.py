"""Percent of peak in records: given, kept in a file, or measured once by the ranks themselves."""

import json
from itertools import cycle

import numpy as np
import pytest

import launch.ranks.peak
from drbench.measure.noise import Timed
from drbench.measure.record_file import read_csv
from launch.cases.peak_files import write_peaks
from launch.cases.peaks import Peak
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
    """A communicator whose ``timed`` is a table of seconds by shape."""

    def __init__(self, size, seconds):
        self.rank, self.size, self.seconds, self.calls = 0, size, seconds, []

    def timed(self, comm, function):
        assert comm is self
        function()
        return Timed(self.seconds(self.calls[-1], self.calls.count(self.calls[-1])))

    def gemm(self, a, b, c, beta):
        assert beta == 0.0 and c.shape == (a.shape[0], b.shape[1]) and a.shape[1] == b.shape[0]
        assert np.isfinite(a).all() and a.flags.c_contiguous and b.flags.c_contiguous
        self.calls.append((*c.shape, a.shape[1]))


def test_the_best_sample_of_the_best_shape_counts_and_slow_shapes_are_given_up(monkeypatch):
    """At 10 GFLOP/s all but one shape, which has 20, and 16 in every other sample."""

    def seconds(shape, count):
        rate = (20e9 if count % 2 else 16e9) if shape == SHAPES[3] else 10e9
        return 2 * shape[0] * shape[1] * shape[2] / rate

    ranks = FakeRanks(3, seconds)
    monkeypatch.setattr(launch.ranks.peak, "timed", ranks.timed)
    found = best_gemm(ranks, ranks, "float64", budget_s=4.0)
    assert found.shape == SHAPES[3] and found.gflops == pytest.approx(3 * 20)
    assert found.median_gflops < found.gflops and found.samples == len(ranks.calls) - 1
    slow = [ranks.calls.count(shape) for shape in SHAPES if shape != SHAPES[3]]
    assert ranks.calls.count(SHAPES[3]) > 2 * max(slow)


def test_every_shape_is_tried_once_and_the_best_three_times_whatever_it_takes(monkeypatch):
    """What fits its time once agrees with itself: that says nothing."""
    ranks = FakeRanks(1, lambda shape, count: 100.0)
    monkeypatch.setattr(launch.ranks.peak, "timed", ranks.timed)
    found = best_gemm(ranks, ranks, "float32", budget_s=0.1)
    assert set(ranks.calls) == set(SHAPES) and len(ranks.calls) == len(SHAPES) + LEAST_SAMPLES
    # the first sample of all warms up and does not count
    assert ranks.calls.count(found.shape) == LEAST_SAMPLES + (found.shape == SHAPES[0])


def test_a_peak_keeps_the_share_of_the_cores_that_the_ranks_had(monkeypatch):
    ranks, lost = FakeRanks(1, lambda shape, count: 1.0), cycle([0.5, 0.7, 0.6])
    plain = ranks.timed
    monkeypatch.setattr(
        launch.ranks.peak, "timed", lambda *args: plain(*args)._replace(lost=next(lost))
    )
    assert best_gemm(ranks, ranks, "float32", 0.1).core_share == pytest.approx(0.4)


#: What is given as peak -> the peak of two ranks, where it is known, and the source.
PEAKS = {
    "25": (50.0, "given: --peak 25 of one rank"),
    "FILE": (30.0, "of my own"),
    "measure": (None, "measured: best of"),
    None: (None, None),
    "none": (None, None),
}


@pytest.fixture(scope="module")
def records(lines_on_ranks, tmp_path_factory):
    """The record of a run on two ranks for each peak that is given."""
    path = tmp_path_factory.mktemp("peak") / "mine.toml"
    write_peaks(path, {"float32": Peak("core", 40.0, "of my own", 30.0)}, "-o")
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
    assert total in (None, record["peak_gflops"]) and record["peak_gflops"] > 0
    percent = 100 * record["gflops"] / record["peak_gflops"]
    assert record["percent_of_peak"] == pytest.approx(percent)


@pytest.mark.mpi
def test_a_bad_peak_is_refused_before_ranks_start(drbench):
    ended = drbench("run", "-p", 2, *SMALL, "--peak", "fast")
    assert "--peak 'fast': is no number of GFLOP/s of one rank" in ended.refusal()


@pytest.mark.mpi
def test_a_sweep_measures_the_peak_once_for_each_element_type_and_again_never(drbench, tmp_path):
    (tmp_path / "two.toml").write_text(SWEEP)
    words = ["sweep", "two.toml", "-p", 2, "--out", "two", *ONCE_EACH]
    assert drbench(*words, "--max-cases", 2, timeout=60).returncode == 0
    (path,) = (tmp_path / "two" / "environments").glob("*.json")
    before = json.loads(path.read_text())["peaks"]
    assert drbench(*words, timeout=60).returncode == 0
    peaks = json.loads(path.read_text())["peaks"]
    assert set(peaks) == {f"{dtype} on 2 x 1 threads" for dtype in ("float32", "float64")}
    for key, found in before.items():  # kept as it was found, but for what a case passed
        assert peaks[key]["median_gflops"] == found["median_gflops"]
    latest = json.loads((tmp_path / "two" / "environment.json").read_text())
    assert latest["peaks"] == peaks and latest["id"] == path.stem
    records = read_csv(tmp_path / "two" / "records.csv")
    assert len(records) == 4
    for record in records:
        found = peaks[f"{record.dtype} on 2 x 1 threads"]
        assert 0 < record.peak_gflops <= 2 * found["rank_gflops"]
        assert found["source"].startswith(record.peak_source) and 0 < record.percent_of_peak <= 100


@pytest.mark.mpi
def test_a_measured_peak_that_a_case_passes_is_raised_and_kept(drbench, tmp_path):
    """As on a machine that had other work while the peak was measured."""
    (tmp_path / "two.toml").write_text(SWEEP.replace(', "float64"', ""))
    words = ["sweep", "two.toml", "-p", 2, "--out", "two", *ONCE_EACH]
    assert drbench(*words, "--max-cases", 1, timeout=60).returncode == 0
    (path,) = (tmp_path / "two" / "environments").glob("*.json")
    description = json.loads(path.read_text())
    (key,) = description["peaks"]
    description["peaks"][key]["rank_gflops"] = 1e-6
    path.write_text(json.dumps(description))
    assert drbench(*words, timeout=60).returncode == 0
    last = read_csv(tmp_path / "two" / "records.csv")[-1]
    kept = json.loads(path.read_text())["peaks"][key]
    assert 0 < last.percent_of_peak <= 100 + 1e-9
    assert last.peak_gflops == 2 * kept["rank_gflops"] > 1e-3
    assert last.peak_source == kept["source"]
    assert kept["source"].endswith("raised to what a case reached")


@pytest.mark.mpi
@pytest.mark.parametrize("words, percent", [(["--peak", "none"], None), (["--peak", "0.5"], True)])
def test_a_sweep_that_is_given_a_peak_measures_none(drbench, tmp_path, words, percent):
    (tmp_path / "two.toml").write_text(SWEEP.replace(', "float64"', ""))
    sweep = ["sweep", "two.toml", "-p", 2, "--out", "two", *ONCE_EACH]
    assert drbench(*sweep, *words, timeout=60).returncode == 0
    assert "peaks" not in json.loads((tmp_path / "two" / "environment.json").read_text())
    for record in read_csv(tmp_path / "two" / "records.csv"):
        assert (record.percent_of_peak is None) == (percent is None)
        assert record.peak_gflops == (percent and 1.0)


@pytest.mark.mpi
def test_a_sweep_of_two_element_types_refuses_one_number(drbench, tmp_path):
    (tmp_path / "two.toml").write_text(SWEEP)
    ended = drbench("sweep", "two.toml", "-p", 2, "--out", "two", "--peak", "80")
    assert "peaks of their own" in ended.refusal() and not (tmp_path / "two").exists()
