"""The GPUs of a node, pair by pair: what one does in the memory of another, timed and verified.

Started by mpiexec with a rank for each GPU. Prints one line of JSON, which ``drbench doctor`` and
``launch/gpu_check.sh`` show.
"""

import json
import os
from contextlib import suppress
from functools import partial
from itertools import permutations
from types import SimpleNamespace

import numpy as np

from drbench.device.address import DeviceArray, at_address
from drbench.device.base import reached
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
#: Runs of what is timed: few, since 56 pairs over PCIe must be done in a minute.
_RUNS = 5
#: Several ranks add at the same time to a part of so many bytes: one in this number.
_PART = 16
#: Round trips of a flag before those that are timed, their number, and seconds until one is late.
_WARM_UP, _TRIPS, _LATE_S = 5, 20, 0.5
#: Copies before the round trips, during which the hosts launch all of them.
_BUSY = 20
#: Bytes for the flags of the other ranks.
_FLAGS = 4096


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def _matrix(memory: DeviceArray) -> DeviceArray:
    return memory.view(np.float32).reshape(-1, _ROW // 4)


def _strided(matrix: DeviceArray, width: int) -> DeviceArray:
    """Every other row of a quarter, if rows have so many bytes."""
    return matrix[: len(matrix) // 4].reshape(-1, width // 2)[:, : width // 4]


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
        self.comm, self.device, self.timer = topology.comm, device, Timer(device, _RUNS)
        self.rank, self.node_of = self.comm.rank, topology.node_of
        self.nbytes, self.stuck = nbytes, False
        self.wrong: list[str] = []  # on this rank, since the last answer
        self.stream, self.release = device.stream("pairs"), device.stream("release")
        device.sharers = topology.node.allgather(device.bus_id).count(device.bus_id)
        free, total = device._runtime.memGetInfo()
        gpu = {"index": device.info.index, "bus": device.bus_id, "sharers": device.sharers}
        self.gpus = self.comm.allgather(gpu | {"free": free, "bytes": total})
        self.flags = not any(self.comm.allgather(device.why_no_waits()))
        self.slab = Slab(topology, device, 2 * nbytes + _FLAGS)
        self.parts = [base if base is None else self._parts(base) for base in self.slab.in_reach]
        self.own, rows = self.parts[self.rank], nbytes // _ROW
        self.copied = _matrix(at_address(device.allocate(nbytes).address, nbytes, np.uint8))
        device.fill(self.own.source, Fill("integer", 0, _ROW), "A", self.rank * rows, 0)
        device.zero(self.own.flags.reshape(1, -1), self.stream)
        sums: dict = {width: self._sums(_strided(self.own.source, width)) for width in _WIDTHS}
        self.right = self.comm.allgather(sums | {"all": self._sums(self.own.source)})

    def _parts(self, base: DeviceArray) -> SimpleNamespace:
        """What a rank reads, what it adds to, and the flags, in the memory of one rank."""
        source, tile = (_matrix(base[x * self.nbytes :][: self.nbytes]) for x in (0, 1))
        return SimpleNamespace(source=source, tile=tile, flags=base[-_FLAGS:].view(np.uint32))

    def _sums(self, matrix: DeviceArray) -> np.ndarray:
        """A weighted sum of each row, exact: it differs if an element is wrong or in another
        column."""
        return self.device.times(matrix, np.arange(1.0, matrix.shape[1] + 1)[:, None])

    def _rate(self, work, nbytes: int) -> float:
        """GB/s of ``work()``, which puts so many bytes of transfers into the stream."""
        return _rounded(nbytes / self.timer.behind(work, self.stream) / 1e9)

    def _check(self, what: str, matrix: DeviceArray, right: np.ndarray) -> None:
        if not (self._sums(matrix) == right).all():
            self.wrong.append(what)

    def _copy(self, what: str, source: DeviceArray, right: np.ndarray) -> float:
        """GB/s of a copy to this rank, which is checked."""
        self.device.zero(self.copied, self.stream)
        target = self.copied.reshape(-1)[: source.size].reshape(source.shape)
        copy = partial(self.device.copy, target, source, self.stream)
        rate = self._rate(copy, target.nbytes)
        self._check(what, target, right)
        return rate

    def add(self, what: str, into: dict[int, int], part: int = 1) -> float | None:
        """GB/s of this rank's adds: rank r adds into the memory of ``into[r]``, all at the same
        time, one of ``part`` parts. All memory is checked."""
        rows, rate = len(self.own.tile) // part, None
        self.device.zero(self.own.tile, self.stream)
        self.stream.synchronise()
        self.comm.Barrier()
        if self.rank in into:
            tile, value = self.parts[into[self.rank]].tile[:rows], self.own.source[:rows]
            work = partial(self.device.accumulate, tile, value, self.stream)
            rate = self._rate(work, value.nbytes)
        self.comm.Barrier()
        added = (self.right[rank]["all"][:rows] for rank, to in into.items() if to == self.rank)
        total = _RUNS * Timer.BEHIND * sum(added, np.zeros((rows, 1)))
        self._check(what, self.own.tile[:rows], total)
        return rate

    def pair(self, origin: int, other: int) -> dict:
        """What rank ``one`` does in the memory of ``other``."""
        reach, atomic, mine = self.slab.reach, self.slab.added.reach[origin][other], {}
        facts = {"from": origin, "to": other, "reached": reach[origin][other], "atomic": atomic}
        if not reach[origin][other]:
            return facts | {"wrong": []}
        if self.rank == origin:
            source, right = self.parts[other].source, self.right[other]
            mine["copy"] = self._copy("copy", source, right["all"])
            mine["rows"] = {
                width: self._copy(f"rows of {width} B", _strided(source, width), right[width])
                for width in _WIDTHS
            }
        if atomic:
            rate = self.add("add", {origin: other})
            self.add("adds of both at the same time", {origin: other, other: other}, _PART)
            if self.rank == origin:
                mine["add"] = rate
        if reach[other][origin] and self.flags:
            self.comm.Barrier()
            mine |= self._trips(origin, other)
        return facts | self._joined(mine)

    def _joined(self, mine: dict) -> dict:
        """The results of all ranks, and what was wrong (collective)."""
        joined: dict = {"wrong": []}
        for part, wrong, stuck in self.comm.allgather((mine, self.wrong, self.stuck)):
            joined |= part
            joined["wrong"] += wrong
            self.stuck |= stuck
        self.wrong = []
        return joined

    def _trips(self, origin: int, other: int) -> dict:
        """Round trips of a flag between streams of two ranks, which begin on the first: their
        microseconds, and why the second rank did not see a flag of the first."""
        if self.rank not in (origin, other):
            return {}
        partner, stream, why = origin + other - self.rank, self.stream, ""
        here, there = self.own.flags[partner:], self.parts[partner].flags[self.rank :]
        first = 1 + (origin > other) * (_WARM_UP + _TRIPS)  # after those of the other direction
        timed, last = first + _WARM_UP, first + _WARM_UP + _TRIPS - 1
        steps = [partial(self.device.write_flag, there), partial(self.device.wait_flag, here)]
        for _ in range(_BUSY):
            self.device.copy(self.copied, self.own.source, stream)
        try:
            for number in range(first, last + 1):
                if number == timed:
                    stream.record(self.timer.zero)
                for step in steps if self.rank == origin else steps[::-1]:
                    step(number, stream)
        except DrbenchError as error:
            why = str(error)
        stream.record(self.timer.one)
        if not reached(self.timer.one, _LATE_S):
            why = why or f"a flag was not seen in {_LATE_S} s"
            self.device.write_flag(here, last, self.release)
            self.stuck = not reached(self.timer.one, _LATE_S)
        if self.rank == other:
            return {"no_flag": why}
        took = 0.0 if why else self.timer.one.seconds_since(self.timer.zero)
        return {"flag_us": None if why else _rounded(1e6 * took / _TRIPS)}

    def together(self) -> dict:
        """Adds of all ranks into one at the same time. And copies of one rank from all others: on
        one stream, on a stream for each."""
        size, results = self.comm.size, {}
        for to in range(size):
            into = {rank: to for rank in range(size) if self.slab.added.reach[rank][to]}
            self.add(f"adds of all into rank {to}", into, _PART)
        if self.rank == 0 and size > 2 and all(self.slab.reach[0]):
            results["from_all"] = self._from_all()
        return self._joined(results)

    def _from_all(self) -> list[float]:
        """GB/s of copies from all other ranks: on one stream, and on a stream for each."""
        moves, rows = {}, len(self.copied) // (self.comm.size - 1)
        for x in range(1, self.comm.size):
            target, source = self.copied[(x - 1) * rows :][:rows], self.parts[x].source[:rows]
            moves[self.device.stream(f"from {x}")] = partial(self.device.copy, target, source)
        many = lambda copy, stream: [copy(stream) for _ in range(Timer.BEHIND)]
        on_one = lambda: [many(copy, self.stream) for copy in moves.values()]
        by_stream = {stream: partial(many, copy, stream) for stream, copy in moves.items()}
        times = self.timer.seconds(on_one, self.stream), self.timer.together(self.stream, by_stream)
        nbytes = Timer.BEHIND * len(moves) * rows * _ROW
        return [_rounded(nbytes / seconds / 1e9) for seconds in times]

    def why(self) -> list[str]:
        """For each rank why this one does not reach its memory; empty if it does."""
        memory, handle, reasons = self.device.allocate(1), None, [""] * self.comm.size
        with suppress(UnsupportedError):
            handle = self.device.ipc_handle(memory)
        for rank, theirs in enumerate(self.comm.allgather(handle)):
            if self.slab.reach[self.rank][rank]:
                continue
            if self.node_of[rank] != self.node_of[self.rank]:
                reasons[rank] = "on another node"
            elif theirs is None:
                reasons[rank] = "IPC refused: no handle of its memory"
            else:
                try:
                    self.device.close_handle(self.device.open_handle(theirs))
                except UnsupportedError as error:
                    cause = error.__cause__
                    reasons[rank] = f"IPC refused: {cause}" if cause else "no peer access"
        self.comm.Barrier()
        memory.free()
        return reasons

    def every(self) -> dict:
        """All of it, until a stream is stuck."""
        why, pairs, doing = self.comm.allgather(self.why()), [], ""
        report = {"kind": "pairs", "gpus": self.gpus, "pairs": pairs}
        try:
            for origin, other in permutations(range(self.comm.size), 2):
                doing = f"rank {origin} in the memory of rank {other}"
                pairs.append(self.pair(origin, other) | {"why": why[origin][other]})
                if self.stuck:
                    return report | {"stuck": True}
            doing = "all ranks at the same time"
            return report | {"stuck": False, "together": self.together()}
        except Exception as error:  # of CUDA, on this rank
            raise RuntimeError(f"{doing}: {error}") from error

    def close(self) -> None:
        self.slab.close()
        self.device.close()


def measure(comm: MPI.Comm, nbytes: int) -> dict:
    """The line, in plain values (collective)."""
    with Topology(comm) as topology:
        node = topology.node
        try:
            device = call_together(comm, partial(cuda_device, node.rank, node.size))
        except DrbenchError as error:  # on every rank
            return {"kind": "pairs", "failed": str(error)}
        pairs = Pairs(topology, device, nbytes)
        report = pairs.every()
        if not pairs.stuck:
            pairs.close()
    return report


def main(nbytes: int = _BYTES) -> None:
    start_mpi()
    try:
        report = measure(MPI.COMM_WORLD, nbytes)
    except Exception as error:  # on one rank: mpi4py then ends all
        print(json.dumps({"kind": "pairs", "failed": str(error)}), flush=True)
        raise
    if MPI.COMM_WORLD.rank == 0:
        print(json.dumps(report), flush=True)
    if report.get("stuck"):  # freeing memory would wait for ever
        MPI.COMM_WORLD.Barrier()
        os._exit(0)


if __name__ == "__main__":
    main()
