"""The inbox of signals on devices: slots and flags in device memory that other ranks of the node
write, and pinned host memory for values from other nodes.

==========  ==============================================  ========================================
step        on a node                                       elsewhere
==========  ==============================================  ========================================
``Push``    copy into the slot, then a stream write of its  to the host, then a message
            flag, both in one stream
``Await``   users of the value: a stream wait for the flag  the message, then a copy to the device
``Offer``   a stream write of the taker's flag              the value itself, as a ``Push``
``Take``    a stream wait for the flag, then a copy         as an ``Await``
==========  ==============================================  ========================================

If streams cannot, or must not, wait for memory (:attr:`DeviceInbox.why_hosts`), the hosts do both:
the host of the sender writes a flag in host memory once its stream has made the copy, and that of
the receiver launches no step that uses the value before it sees the flag.

A GPU-aware MPI sends from device memory, and receives pushed values there.
"""

from collections.abc import Sequence

import numpy as np

from drbench.host.inbox import Inbox, Route, shaped
from drbench.host.matrix import Window
from drbench.host.topology import Topology
from drbench.plan.signals import End
from drbench.program.signal_steps import Push
from drbench.program.steps import Step
from drbench.program.trace import Trace

from .base import Device
from .matrix import Slab

_FLAG = np.dtype(np.uint32)
_ALIGNMENT = 512


class DeviceInbox(Inbox):
    """One rank's inbox on its device (collective to make and to close).

    Parameters
    ----------
    trace, topology, types, in_reach :
        As of :class:`~drbench.host.inbox.Inbox`.
    device : Device
    direct : bool
        MPI itself reads and writes device memory.

    Attributes
    ----------
    why_hosts : str or None
        Why hosts signal each other in every run; None if streams do. The same on every rank.
    learns : bool
        Hosts signal in the first run only: some rank's device may load kernels then, and must not
        wait meanwhile.
    """

    stores_words = False  # copies and stream writes of all values

    def __init__(
        self,
        trace: Trace,
        topology: Topology,
        types: Sequence,
        in_reach: Sequence[bool],
        device: Device,
        direct: bool,
    ):
        self._device, self._direct, self._landings = device, direct, {}
        self._flags_of, self._slots_of = {}, {}  # the same arrays in every repeat
        super().__init__(trace, topology, types, in_reach)
        text = topology.comm.allgather((device.why_no_waits(), device.loads_late))
        reasons = [f"rank {rank}: {why}" for rank, (why, _) in enumerate(text) if why]
        self.why_hosts = reasons[0] if reasons else None
        self.learns = any(late for _, late in text)

    @property
    def by_streams(self) -> bool:
        """Whether streams wait for flags in the current run."""
        return self.why_hosts is None and (self.epoch > 1 or not self.learns)

    # -- memory of flags and values

    def _open(self, topology: Topology, count: int) -> None:
        self._slab = Slab(topology, self._device, _head(count) + self.plan.nbytes)
        self.window = Window(topology, 16 * count)  # hosts' flags
        self._memory, self._rank = self._slab.in_reach, topology.comm.rank
        if count:
            own = _flags(self._memory[self._rank], count)
            stream = self._device.stream("flags")
            self._device.zero(own.reshape(1, -1), stream)
            stream.synchronise()

    def _reached(self) -> Sequence:
        return [
            None if theirs is None else memory
            for memory, theirs in zip(self._memory, self.window.in_reach)
        ]

    def _slots(self, counts: list[int]) -> list:
        self._of_device = [
            None if memory is None else _flags(memory, count)
            for memory, count in zip(self._memory, counts)
        ]
        return [
            None if memory is None else memory[_head(count) :]
            for memory, count in zip(self._memory, counts)
        ]

    def _landing(self, end: End, route: Route) -> np.ndarray:
        if self._direct and end.kind == "push":
            return route.place
        self._landings[end.step] = self._device.allocate_host(end.nbytes)
        return self._landings[end.step]

    def memory(self, t: int):
        offset = self.plan.offsets.get(t)
        if offset is None:
            return None
        return self._memory[self._rank][_head(len(self.flags)) + offset :]

    def _close_memory(self) -> None:
        self._memory, self._of_device, self._landings = [], [], {}
        self._flags_of, self._slots_of = {}, {}
        self._slab.close()
        self.window.close()

    # -- a run

    def flag(self, t: int, sends: bool):
        """The device's flag of a signal: of its step's peer if this rank sends, else its own."""
        flag = self._flags_of.get((t, sends))
        if flag is None:
            route = self.routes[t]
            flags = self._of_device[route.peer if sends else self._rank]
            flag = self._flags_of[t, sends] = flags[route.number : route.number + 1]
        return flag

    @property
    def number(self) -> int:
        """The value of the flags of this run; it wraps after 2**32 runs, which the cyclic
        comparison allows."""
        return self.epoch % (1 << 32)

    def place(self, step: Step, value) -> np.ndarray:
        """The array of a value on another rank of the node: the slot of a Push, or the value that a
        Take reads."""
        array = self._slots_of.get(step.index)
        if array is None:
            if type(step) is Push:
                there = self.routes[step.index].place.view(value.dtype)
                array = shaped(there, value.shape, step.inputs[0].transposed)
            else:
                array = self.offered_view(step.index, value.shape, step.transposed, value.dtype)
            self._slots_of[step.index] = array
        return array

    def landed(self, step: Step, value) -> np.ndarray | None:
        """The value received by a message, in host memory, as an array; None if MPI has put it into
        its place."""
        landing = self._landings.get(step.index)
        if landing is None:
            return None
        return shaped(landing.view(value.dtype), step.shape, step.transposed)

    def twin(self, step: Step, value) -> np.ndarray:
        """Pinned host memory for a value that is sent to a remote rank; the value itself, if MPI
        reads device memory."""
        if self._direct:
            return value
        memory = self._device.allocate_host(value.nbytes)
        return shaped(memory.view(value.dtype), value.shape, step.inputs[0].transposed)


def _head(count: int) -> int:
    """Bytes of ``count`` flags, before the slots."""
    return -(-_FLAG.itemsize * count // _ALIGNMENT) * _ALIGNMENT


def _flags(memory, count: int):
    """The flags of an inbox on a device."""
    return memory[: _FLAG.itemsize * count].view(_FLAG)
