"""What must be complete before a step's work may start on a device: the edges between streams.
Pure.

The scheduler orders the *launching* of steps (on a device a step counts as finished for it once it
is launched). That is not enough: a step launched later on another stream may run earlier. So each
step waits, on the device, for the steps named here. The kinds of edges:

=========  =========================================================================================
``ready``  an input of the step has been transferred (or received)
``made``   an input of the step has been computed
``free``   all steps that used the memory of its buffer before have finished
``order``  GEMMs into one part of the own tile, or into one token, run one after another, on
           whatever streams
=========  =========================================================================================

A value received with a signal needs no edge between streams: steps that use it wait for a flag in
memory instead (:mod:`drbench.device.signals`), but it is listed here, too.

Steps on one stream need no edge: a stream keeps its order, and every edge points to a step launched
earlier (by rule 2 of the scheduler for values, and by the memory plan for buffers: a buffer that is
freed before another is allocated is also launched before it).
"""

from bisect import bisect_right

from drbench.program.steps import Scratch, Step

from .schedule import ArenaPlan, Lookahead, memory_of


def edges(
    lookahead: Lookahead, plan: ArenaPlan, sizes: dict[int, int], without: frozenset = frozenset()
) -> list[list[int]]:
    """For each step, the earlier steps it waits for.

    Parameters
    ----------
    lookahead : Lookahead
    plan : ArenaPlan
    sizes : dict of int to int
        Size of each buffer of the plan, by step, in the plan's units.
    without : frozenset of str
        Kinds to omit, to test that they are needed.

    Examples
    --------
    Two GEMMs of a fetched block each, with memory for one block: the second transfer waits for the
    first GEMM.

    >>> from drbench.plan.schedule import ArenaPlan
    >>> from drbench.program.steps import Block, Gemm, Get
    >>> from drbench.program.trace import trace
    >>> def program():
    ...     for x in (0, 1):
    ...         b = yield Get(Block("B", 1, 0, (0, x), 0, 4, 4 * x, 4 * x + 4))
    ...         a = yield Get(Block("A", 0, 0, (0, 0), 0, 4, 0, 4))
    ...         yield Gemm(a, b, into=Block("C", 0, 0, (0, x), 0, 4, 4 * x, 4 * x + 4))
    >>> steps = trace(program(), None, 0, fresh=False)
    >>> edges(Lookahead(steps, 0), ArenaPlan({0: 0, 3: 0}, 16), {0: 16, 3: 16})
    [[], [], [0, 1], [0, 2], [], [3, 4]]
    """
    steps = lookahead.trace.steps
    roots = memory_of(steps)
    waits: list[set[int]] = [set() for _ in steps]
    for step in steps:
        for value in step.inputs:
            for maker in _makers(value):
                kind = "made" if maker.computes else "ready"
                if maker.computes and step.onto is not None and maker in _makers(step.onto):
                    kind = "order"
                if kind not in without:
                    waits[step.index].add(maker.index)
    _order_gemms(steps, roots, waits, without)
    if "free" not in without:
        _free_buffers(lookahead, plan, sizes, roots, waits)
        for step in steps:  # a Scratch does no work: steps that fill it wait instead
            if step.onto is not None:
                for r in roots[step.index]:
                    if type(steps[r]) is Scratch:
                        waits[step.index] |= waits[r]
    return [sorted(earlier - {t}) for t, earlier in enumerate(waits)]


def _makers(value: Step) -> list[Step]:
    """The steps that compute the value of a token: itself, or those that a Part or Join shows."""
    if not value.alias:
        return [value]
    return [maker for shown in value.inputs for maker in _makers(shown)]


def _order_gemms(steps: list[Step], roots: list, waits: list[set[int]], without: frozenset) -> None:
    """Order computes that write overlapping parts of the own tiles, or one Scratch; a step that
    uses a Scratch waits for all that filled it."""
    last: dict[tuple, list] = {}  # tile -> computes into it, until overwritten
    filled: dict[int, list[int]] = {}  # Scratch -> computes into parts of it
    for step in steps:
        t = step.index
        if type(step) is Scratch:
            filled[t] = []
        if step.alias:
            continue
        scratches = {r for value in step.inputs for r in roots[value.index] if r in filled}
        writes = step.onto is not None
        if ("order" if writes else "made") not in without:
            for r in scratches:
                waits[t].update(filled[r])
        if writes:
            for r in scratches.intersection(roots[t]):
                filled[r].append(t)
        if step.computes and step.block is not None and "order" not in without:
            block = step.block
            blocks = last.setdefault((block.matrix, block.replica, block.tile), [])
            waits[t].update(other for other, theirs in blocks if block.overlaps(theirs))
            blocks[:] = [entry for entry in blocks if not block.contains(entry[1])]
            blocks.append((t, block))


def _free_buffers(
    lookahead: Lookahead, plan: ArenaPlan, sizes: dict[int, int], roots: list, waits: list[set[int]]
) -> None:
    """Make each buffer wait for all steps that used its memory before."""
    users: dict[int, list[int]] = {}
    for step in lookahead.trace.steps:
        if not step.alias:
            for r in {r for value in step.inputs for r in roots[value.index]} | set(
                roots[step.index]
            ):
                users.setdefault(r, []).append(step.index)
    births = lookahead.births()
    born = sorted((births[t], t) for t in sizes if t in plan.offsets)
    # the last user of each part of the arena: starts[x] to segments[x][0]
    starts = [0]
    segments: list[tuple[int, int | None]] = [(plan.size, None)]
    for _, t in born:
        low, high = plan.offsets[t], plan.offsets[t] + sizes[t]
        if low == high:
            continue
        x = bisect_right(starts, low) - 1
        first, new = x, []
        while x < len(starts) and starts[x] < high:
            end, owner = segments[x]
            if owner is not None:
                waits[t].update(users[owner])
            if starts[x] < low:
                new.append((starts[x], low, owner))
            if end > high:
                new.append((high, end, owner))
            x += 1
        new.append((low, high, t))
        new.sort()
        starts[first:x] = [start for start, _, _ in new]
        segments[first:x] = [(end, owner) for _, end, owner in new]
