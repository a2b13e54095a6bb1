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
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TextIO

from drbench.errors import UsageError, as_ours, exit_code_of
from drbench.host.launcher import end_ranks
from drbench.host.topology import Topology
from drbench.launch.cases.case import Case, failure
from drbench.launch.host.environment import rank_facts
from drbench.launch.host.protocol import ANSWER, FAILED, append_journal
from drbench.launch.host.streams import stream
from drbench.measure.record import Record

from .group_memory import GroupMemory
from .run_case import MPI, everyone_is_here, run_case, world, write_timeline

#: Seconds after another rank ended all ranks in which this one is ended too.
_LEFT_S = 1.0


def serve() -> int:
    """Run cases until the order to end, and return the exit code."""
    answers = own_output()
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
    with Topology(comm) as topology, GroupMemory() as memory:
        step = [os.environ.get(f"SLURM_{name}_ID", "") for name in ("JOB", "STEP")]
        write_line({"ready": facts, "slurm": ".".join(step) if all(step) else ""})
        answer = lambda record: write_line({"record": record.to_row()})
        run_orders(comm, topology, memory, cases.get, answer)
    return 0


def own_output() -> TextIO:
    """What was standard output, for our own lines: what libraries print goes to standard error."""
    output = stream(os.dup(1))
    os.dup2(2, 1)
    return output


def run_orders(
    comm,
    topology: Topology,
    memory: GroupMemory,
    next_order: Callable[[], dict],
    answer: Callable[[Record], None],
) -> Any:
    """Run the cases that rank 0 is ordered to run, on all ranks, until the order to end, and return
    its value (collective)."""
    while "end" not in (order := comm.bcast(next_order() if comm.rank == 0 else None)):
        answer(run_order(order, comm, topology, memory))
    return order["end"]


def run_order(order: dict, comm, topology: Topology, memory: GroupMemory) -> Record:
    """Run the case of an order, and return its record (collective); an error of one rank ends
    all."""
    case, timelines = Case(**order["case"]), []
    try:
        memory.begin(order.get("group"))
        limit, turn = order.get("mem_limit"), order.get("turn")
        record = run_case(case, comm, topology, limit, timelines, memory, turn)
    except UsageError as error:
        if not everyone_is_here(comm):
            _fail(comm, error, order.get("journal"))
        record = failure(case, comm.size, "failed", str(error))
    except (Exception, SystemExit) as error:  # perhaps on this rank alone: only a new start is safe
        _fail(comm, error, order.get("journal"))
    try:
        write_timeline(case, timelines)
    except UsageError as error:  # the record is still valid
        sys.stderr.write(f"drbench: {error}\n")
    return record


def _listen(cases) -> None:
    """Forward orders; end all ranks if the supervisor has died."""
    for line in sys.stdin:
        order = json.loads(line)
        cases.put(order)
        if "end" in order:
            return
    # mpiexec ends the others; MPI_Abort could wait for a lock that a hanging call holds
    os.kill(os.getpid(), signal.SIGKILL)


def _fail(comm, error: BaseException, journal: tuple[str, str] | None) -> None:
    """Report the error of this rank to the supervisor, or in the journal of the sweep, and end all
    ranks."""
    if isinstance(error, MPI.Exception):  # perhaps another rank left: then all are being ended
        time.sleep(_LEFT_S)
    status = getattr(as_ours(error), "status", "failed")
    reason = f"rank {comm.rank}: {type(error).__name__}: {error}"
    end = {"status": status if status != "usage" else "failed", "reason": reason}
    message = f"{FAILED}{json.dumps(end)}"
    if journal:
        message = f"drbench: {reason}. The same command records this, and continues."
        with suppress(OSError):  # on another node, without that folder
            append_journal(*journal, **end)
    sys.stderr.flush()
    os.write(2, f"{message}\n{traceback.format_exc()}".encode("utf-8", "backslashreplace"))
    end_ranks(comm, exit_code_of(error))
