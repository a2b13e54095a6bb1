"""The results of a sweep in one folder. A finished case is on disk, once, before the next begins.

====================  ==========================================================================
``records.csv``       one row per case, appended and synced by ``append_csv``
``journal.txt``       a line for each time a case was sent to ranks, and for its end if it ended
                      ranks that were given, so that no case that crashes is repeated for ever
``superseded.csv``    rows of cases whose definition has changed, or that ran again (--retry)
``*.damaged.txt``     lines of result files that were not records; their cases run again
``previous-N/``       the files that ``--fresh`` moved
====================  ==========================================================================
"""

import errno
import hashlib
import json
import os
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path

from rich.console import Console

from drbench.errors import CaseFailed, UsageError
from drbench.launch.cases.case import GOOD, Case
from drbench.launch.host.files import FULL, make_folder, sync_folder
from drbench.launch.host.processes import interruptible
from drbench.launch.host.protocol import append_journal, read_journal
from drbench.measure.record import SCHEMA_VERSION, Record, RecordError
from drbench.measure.record_file import append_csv, is_other_form, read_damaged_csv
from drbench.texts import plural

from .lock import hold_folder

#: Names of fields of a case in its hash where they have others now: old rows are found by it.
_HASHED = {"label": "machine", "machine": "model", "gemm_only": "roof"}


def case_id(case: Case, ranks: int, code: str | None = None) -> str:
    """A hash of a case: all its set fields, the number of ranks, and the code version if given.

    Examples
    --------
    >>> one = case_id(Case(64, 64, 64, options={"stationary": "C", "chunk": None}), 4)
    >>> one == case_id(Case(64, 64, 64, options={"stationary": "C"}), 4), len(one)
    (True, 16)
    >>> one == case_id(Case(64, 64, 64, options={"stationary": "C"}), 8)
    False
    """
    given = lambda values: {name: value for name, value in values.items() if value is not None}
    fields = given(vars(case)) | {"options": given(case.options)}
    fields["label"] = case.label or "here"
    fields = {_HASHED.get(name, name): value for name, value in fields.items()}
    text = json.dumps(
        {"case": fields, "ranks": ranks, "code": code}, sort_keys=True, separators=(",", ":")
    )
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def write_csv(path: Path, records: Iterable[Record]) -> None:
    """Replace a file of records atomically: after a crash it is the old or the new one."""
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    append_csv(new, *records)
    os.replace(new, path)
    sync_folder(path.parent)


@contextmanager
def open_store(
    folder: str | os.PathLike,
    ranks: int,
    wanted: Iterable[str],
    print_line: Console,
    *,
    fresh: bool = False,
    retry: bool = False,
) -> "Iterator[Store]":
    """Open and lock the store of a folder, made if needed. While it is open, signals to this
    process end its ranks.

    Parameters
    ----------
    ranks : int
        Of the largest case.
    wanted : iterable of str
        Ids of the cases, which may have a row for each round. Rows of others are moved to another
        file.
    fresh, retry : bool
        Move earlier results to a backup; or rows of cases that were not ok.

    Raises
    ------
    UsageError
        If the folder cannot be made, is in use, or contains other files.
    CaseFailed
        If the disk is full.
    """
    folder = make_folder(folder)
    warn = partial(print_line.print, style="yellow")
    try:
        with interruptible(), hold_folder(folder, warn):
            store = Store(folder)
            if fresh:
                store.set_aside()
            store.open(ranks, wanted, retry)
            for note in store.notes:
                print_line.print(note)
            yield store
    except OSError as error:
        if error.errno not in (*FULL, errno.EROFS):
            raise
        raise CaseFailed(
            f"{folder}: {error.strerror}. No finished case is lost; free disk space, or make it "
            "writable, and run the same command again."
        ) from None


