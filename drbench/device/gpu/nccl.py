"""Collectives between GPUs by NCCL, on device memory and in a stream. Unequal fragments are sent as
one group of broadcasts or reductions."""

import os
import socket
from contextlib import contextmanager
from itertools import accumulate

import numpy as np

from drbench.device.address import at_address
from drbench.device.base import reached
from drbench.errors import CaseFailed, MissingError, UnsupportedError, UsageError
from drbench.program.group_steps import (
    AllGather,
    Broadcast,
    GroupStep,
    Reduce,
    ReduceScatter,
    Shift,
)
from drbench.program.kinds import table_of_steps

_DATA_TYPES = {"float32": 7, "float64": 8, "bfloat16": 9}
_SUM = 0
#: Time limit of the first steps of a group: a rank that failed does not take part in them.
_CONNECT_S = 60.0
#: The first NCCL that supports several ranks on one device, if the environment enables it.
_SHARED_DEVICES, _SHARED_DEVICES_VERSION = "NCCL_MULTI_RANK_GPU_ENABLE", 23000


class NcclGroup:
    """A group of ranks, such as a process row. Its members issue their steps in the same order, as
    with an MPI communicator.

    Every call puts its work into ``stream`` and returns; arrays are contiguous device arrays and
    must not be changed until the stream has passed them. An empty fragment is not sent.

    Parameters
    ----------
    nccl : module
        ``cupy.cuda.nccl``.
    communicator : NcclCommunicator
    rank, size : int
        Number of this member, and of all members.
    """

    def __init__(self, nccl, communicator, rank: int, size: int):
        self._nccl, self._communicator, self.rank, self.size = nccl, communicator, rank, size

    def broadcast(self, array, root: int, stream) -> None:
        """Send ``array`` of the root to that of every member."""
        if array.size:
            self._communicator.broadcast(
                _address(array), _address(array), array.size, _type(array), root, stream.cupy.ptr
            )

    def all_gather(self, flat, sizes: list[int], stream) -> None:
        """Send every member's fragment to every ``flat``, which already contains the own fragment
        (``sizes[rank]`` elements after those of lower ranks)."""
        fragments = _fragments(flat, sizes)
        if len(set(sizes)) > 1:
            with self._group_calls():
                for root, fragment in enumerate(fragments):
                    self.broadcast(fragment, root, stream)
        elif sizes[0]:
            self._communicator.allGather(
                _address(fragments[self.rank]),
                _address(flat),
                sizes[0],
                _type(flat),
                stream.cupy.ptr,
            )

    def reduce(self, sent, into, root: int, stream) -> None:
        """Reduce every member's ``sent`` into the root's ``into``, which is None on other members
        and may be ``sent``."""
        if sent.size:
            target = _address(into, sent.size) if self.rank == root else 0
            self._communicator.reduce(
                _address(sent), target, sent.size, _type(sent), _SUM, root, stream.cupy.ptr
            )

    def reduce_scatter(self, sent, into, sizes: list[int], stream) -> None:
        """Reduce every member's ``sent``, cut into fragments of ``sizes`` elements, the own
        fragment into ``into``."""
        fragments = _fragments(sent, sizes)
        if into.size != sizes[self.rank]:
            raise UsageError(
                f"the own fragment has {sizes[self.rank]} elements, its place {into.size}."
            )
        if len(set(sizes)) > 1:
            with self._group_calls():
                for root, fragment in enumerate(fragments):
                    self.reduce(fragment, into, root, stream)
        elif sizes[0]:
            self._communicator.reduceScatter(
                _address(sent), _address(into), sizes[0], _type(sent), _SUM, stream.cupy.ptr
            )

    def shift(self, into, sent, source: int, target: int, stream) -> None:
        """Send ``sent`` to rank ``target``, and receive ``into`` from rank ``source``, both at
        once."""
        with self._group_calls():
            if sent.size:
                self._communicator.send(
                    _address(sent), sent.size, _type(sent), target, stream.cupy.ptr
                )
            if into.size:
                self._communicator.recv(
                    _address(into), into.size, _type(into), source, stream.cupy.ptr
                )

    def close(self) -> None:
        """Free the communicator; its streams are empty."""
        self._communicator.destroy()

    @contextmanager
    def _group_calls(self):
        self._nccl.groupStart()
        try:
            yield
        finally:
            self._nccl.groupEnd()


def issue(nccl: NcclGroup, step, sent, received, stream) -> None:
    """Put a group step into a stream.

    Parameters
    ----------
    step : Shift, Broadcast, AllGather, Reduce or ReduceScatter
    sent, received : DeviceArray or None
        As in :class:`drbench.host.collectives.Call`.
    """
    _ISSUERS[type(step)](nccl, step, sent, received, stream)


def _shift(nccl: NcclGroup, step, sent, received, stream) -> None:
    me, size = step.group.position, len(step.group)
    nccl.shift(received, sent, (me - step.by) % size, (me + step.by) % size, stream)


_ISSUERS = table_of_steps(
    "group steps on NCCL",
    {
        Shift: _shift,
        Broadcast: lambda nccl, step, sent, received, stream: nccl.broadcast(
            sent if step.root == step.group.position else received, step.root, stream
        ),
        AllGather: lambda nccl, step, sent, received, stream: nccl.all_gather(
            received, step.sizes, stream
        ),
        Reduce: lambda nccl, step, sent, received, stream: nccl.reduce(
            sent, received, step.root, stream
        ),
        ReduceScatter: lambda nccl, step, sent, received, stream: nccl.reduce_scatter(
            sent.reshape(-1), received.reshape(-1), step.sizes, stream
        ),
    },
    GroupStep,
)


