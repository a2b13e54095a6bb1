"""Receive and scratch memory, planned before the run: every buffer gets its place in one arena.

A buffer that is filled at some point of the schedule and one that is emptied before that point may
share memory. Both points are known from the rule of :mod:`drbench.plan.schedule` alone, so the plan
is safe for every order in which steps may complete, and nothing is allocated while the clock runs.
"""

from bisect import insort
from collections.abc import Callable
from dataclasses import dataclass

from drbench.program.steps import Block, Gemm, Get, Step
from drbench.program.trace import Trace

from .schedule import Lookahead

#: Buffers start at multiples of this many bytes (a cache line, and enough for aligned AVX-512
#: loads).
ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class ArenaPlan:
    """Where each buffer lies.

    Attributes
    ----------
    offsets : dict of int to int
        Step index -> element offset in the arena. A Gemm onto an earlier product has that product's
        offset.
    size : int
        Elements the arena must hold.
    """

    offsets: dict
    size: int


def all_copied(block: Block) -> bool:
    """``views`` where no block is read in place."""
    return False


def buffer_elements(step: Step, rank: int, *, views: Callable[[Block], bool] = all_copied) -> int:
    """Elements of memory of its own that a step needs, for its value or on the way into a tile; 0
    for none.

    Parameters
    ----------
    step : Step
    rank : int
        The rank that runs it.
    views : callable
        ``views(block)`` is True if that block is read in place. The default says that none is,
        which gives the largest arena any transport needs.
    """
    if isinstance(step, Get):
        block = step.block
        return 0 if block.owner == rank or views(block) else block.size
    return step.elements()


def memory_of(steps: list[Step]) -> list[tuple[int, ...]]:
    """For each value the steps in whose memory it lies: its own, or those it shows or adds onto."""
    roots: list[tuple[int, ...]] = []
    for step in steps:
        if step.alias:
            roots.append(tuple(r for value in step.inputs for r in roots[value.index]))
        else:
            roots.append((step.index,) if step.onto is None else roots[step.onto.index])
    return roots


def plan_arena(
    lookahead: Lookahead,
    itemsize: int,
    views: Callable[[Block], bool] = all_copied,
    widths: list | None = None,
) -> ArenaPlan:
    """Give every buffer of a trace a place; buffers that can be alive together never overlap.

    Parameters
    ----------
    lookahead : Lookahead
        Of the trace, with the look-ahead it will run with.
    itemsize : int
        Bytes of one element.
    views : callable
        As in :func:`buffer_elements`.
    widths : list of int, optional
        Bytes of an element of each step's value, where they differ; then ``itemsize`` is 1 and the
        plan is in bytes.

    Returns
    -------
    ArenaPlan

    Notes
    -----
    Lifetimes are :meth:`Lookahead.birth` of the step that makes a value to the last
    :meth:`Lookahead.death` of those that take it. First fit in order of birth. Leaving buffers out
    can make first fit worse, so with ``views`` the plan without them is made too and the smaller
    one taken: what was announced for a transport that copies everything always holds.
    """
    roots = memory_of(lookahead.trace.steps)
    plan = _first_fit(lookahead, roots, itemsize, views, widths)
    if not plan.size or views is all_copied:
        return plan
    whole = _first_fit(lookahead, roots, itemsize, all_copied, widths)
    if whole.size >= plan.size:
        return plan
    return ArenaPlan(
        {t: offset for t, offset in whole.offsets.items() if t in plan.offsets}, whole.size
    )


def pool_bytes(
    trace: Trace, prefetch: int, views: Callable[[Block], bool] = lambda block: False
) -> int:
    """Receive and scratch memory that a trace needs, ``views`` being as in
    :func:`buffer_elements`."""
    widths = trace.element_types(trace.problem.itemsizes)
    return plan_arena(Lookahead(trace, prefetch), 1, views, widths).size


def _first_fit(
    lookahead: Lookahead,
    roots: list[tuple[int, ...]],
    itemsize: int,
    views: Callable[[Block], bool],
    widths: list | None,
) -> ArenaPlan:
    """The plan of :func:`plan_arena` for the buffers that ``views`` leaves."""
    rank = lookahead.trace.rank
    steps = lookahead.trace.steps
    death: dict[int, int] = {}
    born: list[tuple[int, int]] = []
    need: dict[int, int] = {}
    for step in steps:
        t = step.index
        if step.alias:
            continue  # no memory, and no use: that of its own consumers counts
        elements = buffer_elements(step, rank, views=views)
        if elements:
            born.append((lookahead.birth(t), t))
            death[t], need[t] = 0, elements if widths is None else elements * widths[t]
        end = lookahead.death(t)  # whatever takes a buffer is exposed: H grows when it finishes
        for r in (r for value in step.inputs for r in roots[value.index]):
            if r in death and death[r] < end:
                death[r] = end
        if not step.uses:
            for r in roots[t]:
                if r in death and death[r] < end:
                    death[r] = end  # a value no one takes lives until its own step is finished
    unit = max(1, ALIGNMENT // itemsize)
    offsets: dict[int, int] = {}
    live: list[tuple[int, int, int]] = []  # (offset, end offset, death), by offset
    size = 0
    for birth, t in sorted(born):
        live = [entry for entry in live if entry[2] > birth]
        size_here = -(-need[t] // unit) * unit
        at = 0
        for low, high, _ in live:  # the lowest gap that is wide enough
            if low - at >= size_here:
                break
            at = max(at, high)
        insort(live, (at, at + size_here, death[t]))
        offsets[t] = at
        size = max(size, at + size_here)
    for step in steps:
        if (
            type(step) is Gemm
            and step.onto is not None
            and not step.onto.alias
            and roots[step.index][0] in offsets
        ):
            offsets[step.index] = offsets[roots[step.index][0]]
    return ArenaPlan(offsets, size)
