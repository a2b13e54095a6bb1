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
Async TP              TP + SP, each collective overlapped with its GEMM          [6]_
Async TP × FSDP       FSDP of groups that do this                                [4]_
EP × FSDP             experts on their own ranks, FSDP of all other weights      [7]_
EP × DP               experts on their own ranks, copies of all other weights    [7]_
====================  =========================================================  ================

.. [1] Shoeybi et al., Megatron-LM, 2019
.. [2] Korthikanti et al., Reducing Activation Recomputation, 2022
.. [3] Zhao et al., PyTorch FSDP, 2023
.. [4] Liang et al., TorchTitan, 2024, §2.1.2
.. [5] Narayanan et al., Efficient Large-Scale Language Model Training, 2021
.. [6] PyTorch's symmetric memory (Wang et al., 2023, has the ring), and Transformer Engine
.. [7] Liu et al., DeepSeek-V3, 2024, §3.2; PyTorch's TorchTitan has it, too
"""

from collections.abc import Collection
from typing import NamedTuple

from .description import Chain, LocalMap, Matmul
from .mesh import EXPERT, EXPERTS_DIM, DeviceMesh, Layout
from .programs import ASYNC


class Refusal(NamedTuple):
    """Why a scheme is not possible. Of several refusals the least is told.

    Attributes
    ----------
    kind : int
        0: memory; 1: the layout is not possible; 2: the mesh has another shape.
    amount : int
        Bytes that a rank needs; of other kinds the ranks of the mesh.
    why : str
    """

    kind: int
    amount: int
    why: str


class Scheme(NamedTuple):
    """What a published scheme does along the inner dimension of a mesh, and along the outer ones;
    the programs that overlap along the inner one."""

    inner: str
    outer: str
    overlap: frozenset[str] = frozenset()

    def suits(self, chain: Chain) -> bool:
        """Whether a chain has what the scheme divides."""
        return self.inner != "ep" or chain.experts > 0

    def why_not(self, mesh: DeviceMesh, chain: Chain) -> Refusal | None:
        """The reason why a mesh has another shape."""
        why = ""
        if self.inner == "ep":
            if mesh.names[-1] != EXPERTS_DIM:
                why = "it needs a mesh whose last dimension is ep, as dp=2,ep=4"
            elif chain.experts % mesh.extents[-1]:
                why = f"{chain.experts} experts cannot be shared evenly by {mesh.extents[-1]} ranks"
        elif self.inner != self.outer and len(mesh.extents) < 2:
            why = "it needs a mesh of two dimensions, as dp=2,tp=4"
        return Refusal(2, mesh.ranks, why) if why else None


#: Name -> scheme.
CONTENDERS = {
    "Megatron TP": Scheme("tp", "tp"),
    "TP + SP": Scheme("sp", "sp"),
    "FSDP": Scheme("fsdp", "fsdp"),
    "HSDP": Scheme("fsdp", "dp"),
    "TP × FSDP": Scheme("sp", "fsdp"),
    "TP × DP": Scheme("sp", "dp"),
    "Async TP": Scheme("sp", "sp", ASYNC),
    "Async TP × FSDP": Scheme("sp", "fsdp", ASYNC),
    "EP × FSDP": Scheme("ep", "fsdp"),
    "EP × DP": Scheme("ep", "dp"),
}
#: The kinds of matrices that are not redistributed along a dimension.
_STATIONARY = {
    **dict.fromkeys(("tp", "sp"), ("weight",)),
    **dict.fromkeys(("fsdp", "dp", "ep"), ("made",)),
}


def contender(
    chain: Chain,
    mesh: DeviceMesh,
    name: str,
    by_expert: Collection[str] = (),
    overlap: bool = True,
) -> tuple[dict[str, Layout], tuple[Collection[str], ...]]:
    """The layout of every variable, and for each dimension the kinds of matrices that are not
    redistributed along it, with ``overlap`` where programs overlap, if they shall.

    Examples
    --------
    >>> from .transformers import preset
    >>> mesh = DeviceMesh.read("dp=2,tp=4")
    >>> layouts, stationary = contender(preset("llama3-70b:mlp"), mesh, "TP × FSDP")
    >>> layouts["X"], layouts["W1"], layouts["W2"], stationary
    (('S(0)', 'S(0)'), ('S(0)', 'S(1)'), ('S(1)', 'S(0)'), (('made',), ('weight',)))
    """
    inner, outer, programs = CONTENDERS[name]
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
        cut["ep"] = EXPERT if variable in by_expert else cut[outer]
        layouts[variable] = mesh.plain(tuple(cut[kind] for kind in kinds))
    stationary = [_STATIONARY[kind] for kind in kinds]
    if programs and overlap:
        stationary[-1] += ("overlap",)
    return layouts, tuple(stationary)


def _tensor_parallel(chain: Chain) -> tuple[dict[str, str], set[str]]:
    """Megatron's placement of every variable, and the variables of weights."""
    variables, seen = chain.variables, {"X"}
    placements: dict[str, str] = {}
    forward = [x for x in chain.multiplications if not chain.is_gradient(x.c)]
    for matmul in forward:
        if chain.matrices[matmul.b].kind != "weight":
            continue
        a, b, c = (variables[name] for name in (*matmul.takes, matmul.c))
        whole = placements.get(a, "R") == "R"
        if whole and _is_low_rank(chain, matmul, forward):
            placements[b] = "R"
            placements.setdefault(c, "R")
            continue
        divided = "S(1)" if whole and c not in seen else "R"
        placements[b] = "S(1)" if divided == "S(1)" else "S(0)"
        placements.setdefault(c, divided)
        seen.add(c)
    weights = {name for name in variables.values() if chain.matrices[name].kind == "weight"}
    return dict.fromkeys(variables.values(), "R") | placements | {variables["X"]: "R"}, weights


def _is_low_rank(chain: Chain, matmul: Matmul, forward: list[Matmul]) -> bool:
    """Whether a result, or its first columns, is multiplied at once and is narrower than what it is
    made of and what it makes: every rank has such results, as in Megatron's latent attention."""
    names = {matmul.c}
    names |= {
        operation.c
        for operation in chain.operations
        if isinstance(operation, LocalMap) and operation.function.name == "columns"
        if operation.takes[0] == matmul.c
    }
    width = chain.matrices[matmul.c].cols
    return any(
        after.a in names and width < min(chain.matrices[x].cols for x in (matmul.a, after.c))
        for after in forward
    )