def nccl_version() -> str:
    """The version of the loaded library, as "2.27.3"."""
    nccl, _ = _import_nccl()
    number = nccl.get_version()
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def why_no_nccl(sharers: int) -> str | None:
    """Why a rank cannot use NCCL on a device shared by ``sharers`` ranks; None if it can."""
    nccl, reason = _import_nccl()
    if nccl is None:
        return f"NCCL cannot be loaded ({reason})"
    if sharers > 1 and not _shares(nccl):
        return f"NCCL takes one rank a device, and {sharers} ranks share one"
    return None


def nccl_group(comm, device) -> NcclGroup:
    """The NCCL group of the ranks of an mpi4py communicator (collective).

    Raises
    ------
    MissingError
        On all ranks, if one of them has no NCCL.
    UnsupportedError
        On all ranks, if two of them use one device, or if NCCL cannot connect them.
    """
    nccl, reason = _import_nccl()
    reports = comm.allgather((reason, f"{socket.gethostname()} {device.bus_id}", _shares(nccl)))
    missing = [(rank, report[0]) for rank, report in enumerate(reports) if report[0]]
    if missing:
        raise MissingError(
            f"collectives between GPUs need NCCL, and rank {missing[0][0]} has none: "
            f"{missing[0][1]}. pip install nvidia-nccl-cu12 (or -cu13)."
        )
    places = [place for _, place, _ in reports]
    if len(set(places)) < len(places) and not all(shares for _, _, shares in reports):
        place = next(place for place in places if places.count(place) > 1)
        ranks = ", ".join(str(rank) for rank, other in enumerate(places) if other == place)
        raise UnsupportedError(
            f"NCCL takes one rank a device, and ranks {ranks} share {place}; use as many ranks "
            "as devices "
            f"(or NCCL 2.30 and later with {_SHARED_DEVICES}=1)."
        )
    name = comm.bcast(nccl.get_unique_id() if comm.rank == 0 else None)
    device.use()
    communicator, why = None, ""
    try:
        communicator = nccl.NcclCommunicator(comm.size, name, comm.rank)
        group = NcclGroup(nccl, communicator, comm.rank, comm.size)
        _connect(group, device)
    except Exception as error:  # of NCCL, of CUDA, or no memory
        why = " ".join(f"{type(error).__name__}: {error}".split())
    failed = [(rank, message) for rank, message in enumerate(comm.allgather(why)) if message]
    if failed:
        if communicator is not None:
            communicator.abort()  # steps of other ranks may never end
        raise UnsupportedError(
            f"NCCL cannot connect the GPUs, on rank {failed[0][0]}: {failed[0][1]}. Use "
            "NCCL_DEBUG=INFO to see why (in a container often --shm-size), or "
            "-o collectives=staged."
        )
    return group


def _connect(group: NcclGroup, device) -> None:
    """Run one small step of each type, in the same order on every member: NCCL connects at its
    first use, which needs memory and may wait for work of a device."""
    memory, stream, size = device.allocate(8 * group.size), device.stream("nccl"), group.size
    number = at_address(memory.address, 1, np.float32)
    numbers = at_address(memory.address, size, np.float32)
    other = at_address(memory.address + 4 * size, size, np.float32)
    after = (group.rank + 1) % size
    group.broadcast(number, 0, stream)
    group.all_gather(numbers, [1] * size, stream)
    group.reduce(number, number, 0, stream)
    group.reduce_scatter(other, number, [1] * size, stream)
    group.shift(number, other[:1], (group.rank - 1) % size, after, stream)
    done = device.event()
    stream.record(done)
    if not reached(done, _CONNECT_S):
        raise CaseFailed(f"its first steps did not end in {_CONNECT_S:.0f} s")
    memory.free()


def _import_nccl():
    """(CuPy's module, "") or (None, the reason why it is missing)."""
    try:
        from cupy.cuda import nccl
    except ImportError as error:
        return None, " ".join(str(error).split())
    return (nccl, "") if nccl.available else (None, "CuPy cannot load libnccl")


def _shares(nccl) -> bool:
    return (
        nccl is not None
        and os.environ.get(_SHARED_DEVICES) == "1"
        and nccl.get_version() >= _SHARED_DEVICES_VERSION
    )


def _type(array) -> int:
    try:
        return _DATA_TYPES[array.dtype.name]
    except KeyError:
        raise UnsupportedError(
            f"NCCL steps move {', '.join(_DATA_TYPES)}, got {array.dtype}."
        ) from None


def _address(array, size: int | None = None) -> int:
    if array.size and not array.flags.c_contiguous:
        raise UsageError(
            f"NCCL needs contiguous memory, got strides {array.strides}; pack it first."
        )
    if size is not None and array.size != size:
        raise UsageError(f"{size} elements are sent, their place has {array.size}.")
    return array.ctypes.data


def _fragments(flat, sizes: list[int]) -> list:
    """The fragments of a flat array."""
    if flat.size != sum(sizes):
        raise UsageError(
            f"the fragments have {sum(sizes)} elements together, their memory {flat.size}."
        )
    return [flat[stop - size : stop] for stop, size in zip(accumulate(sizes), sizes)]
