"""Imports point down only: the layers of the design and their order, enforced over the syntax trees
of every module, imports inside functions included."""

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("partitions", "drbench", "algorithms", "plots", "launch")

#: The layers from the lowest up, and the lower layers that each may import, in addition to itself.
#: A layer that is not listed here is an error.
LAYERS = {
    "partitions": (),
    "drbench.errors": (),
    "drbench.common": ("drbench.errors",),
    "drbench.options": ("drbench.errors",),
    "drbench.program": ("partitions", "drbench.common", "drbench.options"),
    "drbench.plan": ("drbench.program",),
    "drbench.host": ("drbench.plan",),
    "drbench.device": ("drbench.host",),
    "drbench.model": ("drbench.plan",),
    "drbench.measure": ("drbench.device",),
    "algorithms": ("drbench.model",),
    "algorithms.chains": ("algorithms",),
    "drbench.library": ("algorithms", "drbench.device"),
    "drbench.torch": ("drbench.library",),
    "plots.select": (
        "drbench.common",
        "drbench.measure.decision",
        "drbench.measure.noise",
        "drbench.measure.record",
        "drbench.measure.record_file",
    ),
    "plots.draw": ("plots.select",),
    "plots.registry": ("plots.draw",),
    "plots.figures": ("plots.registry", "drbench.measure.timeline", "drbench.common.StepTime"),
    "plots.report": ("plots.figures",),
    "launch.host": ("drbench", "algorithms.chains"),
    "launch.libraries": ("launch.host", "drbench.torch"),
    "launch.cases": ("launch.libraries",),
    "launch.ranks": ("launch.cases",),
    "launch.calibration": ("launch.ranks",),
    "launch.sweeps": ("launch.cases", "plots.select"),
    "launch.views": ("launch.sweeps",),
    "launch.models": ("launch.sweeps", "plots.figures"),
    "launch.studies": ("launch.models", "plots"),
    "launch.papers": ("launch.studies",),
    "launch.commands": ("launch.papers", "launch.views", "launch.calibration"),
    "launch": ("launch.commands",),
    "drbench": ("drbench.measure", "drbench.model"),
    "plots": ("plots.report",),
}
UPWARD = {
    ("drbench/__main__.py", "launch.commands.cli.main"),
    ("drbench/__init__.py", "drbench.library"),
    ("drbench/__init__.py", "drbench.torch"),
    ("drbench/__init__.py", "launch.predictions"),
    # where figures are searched: those of papers are stored with the papers
    ("plots/registry.py", "plots.figures"),
    ("plots/registry.py", "launch.papers"),
}
#: Whose chains of imports are counted separately: packages, and layers above other packages.
SEPARATE = (*PACKAGES, "drbench.library", "drbench.torch")
#: Most modules of one folder, and of one chain of imports inside a package.
MOST_MODULES, LONGEST_CHAIN = 14, 8

#: Modules that may import what only some may.
ONLY_IN = {
    "mpi4py": (
        "drbench/host/",
        "drbench/device/executor.py",
        "drbench/device/inbox.py",
        "drbench/device/matrix.py",
        "drbench/device/placed.py",
        "drbench/library/",
        "drbench/measure/",
        "drbench/torch/",
        "launch/calibration/",
        "launch/commands/",
        "launch/host/",
        "launch/libraries/",
        "launch/ranks/",
    ),
    "click": ("launch/commands/",),
    "cupy": ("drbench/device/gpu/", "launch/libraries/cublasmp.py"),
    "cupy_backends": ("drbench/device/gpu/",),
}
#: Heavy packages that no rank loads unless the case needs them: at module level only in plots, and
#: in papers, which no command loads before it checks or draws them.
HEAVY = ("matplotlib", "pandas", "torch", "plots", "cupy", "cupy_backends")
#: Functions that import what a string names.
BY_NAME = ("importlib.import_module", "import_module", "__import__")


@cache
def sources():
    """Every module of the project: path from the root -> text."""
    return {
        path.relative_to(ROOT).as_posix(): path.read_text()
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
    }


@cache
def imports(path, text):
    """(full dotted name, line, whether at module level) of each import of one module."""
    return list(_imports(path, text))


def _imports(path, text):
    package = path.split("/")[:-1]
    tree = ast.parse(text, path)
    deferred, only_types = set(), set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            deferred |= {id(inside) for inside in ast.walk(node)}
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            only_types |= {id(inside) for inside in ast.walk(node)}  # never executed
    for node in ast.walk(tree):
        names = []
        if id(node) in only_types:
            continue
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


def innermost(name, among):
    """The longest of some names that a module is, or is in; or None."""
    return max((each for each in among if under(name, (each,))), key=len, default=None)


@cache
def layer_of(name):
    """The innermost layer of a module, a parent of layers, or None."""
    return innermost(name, LAYERS)


@cache
def below(layer):
    """Every layer that a layer may import, directly or through another."""
    found, left = set(), [layer]
    while left:
        for each in LAYERS.get(left.pop(), ()):
            if each not in found:
                found.add(each)
                left.append(each)
    return found


def reachable(name, allowed):
    """Whether a name is in one of the layers, or is one of the single modules, of a list."""
    layer = layer_of(name)
    return layer in allowed or any(under(name, (each,)) for each in allowed if each not in LAYERS)


