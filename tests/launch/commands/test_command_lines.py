"""The command that is printed for a case runs, and the command line parses it to the same case."""

import shlex
import sys
from dataclasses import fields

import pytest

from drbench.launch.cases.case import Case
from drbench.launch.cases.command_line import run_command
from drbench.launch.commands.options import case_of, machine_of, take_options
from drbench.launch.commands.run import run
from drbench.launch.libraries import known_options
from drbench.program.steps import COUNTERS

CASES = [
    Case(96, 128, 64),
    Case(96, 128, 64, "row", "S(0),S(1)@2x2", "R", options={"stationary": "C", "chunk": 7}),
    Case(9, 8, 7, "block:2x2:col", "tiles:3x2@1x4", "row/c2", dtype="float64", prefetch=3),
    Case(9, 8, 7, options={"stationary": "A", "replicate_result": True, "schedule": "greedy"}),
    Case(64, 64, 64, algorithm="meshslice", options={"mesh": "2x2", "slices": 4, "dataflow": "LS"}),
    Case(64, 64, 64, "column", "row", "row/c4", transport="rma", iters=3, threads=2, check=False),
    Case(64, 64, 64, transport="throttled:0.2,50", get="copy", pool=1 << 20),
]


def read(command):
    """The case of a command line, and its ranks."""
    program, name, *words = shlex.split(command)
    assert (program, name) == ("drbench", "run")
    values = run.make_context("run", words, help_option_names=["-h", "--help"]).params
    ranks = values.pop("ranks")
    known = {each.name for each in fields(Case)} | known_options().keys() | {"option"}
    values = {key: value for key, value in values.items() if key in known - {"gemm_only"}}
    values["options"] = take_options(values)
    _, values["machine"] = machine_of(values)
    return case_of(values, ranks), ranks


@pytest.mark.parametrize("case", CASES)
def test_the_command_of_a_case_is_read_as_that_case(case):
    found, ranks = read(run_command(case, 4))
    assert (found, ranks) == (case, 4)


def test_bfloat16_is_run_with_sums_in_float32_on_gpus():
    command = run_command(Case(8, 8, 8, dtype="bfloat16"), 2)
    assert "--dtype bfloat16:float32 --backend cupy" in command


@pytest.mark.mpi
def test_the_first_choice_is_run_by_its_command(drbench):
    """The printed command, with the program of this checkout."""
    sizes = "-m 96 -n 128 -k 64 -p 2".split()
    tuned = drbench("tune", *sizes, *"--c R --fix c --replication equal --json".split()).json()
    first = tuned["ranking"][0]
    ran = drbench(
        *shlex.split(first["command"])[1:], "--iters", 1, "-o", "gemm_only=false", "--json"
    ).json()
    assert (ran["status"], ran["error"], ran["c"], ran["replicate_result"]) == ("ok", 0, "R", True)
    assert [ran[name] for name in "abc"] == first["layouts"]
    moved = sum(ran[name] or 0 for name in COUNTERS)
    assert moved >= first["moved_bytes"]


ANOTHER = """
from drbench.algorithms.registry import algorithm
from drbench.options import Option

OPTIONS = Option("first", ("A", "B"), "A"), Option("reverse", bool), Option("wide", bool, True)


@algorithm("another", options=OPTIONS)
def program(problem, rank, **options):
    \"""Nothing.\"""
    yield from ()
"""


#: Options of the algorithm in a command line, and what they mean with its defaults.
MEANT = {
    "": "first=A;wide=true",
    "-o reverse=true -o first=B": "first=B;wide=true;reverse=true",
    "-o reverse=false": "first=A;wide=true;reverse=false",
    "-o wide=false": "first=A;wide=false",
}


def test_defaults_and_switches_of_an_algorithm_are_its_own(process, tmp_path):
    """A file next to those of the algorithms is found."""
    (tmp_path / "another.py").write_text(ANOTHER, encoding="utf-8")
    call = (
        "import sys; from drbench import algorithms; algorithms.__path__.append('.')\n"
        "from drbench.launch.commands import options, plan\n"
        "from drbench.measure.record import options_text\n"
        "for line in sys.argv[1:]:\n"
        "    words = f'--algorithm another {line} -p 2 -m 8 -n 8 -k 8'.split()\n"
        "    values = plan.plan.make_context('plan', words).params\n"
        "    taken = options.take_options(dict(values))\n"
        "    algorithm = algorithms.get_algorithm(values['algorithm'])\n"
        "    problem = algorithm.problem(8, 8, 8, 2)\n"
        "    print(options_text(algorithm.resolve(problem, **algorithm.pick(taken))))\n"
    )
    ended = process(sys.executable, "-c", call, *MEANT)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.split() == [*MEANT.values()]
