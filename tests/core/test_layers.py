"""Imports point down only: the layer table of the design, enforced over the syntax trees of every
module."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

#: What a module of each package may import of the project's own (with everything below it).
MAY_IMPORT = {
    "partitions": ("partitions",),
    "drbench": ("drbench", "partitions"),
    "algorithms": ("algorithms", "drbench", "partitions"),
    "plots": ("plots", "drbench.record", "drbench.timeline"),
    "launch": ("launch", "plots", "algorithms", "drbench", "partitions"),
}
UPWARD = {"drbench/__main__.py": ("launch.cli",)}

#: Modules that may import what only some may.
ONLY_IN = {
    "mpi4py": (
        "drbench/transports/",
        "drbench/executor.py",
        "drbench/collectives.py",
        "drbench/matrix.py",
        "drbench/verify.py",
        "drbench/roof.py",
        "drbench/device_executor.py",
        "drbench/device_matrix.py",
        "drbench/values.py",
        "launch/",
    ),
    "click": ("launch/",),
    "cupy": ("drbench/devices/",),
    "cupy_backends": ("drbench/devices/",),
}
#: Heavy packages that no rank loads unless the case needs them: outside plots never at module
#: level.
HEAVY = ("matplotlib", "pandas", "torch", "plots", "cupy", "cupy_backends")
#: Functions that import what a string names.
BY_NAME = ("importlib.import_module", "import_module", "__import__")


def sources():
    """Every module of the project: path from the root -> text."""
    return {
        path.relative_to(ROOT).as_posix(): path.read_text()
        for package in MAY_IMPORT
        for path in sorted((ROOT / package).rglob("*.py"))
    }


def imports(path, text):
    """(what is imported with its full dotted name, line, whether at module level) of one module."""
    package = path.split("/")[:-1]
    tree = ast.parse(text, path)
    deferred = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            deferred |= {id(inside) for inside in ast.walk(node)}
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            names = [f"{module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in BY_NAME:
            if node.args and isinstance(node.args[0], ast.Constant):
                names = [node.args[0].value]
        for name in names:
            yield name, node.lineno, id(node) not in deferred


def under(name, prefixes):
    return any(name == prefix or name.startswith(prefix + ".") for prefix in prefixes)


def violations(path, text):
    """One line for each import of a module that the layer table forbids."""
    package = path.split("/")[0]
    found = []
    for name, line, at_module_level in imports(path, text):
        top = name.split(".")[0]
        where = f"{path}:{line} imports {name}"
        if top in MAY_IMPORT and not under(name, MAY_IMPORT[package] + UPWARD.get(path, ())):
            found.append(f"{where}: {package} may import {', '.join(MAY_IMPORT[package])}")
        if package == "partitions" and top not in MAY_IMPORT and top not in sys.stdlib_module_names:
            found.append(f"{where}: partitions needs nothing beyond the standard library")
        if top in ONLY_IN and not path.startswith(ONLY_IN[top]):
            found.append(f"{where}: only for {', '.join(ONLY_IN[top])}")
        if top in HEAVY and at_module_level and package != "plots":
            found.append(f"{where}: at module level only in plots")
    return found


def reached(start, graph):
    """Everything that importing some modules imports in turn, at module level."""
    seen, left = set(), list(start)
    while left:
        name = left.pop()
        if name not in seen:
            seen.add(name)
            left += graph.get(name, ())
    return seen


def graph():
    """Module -> what it imports at module level, parent packages included."""
    texts = sources()
    modules = {
        path.removesuffix(".py").removesuffix("/__init__").replace("/", "."): path for path in texts
    }
    edges = {}
    for module, path in modules.items():
        found = {module.rpartition(".")[0]} - {""}
        for name, _, at_module_level in imports(path, texts[path]):
            if at_module_level:
                parts = name.split(".")
                prefixes = {".".join(parts[:end]) for end in range(1, len(parts) + 1)}
                found |= prefixes & modules.keys() | {parts[0]}
        edges[module] = found
    return edges


def test_every_module_keeps_to_the_layer_table():
    texts = sources()
    assert {path.split("/")[0] for path in texts} == set(MAY_IMPORT)
    assert [line for path, text in texts.items() for line in violations(path, text)] == []


def test_the_shim_is_the_only_upward_import():
    upward = {
        (path, name)
        for path, text in sources().items()
        for name, _, _ in imports(path, text)
        if name.split(".")[0] in MAY_IMPORT and not under(name, MAY_IMPORT[path.split("/")[0]])
    }
    assert upward == {("drbench/__main__.py", "launch.cli.main")}


def test_what_may_not_import_mpi4py_does_not_get_it_from_others_either():
    edges = graph()
    allowed = tuple(
        prefix.removesuffix(".py").replace("/", ".").rstrip(".") for prefix in ONLY_IN["mpi4py"]
    )
    pure = [module for module in edges if not under(module, allowed)]
    assert (
        "drbench.memory" in pure
        and "algorithms.universal" in pure
        and "drbench.executor" not in pure
    )
    assert [module for module in pure if "mpi4py" in reached([module], edges)] == []


def test_the_command_line_starts_without_mpi_and_without_figures():
    """The process that starts jobs must not initialise MPI, and a rank does not pay for
    matplotlib."""
    loaded = reached(["drbench.__main__", "launch.cli"], graph())
    assert "click" in loaded and not loaded & {"mpi4py", "matplotlib", "pandas", "torch", "plots"}


def test_planning_a_program_really_loads_no_mpi():
    code = (
        "import sys\n"
        "from algorithms import get_algorithm\n"
        "from drbench import blas, fill, memory, problem, record, schedule\n"
        "trace = get_algorithm('universal').trace(problem.Problem(8, 8, 8, 4), 1, stationary='B')\n"
        "memory.plan_arena(schedule.Windows(trace, 1), 4)\n"
        "print([name for name in ('mpi4py', 'click', 'matplotlib', 'pandas', 'torch') if name in "
        "sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


@pytest.mark.parametrize(
    "path, text",
    [
        ("partitions/new.py", "import numpy"),
        ("partitions/new.py", "from drbench.errors import UsageError"),
        ("partitions/new.py", "def f():\n    import algorithms"),
        ("drbench/new.py", "from algorithms import get_algorithm"),
        ("drbench/new.py", "from launch import case"),
        ("drbench/new.py", "import plots.mlp"),
        ("drbench/new.py", "from launch.cli import main"),
        ("drbench/trace.py", "from mpi4py import MPI"),
        ("drbench/trace.py", "def f():\n    import mpi4py.MPI"),
        ("drbench/timing.py", "if True:\n    import mpi4py"),
        ("drbench/new.py", "import importlib\nimportlib.import_module('launch.case')"),
        ("drbench/new.py", "__import__('mpi4py')"),
        ("drbench/new.py", "import click"),
        ("drbench/executor.py", "def f():\n    import cupy"),
        ("drbench/devices/new.py", "import cupy"),
        ("drbench/devices/new.py", "from mpi4py import MPI"),
        ("drbench/new.py", "import pandas"),
        ("drbench/transports/new.py", "from ...algorithms import registry"),
        ("drbench/__main__.py", "from launch.run import main"),
        ("drbench/__main__.py", "from algorithms import algorithms"),
        ("algorithms/new.py", "from launch.case import run"),
        ("algorithms/new.py", "from mpi4py import MPI"),
        ("algorithms/new.py", "from ..plots import style"),
        ("plots/new.py", "from drbench.problem import Problem"),
        ("plots/new.py", "from drbench import trace"),
        ("plots/new.py", "import drbench"),
        ("plots/new.py", "import partitions"),
        ("plots/new.py", "from launch import case"),
        ("launch/new.py", "import matplotlib.pyplot as plt"),
        ("launch/new.py", "from plots.mlp import draw"),
        ("launch/new.py", "try:\n    import pandas\nexcept ImportError:\n    pandas = None"),
        ("launch/new.py", "class Case:\n    import torch"),
    ],
)
def test_an_import_that_points_up_or_out_is_caught(path, text):
    assert violations(path, text)


@pytest.mark.parametrize(
    "path, text",
    [
        (
            "partitions/new.py",
            "import math\nfrom partitions.grids import divisors\nfrom .errors import LayoutError",
        ),
        (
            "drbench/new.py",
            "import numpy\nfrom partitions import part\nfrom .steps import Get\nfrom . import "
            "trace",
        ),
        ("drbench/transports/new.py", "from mpi4py import MPI\nfrom ..errors import UsageError"),
        ("drbench/roof.py", "import mpi4py"),
        (
            "drbench/devices/new.py",
            "def f():\n    import cupy\n    from cupy_backends.cuda.libs import cublas",
        ),
        ("drbench/__main__.py", "def main():\n    from launch.cli import main"),
        (
            "algorithms/new.py",
            "from drbench.steps import Get\nfrom partitions import part\nfrom . import registry",
        ),
        (
            "plots/new.py",
            "import matplotlib, pandas\nfrom drbench.record import Record\nfrom drbench import "
            "record",
        ),
        (
            "launch/new.py",
            "import click, mpi4py\ndef f():\n    from plots.mlp import draw\n    import pandas",
        ),
    ],
)
def test_an_import_that_points_down_is_not(path, text):
    assert violations(path, text) == []
