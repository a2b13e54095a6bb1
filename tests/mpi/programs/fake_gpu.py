"""``--backend cupy`` on ranks whose CuPy is a fake: device memory is shared memory that other ranks
open by its handle, kernels are those of ``kernels.cu`` compiled for the host, cuBLAS reads the
addresses it is given. Answers the records of the cases, how many repeats of each were launched as
one graph, and how many launches were computed anew in a third repeat or later.

``fake_gpu.py LIBRARY FILE HOW``: ``HOW`` are options of the fake for
:func:`fake_cuda.shared_cupy`.
"""

import json
import sys

from fake_cuda import shared_cupy
from harness import answer, ranks, restored
from run_cases import case_of

from drbench.device.executor import DeviceExecutor
from drbench.launch.ranks.run_case import run_case


class Watched(DeviceExecutor):
    """Counts launches that are computed in a repeat after the second."""

    anew = 0
    original = DeviceExecutor._run

    def _run(self):
        prepared = self.device._prepared._calls
        before = len(prepared)
        Watched.original(self)
        self.repeats = getattr(self, "repeats", 0) + 1
        if self.repeats > 2:
            Watched.anew += len(prepared) - before


def main():
    library, path, lacks = sys.argv[1:]
    with open(path) as file:
        cases = json.load(file)
    watching = restored((DeviceExecutor, "_run"))
    with ranks() as comm, watching, shared_cupy(library, **json.loads(lacks)) as left:
        DeviceExecutor._run = Watched._run
        once = {"backend": "cupy", "iters": 3, "warmup": 0}
        records, graphs = [], []
        for case in cases:
            before = left.graphs()
            records.append(run_case(case_of(case, **once), comm))
            graphs.append(comm.allreduce(left.graphs() - before))
        found = {
            "left": comm.allreduce(left()),
            "graphs": graphs,
            "anew": comm.allreduce(Watched.anew),
        }
        answer(comm, {"records": [record.to_json_dict() for record in records], **found})


if __name__ == "__main__":
    main()
