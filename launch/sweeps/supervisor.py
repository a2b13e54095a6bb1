"""Run many cases in one mpiexec, supervised from outside: a case that crashes the ranks costs one
row, not the others."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from drbench.errors import CaseFailed, MissingError, OutOfMemory
from drbench.host.launcher import SLURM, Launched, mismatch_message
from drbench.launch.cases.case import failure, run_program
from drbench.launch.cases.launchers import Launcher
from drbench.launch.cases.peaks import Peaks, with_peak
from drbench.launch.host.environment import describe, write_environment
from drbench.launch.host.mpi import STRANGERS
from drbench.launch.libraries import get_library
from drbench.measure.noise import turn_of
from drbench.measure.record import Record

from .rounds import Job
from .starter import Ranks, RanksEnded
from .store import Store

#: Crashes of a case's ranks before it counts as failed: an earlier case may have caused the first.
CRASHES = 3
#: Times a case is sent to ranks that are then killed, or whose supervisor or machine ends. More,
#: because the case is rarely the cause.
ATTEMPTS = 8
#: Consecutive starts that may fail.
_STARTS = 3
#: Ranks of a large job may take minutes to load Python from a shared file system.
_START_S = 300.0


@dataclass(frozen=True)
class Settings:
    """How to run cases.

    Attributes
    ----------
    launcher : Launcher
    timeout_s : float or None
        Time limit of a case.
    mem_limit : int or None
        Most memory per node, in bytes, that a case may need.
    environ : dict
        Environment of the ranks.
    peaks : dict
        Peaks by element type, for percent of peak.
    """

    launcher: Launcher = Launcher()
    timeout_s: float | None = 120.0
    mem_limit: int | None = None
    environ: dict = field(default_factory=lambda: dict(os.environ))
    peaks: Peaks = field(default_factory=dict)


@contextmanager
def supervised(settings: Settings, store: Store, watch) -> Iterator[Callable[[Job], Record]]:
    """A context whose function runs a job on ranks, which start when needed and end with the
    context; ``watch`` is the :class:`.progress.SweepProgress`.

    Raises
    ------
    CaseFailed
        If ranks cannot be started at all.
    MissingError
        If launcher and MPI library do not match.

    Notes
    -----
    A case whose ranks raise, hang past the time limit or run out of memory gets its row at once.
    One whose ranks crash or are killed runs again in a new mpiexec, since it may not have been the
    cause: after :data:`CRASHES` crashes, or :data:`ATTEMPTS` unfinished attempts, it is ``failed``.
    The journal also counts those of earlier, killed supervisors.
    """
    with open(store.folder / "log.txt", "ab") as log:
        here = _Supervisor(settings, store, watch, log)
        try:
            yield here.run
            here.stop(in_order=True)
        except BaseException:
            here.stop(grace_s=0.3)
            raise


class _Supervisor:
    """The current ranks, for jobs of one library and number of ranks."""

    def __init__(self, settings: Settings, store: Store, watch, log):
        self._settings, self._store, self._watch, self._log = settings, store, watch, log
        self._see = f"See {store.folder.name}/log.txt, and try: drbench doctor"
        self._ranks: Ranks | None = None
        self._kind: tuple = ()
        self._environment: str | None = None

    def run(self, job: Job) -> Record:
        """Run a job and return its record."""
        if self._kind != (job.ranks, job.library):
            self.stop(in_order=True)
            self._kind = (job.ranks, job.library)
        record, environment, crashes = None, None, 0
        if job.library and get_library(job.case.algorithm).launch:  # a separate program
            case = job.case
            if job.turn is not None:
                least, budget_s = turn_of(case.iters, case.budget)
                case = replace(case, iters=least, budget=budget_s)
            record = run_program(case, job.ranks, self._settings.timeout_s)
        while record is None:
            if (attempts := self._store.attempts[job.name]) >= ATTEMPTS:
                reason = (
                    f"sent to ranks {attempts} times, and each time they, the sweep or the "
                    "machine stopped before it was finished"
                )
                record = failure(job.case, job.ranks, "failed", reason)
                break
            self._have_ranks(job.ranks)
            environment = self._environment
            self._store.started(job.name)
            try:
                order = job.order(self._settings.mem_limit)
                record = Record.from_row(self._ranks.run(order, self._settings.timeout_s))
            except RanksEnded as ended:
                self.stop()
                crashes += ended.crashed
                if ended.sure or crashes >= CRASHES:
                    again = "" if ended.sure else f" (in each of {CRASHES} attempts)"
                    record = failure(job.case, job.ranks, ended.status, ended.reason + again)
                else:
                    self._watch.note(f"{ended.reason}. The case runs again on new ranks")
        return replace(with_peak(record, self._settings.peaks), environment=environment)

    def stop(self, grace_s: float = 2.0, in_order: bool = False) -> None:
        """End the ranks, at once or normally."""
        if self._ranks is not None:
            if in_order:
                self._ranks.end()
            self._ranks.stop(grace_s)
        self._ranks = None

    def _have_ranks(self, count: int) -> None:
        """Start ranks that wait for a case, unless they run already."""
        for attempt in range(1, _STARTS + 1):
            if self._ranks is not None:
                return
            self._start(count)
            try:
                facts = self._ranks.wait_ready(_START_S)
                description = describe(facts, self._ranks.command, self._ranks.environ)
                self._environment = write_environment(self._store.folder, description)
            except RanksEnded as ended:
                self._judge(ended, count, last=attempt == _STARTS)

    def _start(self, count: int) -> None:
        launcher = self._settings.launcher
        command, environ = launcher.command(count), self._settings.environ | launcher.environment
        try:
            self._ranks = Ranks(command, count, environ, self._log, self._watch.tick)
        except OSError as error:
            raise MissingError(
                f"cannot start {command[0]}: {error.strerror}. Use another --launcher, or load "
                "your system's MPI."
            ) from None

    def _judge(self, ended: RanksEnded, count: int, last: bool) -> None:
        """Raise the reason why ranks cannot start, unless another start may help."""
        program, *words = self._ranks.command
        text = "SLURM_MPI_TYPE" in self._ranks.environ or "--mpi" in " ".join(words)
        self.stop()
        if ended.status == "timeout":
            raise CaseFailed(f"the {count} ranks were not up after {_START_S:g} s. {self._see}")
        by_srun = ended.code == 3 and Path(program).name == "srun" and not text
        if by_srun or ended.code == STRANGERS:
            expected = Launched(count, 0, SLURM if by_srun else "the launcher, -n")
            raise MissingError(mismatch_message(expected, "of mpi4py"))
        if last or ended.code in (2, 3, 6):
            error = {3: MissingError, 6: OutOfMemory}.get(ended.code, CaseFailed)
            raise error(f"the ranks cannot be started: {ended.reason}. {self._see}")
        self._watch.note(f"the ranks did not start: {ended.reason}. Trying again")
