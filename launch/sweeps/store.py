"""The results of a sweep in one folder. A case that is finished is on disk before the next begins,
and is there once.

====================  ==========================================================================
``records.csv``       one row a case, appended and synced by ``append_csv``
``journal.txt``       a line for each time a case was given to ranks, so that one that takes the
                      machine down is not tried for ever
``sweep.json``        name, ranks and the id of every case of the sweep
``superseded.csv``    rows of cases whose definition has changed since
``*.damaged.txt``     lines of result files that were no records; their cases run again
``previous-N/``       what ``--fresh`` and ``--retry`` moved aside
====================  ==========================================================================
"""

import hashlib
import json
import os
import warnings
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path

from drbench.errors import UsageError
from drbench.measure.record import Record, RecordError
from drbench.measure.record_file import append_csv, read_damaged_csv
from launch.cases.case import Case
from launch.host.files import free_name, sync_folder, write_json
from launch.host.units import plural

#: How a case may end for the sweep as a whole to be fine.
GOOD = ("ok", "unsupported")


def case_id(case: Case, ranks: int, code: str | None = None) -> str:
    """A hash of what a case is: all its fields that are set, the number of ranks, and the code
    version if it counts.

    Examples
    --------
    >>> one = case_id(Case(64, 64, 64, options={"stationary": "C", "chunk": None}), 4)
    >>> one == case_id(Case(64, 64, 64, options={"stationary": "C"}), 4), len(one)
    (True, 16)
    >>> one == case_id(Case(64, 64, 64, options={"stationary": "C"}), 8)
    False
    """
    fields = {name: value for name, value in asdict(case).items() if value is not None}
    fields["options"] = {
        name: value for name, value in fields["options"].items() if value is not None
    }
    text = json.dumps(
        {"case": fields, "ranks": ranks, "code": code}, sort_keys=True, separators=(",", ":")
    )
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def write_csv(path: Path, records: Iterable[Record]) -> None:
    """Replace a file of records: a reader sees the old one or the new one, also after a crash."""
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    append_csv(new, *records)
    os.replace(new, path)
    sync_folder(path.parent)


