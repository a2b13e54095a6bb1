"""Named meshes of ranks, and layouts by mesh dimension, in the notations of PyTorch, JAX and
drbench.

A layout has a placement for each dimension of the mesh: ``S(0)`` cuts rows, ``S(1)`` columns, ``R``
copies, ``P`` leaves partial sums, ``E`` gives each rank the matrices of some experts. The last
dimension has consecutive ranks, as in PyTorch's ``init_device_mesh``.
"""

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from drbench.errors import UnsupportedError, UsageError
from drbench.partitions import LayoutError, divisors
from drbench.partitions.dtensor import parse_placements

#: A placement for each dimension of the mesh.
Layout = tuple[str, ...]

#: Placements of stored matrices.
PLACEMENTS = "S(0)", "S(1)", "R"
PENDING = "P"
#: Along the dimension of expert parallelism: experts' weights, and pairs of a token and an expert,
#: on the rank of their expert.
EXPERT, EXPERTS_DIM = "E", "ep"
#: Names of the dimensions of a mesh without names, the outer one first; of all ranks in one.
NAMES, NAME = ("dp", "tp"), "ranks"
#: Layouts that have a word.
_WORDS = {"row": "S(0)", "column": "S(1)", "r": "R"}
_TORCH = {
    "S(0)": "Shard(0)",
    "S(1)": "Shard(1)",
    "R": "Replicate()",
    "P": "Partial()",
    "E": "Shard(experts)",
}
#: Dimensions of other meshes: operations that no chain has.
_ABSENT = {
    "pp": "no pipeline stages. With {0} stages and M micro-batches the bubble adds {1}/M to the "
    "time of the layers ({1} micro-batches: twice as long)",
    "cp": "no ring attention. A ring of {0} sends the keys and values of all tokens {1} times, "
    "2 · tokens/{0} · kv_heads · head_dim elements a rank each time, which attention hides if "
    "sequences are long",
}


