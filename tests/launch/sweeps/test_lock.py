"""One sweep a folder; the lock of a dead one is no obstacle, that of a living one is."""

import json
import multiprocessing
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from dataclasses import asdict, replace

import psutil
import pytest
from starting import ROOT

from drbench.errors import UsageError
from launch.host.leftovers import started_at, this_system, ticks_of
from launch.sweeps.lock import STALE_S, FolderLock, Holder


@pytest.fixture(autouse=True)
def watched_shortly(monkeypatch):
    """An old heartbeat of somewhere else is watched for a moment only."""
    monkeypatch.setattr("launch.sweeps.lock.WATCH_S", 0.3)
    monkeypatch.setattr("launch.sweeps.lock._WRITING_S", 0.3)


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
    leave(tmp_path, ticks=Holder.me().ticks - 1)
    with FolderLock(tmp_path):
        pass


@pytest.mark.parametrize("age_s, held", [(0, True), (STALE_S - 60, True), (STALE_S + 60, False)])
def test_another_host_is_believed_as_long_as_its_heart_beats(tmp_path, age_s, held):
    leave(tmp_path, age_s, host="elsewhere", system="another boot")
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


@pytest.fixture
def clock_set(monkeypatch):
    """``clock_set(seconds)``: the clock of this machine was set forward, or back."""
    now = time.time
    return lambda seconds: monkeypatch.setattr(time, "time", lambda: now() + seconds)


@pytest.mark.parametrize("step_s", [30, 3600, -3600, 1e9])
def test_a_step_of_the_clock_breaks_no_living_lock(tmp_path, clock_set, monkeypatch, step_s):
    """Nor does a kernel that counts its boot from another second after it (``btime``)."""
    with FolderLock(tmp_path) as lock:
        clock_set(step_s)
        monkeypatch.setattr(psutil, "boot_time", lambda: 0.0)
        with pytest.raises(UsageError, match="in use by process"):
            FolderLock(tmp_path).__enter__()
        lock._beaten = float("-inf")
        lock.beat()
    assert files(tmp_path) == []


@pytest.mark.parametrize("step_s", [3600, -3600])
@pytest.mark.parametrize("elsewhere", ["another boot 4026531836", "{} 4026532999"])
def test_who_still_stamps_an_old_looking_lock_keeps_it(tmp_path, clock_set, elsewhere, step_s):
    """Of another host, or another pid namespace of this one under the same host name: its clock
    and ours need not agree."""
    leave(tmp_path, STALE_S + 60, system=elsewhere.format(this_system().split()[0]))
    clock_set(step_s)
    beats = iter(range(1, 100))
    ended = threading.Event()

    def beat():
        while not ended.wait(0.05):
            os.utime(tmp_path / "lock", (next(beats),) * 2)  # long ago, but another each time

    beating = threading.Thread(target=beat)
    beating.start()
    try:
        with pytest.raises(UsageError, match="in use by process"):
            FolderLock(tmp_path).__enter__()
    finally:
        ended.set()
        beating.join()
    assert files(tmp_path) == ["lock"]


