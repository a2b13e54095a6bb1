"""A sweep on the ranks that a launcher has started: rank 0 plans and reports it as the supervisor
of a sweep does, and all ranks run its cases.

Nobody can start these ranks again. So a case that ends them is noted in the journal of the sweep,
and gets its row when the same command is given again.
"""

import faulthandler
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from threading import Timer
from typing import Any

from drbench.errors import EXIT_CODES, DrbenchError
from drbench.host.launcher import end_ranks
from drbench.host.topology import Topology
from drbench.launch.cases.case import failure
from drbench.launch.cases.peaks import with_peak
from drbench.launch.host.environment import describe, rank_facts, write_environment
from drbench.launch.host.mpi import launched
from drbench.launch.host.protocol import append_journal
from drbench.measure.record import Record
from drbench.partitions import LayoutError

from .group_memory import GroupMemory
from .run_case import MPI, world
from .worker import own_output, run_order, run_orders

_UNKNOWN = (
    "the job ended while its ranks ran it: they crashed, were killed, or ran out of memory; "
    "--retry runs it again"
)


def on_given_ranks(work: Callable[[Any], int]) -> int:
    """Call ``work(supervise)`` on rank 0, while the other ranks run the cases that it sends, and
    return its exit code on every rank (collective).

    ``supervise`` is used like :func:`drbench.launch.sweeps.supervisor.supervised`. An error of rank
    0 is raised on every rank.
    """
    sys.stdout = own_output()
    faulthandler.enable()
    comm = world()
    facts = comm.gather(rank_facts())
    with Topology(comm) as topology, GroupMemory() as memory:
        if comm.rank:
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)  # rank 0 notes the end, and ends all
            end = run_orders(comm, topology, memory, dict, lambda record: None)
            if isinstance(end, Exception):
                raise end
            return end
        given = _Given(comm, topology, memory, facts)
        try:
            code = work(given.supervise)
        except (DrbenchError, LayoutError) as error:
            comm.bcast({"end": error})
            raise
        if given.current:  # interrupted: the others are inside the case
            given.abort(code)
        comm.bcast({"end": code})
        return code


class _Given:
    """Rank 0 of the given ranks. ``current`` has the journal and the name of the case that they
    run; None between cases."""

    def __init__(self, comm, topology: Topology, memory: GroupMemory, facts: list[dict]):
        self._comm, self._topology, self._memory, self._facts = comm, topology, memory, facts
        self.current: tuple[str, str] | None = None

    @contextmanager
    def supervise(self, settings, store, watch) -> Iterator[Callable[[Any], Record]]:
        """A context whose function runs a job on all ranks, as that of ``supervised``."""
        by = launched()
        launcher = [f"what set {by.variable}" if by else "none"]
        environment = write_environment(
            store.folder, describe(self._facts, launcher, settings.environ)
        )

        def run(job) -> Record:
            nonlocal last
            end = store.ends.get(job.name)
            if end is None and store.attempts[job.name] > 0:
                end = {"status": "failed", "reason": _UNKNOWN}
            if end is not None:
                return failure(job.case, job.ranks, **end)
            self.current = last = str(store.journal_path.resolve()), job.name
            store.started(job.name)
            record = with_peak(self._run(job, settings), settings.peaks)
            self.current = None
            return replace(record, environment=environment)

        last = None
        try:
            yield run
        except KeyboardInterrupt:  # the case is not the cause
            if last and last[1] not in store.done:
                append_journal(*last, again=True)
            raise

    def _run(self, job, settings) -> Record:
        """Run the case of a job on all ranks."""
        timer = Timer(settings.timeout_s or 0, self._time_out, [settings.timeout_s])
        timer.daemon = True
        if settings.timeout_s:
            timer.start()
        try:
            order = job.order(settings.mem_limit) | {"journal": self.current}
            return run_order(self._comm.bcast(order), self._comm, self._topology, self._memory)
        finally:
            timer.cancel()

    def _time_out(self, seconds: float) -> None:
        """End all ranks: the case has no result yet. Called in another thread."""
        if (current := self.current) is None:  # it ended just now
            return
        reason = f"no result after {seconds:g} s; its ranks were killed"
        append_journal(*current, status="timeout", reason=reason)
        sys.stderr.write(f"drbench: {reason}. The same command records this, and continues.\n")
        self.abort(EXIT_CODES["timeout"])

    def abort(self, code: int) -> None:
        """End all ranks with an exit code."""
        sys.stdout.flush()
        end_ranks(MPI.COMM_WORLD, code)
