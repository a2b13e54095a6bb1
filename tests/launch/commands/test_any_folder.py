"""Commands run in a folder with files that have the names of modules: no process imports them."""

import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(240)]

DRBENCH = Path(sys.executable).with_name("drbench")
LAYERS = Path(__file__).with_name("small_layers.txt")
CUBE = "-m 64 -n 64 -k 64".split()
QUICK = "--iters 1 --budget 0".split()
COMMANDS = {
    "run": ["run", "-p", 2, *CUBE, *QUICK],
    "one rank": ["run", "-p", 1, *CUBE, *QUICK],
    "sweep": "sweep mlp1-small -p 2 --scale 1/3072 -o iters=1 -o budget=0 --max-cases 2".split(),
}
#: Further commands start processes by the same functions.
MORE = {
    "bandwidth": "bandwidth -p 2 --sizes 4KiB --only get".split(),
    "dry run": "sweep mlp1-small -p 2 --dry-run".split(),
    "tune": ["tune", "-p", 2, *CUBE, "--measure", "--top", 1, "--machine", "pvc12", *QUICK],
    "chain": ["chain", "--preset", LAYERS, *"--machine pvc12 -p 2 --run --iters 2".split()],
    "calibrate": "calibrate -p 2 --threads 1 --rounds 1 --save mine.toml".split(),
}


@pytest.mark.skipif(not DRBENCH.exists(), reason="drbench is not installed")
@pytest.mark.parametrize(
    "words",
    [
        *COMMANDS.values(),
        *(pytest.param(words, marks=pytest.mark.thorough) for words in MORE.values()),
    ],
    ids=[*COMMANDS, *MORE],
)
def test_a_command_imports_no_file_of_the_working_folder(
    process, files_of_a_user, mpich, fault, words
):
    few = {"calibrate": "small GEMMs", "bandwidth": "few transfers"}
    environ = fault(few[words[0]]) if words[0] in few else {"PYTHONPATH": ""}
    ended = process(DRBENCH, *words, env=environ, timeout=60)
    assert "IMPORTED" not in ended.stdout + ended.stderr
    if words[0] == "calibrate" and "when the machine is quiet" in ended.stderr:  # it is busy
        assert ended.returncode == 5
        return
    assert ended.returncode == 0, ended.stderr


def test_python_m_imports_only_what_precedes_our_modules_from_the_folder(process, files_of_a_user):
    """``python -m drbench`` begins with the working folder on its path: a package drbench, and
    modules that are imported before ours, still come from there."""
    (files_of_a_user / "drbench" / "__init__.py").unlink()
    (files_of_a_user / "drbench").rmdir()
    (files_of_a_user / "signal.py").unlink()
    words = sys.executable, "-m", "drbench", *COMMANDS["one rank"]
    ended = process(*words, env={"PYTHONPATH": ""}, timeout=60)
    assert ended.returncode == 0 and "IMPORTED" not in ended.stderr, ended.stderr
