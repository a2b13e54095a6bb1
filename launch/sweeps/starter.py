"""One start of ranks: a launcher, its ranks, and what they say. Seen from outside; no MPI here."""

import json
import os
import re
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from launch.host.mpi import OURS
from launch.host.processes import Started
from launch.host.protocol import ANSWER, FAILED, parse

_TICK_S = 0.1
#: What is kept of standard error, in characters.
_TAIL = 6000
#: What Hydra says of every end alike.
_BANNER = re.compile(r"YOUR APPLICATION TERMINATED|This typically refers|Please see the FAQ")


@dataclass(eq=False)
class RanksEnded(Exception):
    """The ranks ended before they answered.

    Attributes
    ----------
    status, reason : str
        For the record.
    sure : bool
        Whether the case did it: a rank said so, or the kernel.
    crashed : bool
        Whether a rank broke down by itself (a segmentation fault), rather than being killed.
    code : int or None
        Of the launcher.
    """

    status: str
    reason: str
    code: int | None
    sure: bool = False
    crashed: bool = False


class RanksLate(Exception):
    """No answer in time; the ranks still run."""


class Ranks:
    """A launcher with ``count`` ranks that wait for cases.

    Parameters
    ----------
    launcher : list of str
        Its command, up to the program.
    count : int
    environ : mapping
        Of the ranks.
    log : binary file
        Gets everything the ranks say that is not for us.
    tick : callable
        Called about ten times a second while waiting.
    """

    def __init__(
        self,
        launcher: list[str],
        count: int,
        environ,
        log,
        tick: Callable[[], None],
    ):
        self.command = [*launcher, sys.executable, "-m", "drbench", "serve"]
        self.environ = environ
        self.ready: list[dict] | None = None
        self._slurm: dict = {}
        self._log, self._tick, self._failure, self._oom = log, tick, None, _kernel_kills()
        self._texts = {"out": b"", "err": b""}
        self._tail, self._inbox = "", []
        self._started = Started(
            self.command,
            {**self.environ, OURS: str(count), "TERM": "dumb"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.process = self._started.process
        self._selector = selectors.DefaultSelector()
        for name, pipe in (("out", self.process.stdout), ("err", self.process.stderr)):
            os.set_blocking(pipe.fileno(), False)
            self._selector.register(pipe, selectors.EVENT_READ, name)

    def wait_ready(self, seconds: float) -> list[dict]:
        """What each rank says of its environment, once all are up."""
        message = self._next("ready", seconds)
        self._slurm = message["slurm"]
        self.ready = message["ready"]
        return self.ready

    def run(
        self, index: int, case: dict, mem_limit: int | None, seconds: float | None
    ) -> list[str]:
        """Run one case; the cells of its record.

        Raises
        ------
        RanksEnded
            If the ranks went down.
        RanksLate
            If there is no answer within ``seconds``.
        """
        self._tail = ""
        self._send({"index": index, "case": case, "mem_limit": mem_limit})
        return self._next("done", seconds)["record"]

    def end(self) -> None:
        """Let the ranks end in good order, before :meth:`stop`."""
        with suppress(RanksEnded, OSError):  # they have ended already
            self._send({"end": True})
            self.process.stdin.close()
            deadline = time.monotonic() + 10
            while self.process.poll() is None and time.monotonic() < deadline:
                self._read(_TICK_S)

    def stop(self, grace_s: float) -> None:
        """End all that was started, and remove what it leaves. Asks the launcher first, then
        kills."""
        if (
            self.process.poll() is None
            and "step" in self._slurm
            and Path(self.command[0]).name == "srun"
        ):
            subprocess.run(
                ["scancel", "--signal=KILL", f"{self._slurm['job']}.{self._slurm['step']}"],
                stdin=subprocess.DEVNULL,
                timeout=30,
                check=False,
            )
        self._started.stop(grace_s, at_once=self._local())
        self._selector.close()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            with suppress(OSError):  # unsent words to a launcher that is gone
                pipe.close()

    def _local(self) -> bool:
        """Whether it is certain that all ranks are on this host."""
        return self.ready is not None and {facts["host"] for facts in self.ready} <= {
            socket.gethostname()
        }

    # -- what they say
    # ----------------------------------------------------------------------------------------

    def _send(self, order: dict) -> None:
        try:
            self.process.stdin.write(json.dumps(order).encode() + b"\n")
            self.process.stdin.flush()
        except OSError:
            self._gone()

    def _next(self, kind: str, seconds: float | None) -> dict:
        """The next message of a kind; others of the same case are news only."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while True:
            while self._inbox:
                message = self._inbox.pop(0)
                if kind in message:
                    return message
            left = _TICK_S if deadline is None else min(_TICK_S, deadline - time.monotonic())
            if left <= 0:
                raise RanksLate
            self._read(left)
            if not self._inbox and (self.process.poll() is not None or self._failure):
                self._gone()

    def _read(self, seconds: float) -> bool:
        """Take in what there is; False if that is nothing."""
        some = False
        for key, _ in self._selector.select(seconds):
            try:
                data = os.read(key.fd, 1 << 16)
            except BlockingIOError:
                continue
            if not data:
                self._selector.unregister(key.fileobj)
                continue
            some = True
            *lines, self._texts[key.data] = (self._texts[key.data] + data).split(b"\n")
            for line in lines:
                self._line(line.decode("utf-8", "replace"))
        self._tick()
        return some

    def _line(self, line: str) -> None:
        answer = parse(line, ANSWER)
        if answer is not None:
            self._inbox.append(answer)
            return
        self._failure = self._failure or parse(line, FAILED)
        self._tail = (self._tail + line + "\n")[-_TAIL:]
        self._log.write(line.encode() + b"\n")
        self._log.flush()

    def _gone(self) -> None:
        """The launcher has ended, or a rank said that it ends all: hear the rest, then say why."""
        deadline = time.monotonic() + (2 if self._failure else 0.5)
        while (
            self._selector.get_map()
            and time.monotonic() < deadline
            and (self._read(0.05) or self.process.poll() is None)
        ):
            pass
        code = self.process.poll()
        if self._failure:
            raise RanksEnded(self._failure["status"], self._failure["reason"], code, sure=True)
        how, crashed = _how(code, self._tail)
        if _kernel_kills() > self._oom:
            raise RanksEnded(
                "out_of_memory",
                f"the kernel killed a process for want of memory; {how}",
                code,
                sure=True,
            )
        raise RanksEnded("failed", f"{how}{_last_words(self._tail)}", code, crashed=crashed)


def _kernel_kills() -> int:
    """Processes that the kernel has killed for want of memory so far: of this control group, else
    of this machine."""
    for path in ("/sys/fs/cgroup/memory.events", "/proc/vmstat"):
        try:
            return int(re.search(r"^oom_kill (\d+)", Path(path).read_text(), re.MULTILINE)[1])
        except (OSError, TypeError):
            continue  # no such file, or no such line in it
    return 0


def _how(code: int | None, tail: str) -> tuple[str, bool]:
    """How the ranks ended, in words; and whether one of them broke down rather than being
    killed."""
    if code is not None and code < 0:
        return f"the launcher was killed by {_signal(-code)}", False
    named = re.search(r"\(signal (\d+)\)", tail)
    number = (
        signal.SIGSEGV
        if "Fatal Python error: Segmentation fault" in tail
        else int(named[1])
        if named
        else None
    )
    if number is not None:
        return f"a rank was killed by {_signal(number)}", number not in (
            signal.SIGKILL,
            signal.SIGTERM,
        )
    return (
        f"the ranks ended, their launcher with {code}"
        if code is not None
        else "the ranks stopped answering",
        code != signal.SIGKILL,
    )


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _last_words(tail: str) -> str:
    """The line of standard error that says most."""
    lines = [
        line.strip()
        for line in tail.splitlines()
        if line.strip() and not line.startswith(("=", "+", " ")) and not _BANNER.match(line)
    ]
    said = [
        line
        for line in lines
        if re.search(r"error|fatal|abort|killed|exception", line, re.IGNORECASE)
    ] or lines
    return f": {said[-1][:300]}" if said else ""
