"""DTensor placements, as a second vocabulary for the same partitions.

A placement list has, for each dimension of a device mesh, the placement of the matrix there:

========  ==================================================================================
``S(d)``  Shard: matrix dimension d is cut into chunks, those of ``torch.chunk``: ceil-sized,
          the last ones short or empty
``_S(d,f)``  _StridedShard: cut into f chunks first, each of them into the mesh extent; a rank
          has its part of every chunk
``R``     Replicate: copies
``P``     Partial: every rank holds a term; the sum of all terms is the matrix
========  ==================================================================================

Ranks fill the mesh row-major, and placements are applied from left to right, each to the result of
the earlier ones, as in DTensor, also where extents do not divide. ``S(0)`` is
``row``, ``S(1)`` is ``column``, ``S(0),S(1)`` is ``block``, ``R,S(0)`` is ``row`` with replicas.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from .arithmetic import near_square
from .axes import axis_of, chunked, strided
from .errors import LayoutError
from .intervals import Pair
from .partition import Partition
from .places import mesh_places

REPLICATE = None  # R; 0 and 1 are S(0) and S(1), by matrix dimension
PARTIAL = "P"  # P; (d, f) is _S(d,f)

#: The placement of one mesh dimension.
Placement = int | None | str | tuple[int, int]

_PLACEMENT = re.compile(
    r"(?:s|shard)\((?:dim=)?(-?[0-9])\)|(?:r|replicate)(?:\(\))?"
    r"|_(?:s|stridedshard)\((?:dim=)?(-?[0-9]),(?:sf=|split_factor=)?([0-9]{1,12})\)"
)
_PARTIAL = re.compile(r"(?:p|_?partial)(?:\((?:reduce_op=)?['\"]?([a-z]*)['\"]?\))?")


@dataclass(frozen=True, slots=True)
class PlacementSpec:
    """DTensor placements without a matrix.

    Parameters
    ----------
    placements : tuple of (0, 1, None, "P" or (int, int))
        For each mesh dimension the matrix dimension it shards; None where it replicates,
        ``"P"`` where a sum is pending; (d, f) for a _StridedShard of dimension d, split factor f.
    mesh : tuple of int
        Mesh extents, as many as placements. Empty for the default: all ranks in one
        dimension, or the near-square mesh in two.

    Raises
    ------
    LayoutError
        If the mesh does not have one extent a placement.

    Examples
    --------
    >>> str(PlacementSpec((REPLICATE, 0), mesh=(2, 4)))
    'R,S(0)@2x4'
    """

    placements: tuple[Placement, ...]
    mesh: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        count = len(self.placements)
        if self.mesh and len(self.mesh) != count or not self.mesh and count > 2:
            got = f"a {_mesh_text(self.mesh)} mesh" if self.mesh else "none"
            example = "x".join("2" * count)
            raise LayoutError(
                f"{count} placements need a mesh of {count} extents, got {got};"
                f" write for example {_names(self.placements)}@{example}"
            )
        if any(extent < 1 for extent in self.mesh):
            raise LayoutError(
                f"mesh {_mesh_text(self.mesh)} holds no rank; every extent must be at least 1"
            )

    def __str__(self) -> str:
        mesh = f"@{_mesh_text(self.mesh)}" if self.mesh else ""
        return _names(self.placements) + mesh

    def bind(self, shape: Pair, nprocs: int, role: str | None = None) -> Partition:
        """Apply the placements to a matrix and a number of ranks.

        Parameters
        ----------
        shape : (int, int)
            Rows and columns of the matrix in elements.
        nprocs : int
            Number of ranks on the mesh.
        role : str, optional
            Ignored: placements mean the same for A, B and C.

        Raises
        ------
        LayoutError
            If the mesh does not have ``nprocs`` ranks.

        Examples
        --------
        Mesh rank r is at ``divmod(r, 3)``; S(1) uses the first coordinate, so
        consecutive ranks are along a process column:

        >>> str(PlacementSpec((1, 0), mesh=(2, 3)).bind((6, 6), 6).grid)
        '3x2:col'

        Chunks of chunks are those of DTensor, also where extents do not divide:

        >>> p = PlacementSpec((0, 0), mesh=(2, 3)).bind((7, 6), 6)
        >>> [p.local_shape(rank)[0] for rank in range(6)]
        [2, 2, 0, 1, 1, 1]
        """
        dimensions = list(zip(self.placements, self._fit_mesh(nprocs)))
        held: list = [[[(0, extent)] if extent else []] for extent in shape]
        for placement, parts in dimensions:
            dim, factor = placement if isinstance(placement, tuple) else (placement, 0)
            if dim in (0, 1):
                cut = (
                    (lambda mine: strided(mine, parts, factor))
                    if factor
                    else (lambda mine: chunked(mine, parts))
                )
                held[dim] = [segment for mine in held[dim] for segment in cut(mine)]
        (rows, of_rows), (cols, of_cols) = map(axis_of, shape, held)
        places = mesh_places((extent, _role(placement)) for placement, extent in dimensions)
        return Partition.of(rows, cols, places.renumbered(of_rows, of_cols), str(self))

    def _fit_mesh(self, nprocs: int) -> tuple[int, ...]:
        if nprocs < 1:
            raise LayoutError(f"{self} cannot place a matrix on {nprocs} ranks; use at least 1")
        count = len(self.placements)
        default = (nprocs,) if count == 1 else near_square(nprocs) + (1,) * (count - 2)
        if self.mesh and prod(self.mesh) != nprocs:
            raise LayoutError(
                f"{self} needs {prod(self.mesh)} ranks, got {nprocs};"
                f" use {PlacementSpec(self.placements, default)}, or {prod(self.mesh)} ranks"
            )
        return self.mesh or default


def parse_placements(text: str) -> PlacementSpec:
    """Read placements, short (``S(0),R``) or as PyTorch prints them.

    Blanks, one pair of outer brackets and negative dimensions are understood.

    Raises
    ------
    LayoutError
        If a word is no placement, or a Partial of anything but a sum.

    Examples
    --------
    >>> str(parse_placements("(Replicate(), Shard(dim=-1))@2x3"))
    'R,S(1)@2x3'
    >>> str(parse_placements("[_StridedShard(dim=0, sf=2), Partial(sum)]@2x2"))
    '_S(0,2),P@2x2'
    """
    listed, at, mesh = re.sub(r"\s", "", text.lower()).partition("@")
    if listed[:1] + listed[-1:] in ("()", "[]"):
        listed = listed[1:-1].removesuffix(",")  # a Python tuple or list, as PyTorch prints it
    if "/" in text:
        raise LayoutError(
            f"{text!r} has a slash, but placements take no /cN;"
            f" write replicas as a mesh dimension, for example R,S(0)@2x4"
        )
    words = re.split(r",(?![^(]*\))", listed)  # not at the comma of _S(0,2)
    placements = tuple(_placement(word, text) for word in words)
    if at and not re.fullmatch(r"[0-9]{1,12}(x[0-9]{1,12})*", mesh):
        raise LayoutError(
            f"{text!r} needs a mesh after the @, got {mesh!r}; write for example @2x3"
        )
    return PlacementSpec(placements, tuple(map(int, mesh.split("x"))) if at else ())


def to_placements(partition: Partition) -> str:
    """Return a partition's text as DTensor placements: the inverse of :func:`parse_placements`.

    The mesh is written out wherever there is more than one dimension.

    Raises
    ------
    LayoutError
        If no placements describe the partition, as for block-cyclic tiles.

    Examples
    --------
    >>> from drbench.partitions import partition
    >>> to_placements(partition("row/c2", (8, 8), 8))
    'R,S(0)@2x4'
    >>> to_placements(partition("block:2x3:col", (8, 8), 6))
    'S(1),S(0)@3x2'
    """
    spec = _own_spec(partition) or _spec_by_strides(partition)
    if spec is None:
        grid = partition.grid
        height, width = partition.tile_shape
        raise LayoutError(
            f"{partition.text} distributes tiles of {height}x{width} over "
            f"{partition.shape[0]}x{partition.shape[1]} elements; a DTensor shard is one "
            f"ceil-sized chunk a rank: use {f'block:{grid}' if grid else 'S(0) or S(1)'}"
        )
    return str(spec)


def _own_spec(partition: Partition) -> PlacementSpec | None:
    """The placements that a partition was made from, if it was."""
    if partition.text[:1] not in "RPS_":
        return None
    spec = parse_placements(partition.text)
    return PlacementSpec(spec.placements, spec._fit_mesh(partition.nprocs))


def _spec_by_strides(partition: Partition) -> PlacementSpec | None:
    """One mesh dimension for each stride that ranks have along rows, columns and replicas."""
    if not (partition.rows.chunked and partition.cols.chunked):
        return None
    places = partition.places
    sides = zip((0, 1, REPLICATE), (places.rows, places.cols, places.replicas))
    dims = [(stride, count, dim) for dim, side in sides for stride, count in _digits(side)]
    ordered = sorted(dims, reverse=True) or [(1, 1, REPLICATE)]
    spec = PlacementSpec(tuple(d for *_, d in ordered), tuple(n for _, n, _ in ordered))
    if prod(spec.mesh) != partition.nprocs or spec.bind(partition.shape, partition.nprocs) != (
        partition
    ):
        return None
    return spec if len(ordered) > 1 else PlacementSpec(spec.placements)


def _digits(side: Sequence[int]) -> list[tuple[int, int]]:
    """(stride, extent) of the mesh dimensions that coordinates along one side count.

    Examples
    --------
    >>> _digits(range(0, 8, 2)), _digits((0, 1, 4, 5)), _digits(range(1))
    ([(2, 4)], [(4, 2), (1, 2)], [])
    """
    digits: list[tuple[int, int]] = []
    count = 1
    while count < len(side):
        stride, extent = side[count], 1
        while extent * count < len(side) and side[extent * count] == extent * stride:
            extent += 1
        digits.insert(0, (stride, extent))
        count *= extent
    return digits


def _placement(word: str, text: str) -> Placement:
    if partial := _PARTIAL.fullmatch(word):
        if partial[1] not in (None, "", "sum"):
            raise LayoutError(
                f"{text!r} has {word}: only sums can be pending here; use P, R or S(d)"
            )
        return PARTIAL
    match = _PLACEMENT.fullmatch(word)
    if not match:
        raise LayoutError(
            f"{word!r} in {text!r} is no placement; use R, P, S(0) (rows), S(1) (columns) or "
            f"_S(d,f)"
        )
    if match[1] is None and match[2] is None:
        return REPLICATE
    dim = int(match[1] or match[2])
    if not -2 <= dim < 2:
        raise LayoutError(
            f"{text!r} shards dimension {dim} of a matrix; use S(0) (rows) or S(1) (columns)"
        )
    if match[3] is None:
        return dim % 2
    if int(match[3]) < 1:
        raise LayoutError(f"{text!r} splits by {match[3]}; use a split factor of at least 1")
    return dim % 2, int(match[3])


def _role(placement: Placement) -> str:
    """What a mesh dimension does, as :func:`drbench.partitions.places.mesh_places` names it."""
    dim = placement[0] if isinstance(placement, tuple) else placement
    return {0: "rows", 1: "cols", PARTIAL: "terms"}.get(dim, "copies")


def _name(placement: Placement) -> str:
    if isinstance(placement, tuple):
        return f"_S({placement[0]},{placement[1]})"
    if isinstance(placement, int):
        return f"S({placement})"
    return placement or "R"


def _names(placements: tuple[Placement, ...]) -> str:
    return ",".join(map(_name, placements))


def _mesh_text(mesh: tuple[int, ...]) -> str:
    return "x".join(map(str, mesh))
