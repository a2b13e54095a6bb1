"""The executor for devices: steps are launched as early as possible, and streams wait for each
other on the device.

The same traces, scheduler, memory plan and layout as :class:`drbench.host.executor.Executor`. For
the scheduler a step counts as finished once its work is launched; edges (:mod:`drbench.plan.edges`)
order the work on the device. The host itself waits only if it takes part: in a Fence, and if MPI
moves data that a device cannot access.
"""

import os

import numpy as np
from mpi4py import MPI

from drbench.clock import Clock
from drbench.device.gpu.nccl import issue
from drbench.errors import UnsupportedError
from drbench.host.executor_base import ExecutorBase
from drbench.mappings import remembered
from drbench.plan.edges import edges
from drbench.program.kinds import COMPUTES, GROUP_STEPS, READS, VIEWS, WRITES, table_of_steps
from drbench.program.signal_steps import Await, Offer, Push, Take
from drbench.program.steps import (
    Accumulate,
    Add,
    Copy,
    Fence,
    Gemm,
    Get,
    OperationEnd,
    Put,
    Scratch,
    Zero,
)
from drbench.program.trace import Trace

from .address import at_address
from .base import Event, Lane, Resources, Waiting, completed, until
from .inbox import DeviceInbox
from .signals import DeviceSignals
from .staging import HostTwins

#: The kind of streams on which a step runs; concurrent reductions have a stream of their own.
_LANES = table_of_steps(
    "streams of the executor on devices",
    {
        COMPUTES: "gemm",
        (*WRITES, Fence): "out",
        GROUP_STEPS: "group",
        (*READS, Await, Take): "in",
        (Push, Offer): "push",
        (Scratch, *VIEWS, OperationEnd): None,
    },
)


