"""Percent of peak in records, given or kept in a file."""

import pytest

from drbench.measure.record_file import read_csv

SMALL = "-m 64 -n 96 -k 48".split()
ONCE_EACH = "-o iters=1 -o budget=0 -o threads=1".split()
SWEEP = """
name = "two"
[[cases]]
m = 64
n = 96
k = 48
preset = ["row", "column"]
dtype = "float32"
"""


#: Value of --peak -> the peak of two ranks, where it is known, and the source.
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
    line = ["run", *SMALL, *"--threads 1 --iters 1 --budget 0 --json".split()]
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
    assert "--peak fast: give GFLOP/s of one rank" in ended.refusal()


@pytest.mark.mpi
def test_a_sweep_has_percent_of_the_peak_it_is_given(drbench, tmp_path):
    (tmp_path / "two.toml").write_text(SWEEP)
    sweep = [*"sweep two.toml -p 2 --out two --peak 0.5".split(), *ONCE_EACH]
    assert drbench(*sweep, timeout=60).returncode == 0
    for record in read_csv(tmp_path / "two" / "records.csv"):
        assert record.percent_of_peak and record.peak_gflops == 1.0
