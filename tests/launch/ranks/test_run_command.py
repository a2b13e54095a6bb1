"""``drbench run``, however it is started: its record, and the effect of each option on it."""

import json
import os
import shutil
import sys
from collections import Counter

import pytest
from starting import within

from drbench.host.cores import usable_cores
from drbench.launch.cases.case import Case
from drbench.launch.cases.machine_models import find_machine
from drbench.launch.models.predict import predict
from drbench.measure.noise import MOST_REPEATS, STABLE, is_stable
from drbench.measure.timeline import read_chrome_trace

pytestmark = pytest.mark.mpi

COUNTERS = ("get_bytes", "put_bytes", "accumulate_bytes", "collective_bytes", "replica_bytes")
SIZES = "-m 30 -n 40 -k 50".split()
QUICK = [*SIZES, *"--iters 2 --budget 0 --threads 1".split()]
CORES = usable_cores()


#: Options for which a run must move the bytes of the plan, by number of ranks.
SAME = [
    (3, "--a tiles:7x5 --b tiles:4x9@1x3 --c row --stationary B"),
    (2, "--a row/c2 --b column --c block/c2 --stationary A -o replicate_result=true"),
    (2, "--preset outer/c2 --stationary B --dtype float64"),
    (2, "--preset column --stationary A -o chunk=8"),
    (2, "--a column --b row --c block --stationary B --transport rma"),
]
REPEATS = [
    "--iters 3 --budget 60",
    "--iters 120",
    "--iters 4 --budget 0",
    "--iters 2 --budget 1e-6",
]
THREADS = [(CORES, 1), (CORES + 1, 1), (2, CORES)]
#: Tiles wide enough to have row padding (``Problem.gaps``): views, packed operands, partial sums.
WIDE = "-m 110 -n 700 -k 640 --iters 2 --budget 0 --threads 1 -o gemm_only=false".split()
WIDE += ["--a", "tiles:40x300", "--b", "tiles:300x256@1x3"]
APART = [
    "--c block --stationary C -o pack=always",
    "--c column --stationary B --transpose ab",
    "--c row/c3 --stationary A -o sums=auto",
    "--c column --stationary C --beta 2 --dtype float64",
]
#: Lines that share ranks, by their number and a name.
LINES = {
    2: {
        "ranks are given too": ["-p", 2, *QUICK, "-o", "check=false"],
        "roof": [*SIZES, *"--iters 6 --budget 2".split()],
        "throttled": [*QUICK, *"--preset column --transport throttled:1,60000".split()],
        "small pool": [*QUICK, *"--preset column -o get=copy -o pool=1KiB".split()],
    },
    3: {more: [*WIDE, *more.split()] for more in APART},
}
for _words in REPEATS:
    LINES[2][_words] = [*SIZES, *f"--threads 1 -o gemm_only=false {_words}".split()]
for _p, _options in SAME:
    LINES[_p][_options] = [*QUICK, *_options.split(), "-o", "progress=none"]
for _p, _threads in THREADS:
    _line = [*SIZES, "--iters", 2, "--budget", 0, "--threads", _threads]
    LINES.setdefault(_p, {})[f"{_threads} threads"] = _line


@pytest.fixture(scope="module")
def ended(lines_on_ranks):
    """``ended(ranks, name)``: the result of that line."""
    known = {}

    def found(p, name):
        if p not in known:
            words = {name: ["run", *line, "--json"] for name, line in LINES[p].items()}
            known[p] = lines_on_ranks(p, words)
        return known[p][name]

    return found


