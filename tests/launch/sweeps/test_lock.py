"""One sweep a folder; the lock of an ended sweep is ignored, that of a running one is not."""

import errno
import fcntl
import os
import socket
import subprocess
import sys

import pytest
from starting import ROOT

from drbench.errors import UsageError
from drbench.launch.sweeps.lock import hold_folder

HOLD = """
import sys
from pathlib import Path
from drbench.launch.sweeps.lock import hold_folder
with hold_folder(Path(sys.argv[1]), print):
    print("held", flush=True)
    input()
"""


@pytest.fixture
def lines():
    return []


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the folder."""
    words = [sys.executable, "-c", HOLD, str(tmp_path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(words, cwd=ROOT, **pipes) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_second_sweep_is_refused_with_the_holder(tmp_path, holder, lines):
    with pytest.raises(UsageError) as caught, hold_folder(tmp_path, lines.append):
        pass
    words = (
        f"{tmp_path} is in use by process {holder.pid} on {socket.gethostname()} since 20",
        "use another --out",
    )
    assert all(word in str(caught.value) for word in words)
    assert "\n" not in str(caught.value) and (tmp_path / "lock").exists() and lines == []


def test_a_holder_that_was_killed_has_no_lock(tmp_path, holder, lines):
    holder.kill()
    holder.wait()
    assert (tmp_path / "lock").exists()
    with hold_folder(tmp_path, lines.append):
        assert f"process {os.getpid()} on" in (tmp_path / "lock").read_text()
    assert list(tmp_path.iterdir()) == [] and lines == []


def test_a_file_opened_before_its_holder_ended_is_reopened(tmp_path, monkeypatch, lines):
    """Otherwise a third process, which makes the file anew, would hold the folder too."""
    real = fcntl.flock

    def flock(file, how):
        monkeypatch.setattr(fcntl, "flock", real)
        (tmp_path / "lock").unlink()  # as its holder does when it ends
        real(file, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    with hold_folder(tmp_path, lines.append):
        with pytest.raises(UsageError, match=str(os.getpid())), hold_folder(tmp_path, lines.append):
            pass
    assert list(tmp_path.iterdir()) == []


def test_where_the_file_system_has_no_locks_a_line_reports_it_and_the_sweep_continues(
    tmp_path, monkeypatch, lines
):
    def flock(file, how):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    with hold_folder(tmp_path, lines.append):
        (line,) = lines
        assert "No locks available" in line and "\n" not in line


def test_a_folder_that_cannot_be_written_to_is_refused_in_one_line(tmp_path, lines):
    (tmp_path / "lock").mkdir()
    with pytest.raises(UsageError, match="Use a --out"), hold_folder(tmp_path, lines.append):
        pass
