"""The names that users import. Types, and docstrings that describe parameters, are checked by
``make lint``, the examples of docstrings by running them."""

import ast

import pytest
from starting import ROOT

LIBRARY = "Context Matrix MultiplicationPlan init multiply redistribute"
PREDICTIONS = "Case Choice Page Prediction chain explain simulate tune"
TORCH = (
    "ColumnParallel Counts Explanation Installed RowParallel adopt "
    "counts empty explain install out symmetric uninstall"
)


@pytest.mark.parametrize(
    "package, names",
    [
        ("drbench", f"{LIBRARY} {PREDICTIONS} __version__"),
        ("drbench/library", LIBRARY),
        ("drbench/torch", TORCH),
    ],
)
def test_a_package_offers_these_names_and_no_other(package, names):
    tree = ast.parse((ROOT / package / "__init__.py").read_text("utf-8"))
    (offered,) = (
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__"
    )
    assert sorted(offered) == sorted(names.split())