class Store:
    """The folder of one sweep; only for the holder of its lock.

    Parameters
    ----------
    folder : Path
        An existing folder.

    Attributes
    ----------
    done : dict of str to Record
        Records by case id.
    attempts : Counter
        How often each case was sent to ranks since its last row.
    ends : dict of str to dict
        Status and reason of cases without a row that ended the ranks.
    notes : list of str
        Messages of opening the folder.
    """

    def __init__(self, folder: Path):
        self.folder = Path(folder)
        self.records_path, self.journal_path = folder / "records.csv", folder / "journal.txt"
        self.done: dict[str, Record] = {}
        self.attempts: Counter = Counter()
        self.ends: dict[str, dict] = {}
        self.notes: list[str] = []

    def open(self, ranks: int, ids: Iterable[str], retry: bool = False) -> None:
        """Resume a sweep; with ``retry`` without the rows of cases that were neither ok nor
        unsupported.

        Raises
        ------
        UsageError
            If the folder contains results of other cases only, or a file that is not ours.
        """
        records, wanted = self._read(self.records_path), {*ids}
        is_wanted = lambda record: record.case.rpartition(" | ")[2] in wanted  # of any round
        for record in filter(is_wanted, records):
            if not (retry and record.status not in GOOD):
                self.done.setdefault(record.case, record)
        if records and not any(map(is_wanted, records)):
            changed, before = (
                "another sweep, --scale or -o",
                max(record.ranks for record in records),
            )
            if before != ranks:
                changed = f"they are on {plural(before, 'rank')}, these on {ranks}"
            raise UsageError(
                f"{self.folder} holds {plural(len(records), 'row')}, none of these cases "
                f"({changed}). Use another --out to keep both, or move them aside with --fresh."
            )
        if retry:
            self.journal_path.unlink(missing_ok=True)
        self._supersede(records)
        if self.journal_path.exists():
            self.attempts, self.ends = read_journal(self.journal_path)
            for case in self.done:
                self.attempts.pop(case, None)

    def started(self, case: str) -> None:
        """Write to the journal that a case is about to be sent to ranks."""
        append_journal(self.journal_path, case)
        self.attempts[case] += 1

    def add(self, record: Record) -> None:
        """Append the row of a case; it is on disk when this returns.

        Raises
        ------
        CaseFailed
            If it cannot be written; the file is then unchanged.
        """
        new = not self.records_path.exists()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a torn last line, which open() has reported
                append_csv(self.records_path, record)
            if new:
                sync_folder(self.folder)
        except (OSError, RecordError) as error:
            raise CaseFailed(
                f"{self.records_path}: {getattr(error, 'strerror', error)}. The row of case "
                f"{record.case} was not written; free disk space and run the same command again."
            ) from None
        self.done[record.case] = record
        self.attempts.pop(record.case, None)

    def set_aside(self) -> None:
        """Move existing results to ``previous-N``."""
        names = "records.csv journal.txt superseded.csv environment.json environments"
        there = [path for name in names.split() if (path := self.folder / name).exists()]
        if there:
            names = (self.folder / f"previous-{number}" for number in count(1))
            aside = next(path for path in names if not path.exists())
            aside.mkdir()
            for path in there:
                os.rename(path, aside / path.name)
            sync_folder(aside)
            sync_folder(self.folder)
            self.notes.append(f"earlier results: {aside}")

    def _supersede(self, records: list[Record]) -> None:
        """Move the rows that are no longer valid to another file."""
        stray = [record for record in records if record.case not in self.done]
        if not stray:
            return
        path = self.folder / "superseded.csv"
        # they are there already after a crash between the two writes
        there = set(map(repr, self._read(path)))
        append_csv(path, *(record for record in stray if repr(record) not in there))
        write_csv(self.records_path, self.done.values())
        self.notes.append(
            f"{plural(len(stray), 'row')} of cases that have changed, or run again, moved to "
            f"{path.name}"
        )

    def _read(self, path: Path) -> list[Record]:
        if not path.exists():
            return []
        try:
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always")
                records, damaged = read_damaged_csv(path)
        except (RecordError, OSError) as error:
            raise UsageError(f"{error} (--fresh moves the old results aside)") from None
        if warned:
            self.notes.append(
                f"the last line of {path.name} is torn: its writer was killed; that case runs again"
            )
        if is_other_form(path):
            self.notes.append(f"{path.name}: converted to schema {SCHEMA_VERSION}")
            write_csv(path, records)
        if damaged:  # save lines that are not records before they are removed
            aside = path.with_name(f"{path.stem}.damaged.txt")
            with open(aside, "ab") as file:
                file.writelines(line + b"\n" for line in damaged.values())
                file.flush()
                os.fsync(file.fileno())
            self.notes.append(
                f"{path.name}, line {', '.join(map(str, damaged))}: damaged, moved to "
                f"{aside.name}; those cases run again"
            )
            write_csv(path, records)
        return [replace(record, case=record.case or "unnamed") for record in records]
