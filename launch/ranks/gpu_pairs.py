"""The GPUs of a node, pair by pair: what each GPU does in the memory of another, timed and verified.

Started by mpiexec with a rank for each GPU. Prints one line of JSON, which ``drbench doctor`` and
``launch/gpu_check.sh`` show.
"""

import json
import os
from functools import partial
from itertools import permutations
from types import SimpleNamespace

import numpy as np

from drbench.common import Clock
from drbench.device.address import DeviceArray, at_address
from drbench.device.gpu.cuda import CudaDevice, cuda_device
from drbench.device.matrix import Slab
from drbench.errors import DrbenchError, UnsupportedError
from drbench.host.fill import Fill
from drbench.host.topology import Topology, start_mpi

from .backends import MPI, call_together
from .gpu_timer import Timer

#: Bytes of a copy and of an add, and of a row of these.
_BYTES, _ROW = 64 << 20, 8192
#: Bytes of the rows of strided copies, of which every other one is copied.
_WIDTHS = (512, 2048, 8192)
#: Several ranks add so often at the same time, to a part of so many bytes: one in this number.
_ADDS, _PART = 10, 16
#: Round trips of a flag before those that are timed, their number, and seconds until one is late.
_WARM_UP, _TRIPS, _LATE_S = 5, 20, 0.5
#: Copies before the round trips, during which the hosts launch all of them.
_BUSY = 20
#: Bytes for the flags of the other ranks.
_FLAGS = 4096
_COPY_ANY = 4  # cudaMemcpyDefault