class Store:
    """The folder of one sweep; only for who holds its lock.

    Parameters
    ----------
    folder : Path
        Exists.

    Attributes
    ----------
    done : dict of str to Record
        By case id.
    attempts : Counter
        How often each case was given to ranks since it last had a row.
    """

    def __init__(self, folder: Path):
        self.folder = Path(folder)
        self.records_path = self.folder / "records.csv"
        self.journal_path = self.folder / "journal.txt"
        self.done: dict[str, Record] = {}
        self.attempts: Counter = Counter()
        self.notes: list[str] = []

    def open(self, name: str, ranks: int, ids: list[str]) -> None:
        """Take up a sweep where it was left.

        Raises
        ------
        UsageError
            If the folder holds results of another sweep, of none but other cases, or a file that
            is not one of ours.
        """
        self._is_there(self.folder / "log.txt")
        self._refuse_another(name)
        records = self._read(self.records_path)
        ids = list(dict.fromkeys(ids))
        wanted = set(ids)
        kept = [record for record in records if record.case in wanted]
        if records and not kept:
            raise UsageError(
                f"{self.folder} holds {plural(len(records), 'row')} of {name}, none of these cases "
                f"({self._changed(ranks)}). Use another --out to keep both, or move them aside "
                "with --fresh."
            )
        if len(kept) < len(records):
            self._supersede([record for record in records if record.case not in wanted], kept)
        for record in kept:
            self.done.setdefault(record.case, record)
        self.attempts = Counter(word for word in self._journal() if word not in self.done)
        write_json(self.folder / "sweep.json", {"name": name, "ranks": ranks, "cases": ids})

    def started(self, case: str) -> None:
        """Note, durably, that a case is about to be given to ranks."""
        with open(self.journal_path, "a") as file:
            file.write(f"{case}\n")
            file.flush()
            os.fsync(file.fileno())
        self.attempts[case] += 1

    def add(self, record: Record) -> None:
        """Append the row of a case; it is on disk when this returns.

        Raises
        ------
        UsageError
            If it cannot be written; nothing was.
        """
        if record.case in self.done:
            raise AssertionError(f"case {record.case} has a row already")
        new = not self.records_path.exists()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of a torn last line, which open() has said
                append_csv(self.records_path, record)
            if new:
                sync_folder(self.folder)
        except (OSError, RecordError) as error:
            raise UsageError(
                f"{self.records_path.name}: {error}. The row of case {record.case} was not "
                "written; make room and run "
                "the same command again."
            ) from None
        self.done[record.case] = record
        self.attempts.pop(record.case, None)

    def set_aside(self, all_of_it: bool = True) -> Path | None:
        """Move the results (or, with ``all_of_it=False``, a copy of the rows, the bad ones then
        leaving) to ``previous-N``."""
        names = (
            "records.csv",
            "journal.txt",
            "sweep.json",
            "superseded.csv",
            "environment.json",
            "environments",
        )
        if not self.records_path.exists() and not (self.folder / "sweep.json").exists():
            return None
        aside = free_name(self.folder, "previous")
        aside.mkdir()
        if all_of_it:
            for name in names:
                if (self.folder / name).exists():
                    os.rename(self.folder / name, aside / name)
        else:
            records = self._read(self.records_path)
            append_csv(aside / "records.csv", *records)
            write_csv(self.records_path, [row for row in records if row.status in GOOD])
            self.journal_path.unlink(missing_ok=True)
        sync_folder(aside)
        sync_folder(self.folder)
        return aside

    def _refuse_another(self, name: str) -> None:
        path = self.folder / "sweep.json"
        there = self._is_there(path)
        try:
            text = path.read_text() if there else "{}"
            try:
                found = json.loads(text)
            except ValueError:  # cut off by a crash: the rows say what was done
                self.notes.append(f"{path.name} is damaged or empty: written anew")
                return
            known = found["name"] if found != {} else None
        except (ValueError, KeyError, TypeError, OSError):
            raise UsageError(
                f"{path.name} in {self.folder.name} is not a sweep's. Use another --out, or "
                "--fresh to move it aside."
            ) from None
        if known is not None and known != name:
            raise UsageError(
                f"{self.folder.name} holds the sweep {known!r}, not {name!r}. Use another --out, "
                "or --fresh to move it aside."
            )

    def _changed(self, ranks: int) -> str:
        """What may have changed since the rows were measured."""
        try:
            before = json.loads((self.folder / "sweep.json").read_text())["ranks"]
        except (OSError, ValueError, KeyError):
            before = ranks
        if before != ranks:
            return f"they are on {plural(before, 'rank')}, these on {ranks}"
        return "another --scale, -o or file"

    def _supersede(self, stray: list[Record], kept: list[Record]) -> None:
        path = self.folder / "superseded.csv"
        # a crash between the two writes has put them there already
        there = set(map(repr, self._read(path)))
        append_csv(path, *(record for record in stray if repr(record) not in there))
        write_csv(self.records_path, kept)
        self.notes.append(
            f"{plural(len(stray), 'row')} of cases whose definition has changed: moved to "
            f"{path.name}, those cases run again"
        )

    def _is_there(self, path: Path) -> bool:
        """Whether there is such a file; a pipe would keep its reader waiting."""
        if path.exists() and not path.is_file():
            raise UsageError(
                f"{path.name} in {self.folder} is no file. Use another --out, or --fresh to move "
                "it aside."
            )
        return path.exists()

    def _read(self, path: Path) -> list[Record]:
        if not self._is_there(path):
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
        if damaged:
            self._set_damaged_aside(path, damaged)
            write_csv(path, records)
        return [replace(record, case=record.case or "unnamed") for record in records]

    def _set_damaged_aside(self, path: Path, lines: dict[int, bytes]) -> None:
        """Keep lines that are no records, before they leave their file."""
        aside = path.with_name(f"{path.stem}.damaged.txt")
        with open(aside, "ab") as file:
            file.writelines(line + b"\n" for line in lines.values())
            file.flush()
            os.fsync(file.fileno())
        where = ", ".join(map(str, lines))
        self.notes.append(
            f"{path.name}, line {where}: damaged, moved to {aside.name}; those cases run again"
        )

    def _journal(self) -> list[str]:
        if not self._is_there(self.journal_path):
            return []
        text = self.journal_path.read_bytes().decode("utf-8", "replace")
        if text and not text.endswith(
            "\n"
        ):  # torn: end it, so that the next line is not joined to it
            with open(self.journal_path, "a") as file:
                file.write("\n")
        return text.splitlines()
