"""Programs on a device of worker threads, repeated with other delays and operands; answer how many
elements of C were wrong in each run, whether bytes were as planned, and who signalled.

``devices.py CASES.json [--mutant NAME]``; with a mutant rank 0 begins each run late. A case has
``algorithm`` (if not universal), ``shape``, ``options``, and some of ``texts``, ``transport``,
``prefetch``, ``get``, ``gemms``, ``accumulates``, ``streams`` (copy streams), ``direct`` (MPI reads
device memory), ``hosts`` (streams cannot wait for flags), ``learns`` (nor in the first run),
``serial`` (all streams of a device are one queue), ``transpose``, ``dtype``, ``seed``, ``seeds``
(devices, each with other delays), ``delay_s``, ``without`` (edges).
"""

import argparse
import json
import time
from dataclasses import replace
from functools import partial
from unittest import mock

from harness import SLOTS, TRANSPORT, answer, ranks, refilled, restored, shared_slots, wrong_in
from host_device import HostDevice
from mpi4py import MPI

import drbench.device.executor
from drbench.algorithms import get_algorithm
from drbench.device.base import Resources
from drbench.device.executor import DeviceExecutor
from drbench.device.inbox import DeviceInbox
from drbench.device.matrix import device_matrices
from drbench.host.topology import Topology
from drbench.plan.edges import edges
from drbench.plan.explain import traffic
from drbench.transport import parse_transport

#: Of each device.
RUNS = 2


class SerialDevice(HostDevice):
    """All streams are one queue, as CUDA may make them: a wait delays later launches."""

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


class Broken(DeviceExecutor):
    """An executor without some edges (``without``): those of :mod:`drbench.plan.edges`; ``fence``
    and ``begin``, for which the host waits: for all streams in a Fence, for one before MPI reads or
    writes its memory; ``signal``, the wait for a flag; ``flag``: it is written before its value."""

    without = ()

    def __init__(self, *args, **how):
        with mock.patch.object(
            drbench.device.executor, "edges", partial(edges, without=frozenset(self.without))
        ):
            super().__init__(*args, **how)

    def _all_reached(self):
        return iter(()) if "fence" in self.without else super()._all_reached()

    def _reached(self, lane):
        return iter(()) if "begin" in self.without else super()._reached(lane)

    def _await_flag(self, lane, s):
        if "signal" not in self.without:
            super()._await_flag(lane, s)

    def _seen_by_host(self, t):
        if "signal" not in self.without:
            yield from super()._seen_by_host(t)
        else:
            self._signalled(t)

    def _copy_to_slot(self, step, value, lane):
        self._late = partial(super()._copy_to_slot, step, value, lane)
        if "flag" not in self.without:
            self._late()

    def _signal(self, t, lane):
        super()._signal(t, lane)
        if "flag" in self.without:
            self._late()


MUTANTS = {each.__name__: each for each in (no_epoch, shared_slots)}


def run(case, topology, late_s):
    """Results of all runs on all devices of a case."""
    comm, algorithm = topology.comm, get_algorithm(case.get("algorithm", "universal"))
    options = algorithm.pick(case["options"])
    how = {"transpose": case.get("transpose", ""), **options}
    problem = algorithm.problem(*case["shape"], comm.size, *case.get("texts", ()), **how)
    problem = replace(problem, dtype=case.get("dtype", "float32"))
    resolved = algorithm.resolve(problem, False, **options)
    found = algorithm.trace(problem, comm.rank, **resolved)
    everywhere = resolved.get("replicate_result")
    transport = parse_transport(case.get("transport", TRANSPORT.kind))
    kind = type("Mutant", (Broken,), {"without": case.get("without", ())})
    copies = case.get("streams", 1)
    resources = lambda: Resources(case.get("gemms", 1), case.get("accumulates", 1), copies)
    wrong, by_streams, as_planned, first = [], [], True, case.get("seed", 0)
    for seed in range(first, first + case.get("seeds", 1)):
        device = (SerialDevice if case.get("serial") else HostDevice)(
            seed * comm.size + comm.rank, case.get("delay_s", 2e-4 if late_s else 1e-4)
        )
        device.loads_late = case.get("learns", False)
        copied = set()
        copy = device.copy
        device.copy = lambda to, of, stream: (copied.add(stream), copy(to, of, stream))
        if case.get("hosts"):
            device.why_no_waits = lambda: "for the test"
        with (
            device_matrices(
                problem, topology, device, transport, case.get("direct", False)
            ) as matrices,
            kind(
                found,
                matrices,
                prefetch=case.get("prefetch", algorithm.prefetch()),
                get=case.get("get", "copy"),
                resources=resources(),
            ) as executor,
        ):
            for number in range(RUNS):
                right = refilled(problem, matrices, number)
                executor.poison()
                comm.Barrier()
                time.sleep(0.0 if comm.rank else late_s)
                executor.run()
                by_streams.append(executor.inbox is not None and executor.inbox.by_streams)
                comm.Barrier()
                wrong.append(wrong_in(matrices["C"], right, everywhere))
                comm.Barrier()
            counted, planned = dict(executor.bytes), traffic(found).counters
            counted["get_bytes"] += counted.pop("direct_bytes")
            planned.pop("direct_bytes")
            as_planned &= counted == planned
            apart = comm.allreduce(
                int(executor.inbox is not None and executor.inbox.sends_messages)
            )
            lanes = sorted(executor._lanes)
            used = [name for name in lanes if executor._lanes[name].stream in copied]
        device.close()
    return {
        "wrong": wrong,
        "as_planned": comm.allreduce(as_planned, MPI.LAND),
        "by_streams": by_streams,
        "apart": apart,
        "lanes": lanes,
        "copies": used,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("cases")
    parser.add_argument("--mutant", choices=MUTANTS)
    options = parser.parse_args()
    with ranks() as comm, Topology(comm) as topology, restored(SLOTS, (DeviceInbox, "number")):
        if options.mutant:
            MUTANTS[options.mutant]()
        with open(options.cases) as file:
            cases = json.load(file)
        answer(comm, [run(case, topology, 0.02 * bool(options.mutant)) for case in cases])


if __name__ == "__main__":
    main()
