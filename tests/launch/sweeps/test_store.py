"""The folder of a sweep loses no finished case, has none twice, and never deletes what it does not
want."""

import errno
import json
import os
import shutil
import subprocess

import pytest

from drbench.errors import UsageError
from drbench.measure.record_file import append_csv, read_csv
from launch.cases.case import Case
from launch.sweeps.plan import SweepRequest, plan_cases
from launch.sweeps.store import Store, case_id, write_csv
from plots.select.records import read_records

CASES = [Case(8, 8, 8, "row", "row", "row", seed=seed) for seed in range(3)]
IDS = [case_id(case, 2) for case in CASES]


def opened(folder, ids=IDS, name="test"):
    store = Store(folder)
    store.open(name, 2, ids)
    return store


def filled(folder, rows, count=3):
    store = opened(folder)
    for name, case in list(zip(IDS, CASES))[:count]:
        store.add(rows(case, case=name))
    return store


def test_what_was_added_is_there_for_the_next(tmp_path, rows):
    filled(tmp_path, rows, 2)
    assert list(opened(tmp_path).done) == IDS[:2]


def test_truncating_the_records_at_every_byte_loses_no_finished_case(tmp_path, rows, monkeypatch):
    # thousands of them, and no crash to survive here
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    path = filled(tmp_path, rows).records_path
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    ends = [sum(map(len, lines[:count])) for count in range(1, 5)]  # of the header and of each row
    for size in range(len(whole) + 1):
        path.write_bytes(whole[:size])
        store = opened(tmp_path)
        assert list(store.done) == IDS[: sum(end <= size for end in ends[1:])]
        if size % 31 == 0 or size in ends:  # and goes on to the same file
            for name, case in zip(IDS, CASES):
                if name not in store.done:
                    store.add(rows(case, case=name))
            assert path.read_bytes() == whole


def test_truncating_the_journal_at_every_byte_counts_no_attempt_too_many(tmp_path):
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


def test_attempts_end_with_the_row(tmp_path, rows):
    store = opened(tmp_path)
    store.started(IDS[0])
    store.add(rows(CASES[0], case=IDS[0]))
    assert store.attempts[IDS[0]] == 0 and opened(tmp_path).attempts[IDS[0]] == 0


def test_rows_of_changed_cases_are_kept_elsewhere_and_run_again(tmp_path, rows):
    filled(tmp_path, rows)
    store = opened(tmp_path, [IDS[0], "0" * 16, IDS[2]])
    assert list(store.done) == [IDS[0], IDS[2]] and "superseded.csv" in store.notes[0]
    assert [record.case for record in read_csv(tmp_path / "superseded.csv")] == [IDS[1]]
    assert [record.case for record in read_csv(tmp_path / "records.csv")] == [IDS[0], IDS[2]]


def test_a_crash_while_rows_are_superseded_loses_none_and_doubles_none(tmp_path, rows):
    records = read_csv(filled(tmp_path, rows).records_path)
    append_csv(tmp_path / "superseded.csv", records[1])  # the first of the two writes was done
    opened(tmp_path, [IDS[0], IDS[2]])
    assert [record.case for record in read_csv(tmp_path / "superseded.csv")] == [IDS[1]]


def test_another_sweep_is_refused(tmp_path, rows):
    filled(tmp_path, rows)
    with pytest.raises(UsageError, match="'test'.*--fresh"):
        opened(tmp_path, name="other")
    assert len(read_csv(tmp_path / "records.csv")) == 3


def test_fresh_moves_all_aside_and_deletes_nothing(tmp_path, rows):
    for number in (1, 2):
        store = filled(tmp_path, rows)
        before = store.records_path.read_bytes()
        store.set_aside()
        assert (tmp_path / f"previous-{number}" / "records.csv").read_bytes() == before
        assert opened(tmp_path).done == {}


def test_retry_takes_out_what_was_not_fine_and_keeps_a_copy(tmp_path, rows):
    store = opened(tmp_path)
    for name, case, status in zip(IDS, CASES, ("ok", "timeout", "unsupported")):
        store.add(rows(case, status=status, case=name))
    store.started(IDS[1])
    again = Store(tmp_path)
    again.open("test", 2, IDS, retry=True)
    assert list(again.done) == [IDS[0], IDS[2]] and again.attempts[IDS[1]] == 0
    (aside,) = read_csv(tmp_path / "superseded.csv")
    assert (aside.case, aside.status) == (IDS[1], "timeout")


@pytest.mark.parametrize("text", ["", "{", '{"name": "te'])
def test_a_sweep_json_that_was_cut_off_does_not_stop_the_sweep(tmp_path, rows, text):
    filled(tmp_path, rows, 2)
    (tmp_path / "sweep.json").write_text(text)
    store = opened(tmp_path)
    assert list(store.done) == IDS[:2] and "sweep.json is damaged" in store.notes[0]
    assert json.loads((tmp_path / "sweep.json").read_text())["cases"] == IDS


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


