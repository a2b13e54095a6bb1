"""Inputs of users and attackers, and the one line that answers each."""

import errno
import os
import sys

import pytest
from made_up import made_up

from drbench.errors import CaseFailed, UsageError
from drbench.measure.record_file import append_csv
from launch.host.files import output_record
from launch.host.kernels import Kernels
from launch.sweeps.plan import SweepRequest
from launch.sweeps.store import Store

SIZES = "-m 64 -n 64 -k 64".split()


@pytest.fixture(autouse=True)
def nothing_starts(monkeypatch):
    """No rank is started, and no processor is measured."""
    fail = lambda *_, **__: pytest.fail("ranks were started")
    for name in (
        "launch.commands.run.run_ranks",
        "launch.commands.predict.model.run_ranks",
        "launch.sweeps.starter.Ranks.__init__",
    ):
        monkeypatch.setattr(name, fail)
    monkeypatch.setattr("launch.sweeps.estimate.measure_kernels", lambda: Kernels("Test", 50e9))


#: Command lines that are refused with exit code 2, and what the line must mention.
REFUSED = [
    ("sweep mlp --simulate --machine h100x8 --peak 3".split(), ["--peak", "Leave one"]),
    (["sweep", "mlp", "-o", "iters"], ["'iters'", "KEY=VALUE"]),
    ("sweep scaling -p 8 -o ranks=1,2".split(), ["-p 8", "1, 2", "Leave -p out"]),
    (["sweep", "mlp", "--csv", "/no/such/x.csv"], ["--csv /no/such"]),
    (["run", "-p", 1000, *SIZES], ["-p 1000", "2 cores", "--yes", "drbench simulate"]),
    (["run", "-p", 2, *SIZES, "--threads", 99], ["--threads 99", "2 cores"]),
    (["calibrate", "-p", 1000, "--save", "x.toml"], ["-p 1000"]),
]


@pytest.mark.parametrize(
    "words, mentioned", REFUSED, ids=[" ".join(map(str, words)) for words, _ in REFUSED]
)
def test_a_wrong_command_line_is_refused_in_one_line(
    run_cli, monkeypatch, tmp_path, words, mentioned
):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    monkeypatch.chdir(tmp_path)
    line = run_cli(*words).refusal()
    assert all(text in line for text in mentioned), line


def test_the_resume_command_keeps_all_options_except_those_that_apply_once():
    more = {"stream": True, "yes": True, "fresh": True, "override": (("m", "1,2"),)}
    request = SweepRequest("mlp1", 4, "out", scale="1/16", **more)
    assert request.arguments() == [
        *"drbench sweep mlp1 -p 4 --out=out --scale=1/16 -o m=1,2".split(),
        *("--stream", "--yes"),
    ]


def test_rows_of_another_number_of_ranks_are_not_moved_away(tmp_path, made):
    store = Store(tmp_path)
    store.open(2, ["a" * 16])
    store.add(made("a" * 16))
    with pytest.raises(UsageError, match="1 row.* on 2 ranks, these on 4.*--out.*fresh"):
        Store(tmp_path).open(4, ["b" * 16])


@pytest.fixture
def made():
    """``made(case)``: a record of that id."""
    return lambda case: made_up(status="failed", reason="made up", case=case, ranks=2)


#: Wrong lines of a sweep file and their messages: the block and the key are named.
SLIPS = {
    'algorithm = "sumna"': ["cases 2: algorithm: ", "'sumna'", "Did you mean summa?"],
    'stationary = ["D"]': ["cases 2: stationary: ", "'D'", "auto, A, B, C"],
    'algorithm = "summa"\nstationary = "A"': ["cases 2: summa takes no stationary", "panel"],
    'b = "rwo"': ["cases 2: b: ", "'rwo'", "did you mean row"],
    'partitions = [["row", "rwo", "row"]]': ["cases 2: partitions: ", "'rwo'"],
    "colour = 3": ["cases 2: colour: there is no such key"],
}


@pytest.mark.parametrize("line", SLIPS)
@pytest.mark.parametrize("more", [["--dry-run"], ["--out", "out"]], ids=["dry", "run"])
def test_a_mistake_in_a_sweep_file_is_found_before_anything_starts(
    run_cli, tmp_path, monkeypatch, line, more
):
    monkeypatch.chdir(tmp_path)
    size = "[[cases]]\nm = 64\nn = 64\nk = 64\n"
    (tmp_path / "mine.toml").write_text(f'name = "mine"\n{size}\n{size}{line}\n')
    answer = run_cli("sweep", "mine.toml", "-p", 2, *more).refusal()
    assert "mine.toml: " in answer and all(text in answer for text in SLIPS[line]), answer
    assert not (tmp_path / "out").exists()


