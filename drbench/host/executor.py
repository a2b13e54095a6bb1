"""Execute the trace of any program on MPI, with overlap.

One loop asks the scheduler which steps may start, starts them, finishes those whose transfers have
completed, and computes. Everything that a repeat uses (views, receive buffers, scratch, BLAS calls)
is laid out when the executor is made; the timed region plans and allocates nothing.
"""

import os
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
from mpi4py import MPI

from drbench.clock import Clock
from drbench.program.kinds import (
    ADDS,
    COMPUTES,
    GROUP_STEPS,
    READS,
    SIGNAL_STEPS,
    VIEWS,
    WRITES,
    table_of_steps,
)
from drbench.program.problem import product_flops
from drbench.program.signal_steps import Await, Offer, Push, Signal, Take
from drbench.program.steps import (
    Accumulate,
    Add,
    Copy,
    Fence,
    Gemm,
    OperationEnd,
    Put,
    ReplicaAdd,
    Scratch,
    Zero,
)
from drbench.program.trace import Trace

from .blas import Blas, cuts, load_blas
from .collectives import Call
from .executor_base import ExecutorBase
from .inbox import shaped
from .matrix import Window
from .throttle import Throttle

_SEGMENT_S = 0.020  # a GEMM is cut along k into segments of about this time
_FIRST_FLOPS_PER_S = 5e10  # until a GEMM has been timed ...
_TIMED_S = 1e-3  # ... that took at least this long
#: The phase of idle time, by the step that the rank waits for: the one with the lowest number.
_WAITS = table_of_steps(
    "waits of the executor on cores",
    {
        Fence: (0, "fence"),
        READS: (1, "get_wait"),
        GROUP_STEPS: (2, "collective_wait"),
        SIGNAL_STEPS: (3, "get_wait"),
        WRITES: (4, "accumulate"),
        (*COMPUTES, Scratch, *VIEWS, OperationEnd): None,  # never waited for
    },
)


class _Gemm(NamedTuple):
    """One GEMM on plain arrays, c = beta·c + alpha·a·b, run by ``call(beta, alpha)``; ``beta`` None
    is that of the run."""

    a: np.ndarray
    b: np.ndarray
    c: np.ndarray
    beta: float | None
    call: Callable[[float, float], None]
    flops: int


