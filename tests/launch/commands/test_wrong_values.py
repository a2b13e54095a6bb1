"""A wrong value is answered in one line on stderr that says what, got, and the way out; exit 2, on
every rank."""

import pytest

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
    (["list", "everything"], ["everything"]),
    (["sweep", "mlp3"], ["mlp3", "mlp1"]),
    (["sweep", "mlp", "--scale", 0], ["--scale", "0"]),
    (["sweep", "mlp", "--scale", 16], ["--scale", "write 1/16 ", "or 16/1 "]),
    (["sweep", "mlp", "--scale", "1e3"], ["--scale", "write 1/1000 "]),
    (["sweep", "mlp1", "--dry-run", "--scale", "16.0"], ["--scale", "write 1/16 "]),
    (["sweep", "libraries", "--scale", "-1/2"], ["--scale", "'-1/2' is no scale", "1/16"]),
    (["sweep", "mlp", "--scale", "x"], ["--scale", "'x' is no scale"]),
]


@pytest.mark.parametrize(
    "arguments, mentioned", WRONG, ids=[" ".join(map(str, arguments)) for arguments, _ in WRONG]
)
def test_a_wrong_value_is_answered_in_one_line(say, monkeypatch, arguments, mentioned):
    monkeypatch.setattr(
        "launch.commands.run.run_ranks", lambda *_: pytest.fail("ranks were started")
    )
    line = say(*arguments).refusal()
    assert all(text in line for text in mentioned), line


def test_a_folder_that_cannot_be_made_is_found_before_any_case_runs(say, monkeypatch):
    monkeypatch.setattr(
        "launch.sweeps.sweep.supervised", lambda *_: pytest.fail("ranks were started")
    )
    words = "sweep mlp -p 2 --scale 1/192 --out /dev/null/results".split()
    assert "--out" in say(*words).stderr


@pytest.mark.parametrize("option", ["--a", "--b", "--c", "--preset", "--csv"])
def test_an_empty_text_is_not_taken_for_the_default(say, monkeypatch, option):
    """Of ``--a "$A"`` with A unset, or ``--csv "$OUT"``: block would run, and nothing be recorded,
    without a word."""
    monkeypatch.setattr(
        "launch.commands.run.run_ranks", lambda *_: pytest.fail("ranks were started")
    )
    assert option in say(*RUN, option, "").refusal()


def test_the_process_says_the_same_as_the_function(say, drbench):
    arguments = [*RUN, "--preset", "innr"]
    assert drbench(*arguments).refusal() == say(*arguments).refusal()


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
def test_under_mpiexec_it_is_said_once_and_all_ranks_exit_alike(
    under_mpiexec, mpich, n, arguments, mentioned
):
    ended = under_mpiexec(n, *arguments)
    line = ended.refusal()
    assert all(text in line for text in mentioned), line
    assert ended.codes == (2,) * n


@pytest.mark.mpi
def test_what_only_the_ranks_find_is_said_once_by_run_p(drbench, mpich):
    line = drbench(*"run -p 2 -m 1 -n 1 -k".split(), 2**24).refusal()
    assert "-o fill" in line and "uniform" in line