def test_another_pid_namespace_of_this_host_does_not_take_a_living_lock(tmp_path):
    """In it, under the same host name, our number is someone else's or nobody's."""
    inside = ["unshare", "--fork", "--pid", "--mount-proc"]
    if (
        not shutil.which("unshare")
        or subprocess.run([*inside, "true"], capture_output=True).returncode
    ):
        pytest.skip("a pid namespace cannot be made here (needs root and unshare)")
    code = f"from launch.sweeps.lock import FolderLock; FolderLock({str(tmp_path)!r}).__enter__()"
    with FolderLock(tmp_path) as lock:
        done = subprocess.run(
            [*inside, sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT
        )
        assert "last heard of" in done.stderr and f"process {os.getpid()}" in done.stderr
        lock.beat()


def test_the_name_of_the_host_says_nothing_of_a_process(tmp_path):
    """A host may be given another name while a sweep runs."""
    leave(tmp_path, host="as it was called before")
    with pytest.raises(UsageError, match="in use by process"):
        FolderLock(tmp_path).__enter__()
    leave(tmp_path, host="as it was called before", pid=dead_pid())
    with FolderLock(tmp_path):
        pass


def test_a_process_that_has_ended_and_was_not_waited_for_holds_nothing(tmp_path):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        ticks = ticks_of(process.pid)
        leave(tmp_path, pid=process.pid, ticks=ticks)
        with pytest.raises(UsageError):
            FolderLock(tmp_path).__enter__()
        process.stdin.close()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        with FolderLock(tmp_path):
            pass


@pytest.mark.parametrize("name", ["sh", "a b", "a) S 1 (b", ")", "((", "x\ny) Z 0", "é", ""])
@pytest.mark.parametrize("state", "RSDTtZX")
def test_the_start_of_a_process_is_found_whatever_it_is_called(name, state):
    fields = [state, *map(str, range(4, 53))]
    fields[22 - 3] = "987654321"
    found = started_at(f"7 ({name}) {' '.join(fields)}\n")
    assert found == (None if state in "ZX" else 987654321)


@pytest.mark.parametrize("name", ["a b) S 1 (c", "))", "Z"])
def test_the_start_of_a_process_is_the_kernel_s(name):
    """psutil takes it from the same field, and adds the time of boot."""
    named = (
        f"import ctypes; ctypes.CDLL(None).prctl(15, {name.encode()!r}); print(flush=True); input()"
    )
    command = [sys.executable, "-c", named]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        born = psutil.Process(process.pid).create_time() - psutil.boot_time()
        assert psutil.Process(process.pid).name() == name
        assert ticks_of(process.pid) / os.sysconf("SC_CLK_TCK") == pytest.approx(born, abs=0.02)
        process.stdin.close()
    assert ticks_of(process.pid) is None


def test_a_lock_that_was_taken_over_meanwhile_is_not_taken_away(tmp_path, monkeypatch):
    """Two find a dead lock; the faster has taken it away and made its own when the slower gets its
    turn to take away what it saw."""
    leave(tmp_path, pid=dead_pid())
    real = FolderLock._link

    def link(self, path):
        if path.name == "lock.breaking":
            leave(tmp_path)  # of a living process
        return real(self, path)

    monkeypatch.setattr(FolderLock, "_link", link)
    with pytest.raises(UsageError, match="in use by process"):
        FolderLock(tmp_path).__enter__()
    assert files(tmp_path) == ["lock"] and '"other"' in (tmp_path / "lock").read_text()


def test_a_link_whose_answer_was_lost_was_made(tmp_path, monkeypatch):
    """NFS sends a request again, and the answer to that is that the name exists."""
    real = os.link

    def link(source, target):
        real(source, target)
        raise FileExistsError(17, "File exists")

    monkeypatch.setattr(os, "link", link)
    with FolderLock(tmp_path) as lock:
        lock.beat()
        assert files(tmp_path) == ["lock"]
    assert files(tmp_path) == []


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


def _contend(folder, gate, got, answered):
    gate.wait()
    try:
        with FolderLock(folder):
            got.put(os.getpid())
            answered.wait()
    except UsageError:
        got.put(None)


def test_of_many_that_find_a_dead_lock_one_gets_it(tmp_path):
    context = multiprocessing.get_context("fork")
    for _ in range(3):
        leave(tmp_path, pid=dead_pid())
        gate, got, answered = context.Event(), context.Queue(), context.Event()
        contenders = [
            context.Process(target=_contend, args=(tmp_path, gate, got, answered)) for _ in range(6)
        ]
        for contender in contenders:
            contender.start()
        gate.set()
        answers = [got.get(timeout=120) for _ in contenders]
        answered.set()
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
    leave(tmp_path, host="elsewhere", system="another boot")
    assert "elsewhere" in say("unlock", tmp_path).refusal()
    assert say("unlock", tmp_path, "--force").returncode == 0 and files(tmp_path) == []
    leave(tmp_path, pid=dead_pid())
    assert "removed" in say("unlock", tmp_path).stdout and files(tmp_path) == []
