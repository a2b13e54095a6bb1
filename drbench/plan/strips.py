"""Values in strips: arrays, stacked or next to each other, that form one matrix, and GEMMs over
their common refinement.

A gather along columns returns one row-major array for each member. Copying them into one array
would cost memory traffic of the whole operand, so one GEMM is run for each strip instead.

An array is here any object with a ``shape`` and parts ``array[r0:r1, c0:c1]``: NumPy's in the
executor; :class:`Extent`, which only has a shape, in the simulator. So both split GEMMs alike.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import accumulate
from typing import Any

from drbench.partitions.intervals import Pair, Range
from drbench.program.group_steps import GroupStep
from drbench.program.kinds import COMPUTES, GROUP_STEPS, READS, SIGNAL_STEPS, WRITES, table_of_steps
from drbench.program.steps import (
    Fence,
    FilledScratch,
    Gemm,
    Join,
    OperationEnd,
    Part,
    Scratch,
    Step,
)

#: An array (see above) or Strips; None for a step without a value.
Value = Any


@dataclass(slots=True, eq=False)
class Extent:
    """An array that only has a shape."""

    shape: Pair

    def __getitem__(self, ranges: tuple[slice, slice]) -> "Extent":
        rows, cols = ranges
        return Extent((rows.stop - rows.start, cols.stop - cols.start))


@dataclass(slots=True, eq=False)
class Strips:
    """Arrays that together are one matrix.

    Attributes
    ----------
    axis : int
        0 if they are stacked, 1 if they are next to each other.
    arrays : list
        Equal in the other extent.
    """

    axis: int
    arrays: list
    #: The cuts along the axis, both ends included.
    cuts: list[int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.cuts = [0, *accumulate([array.shape[self.axis] for array in self.arrays])]

    @property
    def shape(self) -> Pair:
        along = self.cuts[-1]
        across = self.arrays[0].shape[1 - self.axis]
        return (along, across) if self.axis == 0 else (across, along)


def in_strips(
    array: Callable, shape: Pair, transposed: bool, widths: tuple[int, ...] | None
) -> Value:
    """One array, or arrays of these widths next to each other (stacked, if they are transposed),
    one after the other in the same memory.

    ``array(start, rows, cols, transposed)`` returns the array that starts at element ``start``; a
    transposed array has contiguous columns.
    """
    if widths is None or len(widths) == 1:
        return array(0, *shape, transposed)
    across = shape[transposed]
    starts = accumulate([across * width for width in widths], initial=0)
    return Strips(
        int(not transposed),
        [
            array(start, *((width, across) if transposed else (across, width)), transposed)
            for start, width in zip(starts, widths)
        ],
    )


def strip_widths(steps: Iterable[Any]) -> dict[int, tuple[int, ...]]:
    """Widths of the values stored as separate arrays, one for each member of a group: values that
    are gathered along columns (in a transposed matrix: along rows), or whose columns a
    ReduceScatter divides."""
    widths = {}
    for step in steps:
        if step.grouped and step.kind == "ring" and len(step.group) > 1:
            if step.axis == step.transposed:
                continue  # in one array
            value: Step = step
            if step.sums:
                value = step.inputs[0]
                while value.onto is not None:
                    value = value.onto
            widths[value.index] = tuple([fragment.shape[step.axis] for fragment in step.fragments])
    return widths


def value_of(
    step: Step, values: list, widths: dict[int, tuple[int, ...]], own: Callable, view: Callable
) -> Value:
    """The value of a step that writes to no tile: an array, Strips or None.

    Parameters
    ----------
    step : Step
    values : list
        Of the steps before.
    widths : dict
        From :func:`strip_widths`.
    own : callable
        ``own(shape, transposed, widths)``: arrays in the step's own memory, as
        :func:`in_strips`.
    view : callable
        ``view(block)``: a block of an own tile.
    """
    shown = _SHOWN[type(step)]
    if shown is not None:
        return shown(step, [values[value.index] for value in step.inputs])
    shape = step.shape
    if shape is None:
        return None
    if isinstance(step, GroupStep) and 0 not in shape and step.in_place():
        views = [view(block) for block in step.reads()]
        return views[0] if len(views) == 1 else Strips(step.axis, views)
    return own(shape, step.transposed, widths.get(step.index))


def strip_gemms(a: Value, b: Value, c: Value, beta: float) -> list[tuple]:
    """GEMMs of plain arrays that together are c = beta·c + a·b: (a, b, c, beta) over the common
    refinement of the strips.

    Examples
    --------
    A in two strips along k, C in two along n: four GEMMs, the second along k adding to the first.

    >>> a = Strips(1, [Extent((2, 3)), Extent((2, 5))])
    >>> c = Strips(1, [Extent((2, 4)), Extent((2, 6))])
    >>> for x, y, z, beta in strip_gemms(a, Extent((8, 10)), c, 0.0):
    ...     print(x.shape, y.shape, z.shape, beta)
    (2, 3) (3, 4) (2, 4) 0.0
    (2, 5) (5, 4) (2, 4) 1.0
    (2, 3) (3, 6) (2, 6) 0.0
    (2, 5) (5, 6) (2, 6) 1.0
    """
    if Strips not in (type(a), type(b), type(c)):
        return [(a, b, c, beta)]
    return [
        (
            _plain(a, rows, along),
            _plain(b, along, cols),
            _plain(c, rows, cols),
            1.0 if along[0] else beta,
        )
        for rows, cols, along in _cells(a, b, c)
    ]


def copies(target: Value, source: Value) -> list[tuple]:
    """(to, from) of plain arrays that together copy a value into another one of its shape.

    Examples
    --------
    >>> for to, of in copies(Extent((2, 8)), Strips(1, [Extent((2, 3)), Extent((2, 5))])):
    ...     print(to.shape, of.shape)
    (2, 3) (2, 3)
    (2, 5) (2, 5)
    """
    return [
        (_plain(target, rows, cols), _plain(source, rows, cols))
        for rows in _refine(target, 0, source, 0)
        for cols in _refine(target, 1, source, 1)
    ]


def _cells(a: Value, b: Value, c: Value) -> list[tuple]:
    """Ranges of m, n and k of the common refinement."""
    inner = _refine(a, 1, b, 0) or [(0, 0)]
    return [
        (rows, cols, along)
        for rows in _refine(a, 0, c, 0)
        for cols in _refine(b, 1, c, 1)
        for along in inner
    ]


def gemm_shapes(steps: list[Step]) -> dict[int, list[tuple[int, int, int]]]:
    """(m, n, k) of the GEMMs of plain arrays into which a step is split, for steps with several.

    Examples
    --------
    Two members gather columns of A, 3 and 5 wide: two GEMMs, the second along k adding to the
    first.

    >>> from drbench.program.group_steps import AllGather
    >>> from drbench.program.steps import Block, Get, Group
    >>> from drbench.program.trace import trace
    >>> def program():
    ...     a = yield AllGather(
    ...         [
    ...             Block("A", 0, 0, (0, 0), 0, 2, 0, 3),
    ...             Block("A", 1, 0, (0, 1), 0, 2, 3, 8),
    ...         ],
    ...         Group("row", (0, 1), 0),
    ...         axis=1,
    ...     )
    ...     b = yield Get(Block("B", 0, 0, (0, 0), 0, 8, 0, 4))
    ...     yield Gemm(a, b)
    >>> gemm_shapes(trace(program(), None, 0, fresh=False).steps)
    {2: [(2, 4, 3), (2, 4, 5)]}
    """
    widths, shapes = strip_widths(steps), {}
    values: list = []
    extent, cells_of = cache(lambda *shape: Extent(shape)), cache(_cells)  # many slices are equal
    own = cache(partial(in_strips, lambda start, rows, cols, transposed: extent(rows, cols)))
    view = lambda block: extent(*block.shape)
    for step in steps:
        value = step.target_of(values, view)
        if value is None:
            value = value_of(step, values, widths, own, view)
        values.append(value)
        if type(step) is Gemm:
            a, b = (values[value.index] for value in step.inputs[:2])
            if Strips in (type(a), type(b), type(value)):
                cells = cells_of(a, b, value)
                if len(cells) > 1:
                    shapes[step.index] = [(m - i, n - j, k - l) for (i, m), (j, n), (l, k) in cells]
    return shapes


def _part(value: Value, axis: int, start: int, stop: int) -> Value:
    """Rows (axis 0) or columns (1) [start, stop) of a value, as views."""
    if type(value) is not Strips:
        rows, cols = value.shape
        return value[start:stop, 0:cols] if axis == 0 else value[0:rows, start:stop]
    if value.axis != axis:
        return Strips(value.axis, [_part(array, axis, start, stop) for array in value.arrays])
    cuts = value.cuts
    parts = [
        _part(array, axis, max(start, low) - low, min(stop, high) - low)
        for array, low, high in zip(value.arrays, cuts, cuts[1:])
        if max(start, low) < min(stop, high)
    ]
    if not parts:
        return _part(value.arrays[0], axis, 0, 0)
    return parts[0] if len(parts) == 1 else Strips(axis, parts)


def _join(values: list, axis: int) -> Value:
    """Values joined along rows (axis 0) or columns (1), as views."""
    arrays: list = []
    for value in values:
        if type(value) is not Strips:
            arrays.append(value)
        elif value.axis == axis:
            arrays += value.arrays
        else:
            raise ValueError(
                f"values in strips along axis {value.axis} cannot be joined along axis {axis}"
            )
    return arrays[0] if len(arrays) == 1 else Strips(axis, arrays)


#: How a step shows the values of its inputs; None if it has memory, or no value.
_SHOWN = table_of_steps(
    "values in strips",
    {
        Join: lambda step, values: _join(values, step.axis),
        FilledScratch: lambda step, values: values[0],
        Part: lambda step, values: _part(values[0], step.axis, step.start, step.stop),
        (*READS, *WRITES, *COMPUTES, Fence, Scratch, OperationEnd): None,
        (*GROUP_STEPS, *SIGNAL_STEPS): None,
    },
)


def _refine(first: Value, axis: int, other: Value, other_axis: int) -> list[Range]:
    """The ranges between the cuts of both values along these axes, which have the same length."""
    cuts = {0, first.shape[axis]}
    for value, along in ((first, axis), (other, other_axis)):
        if type(value) is Strips and value.axis == along:
            cuts.update(value.cuts)
    ordered = sorted(cuts)
    return list(zip(ordered, ordered[1:]))


def _plain(value: Value, rows: Range, cols: Range) -> Value:
    """A region of a value that is inside one strip."""
    if type(value) is Strips and value.axis == 1:
        return _part(_part(value, 1, *cols), 0, *rows)
    return _part(_part(value, 0, *rows), 1, *cols)
