"""One sweep a folder: a lock file that says who holds it.

The file is made under a name of its own and then linked to ``lock``: link(2) fails if the name
exists, on NFS too, where neither flock nor O_EXCL of old clients can be trusted. Its time stamp is
the holder's heartbeat.
"""

from __future__ import annotations

import json
import os
import socket
import time
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from drbench.errors import UsageError
from launch.host.processes import this_system

#: A holder on another host that has not stamped its lock for so long is dead.
STALE_S = 600.0
#: A living holder stamps it this often.
HEARTBEAT_S = 10.0
#: Someone who takes a stale lock away needs milliseconds.
_BREAKING_S = 30.0


@dataclass(frozen=True)
class Holder:
    """Who holds a lock. ``born`` is when its process started (s since the epoch), so that a reused
    pid is not taken for it; ``system`` is where ``pid`` means something."""

    host: str
    system: str
    pid: int
    born: float
    since: str
    token: str

    @classmethod
    def me(cls) -> Holder:
        return cls(
            socket.gethostname(),
            this_system(),
            os.getpid(),
            psutil.Process().create_time(),
            time.strftime("%Y-%m-%d %H:%M:%S"),
            uuid.uuid4().hex,
        )

    def alive(self) -> bool | None:
        """Whether the process lives; None if it is on another host, or in another container."""
        if (self.host, self.system) != (socket.gethostname(), this_system()):
            return None
        try:
            return abs(psutil.Process(self.pid).create_time() - self.born) < 2
        except psutil.NoSuchProcess:
            return False

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} since {self.since}"


class FolderLock:
    """Hold a folder against other sweeps (a context manager).

    Raises
    ------
    UsageError
        On entering, if a living sweep holds it, saying which; from :meth:`beat`, if someone has
        taken it away.
    """

    def __init__(self, folder: Path):
        self.folder, self.path = Path(folder), Path(folder) / "lock"
        self.mine = Holder.me()
        self._text = json.dumps(asdict(self.mine)) + "\n"
        self._beaten = 0.0

    def __enter__(self) -> FolderLock:
        for _ in range(3):  # whoever takes a stale lock away leaves a free one for a moment
            if self._link(self.path):
                return self
            holder, age_s = _read(self.path)
            if not _stale(holder, age_s):
                break
            self._break(holder)
        if holder is None:
            raise UsageError(
                f"{self.folder.name}: someone is just locking or unlocking it. Run the same "
                "command again."
            )
        heartbeat = "" if holder.alive() else f", last heard of {age_s:.0f} s ago"
        raise UsageError(
            f"{self.folder.name} is in use by {holder}{heartbeat}. Wait for it or use another "
            "--out; "
            "if it is dead: drbench unlock DIR."
        )

    def __exit__(self, *exc) -> None:
        if self._is_mine():
            self.path.unlink()

    def beat(self) -> None:
        """Stamp the lock, if it is time."""
        now = time.monotonic()
        if now - self._beaten < HEARTBEAT_S:
            return
        if not self._is_mine():
            raise UsageError(
                f"the lock of {self.folder.name} was taken away. Stopped, so that no two sweeps "
                "write there."
            )
        os.utime(self.path)
        self._beaten = now

    def _is_mine(self) -> bool:
        holder, _ = _read(self.path)
        return holder is not None and holder.token == self.mine.token

    def _link(self, path: Path) -> bool:
        """Make ``path`` unless it exists; True if it was made here."""
        own = self.folder / f".lock.{self.mine.token}"
        try:
            own.write_text(self._text)
        except OSError as error:
            raise UsageError(
                f"{self.folder}: {error.strerror}. Use a --out that can be written to."
            ) from None
        try:
            os.link(own, path)
            return True
        except FileExistsError:
            return os.stat(own).st_nlink == 2  # NFS may lose the answer to a link that was made
        except OSError:  # a file system without links
            return self._create(path)
        finally:
            own.unlink()

    def _create(self, path: Path) -> bool:
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        except FileExistsError:
            return False
        with open(handle, "w") as file:
            file.write(self._text)
        return True

    def _break(self, stale: Holder | None) -> None:
        """Take a stale lock away. Only one may at a time, and only the lock that was seen to be
        stale."""
        breaking = self.folder / "lock.breaking"
        if not self._link(breaking):
            holder, age_s = _read(breaking)
            if age_s > _BREAKING_S or (holder is not None and holder.alive() is False):
                breaking.unlink(missing_ok=True)  # its maker died within milliseconds
            time.sleep(0.05)
            return
        try:
            holder, age_s = _read(self.path)
            if holder == stale and _stale(holder, age_s):
                self.path.unlink(missing_ok=True)
        finally:
            breaking.unlink(missing_ok=True)


def unlock(folder: Path, force: bool = False) -> str:
    """Remove the lock of a sweep that is dead; one line on what was done.

    Raises
    ------
    UsageError
        If its holder lives, or may live, unless ``force``.
    """
    path = Path(folder) / "lock"
    if not path.exists():
        return f"{Path(folder).name} is not locked"
    holder, age_s = _read(path)
    if not force and holder is not None and not _stale(holder, age_s):
        known = (
            "is alive"
            if holder.alive()
            else f"was heard of {age_s:.0f} s ago, where it cannot be seen from here"
        )
        raise UsageError(
            f"{holder} {known}. End it first; if it is certain that it is dead: drbench unlock "
            "--force."
        )
    path.unlink(missing_ok=True)
    return (
        f"removed the lock of {holder}"
        if holder
        else "removed a lock that says nothing of its holder"
    )


def _read(path: Path) -> tuple[Holder | None, float]:
    """The holder (None if the file says nothing), and the seconds since its last heartbeat."""
    try:
        text, age_s = path.read_text(), time.time() - path.stat().st_mtime
    except OSError:
        return None, 0.0
    try:
        return Holder(**json.loads(text)), age_s
    except (ValueError, TypeError):
        return None, age_s


def _stale(holder: Holder | None, age_s: float) -> bool:
    if holder is None:
        return age_s > _BREAKING_S  # a file that is being written by a system without links
    alive = holder.alive()
    return age_s > STALE_S if alive is None else not alive
