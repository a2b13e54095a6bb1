"""The examples of docs/how-to/use-the-python-library.md, as doctests and under mpiexec; the page of
the API has every public name, and docstrings describe every parameter."""

import doctest
import inspect
import re
import sys

import pytest
from starting import ROOT, run_process

import drbench
import drbench.chains

PAGE = ROOT / "docs/how-to/use-the-python-library.md"


def test_the_examples_of_the_page_print_what_it_shows():
    found = doctest.testfile(str(PAGE), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert found.attempted > 15 and found.failed == 0


@pytest.mark.mpi
@pytest.mark.timeout(60)
def test_the_first_example_of_the_page_runs_on_several_ranks(mpiexec, tmp_path):
    first = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S)[0]
    check = (
        "    result = C.to_global()\n"
        "    wanted = result.T @ A.to_global()\n"
        "    right = ctx.rank or np.allclose(whole, wanted)\n"
        "    assert right and np.allclose(result, A.to_global().sum(1)[:, None])\n"
        "    assert (whole is None) == (ctx.rank > 0)\n"
        "    if not ctx.rank: print('exact')\n"
    )
    smaller = first.replace("4096", "128").replace("1024", "64").replace("2048", "96")
    (tmp_path / "first.py").write_text(smaller + check)
    command = [mpiexec, "-n", 3, sys.executable, tmp_path / "first.py"]
    ended = run_process(command, tmp_path, {"OPENBLAS_NUM_THREADS": "1"}, 40)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "exact\n", "")


def test_the_page_of_the_api_has_every_public_name_init_and_multiply_first():
    page = (ROOT / "docs/reference/python-api.md").read_text("utf-8")
    described = re.findall(r"^\.\. auto(?:function|class):: (\w+)", page, re.M)
    assert described[:2] == ["init", "multiply"]
    assert {*drbench.__all__, *drbench.chains.__all__} - {"__version__"} <= {*described}


def test_every_parameter_of_a_public_function_or_method_is_described():
    """But those of a method that refers to a function with the same parameters."""
    public = [getattr(drbench, name) for name in drbench.__all__ if name != "__version__"]
    public += [getattr(drbench.chains, name) for name in drbench.chains.__all__]
    of_classes = [
        function
        for each in public
        if inspect.isclass(each) and each is not drbench.Case  # whose methods are not on the page
        for name, function in vars(each).items()
        if inspect.isfunction(function) and not name.startswith("_")
    ]
    functions = [each for each in public if inspect.isfunction(each)] + of_classes
    assert len(functions) > 30
    described = lambda text: {
        name
        for names in re.findall(r"^(\w+(?:, \w+)*) : .*\n    \S", text, re.M)
        for name in names.split(", ")
    }
    missing = [
        (function.__qualname__, name)
        for function in functions
        if not re.search(r"same\s+parameters", text := inspect.getdoc(function))
        for name in {*inspect.signature(function).parameters} - {"self"} - described(text)
    ]
    assert missing == []
