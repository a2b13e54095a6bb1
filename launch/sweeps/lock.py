"""One sweep per folder: ``flock`` on its file ``lock``, which contains the holder. The kernel
unlocks it whenever the holder ends."""

import errno
import fcntl
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from drbench.errors import UsageError


@contextmanager
def hold_folder(folder: Path, warn: Callable[[str], None]) -> Iterator[None]:
    """Lock a folder against other sweeps.

    Parameters
    ----------
    warn : callable
        Gets one line if the file system has no locks; the sweep runs without one.

    Raises
    ------
    UsageError
        If another sweep, which is named, holds the lock, or if the folder is not writable.
    """
    path = folder / "lock"
    try:
        file = open(path, "a+", encoding="utf-8")
    except OSError as error:
        if error.errno == errno.ENOSPC:  # that is no wrong --out
            raise
        reason = f"{folder}: {error.strerror}. Use a --out that can be written to."
        raise UsageError(reason) from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "a sweep that has just begun"
            reason = f"{folder} is in use by {holder}. Wait for it, or use another --out."
            raise UsageError(reason) from None
        except OSError as error:
            warn(f"{folder} cannot be locked ({error.strerror}): start no other sweep there")
        if os.fstat(file.fileno()).st_nlink == 0:  # the holder removed it after it was opened
            with hold_folder(folder, warn):
                yield
            return
        since = time.strftime("%Y-%m-%d %H:%M:%S")
        try:
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()} since {since}\n")
            file.flush()
            os.fsync(file.fileno())  # finds a full disk before any work
            yield
        finally:
            path.unlink(missing_ok=True)
