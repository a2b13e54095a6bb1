"""When a step may start: the one pure rule that executor, simulator and memory plan share; and the
memory plan, which depends on this rule alone.

With look-ahead ``depth`` (``-o prefetch``):

1. A communication step may start when its inputs are finished, every earlier step of its group has
   started, and at most ``depth`` earlier *exposed* computes are unfinished.
2. A compute may start when its inputs and all earlier computes are finished, and every
   communication step more than ``depth`` exposed computes back is finished.
3. A step that accesses the written matrix, C, starts only when every earlier Fence is finished; a
   Fence only when every earlier step that accesses C is finished.

A compute is *exposed* if it needs, or makes, a value that moves: an operand another rank owns, or a
token that communication sends. Computes on own data only do not count for the look-ahead, so that
the next transfers start before a long range of local computes. With ``depth = 0`` nothing overlaps:
every compute is exposed, and waits for all communication before it.

Rules 1 and 2 do not apply to a step that may start at any time (``Await``): it starts first, and
only steps that use its value wait for it. A reduction during the computes (an ``Add`` that is
``concurrent``) counts as communication. With depth ``"all"`` no step waits for the look-ahead, and
values that are received or sent occupy their memory for the whole run.

A *lowered* program defines its own overlap: its OperationEnds divide it into operations
(``Trace.ops``), and 1 and 2 become

1'. A step may start when its inputs are finished (a compute: all earlier computes too), every
    earlier step of its group has started, and every step of every earlier operation is finished.

So the transfers of an operation overlap with its computes and with nothing else. With ``depth = 0``
the computes of an operation also wait for its communication; any other depth makes no difference.

Every wait points to an earlier step, so a program that completes in blocking order cannot deadlock.

Receive and scratch memory is planned before the run: every buffer gets its place in one arena. Two
buffers may share memory if one is freed before the other is filled. Both points are known from the
rule alone, so the plan is safe for every order in which steps may complete, and no memory is
allocated in the timed region.
"""

from bisect import insort
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from math import inf
from typing import Any

from drbench.program.signal_steps import Take
from drbench.program.steps import Block, Fence, Gemm, Get, Step
from drbench.program.trace import Trace, no_collection

from .signals import offered, plan_inbox

#: Buffers start at multiples of this many bytes (a cache line, and enough for aligned AVX-512
#: loads).
ALIGNMENT = 64


class Lookahead:
    """How far ahead of the computes each step of a trace may run: the data of the rule, computed
    once.

    Attributes
    ----------
    before : list of int
        For each step, how many exposed computes precede it.
    exposed : list of bool
        For each step, whether it is an exposed compute.
    fences : list of int
        For each step that accesses C (Fences included), how many Fences precede it; -1 for the
        others.
    depth : int or float
        Look-ahead in exposed computes; infinite for ``"all"``.
    lowered : bool
        The program is lowered; then ``before`` is the number of the step's operation (with
        ``depth`` 0 twice that, and one more for a compute), and nothing starts before everything
        with a lower number is finished.
    """

    def __init__(self, trace: Trace, depth: int | str):
        self.trace = trace
        self.depth: float = inf if depth == "all" else int(depth)
        rank, count, nfences = trace.rank, 0, 0
        self.before, self.exposed, self.fences = [], [], []
        fenced, written = trace.fences, trace.written
        moves: set[int] = set()  # values that are not local from the start
        for step in trace.steps:
            kind = type(step)
            exposed = False
            if step.computes:
                exposed = depth == 0 or (kind is Gemm and step.block is None)
                if not exposed:
                    for value in step.inputs:
                        if value.computes or value.index in moves:
                            exposed = True
            elif (
                step.signals
                or step.onto is not None  # its memory is reused
                or step.moved(rank)
                or (step.grouped and len(step.group) > 1)
                or any(value.computes or value.index in moves for value in step.inputs)
            ):
                # also at the root of a broadcast: the look-ahead is the same on all members
                moves.add(step.index)
            self.before.append(count)
            self.exposed.append(exposed)
            count += exposed
            touches = fenced and (kind is Fence or step.matrix == written)
            self.fences.append(nfences if touches else -1)
            nfences += kind is Fence
        self.lowered = trace.ops is not None
        if trace.ops is not None:
            self.before = (
                trace.ops
                if depth
                else [2 * op + step.computes for op, step in zip(trace.ops, trace.steps)]
            )
            count = self.before[-1] if self.before else 0
        self.count, self.nfences = count, nfences

    def waits_for_fence(self, t: int) -> bool:
        """Whether a Fence precedes a step that reads a value computed by the program: then the step
        waits, even if it reads in place."""
        return type(self.trace.steps[t]) is Get and self.fences[t] > 0

    def births(self) -> list[float]:
        """For each step the earliest moment at which it can start. The unit is half an exposed
        compute: 2·b means that b exposed computes are finished (in a lowered program: operations).

        A transfer with b exposed computes before it starts no earlier than at b - depth finished
        ones; a compute with b before it at b, with all communication more than ``depth`` back
        finished (the half unit).
        """
        if self.lowered:
            return [2 * before for before in self.before]
        ahead = -2 * self.depth
        return [
            2 * before + (1 if step.computes else ahead)
            for before, step in zip(self.before, self.trace.steps)
        ]

    def deaths(self) -> list[float]:
        """The latest end of each step that uses a value, or makes one that no step uses: it is
        finished before any later birth.

        A compute with b exposed ones before it when b + 1 are finished; communication when the
        compute number b + depth + 1 starts.
        """
        if self.lowered:
            return [2 * before + 2 for before in self.before]
        later = 2 * self.depth + 3 if self.depth else 1
        return [
            2 * before + (2 if step.computes else later)
            for before, step in zip(self.before, self.trace.steps)
        ]


