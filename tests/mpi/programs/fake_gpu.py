"""``--backend cupy`` on ranks whose CuPy is a fake: device memory is shared memory that other ranks
open by its handle, kernels are those of ``kernels.cu`` compiled for the host, cuBLAS reads the
addresses it is given. Answers the records of the cases.

``fake_gpu.py LIBRARY FILE``
"""

import json
import sys

from fake_cuda import shared_cupy
from harness import answer, ranks

from launch.ranks.run_case import Case, run_case


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
        once = {"backend": "cupy", "iters": 1, "budget": 0, "warmup": 0}
        records = [run_case(Case(**once | case), comm) for case in cases]
        found = comm.allreduce(left())
        answer(comm, {"records": [record.to_json_dict() for record in records], "left": found})


if __name__ == "__main__":
    main()
