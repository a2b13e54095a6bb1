"""Races: accesses that no rule puts in an order, found without running anything.

Accesses of two ranks to the result are ordered by Fences alone. Steps of one rank are ordered by
their inputs, computes by the program too, and by Fences and the operations of a lowered program.
No order of transfers and no look-ahead is assumed.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from drbench.program.steps import Accumulate, Block, Fence, Step
from drbench.program.trace import Trace

from .findings import ProgramFault, finding

#: Most races that are reported.
MOST_RACES = 8
_FOREVER = 1 << 30


class MemoryRange(NamedTuple):
    """A range of rows and columns in the memory of a value, and where it is in the token."""

    row: int
    col: int
    root: int
    top: int
    left: int
    height: int
    width: int

    def overlaps(self, other: "MemoryRange") -> bool:
        """Whether the two have memory in common."""
        return (
            self.top < other.top + other.height
            and other.top < self.top + self.height
            and self.left < other.left + other.width
            and other.left < self.left + self.width
        )


class Access(NamedTuple):
    """An access of a step to a block of the result, between its first and its last Fence."""

    rank: int
    step: Step
    how: str
    block: Block
    first: int
    last: int


class Order:
    """What is ordered within the program of one rank.

    Attributes
    ----------
    epoch : list of int
        For each step the number of Fences before it.
    """

    def __init__(self, trace: Trace):
        self.trace = trace
        self.epoch = list(accumulate((type(step) is Fence for step in trace.steps), initial=0))

    @cached_property
    def before(self) -> list[int]:
        """For each step the set of steps that have ended when it starts, as the bits of a
        number."""
        before: list[int] = []
        computed = fenced = touched = operation = 0
        ops = self.trace.ops
        for step in self.trace.steps:
            t = step.index
            if ops and t and ops[t] != ops[t - 1]:
                operation = (1 << t) - 1
            ended = operation
            for value in step.inputs:
                ended |= before[value.index] | 1 << value.index
            if step.computes:
                ended |= computed
            if type(step) is Fence:
                ended |= touched | fenced
            elif self.touches(step):
                ended |= fenced
            before.append(ended)
            ended |= 1 << t
            if step.computes:
                computed = ended
            if type(step) is Fence:
                fenced = ended
            elif self.touches(step):
                touched |= ended
        return before

    def touches(self, step: Step) -> bool:
        """Whether Fences wait for a step: it reads or writes the result."""
        return step.matrix == self.trace.written

    def ordered(self, step: Step, other: Step) -> bool:
        """Whether one of two steps always ends before the other starts; for reductions during
        computes, which run one after another, either of them."""
        if (step.computes and other.computes) or (step.concurrent and other.concurrent):
            return True
        low, high = sorted((step.index, other.index))
        return bool(self.before[high] >> low & 1)

    # -- the result

    def accesses(self) -> Iterator[Access]:
        """Accesses to the result. Who uses a block that is read in place reads it too."""
        rank, seen = self.trace.rank, {}
        for step in self.trace.steps:
            at = self.epoch[step.index]
            if self.touches(step):
                adds = "add" if isinstance(step, Accumulate) else "write"
                for block in step.reads():
                    yield Access(rank, step, "read", block, at, at)
                for block in step.writes():
                    yield Access(rank, step, adds, block, at, at)
                in_place = step.in_place() if step.grouped else step.views
                if in_place:
                    seen[step.index] = step.reads()
            blocks = [block for value in step.inputs for block in seen.get(value.index, ())]
            if blocks and step.alias:
                seen[step.index] = blocks
            elif blocks:
                last = at if self.touches(step) else _FOREVER  # no Fence waits for it
                for block in blocks:
                    yield Access(rank, step, "read", block, at, last)

    # -- values

    def races(self) -> Iterator[ProgramFault]:
        """Values that a step changes while another one may use them."""
        places: list[list[MemoryRange]] = []
        used: dict[int, list[tuple[Step, bool, MemoryRange]]] = {}
        for step in self.trace.steps:
            places.append(_places(step, places))
            if step.alias:
                continue
            for value in step.inputs:
                for place in places[value.index] if value is not step.onto else ():
                    used.setdefault(place.root, []).append((step, False, place))
            if step.onto is not None:
                for place in places[step.index]:
                    used.setdefault(place.root, []).append((step, True, place))
        for uses in used.values():
            if any(changes for _, changes, _ in uses):
                yield from self._races_of(uses)

    def _races_of(self, uses: list[tuple[Step, bool, MemoryRange]]) -> Iterator[ProgramFault]:
        """Races in the memory of one value."""
        for (step, changes, place), (other, changed, there) in self._pairs(uses):
            ordered = self.ordered(step, other) and not (_kept(step) and changed)
            if (changes or changed) and step is not other and place.overlaps(there) and not ordered:
                text = f"step {other.index if changed else step.index} changes the value of step "
                text += f"{place.root}, which the other one uses, in any order"
                yield finding(
                    "race", text, [(self.trace.rank, culprit) for culprit in (step, other)]
                )

    @staticmethod
    def _pairs(uses: list) -> Iterator[tuple]:
        """Pairs of uses, in the order of the program; computes are in this order anyway."""
        for x, use in enumerate(uses):
            for other in uses[x + 1 :]:
                if not (use[0].computes and other[0].computes):
                    yield use, other


def _kept(step: Any) -> bool:
    """Whether another rank may read the input of a step for the rest of the run."""
    return step.signals and step.sends and step.kind == "offer"


def _places(step: Any, places: list[list[MemoryRange]]) -> list[MemoryRange]:
    """Where the value of a step is; ``places`` are those of the steps before it."""
    if step.shape is None:
        return []
    rows, cols = step.shape
    if step.onto is not None:
        within = places[step.onto.index]
        if (row := getattr(step, "row", None)) is None:
            return within
        return _cut(within, (row, row + rows), (step.col, step.col + cols))
    if not step.alias:
        return [MemoryRange(0, 0, step.index, 0, 0, rows, cols)]
    whole = places[step.inputs[0].index]
    axis = getattr(step, "axis", None)
    if axis is None:  # a FilledScratch
        return whole
    if (start := getattr(step, "start", None)) is not None:  # a Part
        ranges = [(0, rows), (0, cols)]
        ranges[axis] = start, step.stop
        return _cut(whole, *ranges)
    joined, at = [], 0
    for value in step.inputs:
        down, right = (at, 0) if axis == 0 else (0, at)
        joined += [
            place._replace(row=place.row + down, col=place.col + right)
            for place in places[value.index]
        ]
        at += value.shape[axis]
    return joined


def _cut(
    places: list[MemoryRange], rows: tuple[int, int], cols: tuple[int, int]
) -> list[MemoryRange]:
    """The places within a range of rows and of columns of their token."""
    inside = []
    for place in places:
        top, end = max(rows[0], place.row), min(rows[1], place.row + place.height)
        left, side = max(cols[0], place.col), min(cols[1], place.col + place.width)
        if top < end and left < side:
            down, right = place.top + top - place.row, place.left + left - place.col
            at = top - rows[0], left - cols[0]
            inside.append(MemoryRange(*at, place.root, down, right, end - top, side - left))
    return inside


def races(traces: Sequence[Trace]) -> list[ProgramFault]:
    """The first races of the programs of all ranks, at most :data:`MOST_RACES`."""
    orders = [Order(trace) for trace in traces]
    faults: dict[ProgramFault, None] = {}
    for fault in _all_races(orders):
        faults[fault] = None
        if len(faults) == MOST_RACES:
            break
    return list(faults)


def _all_races(orders: list[Order]) -> Iterator[ProgramFault]:
    accesses = [access for order in orders for access in order.accesses()]
    kinds = {"read": 0, "write": 1, "add": 2}
    table = np.array(
        [
            (kinds[how], first, last, b.replica, b.row0, b.row1, b.col0, b.col1)
            for _, _, how, b, first, last in accesses
        ],
        np.int64,
    ).reshape(-1, 8)
    for x, access in enumerate(accesses):
        how, first, last, replica, row0, row1, col0, col1 = table[:x].T
        mine = table[x]
        meet = (first <= mine[2]) & (mine[1] <= last) & (replica == mine[3])
        meet &= (how != mine[0]) | (how == kinds["write"])
        meet &= (row0 < mine[5]) & (mine[4] < row1) & (col0 < mine[7]) & (mine[6] < col1)
        for y in np.flatnonzero(meet).tolist():
            other = accesses[y]
            same = access.rank == other.rank
            alone = access.step is other.step
            if same and (alone or orders[access.rank].ordered(other.step, access.step)):
                continue
            yield finding("race", _text(other, access), [other[:2], access[:2]])
    for order in orders:
        yield from order.races()


def _text(access: Access, other: Access) -> str:
    """The sentence of a race in the result."""
    a, b = access.block, other.block
    rows = f"{max(a.row0, b.row0)}:{min(a.row1, b.row1)}"
    cols = f"{max(a.col0, b.col0)}:{min(a.col1, b.col1)}"
    where = f"{a.matrix}[{rows}, {cols}]@{a.owner}"
    verbs = {"read": "reads", "write": "writes", "add": "adds to"}
    ranks = [f"rank {x.rank} {verbs[x.how]}" for x in (access, other)]
    return f"{ranks[0]} {where} and {ranks[1]} it, without a Fence between"
