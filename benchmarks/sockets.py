"""What every rank remote can come to at best, and what comes of it: rows of section ``sockets`` of
``benchmarks/core.py``, which starts it.

    MPIR_CVAR_NOLOCAL=1 UCX_TLS=tcp,self \\
        python -m benchmarks sockets [--size 4096] [--iters 5] [--budget 8]

Over TCP the cores that multiply also move the bytes: the kernel copies each of them from the
sender into a socket and from there to the receiver. ``sockets_s`` is the CPU time that the busier
rank needs for that, with nothing else in between: both ends in large pieces, straight from and to
their arrays, as many bytes each way as the program moves. No product hides it, so that

    bound = roof / (roof + sockets)

is what a program can reach that multiplies at the speed of the roof and moves its bytes over TCP.
Sums of what has come, MPI, and waiting are not in it. Everything is measured in turn, in one
process a rank. Prints JSON, a row a case.
"""

import argparse
import json
import select
import socket
from statistics import median
from time import process_time

import numpy as np

from algorithms import get_algorithm
from benchmarks.core import PRESETS, REMOTE_CASES
from benchmarks.paired import Contender, Ground, ground, ratio, rounds, undisturbed_times
from drbench.host.executor import Executor
from drbench.measure.noise import Timed
from drbench.measure.roof import HostWork, Roof
from launch.ranks.run_case import MPI, world

#: Bytes of a call of the system: the socket takes or gives as many of them as it can.
_PIECE = 1 << 20


class Sockets:
    """A connection between the two ranks (collective to make).

    Parameters
    ----------
    comm : MPI.Comm
        Of two ranks.
    sends, receives : int
        Bytes of this rank.
    """

    def __init__(self, comm: MPI.Comm, sends: int, receives: int):
        self._comm = comm
        self._out, self._in = (memoryview(np.ones(n, np.uint8)) for n in (sends, receives))
        if comm.rank == 0:
            with socket.create_server(("127.0.0.1", 0)) as server:
                comm.send(server.getsockname(), 1)
                self._socket, _ = server.accept()
        else:
            self._socket = socket.create_connection(comm.recv(source=0))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setblocking(False)
        self._poll = select.poll()

    def move(self) -> None:
        """All bytes both ways; sleeps while there is nothing to do."""
        out, into, way = self._out, self._in, self._socket
        sent = come = 0
        while sent < len(out) or come < len(into):
            before = sent + come
            try:
                sent += way.send(out[sent : sent + _PIECE]) if sent < len(out) else 0
            except BlockingIOError:
                pass
            try:
                come += way.recv_into(into[come : come + _PIECE]) if come < len(into) else 0
            except BlockingIOError:
                pass
            if sent + come == before:
                wanted = select.POLLOUT * (sent < len(out)) | select.POLLIN * (come < len(into))
                self._poll.register(way, wanted)
                self._poll.poll()

    def cpu(self) -> Timed:
        """CPU seconds of the busier rank (collective)."""
        self._comm.Barrier()
        start = process_time()
        self.move()
        spent = process_time() - start
        return Timed(self._comm.allreduce(spent, MPI.MAX))

    def close(self) -> None:
        self._socket.close()


def bytes_out(comm: MPI.Comm, executor: Executor) -> list[int]:
    """Bytes that each of two ranks sends in a run: what it adds elsewhere, and what the other
    reads."""
    of = comm.allgather(executor.bytes)
    writes = ("put_bytes", "accumulate_bytes")
    reads = ("get_bytes", "replica_bytes")
    return [
        sum(of[rank][name] for name in writes) + sum(of[1 - rank][name] for name in reads)
        for rank in range(2)
    ]


def executor_of(here: Ground, stationary: str) -> Executor:
    """The universal algorithm as ``drbench run`` has it, after a first run."""
    algorithm = get_algorithm("universal")
    problem = here.problem.on_nodes(range(here.comm.size))
    resolved = algorithm.resolve(problem, False, stationary=stationary)
    found = algorithm.trace(problem, here.comm.rank, **resolved)
    prefetch = algorithm.prefetch(**resolved)
    executor = Executor(found, here.matrices, prefetch=prefetch, blas=here.blas)
    executor.yields = False
    here.time(executor)
    here._compare(Contender("universal", label=f"S-{stationary}"))
    return executor


def measured(
    layout: str, stationary: str, size: int, least: int, budget_s: float, shapes: list
) -> dict:
    """One case: its ratio to the roof, the bound, and the ratio to that. ``shapes`` has the roof's
    once it is known."""
    with ground(size, PRESETS[layout], in_place=False, padded=stationary) as here:
        comm = here.comm
        executor = executor_of(here, stationary)
        out = bytes_out(comm, executor)
        sockets = Sockets(comm, out[comm.rank], out[1 - comm.rank])
        roof = Roof(here.problem, comm, HostWork(here.blas), here.fill, *shapes)
        shapes[:] = [roof.shape]
        sockets.move()

        def repeat(turn: int) -> dict:
            found = {}
            what = [("roof", roof.sample), ("run", lambda: here.time(executor))]
            for name, take in what[:: 1 if turn % 2 else -1]:
                found[name] = take()
            found["sockets"] = sockets.cpu()
            return found

        taken = rounds(comm, repeat, least, budget_s)
        times = undisturbed_times(taken, least, "run", "roof", "sockets")
        roof_s = [roof_s for _, roof_s, _ in times]
        bounds = [roof_s / (roof_s + sockets_s) for _, roof_s, sockets_s in times]
        found = {
            "case": f"{layout}, S-{stationary}",
            "bytes_out": max(out),
            "roof_s": median(roof_s),
            "sockets_s": median(sockets_s for _, _, sockets_s in times),
            "bound": median(bounds),
            **ratio([one / run for run, one, _ in times]),
        }
        of_bound = ratio([one / run / bound for (run, one, _), bound in zip(times, bounds)])
        found |= {f"of_bound_{name}": value for name, value in of_bound.items()}
        sockets.close()
        executor.close()
    return found


def main() -> None:
    comm = world()  # MPI begins as it does for a case
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, default=4096)
    parser.add_argument("--iters", type=int, default=5)
    parser.add_argument("--budget", type=float, default=8)
    chosen = parser.parse_args()
    shapes: list = []
    rows = [
        measured(layout, stationary, chosen.size, chosen.iters, chosen.budget, shapes)
        for layout, stationaries in REMOTE_CASES
        for stationary in stationaries
    ]
    if comm.rank == 0:
        print(json.dumps(rows))


if __name__ == "__main__":
    main()
