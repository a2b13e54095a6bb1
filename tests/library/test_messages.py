"""A message of the library that names an argument names one that the user can give."""

import ast
import inspect
import re

import numpy as np
import pytest
from starting import ROOT

import drbench
from drbench.library import context, matrix
from drbench.partitions import partition

PUBLIC = [drbench.init, drbench.multiply, drbench.redistribute, partition]
PUBLIC += [
    member
    for kind in (context.Context, matrix.Matrix, context.MultiplicationPlan)
    for name, member in inspect.getmembers(kind, inspect.isfunction)
    if not name.startswith("_")
]
ARGUMENTS = {name for function in PUBLIC for name in inspect.signature(function).parameters}
FILES = sorted([*(ROOT / "drbench/library").glob("*.py"), *(ROOT / "partitions").glob("*.py")])


def messages(tree):
    """The constant texts of each error that a file makes, with their lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("Error"):
            texts = (x.value for x in ast.walk(node) if isinstance(x, ast.Constant))
            yield node.lineno, "".join(text for text in texts if isinstance(text, str))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_argument_in_a_message_is_one_of_the_interface(path):
    for line, text in messages(ast.parse(path.read_text("utf-8"))):
        for name in re.findall(r"\b([a-z_]+)=", text):
            assert name in ARGUMENTS, (path.name, line, text)
            # the functions of the library have no role: another one that has it is named
            assert name != "role" or "drbench.partitions.partition(" in text, (path.name, line)


def test_the_local_array_is_written_into_and_not_replaced():
    with drbench.init(context.MPI.COMM_SELF, heap="1M") as ctx:
        mine = np.ones((2, 2))
        for A in (ctx.wrap(mine, "row", (2, 2)), ctx.from_global(np.ones((2, 2)))):
            A.local += 1
            assert A.local.tolist() == [[2, 2], [2, 2]]
            with pytest.raises(drbench.errors.UsageError, match="Write into it"):
                A.local = np.zeros((2, 2))
        assert mine.tolist() == [[2, 2], [2, 2]]


def test_a_layout_that_needs_a_role_is_made_as_the_message_says():
    with drbench.init(context.MPI.COMM_SELF, heap="1M") as ctx:
        for layout in ("grid:1x1x1", "traditional"):
            with pytest.raises(drbench.errors.UsageError, match=r"partition\('.*', shape, ranks"):
                ctx.zeros((4, 4), layout)
            assert ctx.zeros((4, 4), partition(layout, (4, 4), 1, role="A")).shape == (4, 4)
