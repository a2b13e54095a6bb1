"""The ranks of a sweep: run the cases that the supervisor sends, and answer each with its record.

Rank 0 reads cases from standard input and answers on standard output, both lines of JSON; output of
libraries is redirected to standard error. If the input ends without the supervisor's order to end,
the supervisor has died, and all ranks end at once.
"""

import faulthandler
import json
import os
import queue
import signal
import sys
import threading
import traceback

from drbench.common import until_heard
from drbench.errors import UsageError, exit_code_of
from drbench.host.topology import Topology
from launch.cases.case import Case, failure
from launch.host.environment import rank_facts
from launch.host.protocol import ANSWER, FAILED

from .kept import Kept
from .run_case import everyone_is_here, run_case, world, write_timeline


def serve() -> int:
    """Run cases until the order to end, and return the exit code."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of libraries must not be read as an answer
    faulthandler.enable()
    comm = world()

    def write_line(answer: dict) -> None:
        """Write a line for the supervisor, on rank 0."""
        if comm.rank == 0:
            answers.write(f"{ANSWER}{json.dumps(answer)}\n")
            answers.flush()

    facts = comm.gather(rank_facts())
    cases: queue.SimpleQueue = queue.SimpleQueue()
    if comm.rank == 0:
        threading.Thread(target=_listen, args=(cases,), daemon=True).start()
    with Topology(comm) as topology, Kept() as kept:
        step = [os.environ.get(f"SLURM_{name}_ID", "") for name in ("JOB", "STEP")]
        write_line({"ready": facts, "slurm": ".".join(step) if all(step) else ""})
        while True:
            order = comm.bcast(cases.get() if comm.rank == 0 else None)
            if "end" in order:
                return 0
            case, timelines = Case(**order["case"]), []
            try:
                kept.begin(order.get("group"))
                limit, turn = order.get("mem_limit"), order.get("turn")
                record = run_case(case, comm, topology, limit, timelines, kept, turn)
            except UsageError as error:
                if not everyone_is_here(comm):
                    _fail(comm, error)
                record = failure(case, comm.size, "failed", str(error))
            except Exception as error:  # perhaps on this rank alone: only a new start is safe
                _fail(comm, error)
            try:
                write_timeline(case, timelines)
            except UsageError as error:  # the record is still valid
                sys.stderr.write(f"drbench: {error}\n")
            write_line({"record": record.to_row()})


def _listen(cases) -> None:
    """Forward orders; end all ranks if the supervisor has died."""
    for line in sys.stdin:
        order = json.loads(line)
        cases.put(order)
        if "end" in order:
            return
    # mpiexec ends the others; MPI_Abort could wait for a lock that a hanging call holds
    os.kill(os.getpid(), signal.SIGKILL)


def _fail(comm, error: Exception) -> None:
    """Report the error of this rank, and end all ranks."""
    status = (
        "out_of_memory" if isinstance(error, MemoryError) else getattr(error, "status", "failed")
    )
    reason = f"rank {comm.rank}: {type(error).__name__}: {error}"
    message = json.dumps({"status": status if status != "usage" else "failed", "reason": reason})
    sys.stderr.flush()
    os.write(2, f"{FAILED}{message}\n{traceback.format_exc()}".encode("utf-8", "backslashreplace"))
    until_heard()
    comm.Abort(exit_code_of(error))