class DeviceExecutor(DeviceSignals, ExecutorBase):
    """One rank's trace on matrices in device memory, which can be run repeatedly (collective to
    make).

    Parameters
    ----------
    trace : Trace
    matrices : dict of str to DeviceMatrix
    prefetch : int or str
        Look-ahead of :mod:`drbench.plan.schedule`, or ``"all"``; 0 puts all steps on one stream.
    get : str
        ``"copy"``: tiles of other ranks are copied on a separate stream; ``"view"``: GEMMs read
        them in place.
    resources : Resources, optional
        Streams and memory, to be shared by executors that never run at the same time.
    collectives : callable, optional
        ``collectives(group)`` returns the :class:`~drbench.device.gpu.nccl.NcclGroup` of a process
        row or column; without it MPI moves the data of collectives, directly if the matrices' MPI
        is GPU-aware, else through pinned host memory.
    agreed : dict, optional
        ``remote_reads`` of an executor of the same trace; then making this one is not collective.

    Attributes
    ----------
    clock : None
        Phases are not measured: the host cannot see idle time of a device. Use the timeline.
    remote_reads : dict of str to set of int
        For each matrix the numbers of Fences before its reads by remote ranks, over all ranks.
    """

    clock = None

    def __init__(
        self,
        trace: Trace,
        matrices: dict,
        *,
        prefetch: int | str = 1,
        get: str = "copy",
        resources: Resources | None = None,
        collectives=None,
        agreed: dict[str, set[int]] | None = None,
    ):
        self.device, self._memory = matrices[trace.written].device, None
        self._resources = resources or Resources()
        self._lanes, device = self._resources.lanes, self.device
        super().__init__(trace, matrices, prefetch, get, arena=self._resources.arena)
        sizes = {t: buffer.nbytes for t, buffer in self.buffers.items()}
        self._edges = edges(self.lookahead, self.arena_plan, sizes)
        needed = {s for waits in self._edges for s in waits}
        self._events: dict[int, Event] = {t: device.event() for t in needed}
        self._single = prefetch == 0
        self._max = {"gemm": self._resources.gemms, "out": self._resources.accumulates}
        self._groups = {group: collectives(group) for group in self.groups} if collectives else {}
        self._views: dict[int, np.ndarray | None] = {}
        remote = any(matrix.outgoing is not None for matrix in matrices.values())
        self._serves = remote or (self.inbox is not None and self.inbox.sends_messages)
        self._staged = not all(matrix.direct for matrix in matrices.values())
        self._twins = HostTwins(device, self.arena)
        self._prepare_twins()
        self._prepare_signals()
        self.remote_reads = self._agree_on_reads() if agreed is None else agreed
        self._open_lanes()
        self._sums = any(isinstance(step, Accumulate) or step.concurrent for step in trace.steps)
        self._replays = device.captures and self._waits_only_at_the_end()
        self._ran = self._captured_for = self._graph = None
        self.prepare()

    def bound(self, matrices: dict):
        again = super().bound(matrices)
        again._views = {}
        again._prepare_twins()
        again._prepare_signals()
        again._ran = again._captured_for = again._graph = None
        return again

    # -- before the timed region
    # --------------------------------------------------------------------------------------

    def _allocate(self, nbytes: int) -> np.ndarray:
        self._memory = self.device.allocate(max(nbytes, 1))
        return at_address(self._memory.address, nbytes, np.uint8)

    def _poison(self, memories: list) -> None:
        stream = self.matrices[self.trace.written].poisoning
        for memory in memories:
            words = memory.view(np.uint8)
            self.device.poison(words[: words.size // 4 * 4].view(np.float32), stream)
        stream.synchronise()
        self._twins.poison()

    def _open_inbox(self, matrices: dict) -> DeviceInbox:
        """The inbox; ranks are local if tiles of some matrix are: adds there need not be atomic."""
        memories = zip(*(matrix.window.in_reach for matrix in matrices.values()))
        reach = [any(memory is not None for memory in of_rank) for of_rank in memories]
        direct = all(matrix.direct for matrix in matrices.values())
        return DeviceInbox(self.trace, self._topology, self.types, reach, self.device, direct)

    def _in_reach(self, block) -> bool:
        return self._own_view(block) is not None

    def _prepare_twins(self) -> None:
        """Allocate host memory for data that MPI moves on behalf of the device."""
        for step in self.steps:
            block = step.block
            if not isinstance(step, (Get, Accumulate, Put)) or self._in_reach(block):
                continue
            if type(step) is Put:
                raise UnsupportedError(
                    f"{step!r}: rank {block.owner} is out of reach, and a device's tile cannot be "
                    "written from another node. Use Accumulate, or one node."
                )
            if isinstance(step, Accumulate):  # MPI always adds in host memory
                self._twins.of(self._operand(step))
            elif self._staged:
                self._twins.of(self.values[step.index])
        if self._staged:
            for t, call in self.calls.items():
                if call.issue is not None and self.steps[t].group not in self._groups:
                    for array in (call.sent, call.received):
                        self._twins.of(array)

    def _open_lanes(self) -> None:
        """Make all streams that :meth:`run` uses. Making one, or its cuBLAS handle, may wait for
        all work of the device, which may wait for other ranks."""
        resolved, kinds = set(self.resolved), {"out"} if self.remote_reads else set()
        for step in self.steps:
            kind = "side" if step.concurrent else _LANES[type(step)]
            if kind in ("gemm", "out"):
                kinds.add(kind)
            elif kind == "side":
                self._lane(kind)
            elif kind == "group":
                self._lane(step.group.name)
            elif step.signals:
                if step.sends or not self._by_taker(step):
                    self._peer_lane(kind, step.peer)
            elif kind and step.index not in resolved:
                self._peer_lane(kind, step.block.owner)
        for kind in kinds:
            for number in range(self._max[kind]):
                self._lane(f"{kind}{number}")

    def _agree_on_reads(self) -> dict[str, set[int]]:
        """The value of :attr:`remote_reads` (collective if any rank is remote)."""
        if all(matrix.outgoing is None for matrix in self.matrices.values()):
            return {}
        reads, fences = set(), 0
        for step in self.steps:
            fences += type(step) is Fence
            if isinstance(step, Get) and not self._in_reach(step.block):
                name = step.block.matrix
                reads.add((name, fences if name == self.trace.written else 0))
        everyone = set().union(*self.comm.allgather(reads))
        return {
            name: {fence for matrix, fence in everyone if matrix == name} for name in self.matrices
        }

    def prepare(self) -> None:
        super().prepare()
        self._points: dict[int, tuple] = {}  # step -> (lane, count, event) after its work
        self._on_host: list[Waiting] = []  # steps that wait for the host
        self._tickets: dict = {}  # group -> [tickets given, calls issued]
        self._next = {"gemm": 0, "out": 0}
        self._op, self._fences = 0, 0
        self._marks: dict[int, list] = {}
        self._capturing = False
        for lane in self._lanes.values():
            lane.count, lane.seen = 0, {}
        self._published = not any(0 in fences for fences in self.remote_reads.values())
        same = self._ran == self._scalars != self._captured_for
        if self._replays and same and self.timeline is None:
            self._capture()

    def _waits_only_at_the_end(self) -> bool:
        """Whether the host can launch all steps without waiting: no rank is remote, and there are
        no signals or collective steps except a Fence at the end."""
        fences = [step.index for step in self.steps if type(step) is Fence]
        at_end = all(t == len(self.steps) - 1 for t in fences)
        some = bool(self._lanes)  # a rank without work launches nothing
        waits = self._serves or self.calls or self.inbox is not None
        return some and at_end and not waits

    @property
    def _scalars(self) -> tuple[float, float]:
        """Alpha and beta, which are part of the launches."""
        return self.alpha, self.beta

    def _capture(self) -> None:
        """Capture the launches of a run, which repeats then launch at once: launching step by step
        takes the host longer than a small GEMM takes on a GPU."""
        self._reserve()
        lanes, self._capturing = list(self._lanes.values()), True
        self._captured_for = self._scalars
        self._graph = self.device.capture([lane.stream for lane in lanes], self._launch_steps)
        self._graph_bytes = dict(self.bytes)
        self.prepare()

    # -- the loop
    # ---------------------------------------------------------------------------------------------

    def _reserve(self) -> None:
        """Let GEMMs leave processors to reductions, if there are any; executors share lanes."""
        for lane in self._lanes.values():
            if lane.multiplies and lane.concurrent_sums != self._sums:
                self.device.reserve(lane.stream, self._sums)
                lane.concurrent_sums = self._sums

    def _run(self) -> None:
        self._reserve()
        if self.timeline is not None:
            zero = self.device.event(timed=True)
            stream = self._lane("gemm0").stream
            stream.record(zero)
            stream.synchronise()
            began = Clock.now()
        if self._captured_for == self._scalars and self.timeline is None:
            self._graph()
            self.bytes.update(self._graph_bytes)
            if type(self.steps[-1]) is Fence:
                for _ in self._fence(self.steps[-1].index):
                    os.sched_yield()
        else:
            self._launch_steps()
        self._ran = self._scalars
        for lane in self._lanes.values():
            if self._serves:
                for _ in until(self.device, lane.stream):
                    self.comm.Iprobe()  # remote ranks may still read, add or receive
            lane.stream.synchronise()
        if self.timeline is not None:
            for t, (start, stop) in self._marks.items():
                if not isinstance(start, float):
                    start, stop = (began + event.seconds_since(zero) for event in (start, stop))
                self.timeline.append((t, start, stop))

    def _launch_steps(self) -> None:
        """Launch every step as soon as possible."""
        if not self._published:
            self._on_host.append(self._publish())
        self._begin_signals()
        schedule, order, delayed = self._schedule, self._order, []
        while schedule.pending or self._on_host:
            launched = False
            todo, delayed = [*delayed, *schedule.take()], []
            for t in sorted(todo):
                if not order.may(t):
                    delayed.append(t)
                    continue
                launched = True
                self._STARTERS[type(self.steps[t])](self, t)
                if self.steps[t].group is None:
                    order.passed(t)
            while (t := schedule.next_compute()) is not None and order.may(t):
                launched = True
                self._STARTERS[type(self.steps[t])](self, t)
                if self._on_host:
                    break
            if self._on_host:
                self._on_host = [
                    waiting for waiting in self._on_host if next(waiting, self) is not self
                ]
                if not launched:
                    os.sched_yield()

    # -- streams and edges
    # ------------------------------------------------------------------------------------------

    def _lane(self, name: str) -> Lane:
        if self._single:
            name = "all"
        lane = self._lanes.get(name)
        if lane is None:
            multiplies = self._single or name.startswith("gemm")
            lane = self._lanes[name] = Lane(name, self.device.stream(name, multiplies), multiplies)
        return lane

    def _next_lane(self, kind: str) -> Lane:
        """The next of the streams for GEMMs, or for accumulates."""
        number = self._next[kind]
        self._next[kind] = (number + 1) % self._max[kind]
        return self._lane(f"{kind}{number}")

    def _begin(self, lane: Lane, t: int) -> None:
        """Let a lane wait for all edges of a step."""
        if self.lookahead.lowered and self.lookahead.before[t] != self._op:
            self._join(self.lookahead.before[t])
        for s in self._edges[t]:
            point = self._points.get(s)
            if point is not None:
                lane.wait(*point)
            elif s in self._by_flag:
                self._await_flag(lane, s)
        if self.device.poisons and t in self.buffers:
            self.device.poison(self.buffers[t], lane.stream)
        if self.timeline is not None:
            self._marks[t] = [self._mark(lane), None]

    def _join(self, op: int) -> None:
        """Start a new operation of a lowered program: its steps wait for all steps of the operation
        before."""
        self._op = op
        points = [(lane, self.device.spare_event()) for lane in self._lanes.values()]
        for lane, event in points:
            lane.record(event)
        for lane in self._lanes.values():
            for other, event in points:
                lane.wait(other, other.count, event)
        for _, event in points:  # after the launch of the wait the point is not needed
            self.device.give_back(event)

    def _launched(self, t: int, lane: Lane) -> None:
        """Mark a step whose work is in the lane as launched."""
        event = self._events.get(t)
        if event is not None:
            lane.record(event)
            self._points[t] = lane, lane.count, event
        if self.timeline is not None:
            self._marks[t][1] = self._mark(lane)
        if self.steps[t].group is not None:
            self._order.passed(t)
        self._schedule.finish(t)

    def _mark(self, lane: Lane) -> Event:
        event = self.device.event(timed=True)
        lane.stream.record(event)
        return event

    def _reached(self, lane: Lane) -> Waiting:
        """Let the host wait until a lane has done all operations given before this call."""
        return until(self.device, lane.stream)

    def _all_reached(self) -> Waiting:
        for lane in list(self._lanes.values()):
            yield from until(self.device, lane.stream)

    # -- communication steps
    # ----------------------------------------------------------------------------------------

    def _publish(self) -> Waiting:
        """Make the operands visible to remote ranks."""
        for name, fences in sorted(self.remote_reads.items()):
            if 0 in fences:
                yield from self.matrices[name].publishing(self._lane("out0").stream)
        yield from completed(self.comm.Ibarrier())
        self._published = True

    def _start_one_sided(self, t: int) -> None:
        """Read, write or add: at once if the block is mapped, else by the host."""
        step, device = self.steps[t], self.device
        block, matrix, reads = step.block, self.matrices[step.block.matrix], isinstance(step, Get)
        lane = self._peer_lane("in", block.owner) if reads else self._next_lane("out")
        value = self.values[t if reads else step.inputs[0].index]
        # in another rank's memory, the same in every repeat; None if it is not mapped
        there = remembered(self._views, t, lambda: matrix.view(block))
        self.bytes[step.counter] += self._nbytes(block)
        self._begin(lane, t)
        if there is None:
            start = self._get_remote if reads else self._accumulate_remote
            self._on_host.append(start(t, lane, value, matrix))
            return
        if reads:
            device.copy(value, there, lane.stream)
        elif type(step) is Put:
            device.copy(there, value, lane.stream)
        else:
            device.accumulate(there, value, lane.stream, matrix.guard(block))
        self._launched(t, lane)

    def _get_remote(self, t: int, lane: Lane, value, matrix) -> Waiting:
        """Read from a remote rank."""
        block = self.steps[t].block
        landed = value if matrix.direct else self._twins.of(value)
        yield from self._reached(lane)
        while not self._published:
            yield
        yield from completed(matrix.outgoing.rget(landed, block.owner, matrix.locate(block)))
        if landed is not value:
            self.device.copy(value, landed, lane.stream)
        self._launched(t, lane)

    def _accumulate_remote(self, t: int, lane: Lane, value, matrix) -> Waiting:
        """Add to the mirror of a remote rank."""
        block, twin = self.steps[t].block, self._twins.of(value)
        self.device.copy(twin, value, lane.stream)
        yield from self._reached(lane)
        yield from completed(matrix.incoming.raccumulate(twin, block.owner, matrix.locate(block)))
        self._launched(t, lane)

    def _start_fence(self, t: int) -> None:
        if self._capturing:
            self._schedule.finish(t)
        else:
            self._on_host.append(self._finish_fence(t))

    def _finish_fence(self, t: int) -> Waiting:
        yield from self._fence(t)
        self._order.passed(t)
        self._schedule.finish(t)

    def _fence(self, t: int) -> Waiting:
        began = Clock.now()
        yield from self._all_reached()
        while not self._published:  # its barrier and ours have the same ranks: same order on all
            yield
        self._fences += 1
        written = self.trace.written
        yield from self.matrices[written].fencing(
            self._lane("out0").stream, self._fences in self.remote_reads.get(written, ())
        )
        if self.timeline is not None:
            self._marks[t] = [began, Clock.now()]

    def _start_group(self, t: int) -> None:
        step, call = self.steps[t], self.calls[t]
        lane = self._lane(step.group.name)
        self.bytes["collective_bytes"] += self._moved[t]
        self._begin(lane, t)
        for target, source in call.before:
            self.device.copy(target, source, lane.stream)
        if call.onto and (beta := self._beta(step.beta)):
            for target, own in call.onto:
                if beta != 1.0:  # the sum will overwrite it
                    self.device.scale(own, beta, lane.stream)
                self.device.add(target, own, lane.stream)
        if call.issue is None:
            self._unpack(t, call, lane)
        elif step.group in self._groups:
            issue(self._groups[step.group], step, call.sent, call.received, lane.stream)
            self._unpack(t, call, lane)
        else:
            self._on_host.append(self._group_by_mpi(t, step, call, lane))

    def _group_by_mpi(self, t: int, step, call, lane: Lane) -> Waiting:
        """Issue a shift or collective on the host."""
        tickets = self._tickets.setdefault(step.group, [0, 0])
        ticket, tickets[0] = tickets[0], tickets[0] + 1
        sent, received = call.sent, call.received
        if self._staged:
            sent, received = self._twins.of(sent), self._twins.of(received)
            if sent is not None and sent.size:
                self.device.copy(sent, call.sent, lane.stream)
        yield from self._reached(lane)
        while tickets[1] != ticket:  # members issue in the same order
            yield
        requests = call.issue(sent, received)
        tickets[1] += 1
        while not MPI.Request.Testall(requests):
            yield
        if self._staged and received is not None and received.size:
            self.device.copy(call.received, received, lane.stream)
        self._unpack(t, call, lane)

    def _unpack(self, t: int, call, lane: Lane) -> None:
        for target, source in call.after:
            self.device.copy(target, source, lane.stream)
        self._launched(t, lane)

    # -- computes
    # ---------------------------------------------------------------------------------------------

    def _begin_compute(self, t: int) -> Lane:
        lane = self._next_lane("gemm")
        self._begin(lane, t)
        return lane

    def _start_gemm(self, t: int) -> None:
        lane, device = self._begin_compute(t), self.device
        for a, b, c, beta in self.gemms[t]:
            if self.alpha:
                device.gemm(a, b, c, self._beta(beta), lane.stream, self.alpha)
            else:  # a and b are not read
                device.scale(c, self._beta(beta), lane.stream)
        self._launched(t, lane)

    def _start_add(self, t: int) -> None:
        step = self.steps[t]
        if step.concurrent:
            self._start_reduction(t)
            return
        lane = self._begin_compute(t)
        for target, value in self.copies[t]:
            self.device.add(target, value, lane.stream)
        self._launched(t, lane)

    def _start_copy(self, t: int) -> None:
        lane, device, beta = self._begin_compute(t), self.device, self._beta(self.steps[t].beta)
        if beta:
            self._scale(t, beta, lane)
        for destination, value in self.copies[t]:
            (device.add if beta else device.copy)(destination, value, lane.stream)
        self._launched(t, lane)

    def _start_zero(self, t: int) -> None:
        lane, beta = self._begin_compute(t), self._beta(self.steps[t].beta)
        if beta:
            self._scale(t, beta, lane)
        else:
            self.device.zero(self.values[t], lane.stream)
        self._launched(t, lane)

    def _scale(self, t: int, beta: float, lane: Lane) -> None:
        """Multiply the target of a step, one array of a tile, by beta."""
        if beta != 1.0:
            self.device.scale(self.values[t], beta, lane.stream)

    _STARTERS = table_of_steps(
        "the executor on devices",
        {
            (*READS, *WRITES): _start_one_sided,
            Fence: _start_fence,
            GROUP_STEPS: _start_group,
            (Push, Offer): DeviceSignals._start_push,  # offered values are in place
            (Await, Take): DeviceSignals._start_await,
            VIEWS: ExecutorBase._start_view,
            Gemm: _start_gemm,
            Add: _start_add,
            Copy: _start_copy,
            Zero: _start_zero,
            (Scratch, OperationEnd): None,  # takes no time; is in no trace
        },
    )

    # -- the end
    # ---------------------------------------------------------------------------------------------

    def close(self) -> None:
        for lane in self._lanes.values():
            lane.stream.synchronise()
        self._close_signals()
        super().close()
        self._twins = self._graph = None
        if self._memory is not None:
            self._memory.free()
