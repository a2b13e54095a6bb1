"""An algorithm with options of its own is one file: dropped beside the others it is run, planned,
simulated, tuned, swept, recorded and plotted, and nothing else is touched."""

import shutil
import sys
from pathlib import Path

import pytest

from drbench.measure.record import options_of
from drbench.measure.record_file import read_csv
from plots.select.cases import configuration

ROOT = Path(__file__).parents[2]

TOY = '''"""A toy: the universal algorithm in slabs."""

from drbench.options import Option
from .registry import algorithm
from .universal.program import program as universal


@algorithm(
    "toy",
    options=(
        Option("slab", int, least=1, unit="elements", help="thickness.", tried=(4, 8)),
        Option("colour", ("red", "blue"), help="looks.", default_text="red"),
        Option("bright", bool, False, help="shines."),
    ),
)
def program(problem, rank, *, slab=None, colour="red", bright=False):
    """C stays; k in slabs."""
    return universal(problem, rank, stationary="C", chunk=slab)
'''
SIZES = "-m 16 -n 16 -k 16".split()


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A copy of the sources with one more file."""
    root = tmp_path_factory.mktemp("checkout")
    for package in ("partitions", "drbench", "algorithms", "launch", "plots"):
        shutil.copytree(
            ROOT / package, root / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    (root / "algorithms" / "toy.py").write_text(TOY)
    return root


@pytest.fixture
def drbench(process, checkout):
    return lambda *arguments: process(
        sys.executable, "-m", "drbench", *arguments, env={"PYTHONPATH": str(checkout)}, timeout=60
    )


def test_it_is_listed_with_its_options_and_a_wrong_value_is_refused(drbench):
    printed = " ".join(drbench("list", "algorithms", "toy").stdout.split())
    assert "-o slab=SIZE thickness." in printed
    assert "-o colour=red|blue looks. [default: red]" in printed
    assert "-o bright=true|false shines." in printed
    toy = ["plan", "-p", 2, *SIZES, "--algorithm", "toy"]
    line = drbench(*toy, "-o", "slab=0").refusal()
    assert "-o slab: " in line and "at least 1" in line
    assert "Did you mean slab?" in drbench(*toy, "-o", "slap=4").refusal()
    assert "summa takes no slab" in drbench(*toy[:-1], "summa", "-o", "slab=4").refusal()


@pytest.mark.mpi
def test_it_is_run_and_recorded(drbench, mpich, tmp_path):
    path = tmp_path / "runs.csv"
    given = "-o slab=4 -o colour=blue -o bright=true".split()
    text = drbench(
        "run",
        "-p",
        2,
        *SIZES,
        *"--iters 1 --budget 0 --algorithm toy".split(),
        *given,
        "--csv",
        path,
        "--json",
    ).json()
    assert (text["status"], text["options"]) == ("ok", "slab=4;colour=blue;bright=true")
    [record] = read_csv(path)
    assert options_of(record) == {"slab": "4", "colour": "blue", "bright": "true"}
    assert configuration(record) == "slab 4, colour blue, bright true"
    ended = drbench("plot", "algorithms", path, "-o", tmp_path / "toy.png")
    assert ended.returncode == 0 and (tmp_path / "toy.png").stat().st_size > 1000


def test_it_is_planned_simulated_and_tuned(drbench):
    toy = [*SIZES, "-p", 2, "--algorithm", "toy"]
    steps = [
        drbench("plan", *toy, *given, "--json").json()["steps"] for given in ((), ("-o", "slab=4"))
    ]
    assert steps[0] < steps[1]
    text = drbench("simulate", *toy, "-o", "slab=4", "--machine", "pvc12", "--json").json()
    assert (text["status"], text["options"]) == ("ok", "slab=4")
    tuned = ["tune", *SIZES, *"-p 2 --machine pvc12 --only toy".split()]
    places = drbench(*tuned, "--json").json()["ranking"]
    assert {place["record"]["options"] for place in places} <= {"slab=4", "slab=8"}
    assert "toy slab 8" in drbench(*tuned).stdout
