"""The executor: runs the trace of any program on MPI, with overlap.

One loop asks the scheduler what may start, starts it, completes what has completed, and computes.
Everything a repeat touches (views, receive buffers, scratch) is laid out when the executor is made;
while the clock runs nothing is planned or allocated.
"""

import os
import threading
from collections.abc import Callable, Collection, Mapping
from itertools import accumulate
from math import inf
from typing import NamedTuple

import numpy as np
from mpi4py import MPI

from drbench.common import Clock
from drbench.plan.signals import handed_whole, relays
from drbench.program.group_steps import GroupStep
from drbench.program.signal_steps import Push, Signal, Take
from drbench.program.steps import (
    Accumulate,
    Add,
    Combine,
    Copy,
    Fence,
    Gemm,
    Get,
    ReplicaAdd,
    Zero,
)
from drbench.program.trace import Trace

from .blas import Blas, cuts, load_blas, prepared
from .collectives import Call
from .frame import Frame
from .matrix import Window
from .throttle import Throttle

#: Who drives MPI while this rank computes: the Gemm split along k with polls between, a thread, or
#: nobody.
PROGRESS = ("poll", "thread", "none")

_CHUNK_S = 0.020  # a Gemm is cut along k into chunks of about this long
_FIRST_FLOPS_PER_S = 5e10  # until a Gemm has been timed ...
_TIMED_S = 1e-3  # ... that took at least this long
_NAP_S = 5e-4  # between two polls of the progress thread
_ADD_BYTES_PER_S = 4e9  # about as fast as a product that was made aside is added
#: The phase that idle time counts as: of the first kind that is waited for.
_WAITS = (
    (Fence, "fence"),
    (Get, "get_wait"),
    (GroupStep, "collective_wait"),
    (Signal, "get_wait"),
)


class Joined(NamedTuple):
    """A part of a kernel that lies below others in memory.

    Attributes
    ----------
    rows : tuple of ndarray
        A and C of all of them, and B: (A, B, C); the same object for all.
    start, stop : int
        This part's rows of A and C.
    """

    rows: tuple
    start: int
    stop: int


def joined_products(
    steps: list, values: list, apart: Collection[int], goes: Mapping[int, Collection[int]]
) -> dict[int, Joined]:
    """The parts of kernels that may be multiplied at once: they follow each other, and lie one
    below the other, in A and in C; ``apart`` are those in strips.

    Parts whose values are handed on are left alone, for what leaves early hides its way behind the
    rest; but not those of ``goes``, which says to whom, where there is no way to hide.
    """
    found: dict[int, Joined] = {}
    run: list[Gemm] = []
    home = lambda step: "own" if step.block is not None else goes.get(step.index)

    def end() -> None:
        if len(run) > 1:
            tops = [0, *accumulate([step.inputs[0].shape[0] for step in run])]
            a, b, c = _operands(run[0], values)
            rows = _lower(a, tops[-1]), b, _lower(c, tops[-1])
            for step, start, stop in zip(run, tops, tops[1:]):
                found[step.index] = Joined(rows, start, stop)
        run.clear()

    for step in steps:
        if not step.computes:
            continue
        part = type(step) is Gemm and step.kernel is not None and home(step) is not None
        if not part or step.index in apart or 0 in _operands(step, values)[0].shape:
            end()
            continue
        if run and not (home(run[-1]) == home(step) and _follows(run[-1], step, values)):
            end()
        run.append(step)
    end()
    return found


def _operands(step: Gemm, values: list) -> tuple:
    a, b = step.inputs[:2]
    return values[a.index], values[b.index], values[step.index]


def _follows(one: Gemm, two: Gemm, values: list) -> bool:
    """Whether two parts of a kernel are one product of arrays twice as high."""
    if one.kernel is not two.kernel or one.beta != two.beta:
        return False
    (a, b, c), (a2, b2, c2) = _operands(one, values), _operands(two, values)
    return (
        b.ctypes.data == b2.ctypes.data
        and b.shape == b2.shape
        and b.strides == b2.strides
        and all(
            upper.strides == lower.strides
            and upper.shape[1] == lower.shape[1]
            and upper.dtype == lower.dtype
            and upper.ctypes.data + upper.shape[0] * upper.strides[0] == lower.ctypes.data
            for upper, lower in ((a, a2), (c, c2))
        )
    )


