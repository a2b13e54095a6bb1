"""A sweep as jobs of a real Slurm with one node, which the test starts from Debian's packages."""

import os
import re
import sys

import pytest
from slurm import Slurm, missing
from starting import clean_environ, wait_until

from drbench.measure.record_file import read_csv

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.mpi,
    pytest.mark.timeout(240),
    pytest.mark.skipif(missing() is not None, reason=f"no Slurm here: {missing()}"),
]
OPEN_MPI = "/usr/lib/x86_64-linux-gnu/libmpi.so.40"
CASES = '[[cases]]\nm = 12\nn = 14\na = "row"\nb = "column"\nc = "row"\nstationary = "C"\n'
MACHINE = """[launch]
launcher = ["srun", "--ntasks={ranks}", "--nodes={nodes}", "--input=0", "--kill-on-bad-exit=1"{mpi}]
ranks_per_node = 2
cores_per_node = 4
[launch.sbatch]
partition = "ci"
output = "slurm-%j.log"
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    with Slurm(tmp_path_factory.mktemp("slurm") / "c") as slurm:
        yield slurm


@pytest.fixture
def jobs(cluster, drbench, sweep_file, tmp_path, mpich):
    """``jobs(cases, *options)``: the scripts of a sweep on two ranks, with MPICH's ``--mpi=``."""
    (tmp_path / "ci.toml").write_text(MACHINE.replace("{mpi}", ', "--mpi=pmi2"'))

    def write(cases, *options):
        words = (
            "sweep",
            sweep_file(cases),
            *"-p 2 --out out --launcher ./ci.toml".split(),
        )
        ended = drbench(*words, "--jobs", "slurm", *options)
        assert ended.returncode == 0, ended.stderr
        return [tmp_path / line.split()[1] for line in ended.stdout.splitlines()]

    yield write
    for line in cluster.jobs().splitlines():
        cluster.output("scancel", "--signal=KILL", line.split()[0])


def submit(cluster, script, folder):
    environ = {name: value for name, value in clean_environ().items() if name != "COLUMNS"}
    return cluster.output("sbatch", "--parsable", script, cwd=folder, env=environ).strip()


def seeds(path):
    return [record.seed for record in read_csv(path)]


def processes_of(folder):
    """Running ranks of sweeps into this folder, and their parents."""
    found = []
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and os.readlink(f"/proc/{name}/cwd") == str(folder):
                found.append(open(f"/proc/{name}/cmdline").read())
        except OSError:
            continue
    return [words for words in found if "drbench" in words or "srun" in words]


def test_a_sweep_in_two_jobs_end_to_end(cluster, jobs, tmp_path):
    scripts = jobs(CASES + "k = [8, 9, 10, 11, 12]\n", "--parts", 2)
    text = scripts[0].read_text()
    for line in ("--ntasks=2", "--nodes=1", "--cpus-per-task=2", "--partition=ci"):
        assert f"#SBATCH {line}\n" in text
    assert re.search(r"^#SBATCH --time=0-00:1\d:00$", text, re.MULTILINE)
    assert "# account: Slurm's default" in text and "export SRUN_CPUS_PER_TASK=2\n" in text
    for number in [submit(cluster, script, tmp_path) for script in scripts]:
        cluster.wait(number)
    found = [read_csv(tmp_path / "out" / f"part-{part}" / "records.csv") for part in (1, 2)]
    logs = "".join(path.read_text() for path in tmp_path.glob("slurm-*.log"))
    assert [[row.k for row in rows] for rows in found] == [[8, 10, 12], [9, 11]], logs
    assert {row.status for rows in found for row in rows} == {"ok"}
    assert processes_of(tmp_path) == []


def test_a_cancelled_job_ends_and_resumes_when_it_is_submitted_again(cluster, jobs, tmp_path):
    (script,) = jobs(CASES + 'k = 8\nseed = "0:119:+1"\n')
    path = tmp_path / "out" / "records.csv"
    number = submit(cluster, script, tmp_path)
    some = lambda: path.exists() and path.read_bytes().count(b"\n") >= 6
    wait_until(some, 60, why=cluster.logs)
    cluster.output("scancel", number)
    cluster.wait(number, 30)
    done = seeds(path)
    assert 5 <= len(done) < 120 and done == list(range(len(done)))
    gone = lambda: not processes_of(tmp_path)
    wait_until(gone, 10, why=lambda: processes_of(tmp_path))
    cluster.wait(submit(cluster, script, tmp_path), 120)
    assert seeds(path) == list(range(120)) and not (tmp_path / "out" / "lock").exists()


def test_mpiexec_inside_a_step_starts_its_ranks_here(cluster, process, sweep_file, tmp_path, mpich):
    """It requested a step of Slurm inside the step, and waited for ever."""
    file = sweep_file(CASES + "k = [8, 9]\n")
    words = (sys.executable, "-m", "drbench", "sweep", file, "-p", 2, "--out")
    for launcher in (["srun", "-n", "1"], ["salloc", "-n", "2"]):
        ended = process(*launcher, *words, launcher[0], env=cluster.environ, timeout=60)
        assert ended.returncode == 0, ended.stderr
        assert [row.status for row in read_csv(tmp_path / launcher[0] / "records.csv")] == [
            "ok"
        ] * 2


@pytest.mark.skipif(not os.path.exists(OPEN_MPI), reason="no Open MPI of Debian here")
@pytest.mark.parametrize("interface", ["pmi2", "none"])
def test_open_mpi_that_srun_does_not_connect_is_unsupported_not_wrong(cluster, process, interface):
    """It aborted all ranks with code 1."""
    words = "-m drbench run -m 64 -n 64 -k 64".split()
    command = ["srun", f"--mpi={interface}", "-n", "2", sys.executable, *words]
    ended = process(*command, env=cluster.environ | {"MPI4PY_LIBMPI": OPEN_MPI}, timeout=60)
    assert ended.returncode == 3 and "started 2 ranks" in ended.stderr, ended.stderr


def test_a_srun_without_the_mpi_option_is_refused_with_the_missing_option(
    cluster, drbench, sweep_file, tmp_path, mpich
):
    (tmp_path / "ci.toml").write_text(MACHINE.replace("{mpi}", ""))
    words = *("sweep", sweep_file(CASES + "k = 8\n")), *"-p 2 --out out --launcher".split()
    ended = drbench(*words, "./ci.toml", env=cluster.environ, timeout=60)
    assert ended.returncode == 3 and ended.stderr.count("\n") == 1
    assert "--mpi=pmi2" in ended.stderr and "SLURM_MPI_TYPE" in ended.stderr
    set_by_user = cluster.environ | {"SLURM_MPI_TYPE": "pmi2"}
    ended = drbench(*words, "srun", env=set_by_user, timeout=60)
    assert ended.returncode == 0, ended.stderr


def test_srun_runs_a_sweep_on_the_ranks_that_it_starts(
    cluster, process, sweep_file, tmp_path, mpich
):
    words = (sys.executable, "-m", "drbench", "sweep", sweep_file(CASES + "k = [8, 9]\n"))
    command = ["srun", "--mpi=pmi2", "-n", "2", *words, "--out", "out"]
    ended = process(*command, env=cluster.environ, timeout=60)
    assert ended.returncode == 0 and ended.stdout.count("records: ") == 1, ended.stderr
    found = read_csv(tmp_path / "out" / "records.csv")
    assert [(row.ranks, row.status) for row in found] == [(2, "ok")] * 2