@dataclass(frozen=True)
class DeviceMesh:
    """A mesh of ranks.

    Attributes
    ----------
    names : tuple of str
    extents : tuple of int
        Ranks along each dimension.

    Examples
    --------
    >>> mesh = DeviceMesh.read("dp=2,tp=4")
    >>> mesh.ranks, mesh.strides, str(mesh)
    (8, (4, 1), 'dp=2,tp=4')
    """

    names: tuple[str, ...]
    extents: tuple[int, ...]

    @classmethod
    def read(cls, text: str) -> "DeviceMesh":
        """The mesh of ``NAME=RANKS,…``.

        Raises
        ------
        UsageError
            If the text is no mesh.
        UnsupportedError
            If it has pipeline or context parallelism.
        """
        pairs = re.findall(r"\s*([A-Za-z_]\w*)\s*=\s*([1-9]\d*)\s*(?:,|$)", text)
        if len(pairs) != text.count(",") + 1 or len(dict(pairs)) < len(pairs):
            raise UsageError(f"--mesh needs different names with ranks, dp=8,tp=8; got {text!r}.")
        names, extents = zip(*pairs)
        for name in names:
            if name in _ABSENT:
                count = int(dict(pairs)[name])
                raise UnsupportedError(
                    f"mesh dimension {name}: drbench has {_ABSENT[name].format(count, count - 1)}. "
                    "Use data, tensor and expert parallel dimensions, as dp=8,tp=8."
                )
        return cls(names, tuple(map(int, extents)))

    @property
    def ranks(self) -> int:
        return prod(self.extents)

    @property
    def strides(self) -> tuple[int, ...]:
        """The distance of neighbours along each dimension, in ranks."""
        return tuple(prod(self.extents[x + 1 :]) for x in range(len(self.extents)))

    @property
    def shape(self) -> str:
        """The extents, as a layout's text has them.

        Examples
        --------
        >>> DeviceMesh(("dp", "tp"), (2, 4)).shape
        '2x4'
        """
        return "x".join(map(str, self.extents))

    def __str__(self) -> str:
        return ",".join(f"{name}={count}" for name, count in zip(self.names, self.extents))

    def text(self, layout: Layout) -> str:
        """drbench's text of a layout.

        Examples
        --------
        >>> DeviceMesh.read("dp=2,tp=4").text(("R", "S(1)"))
        'R,S(1)@2x4'
        """
        return f"{','.join(layout)}@{self.shape}"

    def torch(self, layout: Layout, transposed: bool = False) -> str:
        """PyTorch's placements; of the transposed matrix, as ``nn.Linear.weight`` is.

        Examples
        --------
        >>> DeviceMesh.read("dp=2,tp=4").torch(("R", "S(1)"), transposed=True)
        '[Replicate(), Shard(0)]'
        """
        swapped = {"S(0)": "S(1)", "S(1)": "S(0)"} if transposed else {}
        return f"[{', '.join(_TORCH[swapped.get(placement, placement)] for placement in layout)}]"

    def jax(self, layout: Layout) -> str:
        """JAX's PartitionSpec.

        Examples
        --------
        >>> mesh = DeviceMesh.read("dp=2,tp=4")
        >>> mesh.jax(("S(0)", "R")), mesh.jax(("S(1)", "S(1)"))
        ("P('dp', None)", "P(None, ('dp', 'tp'))")
        """
        cut = [
            [n for n, placement in zip(self.names, layout) if placement == f"S({x})"]
            for x in range(2)
        ]
        side = lambda names: repr(tuple(names) if len(names) > 1 else names[0] if names else None)
        if EXPERT in layout:  # the first of three dimensions
            cut.insert(0, [n for n, placement in zip(self.names, layout) if placement == EXPERT])
        return f"P({', '.join(map(side, cut))})"

    def layout(self, text: str) -> Layout:
        """The layout of a text in any of the three notations; ``row``, ``column``, ``block`` and
        ``R`` cut all dimensions alike.

        Raises
        ------
        UsageError
            If the text is no layout of this mesh.

        Examples
        --------
        >>> mesh = DeviceMesh.read("dp=2,tp=4")
        >>> mesh.layout("[Replicate(), Shard(dim=1)]"), mesh.layout("P('dp', None)")
        (('R', 'S(1)'), ('S(0)', 'R'))
        >>> mesh.layout("column"), mesh.layout("R,S(0)"), mesh.layout('P("dp", "tp")')
        (('S(1)', 'S(1)'), ('R', 'S(0)'), ('S(0)', 'S(1)'))
        """
        if re.fullmatch(r"\s*P(artitionSpec)?\(.*['\"N].*\)\s*", text):
            return self._of_jax(text)
        whole = text.strip().lower()
        if whole in _WORDS:
            return self.plain((_WORDS[whole],) * len(self.extents))
        if whole == "block" and len(self.extents) == 2:
            return "S(0)", "S(1)"
        parts = text.replace(" ", "").partition("@")[0].split(",")
        if EXPERT in parts and len(parts) == len(self.extents):
            others = self.layout(",".join(part if part != EXPERT else "R" for part in parts))
            at = [part == EXPERT and name == EXPERTS_DIM for part, name in zip(parts, self.names)]
            if at == [part == EXPERT for part in parts]:
                return tuple(EXPERT if own else part for own, part in zip(at, others))
        try:
            spec = parse_placements(text if "@" in text else f"{text}@{self.shape}")
        except LayoutError:
            spec = None
        if spec is None or spec.mesh != self.extents:
            raise UsageError(
                f"layout {text!r} does not fit mesh {self}. Give R, S(0) or S(1) for each of "
                f"{', '.join(self.names)}."
            )
        layout = tuple(str(spec).partition("@")[0].split(","))
        if not set(layout) <= {*PLACEMENTS}:
            raise UsageError(f"layout {text!r}: matrices of a chain have S(0), S(1) or R.")
        return self.plain(layout)

    def plain(self, layout: Layout) -> Layout:
        """The layout with ``R`` for dimensions of one rank."""
        return tuple(
            placement if parts > 1 else "R" for placement, parts in zip(layout, self.extents)
        )

    def _of_jax(self, text: str) -> Layout:
        """The layout of a PartitionSpec."""
        try:
            sides = ast.literal_eval(text.strip().partition("(")[2].removesuffix(")") + ",")
            sides = [(side,) if isinstance(side, str) else side or () for side in sides]
            names = [name for side in sides for name in side]
        except (SyntaxError, ValueError, TypeError):
            names, sides = [""], []
        if len(sides) > 2 or len({*names}) < len(names) or not {*names} <= {*self.names}:
            raise UsageError(
                f"layout {text!r} does not fit mesh {self}. Use each of its names at most once, as "
                f"P({self.names[0]!r}, None)."
            )
        for side in sides:
            if list(side) != [name for name in self.names if name in side]:
                raise UsageError(
                    f"layout {text!r}: names of one side must be in the order of mesh {self}."
                )
        return tuple(
            next((f"S({x})" for x, side in enumerate(sides) if name in side), "R")
            for name in self.names
        )

    def layouts(self, experts: int = 0) -> list[Layout]:
        """All layouts of a stored matrix; of one with so many experts also those by experts, if
        ranks share these evenly.

        Examples
        --------
        >>> DeviceMesh.read("ep=2").layouts(experts=8), DeviceMesh.read("ep=3").layouts(experts=8)
        ([('S(0)',), ('S(1)',), ('R',), ('E',)], [('S(0)',), ('S(1)',), ('R',)])
        """
        shares = lambda name, extent: name == EXPERTS_DIM and experts > 0 and experts % extent == 0
        return list(
            product(
                *(
                    (*PLACEMENTS, *[EXPERT] * shares(name, extent)) if extent > 1 else ("R",)
                    for name, extent in zip(self.names, self.extents)
                )
            )
        )


