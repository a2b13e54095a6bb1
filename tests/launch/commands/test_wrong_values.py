"""A wrong value is refused in one line on stderr with the option, the value and the remedy; exit 2,
on every rank."""

from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from launch.commands.cli import cli

ROOT = Path(__file__).parents[3]
SIZES = "-m 8 -n 8 -k 8".split()
RUN = ["run", "-p", 2, *SIZES]
PLAN = ["plan", "-p", 2, *SIZES]

#: Arguments, and what the answer must mention. None of them may start a rank.
WRONG = [
    (["nosuch"], ["nosuch", "--help"]),
    (["rnu"], ["run"]),
    (["run"], ["-m"]),
    ("run -p 2 -m 8 -n 8".split(), ["-k"]),
    ("run -p 2 -m 0 -n 8 -k 8".split(), ["-m", "0", "at least 1"]),
    (["run", "-p", 2, "-m", "9" * 23, "-n", 8, "-k", 8], ["-m", "below 2**63", "9" * 23]),
    ([*RUN, "--transport", "pigeon"], ["pigeon", "auto", "direct", "rma", "throttled"]),
    ([*RUN, "--transport", "throttled:1"], ["throttled:1", "throttled:20,5"]),
    ([*RUN, "--preset", "innr"], ["innr", "did you mean inner"]),
    ([*RUN, "--a", "blok"], ["--a", "blok", "did you mean block"]),
    ([*RUN, "--b", "row/c3"], ["--b", "row/c3", "2 ranks", "1, 2"]),
    ([*RUN, "--c", "tiles:0x4"], ["--c", "0x4", "at least 1"]),
    ([*RUN, "--a", "S(2)"], ["--a", "dimension 2", "S(0)", "S(1)"]),
    (
        ["run", "-p", 3, *SIZES, "--a", "block:2x2"],
        ["--a", "block:2x2", "4 ranks", "3 ranks", "block:1x3"],
    ),
    ([*RUN, "--stationary", "D"], ["--stationary", "D", "auto"]),
    ([*RUN, "--dtype", "float16"], ["float16", "float32"]),
    ([*RUN, "-o", "fill=ones"], ["ones", "integer"]),
    ([*RUN, "--itrs", 3], ["--itrs", "--iters"]),
    ([*RUN, "-o", "warmup=-1"], ["-o warmup", "-1"]),
    ([*RUN, "-o", "pool=lots"], ["-o pool", "lots", "64MiB"]),
    ([*RUN, "-o", "chunk=0"], ["-o chunk", "0"]),
    ([*RUN, "--timeout", 0], ["--timeout", "0"]),
    (["run", "-p", "two", *SIZES], ["-p", "two"]),
    ([*RUN, "extra"], ["extra"]),
    ([*RUN, "--csv", "."], ["--csv", "directory"]),
    ([*PLAN, "--rank", 2], ["--rank", "2"]),
    ([*RUN, "--json", "--brief"], ["--brief has no use for --json"]),
    ([*RUN, "--machine", "h100x8"], ["--machine h100x8", "times", "peak", "Leave it out"]),
    ("artifact --sensitivity --quick".split(), ["--sensitivity has no use for --quick"]),
    ("artifact --sensitivity --out x".split(), ["--sensitivity has no use for --out"]),
    ("chain --preset llama3-8b:mlp --iters 3".split(), ["--iters belongs to --run"]),
    ("chain --preset llama3-8b:mlp --budget 3".split(), ["--budget belongs to --run"]),
    ("chain --preset llama3-8b:mlp -o seed=3".split(), ["-o belongs to --run"]),
    (["report", ".", "-o", "x.pdf"], ["written as .html", "'.pdf'"]),
    (["explain", *SIZES, "-p", 2, "--save", "x.pdf"], ["written as .html", "'.pdf'"]),
    (["list", "everything"], ["everything"]),
    (["sweep", "mlp3"], ["mlp3", "mlp1"]),
    (["sweep", "mlp", "--scale", 0], ["--scale", "0"]),
    (["sweep", "mlp", "--scale", 16], ["--scale", "write 1/16 ", "or 16/1 "]),
    (["sweep", "mlp", "--scale", "1e3"], ["--scale", "write 1/1000 "]),
    (["sweep", "mlp1", "--dry-run", "--scale", "16.0"], ["--scale", "write 1/16 "]),
    (["sweep", "libraries", "--scale", "-1/2"], ["--scale", "'-1/2' is not a scale", "1/16"]),
    (["sweep", "mlp", "--scale", "x"], ["--scale", "'x' is not a scale"]),
]