class Executor(ExecutorBase):
    """One rank's trace on one set of matrices, which can be run repeatedly.

    Parameters
    ----------
    trace : Trace
    matrices : dict of str to DistributedMatrix
        The matrices the steps name.
    blas : Blas, optional
    prefetch : int or str
        Look-ahead of :mod:`drbench.plan.schedule`, in exposed computes, or ``"all"``.
    get : str
        ``"view"`` reads ranks whose memory is mapped in place; ``"copy"`` copies first.
    throttle : Throttle, optional
        Delays the completion of transfers between ranks.
    arena : callable, optional
        As of :class:`~drbench.host.executor_base.ExecutorBase`.

    Attributes
    ----------
    clock : Clock
        Receives the phases of each run.
    polls : bool
        Cut a long GEMM along k while a transfer is awaited, or other ranks access this one by RMA,
        and poll between the segments; True unless it is set.
    yields : bool
        Yield the core when idle, and between GEMMs (more ranks than cores); True unless it is set.

    Notes
    -----
    Own cost: a few microseconds a step (``benchmarks/core.py executor``).
    """

    polls = yields = True

    def __init__(
        self,
        trace: Trace,
        matrices: dict,
        *,
        blas: Blas | None = None,
        prefetch: int | str = 1,
        get: str = "view",
        throttle: Throttle | None = None,
        arena: Callable[[int], np.ndarray] | None = None,
    ):
        self.blas, self.clock, self.throttle = blas or load_blas(), Clock(), throttle
        self._serves = any(matrix.serves_rma or matrix.uses_rma for matrix in matrices.values())
        super().__init__(trace, matrices, prefetch, get, throttle is not None, arena)
        if self.inbox is not None:
            self._serves |= self.inbox.sends_messages
        self._flops_per_s = _FIRST_FLOPS_PER_S
        self.prepare()

    def _bind(self, matrices: dict) -> None:
        super()._bind(matrices)
        problem = self.trace.problem
        self._conjugated = problem.conjugated if problem else ""
        prepare = partial(self.blas.prepare_gemm, conjugated=self._conjugated)
        flops = product_flops(problem.dtype) if problem else 2
        self._calls = {
            t: [
                _Gemm(a, b, c, beta, prepare(a, b, c), flops * a.size * b.shape[1])
                for a, b, c, beta in arrays
            ]
            for t, arrays in self.gemms.items()
        }
        done = {*self.resolved, *self._calls}
        if not self._serves and all(x.alias or x.index in done for x in self.steps):
            self.gemm_calls = [gemm for gemms in self._calls.values() for gemm in gemms]
        #: Messages that send values, or signals, to ranks whose memory is not mapped.
        self._sends: dict[int, MPI.Prequest] = {}
        if self.inbox is not None:
            for step in self.steps:
                if isinstance(step, Signal) and step.sends and not self.inbox.is_local(step.index):
                    value = self._operand(step) if type(step) is Push else None
                    self._sends[step.index] = self.inbox.sender(step.index, value)

    def _message(self, array) -> list:
        return self.window.message(array)

    def _adds_itself(self, step: Accumulate) -> bool:
        """Whether this rank adds a partial sum in place, without MPI."""
        matrix = self.matrices[step.block.matrix]
        protocols = matrix.between if type(step) is ReplicaAdd else matrix.protocols
        return protocols[step.block.replica] != "mpi"

    def _let_go(self) -> None:
        for message in self._sends.values():
            message.Free()
        self._sends, self._calls = {}, {}
        super()._let_go()

    def prepare(self) -> None:
        super().prepare()
        self._watching = 0  # awaited flags of others
        self._requests: list = []
        self._request_steps: list[int] = []
        self._timers: list = []  # (due, step), by start
        self._adds: list[int] = []  # accumulates waiting for a lock
        self._left: dict[int, int] = {}  # requests still open, of steps with several
        self._due: dict[int, float] = {}  # when a group step ends on a throttled ring
        self._began: dict[int, float] = {}  # for the timeline

    @property
    def window(self) -> Window:
        """The window of the written matrix."""
        return self.matrices[self.trace.written].window

    # -- the loop
    # ---------------------------------------------------------------------------------------------

    def _run(self) -> None:
        """Start, finish and compute steps until none is left."""
        if self.gemm_calls and self.timeline is None:
            with self.clock.phase("gemm"):
                for gemm in self.gemm_calls:
                    gemm.call(self._beta(gemm.beta), self.alpha)
            return
        schedule = self._schedule
        while schedule.pending:
            self._pump()
            t = schedule.next_compute()
            if t is None:
                if schedule.pending:
                    self._idle()
                continue
            self._start(t)
            if self.yields:
                # send the new value before another rank, which may wait for it, gets the core; the
                # kernel would switch only at its next clock tick, too late
                self._pump()
                os.sched_yield()

    def _pump(self) -> bool:
        """Start steps that may start and finish completed ones until nothing changes. Never
        blocks."""
        schedule, any_moved = self._schedule, False
        while True:
            moved = False
            for t in schedule.take():
                moved = True
                self._start(t)
            if self._requests:
                for x in sorted(MPI.Request.Testsome(self._requests) or (), reverse=True):
                    t = self._request_steps.pop(x)
                    self._requests.pop(x)
                    moved = True
                    self._arrived(t)
            if self._timers:
                now = self.clock.now()
                due = [t for when, t in self._timers if when <= now]
                if due:
                    self._timers = [entry for entry in self._timers if entry[0] > now]
                    for t in due:
                        self._finish(t)
                    moved = True
            if self._watching:
                for t in self.inbox.arrived():
                    moved = True
                    self._watching -= 1
                    self._receive(t)
            if self._adds:
                waiting, self._adds = self._adds, []
                for t in waiting:
                    moved |= self._try_add(t)
            any_moved |= moved
            if not moved:
                return any_moved

    def _idle(self) -> None:
        """Wait while there is nothing to compute, and count the time in its phase."""
        waited = (*self._request_steps, *(t for _, t in self._timers))
        flags = (3, "get_wait") if self._watching else (4, "accumulate")
        _, name = min([flags, *(_WAITS[type(self.steps[t])] for t in waited)])
        clock, start = self.clock, self.clock.now()
        while not self._pump():
            if not self._requests:
                self._serve()
            if self.yields:
                os.sched_yield()
            clock.seconds[name] += clock.now() - start
            start = clock.now()

    def _serve(self) -> None:
        """Let MPI progress for the ranks that access this one by RMA."""
        self.comm.Iprobe()

    def _start(self, t: int) -> None:
        """Start a communication step; run a compute."""
        if self.timeline is not None:
            self._began[t] = self.clock.now()
        self._STARTERS[type(self.steps[t])](self, t)

    # -- communication steps
    # --------------------------------------------------------------------------------------

    def _request(self, t: int, request: MPI.Request) -> None:
        self._requests.append(request)
        self._request_steps.append(t)

    def _arrived(self, t: int) -> None:
        """Handle the completion of an MPI request."""
        if type(self.steps[t]) is Take and t not in self._left:
            self._left[t] = 1  # the request of the read
            self._read_offered(t)
            return
        left = self._left.get(t, 1) - 1
        if left:
            self._left[t] = left
            return
        call = self.calls.get(t)
        if call is not None:
            self._unpack(t, call)
        else:
            if type(self.steps[t]) is Fence:
                self.window.sync()
            self._finish(t)

    def _finish(self, t: int) -> None:
        """Finish a step."""
        if self.timeline is not None:
            self.timeline.append((t, self._began[t], self.clock.now()))
        self._schedule.finish(t)

    def _finish_at(self, due: float, t: int) -> None:
        """Finish a step at this time of the clock, or now if that is past."""
        if due <= self.clock.now():
            self._finish(t)
        else:
            self._timers.append((due, t))

    def _done_in_place(self, t: int, direction: str, nbytes: int) -> None:
        """Finish a transfer by loads and stores: at once, or when the throttled link would have
        delivered it."""
        if self.throttle is None or not nbytes:
            self._finish(t)
        else:
            self._finish_at(self.throttle.due(direction, nbytes, self.clock.now()), t)

    def _start_group(self, t: int) -> None:
        """Pack the data to send, and issue the shift or collective."""
        call = self.calls[t]
        if call.before:
            with self.clock.phase("pack"):
                for target, source in call.before:
                    np.copyto(target, source)
        if call.onto and (beta := self._beta(self.steps[t].beta)):
            with self.clock.phase("pack"):
                for target, own in call.onto:
                    if beta != 1.0:  # the sum will overwrite it
                        np.multiply(own, beta, out=own)
                    np.add(target, own, out=target)
        self.bytes["collective_bytes"] += self._moved[t]
        if call.issue is None:
            self._unpack(t, call)
            return
        if self.throttle is not None:
            self._due[t] = self.throttle.due(call.link, call.nbytes, self.clock.now(), call.hops)
        with self.clock.phase("collective_wait"):
            requests = call.issue(call.sent, call.received)  # MPI may do some of the work here
        self._left[t] = len(requests)
        for request in requests:
            self._request(t, request)

    def _unpack(self, t: int, call: Call) -> None:
        """Unpack the received data of a group step."""
        if call.after:
            with self.clock.phase("pack"):
                for target, source in call.after:
                    np.copyto(target, source)
        self._finish_at(self._due.pop(t, 0.0), t)

    def _start_get(self, t: int) -> None:
        step = self.steps[t]
        block, value = step.block, self.values[t]
        nbytes = self._nbytes(block)
        matrix = self.matrices[block.matrix]
        source = matrix.view(block)
        if source is None:
            self.bytes[step.counter] += nbytes
            self._request(t, matrix.rget(value, block))
            return
        if value.flags.writeable:  # a buffer: -o get=copy, or a packed operand
            with self.clock.phase("get_wait" if step.onto is None else "pack"):
                np.copyto(value, source)
            self.bytes[step.counter] += nbytes
        else:
            self.bytes[step.counted(True)] += nbytes
        self._done_in_place(t, "in", nbytes)

    def _start_put(self, t: int) -> None:
        step = self.steps[t]
        block, value = step.block, self._operand(step)
        matrix = self.matrices[block.matrix]
        target, nbytes = matrix.view(block), self._nbytes(block)
        self.bytes["put_bytes"] += nbytes
        if target is None:
            self._request(t, matrix.rput(value, block))
            return
        np.copyto(target, value)
        self._done_in_place(t, "out", nbytes)

    def _start_accumulate(self, t: int) -> None:
        step = self.steps[t]
        block = step.block
        matrix = self.matrices[block.matrix]
        self.bytes[step.counter] += self._nbytes(block)
        if not self._adds_itself(step):
            with self.clock.phase("accumulate"):
                self._request(t, matrix.raccumulate(self._operand(step), block))
        else:
            self._try_add(t)  # again in _pump, if its lock is taken

    def _try_add(self, t: int) -> bool:
        step = self.steps[t]
        start = self.clock.now()
        value, block = self._operand(step), step.block
        if not self.matrices[block.matrix].add(value, block):
            self._adds.append(t)  # tried again; the time counts as waiting
            return False
        self.clock.seconds["accumulate"] += self.clock.now() - start
        self._done_in_place(t, "out", self._nbytes(block))
        return True

    def _start_push(self, t: int) -> None:
        """Set the flag of a value, after a copy into its slot, or in place if it is offered; store
        words with flags; or send a message."""
        step, route, message = self.steps[t], self.inbox.routes[t], self._sends.get(t)
        value, due = self._operand(step), 0.0
        if type(step) is Push:
            self.bytes["put_bytes"] += value.nbytes
            if message is None:
                if route.words is None:
                    slot = route.place.view(value.dtype)
                    np.copyto(shaped(slot, value.shape, step.inputs[0].transposed), value)
                if self.throttle is not None:
                    # the receiver waits for the link: this rank may be in a GEMM when it is done
                    nbytes = value.nbytes * (1 + step.flagged)
                    due = self.throttle.due("out", nbytes, self.clock.now())
        if message is not None:
            self.inbox.window.sync()
            message.Start()
            self._request(t, message)
            return
        if route.words is None:
            self.inbox.signal(route, due)
        else:
            stored = value.T if step.inputs[0].transposed else value
            self.inbox.store_words(route, stored.reshape(-1), due)
        self._finish_at(due, t)

    def _start_await(self, t: int) -> None:
        """Start polling for a flag, or for a message."""
        if self.inbox.is_local(t):
            self._watching += 1
            self.inbox.watch(t)
        else:
            self._request(t, self.inbox.receiver(t))

    def _receive(self, t: int) -> None:
        """Receive a value whose flag is set; on a throttled link it is complete later."""
        if type(self.steps[t]) is Take:
            self._read_offered(t)
            return
        self._finish_at(self.inbox.dues[self.inbox.routes[t].number], t)

    def _read_offered(self, t: int) -> None:
        """Read an offered value whose signal has arrived."""
        value, column_major = self.values[t], self.steps[t].transposed
        if not self.inbox.is_local(t):
            self.bytes["get_bytes"] += value.nbytes
            self._request(t, self.inbox.read(t, value, column_major))
            return
        if value.flags.writeable:  # a buffer: -o get=copy
            with self.clock.phase("get_wait"):
                np.copyto(value, self.inbox.offered_view(t, value.shape, column_major, value.dtype))
            self.bytes["get_bytes"] += value.nbytes
        else:
            self.bytes["direct_bytes"] += value.nbytes
        self._done_in_place(t, "in", value.nbytes)

    def _start_fence(self, t: int) -> None:
        with self.clock.phase("fence"):
            self.window.flush()
            self.window.sync()
            self._request(t, self.comm.Ibarrier())

    # -- computes
    # ---------------------------------------------------------------------------------------------

    def _start_add(self, t: int) -> None:
        with self.clock.phase("accumulate"):
            for target, value in self.copies[t]:
                np.add(target, value, out=target)
        self._finish(t)

    def _start_copy(self, t: int) -> None:
        with self.clock.phase("accumulate"):
            beta = self._beta(self.steps[t].beta)
            if beta:
                self._scale(t, beta)
            for destination, value in self.copies[t]:
                if beta:
                    np.add(destination, value, out=destination)
                else:
                    np.copyto(destination, value)
        self._finish(t)

    def _start_zero(self, t: int) -> None:
        with self.clock.phase("accumulate"):
            beta = self._beta(self.steps[t].beta)
            if beta:
                self._scale(t, beta)
            else:
                self.values[t].fill(0)
        self._finish(t)

    def _scale(self, t: int, beta: float) -> None:
        """Multiply the target of a step, one array of a tile, by beta."""
        if beta != 1.0:
            np.multiply(self.values[t], beta, out=self.values[t])

    def _start_gemm(self, t: int) -> None:
        for gemm in self._calls[t]:
            beta = self._beta(gemm.beta)
            if gemm.flops > self._flops_per_s * _SEGMENT_S and self._awaits():
                self._gemm_in_segments(gemm, beta)
            else:
                with self.clock.phase("gemm"):
                    gemm.call(beta, self.alpha)
                if self._serves and not self._requests:
                    self._serve()
        self._finish(t)

    def _awaits(self) -> bool:
        """Whether this rank must poll while it computes."""
        return self.polls and bool(self._serves or self._requests or self._watching or self._timers)

    def _gemm_in_segments(self, gemm: _Gemm, beta: float) -> None:
        """Cut a GEMM along k (which costs BLAS least) and poll between the segments, while a
        transfer is awaited."""
        a, b, c = gemm.a, gemm.b, gemm.c
        k = a.shape[1]
        ends = cuts(k, round(gemm.flops / (self._flops_per_s * _SEGMENT_S)))
        spent, start_k = 0.0, 0
        for end_k in ends:
            if not self._awaits():
                end_k = k  # the rest at once
            start = self.clock.now()
            with self.clock.phase("gemm"):
                segment = a[:, start_k:end_k], b[start_k:end_k], c
                factors = 1.0 if start_k else beta, self.alpha
                self.blas.gemm(*segment, *factors, self._conjugated)
            spent += self.clock.now() - start
            start_k = end_k
            if not self._requests:
                self._serve()
            self._pump()
            if end_k == k:
                break
            if self.yields:
                os.sched_yield()
        if spent > _TIMED_S:
            self._flops_per_s = gemm.flops / spent

    _STARTERS = table_of_steps(
        "the executor on cores",
        {
            READS: _start_get,
            Put: _start_put,
            ADDS: _start_accumulate,
            Fence: _start_fence,
            GROUP_STEPS: _start_group,
            (Push, Offer): _start_push,
            (Await, Take): _start_await,
            VIEWS: ExecutorBase._start_view,
            Gemm: _start_gemm,
            Add: _start_add,
            Copy: _start_copy,
            Zero: _start_zero,
            (Scratch, OperationEnd): None,  # takes no time; is in no trace
        },
    )
