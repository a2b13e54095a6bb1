"""Only what is ours is ended or removed."""

import os
import subprocess
import sys
import time
import uuid
from pathlib import Path

import psutil
import pytest

from launch.host.processes import (
    TOKEN,
    end_family,
    family,
    held_files,
    remove_abandoned,
    remove_files,
)

SHARED_MEMORY = Path("/dev/shm")
pytestmark = pytest.mark.skipif(not SHARED_MEMORY.is_dir(), reason="there is no /dev/shm here")
WAIT = (
    "import sys, time; held = open(sys.argv[1]) if len(sys.argv) > 1 else None; "
    "print(flush=True); time.sleep(60)"
)


@pytest.fixture
def file():
    """``file(prefix)``: a new file under /dev/shm."""
    made = []

    def make(prefix="mpich_shm_"):
        made.append(SHARED_MEMORY / f"{prefix}{uuid.uuid4().hex}")
        made[-1].write_text("x")
        return made[-1]

    yield make
    for path in made:
        path.unlink(missing_ok=True)


@pytest.fixture
def holder():
    """``holder(path, token=)``: a process that has a file open."""
    started = []

    def start(*arguments, token=None):
        environ = {**os.environ, **({TOKEN: token} if token else {})}
        started.append(
            subprocess.Popen(
                [sys.executable, "-c", WAIT, *map(str, arguments)],
                stdout=subprocess.PIPE,
                env=environ,
            )
        )
        started[-1].stdout.readline()
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_file_of_our_time_that_nobody_holds_is_removed(file):
    since = time.time()
    path = file()
    remove_abandoned(since, time.time())
    assert not path.exists()


def test_a_file_that_someone_holds_stays(file, holder):
    since = time.time()
    path = file()
    holder(path)
    assert str(path) in held_files()
    remove_abandoned(since, time.time(), patience_s=0.1)
    remove_files([str(path)])
    assert path.exists()


@pytest.mark.parametrize(
    "prefix, age_s", [("mpich_shm_", 3600), ("mpich_shm_", -3600), ("someone_else_s_", 0)]
)
def test_a_file_of_another_time_or_name_stays(file, prefix, age_s):
    since = time.time()
    path = file(prefix)
    os.utime(path, (since - age_s,) * 2) if age_s else None
    remove_abandoned(since, time.time(), patience_s=0.1)
    remove_files([str(path)] if prefix == "someone_else_s_" else [])
    assert path.exists()


def test_a_family_is_who_carries_the_token_and_no_one_else(file, holder):
    path, token = file(), uuid.uuid4().hex
    ours, other, stranger = holder(path, token=token), holder(token=uuid.uuid4().hex), holder()
    assert family(token) == [ours.pid]
    assert end_family(token) == {str(path)}
    assert ours.wait(5) == -9 and family(token) == []
    assert all(
        psutil.pid_exists(process.pid) and process.poll() is None for process in (other, stranger)
    )
    remove_files([str(path)])
    assert not path.exists()