def violations(path, text):
    """One line for each import of a module that the table of layers forbids."""
    module = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    layer = layer_of(module)
    allowed = (layer, *below(layer))
    found = []
    for name, line, at_module_level in imports(path, text):
        top = name.split(".")[0]
        where = f"{path}:{line} imports {name}"
        if top in PACKAGES and (path, name) not in UPWARD and not reachable(name, allowed):
            found.append(f"{where}: {layer} may import {', '.join(sorted(below(layer)))}")
        if layer == "partitions" and top not in PACKAGES and top not in sys.stdlib_module_names:
            found.append(f"{where}: partitions needs nothing beyond the standard library")
        if top in ONLY_IN and not path.startswith(ONLY_IN[top]):
            found.append(f"{where}: only for {', '.join(ONLY_IN[top])}")
        at_home = ("plots/", "launch/papers/")
        if top == "torch":
            at_home = ("plots/", "drbench/torch/")
        if top in HEAVY and at_module_level and not path.startswith(at_home):
            found.append(f"{where}: at module level only in {' and '.join(at_home)}")
    return found


def reached(start, graph):
    """Everything that importing some modules imports, directly or not, at module level."""
    seen, left = set(), list(start)
    while left:
        name = left.pop()
        if name not in seen:
            seen.add(name)
            left += graph.get(name, ())
    return seen


@cache
def graph(deferred=False):
    """Module -> what it imports at module level (or anywhere), parent packages included."""
    texts = sources()
    modules = {
        path.removesuffix(".py").removesuffix("/__init__").replace("/", "."): path for path in texts
    }
    edges = {}
    for module, path in modules.items():
        found = {module.rpartition(".")[0]} - {""}
        for name, _, at_module_level in imports(path, texts[path]):
            if at_module_level or deferred:
                parts = name.split(".")
                prefixes = {".".join(parts[:end]) for end in range(1, len(parts) + 1)}
                found |= prefixes & modules.keys() | {parts[0]}
        edges[module] = found
    return edges


def longest_chain(package):
    """Longest chain of imports inside a package, imports inside functions included; a cycle is an
    error."""
    edges = {
        module: {
            name
            for name in found
            if innermost(name, SEPARATE) == package and not under(module, (name,))
        }
        for module, found in graph(deferred=True).items()
        if innermost(module, SEPARATE) == package
    }
    chains = {}

    def chain(module, above=()):
        assert module not in above, "a cycle: " + " -> ".join([*above, module])
        if module not in chains:
            longest = max(
                (chain(name, (*above, module)) for name in edges[module]), key=len, default=()
            )
            chains[module] = (module, *longest)
        return chains[module]

    return max(map(chain, edges), key=len)


def test_every_module_keeps_to_the_table_of_layers():
    texts = sources()
    assert {path.split("/")[0] for path in texts} == set(PACKAGES)
    assert [line for path, text in texts.items() for line in violations(path, text)] == []


def test_the_table_itself_has_no_cycle():
    assert [layer for layer in LAYERS if layer in below(layer)] == []


@pytest.mark.parametrize("package", SEPARATE)
def test_no_package_has_a_cycle_or_a_chain_of_imports_that_is_too_long(package):
    assert len(longest_chain(package)) <= LONGEST_CHAIN, longest_chain(package)


def test_no_folder_has_too_many_modules():
    folders = {}
    outside = [path.relative_to(ROOT).as_posix() for path in (ROOT / "benchmarks").rglob("*.py")]
    for path in (*sources(), *outside):
        folder, _, name = path.rpartition("/")
        if name != "__init__.py":
            folders.setdefault(folder, []).append(name)
    assert {
        folder: len(names) for folder, names in folders.items() if len(names) > MOST_MODULES
    } == {}


def test_modules_without_mpi4py_do_not_import_it_through_others_either():
    edges = graph()
    allowed = tuple(
        prefix.removesuffix(".py").replace("/", ".").rstrip(".") for prefix in ONLY_IN["mpi4py"]
    )
    pure = [module for module in edges if not under(module, allowed)]
    assert (
        "drbench.plan.schedule" in pure
        and "algorithms.universal.program" in pure
        and "drbench.host.executor" not in pure
    )
    assert [module for module in pure if "mpi4py" in reached([module], edges)] == []


def test_the_command_line_starts_without_mpi_and_without_figures():
    """The process that starts jobs must not initialise MPI, and a rank does not pay for
    matplotlib."""
    edges = graph()
    commands = [module for module in edges if under(module, ("launch.commands",))]
    loaded = reached(["drbench.__main__", *commands], edges)
    assert "click" in loaded and not loaded & {"mpi4py", "matplotlib", "pandas", "torch", "plots"}


def test_programs_and_plans_really_load_integers_only():
    layers = ("partitions/", "drbench/program/", "drbench/plan/")
    names = [path[:-3].replace("/", ".") for path in sources() if path.startswith(layers)]
    code = (
        f"import sys, {', '.join(name.removesuffix('.__init__') for name in names)}\n"
        "print([name for name in ('numpy', 'mpi4py', 'click', 'pandas') if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


@pytest.mark.parametrize(
    "path, text",
    [
        ("partitions/new.py", "import numpy"),
        ("partitions/new.py", "def f():\n    import algorithms"),
        ("drbench/new.py", "import importlib\nimportlib.import_module('launch.ranks.run_case')"),
        ("drbench/new.py", "__import__('mpi4py')"),
        ("drbench/common.py", "if True:\n    import mpi4py"),
        ("drbench/host/executor.py", "def f():\n    import cupy"),
        ("drbench/device/gpu/new.py", "import cupy"),
        ("drbench/host/new.py", "from ...algorithms import registry"),
        ("drbench/__main__.py", "from launch.ranks.run import main"),
        ("algorithms/new.py", "from ..plots import style"),
        ("plots/figures/new.py", "from drbench import trace"),
        ("launch/studies/new.py", "from plots.figures.mlp import draw"),
        ("launch/studies/new.py", "class Case:\n    import torch"),
    ],
)
def test_a_forbidden_import_is_caught(path, text):
    assert violations(path, text)
