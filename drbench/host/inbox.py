"""The inbox of signals on cores: memory that other ranks write and read, a flag for each received
value, and messages between ranks that cannot map each other's memory.

==========  ==============================================  ========================================
step        on a node                                       elsewhere
==========  ==============================================  ========================================
``Push``    copy into the slot, then write its flag; if it  message on a communicator of its own,
            is flagged, copy words that contain both        the flag's number being the tag
``Await``   the flag is the number of this run              the message has arrived in the slot
``Offer``   write the flag of the rank that takes it        message without elements
``Take``    the flag, then the value in place               the message, then a read by RMA
==========  ==============================================  ========================================

Flags are numbers of runs and are never reset. A rank writes slots of the next run only after all
ranks have ended this one: there is a barrier between runs.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from mpi4py import MPI

from drbench.errors import CaseFailed
from drbench.partitions.intervals import Pair
from drbench.plan.signals import End, check_progress, ends_of, flags_bytes, match, plan_inbox
from drbench.program.trace import Trace

from .matrix import Location, Window
from .topology import Topology


@dataclass(slots=True, eq=False)
class Route:
    """The route of one signal of a rank.

    Attributes
    ----------
    peer : int
        The rank at the other end.
    number : int
        Number of the flag on the rank that receives; the tag of its message.
    is_local : bool
        Each of the two ranks maps the other's memory.
    flags, dues : ndarray
        Of the rank that receives, if it is local: run of the received value, and when a throttled
        link would have delivered it.
    place : ndarray of uint8, or None
        The value in an inbox, if this rank maps that.
    offset : int
        Start of the value in the window of its rank, in bytes.
    row_stride_bytes : int
        Of an offered value: bytes from one run of its elements to the next.
    words : ndarray of uint64, or None
        Of a flagged value, if it is local: halves of the value, each with a flag.
    """

    peer: int
    number: int
    is_local: bool
    flags: np.ndarray | None
    dues: np.ndarray | None
    place: np.ndarray | None
    offset: int
    row_stride_bytes: int
    words: np.ndarray | None = None


class Inbox:
    """One rank's inbox, and views of the others' (collective to make and to close).

    Parameters
    ----------
    trace : Trace
    topology : Topology
    types : sequence of numpy dtype
        Of the value of each step.
    in_reach : sequence of bool
        The ranks whose memory this one may load and store.

    Attributes
    ----------
    plan : InboxPlan
    routes : dict of int to Route
        Of each step with a signal.
    sends_messages : bool
        Some signal of this rank uses messages.
    epoch : int
        Number of the run.

    Raises
    ------
    CaseFailed
        On all ranks, if a signal has only one end, or the ranks wait for each other in a circle.
    """

    #: Flagged values are stored in words.
    stores_words = True

    def __init__(self, trace: Trace, topology: Topology, types: Sequence, in_reach: Sequence[bool]):
        comm, widths = topology.comm, [dtype.itemsize for dtype in types]
        self.epoch, self._types = 0, types
        self.plan = plan_inbox(trace, widths)
        mine: list[End] = []
        refusal = None
        try:
            mine = ends_of(trace, widths, self.plan)
        except CaseFailed as error:
            refusal = error
        count = len(_receives(mine))
        self._open(topology, count)
        self.flags, self.dues = _flags(self.window.local, count)
        self.flags.fill(0)
        if self.stores_words and self.plan.words:
            self.window.local[flags_bytes(count) + min(self.plan.words.values()) :].fill(0)
        self._watched = np.zeros(count, bool)
        reaches = [
            bool(can) and memory is not None for can, memory in zip(in_reach, self._reached())
        ]
        # no rank signals before all flags are zero, those in words too
        ends, refusals, reach = zip(*comm.allgather((mine, refusal, reaches)))
        try:
            for refusal in filter(None, refusals):
                raise refusal
            pairs = match(ends)
            check_progress(ends)
        except CaseFailed:
            self._close_memory()
            raise
        is_local = lambda a, b: reach[a][b] and reach[b][a]
        self.routes: dict[int, Route] = {}
        received = [*map(_receives, ends)]
        counts = [*map(len, received)]
        numbers = [{end.step: x for x, end in enumerate(theirs)} for theirs in received]
        slots = self._slots(counts)
        for (source, target), both in pairs.items():
            if comm.rank not in (source, target):
                continue
            close, peer = is_local(source, target), target if source == comm.rank else source
            flags = _flags(self.window.in_reach[target], counts[target]) if close else (None,) * 2
            for sent, came in both:
                holds, end = (target, came) if sent.kind == "push" else (source, sent)
                memory = slots[holds]
                self.routes[(came if source == peer else sent).step] = Route(
                    peer,
                    numbers[target][came.step],
                    close,
                    *flags,
                    memory[end.offset : end.offset + (end.span or end.nbytes)]
                    if memory is not None and (close or holds == comm.rank)
                    else None,
                    flags_bytes(counts[holds]) + end.offset,
                    end.row_stride_bytes,
                    memory[end.words : end.words + 2 * end.nbytes].view(np.uint64)
                    if close and self.stores_words and end.words is not None
                    else None,
                )
        sizes = [route.words.size for route in self.routes.values() if route.words is not None]
        self._staged = np.empty(max(sizes, default=0), np.uint64)
        self.sends_messages = not all(route.is_local for route in self.routes.values())
        any_remote = any(not is_local(*pair) for pair in pairs)  # the same on every rank
        self._comm = comm.Dup() if any_remote else None
        #: Number of a flag -> the step that waits for it, without messages.
        self.steps: dict[int, int] = {}
        #: Number of a flag -> route of a flagged value that this rank receives in words.
        self._flagged: dict[int, Route] = {}
        self._messages: dict[int, MPI.Prequest] = {}
        for end in received[comm.rank]:
            route = self.routes[end.step]
            if route.is_local:
                self.steps[route.number] = end.step
                if route.words is not None:
                    self._flagged[route.number] = route
            else:
                landing = self._message(end.step, self._landing(end, route))
                self._messages[end.step] = self._comm.Recv_init(landing, route.peer, route.number)
        self._posted = False

    # -- memory of flags and values

    def _open(self, topology: Topology, count: int) -> None:
        """Allocate memory for ``count`` flags, and for the values (collective)."""
        self.window = Window(topology, flags_bytes(count) + self.plan.nbytes)

    def _reached(self) -> Sequence:
        """For each rank a part of its inbox, None if it is not mapped."""
        return self.window.in_reach

    def _slots(self, counts: list[int]) -> list[np.ndarray | None]:
        """For each mapped rank the bytes of its values, after its ``counts`` flags."""
        return [
            None if memory is None else memory[flags_bytes(count) :]
            for memory, count in zip(self.window.in_reach, counts)
        ]

    def _landing(self, end: End, route: Route) -> np.ndarray:
        """The memory that receives a message: the slot of a value, none for an Offer."""
        return route.place if end.kind == "push" else np.empty(0, np.uint8)

    def _close_memory(self) -> None:
        """Undo :meth:`_open` (collective)."""
        self.window.close()

    def memory(self, t: int) -> np.ndarray | None:
        """The bytes of a value in this rank's inbox; None if it is not there."""
        offset = self.plan.offsets.get(t)
        return (
            None if offset is None else self.window.local[flags_bytes(len(self.flags)) + offset :]
        )

    def is_local(self, t: int) -> bool:
        """Whether the other end of a step's signal shares memory with this rank."""
        return self.routes[t].is_local

    # -- a run

    def prepare(self) -> None:
        """Prepare the messages of the next run."""
        if not self._posted and self._messages:
            MPI.Prequest.Startall(list(self._messages.values()))
        self._posted = True

    def begin(self) -> None:
        """Begin a run: flags of earlier runs are no longer valid."""
        self.epoch += 1
        self._posted = False
        self._watched.fill(False)

    def watch(self, t: int) -> None:
        """Let :meth:`arrived` report a step's value from now on."""
        self._watched[self.routes[t].number] = True

    def arrived(self) -> list[int]:
        """The watched steps whose values have arrived in this run; each is returned once."""
        for number, route in self._flagged.items():
            if not self._watched[number]:
                continue
            last = route.words[-1:].view(np.uint32)[1:]  # usually stored last
            if (last == self._word_flag).all():
                words, halves = self._stage(route)
                words[:] = route.words
                if (halves[:, 1] == self._word_flag).all():
                    route.place.view(np.uint32)[:] = halves[:, 0]
                    self.flags[number] = self.epoch
        here = self.flags >= self.epoch
        here &= self._watched
        if not here.any():
            return []
        self._watched &= ~here
        self.window.sync()  # values written before the flag are visible after it
        return [self.steps[number] for number in np.flatnonzero(here)]

    def signal(self, route: Route, due: float = 0.0) -> None:
        """Signal to a local rank that a value has arrived, or will at the time ``due``."""
        route.dues[route.number] = due
        self.window.sync()  # the value, and when, are written before the flag
        route.flags[route.number] = self.epoch

    def store_words(self, route: Route, value: np.ndarray, due: float) -> None:
        """Store a flat value, and a flag in each word, in the inbox of a local rank. A copy of
        aligned words stores each of them at once, as on x86-64 and AArch64."""
        words, halves = self._stage(route)
        halves[:, 0], halves[:, 1] = np.ascontiguousarray(value).view(np.uint32), self._word_flag
        route.dues[route.number] = due
        self.window.sync()  # when they are due is written before the words
        route.words[:] = words

    def _stage(self, route: Route) -> tuple[np.ndarray, np.ndarray]:
        """Memory of this rank for the words of a value, and its halves: values, and flags."""
        words = self._staged[: route.words.size]
        return words, words.view(np.uint32).reshape(-1, 2)

    @property
    def _word_flag(self) -> int:
        """The flag in the words of this run; the numbers of runs wrap."""
        return self.epoch % (1 << 32)

    def sender(self, t: int, value: np.ndarray | None) -> MPI.Prequest:
        """The message that sends a value (None: a signal) to a rank that is not local; it is
        started once a run."""
        route, buffer = self.routes[t], np.empty(0, np.uint8) if value is None else value
        return self._comm.Send_init(self._message(t, buffer), route.peer, route.number)

    def _message(self, t: int, array: np.ndarray) -> list:
        """The value of a step for MPI, in the order of its elements in memory."""
        if array.dtype == np.uint8:
            item = self._types[t].itemsize
            array = array[: array.nbytes // item * item].view(self._types[t])
        column_major = array.ndim == 2 and array.strides[0] < array.strides[1]
        return self.window.message(array.T if column_major else array)

    def receiver(self, t: int) -> MPI.Prequest:
        """The message of this run that a step waits for."""
        return self._messages[t]

    def offered_view(self, t: int, shape: Pair, transposed: bool, dtype: np.dtype):
        """The view of a value that a local rank offers."""
        route, stored = self.routes[t], shape[:: -1 if transposed else 1]
        place = route.place
        if not stored[0] * stored[1]:
            return place[:0].view(dtype).reshape(shape)
        view = type(place)(stored, dtype, place, 0, (route.row_stride_bytes, dtype.itemsize))
        return view.T if transposed else view

    def read(self, t: int, out: np.ndarray, transposed: bool) -> MPI.Request:
        """Start reading a value that a remote rank offers."""
        route, item = self.routes[t], out.itemsize
        strides = (item, route.row_stride_bytes) if transposed else (route.row_stride_bytes, item)
        return self.window.rget(out, route.peer, Location(route.offset, *strides))

    def close(self) -> None:
        """Free window and communicator (collective); no array over the inbox may be used
        afterwards."""
        for message in self._messages.values():
            if self._posted:
                message.Cancel()
                message.Wait()
            message.Free()
        self._messages = {}
        for route in self.routes.values():
            route.flags = route.dues = route.place = route.words = None
        self.flags = self.dues = None
        self._flagged = {}
        self._close_memory()
        if self._comm is not None:
            self._comm.Free()


def _receives(ends: list[End]) -> list[End]:
    """The ends that receive values, in the order of their flags."""
    return [end for end in ends if end.kind in ("push", "offer") and not end.sends]


def _flags(memory: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Flags and due times of an inbox."""
    return (
        memory[: 8 * count].view(np.int64),
        memory[8 * count : 16 * count].view(np.float64),
    )


def shaped(flat, shape: Pair, transposed: bool):
    """Flat memory as a matrix, columns contiguous if it is transposed."""
    return flat.reshape(shape[::-1]).T if transposed else flat.reshape(shape)
