"""``drbench sweep``: expand, lock, resume, run, sum up."""

import os
import random
import shlex
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path

from rich.console import Console

from drbench.errors import EXIT_CODES
from drbench.measure.record import RecordError
from drbench.measure.record_file import read_csv
from launch.cases.case import Case
from launch.cases.launchers import Launcher, load_launcher
from launch.cases.peak_files import read_peaks
from launch.cases.sweep_file import Sweep, load_sweep
from launch.host.units import plural

from .folder import opened
from .progress import SweepProgress, fastest_cases
from .store import GOOD, case_id, code_version
from .stream import Stream
from .supervisor import Settings, run_cases

INTERRUPTED = 130
#: What is asked for once: the same again goes on.
_ONCE = ("fresh", "retry")


@dataclass(frozen=True)
class SweepRequest:
    """What a sweep was asked to be; names and values as on the command line."""

    sweep: str
    ranks: int
    out: str
    scale: str | None = None
    iters: int | None = None
    budget: float | None = None
    threads: int | None = None
    label: str | None = None
    launcher: str | None = None
    timeout: float = 120.0
    mem_limit: int | None = None
    max_cases: int | None = None
    shuffle: int | None = None
    part: tuple[int, int] = (1, 1)
    fresh: bool = False
    retry: bool = False
    rerun_on_new_code: bool = False
    backend: str | None = None
    peak: str | None = None
    stream: bool = False
    yes: bool = False
    environ: dict = field(default_factory=lambda: dict(os.environ))

    def arguments(self) -> list[str]:
        """The command line that asks for the same again."""
        sweep = f"./{self.sweep}" if self.sweep.startswith("-") else self.sweep
        words = ["drbench", "sweep", sweep, "-p", str(self.ranks), f"--out={self.out}"]
        for each in fields(self):
            value, flag = getattr(self, each.name), f"--{each.name.replace('_', '-')}"
            if each.default in (MISSING, value) or each.name in _ONCE:
                continue
            if each.name == "part":
                value = "{}/{}".format(*value)
            words.append(flag if value is True else f"{flag}={value}")
        return words


def plan_cases(request: SweepRequest) -> tuple[Sweep, Launcher, list[tuple[str, Case]]]:
    """The sweep, where it runs, and its (id, case) pairs in the order they will run, all parts of
    it."""
    launcher = load_launcher(request.launcher)
    sweep = load_sweep(
        request.sweep,
        request.ranks,
        request.scale,
        iters=request.iters,
        budget=request.budget,
        threads=request.threads,
        backend=request.backend,
        machine=request.label or (launcher.name if launcher.name != "here" else None),
    )
    code = code_version() if request.rerun_on_new_code else None
    pairs = [(case_id(case, request.ranks, code), case) for case in sweep.cases]
    if request.shuffle is not None:
        random.Random(request.shuffle).shuffle(pairs)
    return sweep, launcher, pairs


def left_to_run(request: SweepRequest) -> list[Case]:
    """The cases that a sweep on this machine would run now, as far as its folder says; none if
    ranks are started elsewhere, or compute on GPUs, whose time nobody here knows."""
    _, launcher, pairs = plan_cases(request)
    path = Path(request.out) / "records.csv"
    try:
        kept = path.is_file() and not request.fresh  # a pipe would keep its reader waiting
        done = {record.case for record in read_csv(path)} if kept else set()
    except (OSError, RecordError):
        done = set()  # none, or one that is refused when it is opened
    todo = [case for name, case in part_of(pairs, request.part) if name not in done]
    here = not launcher.words and all(case.backend == "numpy" for case in todo)
    return todo[: request.max_cases] if here else []


def part_of(pairs: list, part: tuple[int, int]) -> list:
    """Every n-th, from the i-th.

    Examples
    --------
    >>> part_of(["a", "b", "c", "d", "e"], (2, 2))
    ['b', 'd']
    """
    return pairs[part[0] - 1 :: part[1]]


def run_sweep(request: SweepRequest, console: Console, again: str | None = None) -> int:
    """Run what has no row yet; the exit code. With ``stream`` each record goes to standard output,
    those of earlier runs first. ``again`` is the command line that goes on, by default that of the
    sweep.

    Returns
    -------
    int
        0 if every case is ok or unsupported, else the largest of the table; 130 if interrupted.
    """
    sweep, launcher, pairs = plan_cases(request)
    if sweep.repeated:
        console.print(
            f"{plural(sweep.repeated, 'case')} of {sweep.name} the same as an earlier one: run once"
        )
    settings = Settings(
        request.ranks,
        launcher,
        request.timeout or None,
        request.mem_limit,
        request.environ,
        read_peaks(request.peak, sweep.cases, request.launcher),
    )
    ids = [name for name, _ in pairs]
    modes = {
        "fresh": request.fresh,
        "retry": request.retry,
        "renew": request.rerun_on_new_code,
    }
    try:
        with opened(request.out, sweep.name, request.ranks, ids, console, **modes) as store:
            mine = part_of(pairs, request.part)
            before = [store.done[name] for name, _ in mine if name in store.done]
            todo = [(name, case) for name, case in mine if name not in store.done]
            said = f"{sweep.name}: {plural(len(mine), 'case')} on {plural(request.ranks, 'rank')}"
            console.print(f"{said}, {len(before)} done before" if before else said, markup=False)
            run_now = todo[: request.max_cases]
            on_record = Stream() if request.stream else None
            for record in before if on_record else ():
                on_record(record)
            _run(run_now, store, settings, len(mine), before, console, on_record)
            console.print(f"records: {store.records_path}", markup=False)
            if len(run_now) < len(todo):
                console.print(
                    f"left: {plural(len(todo) - len(run_now), 'case')} (--max-cases). The same "
                    "command goes on",
                    markup=False,
                )
            return verdict(store.done.values())
    except KeyboardInterrupt:
        console.print(
            "interrupted; nothing that was finished is lost. Resume: "
            f"{again or shlex.join(request.arguments())}",
            soft_wrap=True,
            markup=False,
        )
        return INTERRUPTED


def _run(pairs, store, settings, total, before, console, on_record=None) -> None:
    """Run cases behind a bar, and say where it stands in the end."""
    watch = SweepProgress(total, before, console, on_record)
    try:
        with watch:
            run_cases(pairs, store, settings, watch)
    finally:
        console.print(watch.line(), markup=False)
    for line in fastest_cases(watch.records):
        console.print(line, markup=False)


def verdict(records) -> int:
    """The exit code of a sweep.

    Examples
    --------
    >>> from drbench.measure.record import Record
    >>> rows = [
    ...     Record(mode="measured", status=status, reason="why", best_s=1.0)
    ...     for status in ("ok", "unsupported", "timeout", "wrong")
    ... ]
    >>> verdict(rows[:2]), verdict(rows)
    (0, 4)
    """
    bad = {record.status for record in records}.difference(GOOD)
    return max((EXIT_CODES[status] for status in bad), default=0)
