"""Many cases in one mpiexec, watched from outside: a case that takes the ranks down costs one row,
not the rest."""

import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from drbench.errors import CaseFailed, DrbenchError, MissingError
from drbench.measure.record import Record
from launch.cases.case import Case, case_keys, failure
from launch.cases.launchers import Launcher
from launch.cases.peaks import Peaks, with_peak
from launch.host.environment import describe, write_environment
from launch.host.mpi import STRANGERS, Launched, mismatch_message
from launch.peers import PEERS, get_peer

from .progress import SweepProgress
from .starter import Ranks, RanksEnded, RanksLate
from .store import Store

#: Crashes of a case's ranks before it counts as failed: the first may be the late damage of an
#: earlier case.
CRASHES = 3
#: Times a case is given to ranks that then are killed, or whose supervisor or machine goes down.
#: More, since that is rarely the case's doing.
ATTEMPTS = 8
#: Starts in a row that may fail.
_STARTS = 3
#: Ranks of a large job may take minutes to load Python from a shared file system.
_START_S = 300.0


@dataclass(frozen=True)
class Settings:
    """How to run cases.

    Attributes
    ----------
    ranks : int
    launcher : Launcher
    timeout_s : float or None
        Longest a case may take.
    mem_limit : int or None
        Most memory, in bytes, that a case may need on a node.
    environ : dict
        Of the ranks.
    peaks : dict
        For percent of peak, by element type.
    """

    ranks: int
    launcher: Launcher = Launcher()
    timeout_s: float | None = 120.0
    mem_limit: int | None = None
    environ: dict = field(default_factory=lambda: dict(os.environ))
    peaks: Peaks = field(default_factory=dict)


def run_cases(
    todo: Iterable[tuple[str, Case]], store: Store, settings: Settings, watch: SweepProgress
) -> None:
    """Run cases in order, but for those that have a row; each row is on disk before the next case
    begins.

    Parameters
    ----------
    todo : iterable of (str, Case)
        Ids and cases.

    Raises
    ------
    CaseFailed
        If ranks cannot be started at all.
    MissingError
        If launcher and MPI library do not belong together.

    Notes
    -----
    A case whose ranks raise, hang past the time limit or run out of memory gets its row at once.
    One whose ranks crash or are killed is tried again in a fresh mpiexec, since it may not have
    been the cause: after :data:`CRASHES` crashes, or :data:`ATTEMPTS` attempts that came to nothing
    for whatever reason, it is ``failed``. The journal counts those of earlier, killed, supervisors
    too.
    """
    with open(store.folder / "log.txt", "ab") as log:
        here = _Starter(store, settings, watch, log)
        try:
            for index, (name, case) in enumerate(todo):
                if name in store.done:
                    continue
                record, environment, crashes = _without_ranks(case, settings), None, 0
                while record is None:
                    if store.attempts[name] >= ATTEMPTS:
                        reason = (
                            f"given to ranks {store.attempts[name]} times, and each time they, "
                            "the sweep or the machine went down before it was done"
                        )
                        record = failure(case, settings.ranks, "failed", reason)
                        break
                    ranks, environment = here.ranks()
                    store.started(name)
                    watch.started(case)
                    record, crashed = here.run(ranks, index, case, crashes)
                    crashes += crashed
                record = replace(
                    with_peak(record, settings.peaks), case=name, environment=environment
                )
                store.add(record)
                watch.ended(case, record)
            here.stop(in_order=True)
        except BaseException:
            here.stop(grace_s=0.3)
            raise


def _without_ranks(case: Case, settings: Settings) -> Record | None:
    """The row of a case that no ranks of ours run: of a program of its own, or of an algorithm that
    this installation does not have."""
    from algorithms import algorithms

    name = case.algorithm
    if name in PEERS:
        return _launched(case, settings) if get_peer(name).launch is not None else None
    if name in algorithms():
        return None
    known = ", ".join(algorithms())
    reason = f"no algorithm {name!r} in this drbench; there are {known}"
    return failure(case, settings.ranks, "unsupported", reason)


