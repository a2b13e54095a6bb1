"""How drbench finds its launcher, detects that it was started by one, and detects that launcher and
MPI do not match."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from starting import wait_until

import drbench.launch.host.files
import drbench.launch.host.processes
from drbench.errors import CaseTimeout, MissingError, UsageError
from drbench.host.launcher import launched
from drbench.launch.commands.guards import given_ranks
from drbench.launch.host.mpi import find_mpiexec, mpiexec_command, run_ranks

ROOT = drbench.launch.host.files.ROOT
RUN = "run -m 8 -n 8 -k 8 --iters 1 --budget 0".split()


def environ_of(text):
    return dict(word.split("=") for word in text.split())


#: Environments of launchers, and the ranks and the rank that they mean.
STARTED = {
    "PMI_SIZE=4 PMI_RANK=2": (4, 2),
    "OMPI_COMM_WORLD_SIZE=3 OMPI_COMM_WORLD_RANK=0": (3, 0),
    "PALS_SIZE=2 PALS_RANKID=1": (2, 1),
    "FLUX_JOB_SIZE=2 FLUX_TASK_RANK=1": (2, 1),
    "WORLD_SIZE=2 RANK=1 TORCHELASTIC_RUN_ID=x": (2, 1),
    "SLURM_STEP_ID=0 SLURM_PROCID=5 SLURM_STEP_NUM_TASKS=6 SLURM_NTASKS=64": (6, 5),
    "PMI_SIZE=4 PMI_RANK=3 SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_NTASKS=1": (4, 3),
}
#: Environments that look like a launcher's and are not.
NOT_STARTED = [
    "",
    "PMI_SIZE=4",
    "WORLD_SIZE=4 RANK=0",  # of torch.distributed, under any launcher
    "SLURM_JOB_ID=17 SLURM_NTASKS=8 SLURM_PROCID=0",  # a batch script
    "SLURM_STEP_ID=4294967291 SLURM_PROCID=0 SLURM_NTASKS=8",  # also a batch script
]

#: A launcher that starts one process after the other and sets no variables, or (with $TELL) those
#: Open MPI's would.
STRANGE_MPIEXEC = """#!/bin/sh
[ "$1" = --version ] && { echo "Strange MPI 1.0"; exit 0; }
[ -n "$DRBENCH_TEST_NESTED" ] && { echo "ranks that start ranks that start ranks" >&2; exit 99; }
export DRBENCH_TEST_NESTED=1
n=$2; shift 2; rank=0; worst=0
while [ $rank -lt $n ]; do
  [ -n "$TELL" ] && export OMPI_COMM_WORLD_SIZE=$n OMPI_COMM_WORLD_RANK=$rank
  "$@" || worst=$?
  rank=$((rank+1))
