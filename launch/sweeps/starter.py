"""One start of ranks: a launcher, its ranks, and their output. This process does not use MPI."""

import json
import math
import re
import signal
import socket
import subprocess
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread

from drbench.host.launcher import OURS
from drbench.launch.host.processes import Started
from drbench.launch.host.protocol import ANSWER, FAILED, parse
from drbench.launch.host.python import PYTHON

_TICK_S = 0.1
#: Lines of the ranks' output that are kept.
_TAIL = 100
#: Lines that report an error, except those that Hydra prints at every end.
_TELLING = re.compile(
    r"^drbench: |^(?!=|YOUR APPLICATION).*(error|fatal|abort|killed|exception)", re.IGNORECASE
)


@dataclass(eq=False)
class RanksEnded(Exception):
    """The ranks ended before they answered, or have not answered in time and still run.

    Attributes
    ----------
    status, reason : str
        For the record.
    sure : bool
        Whether the case is the cause, by a rank's report, the kernel or the time limit.
    crashed : bool
        Whether a rank crashed (a segmentation fault), rather than being killed.
    code : int or None
        Exit code of the launcher.
    """

    status: str
    reason: str
    code: int | None = None
    sure: bool = False
    crashed: bool = False


class Ranks:
    """A launcher with ``count`` ranks that wait for cases.

    Parameters
    ----------
    launcher : list of str
        Its command, without the program.
    count : int
    environ : mapping
        Environment of the ranks.
    log : binary file
        Gets all output of the ranks other than answers.
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
        self.command = [*launcher, *PYTHON, "-m", "drbench", "serve"]
        self.environ = environ
        self._here, self._step = False, ""
        self._log, self._tick, self._failure, self._oom = log, tick, None, _kernel_kills()
        self._answers, self._tail = SimpleQueue(), deque(maxlen=_TAIL)
        self._started = Started(
            self.command,
            {**self.environ, OURS: str(count)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.process = self._started.process
        pipes = (self.process.stdout, self.process.stderr)
        self._readers = [Thread(target=self._read, args=(pipe,), daemon=True) for pipe in pipes]
        for reader in self._readers:
            reader.start()

    def wait_ready(self, seconds: float) -> list[dict]:
        """Wait until all ranks are up, and return the environment that each reports."""
        message = self._next(seconds)
        self._step, facts = message["slurm"], message["ready"]
        # whether all ranks are known to be on this host
        self._here = {rank["host"] for rank in facts} <= {socket.gethostname()}
        return facts

    def run(self, order: dict, seconds: float | None) -> list[str]:
        """Send one order to run a case, and return the cells of its record.

        Raises
        ------
        RanksEnded
            If the ranks ended, or there is no answer within ``seconds``.
        """
        self._tail.clear()
        with suppress(OSError):  # they have ended: read their last output
            self._send(order)
        return self._next(seconds)["record"]

    def end(self) -> None:
        """Tell the ranks to end normally, before :meth:`stop`."""
        with suppress(OSError, subprocess.TimeoutExpired):  # OSError: they have ended already
            self._send({"end": True})
            self.process.stdin.close()
            self.process.wait(10)

    def stop(self, grace_s: float) -> None:
        """End all started processes, and remove their leftovers. Asks the launcher first, then
        kills."""
        by_srun = self._step and Path(self.command[0]).name == "srun"
        if by_srun and self.process.poll() is None:
            cancel = ["scancel", "--signal=KILL", self._step]  # it complains if the step has ended
            with suppress(OSError, subprocess.TimeoutExpired):
                subprocess.run(cancel, stdin=subprocess.DEVNULL, capture_output=True, timeout=30)
        self._started.stop(grace_s, at_once=self._here)
        with suppress(OSError):  # unsent data to a launcher that has ended
            self.process.stdin.close()
        self._join_readers(1.0)

    # -- output
    # ----------------------------------------------------------------------------------------

    def _send(self, order: dict) -> None:
        self.process.stdin.write(json.dumps(order).encode() + b"\n")
        self.process.stdin.flush()

    def _read(self, pipe) -> None:
        """Read the output of the ranks until they end."""
        with pipe:
            for line in pipe:
                text = line.decode("utf-8", "replace")
                answer = parse(text, ANSWER)
                if answer is not None:
                    self._answers.put(answer)
                    continue
                self._failure = self._failure or parse(text, FAILED)
                self._tail.append(text.rstrip("\n"))
                with suppress(ValueError):  # nothing waits for it any more
                    self._log.write(line.rstrip(b"\n") + b"\n")
                    self._log.flush()

    def _join_readers(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        for reader in self._readers:
            reader.join(max(0.0, deadline - time.monotonic()))

    def _next(self, seconds: float | None) -> dict:
        """The next answer."""
        deadline = math.inf if seconds is None else time.monotonic() + seconds
        while True:
            ended = self._failure or self.process.poll() is not None
            if ended:
                self._join_readers(2.0 if self._failure else 0.5)
            left = 0.0 if ended else min(_TICK_S, deadline - time.monotonic())
            with suppress(Empty):
                return self._answers.get(timeout=max(0.0, left))
            self._tick()
            if ended:
                raise self._end()
            if time.monotonic() > deadline:
                reason = f"no result after {seconds:g} s; its ranks were killed"
                raise RanksEnded("timeout", reason, sure=True)

    def _end(self) -> RanksEnded:
        """The exception for a launcher that has ended, or a rank that reported that it ends all."""
        code, tail = self.process.poll(), "\n".join(self._tail)
        if self._failure:
            return RanksEnded(self._failure["status"], self._failure["reason"], code, sure=True)
        how, crashed = _how(code, tail)
        if _kernel_kills() > self._oom:
            reason = f"the kernel killed a process for lack of memory; {how}"
            return RanksEnded("out_of_memory", reason, code, sure=True)
        return RanksEnded("failed", f"{how}{_last_words(tail)}", code, crashed=crashed)


def _kernel_kills() -> int:
    """Number of processes that the kernel has killed for lack of memory so far: in this control
    group, else on this machine."""
    for path in ("/sys/fs/cgroup/memory.events", "/proc/vmstat"):
        try:
            return int(re.search(r"^oom_kill (\d+)", Path(path).read_text(), re.MULTILINE)[1])
        except (OSError, TypeError):
            continue  # no such file, or no such line in it
    return 0


def _how(code: int, tail: str) -> tuple[str, bool]:
    """How the ranks ended, in words, and whether one of them crashed rather than being killed."""
    if code < 0:
        return f"the launcher was killed by {_signal(-code)}", False
    named = re.search(r"\(signal (\d+)\)", tail)
    number = int(named[1]) if named else None
    if "Fatal Python error: Segmentation fault" in tail:
        number = signal.SIGSEGV
    if number is not None:
        killed = number in (signal.SIGKILL, signal.SIGTERM)
        return f"a rank was killed by {_signal(number)}", not killed
    return f"the ranks ended, their launcher with {code}", code != signal.SIGKILL


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _last_words(tail: str) -> str:
    """The last line that reports an error."""
    described = [line.strip() for line in tail.splitlines() if _TELLING.search(line)]
    return f": {described[-1][:300]}" if described else ""
