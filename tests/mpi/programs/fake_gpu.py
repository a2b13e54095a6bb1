"""``--backend cupy`` on ranks whose CuPy is a fake: device memory is shared memory that other ranks
open by its handle, kernels are those of ``kernels.cu`` compiled for the host, cuBLAS reads the
addresses it is given. Answers the records of the cases, how many repeats of each were launched as
one graph, and how many launches were worked out anew in a third repeat or later.

``fake_gpu.py LIBRARY FILE``
"""

import json
import sys

from fake_cuda import shared_cupy
from harness import answer, ranks

from drbench.device.executor import DeviceExecutor
from launch.ranks.run_case import Case, run_case


class Watched(DeviceExecutor):
    """Counts launches that are worked out in a repeat after the second."""

    anew = 0
    original = DeviceExecutor._run

    def _run(self):
        prepared = self.device._prepared._made
        before = len(prepared)
        Watched.original(self)
        self.repeats = getattr(self, "repeats", 0) + 1
        if self.repeats > 2:
            Watched.anew += len(prepared) - before


DeviceExecutor._run = Watched._run


def main():
    library, path = sys.argv[1:]
    with open(path) as file:
        cases = json.load(file)
    with ranks() as comm:
        without_peers = [case.pop("no_peers", False) for case in cases]  # of every case
        without_atomics = [case.pop("no_atomics", False) for case in cases]
        without_driver = [case.pop("no_driver", False) for case in cases]
        devices = [case.pop("devices", 2) for case in cases]
        left = shared_cupy(
            library,
            not any(without_peers),
            not any(without_atomics),
            devices=max(devices),
            driver=not any(without_driver),
        )
        once = {"backend": "cupy", "iters": 3, "budget": 0, "warmup": 0}
        records, graphs = [], []
        for case in cases:
            before = left.graphs()
            records.append(run_case(Case(**once | case), comm))
            graphs.append(comm.allreduce(left.graphs() - before))
        found = {
            "left": comm.allreduce(left()),
            "graphs": graphs,
            "anew": comm.allreduce(Watched.anew),
        }
        answer(comm, {"records": [record.to_json_dict() for record in records], **found})


if __name__ == "__main__":
    main()