class Scheduler:
    """The state of one rank's trace while it is executed or simulated.

    Parameters
    ----------
    lookahead : Lookahead
    resolved : collection of int
        Steps that take no time at all (a Get read in place); they count as finished from the start.

    Notes
    -----
    The caller loops: start all of :meth:`take`, run :meth:`next_compute` if there is one, and
    report every step that completes with :meth:`finish`, until ``pending`` is 0.
    """

    __slots__ = (
        "lookahead",
        "steps",
        "depth",
        "lowered",
        "done",
        "pending",
        "_comm",
        "_waiting",
        "_missing",
        "_takers",
        "_allowed",
        "_queues",
        "_computes",
        "_at",
        "_exposed_done",
        "_unfinished",
        "_clear",
        "_fence_open",
        "_segment",
    )

    def __init__(self, lookahead: Lookahead, resolved: Collection[int] = ()):
        self.lookahead, self.depth, self.lowered = lookahead, lookahead.depth, lookahead.lowered
        self.steps = steps = lookahead.trace.steps
        self.done = done = bytearray(len(steps))
        for t in resolved:
            done[t] = 1
        self.pending = len(steps) - len(resolved)
        self._comm = deque(
            s.index for s in steps if not (s.computes or s.nonblocking or done[s.index])
        )
        self._computes = [s.index for s in steps if s.computes]
        self._at = 0
        self._waiting: list[int] = [s.index for s in steps if s.nonblocking]
        # one-sided steps with missing inputs: how many are missing; which steps use a value; which
        # of them the look-ahead allows to start
        self._missing: dict[int, int] = {}
        self._takers: dict[int, list[int]] = {}
        self._allowed: set[int] = set()
        for t in self._comm:
            if steps[t].inputs and steps[t].group is None:
                missing = [value.index for value in steps[t].inputs if not done[value.index]]
                if missing:
                    self._missing[t] = len(missing)
                    for value in missing:
                        self._takers.setdefault(value, []).append(t)
        self._queues: dict[str, deque] = {}
        self._exposed_done = 0
        # communication steps (lowered: computes too) left, by ``before``
        self._unfinished = [0] * (lookahead.count + 1)
        for t in self._comm:
            self._unfinished[lookahead.before[t]] += 1
        if self.lowered:
            for t in self._computes:
                self._unfinished[lookahead.before[t]] += 1
        self._clear = 0  # all communication (lowered: everything) with before < clear is finished
        self._fence_open = 0  # Fences finished
        # unfinished steps that access C, by Fences before them
        self._segment = [0] * (lookahead.nfences + 1)
        fences = lookahead.fences
        for s in steps:
            if fences[s.index] >= 0 and type(s) is not Fence and not done[s.index]:
                self._segment[fences[s.index]] += 1
        self._advance()

    def _advance(self) -> None:
        unfinished, clear = self._unfinished, self._clear
        while clear < len(unfinished) and not unfinished[clear]:
            clear += 1
        self._clear = clear
        comm, before, limit = (
            self._comm,
            self.lookahead.before,
            clear if self.lowered else self._exposed_done + self.depth,
        )
        while comm and before[comm[0]] <= limit:
            t = comm.popleft()
            group = self.steps[t].group
            if t in self._missing:
                self._allowed.add(t)
            elif group is None:
                self._waiting.append(t)
            else:
                self._queues.setdefault(group, deque()).append(t)

    def _ready(self, t: int) -> bool:
        step, done = self.steps[t], self.done
        for value in step.inputs:
            if not done[value.index]:
                return False
        fence = self.lookahead.fences[t]
        if fence < 0:
            return True
        if type(step) is Fence:
            return self._fence_open == fence and not self._segment[fence]
        return self._fence_open >= fence

    def take(self) -> list[int]:
        """Communication steps that may start now, in an order that is safe on every rank; each is
        returned once."""
        out: list[int] = []
        if self._waiting:
            rest: list[int] = []
            for t in self._waiting:
                (out if self._ready(t) else rest).append(t)
            self._waiting = rest
            out.sort()
        for queue in self._queues.values():
            while queue and self._ready(queue[0]):
                out.append(queue.popleft())
        return out

    def next_compute(self, beyond: int = 0) -> int | None:
        """The next compute if it may start now, else None; or the compute ``beyond`` places after
        it, if it may start at the same time, using none of the values of those before."""
        if self._at + beyond >= len(self._computes):
            return None
        t = self._computes[self._at + beyond]
        needed = self.lookahead.before[t]
        if not self.lowered:
            needed += -self.depth if self.depth else 1
        return t if self._clear >= needed and self._ready(t) else None

    def finish(self, t: int) -> None:
        """Note that a started step has completed."""
        step, lookahead = self.steps[t], self.lookahead
        self.done[t] = 1
        self.pending -= 1
        for taker in self._takers.pop(t, ()):
            self._missing[taker] -= 1
            if not self._missing[taker]:
                del self._missing[taker]
                if taker in self._allowed:
                    self._allowed.remove(taker)
                    self._waiting.append(taker)
        if step.computes:
            self._at += 1
            self._exposed_done += lookahead.exposed[t]
        if not step.nonblocking and (self.lowered or not step.computes):
            self._unfinished[lookahead.before[t]] -= 1
        if lookahead.fences[t] >= 0:
            if type(step) is Fence:
                self._fence_open += 1
            else:
                self._segment[lookahead.fences[t]] -= 1
        self._advance()


