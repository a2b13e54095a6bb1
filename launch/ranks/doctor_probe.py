"""The self-test of ``drbench doctor`` on ranks: a small multiplication that fetches tiles and
accumulates partial sums, in place if possible, and by RMA. Prints one line of JSON."""

import json

from drbench.host.topology import mpi_version, start_mpi, tcp_settings
from launch.cases.case import Case

from .run_case import MPI, run_case


def main() -> None:
    start_mpi(MPI.COMM_SELF)  # whether ranks see each other is the question
    comm, fields = MPI.COMM_WORLD, {"threads": 1, "iters": 1, "budget": 0.0}
    fields |= {"a": "column", "b": "column", "c": "row", "options": {"stationary": "A"}}
    found = {name: run_case(Case(12, 13, 14, transport=name, **fields)) for name in ("auto", "rma")}
    text = {
        "size": comm.size,
        "library": mpi_version(),
        "standard": ".".join(map(str, MPI.Get_version())),
        "rma": found["rma"].status == "ok",
        "direct": found["auto"].transport != "rma",
        "tcp": tcp_settings(),
    }
    if comm.rank == 0:
        print(json.dumps(text), flush=True)


if __name__ == "__main__":
    main()
