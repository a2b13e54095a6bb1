"""Which ranks of the universal algorithm run the same program, but for whom they fetch from and add
to: found from the layouts, without any program.

Where all tiles are alike, and those of one matrix are whole numbers of those of another along an
axis that they share, every rank cuts its part of the product into as many pieces of the same sizes.
Counted from its own tile, and from where its order begins (the iteration offset), piece (t, s) of
one rank is like that of any other; only whose tile it lies in differs. What a rank then does
depends on which of its pieces are its own, as they are not fetched, and on whether its copy of C is
the one that the others are added to.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from drbench.model.folding.alike import Alike
from drbench.program.problem import Operand, Problem
from drbench.program.steps import Step
from partitions import Dealt, Partition

from .slicing import roles

if TYPE_CHECKING:
    import numpy as np

#: Pieces of one matrix, of one rank, at most.
_PIECES = 2048


class _Side(NamedTuple):
    """X or Y of :mod:`.slicing` beside every rank's stationary tile.

    Attributes
    ----------
    operand : Operand
    down : bool
        Its rows are cut as the stationary matrix is, its columns along the free axis.
    length : int
        Of a piece along the axis that it shares with the stationary matrix.
    owners : array of int
        (free range, piece, rank) -> whose tile it lies in, both counted from the rank's own offset.
    """

    operand: Operand
    down: bool
    length: int
    owners: np.ndarray


class _Congruence:
    """The pieces of all ranks; :meth:`of` says whether there are."""

    def __init__(self, problem: Problem, stationary: str):
        self.problem = problem
        self.still, x, y, (p, q, free) = roles(problem, stationary)
        place = self.still.partition
        self.coords = _coords(place)
        self.offset = self.coords[0] + self.coords[1]
        extent = problem.extent(free)
        self.share = extent // place.replicas
        lengths = [_length(each, free) for each in (x, y)]
        self.range = min(self.share, *lengths)
        self.whole = not extent % place.replicas and all(
            not each % self.range for each in (self.share, *lengths)
        )
        if self.whole:
            self.sides = [self._side(x, p, 0, free), self._side(y, q, 1, free)]
            self.whole = all(self.sides)

    def _side(self, operand: Operand, beside: str, at: int, free: str) -> _Side | None:
        """That of X (``at`` 0) or Y (1); None if its tiles are not whole numbers of others."""
        import numpy as np

        whole = self.still.partition.tile_shape[at]
        length = min(whole, _length(operand, beside))
        if whole % length or _length(operand, beside) % length:
            return None
        ranges, pieces = self.share // self.range, whole // length
        if ranges * pieces > _PIECES:
            return None
        t, s = np.arange(ranges)[:, None, None], np.arange(pieces)[:, None]
        along = self.coords[at] * whole + (s + self.offset) % pieces * length
        across = self.coords[2] * self.share + (t + self.offset) % ranges * self.range
        place, down = operand.partition, operand.axes[0] == beside
        rows, cols = (along, across) if down else (across, along)
        tall, wide = place.tile_shape
        on = place.places
        owners = np.array(on.rows)[rows // tall] + np.array(on.cols)[cols // wide]
        return _Side(operand, down, length, owners + np.array(on.replicas)[_coords(place)[2]])

    def own(self) -> np.ndarray:
        """(piece, rank) -> whether it lies in the rank's own tile."""
        import numpy as np

        ranks = np.arange(self.problem.nprocs)
        owners = [side.owners.reshape(-1, len(ranks)) for side in self.sides]
        return np.concatenate(owners) == ranks

    def others(self, step: Step, rank: int) -> Sequence[int]:
        """As of :class:`~drbench.model.folding.alike.Alike`."""
        import numpy as np

        block = step.block
        place = self.problem.c.partition
        own = _coords(place)[2]
        if block.matrix == "C" and block.replica != own[rank]:  # its counterpart in another copy
            copies = np.array(place.places.replicas)
            return np.arange(self.problem.nprocs) - copies[own] + copies[block.replica]
        side = next((each for each in self.sides if each.operand.name == block.matrix), None)
        if side is None:
            return np.arange(self.problem.nprocs)
        at = self.sides.index(side)
        along, across = (block.row0, block.col0) if side.down else (block.col0, block.row0)
        offset, still = int(self.offset[rank]), self.still.partition.tile_shape[at]
        ranges, pieces, _ = side.owners.shape
        s = (along - int(self.coords[at][rank]) * still) // side.length - offset
        t = (across - int(self.coords[2][rank]) * self.share) // self.range - offset
        return side.owners[t % ranges, s % pieces]


def alike(problem: Problem, *, stationary: str, machine=None, **settled) -> Alike | None:
    """Whose programs are alike with settled options; None where layouts do not tell.

    Where a rank fetches or adds anything, or copies of C are added up, that is so of slices in
    their usual order, without signals, lowering or assembly; where nobody does, of all.

    Examples
    --------
    Columns of A, of which each rank reads all but its own; blocks, of which each has another order:

    >>> how = {"stationary": "C", "chunk": None, "replicate_result": False, "schedule": "direct"}
    >>> alike(Problem(8, 8, 8, 4, *["column"] * 3), **how).kinds
    [0, 0, 0, 0]
    >>> alike(Problem(8, 8, 8, 4, *["block"] * 3), **how).kinds
    [0, 1, 2, 3]
    >>> alike(Problem(8, 8, 9, 4, *["column"] * 3), **how) is None
    True
    """
    import numpy as np

    if {"grid", "steal"} & {*settled} or problem.mixture:
        return None
    if not all(_even(operand.partition) for operand in problem.operands):
        return None
    found = _Congruence(problem, stationary)
    if not found.whole:
        return None
    own, c = found.own(), problem.c.partition
    if not own.all() or c.replicas > 1:
        assembled = settled.get("assemble", "never")
        usual = (
            settled["schedule"] == "direct"
            and not {"fetch", "order", "reduce"} & {*settled}
            and settled.get("signals") != "always"
            and (assembled == "never" or (assembled == "auto" and not _on_core(machine)))
        )
        if not usual or c.places.terms:
            return None
    first = _coords(c)[2] == 0
    flags = np.packbits(np.concatenate([own, first[None]]), axis=0).T
    known: dict[bytes, int] = {}
    return Alike([known.setdefault(each.tobytes(), len(known)) for each in flags], found.others)


def _on_core(machine) -> bool:
    return bool(machine and machine.adds_on_core)


def _even(partition: Partition) -> bool:
    """Whether every rank holds one tile, and all tiles have the same shape."""
    return (
        partition.part_of is None
        and not partition.places.idle
        and all(
            type(axis) is Dealt and axis.tile * axis.parts == axis.extent
            for axis in (partition.rows, partition.cols)
        )
    )


def _length(operand: Operand, axis: str) -> int:
    """Elements of a tile along an axis."""
    return operand.partition.tile_shape[operand.axes.index(axis)]


def _coords(partition: Partition) -> np.ndarray:
    """(row, column, replica) of every rank: an array (3, rank)."""
    import numpy as np

    places = partition.places
    sides = [np.array(side) for side in (places.rows, places.cols, places.replicas)]
    ranks = sides[0][:, None, None] + sides[1][:, None] + sides[2]
    found = np.empty((3, partition.nprocs), dtype=np.int64)
    found[:, ranks] = np.indices(ranks.shape)
    return found
