"""Receive and scratch memory, planned before the run: every buffer gets its place in one arena.

A buffer that is filled at some point of the schedule and one that is emptied before that point may share memory. Both
points are known from the rule of :mod:`drbench.schedule` alone, in units of finished exposed computes, so the plan is
safe for every order in which steps may complete, and nothing is allocated while the clock runs.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass
from typing import Callable

from .schedule import Windows
from .steps import Gemm, Step

__all__ = ["ArenaPlan", "plan_arena", "buffered"]

#: Buffers start at multiples of this many bytes (a cache line, and enough for aligned AVX-512 loads).
ALIGNMENT = 64


@dataclass(frozen=True, slots=True)
class ArenaPlan:
    """Where each buffer lies.

    Attributes
    ----------
    offsets : dict of int to int
        Step index -> element offset in the arena. A Gemm onto an earlier product has that product's offset.
    size : int
        Elements the arena must hold.
    """

    offsets: dict
    size: int


def buffered(step: Step, rank: int, *, views: Callable[[int], bool] = lambda owner: False) -> bool:
    """True if the value of a step needs memory of its own.

    Parameters
    ----------
    step : Step
    rank : int
        The rank that runs it.
    views : callable
        ``views(owner)`` is True if that rank's tiles are read in place. The default says that none are, which
        gives the largest arena any transport needs.
    """
    if type(step) is Gemm:
        return step.block is None and step.onto is None
    return step.counter in ("get_bytes", "replica_bytes") and step.block.owner != rank and not views(step.block.owner)


def plan_arena(windows: Windows, itemsize: int, views: Callable[[int], bool] = lambda owner: False) -> ArenaPlan:
    """Give every buffer of a trace a place; buffers that can be alive together never overlap.

    Parameters
    ----------
    windows : Windows
        Of the trace, with the look-ahead it will run with.
    itemsize : int
        Bytes of one element.
    views : callable
        As in :func:`buffered`.

    Returns
    -------
    ArenaPlan

    Notes
    -----
    Time is counted in half units of finished exposed computes, H: a transfer with b exposed computes before it
    starts no earlier than H = b - depth; a Gemm with b before it starts at H = b with all communication more than
    ``depth`` back finished (the half unit). A value dies when its last consumer finishes: a Gemm with b before it at
    H = b + 1, a communication step with b before it when the Gemm number b + depth + 1 has started.
    First fit in order of birth. Leaving buffers out can make first fit worse, so with ``views`` the plan without them is
    made too and the smaller one taken: what was announced for a transport that copies everything always holds.
    """
    plan = _first_fit(windows, itemsize, views)
    whole = _first_fit(windows, itemsize, lambda owner: False) if plan.size else plan
    if whole.size >= plan.size:
        return plan
    return ArenaPlan({t: offset for t, offset in whole.offsets.items() if t in plan.offsets}, whole.size)


def _first_fit(windows: Windows, itemsize: int, views: Callable[[int], bool]) -> ArenaPlan:
    """The plan of :func:`plan_arena` for the buffers that ``views`` leaves."""
    depth, before, rank = windows.depth, windows.before, windows.trace.rank
    steps = windows.trace.steps
    root = list(range(len(steps)))
    death: dict[int, int] = {}
    born: list[tuple[int, int]] = []
    for step in steps:
        t = step.index
        if type(step) is Gemm and step.onto is not None:
            root[t] = root[step.onto.index]
        if buffered(step, rank, views=views):
            born.append((2 * before[t] + 1 if step.computes else 2 * (before[t] - depth), t))
            death[t] = 0
        if step.computes:
            end = 2 * (before[t] + 1)                      # whatever takes a buffer is exposed: H grows when it finishes
        else:
            end = 2 * (before[t] + depth + 1) + 1 if depth else 2 * before[t] + 1
        for value in step.inputs:
            r = root[value.index]
            if r in death and death[r] < end:
                death[r] = end
        if not step.uses and root[t] in death and death[root[t]] < end:
            death[root[t]] = end                           # a value no one takes lives until its own step is finished
    unit = max(1, ALIGNMENT // itemsize)
    offsets: dict[int, int] = {}
    live: list[tuple[int, int, int]] = []                  # (offset, end offset, death), by offset
    size = 0
    for birth, t in sorted(born):
        live = [entry for entry in live if entry[2] > birth]
        rows, cols = steps[t].shape
        need = -(-rows * cols // unit) * unit
        at = 0
        for low, high, _ in live:                          # the lowest gap that is wide enough
            if low - at >= need:
                break
            at = max(at, high)
        insort(live, (at, at + need, death[t]))
        offsets[t] = at
        size = max(size, at + need)
    for step in steps:
        if root[step.index] != step.index and root[step.index] in offsets:
            offsets[step.index] = offsets[root[step.index]]
    return ArenaPlan(offsets, size)
