"""Peaks of machine files and of ``--peak``, and the peak that percentages refer to."""

import itertools

import pytest

from drbench.errors import UsageError
from drbench.launch.cases.case import Case
from drbench.launch.cases.launchers import load_launcher
from drbench.launch.cases.peaks import Peak, read_peaks, with_peak
from drbench.measure.record import Record
from drbench.model.machine_file import ARITHMETICS
from drbench.program.problem import ITEMSIZES

CASES = [Case(8, 8, 8), Case(8, 8, 8, dtype="float64")]
RUN = {"mode": "measured", "status": "ok", "best_s": 1.0, "dtype": "float32", "gflops": 90.0}


@pytest.fixture
def file(tmp_path):
    """``file(text)``: path of a machine file."""

    def write(text):
        (tmp_path / "mine.toml").write_text(text)
        return str(tmp_path / "mine.toml")

    return write


FILE = """# my lab
[launch]
ranks_per_node = 3
[peak]
float32 = {core_gflops = 80.5, source = "doctor"}
float64 = {device_gflops = 67000, source = "a data sheet"}
tf32 = {rank_gflops = 0.125, source = "given"}
"""


def test_a_machine_file_gives_peaks_as_peak_or_as_launcher(file):
    path = file(FILE)
    peaks = {
        "float32": Peak("core", 80.5, "doctor"),
        "float64": Peak("device", 67000.0, "a data sheet"),
        "tf32": Peak("rank", 0.125, "given"),
    }
    assert read_peaks(path, ()) == read_peaks(None, (), path) == peaks
    assert load_launcher(path).ranks_per_node == 3


#: Lines of a file, and what the refusal says.
MISTAKES = """
peak.int8 = 1 | peak.int8: there is no such key. There are float32
peak = 3 | peak: must be tables
peak.float32 = {source = "x"} | peak.float32: must be a table with one of core_gflops
peak.float32 = {core_gflops = 1, rank_gflops = 1, source = "x"} | must be a table with
peak.float32 = {core_gflops = 1} | peak.float32: must be a table with one of
peak.float32 = {core_gflops = -1, source = "x"} | core_gflops: must be a number above 0
peak.float32 = {node_gflops = 2, source = ""} | node_gflops: there is no such key
peak.float32 = {gflops = 1, source = ""} | peak.float32: gflops: there is no such key
# nothing | with a table [peak.DTYPE]
model.compute = {peak_flops = 1e12, peak_measured = true} | with a table [peak.DTYPE]
"""


@pytest.mark.parametrize("line", MISTAKES.strip().splitlines())
def test_a_mistake_in_a_file_is_named_with_file_and_key(file, line):
    text, _, described = line.partition(" | ")
    with pytest.raises(UsageError) as caught:
        read_peaks(file(text), CASES)
    assert described in str(caught.value) and "mine.toml" in str(caught.value)


@pytest.mark.parametrize("text", "0 -3 nan inf mine h100 1,5".split())
def test_an_invalid_peak_is_refused_in_one_line(text):
    with pytest.raises(UsageError, match="--peak") as caught:
        read_peaks(text, CASES[:1])
    assert "\n" not in str(caught.value)


def test_a_number_is_the_peak_of_one_element_type_only():
    assert read_peaks("40", CASES[1:])["float64"].gflops == 40
    with pytest.raises(UsageError, match="float32 and float64, which have different peaks"):
        read_peaks("40", CASES)


def test_a_vendors_peak_of_a_model_is_used_and_a_fitted_rate_is_not():
    found = read_peaks("tpuv4", CASES)
    assert set(found) == {"bfloat16"} and found["bfloat16"].gflops == 272e3
    assert found["bfloat16"].source == "model.compute.peak_flops of tpuv4"
    assert read_peaks(None, CASES, "here") == {}


def test_percent_of_peak_counts_the_cores_of_the_ranks():
    """The oracle adds a core at a time."""
    core = 50.0
    for ranks, threads, nodes in itertools.product((1, 2, 4, 6), (1, 2, 3), (1, 2)):
        if ranks % nodes:
            continue
        total = sum(core for _ in range(nodes) for _ in range(ranks // nodes * threads))
        record = Record(**RUN, backend="numpy", ranks=ranks, threads=threads, nodes=nodes)
        found = with_peak(record, {"float32": Peak("core", core, "why")})
        assert found.peak_gflops == pytest.approx(total)
        assert found.percent_of_peak == pytest.approx(100 * 90.0 / total)
        assert found.peak_source == "why"


@pytest.mark.parametrize(
    "changes, peak",
    [
        ({"dtype": "float64"}, Peak("rank", 9.0, "")),  # none of that element type
        ({"backend": "cupy", "device": "X"}, Peak("core", 9.0, "")),  # cores, on devices
        ({"backend": "numpy", "threads": 1, "oversubscribed": True}, Peak("core", 9.0, "")),
        ({"backend": "numpy", "threads": 1}, Peak("device", 9.0, "")),  # a device, on cores
        ({"status": "failed", "reason": "x"}, Peak("rank", 9.0, "")),
        ({"compute": "tf32", "backend": "cupy", "device": "X"}, Peak("device", 9.0, "")),
    ],
)
def test_a_peak_of_something_else_leaves_the_columns_empty(changes, peak):
    record = Record(**RUN | {"ranks": 2} | changes)
    assert with_peak(record, {"float32": peak}) == record


def test_peaks_are_of_the_element_types_that_runs_have():
    assert {dtype.partition(":")[0] for dtype in ITEMSIZES} < set(ARITHMETICS)
