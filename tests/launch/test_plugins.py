"""A file of a user, outside the packages, adds algorithms, a type of partition and a library: each
is listed with its options, planned, predicted, tuned, run and verified, swept and drawn."""

import json
import re
import shlex
import sys
from pathlib import Path
from textwrap import dedent

import pytest
from tutorials import difference, steps_of

from drbench.check.findings import KINDS
from drbench.measure.record import options_of
from drbench.measure.record_file import read_csv
from drbench.plots.select.cases import configuration

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/how-to/extend-drbench.md"
#: The parts of the plugin that the page shows; the part in a list is indented.
BLOCKS = re.findall(r"^ *```python\n(.*?)^ *```", PAGE.read_text("utf-8"), re.DOTALL | re.M)
TOY_PROGRAM = '''
from drbench.algorithms.universal.program import program as universal
from drbench.program.signal_steps import Push


@algorithm(
    "toy",
    options=(
        Option("slab", int, least=1, unit="elements", help="thickness.", tried=(4, 8)),
        Option("colour", ("red", "blue"), help="looks.", default_text="red"),
        Option("bright", bool, False, help="shines."),
    ),
)
def toy(problem, rank, *, slab=None, colour="red", bright=False):
    """C stays; k in slabs."""
    return universal(problem, rank, stationary="C", chunk=slab)


@algorithm("unanswered", signals=True)
def unanswered(problem, rank):
    """A Push that no rank awaits."""
    if rank == 0:
        a = yield Get(problem.a.own_tiles(0)[0])
        yield Push(a, 1, "x")
'''
PLUGIN = "\n\n".join([*map(dedent, BLOCKS), TOY_PROGRAM])
CASE = "-p 2 -m 12 -n 12 -k 12"
ROWS = f"{CASE} --algorithm rows -o width=2"
TOY = f"{CASE} --algorithm toy"
UNEVEN = f"{CASE} --a uneven:2+10 --b row --c uneven:12+0"
QUICK = "--iters 1 --budget 0 -o gemm_only=false --json"
LINES = {
    "list rows": "list algorithms rows",
    "list toy": "list algorithms toy",
    "list partitions": "list partitions",
    "list libraries": "list libraries",
    "plan rows": f"plan {ROWS} --rank 1 --json",
    "plan toy": f"plan {TOY} --json",
    "plan slabs": f"plan {TOY} -o slab=4 --json",
    "wrong rows": f"plan {CASE} --a uneven:2+3",
    "wrong slab": f"plan {TOY} -o slab=0",
    "wrong name": f"plan {TOY} -o slap=4",
    "wrong algorithm": f"plan {CASE} --algorithm summa -o slab=4",
    "simulate uneven": f"simulate {UNEVEN} --machine pvc12 --json",
    "simulate slabs": f"simulate {TOY} -o slab=4 --machine pvc12 --json",
    "tune toy": f"tune {CASE} --machine pvc12 --only toy --json",
    "run rows": f"run {ROWS} {QUICK}",
    "run uneven": f"run {UNEVEN} {QUICK}",
    "run numpy": f"run {CASE} --algorithm numpy {QUICK}",
    "run toy": f"run {TOY} -o slab=4 -o colour=blue -o bright=true --csv toy.csv {QUICK}",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with the plugin that is not the checkout."""
    path = tmp_path_factory.mktemp("user")
    (path / "mine.py").write_text(PLUGIN, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def answers(lines_on_ranks, folder):
    """The results of all lines with the plugin, on two ranks."""
    plugin = ["--plugin", folder / "mine.py"]
    found = lines_on_ranks(
        2, {name: [*plugin, *words.split()] for name, words in LINES.items()}, folder
    )
    return lambda name: found[name]


@pytest.fixture
def drbench(process, folder, tmp_path):
    """A call with the plugin, from its folder."""
    (tmp_path / "mine.py").write_text(PLUGIN, encoding="utf-8")

    def call(*words):
        program = [sys.executable, "-m", "drbench", "--plugin", "mine.py"]
        return process(*program, *words, timeout=60)

    return call


@pytest.mark.mpi
def test_the_parts_of_a_plugin_are_listed_with_their_options(answers):
    assert "-o width=SIZE" in answers("list rows").stdout
    assert "uneven" in answers("list partitions").stdout
    assert "NumPy: all of C on every rank" in answers("list libraries").stdout
    printed = " ".join(answers("list toy").stdout.split())
    assert "-o slab=SIZE thickness." in printed
    assert "-o colour=red|blue looks. [default: red]" in printed
    assert "-o bright=true|false shines." in printed


@pytest.mark.mpi
def test_a_wrong_value_of_an_option_of_a_plugin_is_refused_with_the_remedy(answers):
    for name, mentioned in {
        "wrong rows": ["uneven:2+3", "12 rows"],
        "wrong slab": ["-o slab: ", "at least 1"],
        "wrong name": ["Did you mean slab?"],
        "wrong algorithm": ["summa takes no slab"],
    }.items():
        line = answers(name).refusal()
        assert all(text in line for text in mentioned), line


@pytest.mark.mpi
def test_the_parts_of_a_plugin_are_planned_predicted_and_tuned(answers):
    planned = answers("plan rows").json()
    assert planned["steps"] > 6 and planned["a"] == "row"
    assert answers("plan toy").json()["steps"] < answers("plan slabs").json()["steps"]
    predicted = answers("simulate uneven").json()
    assert (predicted["status"], predicted["a"]) == ("ok", "uneven:2+10")
    predicted = answers("simulate slabs").json()
    assert (predicted["status"], predicted["options"]) == ("ok", "slab=4")
    places = answers("tune toy").json()["ranking"]
    assert {place["record"]["options"] for place in places} <= {"slab=4", "slab=8"}
    assert all(" --plugin=" in f" {place['command']}" for place in places)


def test_the_page_shows_what_the_check_of_a_right_and_of_a_wrong_program_prints(drbench):
    shown = [step for step in steps_of(PAGE.read_text("utf-8")) if step.kind == "console"]
    assert len(shown) == 2
    for step, code in zip(shown, (0, 1)):
        command, plugin, name, *words = shlex.split(step.text)
        assert (command, plugin, name) == ("drbench", "--plugin", "mine.py")
        ended = drbench(*words)
        assert ended.returncode == code and not ended.stderr
        assert not difference(step.shown, ended.stdout, "plan")


def test_the_page_explains_every_kind_of_finding():
    assert re.findall(r"^\| `(\w+)` \|", PAGE.read_text("utf-8"), re.M) == [*KINDS]


def test_the_wrong_program_of_the_page_is_right_with_a_fence(process, tmp_path):
    before = "        b = yield Get(own)\n"
    assert PLUGIN.count(before) == 1
    text = PLUGIN.replace(before, f"{before}        yield Fence()\n")
    (tmp_path / "mine.py").write_text(text, encoding="utf-8")
    words = "--plugin mine.py plan -p 2 -m 8 -n 8 -k 8 --algorithm unfenced --check --json".split()
    answer = process(sys.executable, "-m", "drbench", *words).json()
    assert (answer["checked_steps"], answer["findings"]) == (20, [])


def test_findings_are_machine_readable_and_come_before_other_errors(drbench):
    words = "plan -p 2 -m 8 -n 8 -k 8 --algorithm unanswered --rank all".split()
    assert "is never received" in drbench(*words).refusal(5)
    ended = drbench(*words, "--check", "--json")
    (finding,) = json.loads(ended.stdout)["findings"]
    assert (ended.returncode, finding["kind"]) == (1, "signal")
    (step,) = finding["steps"]
    assert (step["rank"], step["block"]) == (0, None) and step["text"].startswith("Push(")
    brief = drbench(*words, "--check", "--brief")
    assert brief.returncode == 1 and brief.stdout.endswith(" checked_steps=4 findings=1\n")


@pytest.mark.mpi
@pytest.mark.parametrize("name", [name for name in LINES if name.startswith("run")])
def test_the_parts_of_a_plugin_are_run_and_verified(answers, name):
    ran = answers(name).json()
    assert (ran["status"], ran["error"]) == ("ok", 0)


@pytest.mark.mpi
def test_the_options_of_a_plugin_are_recorded(answers, folder):
    assert answers("run toy").json()["options"] == "slab=4;colour=blue;bright=true"
    (record,) = read_csv(folder / "toy.csv")
    assert options_of(record) == {"slab": "4", "colour": "blue", "bright": "true"}
    assert configuration(record) == "slab 4, colour blue, bright true"


@pytest.mark.mpi
def test_the_parts_of_a_plugin_are_swept_and_drawn(drbench, mpich, tmp_path):
    cases = ['algorithm = "rows"', 'a = "uneven:2+10"\nb = "row"', 'algorithm = "numpy"']
    head = 'name = "mine"\nrounds = 1\n[defaults]\nm = 12\nn = 12\nk = 12\niters = 2\nbudget = 0\n'
    text = head + "".join(f"[[cases]]\n{case}\n" for case in cases)
    (tmp_path / "mine.toml").write_text(text, encoding="utf-8")
    assert drbench("sweep", "mine.toml", "-p", 2, "--out", "out").returncode == 0
    records = (tmp_path / "out" / "records.csv").read_text()
    assert records.count(",ok,") == 3 and "uneven:2+10" in records
    assert drbench("plot", "libraries", "out", "--save", "mine.txt").returncode == 0
    drawn = (tmp_path / "mine.txt").read_text()
    assert "rows" in drawn and "numpy" in drawn and "universal" in drawn


@pytest.mark.mpi
def test_ranks_that_a_command_starts_have_the_plugin(drbench, mpich):
    assert drbench(*LINES["run rows"].split()).json()["error"] == 0


def test_the_environment_and_installed_packages_name_plugins_too(process, folder):
    words = [sys.executable, "-m", "drbench", "list", "algorithms", "rows"]
    plugin = str(folder / "mine.py")
    assert "-o width=SIZE" in process(*words, env={"DRBENCH_PLUGINS": plugin}).stdout
    metadata = folder / "mine-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("[drbench.plugins]\nmine = mine\n")
    assert "-o width=SIZE" in process(*words, env={"PYTHONPATH": f"{ROOT}:{folder}"}).stdout


@pytest.mark.parametrize(
    "text, message",
    [
        (None, "there is no such file"),
        ("1 / 0", "ZeroDivisionError"),
        ("import nosuch", "nosuch"),
        (PLUGIN.replace('"rows"', '"summa"'), "Give it another name"),
    ],
)
def test_a_plugin_that_cannot_be_loaded_is_one_line(run_cli, tmp_path, text, message):
    path = tmp_path / "bad.py"
    if text:
        path.write_text(text, encoding="utf-8")
    line = run_cli("--plugin", path, "list").refusal()
    assert f"plugin {path}: " in line and message in line
