"""The self-test of ``drbench doctor`` on ranks: a small multiplication that fetches tiles and
accumulates partial sums, in place if possible, and by RMA, and large messages. Prints a line of
JSON for each part, because MPI may end the ranks in the next."""

import json
import os

from drbench.errors import OutOfMemory
from drbench.host.topology import mpi_version, start_mpi, tcp_settings
from drbench.launch.cases.case import Case

from .run_case import MPI, run_case

#: Bytes of a large message.
_LARGE = 8 << 20


def main() -> None:
    try:
        start_mpi(MPI.COMM_SELF)  # whether ranks see each other is the question
    except OutOfMemory as error:
        print(json.dumps({"failed": str(error)}), flush=True)
        return
    comm, fields = MPI.COMM_WORLD, {"threads": 1, "iters": 1, "budget": 0.0}
    report = lambda **facts: comm.rank or print(json.dumps(facts), flush=True)
    report(
        size=comm.size,
        library=mpi_version(),
        standard=".".join(map(str, MPI.Get_version())),
        tcp=tcp_settings(),
    )
    fields |= {"a": "column", "b": "column", "c": "row", "options": {"stationary": "A"}}
    records = {
        name: run_case(Case(12, 13, 14, transport=name, **fields)) for name in ("auto", "rma")
    }
    report(rma=records["rma"].status == "ok", direct=records["auto"].transport != "rma")
    before, after = ((comm.rank + by) % comm.size for by in (-1, 1))
    right = len(comm.sendrecv(bytes(_LARGE), after, source=before)) == _LARGE
    large = comm.allreduce(right, MPI.LAND)
    report(large=large, reads=os.environ.get("MPIR_CVAR_CH4_CMA_ENABLE") != "0")


if __name__ == "__main__":
    main()
