"""Files that ranks of drbench left are removed, and no others."""

import os
import secrets
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest
from starting import wait_until

from drbench.launch.host import leftovers
from drbench.launch.host.leftovers import (
    TOKEN,
    end_family,
    family,
    is_alive,
    list_used_files,
    new_token,
    remove_files,
)

pytestmark = pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="there is no /dev/shm here")
WAIT = (
    "import mmap, os, sys, time\n"
    "how, *paths = sys.argv[1:]\n"
    "handles = [os.open(path, os.O_RDWR) for path in paths]\n"
    "maps = [mmap.mmap(handle, 0) for handle in handles] if how == 'map' else []\n"
    "[os.close(handle) for handle in handles if how == 'map']\n"
    "print(flush=True); time.sleep(60)"
)
#: One name of each type; # is a hexadecimal digit.
NAMES = (
    "mpich_shm_########_0 mpich_shm_####_12 mpich_shar_tmp###### "
    "ucx_shm_posix_######## sm_segment.node-1.0.########.0 "
    "vader_segment.node.1000.########.7 osc_rdma.vm.########.5.19892 "
    "osc_sm.vm.########.0.4 drbench-locks-########"
).split()


@pytest.fixture(autouse=True)
def shared(monkeypatch):
    """A folder in shared memory instead of all of it: other runs of this machine clear up too."""
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="test-") as folder:
        monkeypatch.setattr(leftovers, "SHARED_MEMORY", folder)
        yield Path(folder)


@pytest.fixture
def file(shared):
    """``file(name)``: a new file in shared memory, with a name of some type."""

    def make(name=NAMES[0], size=4096):
        path = shared / "".join(secrets.choice("0123456789abcdef") if c == "#" else c for c in name)
        path.write_bytes(b"x" * size)
        return path

    return make


@pytest.fixture
def holder():
    """``holder(*paths, how=, token=, command=)``: a process that has files open or mapped."""
    started = []

    def start(*paths, how="open", token=None, command=(sys.executable,), **keywords):
        environ = {**os.environ, **({TOKEN: token} if token else {})}
        started.append(
            subprocess.Popen(
                [*command, "-c", WAIT, how, *map(str, paths)],
                stdout=subprocess.PIPE,
                env=environ,
                **keywords,
            )
        )
        started[-1].stdout.readline()
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.parametrize("name", NAMES)
def test_a_file_that_ranks_of_drbench_held_is_removed_and_no_other_of_its_type(file, holder, name):
    path, others, token = file(name, 8192), file(name, 8192), new_token()
    orphan = holder(path, token=token)
    assert len(remove_files(end_family(token))) == 1
    assert orphan.wait(60) == -9 and not path.exists() and others.exists()


@pytest.mark.parametrize("how", ["open", "map"])
@pytest.mark.parametrize("name", NAMES[::3])
def test_a_file_that_a_living_process_has_open_or_mapped_stays(file, holder, name, how):
    held, free = file(name), file(name)
    process = holder(held, how=how)
    assert str(held) in list_used_files() and str(held) in list_used_files([process.pid])
    assert len(remove_files({str(held), str(free)})) == 1
    assert held.exists() and not free.exists()
    process.kill()
    process.wait()
    assert len(remove_files({str(held), str(free)})) == 1 and not held.exists()


def test_a_file_written_while_crashed_ranks_ran_and_held_by_no_process_is_removed(file, holder):
    early, start = file(), time.time()
    os.utime(early, (start - 60,) * 2)
    held, left, strange = file(), file(), file("someone_else_s")
    holder(held)
    assert len(remove_files(set(), start)) == 1
    assert not left.exists() and early.exists() and held.exists() and strange.exists()


@pytest.mark.parametrize(
    "name",
    (
        "someone_else_s mpich_shm_ mpich_shm_xyz_0 mpich_shm_1234_0.bak "
        "my_mpich_shm_1_0 mpich_shar_tmp12345 drbench sem.mpich_shm_1_0"
    ).split(),
)
def test_a_file_of_another_name_stays_though_ranks_held_it(file, name):
    path = file(name)
    assert remove_files({str(path)}) == set() and path.exists()


def test_the_processes_of_a_run_are_those_with_its_token(file, holder):
    path, token = file(), new_token()
    ours = holder(path, token=token)
    other, stranger = holder(token=new_token()), holder()
    assert family(token) == [ours.pid]
    assert end_family(token) == {str(path)}
    assert ours.wait(60) == -9 and family(token) == []
    assert all(process.poll() is None for process in (other, stranger))
    remove_files({str(path)})
    assert not path.exists()


@pytest.mark.parametrize("name", ["a b) S 1 (c", "))", "Z"])
def test_a_zombie_process_counts_as_ended(name):
    named = (
        f"import ctypes; ctypes.CDLL(None).prctl(15, {name.encode()!r}); print(flush=True); input()"
    )
    command = [sys.executable, "-c", named]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        assert psutil.Process(process.pid).name() == name and is_alive(process.pid)
        process.kill()
        wait_until(lambda: not is_alive(process.pid), 10)
    assert not is_alive(process.pid)
