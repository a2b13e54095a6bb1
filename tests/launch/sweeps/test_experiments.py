"""One engine: any numbers of ranks and libraries, in rounds, resumed where it stopped; and the
tables of its records."""

import csv
import io
import json
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from made_up import made_up
from rich.console import Console

from drbench.launch.cases.case import Case, case_keys
from drbench.launch.commands.sweep import _folder_name
from drbench.launch.host.show import console
from drbench.launch.sweeps.plan import SweepRequest, plan_cases
from drbench.launch.sweeps.progress import SweepProgress
from drbench.launch.sweeps.rounds import Experiment, Job, pool_records
from drbench.launch.views.contest import contest_tables
from drbench.launch.views.scaling import scaling_tables
from drbench.measure.record_file import read_csv


def job(name, ranks=2, **fields):
    return Job(name, ranks, Case(8, 8, 8, **fields))


def test_libraries_share_their_rounds_in_which_each_case_runs_once_and_each_library_is_first():
    """Two problems: (a, b, h) and (c, s). Cases of one library are next to each other, since each
    library has ranks of its own."""
    first = [job("a"), job("b"), job("h", algorithm="heat")]
    groups = [first, [job("c"), job("s", algorithm="scalapack")]]
    experiment = Experiment(groups, 6)
    (stage,) = experiment.stages
    order = "abchs shcba hscba abcsh sabch hcbas".split()
    names = [each.name for each in experiment.turns(stage, {})]
    assert names == [f"{at} | {who}" for at, turn in enumerate(order, 1) for who in turn]


def test_a_stock_library_and_the_same_on_drbench_share_their_ranks():
    ours, stock = job("x", algorithm="dtensor+drbench"), job("y", algorithm="dtensor")
    assert ours.library == stock.library == "dtensor" != job("z").library


@pytest.fixture
def started(monkeypatch, tmp_path):
    """Replaces ranks by a list of (ranks, names) of each start. A case takes m / ranks seconds,
    twice as long in every second round; those of ``bad`` algorithms are wrong, and the case after
    ``breaks`` starts is interrupted."""
    starts, kind = [], []

    @contextmanager
    def supervised(settings, store, watch):
        kind.clear()
        yield measure

    def measure(job):
        name, ranks, case = job[:3]
        if len(starts) == getattr(measure, "breaks", None):
            measure.breaks = None
            raise KeyboardInterrupt
        if kind != [(ranks, job.library)]:
            kind[:] = [(ranks, job.library)]
            starts.append((ranks, []))
        starts[-1][1].append(name)
        slow = 2.0 if name[0] in "2468" and " | " in name else 1.0
        seconds = slow * case.m / ranks
        wrong = case.algorithm in getattr(measure, "bad", ())
        known = {"status": "wrong", "reason": "struck"} if wrong else {"samples_s": [seconds]}
        known |= {} if wrong else {"best_s": seconds, "gflops": 1.0, "direct_bytes": 8}
        return made_up(**case_keys(case) | {"ranks": ranks} | known)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("drbench.launch.sweeps.sweep.supervised", supervised)
    monkeypatch.setattr("drbench.launch.commands.sweep.draw_figure", lambda *_: [])
    monkeypatch.setattr("drbench.launch.commands.sweep.without_weaker_pins", lambda run_cli: {})
    return starts, measure


SCALING = "sweep scaling -o ranks=1,2,4 -o m=64 -o n=8 -o k=8".split()
SCALING += ["--peak", "none", "--out", "out"]


def test_ranks_are_an_axis_and_every_number_runs_in_every_round(run_cli, started, tmp_path):
    starts, _ = started
    ended = run_cli(*SCALING, "--json")
    assert [ranks for ranks, _ in starts] == [1, 2, 4, 2, 1, 2, 4, 1]
    (table,) = json.loads(ended.stdout)["tables"]
    assert [row["ranks"] for row in table["rows"]] == [1, 2, 4]
    assert [row["speedup"] for row in table["rows"]] == [1, 2, 4]  # however slow a round was
    assert [row["efficiency_percent_low"] for row in table["rows"]] == [100, 100, 100]
    rows = read_csv(tmp_path / "out" / "records.csv")
    assert [(row.ranks, len(row.samples_s)) for row in rows] == [(1, 3), (2, 3), (4, 3)]
    before = (tmp_path / "out" / "rounds" / "records.csv").read_bytes()
    again = run_cli(*SCALING)
    assert again.returncode == 0 and len(starts) == 8 and "3 done before" in again.stdout
    assert (tmp_path / "out" / "rounds" / "records.csv").read_bytes() == before
    more = run_cli(*SCALING, "-o", "rounds=4")
    assert more.returncode == 0 and len(starts) == 11
    assert "another --out" in run_cli(*SCALING, "-o", "rounds=1").stderr


