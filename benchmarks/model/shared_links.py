"""Do flows over one link share it, or go one after another? Measured here, beside both predictions.

``python -m benchmarks model.shared_links --save results/measured/spr-2core/shared-links.csv`` gives
the ranks a network of their own (a namespace, so it takes root) whose one link the kernel's token
bucket throttles, and lets several ranks read blocks of different sizes from the first one at the
same time, by MPI's RMA over TCP. When each ends is compared with the simulator's ``fair`` and
``fifo``; for ``fifo`` in whichever order comes nearest. Half a minute.
"""

import argparse
import os
import subprocess
import sys
from itertools import permutations
from pathlib import Path
from statistics import median

import pandas

from drbench.model.gemm import Compute
from drbench.model.links import ARBITRATIONS
from drbench.model.machine import Link, Machine
from drbench.model.simulate import simulate
from drbench.program.problem import Problem
from drbench.program.steps import Block, Get
from drbench.program.trace import Trace, trace
from launch.host.files import ROOT

MEGABITS = 400
#: MiB that each reading rank reads at the same time.
FLOWS = ((8,), (8, 8), (4, 12), (8, 16), (4, 8, 16), (8, 8, 16))
REPEATS = 7
#: What the namespace gets: loopback with a token bucket, and an address that UCX takes.
NETWORK = f"""
mount -t sysfs sysfs /sys
ip link set lo up mtu 9000
ip link add v0 type veth peer name v1
ip addr add 10.9.9.1/24 dev v0
ip link set v0 up
ip link set v1 up
tc qdisc add dev lo root tbf rate {MEGABITS}mbit burst 256k latency 200ms
"""


def predicted(sizes: tuple[int, ...], rate: float, arbitration: str) -> list[float]:
    """When each reader is done, by the simulator."""
    problem = Problem(1, 1, 1, len(sizes) + 1)

    def program(nbytes):
        yield Get(Block("A", 0, 0, (0, 0), 0, nbytes // 4, 0, 1))

    traces = [Trace(problem, 0, [])]
    traces += [
        trace(program(each << 20), problem, rank, fresh=False) for rank, each in enumerate(sizes, 1)
    ]
    machine = Machine("link", Compute(1.0), (Link("wire", rate),), arbitration=arbitration)
    bars = simulate(traces, machine, timeline=True).timeline
    return [bar.stop_s for bar in sorted(bars, key=lambda bar: bar.rank)]


def nearest(sizes: tuple[int, ...], rate: float, arbitration: str, ends: list) -> list[float]:
    """The same in the order of asking that comes nearest to what was measured."""
    found = []
    for order in permutations(range(len(sizes))):
        told = predicted(tuple(sizes[x] for x in order), rate, arbitration)
        found.append([told[order.index(x)] for x in range(len(sizes))])
    return min(found, key=lambda each: error(each, ends))


def error(told: list, ends: list) -> float:
    """Largest error of an end, in percent."""
    return max(100 * abs(one / other - 1) for one, other in zip(told, ends))


def measure() -> None:
    """On ranks: each line printed is sizes and the median end of each."""
    import numpy as np
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    most = max(max(sizes) for sizes in FLOWS) << 20
    window = MPI.Win.Create(np.zeros(most if comm.rank == 0 else 0, np.uint8), 1, comm=comm)
    target = np.zeros(most, np.uint8)
    window.Lock_all()
    for sizes in FLOWS:
        ends = []
        for _ in range(REPEATS + 1):
            comm.Barrier()
            start = MPI.Wtime()
            if 0 < comm.rank <= len(sizes):
                window.Rget([target[: sizes[comm.rank - 1] << 20], MPI.BYTE], 0).Wait()
            ends.append(MPI.Wtime() - start)
            comm.Barrier()
        mine = median(ends[1:])
        found = comm.gather(mine)
        if comm.rank == 0:
            print(*sizes, ":", *found[1 : len(sizes) + 1], flush=True)
    window.Unlock_all()
    window.Free()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--save", type=Path)
    parser.add_argument("--ranks", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.ranks:
        return measure()
    ranks = max(map(len, FLOWS)) + 1
    program = f"{sys.executable} -m benchmarks.model.shared_links --ranks"
    command = f"mpiexec -iface lo -n {ranks} {program}"
    environ = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "MPIR_CVAR_NOLOCAL": "1",
        "UCX_TLS": "tcp,self",
        "UCX_NET_DEVICES": "v0",
    }
    done = subprocess.run(
        ["unshare", "-nm", "bash", "-ec", NETWORK + command],
        env=environ,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=110,
    )
    if done.returncode:
        raise SystemExit(f"no network of its own, which takes root and tc: {done.stderr[-300:]}")
    rows, rate = [], 0.0
    for line in done.stdout.splitlines():
        left, _, right = line.partition(":")
        sizes, ends = tuple(map(int, left.split())), list(map(float, right.split()))
        rate = rate or (sizes[0] << 20) / ends[0]  # of one flow alone
        row = {"mib": " ".join(map(str, sizes)), "measured_s": " ".join(f"{x:.4f}" for x in ends)}
        for each in ARBITRATIONS:
            told = nearest(sizes, rate, each, ends)
            row[f"{each}_s"] = " ".join(f"{x:.4f}" for x in told)
            row[f"{each}_error_percent"] = f"{error(told, ends):.1f}"
        rows.append(row)
        print(row)
    if chosen.save:
        pandas.DataFrame(rows).to_csv(chosen.save, index=False, lineterminator="\n")


if __name__ == "__main__":
    main()