def meshes(
    ranks: int, node: int, torus: tuple[int, int] | None = None, experts: int = 0
) -> Iterator[DeviceMesh]:
    """The meshes to try for a number of ranks, the most usual first: tensor parallelism of a node
    and data parallelism over nodes; all ranks in one dimension; other inner dimensions.

    Parameters
    ----------
    ranks : int
    node : int
        Ranks of a node.
    torus : (int, int), optional
        The two dimensions of a torus, on which no others have rings.
    experts : int
        Also those in which the ranks of a node, or of 2, 4, … nodes share so many experts evenly.

    Examples
    --------
    >>> [str(each) for each in meshes(16, 8)]
    ['dp=2,tp=8', 'ranks=16', 'dp=4,tp=4', 'dp=8,tp=2']
    >>> [str(each) for each in meshes(8, 8)]
    ['ranks=8', 'dp=2,tp=4', 'dp=4,tp=2']
    """
    inner = [x for x in divisors(ranks) if 1 < x < ranks and x <= 2 * node]
    inner = [torus[1]] if torus and torus[0] * torus[1] == ranks and 1 not in torus else inner
    inner.sort(key=lambda x: (x != node, -x))
    whole = DeviceMesh((NAME,), (ranks,))
    two = [DeviceMesh(NAMES, (ranks // x, x)) for x in inner]
    yield from [*two[:1], whole, *two[1:]] if node < ranks else [whole, *two]
    if experts and ranks > 1:
        sharing = min(node, ranks)
        while sharing <= ranks:
            if ranks == sharing and experts % ranks == 0:
                yield DeviceMesh((EXPERTS_DIM,), (ranks,))
            elif ranks % sharing == 0 and experts % sharing == 0:
                yield DeviceMesh((NAMES[0], EXPERTS_DIM), (ranks // sharing, sharing))
            sharing *= 2


def cut(extent: int, divided: Sequence[str], by: str | int, mesh: DeviceMesh) -> int:
    """The largest part of an extent that is divided along the dimensions with an entry ``by``: rows
    (0) or columns (1) of a layout, or an axis of a GEMM.

    Examples
    --------
    >>> mesh = DeviceMesh.read("dp=2,tp=4")
    >>> cut(10, ("S(0)", "S(0)"), 0, mesh), cut(10, ("m", "k"), "k", mesh)
    (2, 3)
    """
    axes = {by, f"S({by})", EXPERT if by == 0 else by}
    for axis, parts in zip(divided, mesh.extents):
        if axis in axes:
            extent = -(-extent // parts)
    return extent