@dataclass(frozen=True, slots=True)
class ArenaPlan:
    """The place of each buffer in the arena.

    Attributes
    ----------
    offsets : dict of int to int
        Step index -> element offset in the arena. A Gemm that adds onto an earlier result has the
        offset of that.
    size : int
        Elements of the arena.
    """

    offsets: dict
    size: int


def all_copied(source: Block | Take) -> bool:
    """The ``views`` with which no block is read in place: always False."""
    return False


def buffer_elements(step: Step, rank: int, *, views: Callable[[Any], bool] = all_copied) -> int:
    """Elements of memory of its own that a step needs, for its value or to send it to a tile; 0 if
    none.

    Parameters
    ----------
    step : Step
    rank : int
        The rank that runs it.
    views : callable
        ``views(block)`` is True if that block is read in place, ``views(take)`` if the value of
        that Take is: both have an ``owner``. By default none is read in place, which gives the
        largest arena that any transport needs.
    """
    if isinstance(step, Get) and step.onto is None:
        block = step.block
        return 0 if block.owner == rank or views(block) else block.size
    if isinstance(step, Take) and views(step):
        return 0
    return step.elements()


def memory_of(steps: list[Step]) -> list[tuple[int, ...]]:
    """For each value the steps whose memory stores it: its own, or those that it shows or adds
    onto."""
    roots: list[tuple[int, ...]] = []
    for step in steps:
        if step.alias:
            roots.append(tuple(r for value in step.inputs for r in roots[value.index]))
        else:
            roots.append((step.index,) if step.onto is None else roots[step.onto.index])
    return roots


@no_collection()
def plan_arena(
    lookahead: Lookahead,
    itemsize: int,
    views: Callable[[Any], bool] = all_copied,
    widths: list | None = None,
) -> ArenaPlan:
    """Assign a place to every buffer of a trace; buffers that can be in use together never overlap.

    Parameters
    ----------
    lookahead : Lookahead
        Of the trace, with the look-ahead of the run.
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
    Lifetimes are :meth:`Lookahead.births` of the step that makes a value to the last
    :meth:`Lookahead.deaths` of those that use it. First fit in order of birth. Omitting buffers can
    make first fit worse: then the plan with all of them is made, too, and the smaller one used, so
    that the size announced for a transport that copies everything is always enough.
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


def pool_bytes(trace: Trace, prefetch: int | str, views: Callable[[Any], bool] = all_copied) -> int:
    """Receive and scratch memory that a trace needs, its inbox included; ``views`` as in
    :func:`buffer_elements`."""
    widths = trace.element_types(trace.problem.itemsizes)
    arena = plan_arena(Lookahead(trace, prefetch), 1, views, widths)
    return arena.size + plan_inbox(trace, widths).nbytes


def _first_fit(
    lookahead: Lookahead,
    roots: list[tuple[int, ...]],
    itemsize: int,
    views: Callable[[Any], bool],
    widths: list | None,
) -> ArenaPlan:
    """The plan of :func:`plan_arena` for the buffers that are not read in place."""
    rank, steps = lookahead.trace.rank, lookahead.trace.steps
    births, deaths = lookahead.births(), lookahead.deaths()
    death: dict[int, float] = {}
    born: list[tuple[float, int]] = []
    in_inbox = offered(steps)  # in memory that other ranks map
    need: dict[int, int] = {}
    for t, step in enumerate(steps):
        if step.alias:
            continue  # no memory, and no use: its consumers count
        elements = buffer_elements(step, rank, views=views)
        if elements and t not in in_inbox:
            born.append((births[t], t))
            death[t], need[t] = 0, elements if widths is None else elements * widths[t]
        end = deaths[t]  # users of a buffer are exposed: H grows when they finish
        for value in step.inputs:
            for r in roots[value.index]:
                if death.get(r, end) < end:
                    death[r] = end
        if not step.uses:
            for r in roots[t]:
                if death.get(r, end) < end:
                    death[r] = end  # an unused value lives until its own step is finished
    unit = max(1, ALIGNMENT // itemsize)
    offsets: dict[int, int] = {}
    live: list[tuple[int, int, float]] = []  # (offset, end offset, death), by offset
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
