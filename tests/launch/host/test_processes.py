"""Whatever ends a command, and however often it is interrupted, all its processes end and leave
nothing."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from starting import ROOT, marked, wait_until, within

from drbench.launch.host import leftovers, processes
from drbench.launch.host.leftovers import family, new_token
from drbench.launch.host.processes import Started, interruptible

GUARD = str(ROOT / "drbench/launch/host/guard.py")
#: Starts a launcher of two "ranks" that ignore all but SIGKILL, reports it, and waits for it.
STARTER = """
import os, signal, sys, time
from drbench.launch.host import leftovers
from drbench.launch.host.processes import running
leftovers.SHARED_MEMORY = {folder!r}
RANK = (
    "import os, signal, time; [signal.signal(n, signal.SIG_IGN) for n in (1, 2, 15)]; "
    "open('up-' + str(os.getpid()), 'w').close(); time.sleep(120)"
)
LAUNCHER = (
    "import subprocess, sys; "
    f"[p.wait() for p in [subprocess.Popen([sys.executable, '-c', {{RANK!r}}]) for _ in 'ab']]"
)
try:
    with running("the ranks", [sys.executable, "-c", LAUNCHER]) as process:
        process.wait()
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.fixture
def started(tmp_path):
    """``started()``: a command that waits for its ranks; the process and its mark."""
    made = []

    def start(**keywords):
        mark = f"{os.getpid()}-{time.monotonic_ns()}"
        for path in tmp_path.glob("up-*"):
            path.unlink()
        environ = {**os.environ, "PYTHONPATH": str(ROOT), "DRBENCH_TEST_RUN": mark}
        code = STARTER.format(folder=str(tmp_path))
        process = subprocess.Popen(
            [sys.executable, "-c", code],
            env=environ,
            cwd=tmp_path,
            stderr=subprocess.PIPE,
            **keywords,
        )
        made.append((process, mark))
        wait_until(lambda: len(list(tmp_path.glob("up-*"))) >= 2, 30, process)
        return process, mark

    yield start
    for process, mark in made:
        process.kill()
        for pid in marked(mark):  # they hold its standard error
            os.kill(pid, signal.SIGKILL)
        process.communicate()


def gone(mark, seconds=10.0):
    """Whether all processes with this mark end within so many seconds."""
    start = time.monotonic()
    while marked(mark):
        if not within(time.monotonic() - start, seconds):
            return False
        time.sleep(0.02)
    return True


def guard_of(process):
    """The number of the guard that a command has started."""
    children = psutil.Process(process.pid).children()
    (guard,) = [child.pid for child in children if child.cmdline()[2:3] == [GUARD]]
    return guard


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ranks_that_ignore_every_signal_end_with_their_command(started, monkeypatch, number):
    process, mark = started()
    assert len(marked(mark)) >= 4
    process.send_signal(number)
    assert gone(mark)
    assert process.wait(60) == (-9 if number == signal.SIGKILL else 130)
    assert process.stderr.read() == b""


def test_a_launcher_that_is_stopped_ends_with_its_command(started):
    """A stopped process receives no signal but SIGKILL."""
    process, mark = started()
    for pid in marked(mark):
        if pid not in (process.pid, guard_of(process)):
            os.kill(pid, signal.SIGSTOP)
    process.kill()
    assert gone(mark)


@pytest.mark.parametrize(
    "offset_ms",
    [0, 5, *(pytest.param(ms, marks=pytest.mark.thorough) for ms in (0.5, 3, 7, 10, 200))],
)
def test_a_second_signal_at_any_moment_leaves_no_orphan(started, offset_ms):
    """A signal between SIGSTOP and SIGKILL of the ranks left them stopped for ever."""
    for number in (signal.SIGINT, signal.SIGTERM)[: 1 + (offset_ms == 5)]:
        process, mark = started()
        process.send_signal(signal.SIGINT)
        for _ in range(3):
            time.sleep(offset_ms / 1e3)
            if process.poll() is None:
                process.send_signal(number)
        # or by that signal itself, once all has ended and Python is about to
        assert process.wait(60) in (130, -number)
        assert gone(mark, 1), f"orphans after {offset_ms} ms"


