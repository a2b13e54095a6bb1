"""Too little memory, in one line with exit code 6, whoever notices it."""

import errno
import json
import shutil
import subprocess
import sys

import pytest

from drbench.launch.commands import cli
from drbench.launch.commands.doctor import _probe
from drbench.launch.host.mpi import mpiexec_command

SIZES = [word for name in "mnk" for word in (f"-{name}", "1000000")]
TILES = [word for name in "abc" for word in (f"--{name}", "tiles:16x16")]


@pytest.mark.mpi
def test_millions_of_tiles_that_fit_nowhere_are_recorded_before_they_are_planned(drbench):
    ended = drbench("run", "-p", "2", *SIZES, *TILES, "--budget", "0", "--json")
    assert (ended.returncode, ended.stderr, ended.left) == (6, "", ())
    assert json.loads(ended.stdout)["status"] == "out_of_memory"


@pytest.mark.parametrize(
    "error", [MemoryError(), OSError(errno.ENOMEM, "no"), RuntimeError("MPI: Out of memory")]
)
def test_what_runs_out_of_memory_later_ends_in_one_line(run_cli, monkeypatch, error):
    def fails(*_, **__):
        raise error

    monkeypatch.setattr(cli.cli, "main", fails)
    assert "memory" in run_cli("list").refusal(6)


@pytest.mark.mpi
def test_a_heap_beyond_the_limit_of_the_shell_is_out_of_memory_on_every_rank(process):
    text = (
        "import drbench\n"
        "try: drbench.init(heap='1G')\n"
        "except drbench.errors.OutOfMemory as error: print(error)\n"
    )
    limited = 'ulimit -v 1200000 && exec "$@"'
    ended = process("sh", "-c", limited, "sh", *mpiexec_command(2), sys.executable, "-c", text)
    assert ended.returncode == 0 and len(ended.stdout.splitlines()) == 2
    assert ended.stdout.count("ulimit -v") == 2


@pytest.mark.mpi
def test_a_tiny_shared_memory_is_named_by_run_and_sweep(process, tmp_path):
    small = 'mount -t tmpfs -o size=1m tmpfs /dev/shm && exec "$@"'
    if subprocess.run(["unshare", "-m", "sh", "-c", small, "sh", "true"]).returncode:
        pytest.skip("only root mounts file systems")
    sweep = "sweep square -o m=64 -o n=64 -o k=64".split()
    for words in (["run", *"-m 8 -n 8 -k 8".split()], [*sweep, "--out", str(tmp_path / "of")]):
        command = [sys.executable, "-m", "drbench", *words, "-p", "2"]
        ended = process("unshare", "-m", "sh", "-c", small, "sh", *command, timeout=60)
        last = ended.stderr.splitlines()[-1]
        assert ended.returncode == 6 and "Enlarge it" in last and ended.left == ()


@pytest.mark.mpi
@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_ranks_that_may_not_read_each_other_exchange_large_messages(tmp_path, monkeypatch):
    """As in a container whose seccomp profile refuses process_vm_readv."""
    source, library = tmp_path / "refused.c", tmp_path / "refused.so"
    source.write_text(
        "#include <errno.h>\n"
        "long process_vm_readv() { errno = EPERM; return -1; }\n"
        "long process_vm_writev() { errno = EPERM; return -1; }\n"
    )
    subprocess.run(["cc", "-w", "-shared", "-fPIC", "-o", library, source], check=True)
    command = [*mpiexec_command(2), "env", f"LD_PRELOAD={library}"]
    found = _probe(command, "doctor_probe", 60)
    assert found["large"] and not found["reads"] and found["rma"] and found["direct"]
    monkeypatch.setenv("MPIR_CVAR_CH4_CMA_ENABLE", "1")  # as a user may have it
    if "MPICH" in found["library"]:
        found = _probe(command, "doctor_probe", 60)
        assert found["rma"] and "large" not in found
