"""Every public function of drbench, drbench.library and drbench.torch is typed, and its docstring
names its parameters and its result."""

import ast
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import drbench.library
from drbench import _PREDICTIONS

ROOT = Path(__file__).parents[2]
#: Methods with underscores that users call by an operator.
OPERATORS = ("__call__", "__getitem__", "__matmul__")


def public_names(package: str) -> list[str]:
    """The names in ``__all__`` of a package."""
    tree = ast.parse((ROOT / package / "__init__.py").read_text(encoding="utf-8"))
    (names,) = (
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__"
    )
    return names


def definitions(package: str) -> dict[str, ast.FunctionDef | ast.ClassDef]:
    """The public functions and classes of a package, by name."""
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in (ROOT / package).glob("*.py"))
    nodes = (node for tree in trees for node in tree.body)
    found = {node.name: node for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    return {name: found[name] for name in public_names(package)}


def functions(package: str) -> dict[str, ast.FunctionDef]:
    """The public functions and methods of a package, by name."""
    found = {}
    for name, node in definitions(package).items():
        if isinstance(node, ast.FunctionDef):
            found[name] = node
            continue
        for each in node.body:
            if isinstance(each, ast.FunctionDef):
                if not each.name.startswith("_") or each.name in OPERATORS:
                    found[f"{name}.{each.name}"] = each
    return found


EVERY = {
    f"{package.replace('/', '.')}.{name}": node
    for package in ("drbench/library", "drbench/torch")
    for name, node in functions(package).items()
}
CLASSES = {
    f"{package.replace('/', '.')}.{name}": node
    for package in ("drbench/library", "drbench/torch")
    for name, node in definitions(package).items()
    if isinstance(node, ast.ClassDef)
}


def parameters(node: ast.FunctionDef) -> list[ast.arg]:
    """The parameters of a function, but for self and cls."""
    spec = node.args
    every = [*spec.posonlyargs, *spec.args, spec.vararg, *spec.kwonlyargs, spec.kwarg]
    return [each for each in every if each is not None and each.arg not in ("self", "cls")]


def test_the_names_of_drbench_are_those_of_its_library_and_of_predictions():
    offered = {*drbench.library.__all__, *_PREDICTIONS, "__version__"}
    assert {*public_names("drbench")} == offered


@pytest.mark.parametrize("name", EVERY)
def test_a_public_function_has_types(name):
    node = EVERY[name]
    untyped = [each.arg for each in parameters(node) if each.annotation is None]
    assert not untyped and node.returns is not None


@pytest.mark.parametrize("name", EVERY)
def test_the_docstring_of_a_public_function_names_parameters_and_result(name):
    node = EVERY[name]
    text = ast.get_docstring(node)
    if name.endswith("__matmul__"):  # it returns what multiply does
        return
    assert text and not text.startswith("Returns")
    if any(getattr(each, "id", "") == "property" for each in node.decorator_list):
        return
    sections = dict(re.findall(r"(?m)^(\w+)\n-+\n((?:.*\n?)*?)(?=^\w+\n-+\n|\Z)", text))
    heads = " ".join(re.findall(r"(?m)^(?! )(.+)$", sections.get("Parameters", "")))
    missing = [each.arg for each in parameters(node) if each.arg not in re.findall(r"\w+", heads)]
    assert not missing
    returns = ast.unparse(node.returns)
    assert ("Returns" in sections) == (returns != "None")


@pytest.mark.parametrize("name", CLASSES)
def test_the_docstring_of_a_public_class_names_its_parameters_or_attributes(name):
    assert re.search(r"(?m)^(Parameters|Attributes)$", ast.get_docstring(CLASSES[name]) or "")


@pytest.mark.parametrize("name", [name for name in EVERY if name.count(".") == 2])
def test_a_public_function_has_an_example_that_runs(name):
    text = ast.get_docstring(EVERY[name])
    silent = ("uninstall", "counts")  # the example of install has them
    assert ">>> " in text or name.endswith(silent)


@pytest.mark.skipif(find_spec("mypy") is None, reason="mypy is not installed")
def test_a_type_checker_knows_the_results_of_the_functions_of_drbench(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import drbench\n"
        "with drbench.init(heap='1M') as ctx:\n"
        "    A = ctx.zeros((4, 4), 'row')\n"
        "    reveal_type(drbench.multiply(A, A.T))\n"
        "    drbench.multiply(A, 3)\n"
    )
    words = ["--follow-imports=silent", "--ignore-missing-imports", "--cache-dir=/dev/null"]
    ended = subprocess.run(
        [sys.executable, "-m", "mypy", *words, "--config-file=", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert 'Revealed type is "drbench.library.matrix.Matrix"' in ended.stdout
    assert "5: error: Argument 2 to" in ended.stdout
