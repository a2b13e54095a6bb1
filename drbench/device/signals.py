"""Steps with signals on devices, and the order in which they may be launched.

A stream that waits for a flag blocks the operations behind it, and CUDA does not know the order
that flags require: it may put several streams into one hardware queue, so that a wait blocks
operations launched *after* it on any stream. Therefore a step that makes a stream wait is launched
only after all earlier steps of the program for which another rank may wait. Then no run deadlocks,
even if a device runs all its streams as one, in the order of launches: each stuck rank would wait
for a send that is, in its rank's program, after the step where that rank is stuck, so ranks that
run their steps one by one would wait for each other in a circle, which is refused before a run
(:func:`drbench.plan.signals.check_progress`).
"""

from bisect import bisect

from drbench.program.signal_steps import Await, Push, Signal, Take
from drbench.program.trace import Trace

from .base import Lane, Waiting, completed


class LaunchOrder:
    """The steps that may be launched so that no wait overtakes a send. Pure.

    Parameters
    ----------
    trace : Trace
    edges : list of list of int
        Of :func:`drbench.plan.edges.edges`.
    flagged : collection of int
        The Awaits and Takes for whose values streams wait.

    Examples
    --------
    A rank forwards the first value that it receives, and multiplies by the second; the GEMM is
    launched after the first value is sent:

    >>> from drbench.program.steps import Scratch, Gemm
    >>> from drbench.program.trace import trace
    >>> def program():
    ...     b = yield Scratch((4, 4))
    ...     first = yield Await(1, "one", (4, 4))
    ...     yield Push(first, 2, "one")
    ...     second = yield Await(1, "two", (4, 4))
    ...     yield Gemm(second, b)
    >>> order = LaunchOrder(trace(program(), None, 0, fresh=False), [[], [], [1], [], [3]], {1, 3})
    >>> order.may(4), order.may(2)
    (False, True)
    >>> order.passed(2)
    >>> order.may(4)
    True
    """

    def __init__(self, trace: Trace, edges: list[list[int]], flagged):
        self.waits = {
            step.index
            for step in trace.steps
            if not (step.nonblocking or step.alias)
            and (step.index in flagged or not flagged.isdisjoint(edges[step.index]))
        }
        self._awaited = [  # steps for which another rank may wait
            step.index
            for step in trace.steps
            if (isinstance(step, Signal) and step.sends) or step.group is not None
        ]
        self.restart()

    def restart(self) -> None:
        """Begin a run: no step is launched."""
        self._passed = [False] * len(self._awaited)
        self._first = 0

    def may(self, t: int) -> bool:
        """Whether a step may be launched."""
        if t not in self.waits or self._first == len(self._awaited):
            return True
        return t <= self._awaited[self._first]

    def passed(self, t: int) -> None:
        """Mark a step as launched (a Fence, or a step of a group: as done)."""
        place = bisect(self._awaited, t) - 1
        if place < 0 or self._awaited[place] != t:
            return
        self._passed[place] = True
        while self._first < len(self._passed) and self._passed[self._first]:
            self._first += 1


