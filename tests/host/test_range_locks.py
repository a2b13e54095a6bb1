"""Locks on ranges of storage: a rank waits for the holder of a lock; other errors are reported."""

import errno
import fcntl

import numpy as np
import pytest
from mpi4py import MPI

from drbench.host.matrix import DistributedMatrix
from drbench.host.topology import RangeLocks, Topology
from drbench.partitions import partition
from drbench.program.problem import Operand


@pytest.fixture
def locks():
    made = RangeLocks(MPI.COMM_SELF)
    yield made
    made.close()


def failing(number):
    def lockf(*args):
        raise OSError(number, "why")

    return lockf


@pytest.mark.parametrize("number", [errno.EAGAIN, errno.EACCES])
def test_a_range_that_another_rank_locks_is_not_available(monkeypatch, locks, number):
    monkeypatch.setattr(fcntl, "lockf", failing(number))
    assert not locks.try_acquire(0, 0, 8)


def test_a_kernel_without_locks_left_is_an_error_and_no_endless_wait(monkeypatch, locks):
    for call in (locks.try_acquire, locks.acquire):
        with monkeypatch.context() as patch:
            patch.setattr(fcntl, "lockf", failing(errno.ENOLCK))
            with pytest.raises(RuntimeError, match="cannot be locked: why. Use --transport rma"):
                call(0, 0, 8)
        assert locks.try_acquire(0, 0, 8)  # the thread's lock was released
        locks.release(0, 0, 8)


def test_a_lock_is_released_when_adding_fails():
    with Topology(MPI.COMM_SELF) as topology:
        operand = Operand("C", partition("block", (4, 4), 1))
        matrix = DistributedMatrix.open(operand, topology, "f4")
        (block,) = operand.own_tiles(0)
        with pytest.raises(ValueError):
            matrix.add(np.zeros((3, 3), "f4"), block)
        assert matrix.add(np.ones((4, 4), "f4"), block)
        matrix.close()
