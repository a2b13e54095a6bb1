"""How the values of a program lie in memory: whole, or as arrays side by side that products are
taken over piece by piece.

Pure: executor and simulator follow the same rules without sharing arrays.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate

from drbench.program.group_steps import AllGather, ReduceScatter
from drbench.program.steps import Gemm, Join, Part, Step

__all__ = ["product_layouts", "product_shapes"]


def product_layouts(steps: Iterable[Step]) -> dict[int, list[int]]:
    """Column widths of the values that must lie as separate arrays, one a member, because a
    ReduceScatter divides their columns."""
    layouts = {}
    for step in steps:
        if type(step) is ReduceScatter and step.axis == 1 and len(step.group) > 1:
            source = step.inputs[0]
            while getattr(source, "onto", None) is not None:
                source = source.onto
            layouts[source.index] = [piece.shape[1] for piece in step.pieces]
    return layouts


def product_shapes(steps: list[Step]) -> dict[int, list[tuple[int, int, int]]]:
    """(m, n, k) of the products of plain arrays that a Gemm is made of, for those of several: the
    common refinement of its values' cuts.

    Examples
    --------
    Two members gather columns of A, 3 and 5 wide: two products, the second along k adding to the
    first.

    >>> from drbench.program.steps import Block, Get, Group
    >>> from drbench.program.trace import trace
    >>> def program():
    ...     a = yield AllGather(
    ...         [
    ...             Block("A", 0, 0, (0, 0), 0, 2, 0, 3, 0, 3),
    ...             Block("A", 1, 0, (0, 1), 0, 2, 3, 8, 0, 5),
    ...         ],
    ...         Group("row", (0, 1), 0),
    ...         axis=1,
    ...     )
    ...     b = yield Get(Block("B", 0, 0, (0, 0), 0, 8, 0, 4, 0, 4))
    ...     yield Gemm(a, b)
    >>> product_shapes(trace(program(), None, 0, fresh=False).steps)
    {2: [(2, 4, 3), (2, 4, 5)]}
    """
    layouts, cuts, found = product_layouts(steps), {}, {}
    for step in steps:
        t, kind = step.index, type(step)
        if step.shape is None and kind is not Gemm:
            continue
        if kind is Gemm:
            a, b = (cuts[value.index] for value in step.inputs[:2])
            if step.onto is not None:
                into = cuts[step.onto.index]
            else:
                into = (
                    _plain(a[0][-1], b[1][-1])
                    if t not in layouts
                    else ([0, a[0][-1]], _ends(layouts[t]))
                )
            cuts[t] = into
            rows, cols, inner = _widths(a[0], into[0]), _widths(b[1], into[1]), _widths(a[1], b[0])
            if len(rows) * len(cols) * len(inner) > 1:
                found[t] = [(m, n, k) for m in rows for n in cols for k in inner]
        elif kind is AllGather:
            ends = _pieces_of(step)
            cuts[t] = (ends, [0, step.shape[1]]) if step.axis == 0 else ([0, step.shape[0]], ends)
        elif kind is Part:
            whole = cuts[step.inputs[0].index]
            along = [min(max(cut, step.start), step.stop) - step.start for cut in whole[step.axis]]
            cuts[t] = (along, whole[1]) if step.axis == 0 else (whole[0], along)
        elif kind is Join:
            parts, along, at = [cuts[value.index] for value in step.inputs], [0], 0
            for part in parts:
                along += [at + cut for cut in part[step.axis][1:]]
                at = along[-1]
            across = parts[0][1 - step.axis]
            cuts[t] = (along, across) if step.axis == 0 else (across, along)
        elif t in layouts:
            cuts[t] = [0, step.shape[0]], _ends(layouts[t])
        elif step.onto is not None:
            cuts[t] = cuts[step.onto.index]
        else:
            cuts[t] = _plain(*step.shape)
    return found


def _pieces_of(step: AllGather) -> list[int]:
    """Where a gathered value is cut along its axis."""
    if step.in_place():  # views of the own tile, one a range
        return _ends(
            [stop - start for start, stop in (step.pieces[0].rows, step.pieces[0].cols)[step.axis]]
        )
    return (
        [0, step.shape[0]] if step.axis == 0 else _ends([piece.shape[1] for piece in step.pieces])
    )


def _plain(rows: int, cols: int) -> tuple[list[int], list[int]]:
    return [0, rows], [0, cols]


def _ends(widths: list[int]) -> list[int]:
    return [0, *accumulate(widths)]


def _widths(first: list[int], second: list[int]) -> list[int]:
    cuts = sorted({*first, *second})
    return [stop - start for start, stop in zip(cuts, cuts[1:])] or [0]
