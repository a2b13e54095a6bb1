"""Tests of one rank: MPI runs in this process."""

import pytest
from mpi4py import MPI

from drbench.host.topology import start_mpi


@pytest.fixture(scope="session", autouse=True)
def started():
    """Modules of ranks, which other tests import, leave MPI to be started."""
    start_mpi(MPI.COMM_SELF)
