"""The layouts of a chain for other programs: rows of a table, and a script for PyTorch."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd, lcm
from pathlib import Path

from drbench.chains.model.choose import Solution
from drbench.chains.model.description import Chain, Matmul
from drbench.chains.model.mesh import EXPERT
from drbench.chains.model.programs import ASYNC
from drbench.errors import UnsupportedError
from drbench.texts import time_text

_TEMPLATE = Path(__file__).with_suffix(".py.j2")
#: Along one mesh dimension: the layouts of X, W, X·W and the stored W -> the class of PyTorch.
_TENSOR = {("R", "S(1)", "S(1)", "S(1)"): "Colwise", ("S(1)", "S(0)", "P", "S(0)"): "Rowwise"}


def _forward(chain: Chain) -> list[str]:
    """All matrices but gradients."""
    return [name for name in chain.matrices if not chain.is_gradient(name)]


def layout_rows(solution: Solution) -> list[tuple[str, ...]]:
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


def script_text(solution: Solution, timed: Solution | None = None) -> str:
    """A Python script for stock PyTorch: mesh and placements to paste, those of ``nn.Linear`` too;
    and a small case of the chain on DTensor, compared with one process.

    Parameters
    ----------
    solution : Solution
    timed : Solution, optional
        The same layouts with programs that overlap, which the script does not run.

    Raises
    ------
    UnsupportedError
        If attention needs a cache, or experts are on their own ranks.
    """
    import jinja2

    chain, mesh, forward = solution.chain, solution.mesh, _forward(solution.chain)
    operations = [operation for operation in chain.operations if operation.c in forward]
    matmuls = [operation for operation in operations if isinstance(operation, Matmul)]
    if any(EXPERT in layout for layout in solution.layouts.values()):
        raise UnsupportedError(
            f"DTensor cannot send tokens to experts on their own ranks, got {solution.name} on "
            f"{mesh}. Use the layouts of -v in TorchTitan or Megatron, or another row's script."
        )
    # Sizes that all ranks share evenly; rows of each expert, too.
    heads = [
        operation.function
        for operation in operations
        if operation not in matmuls and operation.function.heads
    ]
    if any(of.context for of in heads):
        raise UnsupportedError(
            "a script has no caches for attention to. Describe the layer with sequence= instead of "
            "context=."
        )
    sequence = gcd(chain.matrices["X"].rows, *(of.rows for of in heads))
    pairs = (matmul.experts for matmul in matmuls if matmul.experts[1])
    few = mesh.ranks * lcm(*(count // gcd(count, topk) for count, topk in pairs))
    sizes = (matrix.shape[matrix.kind != "weight" :] for matrix in chain.matrices.values())
    widths = (width * mesh.ranks for of in heads for width in (of.head_dim, of.rotary))
    part = gcd(*sum(sizes, ()), *widths)
    rows, cols = lambda size: size // sequence * few, lambda size: size * mesh.ranks // part

    def more(operation):
        """What a function takes beside matrices."""
        if operation in matmuls:
            return operation.experts[1:] if operation.experts[1] else ()
        of = operation.function
        if of.name == "columns":
            return (cols(of.gives),)
        if of.rotary:
            return rows(of.rows), cols(of.head_dim)
        window = (max(1, of.window * few // sequence),) if of.window else ()
        return (rows(of.rows), of.heads, cols(of.head_dim), *window) if of.heads else ()

    def placed(name, layout=None, transposed=False):
        text = mesh.torch(layout or solution.layout(name), transposed)
        return text.translate({48: "1", 49: "2"}) if chain.matrices[name].count > 1 else text

    return jinja2.Template(_TEMPLATE.read_text("utf-8"), keep_trailing_newline=True).render(
        solution=solution,
        n=mesh.ranks,
        given=[matrix for matrix in chain.matrices.values() if matrix.kind != "made"],
        forward=forward,
        operations=operations,
        matmuls=matmuls,
        placed=placed,
        scales=f"rows x {few}/{sequence}, columns x {mesh.ranks}/{part}",
        rows=rows,
        cols=cols,
        more=more,
        scheme=_scheme(solution, matmuls),
        notes=_overlap_notes(solution, timed) if timed else (),
    )


def _overlap_notes(solution: Solution, timed: Solution) -> Iterator[str]:
    """Lines: which programs drbench timed, and what the script runs in their place."""
    yield f"# drbench's answer, {time_text(timed.time_s)}, overlaps communication with GEMMs:"
    for matmul in timed.chain.multiplications:
        program = timed.way(matmul).gemm.program
        if program.group:
            yield f"#   {matmul}: {program.name}{timed.along(program.group)}"
    if any(program.name in ASYNC for program in timed.programs):
        yield "# torch.compile does with torch._inductor.config._micro_pipeline_tp = True (rings)."
    yield (
        "# This script runs each collective and then its GEMM: "
        f"{time_text(solution.time_s)} predicted."
    )


def _scheme(solution: Solution, matmuls: list[Matmul]) -> Iterator[str]:
    """Lines: the plan of tensor parallelism, and calls for data parallelism."""
    mesh, matrices, copied, cut = solution.mesh, solution.chain.matrices, [], []
    matmuls = [matmul for matmul in matmuls if matrices[matmul.b].kind == "weight"]
    linear = [matmul for matmul in matmuls if matrices[matmul.b].count == 1]
    for x, name in enumerate(mesh.names):
        at = lambda matrix: solution.layout(matrix)[x]
        keys = {
            matmul: (*(layout[x] for layout in solution.inner[matmul.c]), at(matmul.b))
            for matmul in matmuls
        }
        kinds = {(*key[:3], key[3] == "R") for key in keys.values()}
        if linear and all(keys[matmul] in _TENSOR for matmul in linear):
            yield f'# parallelize_module(model, mesh["{name}"], plan); activations: tokens x width'
            yield "plan = {"
            if at(linear[0].a) == "S(0)":
                yield '    "norm": SequenceParallel(sequence_dim=0),'
            for matmul in linear:
                a, c = (
                    mesh.torch([at(end)])[1:-1].replace("1", "-1") for end in (matmul.a, matmul.c)
                )
                layouts = f"input_layouts={a}, output_layouts={c}"
                yield f'    "{matmul.b}": {_TENSOR[keys[matmul]]}Parallel({layouts}),'
            yield "}"
            linear = []
        elif kinds == {("S(0)", "R", "S(0)", True)} and len(cut) < 2:
            copied.append(name)
        elif kinds == {("S(0)", "R", "S(0)", False)} and not (cut and copied):
            cut.append(name)
        elif mesh.extents[x] > 1:
            yield f"# {name}: no plan of parallelize_module or fully_shard; redistribute as below"
    names = '", "'.join(copied + cut)
    if cut:
        of = f'mesh["{names}"]{"._flatten()" if len(cut) > 1 else ""}'
        yield f"# fully_shard(model, mesh={of})  # cuts dimension 0"
    elif copied:
        yield f'# DistributedDataParallel(model, device_mesh=mesh["{names}"])'
