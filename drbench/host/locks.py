"""Locks on ranges of a rank's storage, shared by the ranks of one node.

fcntl byte-range locks on one unlinked file under /dev/shm: taking one needs no help from the rank
that owns the memory, costs about two microseconds, and the kernel releases it if its holder dies.
(``MPI.Win.Lock`` would wait for the target to enter MPI, which a computing rank does not.)
"""

from __future__ import annotations

import fcntl
import os
import tempfile
import threading

from mpi4py import MPI

__all__ = ["RangeLocks"]

#: One owner's storage spans at most this many elements in the lock file's address space.
_OWNER_SPAN = 1 << 42


class RangeLocks:
    """Exclusive locks on element ranges of the storage of any rank of this node.

    Parameters
    ----------
    node : MPI.Comm
        Ranks that share the node; collective.
    """

    def __init__(self, node: MPI.Comm):
        path = None
        if node.rank == 0:
            folder = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
            handle, path = tempfile.mkstemp(prefix="drbench-locks-", dir=folder)
            os.close(handle)
        path = node.bcast(path)
        self._file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        node.Barrier()
        if node.rank == 0:  # every rank has it open: nothing is left behind whatever happens
            os.unlink(path)
        self._thread = threading.Lock()  # fcntl locks belong to the process, not to the thread

    def try_acquire(self, owner: int, start: int, length: int) -> bool:
        """Lock elements [start, start + length) of ``owner``'s storage unless someone holds part of
        them."""
        if not self._thread.acquire(blocking=False):
            return False
        try:
            fcntl.lockf(
                self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, length, owner * _OWNER_SPAN + start
            )
            return True
        except OSError:  # EAGAIN or EACCES: another rank holds part of the range
            self._thread.release()
            return False

    def acquire(self, owner: int, start: int, length: int) -> None:
        """Lock the range, sleeping in the kernel until it is free."""
        self._thread.acquire()
        fcntl.lockf(self._file, fcntl.LOCK_EX, length, owner * _OWNER_SPAN + start)

    def release(self, owner: int, start: int, length: int) -> None:
        """Give the range back."""
        fcntl.lockf(self._file, fcntl.LOCK_UN, length, owner * _OWNER_SPAN + start)
        self._thread.release()

    def close(self) -> None:
        """Close the file; any lock still held is released by the kernel."""
        os.close(self._file)
