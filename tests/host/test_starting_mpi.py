"""Settings of MPI before it starts."""

import os
from types import SimpleNamespace

import pytest

from drbench.host import topology

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


def test_mpi_starts_with_large_segments_for_tcp_and_all_threads(start_mpi):
    ((level, size),) = start_mpi()
    assert level == 3 and int(size.removesuffix("M")) << 20 > 64 << 10


def test_settings_of_the_user_for_tcp_stay(start_mpi):
    os.environ[SIZE] = "32K"
    assert start_mpi() == [(3, "32K")]


def test_an_mpi_that_runs_is_not_changed(start_mpi):
    assert start_mpi(runs=True) == [] and SIZE not in os.environ
