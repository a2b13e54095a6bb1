"""Commands run in a folder with files that have the names of modules: no process imports them."""

import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(240)]

DRBENCH = Path(sys.executable).with_name("drbench")
PACKAGES = "drbench", "partitions", "algorithms", "launch"
MODULES = "plots", "click", "numpy", "statistics", "rich", "mpi4py", "threadpoolctl", "signal"
LAYERS = Path(__file__).with_name("small_layers.txt")
CUBE = "-m 64 -n 64 -k 64".split()
QUICK = "--iters 1 --budget 0".split()
COMMANDS = {
    "run": ["run", "-p", 2, *CUBE, *QUICK],
    "one rank": ["run", "-p", 1, *CUBE, *QUICK],
    "bandwidth": "bandwidth -p 2 --sizes 4KiB --only get".split(),
    "doctor": ["doctor"],
    "sweep": "sweep mlp1-small -p 2 --scale 1/3072 -o iters=1 -o budget=0 --max-cases 2".split(),
    "dry run": "sweep mlp1-small -p 2 --dry-run".split(),
    "tune": ["tune", "-p", 2, *CUBE, "--measure", "--top", 1, "--machine", "pvc12", *QUICK],
    "chain": ["chain", "--preset", LAYERS, *"--machine pvc12 -p 2 --run --iters 2".split()],
    "calibrate": "calibrate -p 2 --threads 1 --rounds 1 --save mine.toml".split(),
}


@pytest.fixture
def folder(tmp_path):
    """A folder of a user, with files that print and raise if they are imported."""
    text = 'import os\nos.write(2, b"IMPORTED")\nraise SystemExit("a file of the user")\n'
    for name in PACKAGES:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(text)
    for name in MODULES:
        (tmp_path / f"{name}.py").write_text(text)
    return tmp_path


@pytest.mark.skipif(not DRBENCH.exists(), reason="drbench is not installed")
@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_imports_no_file_of_the_working_folder(process, folder, mpich, fault, name):
    few = {"calibrate": "small GEMMs", "bandwidth": "few transfers"}
    environ = fault(few[name]) if name in few else {"PYTHONPATH": ""}
    ended = process(DRBENCH, *COMMANDS[name], env=environ, timeout=60)
    assert "IMPORTED" not in ended.stdout + ended.stderr
    if name == "calibrate" and "when the machine is quiet" in ended.stderr:  # it is busy
        assert ended.returncode == 5
        return
    # a doctor may find something that is missing
    assert ended.returncode in ((0, 3) if name == "doctor" else (0,)), ended.stderr


def test_python_m_imports_only_what_precedes_our_modules_from_the_folder(process, folder, mpich):
    """``python -m drbench`` begins with the working folder on its path: a package drbench, and
    modules that are imported before ours, still come from there."""
    (folder / "drbench" / "__init__.py").unlink()
    (folder / "drbench").rmdir()
    words = sys.executable, "-m", "drbench", *COMMANDS["run"]
    (folder / "signal.py").unlink()
    ended = process(*words, env={"PYTHONPATH": ""}, timeout=60)
    assert ended.returncode == 0 and "IMPORTED" not in ended.stderr, ended.stderr