def test_a_signal_while_ranks_are_being_ended_waits_until_they_have_ended(monkeypatch):
    """Exactly between SIGSTOP and SIGKILL."""
    token = new_token()
    environ = {**os.environ, leftovers.TOKEN: token}
    rank = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], env=environ)
    real = leftovers._signal

    def interrupted(pid, number):
        real(pid, number)
        if number == signal.SIGSTOP:
            os.kill(os.getpid(), signal.SIGINT)  # the second signal; the first one started this

    monkeypatch.setattr(leftovers, "_signal", interrupted)
    while family(token) != [rank.pid]:
        time.sleep(0.01)
    with interruptible():
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(5)
        except KeyboardInterrupt:
            try:
                leftovers.end_family(token)
            except KeyboardInterrupt:
                rank.kill()
                pytest.fail("the second signal came between")
    assert rank.wait(60) == -signal.SIGKILL


def test_handlers_are_restored_afterwards():
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    with interruptible():
        outer = [signal.getsignal(number) for number in numbers]
        with interruptible():  # the same: the first signal there is the first here
            assert [signal.getsignal(number) for number in numbers] == outer
        assert [signal.getsignal(number) for number in numbers] == outer != before
    assert [signal.getsignal(number) for number in numbers] == before


def test_a_killed_command_leaves_no_shared_memory_of_ranks_that_ended_before_it_was_seen(tmp_path):
    """The launcher kills the ranks before the guard sees which files they hold."""
    file = Path("/dev/shm/mpich_shar_tmp" + os.urandom(3).hex())
    rank = ["touch", str(file)]
    code = (
        "import time; from drbench.launch.host.processes import Started\n"
        f"Started({rank}, {{}}).process.wait(); open('up', 'w').close(); time.sleep(60)"
    )
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, env=environ) as process:
        assert comes(tmp_path / "up") and file.exists()
        process.kill()
    wait_until(lambda: not file.exists(), 10)


def test_the_kernel_signals_the_launcher_where_there_is_no_guard(tmp_path):
    """As after someone has killed it: the launcher receives SIGTERM."""
    launcher = (
        "import signal, sys, time; note = lambda *_: sys.exit(open('signalled', 'w').close()); "
        "signal.signal(signal.SIGTERM, note); open('up', 'w').close(); time.sleep(60)"
    )
    code = (
        "import os, sys, time; from drbench.launch.host import processes\n"
        "processes._guard = lambda *_: None\n"
        f"processes.Started([sys.executable, '-c', {launcher!r}], {{}}); time.sleep(60)"
    )
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, env=environ) as process:
        assert comes(tmp_path / "up")
        process.kill()
    assert comes(tmp_path / "signalled")


def comes(path, seconds=10.0):
    """Whether a file exists in time."""
    start = time.monotonic()
    while not path.exists() and within(time.monotonic() - start, seconds):
        time.sleep(0.02)
    return path.exists()


def test_a_guard_ends_after_all_processes_and_blocks_nothing(monkeypatch):
    started = Started([sys.executable, "-c", ""], os.environ)
    guard = started._guard
    assert guard.poll() is None
    started.process.wait()
    started.stop(1.0)
    assert guard.returncode == 0
    killed = Started([sys.executable, "-c", ""], os.environ)
    killed._guard.kill()
    killed._guard.wait()
    killed.process.wait()
    killed.stop(1.0)


def test_a_missing_program_leaves_no_guard(monkeypatch):
    guards = []
    real = processes._guard
    monkeypatch.setattr(processes, "_guard", lambda *of: guards.append(real(*of)) or guards[0])
    with pytest.raises(FileNotFoundError):
        Started(["/nonexistent/mpiexec"], os.environ)
    assert guards[0].returncode == 0


def test_a_guard_has_the_environment_without_the_token_of_those_that_it_ends(monkeypatch):
    """As of a command that ranks of another one start: else the guard ended itself."""
    monkeypatch.setenv(leftovers.TOKEN, token := new_token())
    guard = processes._guard(token, time.time())
    try:
        while not (environ := psutil.Process(guard.pid).environ()):  # it begins
            time.sleep(0.01)
        assert guard.pid not in family(token) and environ["PATH"] == os.environ["PATH"]
    finally:
        processes._dismiss(guard)