def test_the_first_row_of_a_case_counts(tmp_path, rows):
    """Two, as two sweeps that knew nothing of each other would leave them."""
    path = filled(tmp_path, rows, 1).records_path
    append_csv(path, rows(CASES[0], case=IDS[0], status="timeout"))
    assert opened(tmp_path).done[IDS[0]].status == "ok"


def test_the_journal_is_on_disk_before_a_case_is_given_to_ranks(tmp_path, monkeypatch):
    """A case that takes the machine down would be tried for ever."""
    store, synced, real = opened(tmp_path), [], os.fsync

    def fsync(handle):
        synced.append((os.readlink(f"/proc/self/fd/{handle}"), os.fstat(handle).st_size))
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    store.started(IDS[0])
    assert synced == [(str(store.journal_path), len(IDS[0]) + 2)]


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 256 KiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = [*"mount -t tmpfs -o size=256k tmpfs".split(), str(place)]
    if not shutil.which("mount") or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("a small file system cannot be made here (needs root)")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.mark.parametrize("what", ["full", "read-only"])
def test_resume_on_a_full_or_read_only_disk_is_one_line_and_leaves_nothing(
    small_disk, say, sweep_file, rows, what
):
    file = sweep_file("[[cases]]\nm = 8\nn = 8\nk = [8, 9]\n")
    folder = small_disk / "out"
    words = ("sweep", file, "-p", 2, "--out", folder)
    jobs = plan_cases(SweepRequest(file, 2, str(folder))).jobs
    folder.mkdir()
    store = Store(folder)
    store.open("tiny", 2, [job.name for job in jobs])
    store.add(rows(jobs[0].case, case=jobs[0].name))
    before = sorted(path.name for path in folder.iterdir())
    if what == "full":
        with pytest.raises(OSError), open(small_disk / "filler", "wb", buffering=0) as filler:
            while True:
                filler.write(b"x" * 4096)
    else:
        subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    line = say(*words).refusal(2)
    assert ("No space left" if what == "full" else "Read-only") in line
    assert sorted(path.name for path in folder.iterdir()) == before
    assert len(read_csv(folder / "records.csv")) == 1


@pytest.mark.parametrize("text", ["[]", '{"nam": 1}', "3"])
def test_a_file_that_is_not_ours_is_refused(tmp_path, text):
    (tmp_path / "sweep.json").write_text(text)
    with pytest.raises(UsageError, match="--fresh"):
        opened(tmp_path)


def test_records_of_something_else_are_refused_and_left_alone(tmp_path):
    (tmp_path / "records.csv").write_text("a,b\n1,2\n")
    with pytest.raises(UsageError, match="--fresh"):
        opened(tmp_path)
    assert (tmp_path / "records.csv").read_text() == "a,b\n1,2\n"


def test_a_disk_that_is_full_is_said_and_the_row_is_not_counted(tmp_path, rows, monkeypatch):
    store = filled(tmp_path, rows, 1)
    monkeypatch.setattr(
        os, "fsync", lambda handle: (_ for _ in ()).throw(OSError(28, "No space left on device"))
    )
    with pytest.raises(UsageError, match="No space left"):
        store.add(rows(CASES[1], case=IDS[1]))
    monkeypatch.undo()
    assert list(opened(tmp_path).done) == IDS[:1]


def test_records_that_cannot_be_written_anew_stay_as_they_were(tmp_path, rows, monkeypatch):
    path = filled(tmp_path, rows).records_path
    before = path.read_bytes()
    monkeypatch.setattr(
        os, "fsync", lambda handle: (_ for _ in ()).throw(OSError(28, "No space left on device"))
    )
    with pytest.raises(OSError):
        write_csv(path, [rows(CASES[0])])
    assert path.read_bytes() == before


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EIO])
def test_a_folder_that_cannot_be_made_durable_is_no_failure(tmp_path, monkeypatch, rows, number):
    """Some file systems refuse fsync of a folder; one that breaks says something else."""
    real = os.fsync

    def refuse(handle):
        if os.path.isdir(f"/proc/self/fd/{handle}"):
            raise OSError(number, os.strerror(number))
        real(handle)

    monkeypatch.setattr(os, "fsync", refuse)
    if number == errno.EIO:
        with pytest.raises(OSError, match=os.strerror(number)):
            filled(tmp_path, rows)
    else:
        filled(tmp_path, rows)
        assert len(read_csv(tmp_path / "records.csv")) == 3


@pytest.mark.timeout(20)
@pytest.mark.parametrize("name", ["records.csv", "journal.txt", "sweep.json", "log.txt"])
def test_a_pipe_in_the_place_of_a_result_file_is_refused_and_not_waited_for(tmp_path, name):
    os.mkfifo(tmp_path / name)
    with pytest.raises(UsageError, match=f"{name} in .* is no file. Use another --out, or --fresh"):
        opened(tmp_path)
    with pytest.raises(ValueError, match="holds no CSV file"):
        read_records([tmp_path])
