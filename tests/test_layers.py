"""The check of imports in ``make lint`` finds what is forbidden."""

from pathlib import Path
from symtable import symtable

import pytest

from benchmarks.layers import PAGE, Layers, check, named_twice, no_nouns

LAYERS = Layers(PAGE.read_text("utf-8"))


@pytest.mark.parametrize(
    "module, text",
    [
        ("drbench.partitions.new", "import numpy"),
        ("drbench.partitions.new", "def f():\n    import drbench.algorithms"),
        (
            "drbench.plan.new",
            "import importlib\nimportlib.import_module('drbench.launch.ranks.run_case')",
        ),
        ("drbench.new", "__import__('mpi4py')"),
        ("drbench.host.new", "def f():\n    from drbench import multiply"),
        ("drbench.clock", "if True:\n    import mpi4py"),
        ("drbench.host.executor", "def f():\n    import cupy"),
        ("drbench.device.gpu.new", "import cupy"),
        ("drbench.host.new", "from ..algorithms import registry"),
        ("drbench.algorithms.new", "from ..plots import style"),
        ("drbench.plots.figures.new", "from drbench.measure import roof"),
        ("drbench.launch.studies.new", "from drbench.plots.figures.mlp import draw"),
        ("drbench.launch.studies.new", "class Case:\n    import torch"),
    ],
)
def test_a_forbidden_import_is_reported(module, text):
    path = Path(f"{module.replace('.', '/')}.py")
    assert [*check({module: (path, text)}, LAYERS)]


def test_what_is_loaded_through_other_modules_and_a_cycle_are_reported():
    path = Path("x.py")
    texts = {"drbench.host.a": "import mpi4py", "drbench.plan.b": "import drbench.host.a"}
    found = [*check({name: (path, text) for name, text in texts.items()}, LAYERS)]
    assert "drbench.plan.b loads mpi4py, directly or through others" in found
    texts = {
        "drbench.plots.a": "def f():\n    import drbench.plots.b",
        "drbench.plots.b": "import drbench.plots.a",
    }
    (line,) = check({name: (path, text) for name, text in texts.items()}, LAYERS)
    assert "drbench.plots.a -> drbench.plots.b" in line or "b -> drbench.plots.a" in line


def test_a_cycle_by_types_alone_is_reported():
    typed = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import drbench.plan.b"
    texts = {"drbench.plan.a": typed, "drbench.plan.b": "import drbench.plan.a"}
    (line,) = check({name: (Path("x.py"), text) for name, text in texts.items()}, LAYERS)
    assert line.startswith("a cycle of imports: ")


def test_a_name_of_classes_in_two_modules_is_reported():
    (line,) = named_twice(
        {"a.py": "class A: ...\nclass B: ...", "b.py": "class C:\n    class A: ..."}
    )
    assert line == "the class A is defined in a.py, b.py"


def test_a_local_whose_name_is_no_noun_is_reported():
    text = "found = 1\ndef f(x, kept=0):\n    row = [each for each in x]\n    return found"
    f, comprehension = no_nouns(symtable(text, "a.py", "exec"))
    assert f == "line 2: f has a local kept" and comprehension.endswith("has a local each")