def test_run_p_starts_its_own_ranks_and_loads_no_mpi_itself(process):
    words = "--preset column --stationary C --iters 3 --budget 0 -o warmup=1 --json".split()
    program = (
        "import sys; from drbench.launch.commands.cli import main; code = main()\n"
        "sys.exit(code or 9 * ('mpi4py.MPI' in sys.modules))"
    )
    record = process(sys.executable, "-c", program, "run", "-p", 2, *SIZES, *words).json()
    asked = {"status": "ok", "stationary": "C", "ranks": 2, "threads": max(1, CORES // 2)}
    asked |= {"a": "column", "iters": 3, "warmup": 1, "error": 0, "percent_of_peak": None}
    assert {name: record[name] for name in asked} == asked
    more_s = record["median_s"] - record["local_gemm_s"]
    assert record["effective_communication_s"] == pytest.approx(more_s)
    samples = sorted(record["samples_s"])
    assert len(samples) == 3 and [samples[0], samples[1]] == [record["best_s"], record["median_s"]]
    assert record["percent_of_gemm_only"] > 0
    assert record["gflops"] == pytest.approx(2 * 30 * 40 * 50 / record["median_s"] / 1e9)
    assert record["get_bytes"] + record["direct_bytes"] == 30 * 50 * 4
    assert record["peak_rss_bytes"] > 1e7 and record["blas"] and record["blas_kernel"]


def test_ranks_that_were_started_start_no_more_and_without_a_check_there_is_no_error(ended):
    record = ended(2, "ranks are given too").json()
    assert [record[name] for name in ("ranks", "status", "error")] == [2, "ok", None]


@pytest.mark.parametrize("threads", [None, CORES])
def test_without_p_there_are_as_many_ranks_as_cores_for_their_threads(drbench, threads):
    words = ["--threads", threads] if threads else []
    record = drbench("run", *SIZES, *words, "--iters", 2, "--budget", 0, "--json").json()
    ranks = 1 if threads else CORES
    assert (record["status"], record["ranks"], record["threads"]) == ("ok", ranks, threads or 1)
    assert record["oversubscribed"] is False
    moved = sum(record[name] for name in ("direct_bytes", *COUNTERS))
    assert (moved > 0) == (ranks > 1)


@pytest.mark.parametrize("p, options", SAME)
def test_a_run_moves_the_bytes_of_the_plan(run_cli, ended, p, options):
    record, words = ended(p, options).json(), options.removesuffix(" --transport rma").split()
    plan = run_cli("plan", "-p", p, *SIZES, *words, "--rank", "all", "--json").json()
    assert (record["status"], record["error"]) == ("ok", 0)
    transport = "rma" if options.endswith("rma") else "direct"
    assert (record["transport"], record["progress"]) == (transport, "none")
    assert record["get_bytes"] + record["direct_bytes"] == plan["get_bytes"]
    for name in (*COUNTERS[1:], "steps"):
        assert record[name] == plan[name], name
    if transport == "direct":
        assert record["pool_bytes"] == plan["pool_direct_bytes"]
    else:
        assert record["direct_bytes"] == 0


def test_auto_reports_its_choice(drbench, mpich):
    mixed = drbench(
        "run", "-p", 4, *QUICK, "--preset", "column", "--json", env={"MPIR_CVAR_NUM_CLIQUES": "2"}
    ).json()
    assert (mixed["transport"], mixed["nodes"], mixed["error"]) == ("mixed", 2, 0)
    # both nodes are this machine
    assert (mixed["threads"], mixed["oversubscribed"]) == (max(1, CORES // 4), CORES < 4)
    assert min(mixed["get_bytes"], mixed["direct_bytes"]) > 0
    machine = find_machine("lumic")  # its program is the one that is predicted for two nodes
    for transport in ("direct", "rma"):
        machine = machine.with_value(f"transports.{transport}.within", 2)
    assert mixed["options"] == predict(Case(30, 40, 50, *["column"] * 3), machine, 4).options


def test_a_roof_is_recorded_with_the_ratio_which_decides_whether_the_repeats_suffice(ended):
    """Repeats in which a rank lost its core are counted separately."""
    record = ended(2, "roof").json()
    ends = [f"percent_of_gemm_only{end}" for end in ("_min", "_low", "", "_high", "_max")]
    values = [record[name] for name in ends]
    assert record["gemm_only_gflops"] > 0
    assert 0 < values[0] < values[-1] and values == sorted(values)
    assert record["local_gemm_s"] == pytest.approx(2e-9 * 30 * 40 * 50 / record["gemm_only_gflops"])
    assert record["stable"] == (values[3] - values[1] <= 2 * STABLE * values[2])
    assert record["disturbed"] >= 0 and len(record["samples_s"]) >= 6


def test_repeats_continue_until_the_median_is_known_or_the_budget_ends(ended):
    known, many, few, short = (ended(2, words).json() for words in REPEATS)
    for record in (known, many, few, short):
        assert record["stable"] == is_stable(record["samples_s"])
        assert record["oversubscribed"] == (CORES < 2)
    made = len(known["samples_s"])
    assert 6 <= made <= MOST_REPEATS and (known["stable"] or made == MOST_REPEATS)
    assert [len(each["samples_s"]) for each in (many, few, short)] == [120, 4, 2]
    assert short["median_low_s"] is None and short["budget_s"] == 1e-6


@pytest.mark.parametrize("ranks, threads", THREADS)
def test_more_ranks_and_threads_than_cores_are_marked(ended, ranks, threads):
    record = ended(ranks, f"{threads} threads").json()
    assert record["threads"] == threads and record["oversubscribed"] == (ranks * threads > CORES)


@pytest.mark.parametrize("name", APART)
def test_wide_tiles_with_row_padding_are_multiplied_exactly(ended, name):
    record = ended(3, name).json()
    assert (record["status"], record["error"]) == ("ok", 0)
    assert record["transport"] == "direct" and record["direct_bytes"] + record["get_bytes"] > 0


def test_throttled_takes_as_long_as_its_timer(ended):
    record = ended(2, "throttled").json()
    assert (record["status"], record["transport"]) == ("ok", "throttled:1,60000")
    assert record["best_s"] >= 0.06


def test_too_small_a_pool_exits_6_and_reports_what_is_missing(ended):
    found = ended(2, "small pool")
    record = json.loads(found.stdout)
    assert (found.returncode, found.stderr, record["status"]) == (6, "", "out_of_memory")
    assert all(words in record["reason"] for words in ("are missing", "1 KiB", "larger -o pool"))


def test_direct_across_nodes_exits_3_with_the_remedy(under_mpiexec, mpich):
    ended = under_mpiexec(
        2, "run", *QUICK, "--transport", "direct", env={"MPIR_CVAR_NUM_CLIQUES": "2"}
    )
    assert ended.codes == (3, 3) and (ended.returncode, ended.stderr) == (3, "")
    text = " ".join(ended.stdout.split())
    assert "unsupported" in text and "2 nodes" in text and "Use --transport auto" in text


@pytest.mark.skipif(
    CORES < 2 or shutil.which("taskset") is None, reason="needs two cores and taskset"
)
def test_default_threads_count_the_cores_this_process_may_use(process):
    core = str(min(os.sched_getaffinity(0)))
    run = [sys.executable, *"-m drbench run --iters 1 --budget 0 --json".split(), *SIZES]
    ended = process("taskset", "-c", core, *run)
    assert ended.json()["threads"] == 1


def test_a_tiny_case_is_quick_from_the_shell(drbench):
    """The limit is 2 s on a quiet machine; the best of three must stay below twice that."""
    seconds = []
    for _ in range(3):
        ended = drbench(*"run -p 2 -m 16 -n 16 -k 16".split())
        assert (ended.returncode, ended.stderr, ended.left) == (0, "", ())
        seconds.append(ended.seconds)
        if within(ended.seconds, 4):
            return
    pytest.fail(f"{seconds}")


def test_without_p_each_gpu_has_a_rank_and_gpus_that_do_not_reach_each_other_say_why(
    drbench, fake_gpus, tmp_path
):
    """As where Slurm shows each rank one GPU."""
    words = [*SIZES, *"--preset column --backend cupy --iters 2 --budget 0".split()]
    words += ["--timeline", tmp_path / "steps.json"]
    ended = drbench("run", *words, env=fake_gpus(2, opens=False), timeout=60)
    text = " ".join(ended.stdout.split())
    assert (ended.returncode, ended.stderr) == (0, "") and text.startswith("Result exact")
    assert "2 ranks" in text
    assert "through the host: rank 0 to rank 1: device 0000:00:00.0 cannot open memory of" in text
    assert "--gpus-per-node" in text
    events, _ = read_chrome_trace((tmp_path / "steps.json").read_text())
    steps = {"one-sided": 1, "compute": 2}
    seen = Counter((event.rank, event.track) for event in events)
    assert seen == {(rank, track): steps[track] for rank in (0, 1) for track in steps}
    assert all(0 <= event.start_s <= event.stop_s for event in events)
