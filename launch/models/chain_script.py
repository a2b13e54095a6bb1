"""The layouts of a chain for other programs: rows of a table, and a script for PyTorch."""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import gcd
from pathlib import Path

from algorithms.chains.choose import Solution
from algorithms.chains.description import Chain, Map, Matmul
from drbench.errors import UnsupportedError

_TEMPLATE = Path(__file__).parents[1] / "data" / "templates" / "chain.py.j2"
_FUNCTIONS = "add", "relu", "silu", "gelu", "swiglu", "attention"
#: Along one mesh dimension: the layouts of X, W, X·W and the stored W -> the class of PyTorch.
_TENSOR = {("R", "S(1)", "S(1)", "S(1)"): "Colwise", ("S(1)", "S(0)", "P", "S(0)"): "Rowwise"}


def _forward(chain: Chain) -> list[str]:
    """All matrices but gradients, which begin with that of the result."""
    names = list(chain.matrices)
    seeds = (x for x, name in enumerate(names) if name[0] == "d" and name[1:] in names[:x])
    return names[: next(seeds, len(names))]


def layout_rows(solution: Solution) -> list[tuple[str, str, str, str]]:
    """(matrices that share a layout, it for drbench, PyTorch, JAX). Gradients have the layouts of
    their matrices."""
    rows: dict[str, list[str]] = {}
    for name in _forward(solution.chain):
        rows.setdefault(solution.chain.variable(name), []).append(name)
    notations = solution.mesh.text, solution.mesh.torch, solution.mesh.jax
    return [
        (", ".join(names), *(text(solution.layout(names[0])) for text in notations))
        for names in rows.values()
    ]


def script_text(solution: Solution) -> str:
    """A Python script for stock PyTorch: mesh and placements to paste, those of ``nn.Linear`` too;
    and a small case of the chain on DTensor, compared with one process.

    Raises
    ------
    UnsupportedError
        If it cannot compute an operation.
    """
    import jinja2

    chain, ranks, forward = solution.chain, solution.mesh.ranks, _forward(solution.chain)
    operations = [each for each in chain.operations if each.c in forward]
    functions = [each.function for each in operations if isinstance(each, Map)]
    names = {each.name for each in functions}
    if unknown := names.difference(_FUNCTIONS):
        raise UnsupportedError(f"--placements: no script for PyTorch has {', '.join(unknown)}.")
    part = gcd(
        *(size for each in chain.matrices.values() for size in each.shape),
        *(size * ranks for of in functions if of.heads for size in (of.rows, of.head_dim)),
    )
    return jinja2.Template(_TEMPLATE.read_text(), keep_trailing_newline=True).render(
        solution=solution,
        forward=forward,
        operations=operations,
        functions=names,
        part=part,
        small=lambda size: size * ranks // part,
        short=lambda layouts: re.sub("['()]", "", str([*map(list, layouts)])),
        scheme=_scheme(solution, [each for each in operations if isinstance(each, Matmul)]),
    )


def _scheme(solution: Solution, products: list[Matmul]) -> Iterator[str]:
    """Lines: the plan of tensor parallelism, and calls for data parallelism."""
    mesh, copied, calls, planned = solution.mesh, [], [], False
    products = [one for one in products if solution.chain.matrices[one.b].kind == "weight"]
    for x, name in enumerate(mesh.names):
        at = lambda matrix: solution.layout(matrix)[x]
        keys = [(*(each[x] for each in solution.inner[one.c]), at(one.b)) for one in products]
        kinds = {(*key[:3], key[3] == "R") for key in keys}
        if not planned and _TENSOR.keys() >= {*keys}:
            planned = True
            yield f'# parallelize_module(model, mesh["{name}"], plan), activations tokens x width:'
            yield "plan = {"
            if at(products[0].a) == "S(0)":
                yield '    "norm": SequenceParallel(sequence_dim=0),'
            for one, key in zip(products, keys):
                a, c = (mesh.torch([at(end)])[1:-1].replace("1", "-1") for end in (one.a, one.c))
                layouts = f"input_layouts={a}, output_layouts={c}"
                yield f'    "{one.b}": {_TENSOR[key]}Parallel({layouts}),'
            yield "}"
        elif kinds == {("S(0)", "R", "S(0)", True)}:
            copied.append(name)
        elif kinds == {("S(0)", "R", "S(0)", False)}:
            turned = [f"model.{one.b}.weight: Shard(1)" for one in products if at(one.b) == "S(0)"]
            by = f", shard_placement_fn={{{', '.join(turned)}}}.get" if turned else ""
            names = '", "'.join([*copied, name])  # HSDP, if copied along another dimension
            calls.append(f'# fully_shard(model, mesh=mesh["{names}"]{by})')
            copied = []
        elif mesh.extents[x] > 1:
            yield f"# {name}: no plan of parallelize_module or fully_shard; redistribute as below."
    yield from calls
    yield from (f'# DistributedDataParallel(model, device_mesh=mesh["{x}"])' for x in copied)
