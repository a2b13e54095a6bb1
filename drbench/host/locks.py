"""Locks on ranges of a rank's storage, shared by the ranks of one node.

fcntl byte-range locks on one unlinked file under /dev/shm: taking one needs no help from the rank
that owns the memory, costs about two microseconds, and the kernel releases it if its holder dies.
(``MPI.Win.Lock`` would wait for the target to enter MPI, which a computing rank does not.)
"""

from __future__ import annotations

import errno
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

    Both ways to lock raise RuntimeError where the kernel cannot: this rank is alone with that, and
    has to end all.

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
        return self._thread.acquire(blocking=False) and self._lock(
            fcntl.LOCK_EX | fcntl.LOCK_NB, owner, start, length
        )

    def acquire(self, owner: int, start: int, length: int) -> None:
        """Lock the range, sleeping in the kernel until it is free."""
        self._thread.acquire()
        self._lock(fcntl.LOCK_EX, owner, start, length)

    def _lock(self, how: int, owner: int, start: int, length: int) -> bool:
        """Whether the range is locked; if not, the thread's lock is given back."""
        try:
            fcntl.lockf(self._file, how, length, owner * _OWNER_SPAN + start)
            return True
        except OSError as error:
            self._thread.release()
            if error.errno in (errno.EAGAIN, errno.EACCES):  # another rank holds part of it
                return False
            raise RuntimeError(
                f"tiles cannot be locked: {error.strerror}. Use --transport rma, or let TMPDIR be "
                "on a file system that has locks left."
            ) from error

    def release(self, owner: int, start: int, length: int) -> None:
        """Give the range back."""
        fcntl.lockf(self._file, fcntl.LOCK_UN, length, owner * _OWNER_SPAN + start)
        self._thread.release()

    def close(self) -> None:
        """Close the file; any lock still held is released by the kernel."""
        os.close(self._file)
