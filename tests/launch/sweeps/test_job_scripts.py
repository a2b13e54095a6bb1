"""Job scripts run with a Slurm of shell scripts: what they ask of it is in test_slurm.py."""

import json
import os
import re
import shlex
from pathlib import Path

import pytest
from rich.console import Console

from drbench.launch.commands.options import SCANNED
from drbench.launch.commands.sweep import sweep
from drbench.launch.host.protocol import ANSWER
from drbench.launch.sweeps.plan import SweepRequest
from drbench.launch.sweeps.slurm import write_jobs
from drbench.launch.sweeps.starter import Ranks
from drbench.measure.record_file import read_csv

pytestmark = pytest.mark.mpi
CASES = '[[cases]]\nm = 12\nn = 14\nk = [8, 9, 10, 11, 12]\na = "row"\nb = "row"\nc = "row"\n'
MACHINE = """[launch]
launcher = ["srun", "--ntasks={ranks}", "--nodes={nodes}"]
ranks_per_node = 2
[environment]
DRBENCH_TEST = "of the machine"
[modules]
load = ["some mpi"]
"""
#: Every option that --jobs accepts, with a value.
OPTIONS = """--ranks=2 -oseed=7 --scale=2/1 --out=a b/é --max-cases=2 --timeout=60
--launcher=./site.toml --peak=100 --label=my é --mem-limit=1GiB --yes --jobs=slurm --parts=2
--array"""
#: Those that it refuses, and those that need another one that it refuses.
REFUSED = (
    "--part --dry-run --json --format --csv --stream --fresh --retry --simulate --machine --limit "
    "--expect --allow"
)


@pytest.fixture
def site(tmp_path, mpiexec, monkeypatch):
    """A machine file, and the programs of its site; ``$PATH`` has them."""

    def program(name, text):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)

    program("srun", f'shift 2\nexec "{mpiexec}" -n 2 "$@"')
    program("module", 'test "$1 $2" = "load some mpi"')
    program("scancel", 'echo "$*" > "${0%/*}/cancelled"; echo error: no step >&2; exit 1')
    (tmp_path / "site.toml").write_text(MACHINE)
    (tmp_path / "new.py").write_text("")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return program


def test_a_job_script_with_every_option_runs(drbench, process, sweep_file, site, tmp_path, mpich):
    every = [each for each in sweep.params[1:] if each.name not in SCANNED]  # those are -o
    names = {each.opts[-1] if each.opts[0] == "-p" else each.opts[0] for each in every}
    words = re.split(r"\s(?=-)", OPTIONS)
    assert names == {*REFUSED.split(), *(re.match("--[a-z-]+|-.", word)[0] for word in words)}
    file = sweep_file(CASES)
    written = drbench("--plugin", "new.py", "sweep", file, *words, env=dict(os.environ))
    assert written.returncode == 0, written.stderr
    _, script = shlex.split(written.stdout)
    environ = {"PATH": os.environ["PATH"]}
    for task in "12":
        environ["SLURM_ARRAY_TASK_ID"] = task
        ended = process("bash", script, env=environ, timeout=60)
        assert (ended.returncode, ended.stderr) == (0, ""), ended.stdout
    rows = [read_csv(tmp_path / "a b/é" / f"part-{part}" / "records.csv") for part in (1, 2)]
    assert [[row.k for row in part] for part in rows] == [[16, 20], [18, 22]]
    for row in rows[0] + rows[1]:
        assert (row.status, row.label, row.machine, row.ranks) == ("ok", "my é", None, 2)
        assert (row.seed, row.m) == (7, 24)
        assert row.peak_gflops == 200  # of both ranks
    site("module", "echo no such module >&2; exit 1")
    ended = process("bash", script, env=environ)
    assert (ended.returncode, ended.stdout, ended.stderr) == (3, "", "no such module\n")


def test_a_task_of_an_array_runs_what_a_script_of_its_own_runs(
    tmp_path, monkeypatch, sweep_file, process
):
    """As bash reads both, which print their words here instead of running them."""
    monkeypatch.chdir(tmp_path)
    out = "a b/'é $HOME"
    override = (("seed", "7"), ("preset", "row"))
    request = SweepRequest(str(sweep_file(CASES)), 2, out, launcher="srun", override=override)

    def words_of(path, task):
        text = path.read_text("utf-8").replace("\nexec ", "\nprintf '%s\\n' ")
        ended = process("bash", "-c", text, env={"SLURM_ARRAY_TASK_ID": task})
        return sorted(ended.stdout.splitlines())

    for array in (True, False):
        write_jobs(request, 3, array, Console(quiet=True))
    whole, *parts = sorted(Path(out).glob("*.sbatch"), key=lambda path: (len(path.name), path.name))
    assert "#SBATCH --array=1-3\n" in whole.read_text("utf-8")
    for task, path in zip("123", parts, strict=True):
        words = words_of(path, task)
        assert words_of(whole, task) == words
        assert {f"--out={out}/part-{task}", f"--part={task}/3", "seed=7"} < {*words}


def test_an_array_has_the_time_and_the_cores_of_its_largest_task(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    override = (("m", "1Ki,32Ki"), ("threads", "1,2"), ("rounds", "1"))
    request = SweepRequest("scan", 2, "r", launcher="srun", override=override)
    options = []
    for array in (True, False):
        write_jobs(request, 4, array, Console(quiet=True))
    for path in sorted(Path("r").glob("*.sbatch"), key=lambda path: (len(path.name), path.name)):
        lines = dict(re.findall("^#SBATCH --(time|cpus-per-task)=(.+)$", path.read_text(), re.M))
        hours, minutes = lines["time"].removeprefix("0-").split(":")[:2]
        options.append((int(lines["cpus-per-task"]), 60 * int(hours) + int(minutes)))
    (threads, limit), *tasks = options
    limits = sorted(limit for _, limit in tasks)
    assert limits[0] < limits[-1] / 3 and limit > 0.7 * limits[-1]
    assert len({threads for threads, _ in tasks}) == threads == 2


def test_the_step_of_srun_is_cancelled_and_no_complaint_of_scancel_is_shown(site, tmp_path, capfd):
    """As about a step that has ended."""
    ready = json.dumps({"ready": [{"host": "elsewhere"}], "slurm": "7.0"})
    site("srun", f"echo '{ANSWER}{ready}'\nexec sleep 60")
    with open(tmp_path / "log.txt", "wb") as log:
        ranks = Ranks([str(tmp_path / "srun")], 2, dict(os.environ), log, lambda: None)
        ranks.wait_ready(30)
        ranks.stop(0.1)
    assert capfd.readouterr() == ("", "")
    assert (tmp_path / "cancelled").read_text() == "--signal=KILL 7.0\n"
