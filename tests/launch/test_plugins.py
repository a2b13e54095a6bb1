"""A file of a user, outside the packages, adds an algorithm, a type of partition and a library:
each is listed, planned, predicted, run and verified, swept and drawn."""

import re
import sys
from pathlib import Path
from textwrap import dedent

import pytest

PAGE = Path(__file__).parents[2] / "docs/how-to/extend-drbench.md"
#: The parts of the plugin that the page shows; the part in a list is indented.
BLOCKS = re.findall(r"^ *```python\n(.*?)^ *```", PAGE.read_text("utf-8"), re.DOTALL | re.M)
PLUGIN = "\n\n".join(map(dedent, BLOCKS))
SIZES = "-m 12 -n 12 -k 12".split()
ROWS = ["--algorithm", "rows", "-o", "width=2"]
UNEVEN = "--a uneven:2+10 --b row --c uneven:12+0".split()
QUICK = "--iters 1 --budget 0 -o gemm_only=false".split()


@pytest.fixture
def plugin(tmp_path):
    (tmp_path / "mine.py").write_text(PLUGIN, encoding="utf-8")
    return tmp_path / "mine.py"


@pytest.fixture
def drbench(process, plugin):
    """A call with the plugin, from a folder that is not the checkout."""
    root = str(Path(__file__).parents[2])

    def call(*words):
        program = [sys.executable, "-m", "drbench", "--plugin", "mine.py"]
        return process(*program, *words, env={"PYTHONPATH": root}, timeout=60)

    return call


def test_the_parts_of_a_plugin_are_listed_planned_and_predicted(drbench):
    assert "-o width=SIZE" in drbench("list", "algorithms", "rows").stdout
    assert "uneven" in drbench("list", "partitions").stdout
    assert "NumPy: all of C on every rank" in drbench("list", "libraries").stdout
    planned = drbench("plan", "-p", 3, *SIZES, *ROWS, "--rank", 1, "--json").json()
    assert planned["steps"] > 6 and planned["a"] == "row"
    predicted = drbench("simulate", "-p", 2, *SIZES, *UNEVEN, "--machine", "pvc12", "--json").json()
    assert (predicted["status"], predicted["a"]) == ("ok", "uneven:2+10")
    line = drbench("plan", "-p", 2, *SIZES, "--a", "uneven:2+3").refusal()
    assert "uneven:2+3" in line and "12 rows" in line


@pytest.mark.mpi
@pytest.mark.parametrize(
    "words", [ROWS, UNEVEN, ["--algorithm", "numpy"]], ids=["algorithm", "partition", "library"]
)
def test_the_parts_of_a_plugin_are_run_and_verified_on_ranks(drbench, mpich, words):
    ran = drbench("run", "-p", 2, *SIZES, *QUICK, *words, "--json").json()
    assert (ran["status"], ran["error"]) == ("ok", 0)


@pytest.mark.mpi
def test_the_parts_of_a_plugin_are_swept_and_drawn(drbench, plugin, mpich):
    cases = ['algorithm = "rows"', 'a = "uneven:2+10"\nb = "row"', 'algorithm = "numpy"']
    head = 'name = "mine"\n[defaults]\nm = 12\nn = 12\nk = 12\niters = 2\nbudget = 0\n'
    text = head + "".join(f"[[cases]]\n{case}\n" for case in cases)
    (plugin.parent / "mine.toml").write_text(text, encoding="utf-8")
    assert drbench("sweep", "mine.toml", "-p", 2, "--out", "out").returncode == 0
    records = (plugin.parent / "out" / "records.csv").read_text()
    assert records.count(",ok,") == 3 and "uneven:2+10" in records
    assert drbench("plot", "libraries", "out", "-o", "mine.txt").returncode == 0
    drawn = (plugin.parent / "mine.txt").read_text()
    assert "rows" in drawn and "numpy" in drawn and "universal" in drawn


def test_a_printed_command_names_the_plugin(drbench):
    described = drbench("tune", "-p", 2, *SIZES, "--only", "rows", "--machine", "pvc12").stdout
    assert "Run the first: drbench --plugin=mine.py run -p 2" in described


def test_the_environment_and_installed_packages_name_plugins_too(process, plugin, tmp_path):
    words = [sys.executable, "-m", "drbench", "list", "algorithms", "rows"]
    root = str(Path(__file__).parents[2])
    ended = process(*words, env={"DRBENCH_PLUGINS": str(plugin), "PYTHONPATH": root})
    assert "-o width=SIZE" in ended.stdout
    metadata = tmp_path / "mine-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("[drbench.plugins]\nmine = mine\n")
    ended = process(*words, env={"PYTHONPATH": f"{root}:{tmp_path}"})
    assert "-o width=SIZE" in ended.stdout


@pytest.mark.parametrize(
    "text, message",
    [(None, "there is no such file"), ("1 / 0", "ZeroDivisionError"), ("import nosuch", "nosuch")],
)
def test_a_plugin_that_cannot_be_loaded_is_one_line(run_cli, tmp_path, text, message):
    path = tmp_path / "bad.py"
    if text:
        path.write_text(text)
    line = run_cli("--plugin", path, "list").refusal()
    assert f"plugin {path}: " in line and message in line


def test_names_that_are_taken_are_refused(drbench, plugin):
    plugin.write_text(PLUGIN.replace('"rows"', '"summa"'), encoding="utf-8")
    assert "Give it another name" in drbench("list").refusal()
