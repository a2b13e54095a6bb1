"""Published layouts of transformer layers, by name: what each dimension of a mesh does.

====================  =========================================================  ================
name                  dimensions, the outer first                                source
====================  =========================================================  ================
Megatron TP           weights by columns, then by rows; results reduced on all   [1]_
TP + SP               the same, rows divided between the blocks                  [2]_
FSDP                  rows of tokens, weights gathered for each multiplication   [3]_
HSDP                  copies of groups that do FSDP                              [3]_, §3.2.2
TP × FSDP             FSDP of groups that do TP + SP                             [4]_
TP × DP               copies of groups that do TP + SP                           [5]_
====================  =========================================================  ================

.. [1] Shoeybi et al., Megatron-LM, 2019
.. [2] Korthikanti et al., Reducing Activation Recomputation, 2022
.. [3] Zhao et al., PyTorch FSDP, 2023
.. [4] Liang et al., TorchTitan, 2024, §2.1.2
.. [5] Narayanan et al., Efficient Large-Scale Language Model Training, 2021
"""

from collections.abc import Collection

from .description import Chain
from .mesh import DeviceMesh, Layout

#: Name -> what the inner dimension does, what the outer ones do.
CONTENDERS = {
    "Megatron TP": ("tp", "tp"),
    "TP + SP": ("sp", "sp"),
    "FSDP": ("fsdp", "fsdp"),
    "HSDP": ("fsdp", "dp"),
    "TP × FSDP": ("sp", "fsdp"),
    "TP × DP": ("sp", "dp"),
}
#: The kinds of matrices that are not redistributed along a dimension.
_STATIONARY = {"tp": ("weight",), "sp": ("weight",), "fsdp": ("made",), "dp": ("made",)}


def contender(
    chain: Chain, mesh: DeviceMesh, name: str
) -> tuple[dict[str, Layout], tuple[Collection[str], ...]]:
    """The layout of every variable, and for each dimension the kinds of matrices that are not
    redistributed along it.

    Examples
    --------
    >>> from .transformers import preset
    >>> mesh = DeviceMesh.read("dp=2,tp=4")
    >>> layouts, stationary = contender(preset("llama3-70b:mlp"), mesh, "TP × FSDP")
    >>> layouts["X"], layouts["W1"], layouts["W2"], stationary
    (('S(0)', 'S(0)'), ('S(0)', 'S(1)'), ('S(1)', 'S(0)'), (('made',), ('weight',)))
    """
    inner, outer = CONTENDERS[name]
    kinds = [outer] * (len(mesh.extents) - 1) + [inner]
    tensor, weights = _tensor_parallel(chain)
    layouts = {}
    for variable in dict.fromkeys(chain.variables.values()):
        cut = {
            "tp": tensor[variable],
            "sp": "S(0)" if tensor[variable] == "R" else tensor[variable],
            "dp": "R" if variable in weights else "S(0)",
        }
        # FSDP divides the other side of a weight that is divided by rows already
        by_rows = variable in weights and cut.get(inner) == "S(0)"
        cut["fsdp"] = "S(1)" if by_rows else "S(0)"
        layouts[variable] = mesh.plain(tuple(cut[kind] for kind in kinds))
    return layouts, tuple(_STATIONARY[kind] for kind in kinds)


def _tensor_parallel(chain: Chain) -> tuple[dict[str, str], set[str]]:
    """Megatron's placement of every variable, and the variables of weights."""
    variables, seen = chain.variables, {"X"}
    placements: dict[str, str] = {}
    divided = "R"  # the input's placement: copies, or columns
    for matmul in chain.multiplications:
        if chain.is_gradient(matmul.c):
            break
        if chain.matrices[matmul.b].kind != "weight":
            continue
        b, c = variables[matmul.b], variables[matmul.c]
        divided = "S(1)" if divided == "R" and c not in seen else "R"
        placements[b] = "S(1)" if divided == "S(1)" else "S(0)"
        placements.setdefault(c, divided)
        seen.add(c)
    weights = {name for name in variables.values() if chain.matrices[name].kind == "weight"}
    return dict.fromkeys(variables.values(), "R") | placements | {variables["X"]: "R"}, weights