@pytest.mark.parametrize(
    "arguments, mentioned", WRONG, ids=[" ".join(map(str, arguments)) for arguments, _ in WRONG]
)
def test_a_wrong_value_is_answered_in_one_line(run_cli, monkeypatch, arguments, mentioned):
    monkeypatch.setattr(
        "launch.commands.run.run_ranks", lambda *_: pytest.fail("ranks were started")
    )
    line = run_cli(*arguments).refusal()
    assert all(text in line for text in mentioned), line


def test_a_run_with_a_machine_uses_its_peak(run_cli, monkeypatch, tmp_path):
    monkeypatch.setattr("launch.commands.run.run_ranks", lambda *_: 0)
    path, shipped = tmp_path / "mine.toml", ROOT / "launch/data/machines/h100x8.toml"
    path.write_text(shipped.read_text() + '[peak.float32]\ncore_gflops = 9\nsource = "given"\n')
    assert run_cli(*RUN, "--machine", path).returncode == 0
    assert "times" in run_cli(*RUN, "--machine", path, "--peak", 9).refusal()
    on_gpus = [*RUN, "--algorithm", "dtensor", "-o", "device=cuda", "--machine", "h100x8"]
    assert "times" not in run_cli(*on_gpus).stderr


def test_a_shell_completes_a_line_that_would_be_refused():
    shell = ShellComplete(cli, {}, "drbench", "_DRBENCH_COMPLETE")
    found = shell.get_completions(["tune", "--iters", "3"], "--mea")
    assert [each.value for each in found] == ["--measure"]


def test_a_folder_that_cannot_be_made_is_found_before_any_case_runs(run_cli, monkeypatch):
    monkeypatch.setattr(
        "launch.sweeps.sweep.supervised", lambda *_: pytest.fail("ranks were started")
    )
    words = "sweep mlp -p 2 --scale 1/192 --out /dev/null/results".split()
    assert "--out" in run_cli(*words).stderr


@pytest.mark.parametrize("option", ["--a", "--b", "--c", "--preset", "--csv"])
def test_an_empty_text_is_refused_and_not_replaced_by_the_default(run_cli, monkeypatch, option):
    """With ``--a "$A"`` and A unset, or ``--csv "$OUT"``, the layout block would run, or nothing be
    recorded, without a message."""
    monkeypatch.setattr(
        "launch.commands.run.run_ranks", lambda *_: pytest.fail("ranks were started")
    )
    assert option in run_cli(*RUN, option, "").refusal()


def test_the_process_prints_the_same_as_the_function(run_cli, drbench):
    arguments = [*RUN, "--preset", "innr"]
    assert drbench(*arguments).refusal() == run_cli(*arguments).refusal()


#: The same under mpiexec: number of ranks, arguments, what the answer must mention. The last ones
#: only ranks can find.
UNDER_MPIEXEC = [
    (2, ["run", "-n", 8, "-k", 8], ["-m"]),
    (
        3,
        ["run", *SIZES, "--a", "block:2x2"],
        ["--a", "block:2x2", "4 ranks", "3 ranks", "block:1x3", "block:3x1"],
    ),
    (2, [*"run -m 1 -n 1 -k".split(), 2**24], ["-o fill=integer", "2**24", "uniform"]),
    (2, ["run", *SIZES, "--csv", "nowhere/out.csv"], ["--csv", "nowhere"]),
]


@pytest.mark.mpi
@pytest.mark.parametrize(
    "n, arguments, mentioned",
    UNDER_MPIEXEC,
    ids=[" ".join(map(str, arguments)) for _, arguments, _ in UNDER_MPIEXEC],
)
def test_under_mpiexec_the_message_is_printed_once_and_all_ranks_exit_alike(
    under_mpiexec, mpich, n, arguments, mentioned
):
    ended = under_mpiexec(n, *arguments)
    line = ended.refusal()
    assert all(text in line for text in mentioned), line
    assert ended.codes == (2,) * n


@pytest.mark.mpi
def test_an_error_that_only_the_ranks_find_is_printed_once_by_run_p(drbench, mpich):
    line = drbench(*"run -p 2 -m 1 -n 1 -k".split(), 2**24).refusal()
    assert "-o fill" in line and "uniform" in line
