"""What dead runs left is removed by the next, and nothing else is."""

import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

import psutil
import pytest
from starting import ROOT

from launch.host import leftovers
from launch.host.leftovers import (
    TOKEN,
    Removed,
    clear_up,
    end_family,
    family,
    folder_prefix,
    held_files,
    new_token,
    this_system,
    ticks_of,
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
#: One name of each kind; # is a hexadecimal digit.
NAMES = [
    "mpich_shm_########_0",
    "mpich_shm_#_12",
    "mpich_shar_tmp######",
    "ucx_shm_posix_########",
    "sm_segment.node-1.0.########.0",
    "vader_segment.node.1000.########.7",
    "osc_rdma.vm.########.5.19892",
    "osc_sm.vm.########.0.4",
    "drbench-locks-########",
]


@pytest.fixture(autouse=True)
def shared(monkeypatch):
    """A folder in shared memory that stands for all of it: other runs of this machine clear up
    too."""
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="test-") as folder:
        monkeypatch.setattr(leftovers, "SHARED_MEMORY", folder)
        yield Path(folder)


@pytest.fixture(autouse=True)
def temporary(monkeypatch, tmp_path):
    """A folder that stands for /tmp."""
    monkeypatch.setattr(leftovers, "_TEMPORARY", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def file(shared):
    """``file(name)``: a new file in shared memory, of a kind of name."""

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


def dead_token():
    """A token of ranks whose starter has been killed."""
    code = "from launch.host.leftovers import new_token; print(new_token())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    return done.stdout.strip()


@pytest.mark.parametrize("name", NAMES)
def test_a_file_of_shared_memory_that_nobody_holds_is_removed_whoever_made_it(file, name):
    path = file(name, 8192)
    assert clear_up() == Removed(0, 1, 8192) and not path.exists()


@pytest.mark.parametrize("how", ["open", "map"])
@pytest.mark.parametrize("name", NAMES[::3])
def test_a_file_that_a_living_process_has_open_or_mapped_stays(file, holder, name, how):
    held, free = file(name), file(name)
    process = holder(held, how=how)
    assert str(held) in held_files() and str(held) in held_files([process.pid])
    assert clear_up() == Removed(0, 1, 4096) and held.exists() and not free.exists()
    process.kill()
    process.wait()
    clear_up()
    assert not held.exists()


def test_a_file_that_is_held_under_another_path_stays(file, holder):
    """As by a process of another mount namespace, in which /dev/shm lies elsewhere."""
    path = file()
    inside = ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" /mnt && exec "$@"', path.parent]
    if (
        not shutil.which("unshare")
        or subprocess.run([*inside, "true"], capture_output=True).returncode
    ):
        pytest.skip("a mount namespace cannot be made here (needs root and unshare)")
    holder(f"/mnt/{path.name}", command=(*inside, sys.executable))
    assert clear_up() == Removed() and path.exists()


@pytest.mark.parametrize(
    "name",
    [
        "someone_else_s",
        "mpich_shm_",
        "mpich_shm_xyz_0",
        "mpich_shm_1234_0.bak",
        "my_mpich_shm_1_0",
        "mpich_shar_tmp12345",
        "drbench",
        "sem.mpich_shm_1_0",
    ],
)
def test_a_file_of_another_name_stays(file, name):
    path = file(name)
    assert clear_up([str(path)], 0) == Removed() and path.exists()


def test_a_file_of_another_user_stays(file):
    path = file()
    try:
        os.chown(path, 12345, -1)
    except PermissionError:
        pytest.skip("needs root, to make a file of another user")
    assert clear_up([str(path)], 0) == Removed() and path.exists()


@pytest.mark.parametrize("make", [os.mkdir, lambda path: os.symlink("/etc/passwd", path)])
def test_what_is_no_file_stays(shared, make):
    path = shared / "mpich_shm_12ab_0"
    make(path)
    assert clear_up() == Removed() and os.path.lexists(path)


def test_a_file_that_someone_opens_between_two_looks_stays(file, holder, monkeypatch):
    path = file()
    real = leftovers._in_use

    def look(found):
        seen = real(found)
        monkeypatch.setattr(leftovers, "_in_use", real)
        holder(path)
        return seen

    monkeypatch.setattr(leftovers, "_in_use", look)
    assert clear_up() == Removed() and path.exists()


def test_a_file_that_was_made_anew_between_looks_and_removal_stays(file, monkeypatch):
    path = file()
    real = leftovers._in_use

    def look(found):
        seen = real(found)
        path.unlink()
        path.write_text("another one")
        return seen

    monkeypatch.setattr(leftovers, "_in_use", look)
    assert clear_up() == Removed() and path.exists()


def test_a_file_that_is_gone_before_it_is_removed_is_no_trouble(file, monkeypatch):
    path = file()
    monkeypatch.setattr(leftovers, "_in_use", lambda found: path.unlink(missing_ok=True) or set())
    assert clear_up() == Removed()


def test_many_may_clear_up_at_once(file, holder):
    held, free = file(), [file() for _ in range(200)]
    holder(held)
    code = (
        "import sys; from launch.host import leftovers; leftovers.SHARED_MEMORY = sys.argv[1]; "
        "leftovers._TEMPORARY = '/nowhere'; leftovers.clear_up()"
    )
    clearing = [
        subprocess.Popen(
            [sys.executable, "-c", code, held.parent], cwd=ROOT, stderr=subprocess.PIPE
        )
        for _ in range(4)
    ]
    assert [(process.wait(60), process.stderr.read()) for process in clearing] == [(0, b"")] * 4
    assert held.exists() and not any(path.exists() for path in free)
    for process in clearing:
        process.stderr.close()


def test_in_a_container_only_what_is_ours_or_old_is_removed(file, monkeypatch):
    """Its processes are not all there are."""
    monkeypatch.setattr(leftovers, "_sees_all", lambda: False)
    young, old, ours = file(), file(), file()
    os.utime(old, (time.time() - 601,) * 2)
    assert clear_up([str(ours)]).files == 2 and young.exists()
    assert clear_up(since=time.time() + 1).files == 0 and young.exists()
    assert clear_up(since=young.stat().st_mtime).files == 1 and not young.exists()


def test_all_processes_are_seen_unless_this_is_a_container():
    mapped = Path("/proc/self/uid_map").read_text().split() == ["0", "0", str(2**32 - 1)]
    assert leftovers._sees_all() <= mapped
    if shutil.which("unshare"):
        code = "from launch.host.leftovers import _sees_all; print(_sees_all())"
        for inside in (["--pid", "--fork"], ["--user"]):
            done = subprocess.run(
                ["unshare", *inside, sys.executable, "-c", code],
                capture_output=True,
                text=True,
                cwd=ROOT,
            )
            assert done.returncode or done.stdout == "False\n"


def test_a_family_is_who_carries_the_token_and_no_one_else(file, holder):
    path, token = file(), new_token()
    ours = holder(path, token=token)
    other, stranger = holder(token=new_token()), holder()
    assert family(token) == [ours.pid]
    assert end_family(token) == {str(path)}
    assert ours.wait(60) == -9 and family(token) == []
    assert all(process.poll() is None for process in (other, stranger))
    clear_up([str(path)])
    assert not path.exists()


def test_ranks_whose_starter_is_dead_are_ended_and_no_others(file, holder):
    path = file()
    orphan = holder(path, token=dead_token())
    living = holder(token=new_token())
    elsewhere = holder(token=f"{uuid.uuid4().hex} 1 1 another-boot 4026531836")
    odd = [holder(token=text) for text in ("abc", "abc 1", "a b c d", f"x y z {this_system()}")]
    assert clear_up() == Removed(1, 1, 4096)
    assert orphan.wait(60) == -9 and not path.exists()
    assert all(process.poll() is None for process in (living, elsewhere, *odd))


def test_ranks_of_a_starter_whose_number_is_another_s_now_are_ended(holder):
    mark, pid, ticks, *system = new_token().split()
    orphan = holder(token=" ".join((mark, pid, str(int(ticks) - 1), *system)))
    assert clear_up().processes == 1 and orphan.wait(60) == -9


HYDRA = "hydra_hwloc_xmlfile_Ab12x9"


@pytest.fixture
def hydra(tmp_path_factory, holder):
    """``hydra()``: a process that is called as Hydra's."""

    def start(name="hydra_pmi_proxy"):
        program = tmp_path_factory.mktemp("hydra") / name
        code = f"import ctypes; ctypes.CDLL(None).prctl(15, {name.encode()!r})\n"
        program.write_text(code)
        process = subprocess.Popen(
            [sys.executable, "-c", f"{code}print(flush=True); input()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        process.stdout.readline()
        started.append(process)
        return process

    started = []
    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture
def no_other_hydra(monkeypatch):
    """Hydras of other runs of this machine are not looked at."""
    before = set(psutil.pids())
    real = leftovers._pids
    monkeypatch.setattr(leftovers, "_pids", lambda: (pid for pid in real() if pid not in before))


def test_what_hydra_wrote_goes_when_no_hydra_is_left_that_may_have(
    temporary, hydra, no_other_hydra
):
    path = temporary / HYDRA
    path.write_text("x")
    assert clear_up().files == 1 and not path.exists()
    for name in ("hydra_pmi_proxy", "mpiexec.hydra", "mpirun"):
        process = hydra(name)
        path.write_text("x")
        assert clear_up() == Removed() and path.exists()
        # one that was started later did not write it
        os.utime(path, (time.time() - 60,) * 2)
        assert clear_up().files == 1
        process.kill()
        process.wait()


def test_a_folder_goes_with_the_process_it_is_named_after(temporary, holder):
    process = holder()
    living = temporary / f"ompi.{process.pid}"
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    left = temporary / f"ompi.{dead.pid}"
    for folder in (living, left):
        (folder / "1" / "0").mkdir(parents=True)
        (folder / "hwloc.sm").write_text("x")
    reused = temporary / f"ompi.{os.getpid()}"  # this process is younger than that folder
    reused.mkdir()
    os.utime(reused, (psutil.Process().create_time() - 60,) * 2)
    own = temporary / f"{folder_prefix('mlp')}abc"
    own.mkdir()
    another = temporary / f"drbench-mlp-{os.getpid()}-{ticks_of() - 1}-abc"
    another.mkdir()
    strange = [temporary / name for name in ("ompi.", "ompi.x", "ompi.12.tar", "drbench-mlp-abc")]
    for path in strange:
        path.mkdir()
    (temporary / f"ompi.{dead.pid}0000000").write_text("a file")
    assert clear_up().files == 3
    assert living.exists() and own.exists() and all(path.exists() for path in strange)
    assert not left.exists() and not reused.exists() and not another.exists()
    assert (temporary / f"ompi.{dead.pid}0000000").exists()


def test_a_folder_in_which_someone_has_a_file_open_stays(temporary, holder):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    folder = temporary / f"ompi.{dead.pid}"
    folder.mkdir()
    (folder / "hwloc.sm").write_text("x")
    holder(folder / "hwloc.sm", how="map")
    assert clear_up() == Removed() and folder.exists()