CANNON = "-m 64 -n 64 -k 64 --algorithm cannon".split()
SIMULATE = "simulate -m 64 -n 64 -k 64 --machine pvc12".split()

#: More command lines, and what the one line must and must not mention.
ANSWERS = [
    (
        [*SIMULATE[:-1], "pvc12,fence_s=abc"],
        ["fence_s must be a number from 0 to 1e+09, got 'abc'"],
        [],
    ),
    (
        [*SIMULATE[:-1], "pvc12,links.xe.bandwidth_bytes_per_s=abc"],
        ["links.xe.bandwidth_bytes_per_s must be a number from 0.001 to 1e+30, or inf, got 'abc'"],
        ["'str'"],
    ),
    ([*SIMULATE[:-1], "pvc12,compute.pack_s=1"], ["pack_s must be a list of 3", "got 1.0"], []),
    (["plot", "best", "binary.csv"], ["binary.csv has another header"], []),
    (["plot", "mlp1", "infinite.csv"], ["line 2: ", "percent_of_gemm_only", "inf"], ["Axis"]),
    (
        ["plot", "best", "wide.csv"],
        ["wide.csv has another header", "where schema"],
        ["column_number_7"],
    ),
    (["run", "-p", 4, *CANNON, "--mesh", "3x3"], ["Use 2x2, or 9 ranks"], ["1x4"]),
    (["run", "-p", 2, *SIZES, "--a", "block-cyclic"], ["tiles:RxC@PxQ"], []),
    (["run", "-p", 2, *SIZES, "--csv", "/proc/q.csv"], ["--csv /proc/q.csv: "], ["Errno"]),
    (["calibrate", "--save", "notes.toml"], ["notes.toml is not TOML"], []),
    (["plot", "mlp1", "infinite.csv", "-o", "/nonexistent/x"], ["--save", "no folder"], []),
    (["compare", "infinite.csv", "infinite.csv", "--csv", "no/x"], ["--csv no/x"], []),
]


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """A folder of files that are passed to commands by mistake."""
    append_csv(tmp_path / "infinite.csv", made_up(percent_of_gemm_only=50.0))
    header, row = (tmp_path / "infinite.csv").read_text().splitlines()
    cells = row.split(",")
    cells[header.split(",").index("percent_of_gemm_only")] = "inf"
    (tmp_path / "infinite.csv").write_text(f"{header}\n{','.join(cells)}\n")
    (tmp_path / "binary.csv").write_bytes(bytes(range(256)) * 8)
    (tmp_path / "wide.csv").write_text(",".join(f"column_number_{n}" for n in range(300)) + "\n")
    (tmp_path / "notes.toml").write_text("these are notes\n")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    "words, mentioned, not_mentioned",
    ANSWERS,
    ids=[" ".join(map(str, words)) for words, *_ in ANSWERS],
)
def test_the_answer_is_the_right_line(run_cli, desk, words, mentioned, not_mentioned):
    line = run_cli(*words).refusal()
    assert all(text in line for text in mentioned), line
    assert not any(text in line for text in not_mentioned), line


@pytest.mark.parametrize("end", ["", "atexit.register(os.kill, os.getpid(), signal.SIGINT)"])
def test_an_interrupt_during_the_start_is_one_line_and_further_interrupts_change_nothing(
    process, end
):
    program = (
        "import atexit, os, signal, drbench.__main__ as entry\n"
        f"entry.checkouts = lambda: os.kill(os.getpid(), signal.SIGINT)\n{end}\nentry.main()"
    )
    ended = process(sys.executable, "-c", program)
    assert (ended.returncode, ended.stderr) == (130, "drbench: interrupted\n")


def test_a_record_that_cannot_be_appended_is_printed_nevertheless(tmp_path, capsys, monkeypatch):
    """The disk fills while the case is measured."""

    def full(descriptor, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    path = tmp_path / "one.csv"
    with pytest.raises(CaseFailed, match="--csv .*one.csv: No space left on device"):
        output_record(made_up(m=4321), str(path), True)
    monkeypatch.undo()
    assert "4321" in capsys.readouterr().out
