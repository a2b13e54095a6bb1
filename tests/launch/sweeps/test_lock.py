"""One sweep a folder; the lock of a dead one is no obstacle, that of a living one is."""

import json
import multiprocessing
import os
import socket
import subprocess
import sys
import time
from dataclasses import asdict, replace

import pytest

from drbench.errors import UsageError
from launch.sweeps.lock import STALE_S, FolderLock, Holder


def leave(folder, age_s=0.0, **changes):
    """A lock as someone else left it."""
    path = folder / "lock"
    path.write_text(json.dumps(asdict(replace(Holder.me(), token="other", **changes))))
    os.utime(path, (time.time() - age_s,) * 2)


def dead_pid():
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    return done.pid


def files(folder):
    return sorted(path.name for path in folder.iterdir())


def test_the_second_hears_who_holds_it(tmp_path):
    with FolderLock(tmp_path):
        with pytest.raises(UsageError) as caught:
            FolderLock(tmp_path).__enter__()
        assert (
            str(os.getpid()) in str(caught.value)
            and socket.gethostname() in str(caught.value)
            and "drbench unlock" in str(caught.value)
        )
        assert files(tmp_path) == ["lock"]
    assert files(tmp_path) == []


def test_a_dead_process_holds_nothing(tmp_path):
    leave(tmp_path, pid=dead_pid())
    with FolderLock(tmp_path) as lock:
        lock.beat()
    assert files(tmp_path) == []


def test_a_process_that_has_got_a_dead_one_s_number_holds_nothing(tmp_path):
    leave(tmp_path, born=Holder.me().born - 1000)
    with FolderLock(tmp_path):
        pass


@pytest.mark.parametrize("age_s, held", [(0, True), (STALE_S - 60, True), (STALE_S + 60, False)])
def test_another_host_is_believed_as_long_as_its_heart_beats(tmp_path, age_s, held):
    leave(tmp_path, age_s, host="elsewhere")
    if not held:
        with FolderLock(tmp_path):
            return
    with pytest.raises(UsageError, match="elsewhere.*last heard of"):
        FolderLock(tmp_path).__enter__()


@pytest.mark.parametrize("age_s, held", [(0, True), (STALE_S + 60, False)])
def test_another_container_of_this_host_name_is_believed_likewise(tmp_path, age_s, held):
    """Its processes cannot be seen from here: a number that means nothing is no dead process."""
    leave(tmp_path, age_s, pid=dead_pid(), system="another pid namespace")
    if not held:
        with FolderLock(tmp_path):
            return
    with pytest.raises(UsageError, match="last heard of"):
        FolderLock(tmp_path).__enter__()


def test_a_heartbeat_stamps_the_lock_and_finds_out_that_it_was_taken(tmp_path):
    with FolderLock(tmp_path) as lock:
        os.utime(tmp_path / "lock", (0, 0))
        lock.beat()
        assert time.time() - (tmp_path / "lock").stat().st_mtime < 5
        lock._beaten = float("-inf")
        leave(tmp_path)
        with pytest.raises(UsageError, match="taken away"):
            lock.beat()
    assert files(tmp_path) == ["lock"]  # it is the other's


def _contend(folder, gate, got):
    gate.wait()
    try:
        with FolderLock(folder):
            got.put(os.getpid())
            time.sleep(0.5)
    except UsageError:
        got.put(None)


def test_of_many_that_find_a_dead_lock_one_gets_it(tmp_path):
    context = multiprocessing.get_context("fork")
    for _ in range(3):
        leave(tmp_path, pid=dead_pid())
        gate, got = context.Event(), context.Queue()
        contenders = [
            context.Process(target=_contend, args=(tmp_path, gate, got)) for _ in range(6)
        ]
        for contender in contenders:
            contender.start()
        gate.set()
        answers = [got.get(timeout=20) for _ in contenders]
        for contender in contenders:
            contender.join()
        assert sum(answer is not None for answer in answers) == 1
        assert files(tmp_path) == []


def test_it_works_without_hard_links(tmp_path, monkeypatch):
    monkeypatch.setattr(
        os, "link", lambda *_: (_ for _ in ()).throw(PermissionError(1, "Operation not permitted"))
    )
    with FolderLock(tmp_path), pytest.raises(UsageError, match=str(os.getpid())):
        FolderLock(tmp_path).__enter__()
    assert files(tmp_path) == []


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"host": 3}'])
def test_a_lock_that_says_nothing_is_respected_while_it_is_young(tmp_path, text):
    (tmp_path / "lock").write_text(text)
    with pytest.raises(UsageError):
        FolderLock(tmp_path).__enter__()
    os.utime(tmp_path / "lock", (0, 0))
    with FolderLock(tmp_path):
        pass


def test_unlock_removes_the_lock_of_a_dead_sweep_only(say, tmp_path):
    assert "not locked" in say("unlock", tmp_path).stdout
    leave(tmp_path)
    assert "is alive" in say("unlock", tmp_path).refusal() and files(tmp_path) == ["lock"]
    leave(tmp_path, host="elsewhere")
    assert "elsewhere" in say("unlock", tmp_path).refusal()
    assert say("unlock", tmp_path, "--force").returncode == 0 and files(tmp_path) == []
    leave(tmp_path, pid=dead_pid())
    assert "removed" in say("unlock", tmp_path).stdout and files(tmp_path) == []
