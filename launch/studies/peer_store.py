"""Where ``drbench peers`` keeps its rows: a folder like a sweep's, one user at a time, its cases
named rather than hashed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from drbench.errors import UsageError
from drbench.measure.record import Record, read_csv
from launch.cases.case import Case
from launch.sweeps.lock import FolderLock
from launch.sweeps.store import Store
from launch.sweeps.supervisor import clear_up

__all__ = ["Lines", "opened", "rows"]


@dataclass
class Lines:
    """Watches :func:`launch.sweeps.supervisor.run_cases`, and hands each record on."""

    say: Console
    beat: Callable[[], None]
    on_record: Callable[[Record], None]

    def tick(self) -> None:
        self.beat()

    def started(self, case: Case) -> None:
        """Each case has a line when it has ended."""

    def ended(self, case: Case, record: Record) -> None:
        self.on_record(record)

    def note(self, text: str) -> None:
        self.say.print(text, style="yellow")


def rows(folder: Path) -> list[Record]:
    """The rows there are, none if there are no results."""
    path = Path(folder) / "records.csv"
    return read_csv(path) if path.exists() else []


@contextmanager
def opened(
    folder: Path, name: str, ranks: int, wanted: Iterable[str], fresh: bool, say: Console
) -> Iterator[tuple[Store, Callable[[], None]]]:
    """The store of a folder, held against others, and what to call now and then meanwhile.

    Rows of cases that are not wanted this time (other shapes, more rounds) stay.

    Raises
    ------
    UsageError
        If the folder cannot be made, is in use, or holds something else.
    """
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"--out {os.fspath(folder.parent)}: {error.strerror}. Use a folder that can be made."
        ) from None
    with FolderLock(folder) as lock:
        clear_up(folder)
        store = Store(folder)
        aside = store.set_aside() if fresh else None
        if aside is not None:
            say.print(f"earlier results: {aside}")
        there = [record.case for record in rows(folder) if record.case]
        store.open(name, ranks, list(dict.fromkeys([*there, *wanted])))
        for note in store.notes:
            say.print(note)
        yield store, lock.beat
