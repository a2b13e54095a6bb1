"""Programs with signals on a device of worker threads, several runs of one executor on operands
that change from run to run; answer how many elements of C were wrong in each run, whether bytes
were as planned, and who signalled.

``device_signals.py CASES.json [--mutant NAME]``; with a mutant rank 0 begins each run late. A case
has ``algorithm``, ``shape``, ``options``, and some of ``prefetch``, ``get``, ``gemms``, ``streams``
(copy streams), ``direct`` (MPI reads device memory), ``hosts`` (streams cannot wait for flags),
``learns`` (nor in the first run), ``serial`` (all streams of a device are one queue),
``transpose``, ``dtype``, ``seed``, ``delay_s``, ``without``.
"""

import argparse
import json
import time
from dataclasses import replace

import numpy as np
from harness import TRANSPORT, answer, fill, ranks, shared_slots, wrong_in
from mpi4py import MPI
from oracles import expected

from algorithms import get_algorithm
from drbench.common import parse_transport
from drbench.device.base import Resources
from drbench.device.executor import DeviceExecutor
from drbench.device.inbox import DeviceInbox
from drbench.device.matrix import device_matrices
from drbench.device.signals import LaunchOrder
from drbench.device.threads import HostDevice
from drbench.errors import UnsupportedError
from drbench.host.topology import Topology
from drbench.plan.explain import traffic

RUNS = 2


class SerialDevice(HostDevice):
    """All streams are one queue, as CUDA may make them: a wait holds up what is launched later."""

    def stream(self, name, multiplies=False):
        made = super().stream(name)
        if not hasattr(self, "_one"):
            self._one = made._queue
            return made
        made._queue.put(None)  # its thread ends
        made._queue = self._one
        return made

    def close(self):
        self._one.put(None)


def no_epoch():
    """The values of any run count."""
    DeviceInbox.number = property(lambda self: 1)


def any_order():
    """Waits are launched as soon as they can be."""
    LaunchOrder.may = lambda self, t: True


MUTANTS = {each.__name__: each for each in (no_epoch, shared_slots, any_order)}


def numbers(shape, run):
    """Small integers, others in each run."""
    return np.random.default_rng([run, *shape]).integers(-4, 5, shape)


def run(case, topology, late_s):
    comm, (m, n, k) = topology.comm, case["shape"]
    algorithm = get_algorithm(case["algorithm"])
    problem = algorithm.problem(
        m,
        n,
        k,
        comm.size,
        transpose=case.get("transpose", ""),
        **case["options"],
    )
    problem = replace(problem, dtype=case.get("dtype", "float32"))
    try:
        resolved = algorithm.resolve(problem, **case["options"])
    except UnsupportedError as error:
        return {"refused": str(error)}
    found = algorithm.trace(problem, comm.rank, **resolved)
    kind = SerialDevice if case.get("serial") else HostDevice
    device = kind(
        case.get("seed", 0) * comm.size + comm.rank, case.get("delay_s", 2e-4 if late_s else 1e-4)
    )
    device.loads_late = case.get("learns", False)
    if case.get("hosts"):
        device.why_no_waits = lambda: "for the test"
    transport = parse_transport("rma" if TRANSPORT.kind == "rma" else "auto")
    wrong, by_streams = [], []
    with device_matrices(
        problem, topology, device, transport, case.get("direct", False)
    ) as matrices:
        kind = type("Mutant", (DeviceExecutor,), {"without": case.get("without", ())})
        with kind(
            found,
            matrices,
            prefetch=case.get("prefetch", algorithm.prefetch()),
            get=case.get("get", "copy"),
            resources=Resources(case.get("gemms", 1), copies=case.get("streams", 1)),
        ) as executor:
            for number in range(RUNS):
                a, b = (
                    numbers(operand.partition.shape, x)
                    for operand, x in ((problem.a, number), (problem.b, 100 + number))
                )
                fill(matrices["A"], a)
                fill(matrices["B"], b)
                executor.spoil()
                comm.Barrier()
                time.sleep(0.0 if comm.rank else late_s)
                executor.run()
                by_streams.append(executor.inbox is not None and executor.inbox.by_streams)
                comm.Barrier()
                wrong.append(wrong_in(matrices["C"], expected(problem, a, b)))
                comm.Barrier()
            counted, planned = dict(executor.bytes), traffic(found).counters
            counted["get_bytes"] += counted.pop("direct_bytes")
            planned.pop("direct_bytes")
            apart = comm.allreduce(int(executor.inbox is not None and executor.inbox.apart))
            lanes = sorted(executor._lanes)
    device.close()
    return {
        "wrong": wrong,
        "as_planned": comm.allreduce(counted == planned, MPI.LAND),
        "by_streams": by_streams,
        "apart": apart,
        "lanes": lanes,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("cases")
    parser.add_argument("--mutant", choices=MUTANTS)
    options = parser.parse_args()
    with ranks() as comm, Topology(comm) as topology:
        if options.mutant:
            MUTANTS[options.mutant]()
        with open(options.cases) as file:
            cases = json.load(file)
        answer(comm, [run(case, topology, 0.02 * bool(options.mutant)) for case in cases])


if __name__ == "__main__":
    main()
