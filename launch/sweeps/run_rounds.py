"""Contenders measured in rounds, in one mpiexec, in a folder that is taken up where it was left."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from drbench.errors import UsageError
from drbench.measure.noise import MOST_REPEATS
from drbench.measure.record import Record
from launch.cases.case import Case
from launch.host.units import plural

from .folder import opened
from .progress import SweepProgress
from .rounds import halving, pooled, runs_of, turn_name, turns
from .store import case_id, write_csv
from .supervisor import Settings, run_cases

#: Where the rows of all turns are, in a folder that is kept; beside it, a row a contender.
ROUNDS, POOLED = "rounds", "records.csv"


def run_rounds(
    groups: Sequence[Sequence[Case]],
    name: str,
    settings: Settings,
    console: Console,
    out: str | Path | None = None,
    fresh: bool = False,
    probe: bool = False,
) -> list[list[dict[int, Record]]]:
    """Measure the cases of each group in rounds (:func:`turns`), all groups in the same ones; the
    records of each case by turn.

    ``iters`` of a case are its rounds at least, ``budget`` is that of all its rounds. With ``out``
    the turns are kept in its folder :data:`ROUNDS`, where those that have a row are not run again
    (unless ``fresh`` moves them aside), and a row a case in its :data:`POOLED`. A ``probe`` looks
    for the fastest of one group only (:func:`halving`).
    """
    named = [{case_id(case, settings.ranks): case for case in group} for group in groups]
    cases = {who: case for group in named for who, case in group.items()}
    least, budget_s = (
        max(getattr(case, field) for case in cases.values()) for field in ("iters", "budget")
    )
    most = max(least, MOST_REPEATS)
    next_turns = partial(halving, named[0]) if probe else partial(turns, named)
    wanted = [turn_name(turn, who) for turn in range(most) for who in cases]
    folder = Path(out) / ROUNDS if out else None
    if folder is not None and not folder.is_dir() and (folder.parent / POOLED).exists():
        raise UsageError(f"{out} holds the records of another run. Use another --out.")
    with ExitStack() as stack:
        if folder is None:
            folder = Path(stack.enter_context(TemporaryDirectory(prefix=f"drbench-{name}-")))
        store = stack.enter_context(
            opened(folder, name, settings.ranks, wanted, console, fresh=fresh)
        )
        watch = SweepProgress(least * len(cases), list(store.done.values()), console, what="turn")
        try:
            with watch:
                run_cases(
                    _counted(next_turns(store.done, least, budget_s), watch, store.done),
                    store,
                    settings,
                    watch,
                )
        finally:
            console.print(watch.line(), markup=False)
        found = [[runs_of(who, store.done, most) for who in group] for group in named]
        if out:
            flat = {who: run for group, runs in zip(named, found) for who, run in zip(group, runs)}
            rows = [replace(pooled(list(run.values())), case=who) for who, run in flat.items()]
            write_csv(Path(out) / POOLED, rows)
        console.print(_said(found), markup=False)
        return found


def _counted(
    todo: Iterable[tuple[str, Case]], watch: SweepProgress, done: Mapping[str, Record]
) -> Iterator:
    """The turns, the bar being told of those beyond the least that are not done yet."""
    for name, case in todo:
        if name not in done and watch.done >= watch.total:
            watch.expect(watch.done + 1)
        yield name, case


def _said(found: Iterable[Iterable[Mapping[int, Record]]]) -> str:
    counts = [len(run) for group in found for run in group]
    few, many = min(counts), max(counts)
    return (
        f"in turn, {few} to {plural(many, 'round')}"
        if few < many
        else f"in turn, {plural(few, 'round')}"
    )
