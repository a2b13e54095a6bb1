"""``drbench sweep``: expand, lock, resume, run, sum up."""

from __future__ import annotations

import os
import random
import shlex
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from drbench.errors import EXIT_CODES, UsageError
from drbench.measure.record import Record
from launch.cases.case import Case
from launch.cases.launchers import Launcher, load_launcher
from launch.cases.sweep_file import Sweep, load_sweep

from .lock import FolderLock
from .progress import SweepProgress
from .store import GOOD, Store, case_id, code_version
from .supervisor import Settings, clear_up, run_cases

__all__ = ["Request", "part_of", "plan_cases", "run_sweep"]

INTERRUPTED = 130


@dataclass(frozen=True)
class Request:
    """What a sweep was asked to be; names as on the command line. ``passing``: its folder is a
    temporary one, not worth naming."""

    sweep: str
    ranks: int
    out: str
    scale: str | None = None
    iters: int | None = None
    threads: int | None = None
    machine: str | None = None
    launcher: str | None = None
    timeout: float | None = 120.0
    mem_limit: int | None = None
    max_cases: int | None = None
    shuffle: int | None = None
    part: tuple[int, int] = (1, 1)
    fresh: bool = False
    retry: bool = False
    rerun_on_new_code: bool = False
    backend: str | None = None
    passing: bool = False
    environ: dict = field(default_factory=lambda: dict(os.environ))

    def arguments(self) -> list[str]:
        """The command line that asks for the same again."""
        sweep = f"./{self.sweep}" if self.sweep.startswith("-") else self.sweep
        words = ["drbench", "sweep", sweep, "-p", str(self.ranks), f"--out={self.out}"]
        for name in (
            "scale",
            "iters",
            "threads",
            "machine",
            "launcher",
            "timeout",
            "mem_limit",
            "max_cases",
            "shuffle",
            "backend",
        ):
            value = getattr(self, name)
            if name == "timeout" and value is None:
                value = 0.0  # no limit
            if value is not None and value != Request.__dataclass_fields__[name].default:
                words += [
                    f"--{name.replace('_', '-')}={value:g}"
                    if isinstance(value, float)
                    else f"--{name.replace('_', '-')}={value}"
                ]
        if self.part != (1, 1):
            words += ["--part={}/{}".format(*self.part)]
        return words + ["--rerun-on-new-code"] * self.rerun_on_new_code


def plan_cases(request: Request) -> tuple[Sweep, Launcher, list[tuple[str, Case]]]:
    """The sweep, where it runs, and its (id, case) pairs in the order they will run, all parts of
    it."""
    launcher = load_launcher(request.machine or "here").with_launcher(request.launcher)
    sweep = load_sweep(
        request.sweep,
        request.ranks,
        request.scale,
        iters=request.iters,
        threads=request.threads,
        backend=request.backend,
        machine=launcher.name if request.machine is not None else None,
    )
    code = code_version() if request.rerun_on_new_code else None
    pairs = [(case_id(case, request.ranks, code), case) for case in sweep.cases]
    if request.shuffle is not None:
        random.Random(request.shuffle).shuffle(pairs)
    return sweep, launcher, pairs


def part_of(pairs: list, part: tuple[int, int]) -> list:
    """Every n-th, from the i-th.

    Examples
    --------
    >>> part_of(["a", "b", "c", "d", "e"], (2, 2))
    ['b', 'd']
    """
    return pairs[part[0] - 1 :: part[1]]


def run_sweep(
    request: Request,
    console: Console,
    make_stream: Callable[[], Callable[[Record], None]] | None = None,
) -> int:
    """Run what has no row yet; the exit code.

    ``make_stream()`` is called once the folder is ours, and what it gives with each record, those
    of earlier runs first.

    Returns
    -------
    int
        0 if every case is ok or unsupported, else the largest of the table; 130 if interrupted.
    """
    sweep, launcher, pairs = plan_cases(request)
    folder = Path(request.out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"--out {request.out}: {error.strerror}. Use a folder that can be made."
        ) from None
    if sweep.repeated:
        console.print(
            f"{sweep.repeated} cases of {sweep.name} are the same as an earlier one and run once"
        )
    before = {
        number: signal.signal(number, signal.default_int_handler)
        for number in (signal.SIGTERM, signal.SIGHUP)
    }
    try:  # whoever ends this process means its ranks
        with FolderLock(folder) as lock:
            return _hold(request, sweep, launcher, pairs, folder, lock, console, make_stream)
    except KeyboardInterrupt:
        again = (
            ""
            if request.passing
            else f"; nothing that was finished is lost. Resume: {shlex.join(request.arguments())}"
        )
        console.print(f"interrupted{again}", soft_wrap=True, markup=False)
        return INTERRUPTED
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _hold(request, sweep, launcher, pairs, folder, lock, console, make_stream) -> int:
    """Run with the folder locked."""
    clear_up(folder)
    store = Store(folder)
    if request.fresh:
        aside = store.set_aside()
        if aside is not None:
            console.print(f"earlier results: {aside}", markup=False)
    elif request.retry:
        aside = store.set_aside(all_of_it=False)
        if aside is not None:
            console.print(
                f"cases that were not ok run again; the earlier rows: {aside}", markup=False
            )
    store.open(sweep.name, request.ranks, [name for name, _ in pairs])
    for note in store.notes:
        console.print(note, markup=False)
    mine = part_of(pairs, request.part)
    before = [store.done[name] for name, _ in mine if name in store.done]
    todo = [(name, case) for name, case in mine if name not in store.done]
    said = f"{sweep.name}: {len(mine)} cases on {request.ranks} ranks"
    console.print(f"{said}, {len(before)} done before" if before else said, markup=False)
    run_now = todo[: request.max_cases]
    settings = Settings(
        request.ranks, launcher, request.timeout, request.mem_limit, request.environ
    )
    on_record = None
    if make_stream is not None:
        on_record = make_stream()
        for record in before:
            on_record(record)
    watch = SweepProgress(len(mine), before, console, lock.beat, on_record)
    try:
        with watch:
            run_cases(run_now, store, settings, watch)
    finally:
        console.print(watch.line(), markup=False)
    if not request.passing:
        console.print(f"records: {store.records_path}", markup=False)
    if len(run_now) < len(todo):
        console.print(
            f"{len(todo) - len(run_now)} cases are left (--max-cases). The same command goes on "
            "with them",
            markup=False,
        )
    return verdict(store.done.values())


def verdict(records) -> int:
    """The exit code of a sweep.

    Examples
    --------
    >>> rows = [
    ...     Record(mode="measured", status=status, reason="why", best_s=1.0)
    ...     for status in ("ok", "unsupported", "timeout", "wrong")
    ... ]
    >>> verdict(rows[:2]), verdict(rows)
    (0, 4)
    """
    counts = Counter(record.status for record in records)
    return max((EXIT_CODES[status] for status in counts if status not in GOOD), default=0)
