"""The folder of a sweep loses no finished case, has none twice, and never deletes a row."""

import errno
import os
from contextlib import nullcontext
from dataclasses import replace

import pytest
from old_records import in_version

from drbench.errors import CaseFailed, UsageError
from drbench.launch.cases.case import Case
from drbench.launch.sweeps.plan import SweepRequest, plan_cases
from drbench.launch.sweeps.store import Store, case_id, write_csv
from drbench.measure.record import SCHEMA_VERSION
from drbench.measure.record_file import append_csv, read_csv

CASES = [Case(8, 8, 8, "row", "row", "row", seed=seed) for seed in range(3)]
IDS = [case_id(case, 2) for case in CASES]


def opened(folder, ids=IDS):
    store = Store(folder)
    store.open(2, ids)
    return store


def filled(folder, rows, count=3):
    store = opened(folder)
    for name, case in list(zip(IDS, CASES))[:count]:
        store.add(rows(case, case=name))
    return store


def test_truncating_the_records_at_every_byte_loses_no_finished_case(tmp_path, rows, monkeypatch):
    # thousands of calls, and no crash in this test
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    path = filled(tmp_path, rows).records_path
    whole = path.read_bytes()
    # the end of the header, and of each row: the last newline may lack
    ends = [at for at, byte in enumerate(whole) if byte == ord("\n")]
    for size in range(len(whole) + 1):
        path.write_bytes(whole[:size])
        store = opened(tmp_path)
        assert list(store.done) == IDS[: sum(end <= size for end in ends[1:])]
        if size % 31 == 0 or size - 1 in ends:  # and continues the same file
            for name, case in zip(IDS, CASES):
                if name not in store.done:
                    store.add(rows(case, case=name))
            assert path.read_bytes() == whole


def test_truncating_the_journal_at_every_byte_counts_no_attempt_too_many(tmp_path, rows):
    store = opened(tmp_path)
    for name in (IDS[0], IDS[0], IDS[1]):
        store.started(name)
    whole = store.journal_path.read_bytes()
    for size in range(len(whole) + 1):
        store.journal_path.write_bytes(whole[:size])
        store = opened(tmp_path)
        assert store.attempts[IDS[0]] <= 2 and store.attempts[IDS[1]] <= 1
        assert size < len(whole) or dict(store.attempts) == {IDS[0]: 2, IDS[1]: 1}
        store.started(IDS[2])
        assert opened(tmp_path).attempts[IDS[2]] == 1
    store.add(rows(CASES[2], case=IDS[2]))
    assert store.attempts[IDS[2]] == opened(tmp_path).attempts[IDS[2]] == 0


@pytest.mark.parametrize("crashed", [False, True])
def test_rows_of_changed_cases_are_kept_elsewhere_once_and_run_again(tmp_path, rows, crashed):
    records, aside = read_csv(filled(tmp_path, rows).records_path), tmp_path / "superseded.csv"
    if crashed:  # after the first of the two writes
        append_csv(aside, records[1])
    store = opened(tmp_path, [IDS[0], "0" * 16, IDS[2]])
    assert list(store.done) == [IDS[0], IDS[2]] and "superseded.csv" in store.notes[0]
    assert read_csv(aside) == records[1:2]
    assert read_csv(store.records_path) == records[::2]


@pytest.mark.parametrize("text, message", [(None, "3 rows, none of these cases"), ("a,b\n", "")])
def test_a_folder_of_another_sweep_or_program_is_refused_and_not_changed(
    tmp_path, rows, text, message
):
    path = filled(tmp_path, rows).records_path
    if text:
        path.write_text(text)
    before = path.read_bytes()
    with pytest.raises(UsageError, match=f"{message}.*--fresh"):
        opened(tmp_path, ["0" * 16])
    assert path.read_bytes() == before


def test_fresh_moves_all_aside_and_deletes_nothing(tmp_path, rows):
    for number in (1, 2):
        store = filled(tmp_path, rows)
        before = store.records_path.read_bytes()
        store.set_aside()
        assert (tmp_path / f"previous-{number}" / "records.csv").read_bytes() == before
        assert opened(tmp_path).done == {}


def test_retry_removes_rows_that_are_not_ok_and_keeps_a_copy(tmp_path, rows):
    store = opened(tmp_path)
    for name, case, status in zip(IDS, CASES, ("ok", "timeout", "unsupported")):
        store.add(rows(case, status=status, case=name))
    store.started(IDS[1])
    again = Store(tmp_path)
    again.open(2, IDS, retry=True)
    assert list(again.done) == [IDS[0], IDS[2]] and again.attempts[IDS[1]] == 0
    (aside,) = read_csv(tmp_path / "superseded.csv")
    assert (aside.case, aside.status) == (IDS[1], "timeout")