def _launched(case: Case, settings: Settings) -> Record:
    """The row of a case of a program of its own, which is started for it. Nobody knows its BLAS, so
    it has no roof."""
    case = replace(case, roof=False)
    launch = get_peer(case.algorithm).launch
    try:
        return launch(case, case_keys(case), settings.ranks, settings.timeout_s)
    except DrbenchError as error:
        status = "failed" if error.status == "usage" else error.status
        return failure(case, settings.ranks, status, str(error))


class _Starter:
    """The ranks of now, started when they are needed."""

    def __init__(self, store: Store, settings: Settings, watch: SweepProgress, log):
        self._store, self._settings, self._watch, self._log = store, settings, watch, log
        self._command = settings.launcher.command(settings.ranks)
        self._see = f"See {store.folder.name}/log.txt, and try: drbench doctor"
        self._ranks: Ranks | None = None
        self._environment: str | None = None

    def ranks(self) -> tuple[Ranks, str]:
        """Ranks that wait for a case, and the id of their environment."""
        for attempt in range(1, _STARTS + 1):
            if self._ranks is not None:
                return self._ranks, self._environment
            self._start()
            try:
                facts = self._ranks.wait_ready(_START_S)
                description = describe(facts, self._command, self._ranks.environ)
                self._environment = write_environment(self._store.folder, description)
            except RanksLate:
                self.stop()
                raise CaseFailed(
                    f"the {self._settings.ranks} ranks were not up after {_START_S:g} s. "
                    f"{self._see}"
                ) from None
            except RanksEnded as ended:
                self.stop()
                self._judge(ended, last=attempt == _STARTS)
        return self._ranks, self._environment

    def run(self, ranks: Ranks, index: int, case: Case, crashes: int) -> tuple[Record | None, bool]:
        """The record of a case, None if it is to be tried again; and whether its ranks crashed."""
        settings = self._settings
        try:
            row = ranks.run(index, asdict(case), settings.mem_limit, settings.timeout_s)
            return Record.from_row(row), False
        except RanksLate:
            self.stop()
            reason = f"no result after {settings.timeout_s:g} s; its ranks were killed"
            return failure(case, settings.ranks, "timeout", reason), False
        except RanksEnded as ended:
            self.stop()
            crashed = ended.crashed
            if ended.sure or crashed and crashes + 1 >= CRASHES:
                again = "" if ended.sure else f" (in each of {CRASHES} attempts)"
                return failure(case, settings.ranks, ended.status, ended.reason + again), crashed
            self._watch.note(f"{ended.reason}. The case runs again in a fresh start")
            return None, crashed

    def _start(self) -> None:
        settings = self._settings
        try:
            self._ranks = Ranks(
                self._command,
                settings.ranks,
                {**settings.environ, **settings.launcher.environment},
                self._log,
                self._watch.tick,
            )
        except OSError as error:
            raise MissingError(
                f"cannot start {self._command[0]}: {error.strerror}. Use another --launcher, or "
                "load your system's MPI."
            ) from None

    def _judge(self, ended: RanksEnded, last: bool) -> None:
        if ended.code == STRANGERS:
            raise MissingError(
                mismatch_message(Launched(self._settings.ranks, 0, "the launcher, -n"), "of mpi4py")
            )
        if ended.code == 3 and self._launcher_knows_no_mpi():
            raise MissingError(
                "the ranks did not find one another: srun was not told which MPI it starts. Add "
                "--mpi=pmi2 (MPICH) or --mpi=pmix (Open MPI) to launch.launcher in a machine file, "
                "or set SLURM_MPI_TYPE; srun --mpi=list names what there is."
            )
        if last or ended.code in (2, 3):
            error = MissingError if ended.code == 3 else CaseFailed
            raise error(f"the ranks cannot be started: {ended.reason}. {self._see}")
        self._watch.note(f"the ranks did not start: {ended.reason}. Trying again")

    def _launcher_knows_no_mpi(self) -> bool:
        """Whether this is a srun that goes by the site's default alone."""
        program, *words = self._command
        told = "SLURM_MPI_TYPE" in self._settings.environ | self._settings.launcher.environment
        return (
            Path(program).name == "srun"
            and not told
            and not any(word.startswith("--mpi") for word in words)
        )

    def stop(self, grace_s: float = 2.0, in_order: bool = False) -> None:
        """End them, now or in good order."""
        if self._ranks is not None:
            if in_order:
                self._ranks.end()
            self._ranks.stop(grace_s)
        self._ranks = None
