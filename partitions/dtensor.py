"""DTensor placements, as a second vocabulary for the same partitions.

A placement list says, for each dimension of a device mesh, what happens to the
matrix there: ``S(d)`` (Shard) cuts matrix dimension d into chunks, ``R`` (Replicate)
copies. Ranks fill the mesh row-major, and chunks are those of ``torch.chunk``:
ceil-sized, the last ones short or empty. Hence ``S(0)`` is ``row``, ``S(1)`` is
``column``, ``S(0),S(1)`` is ``block``, and ``R,S(0)`` is ``row`` with replicas.
"""

import re
from dataclasses import dataclass
from itertools import groupby
from math import prod

from .arithmetic import Interval, ProcessGrid, ceil_div, near_square, part
from .errors import LayoutError
from .partition import Partition

REPLICATE = None  # stands for R among the matrix dimensions 0 and 1 of S(0) and S(1)

_PLACEMENT = re.compile(r"(?:s|shard)\((?:dim=)?(-?[0-9])\)|(?:r|replicate)(?:\(\))?")
_PARTIAL = re.compile(r"(?:p|_?partial)(?:\(.*\))?")


@dataclass(frozen=True, slots=True)
class PlacementSpec:
    """DTensor placements before they know their matrix.

    Parameters
    ----------
    placements : tuple of (0, 1 or None)
        For each mesh dimension the matrix dimension it shards, or None where it replicates.
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

    placements: tuple[int | None, ...]
    mesh: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        count = len(self.placements)
        if not count or any(d not in (REPLICATE, 0, 1) for d in self.placements):
            raise LayoutError(
                f"placements {self.placements} do not place a matrix;"
                f" use R, S(0) or S(1) for each mesh dimension"
            )
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

    def bind(self, shape: tuple[int, int], nprocs: int, role: str | None = None) -> Partition:
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
            If the mesh does not have ``nprocs`` ranks, or no partition places the
            matrix this way (replicas here are contiguous ranks).

        Examples
        --------
        Mesh rank r is at ``divmod(r, 3)``; S(1) takes the first coordinate, so
        consecutive ranks go down a process column:

        >>> str(PlacementSpec((1, 0), mesh=(2, 3)).bind((6, 6), 6).grid)
        '3x2:col'
        """
        # a mesh dimension of one rank neither cuts nor copies
        placed = [(d, n) for d, n in zip(self.placements, self._fit_mesh(nprocs)) if n > 1]
        copies = 0
        while copies < len(placed) and placed[copies][0] is REPLICATE:
            copies += 1
        replicas = prod(n for _, n in placed[:copies])
        shards = [(d, [n for _, n in run]) for d, run in groupby(placed[copies:], lambda x: x[0])]
        order = [d for d, _ in shards]
        if REPLICATE in order:
            raise self._scattered_replicas()
        if len(order) > 2:
            raise LayoutError(
                f"{self} cuts a dimension, then the other, then the first again, which deals no"
                f" contiguous tiles; use S(0),S(1) or S(1),S(0) on a 2-D mesh"
            )
        for d, counts in shards:
            _check_uniform(self, d, shape[d], counts)
        parts = {d: prod(counts) for d, counts in shards}
        # mesh ranks are row-major, so the dimension that is sharded last varies fastest
        grid = ProcessGrid(parts.get(0, 1), parts.get(1, 1), "col" if order == [1, 0] else "row")
        tile = max(1, ceil_div(shape[0], grid.rows)), max(1, ceil_div(shape[1], grid.cols))
        return Partition(shape, tile, grid, replicas, str(self))

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

    def _scattered_replicas(self) -> LayoutError:
        # a stable sort that brings every R, with its mesh extent, to the front
        positions = sorted(
            range(len(self.placements)), key=lambda x: self.placements[x] is not REPLICATE
        )
        contiguous = PlacementSpec(
            tuple(self.placements[x] for x in positions),
            tuple(self.mesh[x] for x in positions) if self.mesh else (),
        )
        return LayoutError(
            f"{self} replicates inside a shard, so the ranks of a replica would be strided;"
            f" replicas here are contiguous ranks: use {contiguous}"
        )


