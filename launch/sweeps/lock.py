"""One sweep a folder: a lock file that says who holds it.

The file is made under a name of its own and then linked to ``lock``: link(2) fails if the name
exists, on NFS too, where neither flock nor O_EXCL of old clients can be trusted.

Whether a holder lives is asked of the kernel where its process can be seen, by its number and the
clock ticks at which it was started; no clock that someone can set has a say. Elsewhere (another
host, another container) the time stamp of the file is its heartbeat: an old one is watched before
it is taken for a dead one's, since clocks differ, and are set.
"""

from __future__ import annotations

import json
import os
import socket
import time
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path

from drbench.errors import UsageError
from launch.host.leftovers import this_system, ticks_of

#: A holder that cannot be seen from here, and has not stamped its lock for so long, is dead ...
STALE_S = 600.0
#: ... unless it does so while it is watched for so long.
WATCH_S = 25.0
#: A living holder stamps it this often.
HEARTBEAT_S = 10.0
#: Someone who takes a stale lock away needs milliseconds, and so does who writes one.
_BREAKING_S = 30.0
_WRITING_S = 1.0


@dataclass(frozen=True)
class Holder:
    """Who holds a lock: process ``pid`` of ``system`` (see :func:`this_system`), started so many
    clock ``ticks`` after its boot, so that a number that was given anew is not taken for it."""

    host: str
    system: str
    pid: int
    ticks: int
    since: str
    token: str

    @classmethod
    def me(cls) -> Holder:
        return cls(
            socket.gethostname(),
            this_system(),
            os.getpid(),
            ticks_of() or 0,
            time.strftime("%Y-%m-%d %H:%M:%S"),
            uuid.uuid4().hex,
        )

    def alive(self) -> bool | None:
        """Whether the process lives; None if it cannot be seen from here."""
        return ticks_of(self.pid) == self.ticks if self.system == this_system() else None

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
            seen = holder, stamp_s = _read(self.path)
            if not _stale(self.path):
                break
            self._break(seen)
        if holder is None:
            raise UsageError(
                f"{self.folder.name}: someone is just locking or unlocking it. Run the same "
                "command again."
            )
        heartbeat = "" if holder.alive() else f", last heard of {_age(stamp_s):.0f} s ago"
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
            own.unlink(missing_ok=True)  # on a full disk it was made, and is empty
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

    def _break(self, stale: tuple[Holder | None, float]) -> None:
        """Take a stale lock away. Only one may at a time, and only the lock that was seen to be
        stale: someone else may have taken it away and made a new one meanwhile."""
        breaking = self.folder / "lock.breaking"
        if not self._link(breaking):
            holder, stamp_s = _read(breaking)
            dead = holder is not None and holder.alive() is False
            if dead or _age(stamp_s) > _BREAKING_S and _unchanged(breaking, _WRITING_S):
                breaking.unlink(missing_ok=True)  # its maker died within milliseconds
            time.sleep(0.05)
            return
        try:
            if _read(self.path) == stale:
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
    holder, stamp_s = _read(path)
    if not force and holder is not None and not _stale(path):
        known = (
            "is alive"
            if holder.alive()
            else f"was heard of {_age(stamp_s):.0f} s ago, where it cannot be seen from here"
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
    """The holder (None if the file says nothing), and its last heartbeat (s since the epoch)."""
    try:
        text, stamp_s = path.read_text(), path.stat().st_mtime
    except OSError:
        return None, time.time()
    try:
        return Holder(**json.loads(text)), stamp_s
    except (ValueError, TypeError):
        return None, stamp_s


def _age(stamp_s: float) -> float:
    """Seconds since then by our clock, which may not be the one that stamped it."""
    return time.time() - stamp_s


def _stale(path: Path) -> bool:
    """Whether whoever made this lock is dead."""
    holder, stamp_s = _read(path)
    if holder is None:  # a file that is being written by a system without links
        return _age(stamp_s) > _BREAKING_S and _unchanged(path, _WRITING_S)
    alive = holder.alive()
    return _age(stamp_s) > STALE_S and _unchanged(path, WATCH_S) if alive is None else not alive


def _unchanged(path: Path, seconds: float) -> bool:
    """Whether nobody stamps or writes a file while it is watched for so long, by the clock that is
    never set."""
    state = lambda: (found := os.stat(path)) and (found.st_mtime_ns, found.st_ino, found.st_size)
    until = time.monotonic() + seconds
    try:
        before = state()
        while time.monotonic() < until:
            time.sleep(min(0.2, seconds))
            path.read_bytes()  # NFS looks at the server only when a file is opened
            if state() != before:
                return False
    except OSError:  # it is gone
        return False
    return True