def _same_run(joined: dict[int, Joined], one: int, two: int) -> bool:
    """Whether two parts lie one below the other, in one run of parts."""
    return one in joined and two in joined and joined[one].rows is joined[two].rows


def _rows(joined: dict[int, Joined], parts: list[int]) -> tuple:
    """A, B and C of parts that follow each other in a run."""
    (a, b, c), low, _ = joined[parts[0]]
    high = joined[parts[-1]].stop
    return a[low:high], b, c[low:high]


def _lower(array: np.ndarray, rows: int) -> np.ndarray:
    """The array with as many rows, down into what lies below it."""
    return np.lib.stride_tricks.as_strided(
        array, (rows, array.shape[1]), array.strides, subok=True, writeable=array.flags.writeable
    )


class Executor(Frame):
    """One rank's trace on one set of matrices; run as often as wanted.

    Parameters
    ----------
    trace : Trace
    matrices : dict of str to DistributedMatrix
        The matrices the steps name.
    blas : Blas, optional
    clock : Clock, optional
        Receives the phases of each run.
    prefetch : int or str
        Look-ahead of :mod:`drbench.plan.schedule`, in exposed computes, or ``"all"``.
    get : str
        ``"view"`` reads reachable ranks in place; ``"copy"`` copies first.
    throttle : Throttle, optional
        Delays the completion of transfers between ranks.
    progress : str
        One of :data:`PROGRESS`; matters only where some rank is reached by RMA.
    yields : bool
        Give the core away when idle, and between products (more ranks than cores).
    arena : callable, optional
        As of :class:`~drbench.host.frame.Frame`.

    Notes
    -----
    Own cost: a few microseconds a step (``benchmarks/core.py executor``).
    """

    def __init__(
        self,
        trace: Trace,
        matrices: dict,
        *,
        blas: Blas | None = None,
        clock: Clock | None = None,
        prefetch: int | str = 1,
        get: str = "view",
        throttle: Throttle | None = None,
        progress: str = "poll",
        yields: bool = True,
        arena: Callable[[int], np.ndarray] | None = None,
    ):
        self.blas, self.clock = blas or load_blas(), clock or Clock()
        self.throttle, self.yields = throttle, yields
        super().__init__(trace, matrices, prefetch, get, throttle is not None, arena)
        serves = any(matrix.serves_rma for matrix in matrices.values())
        self._serves = serves or any(matrix.uses_rma for matrix in matrices.values())
        if self.inbox is not None:
            self._serves |= self.inbox.apart
        needs_progress = self._serves or bool(self.groups)
        self.polls, self.threaded = (
            needs_progress and progress == name for name in ("poll", "thread")
        )
        self._flops_per_s = _FIRST_FLOPS_PER_S
        self._lock = threading.Lock()
        self.prepare()

    def _bind(self, matrices: dict) -> None:
        super()._bind(matrices)
        self._computes = [step.index for step in self.trace.steps if step.computes]
        #: Nothing is waited for, of anyone: all is in order once it is computed in order.
        self._alone = len(self._computes) + len(self.resolved) == len(self.trace.steps)
        goes = self._handed_over()
        self._joined = joined_products(self.trace.steps, self.values, self.products, goes)
        #: Products that are made where they are added to if nobody is adding there, and by which
        #: step; those of them that lie one below the other there.
        self._adding, self._joined_there = self._added_within_reach(), {}
        if self._adding:
            there = [self._target(t) if t in self._adding else x for t, x in enumerate(self.values)]
            self._joined_there = joined_products(self.trace.steps, there, self.products, goes)
        #: What takes values, or word of them, to ranks whose memory is out of reach.
        self._sends: dict[int, MPI.Prequest] = {}
        if self.inbox is not None:
            for step in self.trace.steps:
                if isinstance(step, Signal) and step.sends and not self.inbox.is_near(step.index):
                    value = self.values[step.inputs[0].index] if type(step) is Push else None
                    self._sends[step.index] = self.inbox.sender(step.index, value)
        # where there is no link to keep busy, only what others wait for is looked out for
        near = self.inbox is not None or self.throttle is not None
        self._relays = {t for t in relays(self.trace.steps) if self._hurries(t)} if near else set()
        #: What there is to do in order, of a program that waits for nobody.
        self._batches: list[list | tuple] = []
        self._ready: dict[int, list] | None = None  # step -> its (product, beta) pairs
        self._terms: dict[int, list] = {}  # of a Combine: (value, rows, weights), once it was made

    def _slots_within_reach(self) -> dict[int, int]:
        """Products that are made where they are pushed to: all whose receiver is near by."""
        found = {} if self.inbox is None else handed_whole(self.trace.steps)
        return {made: push for made, push in found.items() if self.inbox.is_near(push)}

    def _added_within_reach(self) -> dict[int, int]:
        """Products that this rank itself adds whole to a tile. With a limited look-ahead there are
        none: it holds up whoever waits for a lock, and a product keeps one for long."""
        if self.lookahead.depth < inf:
            return {}
        steps = self.trace.steps
        # the first of a sum of products is not what is added: that is there once the last is made
        sums = {step.onto.lies_in()[0].index for step in steps if step.computes and step.onto}
        return {
            made: taker
            for made, taker in handed_whole(steps, Accumulate).items()
            if made not in self.products and made not in sums and self._adds_itself(steps[taker])
        }

    def _target(self, made: int) -> np.ndarray:
        """The elements that a product is added to."""
        block = self.trace.steps[self._adding[made]].block
        return self.matrices[block.matrix].view(block)

    def _hurries(self, t: int) -> bool:
        """Whether what a step lets the rank go on with keeps a link busy, or another rank waits for
        it. What comes by a message is polled for anyway."""
        step = self.trace.steps[t]
        if type(step) is Fence:
            return self.throttle is not None
        if not self.inbox.is_near(t):
            return False
        read_in_place = type(step) is Take and not self.values[t].flags.writeable
        return self.throttle is not None or not read_in_place

    def _handed_over(self) -> dict[int, set]:
        """To whom products go that are handed on by this rank's own stores, without a link that
        would be idle meanwhile."""
        found: dict[int, set[int | None]] = {}
        if self.throttle is not None or self.inbox is None:
            return {}
        for step in self.trace.steps:
            if isinstance(step, Signal) and step.sends:
                peer = step.peer if self.inbox.is_near(step.index) else None
            elif type(step) is Accumulate:
                peer = step.block.owner if self._adds_itself(step) else None
            else:
                continue
            found.setdefault(step.inputs[0].lies_in()[0].index, set()).add(peer)
        limited = self.lookahead.depth < inf  # then a place in the arena may be that of an operand
        return {
            t: peers
            for t, peers in found.items()
            if None not in peers and not (limited and t in self.plan.offsets)
        }

    def _adds_itself(self, step: Accumulate) -> bool:
        """Whether a product is added in place, not by MPI."""
        matrix = self.matrices[step.block.matrix]
        protocols = matrix.between if type(step) is ReplicaAdd else matrix.protocols
        return protocols[step.block.replica] != "mpi"

    def _in_batches(self) -> list[list | tuple]:
        """The computes in order: products that follow each other, with nothing to see to in
        between, together as a list of (product, beta); other runs as they are."""
        batches: list[list | tuple] = []
        for run in self._in_runs():
            first = run[0]
            if self._ready is None:  # they are cut
                batches.append(tuple(run))
                continue
            if len(run) > 1:
                arrays = _rows(self._joined, run)
                pairs = [(prepared(self.blas, *arrays), self.trace.steps[first].beta)]
            elif first in self._ready and first not in self.picks:
                pairs = self._ready[first]
            else:
                batches.append(tuple(run))
                continue
            if not batches or type(batches[-1]) is tuple:
                batches.append([])
            batches[-1] += pairs
        return batches

    def _in_runs(self) -> list[list[int]]:
        """The computes in order, parts that lie one below the other together."""
        runs: list[list[int]] = []
        for t in self._computes:
            if runs and self._below(runs[-1][-1], t):
                runs[-1].append(t)
            else:
                runs.append([t])
        return runs

    def _below(self, one: int, two: int) -> bool:
        """Whether both are parts of a kernel, of the same run that lies one below the other."""
        return _same_run(self._joined, one, two)

    def _let_go(self) -> None:
        for message in self._sends.values():
            message.Free()
        self._sends, self._joined, self._ready, self._terms = {}, {}, None, {}
        self._batches = []
        self._adding, self._joined_there = {}, {}
        super()._let_go()

    def prepare(self) -> None:
        super().prepare()
        if self._ready is None and not self.polls:
            self._ready = {
                step.index: [
                    (prepared(self.blas, a, b, c), beta)
                    for a, b, c, beta in self._products_of(step.index, step)
                ]
                for step in self.trace.steps
                if type(step) is Gemm
            }
        if self._alone and not self._batches:
            self._batches = self._in_batches()
        self._watching = 0  # flags of others that are waited for
        self._relaying = self._relays.copy()  # what keeps others waiting until it comes
        self._requests: list = []
        self._request_steps: list[int] = []
        self._timers: list = []  # (due, step), by start
        self._adds: list[int] = []  # accumulates waiting for a lock
        self._added: set[int] = set()  # whose products were made where they are added to
        self._patience = True  # no Fence was waited for in vain
        self._left: dict[int, int] = {}  # requests still open, of steps with several
        self._due: dict[int, float] = {}  # when a throttled ring is done with a group step
        self._began: dict[int, float] = {}  # for the timeline
        self._failure: BaseException | None = None

    def _scheduler(self):
        unasked = self._alone and not (self.threaded or self.polls)
        return None if unasked else super()._scheduler()

    @property
    def windows(self) -> list[Window]:
        """Of the written matrix."""
        return [self.matrices[self.trace.written].window]

    # -- the loop
    # ---------------------------------------------------------------------------------------------

    def _run(self) -> None:
        if self.threaded:
            self._run_with_thread()
        else:
            self._work()

    def _work(self) -> None:
        """Start, complete and compute until nothing is left."""
        if self._batches and self.timeline is None:
            for batch in self._batches:
                if type(batch) is list:
                    self._multiply_all(batch)
                elif len(batch) > 1:
                    self._multiply_joined(list(batch))
                else:
                    self._compute(*batch)
            return
        if self._schedule is None:
            self._schedule = super()._scheduler()
        schedule = self._schedule
        while schedule.pending:
            if self._failure is not None:
                raise self._failure
            self._pump()
            t = schedule.next_compute()
            if t is not None:
                if t in self._adding and self._patience:
                    self._await_fence(t)
                together = self._ready_with(t)
                if together:
                    self._compute_together(together)
                else:
                    if self.timeline is not None:
                        self._began[t] = self.clock.now()
                    self._compute(t)
                    self._finish(t)
                if self.yields:
                    self._give_way()
            elif schedule.pending:
                self._idle()

    def _pump(self) -> bool:
        """Start what may start and complete what has completed until nothing changes. Never
        blocks."""
        schedule, any_moved = self._schedule, False
        while True:
            moved = False
            for t in schedule.take():
                moved = True
                if self.timeline is not None:
                    self._began[t] = self.clock.now()
                self._STARTERS[type(self.trace.steps[t])](self, t)
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
                for t in self.inbox.come():
                    moved = True
                    self._watching -= 1
                    self._come(t)
            if self._adds:
                waiting, self._adds = self._adds, []
                for t in waiting:
                    moved |= self._try_add(t)
            any_moved |= moved
            if not moved:
                return any_moved

    def _give_way(self) -> None:
        """Send off what was just made, and give the core away: who shares it may wait for no more
        than a look at MPI, and would otherwise have its turn when the kernel's clock ticks."""
        self._pump()
        os.sched_yield()

    def _idle(self) -> None:
        """Nothing to compute: wait, and say for what."""
        steps = self.trace.steps
        waited = [steps[t] for t in (*self._request_steps, *(t for _, t in self._timers))]
        found = (name for kind, name in _WAITS if any(isinstance(step, kind) for step in waited))
        name = next(found, "get_wait" if self._watching else "accumulate")
        clock, start = self.clock, self.clock.now()
        while not self._pump():
            if not self._requests:
                self._serve()
            if self.yields:
                os.sched_yield()
            clock.seconds[name] += clock.now() - start
            start = clock.now()

    def _serve(self) -> None:
        """Let MPI make progress for the ranks that reach this one by RMA."""
        self.comm.Iprobe()

    def _run_with_thread(self) -> None:
        """The loop with a second thread that polls while this one is inside BLAS."""
        stop = threading.Event()

        def poll():
            try:
                while not stop.is_set():
                    with self._lock:
                        if not stop.is_set():
                            self._pump()
                            self._serve()
                    stop.wait(_NAP_S)
            except BaseException as error:
                self._failure = error  # the rank's, not only this thread's: the loop raises it

        helper = threading.Thread(target=poll, name="drbench-progress")
        with self._lock:
            helper.start()
            try:
                self._work()
            finally:
                stop.set()
        helper.join()
        if self._failure is not None:  # found after this thread had looked for the last time
            raise self._failure

    # -- communication steps
    # --------------------------------------------------------------------------------------

    def _request(self, t: int, request: MPI.Request) -> None:
        self._requests.append(request)
        self._request_steps.append(t)

    def _arrived(self, t: int) -> None:
        """An MPI request has completed."""
        if type(self.trace.steps[t]) is Take and t not in self._left:
            self._left[t] = 1  # that of the read
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
            if type(self.trace.steps[t]) is Fence:
                for window in self.windows:
                    window.sync()
            self._finish(t)

    def _finish(self, t: int) -> None:
        """A step is done."""
        if self.timeline is not None:
            self.timeline.append((t, self._began[t], self.clock.now()))
        self._relaying.discard(t)
        self._schedule.finish(t)

    def _done_in_place(self, t: int, direction: str, nbytes: int) -> None:
        """A transfer made by loads and stores is complete: at once, or when the throttled link
        would have it."""
        if self.throttle is None or not nbytes:
            self._finish(t)
        else:
            self._timers.append((self.throttle.due(direction, nbytes, self.clock.now()), t))

    def _start_group(self, t: int) -> None:
        """Pack what leaves, and issue the shift or collective."""
        call = self.calls[t]
        if call.before:
            with self.clock.phase("pack"):
                for target, source in call.before:
                    np.copyto(target, source)
        if call.onto and (beta := self._beta(self.trace.steps[t].beta)):
            with self.clock.phase("pack"):
                for target, own in call.onto:
                    if beta != 1.0:  # the sum is about to take its place
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
        """What a group step brought is here: put it into its place."""
        if call.after:
            with self.clock.phase("pack"):
                for target, source in call.after:
                    np.copyto(target, source)
        due = self._due.pop(t, None)
        if due is None or due <= self.clock.now():
            self._finish(t)
        else:
            self._timers.append((due, t))

    def _start_get(self, t: int) -> None:
        step = self.trace.steps[t]
        block, value = step.block, self.values[t]
        nbytes = self._nbytes(block)
        matrix = self.matrices[block.matrix]
        source = matrix.view(block)
        if source is None:
            self.bytes[step.counter] += nbytes
            self._request(t, matrix.window.rget(value, block))
            return
        if value.flags.writeable:  # a buffer: --get copy, or a panel
            with self.clock.phase("get_wait" if step.onto is None else "pack"):
                np.copyto(value, source)
            self.bytes[step.counter] += nbytes
        else:
            self.bytes[step.counted(True)] += nbytes
        self._done_in_place(t, "in", nbytes)

    def _start_put(self, t: int) -> None:
        step = self.trace.steps[t]
        block, value = step.block, self.values[step.inputs[0].index]
        matrix = self.matrices[block.matrix]
        target, nbytes = matrix.view(block), self._nbytes(block)
        self.bytes["put_bytes"] += nbytes
        if target is None:
            self._request(t, matrix.window.rput(value, block))
            return
        np.copyto(target, value)
        self._done_in_place(t, "out", nbytes)

    def _start_accumulate(self, t: int) -> None:
        step = self.trace.steps[t]
        block = step.block
        matrix = self.matrices[block.matrix]
        self.bytes[step.counter] += self._nbytes(block)
        if t in self._added:
            self._done_in_place(t, "out", self._nbytes(block))
        elif not self._adds_itself(step):
            with self.clock.phase("accumulate"):
                self._request(
                    t, matrix.window.raccumulate(self.values[step.inputs[0].index], block)
                )
        else:
            self._try_add(t)  # again in _pump, if its lock is taken

    def _try_add(self, t: int) -> bool:
        step = self.trace.steps[t]
        start = self.clock.now()
        value, block = self.values[step.inputs[0].index], step.block
        if not self.matrices[block.matrix].add(value, block):
            self._adds.append(t)  # trying is waiting, and counted by who waits
            return False
        self.clock.seconds["accumulate"] += self.clock.now() - start
        self._done_in_place(t, "out", self._nbytes(block))
        return True

    def _start_push(self, t: int) -> None:
        """Copy the value into its slot, unless it was made there, and say so; or send it."""
        step, way = self.trace.steps[t], self.inbox.ways[t]
        value, message = self.values[step.inputs[0].index], self._sends.get(t)
        self.bytes["put_bytes"] += value.nbytes
        if message is not None:
            message.Start()
            self._request(t, message)
            return
        if self.slots.get(step.inputs[0].lies_in()[0].index) != t:
            np.copyto(self._slot(step, way.place, value), value)
        if self.throttle is None:
            self.inbox.signal(way)
            self._finish(t)
        else:  # the receiver waits for the link: this rank may be inside a product when it is done
            due = self.throttle.due("out", value.nbytes, self.clock.now())
            self.inbox.signal(way, due)
            self._timers.append((due, t))

    def _slot(self, step: Push, place: np.ndarray, value: np.ndarray) -> np.ndarray:
        """A slot of another rank as an array for the value."""
        flat, turned = place.view(value.dtype), step.inputs[0].transposed
        return flat.reshape(value.shape[::-1]).T if turned else flat.reshape(value.shape)

    def _start_offer(self, t: int) -> None:
        """Say that the value is there, where it is."""
        message = self._sends.get(t)
        if message is None:
            self.inbox.signal(self.inbox.ways[t])
            self._finish(t)
        else:
            self.inbox.window.sync()
            message.Start()
            self._request(t, message)

    def _start_await(self, t: int) -> None:
        """Look out for a flag, or for a message."""
        if self.inbox.is_near(t):
            self._watching += 1
            self.inbox.watch(t)
        else:
            self._request(t, self.inbox.receiver(t))

    def _come(self, t: int) -> None:
        """A flag says that a value is here, or will be when a throttled link is done with it."""
        if type(self.trace.steps[t]) is Take:
            self._read_offered(t)
            return
        due = self.inbox.dues[self.inbox.ways[t].number]
        if due <= self.clock.now():
            self._finish(t)
        else:
            self._timers.append((due, t))

    def _read_offered(self, t: int) -> None:
        """What was offered is there: read it."""
        self._relaying.discard(t)
        value, way = self.values[t], self.inbox.ways[t]
        if not way.near:
            self.bytes["get_bytes"] += value.nbytes
            self._request(t, self.inbox.read(t, value))
            return
        if value.flags.writeable:  # a buffer: --get copy
            with self.clock.phase("get_wait"):
                step = self.trace.steps[t]
                there = self.inbox.there(t, value.shape, step.transposed, value.dtype)
                np.copyto(value, there)
            self.bytes["get_bytes"] += value.nbytes
        else:
            self.bytes["direct_bytes"] += value.nbytes
        self._done_in_place(t, "in", value.nbytes)

    def _start_side(self, t: int) -> None:
        """A reduction beside the products, between two of them."""
        if self.timeline is not None:
            self._began[t] = self.clock.now()
        self._compute(t)
        self._finish(t)

    def _start_fence(self, t: int) -> None:
        with self.clock.phase("fence"):
            for window in self.windows:
                window.flush()
                window.sync()
            self._request(t, self.comm.Ibarrier())

    # -- computes
    # ---------------------------------------------------------------------------------------------

    def _compute(self, t: int) -> None:
        step = self.trace.steps[t]
        kind = type(step)
        if kind is Gemm:
            self._gemm(t, step)
            return
        with self.clock.phase("accumulate"):
            target, beta = self.values[t], self._beta(step.beta)
            if kind is Add:
                for term in step.terms:
                    np.add(target, self.values[term.index], out=target)
                return
            if kind is Combine:
                self._combine(t, step, target)
                return
            if beta not in (0.0, 1.0):  # of a tile, which is one array
                np.multiply(target, beta, out=target)
            if kind is Zero and beta == 0.0:
                target.fill(0)
            elif kind is Copy:
                for room, value in self.copies[t]:
                    if beta == 0.0:
                        np.copyto(room, value)
                    else:
                        np.add(room, value, out=room)

    def _looks_out(self) -> bool:
        """Whether products are cut, so that something else can be seen to in between."""
        return self.polls or bool(self._relaying and not self.threaded)

    def _combine(self, t: int, step: Combine, target: np.ndarray) -> None:
        """Weighted sums of rows."""
        terms = self._terms.get(t)
        if terms is None:
            terms = self._terms[t] = [
                (
                    self.values[token.index],
                    np.array(places),
                    np.array(weights, target.dtype)[:, None],
                )
                for token, places, weights in zip(step.inputs, step.places, step.weights)
            ]
        target.fill(0)
        for value, places, weights in terms:
            target[places] += weights * value

    def _gemm(self, t: int, step: Gemm) -> None:
        for source, rows, there, _ in self.picks.get(t, ()):
            with self.clock.phase("pack"):
                np.take(source, rows, axis=0, out=there, mode="clip")  # in place, not by a buffer
        if t in self._adding and self._add_product([t]):
            return
        if self._looks_out():
            for a, b, c, beta in self._products_of(t, step):
                self._gemm_in_chunks(a, b, c, self._beta(beta))
            return
        for multiply, beta in self._ready[t]:
            self._multiply(multiply, beta)

    def _multiply_all(self, products: list) -> None:
        """Products one after the other, with one look at the clock."""
        if self.threaded:  # each lets the thread go on
            for multiply, beta in products:
                self._multiply(multiply, beta)
            return
        with self.clock.phase("gemm"):
            for multiply, beta in products:
                multiply(self._beta(beta), self.alpha)

    def _multiply(self, multiply: Callable, beta: float | None) -> None:
        """One product of plain arrays, as it was prepared."""
        with self.clock.phase("gemm"):
            if self.threaded:
                self._lock.release()
                try:
                    multiply(self._beta(beta), self.alpha)
                finally:
                    self._lock.acquire()
            else:
                multiply(self._beta(beta), self.alpha)

    def _products_of(self, t: int, step: Gemm):
        values = self.values
        whole = values[step.inputs[0].index], values[step.inputs[1].index], values[t], step.beta
        return self.products.get(t, (whole,))

    def _await_fence(self, t: int) -> None:
        """Wait for the Fence before the elements that a product, and those below it, are added to;
        no longer than making them aside and adding them later would take."""
        add, run = self._adding[t], self._joined.get(t)
        if self._schedule.fenced(add):
            return
        start = self.clock.now()
        until = start + (self.values[t] if run is None else run.rows[2]).nbytes / _ADD_BYTES_PER_S
        while not self._schedule.fenced(add) and self.clock.now() < until:
            if not self._pump() and self.yields:
                os.sched_yield()
        self._patience = self._schedule.fenced(add)
        self.clock.seconds["fence"] += self.clock.now() - start

    def _ready_with(self, t: int) -> list[int]:
        """The parts of a kernel that are ready and lie one below the other, from this one on, if
        they are several."""
        if t not in self._joined:
            return []
        if t in self._adding and not self._schedule.fenced(self._adding[t]):
            return []  # the sooner those after it may be made where they are added to
        found = [t]
        while (after := self._schedule.next_compute(len(found))) is not None:
            if not self._below(t, after):
                break
            found.append(after)
        return found if len(found) > 1 else []

    def _compute_together(self, parts: list[int]) -> None:
        """Several parts of a kernel in one product."""
        low, high = self._joined[parts[0]].start, self._joined[parts[-1]].stop
        start = self.clock.now()
        self._multiply_joined(parts)
        spent = self.clock.now() - start
        for t in parts:
            if self.timeline is not None:  # each has its share of the time
                ends = (self._joined[t].start - low, self._joined[t].stop - low)
                self.timeline.append((t, *(start + spent * end / (high - low) for end in ends)))
            self._schedule.finish(t)

    def _multiply_joined(self, parts: list[int]) -> None:
        """The one product of parts that lie one below the other."""
        if not (parts[0] in self._adding and self._add_product(parts)):
            self._multiply_now(*_rows(self._joined, parts), self.trace.steps[parts[0]].beta)

    def _multiply_now(self, a, b, c, beta: float | None) -> None:
        """A product of arrays that were not known before."""
        if self._looks_out():
            self._gemm_in_chunks(a, b, c, self._beta(beta))
        else:
            self._multiply(prepared(self.blas, a, b, c), beta)

    def _add_product(self, parts: list[int]) -> bool:
        """Make a product, or parts that lie one below the other, onto the elements that it is to
        be added to. False, and nothing is done, if a Fence is to come before, or somebody else is
        adding there: then it is made aside."""
        first, last, there = parts[0], parts[-1], self._joined_there
        if len(parts) > 1 and not _same_run(there, first, last):
            return False
        adds = [self._adding[t] for t in parts]
        if not all(map(self._schedule.fenced, adds)):
            return False
        blocks = [self.trace.steps[add].block for add in adds]
        matrix = self.matrices[blocks[0].matrix]
        with matrix.tried(blocks[0], blocks[-1]) as held:
            if held:
                if len(parts) > 1:
                    a, b, c = _rows(there, parts)
                else:
                    (a, b, _), c = (
                        _operands(self.trace.steps[first], self.values),
                        self._target(first),
                    )
                self._multiply_now(a, b, c, 1.0)
                self._added.update(adds)
        return held

    def _gemm_in_chunks(self, a, b, c, beta: float) -> None:
        """Split along k (which costs BLAS least) and poll MPI between the chunks, as long as anyone
        needs it."""
        k, flops = a.shape[1], 2 * a.shape[0] * a.shape[1] * b.shape[1]
        ends = cuts(k, round(flops / (self._flops_per_s * _CHUNK_S)))
        spent, k0, x = 0.0, 0, 0
        while x == 0 or k0 < k:
            # nothing is under way: the rest in one go
            waiting = self._serves or self._requests or self._relaying
            k1 = ends[x] if waiting else k
            x += 1
            start = self.clock.now()
            with self.clock.phase("gemm"):
                self.blas.gemm(a[:, k0:k1], b[k0:k1], c, 1.0 if k0 else beta, self.alpha)
            spent += self.clock.now() - start
            k0 = k1
            if not self._requests:
                self._serve()
            self._pump()
            if self.yields and k0 < k:
                os.sched_yield()
        if flops and spent > _TIMED_S:  # of nothing there is no speed, however long it took
            self._flops_per_s = flops / spent