@pytest.mark.parametrize("damage", [b"\0" * 40, b"x,y", b"4,measured,", b"\xff\xfe,1"])
@pytest.mark.parametrize("line", [1, 2, 3])
def test_a_damaged_row_is_set_aside_and_its_case_runs_again(tmp_path, rows, damage, line):
    path = filled(tmp_path, rows).records_path
    lines = path.read_bytes().split(b"\n")
    lines[line] = damage + lines[line][20:]
    path.write_bytes(b"\n".join(lines))
    store = opened(tmp_path)
    left = [name for at, name in enumerate(IDS, 1) if at != line]
    assert list(store.done) == left and f"line {line + 1}: damaged" in store.notes[0]
    assert (tmp_path / "records.damaged.txt").read_bytes() == lines[line] + b"\n"
    assert [record.case for record in read_csv(path)] == left
    store.add(rows(CASES[line - 1], case=IDS[line - 1]))
    again = opened(tmp_path)
    assert sorted(again.done) == sorted(IDS) and again.notes == []


@pytest.mark.parametrize("damage", [b"", b"12,measured,"])
def test_a_folder_of_an_older_schema_is_resumed_and_converted(tmp_path, rows, damage):
    path, aside = filled(tmp_path, rows).records_path, tmp_path / "superseded.csv"
    records = read_csv(path)
    aside.write_bytes(in_version([replace(records[0], case="before")], "12"))
    path.write_bytes(in_version(records[:2], "12") + damage)
    store = opened(tmp_path, [IDS[0], IDS[2]])
    assert list(store.done) == IDS[:1] and f"converted to schema {SCHEMA_VERSION}" in "".join(
        store.notes
    )
    assert [record.case for record in read_csv(aside)] == ["before", IDS[1]]
    store.add(records[2])
    assert read_csv(path) == records[::2] and opened(tmp_path).notes == []


def test_the_first_row_of_a_case_counts(tmp_path, rows):
    """Two rows, as of two independent sweeps."""
    path = filled(tmp_path, rows, 1).records_path
    append_csv(path, rows(CASES[0], case=IDS[0], status="timeout"))
    assert opened(tmp_path).done[IDS[0]].status == "ok"


def test_the_journal_is_on_disk_before_a_case_is_given_to_ranks(tmp_path, monkeypatch):
    """Otherwise a case that crashes the machine would be tried for ever."""
    store, synced, real = opened(tmp_path), [], os.fsync

    def fsync(handle):
        synced.append((os.readlink(f"/proc/self/fd/{handle}"), os.fstat(handle).st_size))
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    store.started(IDS[0])
    assert synced == [(str(store.journal_path), len(IDS[0]) + 2)]


@pytest.fixture
def disk(monkeypatch):
    """``disk(number)``: from now on it answers with this error (None: it works); ``kinds``: for
    files (False) and for folders (True)."""
    real, broken = os.fsync, {}

    def fsync(handle):
        number = broken.get(os.path.isdir(f"/proc/self/fd/{handle}"))
        if number:
            raise OSError(number, os.strerror(number))
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    return lambda number, kinds=(False, True): broken.update(dict.fromkeys(kinds, number))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
def test_resume_on_a_full_or_read_only_disk_is_one_line_and_leaves_nothing(
    tmp_path, run_cli, sweep_file, rows, disk, number
):
    file = sweep_file("[[cases]]\nm = 8\nn = 8\nk = [8, 9]\n")
    folder = tmp_path / "out"
    jobs = plan_cases(SweepRequest(file, 2, str(folder))).jobs
    folder.mkdir()
    opened(folder, [job.name for job in jobs]).add(rows(jobs[0].case, case=jobs[0].name))
    before = {path: path.read_bytes() for path in folder.iterdir()}
    disk(number)
    assert os.strerror(number) in run_cli("sweep", file, "-p", 2, "--out", folder).refusal(5)
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_a_row_that_a_full_disk_does_not_take_is_not_counted_and_the_file_is_as_before(
    tmp_path, rows, disk
):
    store = filled(tmp_path, rows, 1)
    before = store.records_path.read_bytes()
    disk(errno.ENOSPC)
    with pytest.raises(CaseFailed, match="No space left"):
        store.add(rows(CASES[1], case=IDS[1]))
    with pytest.raises(OSError):
        write_csv(store.records_path, [rows(CASES[2])])
    disk(None)
    assert store.records_path.read_bytes() == before and list(opened(tmp_path).done) == IDS[:1]


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EIO])
def test_a_folder_that_cannot_be_made_durable_is_no_failure(tmp_path, disk, rows, number):
    """Some file systems refuse fsync of a folder; a broken one returns another error."""
    disk(number, kinds=[True])
    broken = number == errno.EIO
    with pytest.raises(CaseFailed, match=os.strerror(number)) if broken else nullcontext():
        filled(tmp_path, rows)
    assert broken or len(read_csv(tmp_path / "records.csv")) == 3