def test_an_interrupted_comparison_loses_nothing(run_cli, started):
    _, measure = started
    measure.breaks = 1
    assert run_cli(*SCALING).returncode == 130
    kept = read_csv("out/rounds/records.csv")
    assert len(kept) == len(read_csv("out/records.csv")) == 1
    assert run_cli(*SCALING).returncode == 0
    rows = read_csv("out/rounds/records.csv")
    assert rows[:1] == kept and len({row.case for row in rows}) == len(rows) == 9


def test_a_case_that_is_not_ok_is_named_and_decides_the_exit_code(run_cli, started, tmp_path):
    starts, measure = started
    measure.bad = ("fsdp",)
    ended = run_cli(*"sweep same-tiles -p 2 -o mesh=1x2 --peak none".split())
    assert ended.returncode == 1 and "fsdp: wrong: struck" in ended.stdout
    (folder,) = (tmp_path / "results/measured/here").iterdir()
    assert folder.name == "same-tiles-mesh1x2-p2"


def test_mlp_is_one_sweep_with_the_lines_of_dtensor_where_torch_is(run_cli, started, monkeypatch):
    words = "sweep mlp -p 2 --scale 1/192 --peak none".split()
    place = Path("results/measured/here/mlp-scale1of192-p2/records.csv")
    torch = SimpleNamespace(ok=False, what="no torch", get="Get it.")
    for module in ("sweep", "supervisor"):
        library = lambda name: SimpleNamespace(available=lambda: torch)
        monkeypatch.setattr(f"drbench.launch.sweeps.{module}.get_library", library)
    ended = run_cli(*words)
    assert ended.returncode == 0 and "Not installed: dtensor" in ended.stdout
    assert len(read_csv(place)) == 96 and f"records: {place}" in ended.stdout
    assert {(row.n, row.k) for row in read_csv(place)} == {(256, 64), (64, 256)}
    torch.ok = True
    ended = run_cli(*words)
    assert ended.returncode == 0 and "96 done before" in ended.stdout
    theirs = Counter(row.preset for row in read_csv(place) if row.algorithm == "dtensor")
    assert theirs == {"row": 8, "column": 8}


@pytest.mark.parametrize(
    "words",
    [
        "same-tiles -o mesh=1x2 -o m=8",
        "libraries -o m=8 -o n=9 -o k=7 -o libraries=cosma",
        "mlp1 -o m=8 -o preset=row",  # without a view
        "mlp -o m=8 -o preset=row -o algorithm=universal",  # a figure
    ],
)
def test_every_table_is_text_json_and_csv(run_cli, started, words):
    words = f"sweep {words} -p 2 -o rounds=2 --peak none --out out".split()
    tables = json.loads(run_cli(*words, "--json", "--csv", "t.csv").stdout)["tables"]
    rows = [row for table in tables for row in table["rows"]]
    assert rows and all(table["title"] and table["rows"] for table in tables)
    text = run_cli(*words).stdout
    of = lambda title: title.partition(": ")[2] or title.partition(",")[0]  # a layout, or sizes
    assert all(of(table["title"]) in text for table in tables[:8])
    assert {"contender", "median_s", "ratio", "state", "moved_bytes"} <= rows[0].keys()
    with open("t.csv", newline="") as file:
        assert [row["contender"] for row in csv.DictReader(file)] == [r["contender"] for r in rows]


TWO = '[[cases]]\nm = [8, 16, 24]\nn = 8\nk = 8\npreset = ["row", "column"]\n'


def planned(file, ranks=2, **asked):
    plan = plan_cases(SweepRequest(file, ranks, "out", **asked))
    return plan, plan.experiment(plan.mine, asked.get("simulate", False))


