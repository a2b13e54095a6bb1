"""When a step may start: the one pure rule that executor, simulator and the memory plan share.

With look-ahead ``depth`` (``--prefetch``):

1. A communication step may start when its inputs are finished, every earlier step of its group has
   started, and at most ``depth`` earlier *exposed* computes are unfinished.
2. A compute may start when its inputs and all earlier computes are finished, and every
   communication step more than ``depth`` exposed computes back is finished.
3. A step that touches the written matrix, C, starts only when every earlier Fence is finished; a
   Fence only when every earlier step that touches C is finished.

A compute is *exposed* if it needs, or makes, a value that moves: an operand another rank owns, or a
token handed on to communication. Computes on own data only do not use up the look-ahead, so a long
local stretch still finds the next transfers under way. With ``depth = 0`` nothing overlaps: every
compute is exposed, and waits for all communication before it.

A *lowered* program says itself what goes together: its Boundaries divide it into operations
(``Trace.ops``), and 1 and 2 become

1'. A step may start when its inputs are finished (a compute: all earlier computes too), every
    earlier step of its group has started, and every step of every earlier operation is finished.

So the transfers of an operation overlap with its computes and with nothing else. With ``depth = 0``
the computes of an operation also wait for its communication; any other depth makes no difference.

Every wait points to an earlier step, so a program that completes in blocking order cannot deadlock.
"""

from collections import deque
from collections.abc import Collection

from drbench.program.steps import Fence, Gemm
from drbench.program.trace import Trace


class Lookahead:
    """How far ahead of the computes each step of a trace may run: what the rule needs to know of
    it, computed once.

    Attributes
    ----------
    before : list of int
        For each step, how many exposed computes precede it.
    exposed : list of bool
        For each step, whether it is an exposed compute.
    fences : list of int
        For each step that touches C (Fences included), how many Fences precede it; -1 for the
        others.
    depth : int
        Look-ahead in exposed computes.
    lowered : bool
        The program is lowered; then ``before`` is the number of the step's operation (with
        ``depth`` 0 twice that, and one more for a compute), and nothing starts before everything
        with a lower number is finished.
    """

    __slots__ = ("trace", "depth", "lowered", "before", "exposed", "fences", "count", "nfences")

    def __init__(self, trace: Trace, depth: int):
        self.trace, self.depth = trace, depth
        rank, count, nfences = trace.rank, 0, 0
        self.before, self.exposed, self.fences = [], [], []
        fenced, written = trace.fences, trace.written
        moves: set[int] = set()  # values that are not at hand from the start
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
                step.moved(rank)
                or (step.grouped and len(step.group) > 1)
                or any(value.computes or value.index in moves for value in step.inputs)
            ):
                # also at the root of a broadcast: all members of a group look as far ahead
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

    def birth(self, t: int) -> int:
        """When a step starts at the earliest, in half units of finished exposed computes (of a
        lowered program: operations).

        A transfer with b exposed computes before it starts no earlier than at b - depth finished
        ones; a compute with b before it at b, with all communication more than ``depth`` back
        finished (the half unit).
        """
        before = self.before[t]
        if self.lowered:
            return 2 * before
        return 2 * before + 1 if self.trace.steps[t].computes else 2 * (before - self.depth)

    def death(self, t: int) -> int:
        """When a step that takes a value, or makes one that nobody takes, is finished at the
        latest: at no later birth is it still going on.

        A compute with b exposed ones before it when b + 1 are finished; communication when the
        compute number b + depth + 1 starts.
        """
        before = self.before[t]
        if self.lowered or self.trace.steps[t].computes:
            return 2 * (before + 1)
        return 2 * (before + self.depth + 1) + 1 if self.depth else 2 * before + 1


class Scheduler:
    """One rank's trace being worked off, by whoever executes it.

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
        self._comm = deque(s.index for s in steps if not s.computes and not done[s.index])
        self._computes = [s.index for s in steps if s.computes]
        self._at = 0
        self._waiting: list[int] = []
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
        # unfinished steps that touch C, by Fences before them
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
            if group is None:
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
        handed out once."""
        out: list[int] = []
        if self._waiting:
            rest: list[int] = []
            for t in self._waiting:
                (out if self._ready(t) else rest).append(t)
            self._waiting = rest
        for queue in self._queues.values():
            while queue and self._ready(queue[0]):
                out.append(queue.popleft())
        return out

    def next_compute(self) -> int | None:
        """The next compute if it may start now, else None."""
        if self._at == len(self._computes):
            return None
        t = self._computes[self._at]
        needed = self.lookahead.before[t]
        if not self.lowered:
            needed += -self.depth if self.depth else 1
        return t if self._clear >= needed and self._ready(t) else None

    def finish(self, t: int) -> None:
        """A step handed out has completed."""
        step, lookahead = self.steps[t], self.lookahead
        self.done[t] = 1
        self.pending -= 1
        if step.computes:
            self._at += 1
            self._exposed_done += lookahead.exposed[t]
        if self.lowered or not step.computes:
            self._unfinished[lookahead.before[t]] -= 1
        if lookahead.fences[t] >= 0:
            if type(step) is Fence:
                self._fence_open += 1
            else:
                self._segment[lookahead.fences[t]] -= 1
        self._advance()