def _matrix(memory: DeviceArray) -> DeviceArray:
    return memory.view(np.float32).reshape(-1, _ROW // 4)


def _strided(matrix: DeviceArray, width: int) -> DeviceArray:
    """Every other row, if rows have so many bytes."""
    return matrix.reshape(-1, width // 2)[:, : width // 4]


class Pairs:
    """The GPUs of the ranks of a node (collective, like every method without underscore).

    Parameters
    ----------
    topology : Topology
    device : CudaDevice
    nbytes : int
        Of a copy and of an add.

    Attributes
    ----------
    stuck : bool
        A stream of some rank waits for a flag and was not released: no rank can end in order.
    """

    def __init__(self, topology: Topology, device: CudaDevice, nbytes: int):
        self.comm, self.device, self.timer = topology.comm, device, Timer(device)
        self.rank, self.nbytes, self.stuck = self.comm.rank, nbytes, False
        self.stream, self.release = device.stream("pairs"), device.stream("release")
        device.sharers = topology.node.allgather(device.bus_id).count(device.bus_id)
        free, total = device._runtime.memGetInfo()
        gpu = {"index": device.info.index, "bus": device.bus_id, "free": free, "bytes": total}
        self.gpus = self.comm.allgather(gpu | {"sharers": device.sharers})
        self.no_flags = self._any(device.why_no_waits())
        self.slab = Slab(topology, device, 2 * nbytes + _FLAGS)
        self.parts = [base if base is None else self._parts(base) for base in self.slab.in_reach]
        self.own, rows = self.parts[self.rank], nbytes // _ROW
        memory = call_together(self.comm, partial(device.allocate, nbytes))
        self.copied = _matrix(at_address(memory.address, nbytes, np.uint8))
        device.fill(self.own.source, Fill("integer", 0, _ROW), "A", self.rank * rows, 0)
        device.zero(self.own.flags.reshape(1, -1), self.stream)
        self.trips = [0] * self.comm.size  # so far, of flags that this rank and another write
        sums: dict = {width: self._sums(_strided(self.own.source, width)) for width in _WIDTHS}
        self.right = self.comm.allgather(sums | {"all": self._sums(self.own.source)})

    def _parts(self, base: DeviceArray) -> SimpleNamespace:
        """What a rank reads, what it adds to, and the flags, in the memory of one rank."""
        source, tile = (_matrix(base[x * self.nbytes :][: self.nbytes]) for x in (0, 1))
        return SimpleNamespace(source=source, tile=tile, flags=base[-_FLAGS:].view(np.uint32))

    def _any(self, why):
        """The first reason of all ranks (collective)."""
        return next(filter(None, self.comm.allgather(why)), None)

    def _sums(self, matrix: DeviceArray) -> np.ndarray:
        """A weighted sum of each row, exact: it differs if an element is wrong or in another
        column."""
        return self.device.times(matrix, np.arange(1.0, matrix.shape[1] + 1)[:, None])

    def _rate(self, work, nbytes: int) -> float:
        return round(nbytes / self.timer.seconds(work, self.stream) / 1e9, 1)

    # -- one step of a pair, on the rank that reads or adds

    def _copy(self, source: DeviceArray, target: DeviceArray, right: np.ndarray, copy=None) -> list:
        """GB/s of ``copy``, and whether the target is right."""
        self.device.zero(self.copied, self.stream)
        copy = copy or (lambda: self.device.copy(target, source, self.stream))
        return [self._rate(copy, target.nbytes), bool((self._sums(target) == right).all())]

    def _rows(self, of: int) -> dict[str, list]:
        """The same for every other row of each width: by the copy engine, and by drbench's
        kernel."""
        found, device = {}, self.device
        for width in _WIDTHS:
            source = _strided(self.parts[of].source, width)
            target = self.copied.reshape(-1)[: source.size].reshape(source.shape)
            to, at, count = target.ctypes.data, source.ctypes.data, len(source)
            engine = partial(
                device._runtime.memcpy2DAsync, to, width, at, 2 * width, width, count, _COPY_ANY
            )
            kernel = device._ready(device._kernels.copy_rows(to, at, count, width, width, 2 * width))
            for how, copy in (
                ("engine", lambda: engine(self.stream.cupy.ptr)),
                ("kernel", lambda: kernel(self.stream)),
            ):
                found[f"{how}_{width}"] = self._copy(source, target, self.right[of][width], copy)
        return found

    # -- steps of all ranks

    def add(self, into: dict[int, int], times: int = 1, part: int = 1) -> list:
        """Rank r adds into the memory of ``into[r]``, all at the same time, a part of the rows so
        many times: this rank's GB/s, and whether what was added to its own memory is right."""
        rows, rate = len(self.own.tile) // part, None
        self.device.zero(self.own.tile, self.stream)
        self.stream.synchronise()
        self.comm.Barrier()
        if self.rank in into:
            tile, value = self.parts[into[self.rank]].tile[:rows], self.own.source[:rows]
            work = lambda: [self.device.accumulate(tile, value, self.stream) for _ in range(times)]
            rate = self._rate(work, times * value.nbytes)
        self.comm.Barrier()
        added = (self.right[rank]["all"][:rows] for rank, to in into.items() if to == self.rank)
        wanted = Timer.RUNS * times * sum(added, np.zeros((rows, 1)))
        return [rate, bool((self._sums(self.own.tile[:rows]) == wanted).all())]

    def pair(self, one: int, other: int) -> dict:
        """What rank ``one`` does in the memory of ``other``, first alone."""
        found: dict = {"from": one, "to": other}
        mine, reach, add = {}, self.slab.reach, self.slab.added.reach[one][other]
        if not reach[one][other]:
            return found
        if self.rank == one:
            mine["copy"] = self._copy(self.parts[other].source, self.copied, self.right[other]["all"])
            mine |= self._rows(other)
        if add:
            alone = self.add({one: other})
            both = self.add({one: other, other: other}, _ADDS, _PART)
            mine |= {"add": alone[0]} if self.rank == one else {}
            mine |= {"add_right": alone[1], "both_right": both[1]} if self.rank == other else {}
        if reach[other][one] and not self.no_flags:
            self.comm.Barrier()
            mine |= self._trips(one, other)
        found["atomic"] = add
        for part, stuck in self.comm.allgather((mine, self.stuck)):
            found |= part
            self.stuck |= stuck
        return found

    def _trips(self, one: int, other: int) -> dict:
        """Round trips of a flag between streams of two ranks, which begin on the first: their
        microseconds, and why a flag of the other rank was not seen."""
        if self.rank not in (one, other):
            return {}
        peer, stream, why = one + other - self.rank, self.stream, ""
        here, there = self.own.flags[peer:], self.parts[peer].flags[self.rank :]
        first = self.trips[peer] + 1
        self.trips[peer] += _WARM_UP + _TRIPS
        steps = [partial(self.device.write_flag, there), partial(self.device.wait_flag, here)]
        for _ in range(_BUSY):
            self.device.copy(self.copied, self.own.source, stream)
        try:
            for number in range(first, self.trips[peer] + 1):
                if number == first + _WARM_UP:
                    stream.record(self.timer.zero)
                for step in steps if self.rank == one else steps[::-1]:
                    step(number, stream)
        except DrbenchError as error:
            why = str(error)
        stream.record(self.timer.one)
        if not self._reached(self.timer.one):
            why = why or f"not seen in {_LATE_S} s"
            self.device.write_flag(here, self.trips[peer], self.release)
            self.stuck = not self._reached(self.timer.one)
        if self.rank == other:
            return {"flag": why or "seen"}
        took = 0.0 if why else self.timer.one.seconds_since(self.timer.zero)
        return {"flag_us": None if why else round(1e6 * took / _TRIPS, 2), "flag_back": why}

    @staticmethod
    def _reached(event) -> bool:
        """Whether an event is reached in time; the host does not block."""
        end = Clock.now() + _LATE_S
        while not event.query():
            if Clock.now() > end:
                return False
        return True

    def together(self) -> dict:
        """All ranks at once: copies from, and adds into, the next rank; adds of all into one; and
        copies of one rank from all others, on one stream and on a stream for each."""
        size, reach, adds = self.comm.size, self.slab.reach, self.slab.added.reach
        after, copied = (self.rank + 1) % size, None
        self.comm.Barrier()
        if reach[self.rank][after]:
            copied = self._copy(self.parts[after].source, self.copied, self.right[after]["all"])
        add = self.add({r: (r + 1) % size for r in range(size) if adds[r][(r + 1) % size]})
        into_one = [
            self.add({r: to for r in range(size) if adds[r][to]}, _ADDS, _PART)[1]
            for to in range(size)
        ]
        found = {"copy": copied, "add": add, "into_one_right": all(into_one)}
        found = {name: self.comm.allgather(value) for name, value in found.items()}
        if self.rank == 0 and size > 2 and all(reach[0]):
            rows = len(self.copied) // (size - 1)
            moves = [
                (self.copied[(x - 1) * rows :][:rows], self.parts[x].source[:rows])
                for x in range(1, size)
            ]
            one = lambda: [self.device.copy(*move, self.stream) for move in moves]
            streams = [self.device.stream(f"from {x}") for x in range(1, size)]
            each = {s: partial(self.device.copy, *move, s) for s, move in zip(streams, moves)}
            several = lambda: self.timer.together(self.stream, each)
            moved = sum(target.nbytes for target, _ in moves) / 1e9
            found["from_all"] = [
                round(moved / seconds, 1)
                for seconds in (self.timer.seconds(one, self.stream), several())
            ]
        self.comm.Barrier()
        return found

    def why(self) -> list[str]:
        """For each rank why this one does not reach its memory; empty if it does."""
        memory, found = self.device.allocate(1), [""] * self.comm.size
        try:
            handle = self.device.ipc_handle(memory)
        except UnsupportedError as error:
            handle = error
        for rank, handle in enumerate(self.comm.allgather(handle)):
            if self.slab.reach[self.rank][rank]:
                continue
            try:
                if isinstance(handle, UnsupportedError):
                    raise handle
                self.device.close_handle(self.device.open_handle(handle))
            except UnsupportedError as error:
                cause = error.__cause__
                found[rank] = f"IPC refused: {cause}" if cause else "no peer access"
        self.comm.Barrier()
        memory.free()
        return found

    def every(self) -> dict:
        """All of it, until a stream is stuck."""
        why, pairs = self.comm.allgather(self.why()), []
        for one, other in permutations(range(self.comm.size), 2):
            pairs.append(self.pair(one, other) | {"why": why[one][other]})
            if self.stuck:
                break
        found = {"kind": "pairs", "gpus": self.gpus, "no_flags": self.no_flags, "pairs": pairs}
        return found if self.stuck else found | {"together": self.together()}

    def close(self) -> None:
        self.slab.close()
        self.device.close()


def measure(comm: MPI.Comm, nbytes: int) -> tuple[dict, bool]:
    """The line, and whether a rank is stuck (collective)."""
    with Topology(comm) as topology:
        node = topology.node
        try:
            device = call_together(comm, partial(cuda_device, node.rank, node.size))
            pairs = Pairs(topology, device, nbytes)
        except DrbenchError as error:  # on every rank
            return {"kind": "pairs", "failed": str(error)}, False
        found = pairs.every()
        if not pairs.stuck:
            pairs.close()
    return found, pairs.stuck


def main(nbytes: int = _BYTES) -> None:
    start_mpi()
    try:
        found, stuck = measure(MPI.COMM_WORLD, nbytes)
    except Exception as error:  # of CUDA, on one rank: mpi4py then ends all
        text = " ".join(f"{type(error).__name__}: {error}".split())
        print(json.dumps({"kind": "pairs", "failed": text}), flush=True)
        raise
    if MPI.COMM_WORLD.rank == 0:
        print(json.dumps(found), flush=True)
    if stuck:  # freeing memory would wait for ever
        MPI.COMM_WORLD.Barrier()
        os._exit(0)


if __name__ == "__main__":
    main()