def parse_placements(text: str) -> PlacementSpec:
    """Read placements, short (``S(0),R``) or as PyTorch prints them.

    Blanks, one pair of outer brackets and negative dimensions are understood.

    Raises
    ------
    LayoutError
        If a word is no placement, or is Partial.

    Examples
    --------
    >>> str(parse_placements("(Replicate(), Shard(dim=-1))@2x3"))
    'R,S(1)@2x3'
    """
    listed, at, mesh = re.sub(r"\s", "", text.lower()).partition("@")
    if listed[:1] + listed[-1:] in ("()", "[]"):
        listed = listed[1:-1].removesuffix(",")  # a Python tuple or list, as PyTorch prints it
    if "/" in text:
        raise LayoutError(
            f"{text!r} has a slash, but placements take no /cN;"
            f" write replicas as the first mesh dimension, for example R,S(0)@2x4"
        )
    placements = tuple(_placement(word, text) for word in listed.split(","))
    if at and not re.fullmatch(r"[0-9]{1,12}(x[0-9]{1,12})*", mesh):
        raise LayoutError(
            f"{text!r} needs a mesh after the @, got {mesh!r}; write for example @2x3"
        )
    return PlacementSpec(placements, tuple(map(int, mesh.split("x"))) if at else ())


def to_placements(partition: Partition) -> str:
    """Spell a partition as DTensor placements: the way back.

    The mesh is written out wherever there is more than one dimension.

    Raises
    ------
    LayoutError
        If ranks hold other than one contiguous ceil-sized chunk each, as block-cyclic
        tiles do.

    Examples
    --------
    >>> from partitions import partition
    >>> to_placements(partition("row/c2", (8, 8), 8))
    'R,S(0)@2x4'
    >>> to_placements(partition("block:2x3:col", (8, 8), 6))
    'S(1),S(0)@3x2'
    """
    grid = partition.grid
    for extent, tile, parts in zip(partition.shape, partition.tile_shape, (grid.rows, grid.cols)):
        if min(tile, max(1, extent)) != max(1, ceil_div(extent, parts)):
            raise LayoutError(
                f"{partition.text} deals tiles of {tile} over {extent} elements to {parts} ranks;"
                f" a DTensor shard is one ceil-sized chunk a rank: use block:{grid}"
            )
    placed: list[tuple[int | None, int]] = [(0, grid.rows), (1, grid.cols)]
    if grid.order == "col":
        placed.reverse()
    placed = [(d, n) for d, n in [(REPLICATE, partition.replicas), *placed] if n > 1]
    placements = tuple(d for d, _ in placed) or (REPLICATE,)
    mesh = tuple(n for _, n in placed) if len(placed) > 1 else ()
    return str(PlacementSpec(placements, mesh))


def _placement(word: str, text: str) -> int | None:
    if _PARTIAL.fullmatch(word):
        raise LayoutError(
            f"{text!r} has {word}: Partial says that sums are pending, not where elements are;"
            f" use R or S(d), and let the algorithm reduce C"
        )
    match = _PLACEMENT.fullmatch(word)
    if not match:
        raise LayoutError(
            f"{word!r} in {text!r} is no placement; use R, S(0) (rows) or S(1) (columns)"
        )
    if match[1] is None:
        return REPLICATE
    dim = int(match[1])
    if not -2 <= dim < 2:
        raise LayoutError(
            f"{text!r} shards dimension {dim} of a matrix; use S(0) (rows) or S(1) (columns)"
        )
    return dim % 2


def _check_uniform(spec: PlacementSpec, d: int, extent: int, counts: list[int]) -> None:
    """Refuse nested chunks (S(0),S(0)) that are not the chunks of one flat cut."""
    parts = prod(counts)
    if _nested_chunks(extent, counts) != [part(extent, rank, parts) for rank in range(parts)]:
        raise LayoutError(
            f"{spec} cuts {extent} {('rows', 'columns')[d]} into nested chunks that are not"
            f" equal-sized; use S({d}) on a 1-D mesh, or a multiple of {parts}"
        )


def _nested_chunks(extent: int, counts: list[int]) -> list[Interval]:
    """Chunk ``[0, extent)``, then every chunk again, once per count, outermost first."""
    chunks = [Interval(0, extent)]
    for count in counts:
        chunks = [
            Interval(start + piece.start, start + piece.stop)
            for start, stop in chunks
            for piece in (part(stop - start, q, count) for q in range(count))
        ]
    return chunks


def _names(placements: tuple[int | None, ...] | list[int | None]) -> str:
    return ",".join("R" if d is REPLICATE else f"S({d})" for d in placements)


def _mesh_text(mesh: tuple[int, ...]) -> str:
    return "x".join(map(str, mesh))
