"""A /dev/shm that is nearly large enough."""

import json
import re
import shutil
import sys

import pytest

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(100)]


RUN = "run -p 2 --threads 1 --iters 1 --budget 0 -o warmup=0 -o gemm_only=false --json"
#: Three matrices of 256 KiB; and a push for each tile of C, whose slots (256 KiB in all) are in
#: the inboxes.
TILES = f"{RUN} -m 256 -n 256 -k 256 --a row --b column --c block --stationary C", 3 * 256
INBOXES = f"{RUN} -m 256 -n 256 -k 256 --algorithm gemm_rs", 3 * 256 + 256


def test_a_small_lack_of_shared_memory_is_reported_without_a_crash(process, mpich):
    """Tiles alone fit, but not with inboxes and MPI's own memory: a rank was killed by SIGBUS."""
    ask = f"{sys.executable} -m drbench {TILES[0]}"
    small = within_shared(process, 2600, ask)  # too small: how much has MPI allocated by then?
    free = re.search(r"has ([\d.]+) ([KM]iB) free", json.loads(small.stdout)["reason"])
    taken = 2600 - float(free[1]) * {"KiB": 1, "MiB": 1024}[free[2]]
    for (run, kib), over_kib in ((TILES, -16), (TILES, 12), (INBOXES, -100), (INBOXES, 256)):
        ask = f"{sys.executable} -m drbench {run}"
        ended = within_shared(process, int(taken + kib + over_kib), ask)
        assert ended.returncode in (0, 6) and ended.stderr == "", over_kib
        assert over_kib >= 0 or ended.returncode == 6, over_kib
        assert over_kib < 256 or ended.returncode == 0, over_kib


#: Four contexts, each of which fits, and arrays until each rank has been refused one.
HEAPS = """
import drbench
from mpi4py import MPI
held, contexts = [], [drbench.init(MPI.COMM_WORLD, heap="8M") for _ in range(4)]
try:
    for number in range(60):
        held.append(contexts[number % 4].zeros((256, 512), "row", "float64"))
except drbench.errors.OutOfMemory as error:
    print(f"{str(error)[:17]} {len(held)}\\n", end="", flush=True)
"""


def test_heaps_of_several_contexts_end_in_one_line_where_memory_is_full(process, mpich, mpiexec):
    """Each was compared with what is free while the others had not used theirs: SIGBUS."""
    ended = within_shared(process, 32 << 10, f"{mpiexec} -n 2 {sys.executable} -c '{HEAPS}'")
    assert ended.returncode == 0, ended.stderr
    held = re.findall("/dev/shm is full: ([0-9]+)", ended.stdout)
    assert len(held) == 2 and all(8 <= int(each) < 48 for each in held)  # of half a MiB each


def within_shared(process, kib, command):
    """What a command ends with where /dev/shm has that size."""
    shared = "mount -t tmpfs -o size={}k tmpfs /dev/shm && exec "
    inside = ["unshare", "--mount", "sh", "-c"]
    if not shutil.which("unshare") or process(*inside, f"{shared.format(64)}true").returncode:
        pytest.skip("/dev/shm of another size cannot be made here (needs root and unshare)")
    return process(*inside, shared.format(kib) + command, timeout=60)
