"""What signals need on cores: memory that other ranks write and read, a flag for each value that
comes, and messages where memory cannot be reached.

==========  ==============================================  ========================================
step        on a node                                       elsewhere
==========  ==============================================  ========================================
``Push``    copy into the slot, then write its flag         message on a communicator of its own,
                                                            the flag's number being the tag
``Await``   the flag holds the number of this run           the message is here, in the slot
``Offer``   write the flag of whoever takes it              message without elements
``Take``    the flag, then the value where it lies          the message, then a read by RMA
==========  ==============================================  ========================================

Flags hold the number of the run and are never reset. A rank writes slots of the next run only once
all ranks have ended this one: a barrier lies between runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from mpi4py import MPI

from drbench.errors import CaseFailed
from drbench.plan.signals import End, check_progress, ends_of, flags_bytes, match, plan_inbox
from drbench.program.trace import Trace

from .matrix import Place, Window
from .topology import Topology


@dataclass(slots=True, eq=False)
class Route:
    """How one signal of a rank travels.

    Attributes
    ----------
    peer : int
        The rank at the other end.
    number : int
        Of the flag among those of the rank that receives; the tag of its message.
    is_local : bool
        Each of the two reaches the other's memory.
    flags, dues : ndarray
        Of the rank that receives, if it is near: run in which the value came, and when a throttled
        link would have delivered it.
    place : ndarray of uint8, or None
        Where the value lies in an inbox, if this rank reaches that.
    offset : int
        Where the value begins in the window of its rank, in bytes.
    row_stride_bytes : int
        Of what is offered: bytes from one run of its elements to the next.
    """

    peer: int
    number: int
    is_local: bool
    flags: np.ndarray | None
    dues: np.ndarray | None
    place: np.ndarray | None
    offset: int
    row_stride_bytes: int


class Inbox:
    """One rank's inbox and what it needs of the others' (collective to make and to close).

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
    routes : dict of int to Way
        Of each step with a signal.
    apart : bool
        Some signal of this rank goes by messages.
    epoch : int
        Number of the run.

    Raises
    ------
    CaseFailed
        On all ranks, if a signal has no other end, or the ranks wait for each other in a circle.
    """

    def __init__(self, trace: Trace, topology: Topology, types: Sequence, in_reach: Sequence[bool]):
        comm, widths = topology.comm, [dtype.itemsize for dtype in types]
        self.epoch, self._types = 0, types
        self.plan = plan_inbox(trace, widths)
        mine: list[End] | str
        try:
            mine = ends_of(trace, widths, self.plan)
        except CaseFailed as error:
            mine = str(error)
        count = 0 if isinstance(mine, str) else len(_receives(mine))
        self._open(topology, count)
        self.flags, self.dues = _flags(self.window.local, count)
        self.flags.fill(0)
        self._watched = np.zeros(count, bool)
        reaches = [
            bool(can) and memory is not None for can, memory in zip(in_reach, self._reached())
        ]
        # nobody signals before all flags are zero
        heard: list[tuple[list[End] | str, list[bool]]] = comm.allgather((mine, reaches))
        try:
            ends = [_or_raise(each) for each, _ in heard]
            pairs = match(ends)
            check_progress(ends)
        except CaseFailed:
            self._close_memory()
            raise
        is_local = lambda one, two: heard[one][1][two] and heard[two][1][one]
        self.routes: dict[int, Route] = {}
        counts = [len(_receives(each)) for each in ends]
        numbers = [{end.step: x for x, end in enumerate(_receives(each))} for each in ends]
        slots = self._slots(counts)
        for (source, target), both in pairs.items():
            if comm.rank not in (source, target):
                continue
            for sent, received in both:
                holds, end = (target, received) if sent.kind == "push" else (source, sent)
                memory, close = slots[holds], is_local(source, target)
                flags = (
                    _flags(self.window.in_reach[target], counts[target]) if close else (None,) * 2
                )
                self.routes[(sent if source == comm.rank else received).step] = Route(
                    target if source == comm.rank else source,
                    numbers[target][received.step],
                    close,
                    *flags,
                    memory[end.offset : end.offset + (end.span or end.nbytes)]
                    if memory is not None and (close or holds == comm.rank)
                    else None,
                    flags_bytes(counts[holds]) + end.offset,
                    end.row_stride_bytes,
                )
        self.apart = not all(route.is_local for route in self.routes.values())
        any_remote = any(not is_local(*pair) for pair in pairs)  # the same on every rank
        self._comm = comm.Dup() if any_remote else None
        self.steps = {  # number of a flag -> the step that waits for it, if the flag tells
            self.routes[end.step].number: end.step
            for end in _receives(ends[comm.rank])
            if self.routes[end.step].is_local
        }
        self._messages: dict[int, MPI.Prequest] = {}
        for end in _receives(ends[comm.rank]):
            route = self.routes[end.step]
            if not route.is_local:
                landing = self._message(end.step, self._landing(end, route))
                self._messages[end.step] = self._comm.Recv_init(landing, route.peer, route.number)
        self._posted = False

    # -- where flags and values lie

    def _open(self, topology: Topology, count: int) -> None:
        """Make room for so many flags, and for the values (collective)."""
        self.window = Window(topology, flags_bytes(count) + self.plan.nbytes)

    def _reached(self) -> Sequence:
        """For each rank something of its inbox, None if it is out of reach."""
        return self.window.in_reach

    def _slots(self, counts: list[int]) -> list[np.ndarray | None]:
        """For each rank in reach the bytes of its values, if it has so many flags."""
        return [
            None if memory is None else memory[flags_bytes(count) :]
            for memory, count in zip(self.window.in_reach, counts)
        ]

    def _landing(self, end: End, route: Route) -> np.ndarray:
        """Where a message goes: a value to its slot, the word of an offer nowhere."""
        return route.place if end.kind == "push" else np.empty(0, np.uint8)

    def _close_memory(self) -> None:
        """Undo :meth:`_open` (collective)."""
        self.window.close()

    def memory(self, t: int) -> np.ndarray | None:
        """The bytes of a value that lies in this rank's inbox; None if it does not."""
        offset = self.plan.offsets.get(t)
        return (
            None if offset is None else self.window.local[flags_bytes(len(self.flags)) + offset :]
        )

    def is_local(self, t: int) -> bool:
        """Whether the other end of a step's signal shares memory with this rank."""
        return self.routes[t].is_local

    # -- a run

    def prepare(self) -> None:
        """Make ready for messages of the next run."""
        if not self._posted and self._messages:
            MPI.Prequest.Startall(list(self._messages.values()))
        self._posted = True

    def begin(self) -> None:
        """A run begins: the values of earlier ones count no more."""
        self.epoch += 1
        self._posted = False
        self._watched.fill(False)

    def watch(self, t: int) -> None:
        """From now on :meth:`arrived` tells when a step's value has come."""
        self._watched[self.routes[t].number] = True

    def arrived(self) -> list[int]:
        """The steps that are watched for and whose values have come in this run; each is told
        once."""
        here = self.flags >= self.epoch
        here &= self._watched
        if not here.any():
            return []
        self._watched &= ~here
        self.window.sync()  # what was written before the flag is seen after it
        return [self.steps[number] for number in np.flatnonzero(here)]

    def signal(self, route: Route, due: float = 0.0) -> None:
        """Say that a value is there, or will be at the time ``due``, to a rank near by."""
        route.dues[route.number] = due
        self.window.sync()  # the value, and when, are written before the flag
        route.flags[route.number] = self.epoch

    def sender(self, t: int, value: np.ndarray | None) -> MPI.Prequest:
        """The message that takes a value (None: tells of one) to a rank out of reach; to be started
        once a run."""
        route, buffer = self.routes[t], np.empty(0, np.uint8) if value is None else value
        return self._comm.Send_init(self._message(t, buffer), route.peer, route.number)

    def _message(self, t: int, array: np.ndarray) -> list:
        """The value of a step for MPI, in the order its elements lie in memory."""
        if array.dtype == np.uint8:
            item = self._types[t].itemsize
            array = array[: array.nbytes // item * item].view(self._types[t])
        column_major = array.ndim == 2 and array.strides[0] < array.strides[1]
        return self.window.message(array.T if column_major else array)

    def receiver(self, t: int) -> MPI.Prequest:
        """The message of this run that a step waits for."""
        return self._messages[t]

    def there(self, t: int, shape: tuple[int, int], transposed: bool, dtype: np.dtype):
        """What is offered near by, where it lies."""
        route, stored = self.routes[t], shape[:: -1 if transposed else 1]
        place = route.place
        if not stored[0] * stored[1]:
            return place[:0].view(dtype).reshape(shape)
        found = type(place)(stored, dtype, place, 0, (route.row_stride_bytes, dtype.itemsize))
        return found.T if transposed else found

    def read(self, t: int, out: np.ndarray, transposed: bool) -> MPI.Request:
        """Start reading what was offered out of reach."""
        route, item = self.routes[t], out.itemsize
        strides = (item, route.row_stride_bytes) if transposed else (route.row_stride_bytes, item)
        return self.window.rget(out, route.peer, Place(route.offset, *strides))

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
            route.flags = route.dues = route.place = None
        self.flags = self.dues = None
        self._close_memory()
        if self._comm is not None:
            self._comm.Free()


def _receives(ends: list[End]) -> list[End]:
    """The ends at which values arrive; their flags lie in this order."""
    return [end for end in ends if end.kind in ("push", "offer") and not end.sends]


def _flags(memory: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Flags and due times of an inbox."""
    return (
        memory[: 8 * count].view(np.int64),
        memory[8 * count : 16 * count].view(np.float64),
    )


def _or_raise(ends: list[End] | str) -> list[End]:
    if isinstance(ends, str):
        raise CaseFailed(ends)
    return ends