done
exit $worst
"""


@pytest.fixture
def on_path(tmp_path, monkeypatch):
    """``on_path(text)``: make ``text`` the mpiexec on PATH, the one that drbench takes; its
    path."""

    def install(text, name="mpiexec"):
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
        monkeypatch.setenv("MPI4PY_LIBMPI", "/opt/some/libmpi.so")
        return str(folder / name)

    return install


@pytest.fixture
def strange(on_path, mpi_library):
    """Environment in which drbench starts its ranks with the strange mpiexec, and mpi4py loads the
    library it has."""
    on_path(STRANGE_MPIEXEC)
    return {"PATH": os.environ["PATH"], "MPI4PY_LIBMPI": mpi_library[1]}


@pytest.mark.parametrize("text, found", STARTED.items())
def test_every_family_of_launchers_is_known(text, found):
    environ = environ_of(text)
    here = launched(environ)
    assert (here.size, here.rank) == found
    assert here.variable in environ or here.variable == "SLURM_STEP_NUM_TASKS"


@pytest.mark.parametrize("text", NOT_STARTED)
def test_an_environment_without_a_launcher_is_not_mistaken_for_one(text):
    assert launched(environ_of(text)) is None


@pytest.mark.parametrize(
    "version", ["mpiexec (OpenRTE) 4.1.4", "mpiexec (Open MPI) 5.0.3", "prterun (PRRTE) 3.0.2"]
)
@pytest.mark.parametrize("root", [True, False])
def test_open_mpi_gets_options_to_oversubscribe_and_to_be_quiet(
    on_path, monkeypatch, version, root
):
    """As root, and otherwise where there is no InfiniBand."""
    mpiexec, isdir = on_path(f"#!/bin/sh\necho '{version}'\n"), os.path.isdir
    infiniband = lambda path: not root if path == "/sys/class/infiniband" else isdir(path)
    monkeypatch.setattr(os, "geteuid", lambda: 0 if root else 1000)
    monkeypatch.setattr(os.path, "isdir", infiniband)
    command = mpiexec_command(5)
    assert command[:3] == [mpiexec, "-n", "5"] and "--oversubscribe" in command
    assert ("--allow-run-as-root" in command) == root
    assert (command[-3:] == ["--mca", "osc", "^ucx"]) == root


def test_mpirun_is_used_where_there_is_no_mpiexec(on_path, monkeypatch):
    mpirun = on_path("#!/bin/sh\n", name="mpirun")
    monkeypatch.setenv("PATH", os.path.dirname(mpirun))
    assert find_mpiexec() == mpirun


def test_the_mpiexec_next_to_this_python_is_preferred_to_path(on_path, monkeypatch, tmp_path):
    on_path("#!/bin/sh\n")
    adjacent = tmp_path / "venv" / "mpiexec"
    adjacent.parent.mkdir()
    adjacent.touch()
    monkeypatch.setattr(sys, "executable", str(adjacent.with_name("python")))
    monkeypatch.delenv("MPI4PY_LIBMPI")
    assert find_mpiexec() == str(adjacent)


def test_a_missing_launcher_is_reported_with_the_remedy(run_cli, monkeypatch, tmp_path):
    monkeypatch.setenv("MPI4PY_LIBMPI", "/opt/some/libmpi.so")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingError, match="mpiexec"):
        find_mpiexec()
    line = run_cli(*RUN, "-p", 2).refusal(3)
    assert "no mpiexec" in line and "pip install '.[mpich]'" in line


#: Variables of a launcher of another MPI, for a process that sees only itself.
BY_SRUN = "SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_STEP_NUM_TASKS=4"


@pytest.mark.mpi
@pytest.mark.parametrize(
    "text, fix",
    [(BY_SRUN, "--mpi=pmi2"), ("PMI_SIZE=4 PMI_RANK=0", "MPI4PY_LIBMPI")],
)
def test_a_rank_that_sees_only_itself_exits_3_with_the_fix(drbench, mpich, text, fix):
    line = drbench(*RUN, env=environ_of(text)).refusal(3)
    assert "started 4 ranks" in line and "MPICH" in line and fix in line


@pytest.mark.mpi
def test_a_program_whose_ranks_see_only_themselves_is_refused_with_the_way_out(process, mpich):
    """Each multiplied alone, as rank 0 of 1; where that is meant, the program gives COMM_SELF."""
    program = (
        "import os, sys, drbench\nfrom mpi4py import MPI\n"
        f"for found in {[*map(environ_of, (BY_SRUN, *STARTED))]}:\n"
        "    os.environ.update(found)\n"
        "    drbench.init(MPI.COMM_SELF, heap='1M').close()\n"
        "    try:\n        drbench.init(heap='1M')\n        print('ran')\n"
        "    except drbench.errors.MissingError as error:\n        print(error)\n"
        "    [os.environ.pop(name) for name in found]\n"
    )
    ended = process(sys.executable, "-c", program)
    by_srun, *others = ended.stdout.splitlines()
    assert "started 4 ranks" in by_srun and "--mpi=pmi2" in by_srun and "--mpi=pmix" in by_srun
    assert len(others) == len(STARTED) and all("would see only 1" in line for line in others)


@pytest.mark.mpi
def test_a_shell_of_srun_starts_ranks_as_any_other(drbench, monkeypatch, mpich):
    text = "SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_PROCID=0 SLURM_NTASKS=1 "
    shell = environ_of(text + "SLURM_STEP_NUM_TASKS=1 SLURM_JOB_NUM_NODES=1")
    assert drbench(*RUN, "-p", 2, "--json", env=shell).json()["ranks"] == 2
    for name, value in shell.items():
        monkeypatch.setenv(name, value)
    assert [given_ranks(ranks) for ranks in (None, 1, 2)] == [1, 1, None]
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "4")
    assert [given_ranks(ranks) for ranks in (None, 4)] == [4, 4]
    with pytest.raises(UsageError, match="-p 2, but a launcher started"):
        given_ranks(2)


@pytest.mark.mpi
def test_only_the_first_of_such_ranks_reports_it(drbench, mpich):
    ended = drbench(*RUN, env=environ_of("PMI_SIZE=4 PMI_RANK=1"))
    assert (ended.returncode, ended.stdout, ended.stderr) == (3, "", "")


@pytest.mark.mpi
def test_the_mpiexec_of_another_mpi_is_detected(drbench, mpich, strange):
    line = drbench(*RUN, "-p", 2, env=strange | {"TELL": "1"}).refusal(3)
    assert "started 2 ranks" in line and "different MPIs" in line


@pytest.mark.mpi
def test_ranks_without_variables_of_a_launcher_do_not_start_ranks(drbench, mpich, strange):
    """Otherwise each would obey ``-p`` and start mpiexec again, without end (here the launcher
    would stop it)."""
    ended = drbench(*RUN, "-p", 2, env=strange)
    assert "ranks that start ranks" not in ended.stderr
    # the first rank is unknown
    assert ended.returncode == 3 and "2 ranks" in ended.stderr and "Traceback" not in ended.stderr


@pytest.mark.mpi
def test_a_missing_mpi_library_is_reported_in_one_line(drbench, mpiexec):
    """On a machine where drbench is installed and no MPI is; not by a traceback of mpi4py."""
    path = f"{Path(mpiexec).parent}{os.pathsep}{os.environ['PATH']}"  # Open MPI's adds text
    line = drbench(*RUN, env={"MPI4PY_LIBMPI": "/nonexistent/libmpi.so", "PATH": path}).refusal(3)
    assert "/nonexistent/libmpi.so" in line


@pytest.fixture
def started(tmp_path, monkeypatch):
    """The file in which the launcher, in this folder, writes its process id; its parent continues
    once that exists."""
    monkeypatch.chdir(tmp_path)
    path, popen = tmp_path / "started", subprocess.Popen

    def start(*arguments, **keywords):
        process = popen(*arguments, **keywords)
        if "drbench" in process.args:
            wait_until(lambda: path.exists() and path.read_text(), 30, process)
        return process

    monkeypatch.setattr(subprocess, "Popen", start)
    return path


def test_ranks_that_ignore_the_request_to_end_are_killed(on_path, started, monkeypatch):
    monkeypatch.setattr(drbench.launch.host.processes, "GRACE_S", 0.3)
    on_path(
        "#!/bin/sh\n[ \"$1\" = --version ] && exit\ntrap '' TERM\necho $$ > started\nwhile true; "
        "do sleep 0.1; done\n"
    )
    with pytest.raises(CaseTimeout):
        run_ranks(2, ["run"], timeout=0.3)
    with pytest.raises(ProcessLookupError):
        os.kill(int(started.read_text()), 0)


@pytest.mark.mpi
def test_another_number_of_ranks_than_the_launcher_started_is_refused(under_mpiexec, mpich):
    """Otherwise the record would be of another number of ranks than requested."""
    ended = under_mpiexec(2, *RUN, "-p", 4)
    assert ended.codes == (2, 2) and len(ended.stderr.splitlines()) == 1
    assert all(part in ended.stderr for part in ("-p 4", "PMI_SIZE=2", "Leave -p out"))


def test_a_timeline_that_cannot_be_written_is_refused_before_the_simulation(run_cli, tmp_path):
    line = run_cli(
        *"simulate --machine pvc12 -m 64 -n 64 -k 64".split(),
        *("--csv", tmp_path / "q.csv", "--timeline", "/nonexistent/x.json"),
    ).refusal(2)
    assert "--timeline /nonexistent/x.json: no folder" in line
    assert not (tmp_path / "q.csv").exists()