class DeviceSignals:
    """The part of a :class:`~drbench.device.executor.DeviceExecutor` for steps of signals, and for
    reductions during GEMMs."""

    def _prepare_signals(self) -> None:
        """Prepare the data that is the same in every run."""
        self._received: set[int] = set()  # local values that streams can wait for
        self._sent: dict[int, tuple] = {}  # step -> (twin, message) of values for other nodes
        for step in self.steps:
            if not isinstance(step, Signal):
                continue
            t = step.index
            if not step.sends and self.inbox.is_local(t):
                self._received.add(t)
            elif step.sends and not self.inbox.is_local(t):
                twin = self.inbox.twin(step, self._operand(step))
                self._sent[t] = twin, self.inbox.sender(t, twin)
        self._orders = [
            LaunchOrder(self.trace, self._edges, flagged) for flagged in (set(), self._received)
        ]

    def _by_taker(self, step: Signal) -> bool:
        """Whether steps that use a value wait for it and read it in place."""
        in_place = type(step) is Await or not self.values[step.index].flags.writeable
        return in_place and self.inbox.is_local(step.index)

    def _begin_signals(self) -> None:
        """Begin a run."""
        by_streams = self.inbox is not None and self.inbox.by_streams
        self._by_flag = self._received if by_streams else frozenset()
        self._order = self._orders[by_streams]
        self._order.restart()
        self._held: list[int] = []  # communication that may not be launched yet
        self._flagged: set[tuple[str, int]] = set()  # (lane, step) whose flag it has waited for
        self._here: set[int] = set()  # values whose flags the host has seen

    def _close_signals(self) -> None:
        for _, message in self._sent.values():
            message.Free()
        self._sent = {}

    def _peer_lane(self, lane_kind: str, peer: int) -> Lane:
        """The stream of copies to or from a rank: ranks are assigned to streams round-robin."""
        place = (peer - self.rank - 1) % self.comm.size
        return self._lane(f"{lane_kind}{place % self._resources.copies}")

    def _await_flag(self, lane: Lane, s: int) -> None:
        """Let later operations of a lane wait for a value."""
        if (lane.name, s) not in self._flagged:
            self.device.wait_flag(self.inbox.flag(s, False), self.inbox.number, lane.stream)
        self._flagged.add((lane.name, s))

    # -- the steps

    def _start_push(self, t: int) -> None:
        """Copy the value into its slot, then signal in the same stream; or send it."""
        step, is_local = self.steps[t], self.inbox.is_local(t)
        value = self._operand(step)
        lane = self._peer_lane("push", step.peer)
        self._begin(lane, t)
        if type(step) is Push:
            self.bytes["put_bytes"] += value.nbytes
        if not is_local:
            self._send(t, lane, value)
            return
        self._copy_to_slot(step, value, lane)
        self._signal(t, lane)
        if self.inbox.by_streams:
            self._launched(t, lane)
        else:
            self._on_host.append(self._signal_by_host(t, lane, self._reached(lane)))

    def _copy_to_slot(self, step: Signal, value, lane: Lane) -> None:
        if type(step) is Push:  # an offered value is in place
            self.device.copy(self.inbox.place(step, value), value, lane.stream)

    def _signal(self, t: int, lane: Lane) -> None:
        if self.inbox.by_streams:
            self.device.write_flag(self.inbox.flag(t, True), self.inbox.number, lane.stream)

    def _signal_by_host(self, t: int, lane: Lane, reached: Waiting) -> Waiting:
        yield from reached
        self.inbox.signal(self.inbox.routes[t])
        self._launched(t, lane)

    def _send(self, t: int, lane: Lane, value) -> None:
        """Send a value, pushed or offered, to a remote rank."""
        twin, message = self._sent[t]
        if twin is not value:
            self.device.copy(twin, value, lane.stream)
        # now: the next step of this lane may wait for a value that depends on this one
        self._on_host.append(self._leave(t, lane, message, self._reached(lane)))

    def _leave(self, t: int, lane: Lane, message, reached: Waiting) -> Waiting:
        yield from reached
        message.Start()
        yield from completed(message)
        self._launched(t, lane)

    def _start_await(self, t: int) -> None:
        """Wait for a pushed or offered value: its users wait for its flag, or the host does."""
        if not self.inbox.is_local(t):
            self._on_host.append(self._receive(t))
        elif t not in self._by_flag:
            self.inbox.watch(t)
            self._on_host.append(self._seen_by_host(t))
        else:
            self._signalled(t)

    def _seen_by_host(self, t: int) -> Waiting:
        while t not in self._here:
            self._here.update(self.inbox.arrived())
            if t not in self._here:
                yield
        self._signalled(t)

    def _signalled(self, t: int) -> None:
        """Read an offered value, or finish the wait for a pushed one: its signal has been seen, or
        users of the value wait for it."""
        if type(self.steps[t]) is Take:
            self._read_offered(t)
        else:
            self._schedule.finish(t)

    def _receive(self, t: int) -> Waiting:
        """Receive a value by a message."""
        step, value = self.steps[t], self.values[t]
        if type(step) is not Await:
            self.bytes["get_bytes"] += value.nbytes
        yield from completed(self.inbox.receiver(t))
        landed = self.inbox.landed(step, value)
        if landed is None:
            self._schedule.finish(t)
            return
        lane = self._peer_lane("in", step.peer)
        self._begin(lane, t)
        self.device.copy(value, landed, lane.stream)
        self._launched(t, lane)

    def _read_offered(self, t: int) -> None:
        """Copy a value that a local rank offers, or let its users read it in place."""
        value = self.values[t]
        if self._by_taker(self.steps[t]):
            self.bytes["direct_bytes"] += value.nbytes
            self._schedule.finish(t)
            return
        self.bytes["get_bytes"] += value.nbytes
        lane = self._peer_lane("in", self.inbox.routes[t].peer)
        self._begin(lane, t)
        if t in self._by_flag:
            self._await_flag(lane, t)
        self.device.copy(value, self.inbox.place(self.steps[t], value), lane.stream)
        self._launched(t, lane)

    def _start_reduction(self, t: int) -> None:
        """Launch a reduction during GEMMs."""
        step, lane = self.steps[t], self._lane("side")
        self._begin(lane, t)
        for term in step.terms:
            self.device.add(self.values[t], self.values[term.index], lane.stream, concurrent=True)
        self._launched(t, lane)
