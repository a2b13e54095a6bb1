"""Settings of MPI before it starts."""

import os
from types import SimpleNamespace

import pytest

from drbench.errors import MissingError, OutOfMemory
from drbench.host import launcher, topology

SIZE = "UCX_TCP_TX_SEG_SIZE"


@pytest.fixture
def start_mpi(monkeypatch):
    """Start an MPI that runs already or not; return its thread level and setting at the start."""
    found = []
    monkeypatch.setattr(os, "environ", os.environ.copy())
    os.environ.pop(SIZE, None)

    def start(runs=False):
        mpi = SimpleNamespace(
            COMM_SELF="one rank",
            COMM_WORLD=SimpleNamespace(size=1),
            Get_library_version=lambda: "MPICH Version: 5.0",
            THREAD_MULTIPLE=3,
            Is_initialized=lambda: runs,
            Init_thread=lambda level: found.append((level, os.environ.get(SIZE))),
        )
        monkeypatch.setattr(topology, "MPI", mpi)
        topology.start_mpi()
        return found

    return start


def test_ranks_of_torchrun_that_see_only_themselves_are_told_the_command(monkeypatch):
    monkeypatch.setattr("sys.argv", ["train.py", "--lr", "0.1"])
    for name, value in {"WORLD_SIZE": "2", "RANK": "1", "TORCHELASTIC_RUN_ID": "x"}.items():
        monkeypatch.setenv(name, value)
    end = r"torchrun starts no ranks of MPI. Use: mpiexec -n 2 python train.py --lr 0.1$"
    with pytest.raises(MissingError, match=end):
        launcher.refuse_strangers("MPICH 5", 1)


def test_mpi_starts_with_large_segments_for_tcp_and_all_threads(start_mpi):
    ((level, size),) = start_mpi()
    assert level == 3 and int(size.removesuffix("M")) << 20 > 64 << 10


def test_settings_of_the_user_for_tcp_stay(start_mpi):
    os.environ[SIZE] = "32K"
    assert start_mpi() == [(3, "32K")]


def test_an_mpi_that_runs_is_not_changed(start_mpi):
    assert start_mpi(runs=True) == [] and SIZE not in os.environ


@pytest.mark.parametrize(
    "reads, given, wanted", [(True, None, None), (False, None, "0"), (False, "1", "1")]
)
def test_mpich_reads_no_memory_of_other_ranks_where_that_is_refused(
    start_mpi, monkeypatch, reads, given, wanted
):
    monkeypatch.setattr(launcher, "_reads_ranks", lambda: reads)
    os.environ.pop("MPIR_CVAR_CH4_CMA_ENABLE", None)
    if given:
        os.environ["MPIR_CVAR_CH4_CMA_ENABLE"] = given
    start_mpi()
    assert os.environ.get("MPIR_CVAR_CH4_CMA_ENABLE") == wanted


@pytest.mark.parametrize(
    "ranks, whole_kib, free_kib, starts",
    [
        *((1, 1024, 1024, False), (2, 2064, 2064, False), (2, 4096, 4096, True)),
        (2, 65536, 1024, False),  # full
        (2, 4096, 2000, True),  # the other rank has its part
    ],
)
def test_mpi_that_would_crash_for_lack_of_shared_memory_is_not_started(
    start_mpi, monkeypatch, ranks, whole_kib, free_kib, starts
):
    space = SimpleNamespace(f_frsize=1024, f_blocks=whole_kib, f_bavail=free_kib)
    monkeypatch.setattr(os, "statvfs", lambda folder: space)
    os.environ["MPI_LOCALNRANKS"] = str(ranks)
    if starts:
        assert start_mpi()
    else:
        with pytest.raises(OutOfMemory, match="/dev/shm has [0-9]+ KiB free. Enlarge it"):
            start_mpi()