def test_cases_are_compared_in_rounds_by_default_and_single_ones_run_once(
    sweep_file, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    text = Path(sweep_file(TWO)).read_text()
    make = lambda text: str(Path("mine.toml").write_text(text) and "mine.toml")
    default = text.replace("rounds = 1\n", "")
    plan, found = planned(make(default))
    assert found.rounds == "known" and [*map(len, found.groups)] == [2, 2, 2]
    assert [job.case.m for job in found.jobs] == [8, 8, 16, 16, 24, 24]
    assert planned(make(default), simulate=True, machine="h100x8")[1].rounds == 0
    single = default.replace(', "column"', "")
    assert planned(make(single))[1].rounds == 0
    assert planned(make(text))[1].rounds == 0  # rounds = 1
    # a part has whole problems, if there are enough
    assert [job.case.m for job in planned(make(default), part="2/3")[0].mine] == [16, 16]
    assert [job.case.m for job in planned(make(default), part="2/4")[0].mine] == [8, 24]
    by_ranks = default.replace("[defaults]", "ranks = [1, 2]\n[defaults]")
    assert [*map(len, planned(make(by_ranks))[1].groups)] == [2] * 6


def test_rounds_stream_one_row_for_each_case_and_max_cases_counts_cases(
    run_cli, started, sweep_file
):
    starts, _ = started
    words = ["sweep", sweep_file(TWO, rounds='"known"'), "-p", 2, "--out", "out", "--peak", "none"]
    first = run_cli(*words, "--max-cases", 3, "--stream")
    assert "left: 3 cases" in first.stderr and first.stdout.count("\n") == 1 + 3
    Path("stream.csv").write_text(run_cli(*words, "--stream").stdout)
    streamed, rows = read_csv("stream.csv"), read_csv("out/records.csv")
    assert sorted(map(repr, streamed)) == sorted(map(repr, rows)) and len(rows) == 6
    turns = read_csv("out/rounds/records.csv")
    assert len({row.case for row in turns}) == len(turns) > 36  # one case waited for the second run
    assert all(len(row.samples_s) >= 6 for row in rows)
    before = len(starts)
    again = run_cli(*words)
    assert "6 done before" in again.stdout and len(starts) == before


#: Options of a sweep, and what the refusal says.
WITHOUT_EFFECT = """
--limit 0: --limit belongs to --dry-run
--machine h100x8: --machine belongs to --simulate
--simulate: --simulate belongs to --machine
--simulate --machine h100x8 -o seed=4: -o seed: no prediction depends on it
--simulate --machine h100x8 -o progress=none: -o progress: no prediction
--simulate --machine h100x8 -o rounds=3: -o rounds: no prediction
-o paper=true: -o paper: no measurement depends on it
-o bar=1.1: -o bar: no case
--dry-run --json: --dry-run has no use for --json
--jobs slurm --part 1/2: --jobs has no use for --part
"""


@pytest.mark.parametrize("line", WITHOUT_EFFECT.strip().splitlines())
def test_an_option_without_effect_is_refused(run_cli, started, line):
    words, _, message = line.partition(": ")
    ended = run_cli(*"sweep square -p 2 --out out".split(), *words.split())
    assert message in ended.refusal() and started[0] == []


def test_each_experiment_has_a_folder_of_its_own_and_the_same_one_always():
    name = _folder_name("scaling", None, "1/8", (("m", "4Ki"), ("a", "S(0),R@2x3")))
    assert name == "scaling-m4Ki-aS_0_R_2x3-scale1of8"
    assert _folder_name("mlp", 4, None, ()) == "mlp-p4"


def test_a_simulated_sweep_resumes_where_it_stopped_and_has_intervals(
    run_cli, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    Path("tiny.toml").write_text(
        'name = "tiny"\n[[cases]]\nm = 1024\nn = 4096\nk = 1024\npreset = ["row", "column"]\n'
        '[[cases]]\nm = 64\nn = 64\nk = 64\nalgorithm = ["cannon", "dtensor", "heat"]\n'
        "seed = 4\n"
    )

    def rows(*words, out="out", machine="h100x8"):
        words = (*words, "--machine", machine, "--out", out)
        ended = run_cli(*"sweep tiny.toml --simulate -o prefetch=1".split(), *words)
        return ended, read_csv(f"{out}/records.csv")

    assert len(rows("--max-cases", 1)[1]) == 1
    ended, found = rows()
    assert "1 done before" in ended.stdout and ended.returncode == 0
    assert "Not simulated, they are libraries: heat" in ended.stdout
    assert [row.status for row in found] == ["ok", "ok", "unsupported", "ok"]
    assert found[3].algorithm == "dtensor_mm"  # the program of dtensor
    for row in found[:2]:
        assert row.mode == "simulated" and row.label == row.machine == "h100x8" and row.ranks == 8
        assert row.median_low_s < row.median_s < row.median_high_s
    _, named = rows("--label", "here", out="named")
    assert {(row.label, row.machine) for row in named} == {("here", "h100x8")}
    models = Path(__file__).parents[3] / "launch/data/machines"
    text = (
        (models / "h100x8.toml").read_text().replace("devices = 8", "devices = 8\nfence_s = 1e-4")
    )
    Path("mine.toml").write_text(text)
    assert "none of these cases" in rows(machine="./mine.toml")[0].stderr


def test_predicted_scaling_is_a_table_with_intervals(run_cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("drbench.launch.commands.sweep.draw_figure", lambda *_: [])
    words = "sweep scaling --simulate --machine h100x8 -o grow=m -o m=64 -p 4 --json"
    rows = json.loads(run_cli(*words.split()).stdout)["tables"][0]["rows"]
    assert [(row["ranks"], row["m"]) for row in rows] == [(1, 64), (2, 128), (4, 256)]
    assert all(row["time_s_low"] < row["time_s"] < row["time_s_high"] for row in rows)


# -- tables of records, without anything that runs


def run(seconds, **fields):
    """The rounds of a case with these times."""
    known = {"m": 8, "n": 8, "k": 8, "ranks": 2, "direct_bytes": 8, "algorithm": "universal"}
    return {
        turn: made_up(**{**known, **fields}, best_s=s, samples_s=[s], case=f"{turn + 1} | x")
        for turn, s in enumerate(seconds)
    }


def refused(ranks, reason, **fields):
    return made_up(status="failed", reason=reason, ranks=ranks, m=8, n=8, k=8, **fields)


def contest(*runs, tiles=False, **how):
    return contest_tables([(pool_records(run.values()), run) for run in runs], tiles, **how)


def test_ratios_within_a_round_decide_who_is_faster_on_a_machine_that_drifts():
    ours = run([0.9, 1.8] * 3, preset="row")
    theirs = run([1.0, 2.0] * 3, algorithm="scalapack", mesh="1x2")
    still = run([0.1] * 6, algorithm="dtensor", direct_bytes=0, a="row", b="R", c="row")
    failed = {0: refused(2, "no memory", algorithm="heat")}
    (table,) = contest(theirs, still, ours, failed)
    names = [row["contender"] for row in table.rows]
    assert names == ["universal row", "scalapack 1x2", "dtensor AC row · B R"]
    assert [row["state"] for row in table.rows[:2]] == ["fastest", "slower"]
    assert table.rows[2]["in_doubt"] == "moves nothing"
    assert [row["ratio"] for row in table.rows[1:]] == [pytest.approx(1 / 0.9), None]
    assert table.answer == "universal row is fastest" and table.lines == [
        "the libraries' best, scalapack 1x2, takes 1.11 (1.11-1.11) times as long"
    ]
    assert table.failures == ["8 × 8 × 8, None, 2 ranks: heat: failed: no memory"]


def test_one_table_compares_results_in_bfloat16_and_float32_and_names_both():
    """Libraries return C in bfloat16; TF32 is another problem than float32."""
    types = [
        ("bfloat16:float32", "bf16", "universal"),
        ("bfloat16", "bf16", "symm_mem"),
        ("float32", "tf32", "universal"),
        ("float32", "tf32", "cublasmp"),
        ("float32", "fp32", "universal"),
    ]
    tables = contest(*(run([1.0] * 6, dtype=d, compute=c, algorithm=a) for d, c, a in types))
    assert [len(table.rows) for table in tables] == [2, 2, 1]
    narrow, fast, _ = tables
    assert {row["dtype"] for row in narrow.rows} == {"bfloat16:float32", "bfloat16"}
    assert "bfloat16, 2 ranks" in narrow.title and "tf32, 2 ranks" in fast.title
    assert "dtype" not in {column.key for column in fast.columns}


def test_of_cases_that_are_not_distinguishable_none_is_the_fastest(capsys):
    """Noisy times are not ranked; they have a mark that is explained once."""
    times = {"heat": [1.0, 2.0] * 3, "cosma": [2.0, 1.0] * 3}
    (table,) = contest(*(run(each, algorithm=name) for name, each in times.items()))
    assert table.answer.startswith("undecided: ") and "heat" in table.answer
    assert [row["state"] for row in table.rows] == ["undecided"] * 2
    (table,) = contest(*(run(each, algorithm=name, noisy=True) for name, each in times.items()))
    assert table.answer == "nothing is ranked"
    table.show(console(soft_wrap=True))
    assert capsys.readouterr().out.count("~ noisy: time not usable") == 1


@pytest.mark.parametrize(
    "column", ["threads", "blas_kernel", "mpi", "nodes", "label", "chunk", "a"]
)
def test_a_column_in_which_rows_of_one_name_differ_is_in_every_table(column):
    """A sweep over BLAS kernels had rows that differed in nothing but their time."""
    values = {"threads": (1, 2), "nodes": (1, 2), "chunk": (64, None), "a": ("row", "row/c2")}
    known = {"preset": "row", "mpi": "MPICH 5"}
    runs = [run([3.0], **known | {column: x}) for x in values.get(column, ("one", "other"))]
    tables = [contest(*runs), contest(*runs, compared=False), scaling_tables(runs)]
    if column != "a":  # otherwise each layout has a table of its own
        tables.append(contest(*runs, tiles=True))
    for found in tables:
        texts = {
            tuple(each.cell(row) for each in table.columns if "best" not in each.key)
            for table in found
            for row in table.rows
        }
        assert len(texts) == 2, texts
    alike = [run([3.0], algorithm=name, mpi=name) for name in ("heat", "cosma")]
    assert "mpi" not in {each.key for each in contest(*alike)[0].columns}


def test_numbers_of_ranks_have_the_same_threads_by_default(sweep_file, tmp_path, monkeypatch):
    """One rank had all cores, two had half of them each: the speed-up compared two problems."""
    monkeypatch.chdir(tmp_path)
    text = Path(sweep_file(TWO)).read_text().replace("threads = 1\n", "")

    def threads(backend="numpy", **asked):
        head = f'ranks = [1, 2]\n[defaults]\nbackend = "{backend}"'
        Path("mine.toml").write_text(text.replace("[defaults]", head))
        return {job.case.threads for job in planned("mine.toml", **asked)[0].jobs}

    assert threads() == {1} and threads(override=(("threads", "3"),)) == {3}
    assert threads(override=(("ranks", "2"),)) == {None}
    assert threads(simulate=True, machine="h100x8") == {None} == threads("cupy")


def test_on_the_same_tiles_each_layout_is_a_table_of_its_own():
    layouts = ("universal", "row"), ("fsdp", "row"), ("fsdp", "column")
    runs = [run([1.0, 1.0], algorithm=x, **dict.fromkeys("abc", text)) for x, text in layouts]
    first, second = contest(*runs, tiles=True)
    assert {row["contender"] for row in first.rows} == {"universal", "fsdp"}
    assert second.title.endswith(": column") and len(second.rows) == 1


def test_a_number_of_ranks_that_failed_has_no_point_and_is_no_reference():
    bad = {0: refused(1, "why", algorithm="universal")}
    (table,) = scaling_tables([bad, run([4.0, 8.0], ranks=2), run([2.0, 4.0], ranks=4)])
    assert [(row["ranks"], row["speedup"]) for row in table.rows] == [(2, 1.0), (4, 2.0)]
    assert (
        table.lines[1] == "not on 1 rank: failed: why" and "relative to 2 ranks" in table.lines[0]
    )


@pytest.mark.parametrize(
    "shares, expected",
    [
        ([0.5] * 10, 1),
        ([0.99, 0.6] * 5 + [0.5] * 20, 1),
        ([0.99] * 40, 0),
        ([0.99, 0.99, 0.7] * 10, 0),
        ([None] * 20, 0),
    ],
)
def test_a_busy_machine_is_reported_once_within_ten_runs_and_a_quiet_one_never(shares, expected):
    out = io.StringIO()
    watch = SweepProgress(len(shares), [], Console(file=out, width=1000), "turn")
    for at, share in enumerate(shares, 1):
        watch.started(Case(8, 8, 8))
        watch.ended(made_up(core_share=share))
        assert at >= 5 or "busy" not in out.getvalue()
    assert out.getvalue().count("busy") == expected
