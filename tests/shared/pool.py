"""Ranks that are started once and run many programs, one after the other: most of the time of a
small program under mpiexec is the start of its ranks."""

import json
import os
import select
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest
from starting import (
    MARK,
    Ended,
    abandoned,
    clean_environ,
    kill,
    left_behind,
    marked,
    more_time,
    shared_memory_names,
    wait_until_empty,
)

#: Seconds for other ranks to answer after a rank has failed.
_GRACE_S = 0.5


class Pool:
    """``size`` ranks under one mpiexec, asleep between two programs (``pool_ranks.py``).

    Only they use ``folder``. :meth:`run` is for programs that leave their process unchanged; a
    failing one ends the pool (``alive``). :meth:`close` ends them in order. ``mark``
    is in the environment of all of them.
    """

    def __init__(self, mpiexec: str, size: int, environ: dict, folder: Path):
        self.size, self._folder, self.mark, self._runs = size, folder, uuid.uuid4().hex, 0
        folder.mkdir()
        for name in ("answers", *(f"in-{rank}" for rank in range(size))):
            os.mkfifo(folder / name)
        # read and write, so that opening does not wait
        self._answers = os.open(folder / "answers", os.O_RDWR)
        self._orders = [os.open(folder / f"in-{rank}", os.O_RDWR) for rank in range(size)]
        program = Path(__file__).with_name("pool_ranks.py")
        command = [mpiexec, "-n", str(size), sys.executable, "-m", "mpi4py", program, folder]
        with open(folder / "out", "w") as out, open(folder / "err", "w") as err:
            self.process = subprocess.Popen(
                list(map(str, command)),
                env=clean_environ(**environ, **{MARK: self.mark}),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
            )
        self.alive, self._leaving = True, False

    def run(self, words, situation: str, timeout: float) -> Ended:
        """The result of a program, as of :func:`starting.run_process`."""
        before, start = shared_memory_names(), time.monotonic()
        self._runs += 1
        to = self._folder / str(self._runs)
        codes: dict[int, int] = {}
        try:
            self._order({"words": list(map(str, words)), "situation": situation, "to": str(to)})
            late = not self._heard(codes, timeout) and not self._heard(codes, more_time(timeout))
        except BaseException:  # pytest-timeout, Ctrl-C
            self.kill()
            raise
        failed = late or len(codes) < self.size or any(codes.values())
        if failed:
            self.kill()
        read = lambda name: "".join(
            path.read_text(errors="replace")
            for rank in range(self.size)
            if (path := Path(f"{to}-{rank}.{name}")).exists()
        )
        out, err = read("out"), read("err")
        if failed:
            err += (self._folder / "err").read_text(errors="replace")
        if late:
            pytest.fail(
                f"no end in {timeout} s; killed: {' '.join(map(str, words))}\n{out[-3000:]}\n"
                f"{err[-6000:]}",
                pytrace=False,
            )
        left = tuple(sorted(wait_until_empty(lambda: abandoned(before, self.mark), tries=20)))
        code = max(codes.values(), default=1) or int(failed)
        return Ended(code, out, err, time.monotonic() - start, left)

    def leave(self) -> None:
        """Send all ranks the order to end, once, without waiting."""
        if self.alive and not self._leaving:
            self._leaving = True
            self._order({})

    def close(self) -> Ended:
        """End all ranks, and return their result: UCX then prints leaks."""
        if not self.alive:
            return Ended(0, "null", "")
        before = shared_memory_names()
        self.leave()
        try:
            code = self.process.wait(30 + more_time(30))
        except subprocess.TimeoutExpired:
            code = -1
        alive = wait_until_empty(lambda: marked(self.mark), tries=10)
        self.kill()
        left = (*alive, *sorted(left_behind(before, self.mark)))
        out, err = ((self._folder / name).read_text() for name in ("out", "err"))
        return Ended(code, out or "null", err, left=left)

    def kill(self) -> None:
        """Kill its remaining processes."""
        if not self.alive:
            return
        self.alive = False
        kill(marked(self.mark))
        self.process.wait()
        for handle in (self._answers, *self._orders):
            os.close(handle)

    def _order(self, order: dict) -> None:
        for handle in self._orders:
            os.write(handle, f"{json.dumps(order)}\n".encode())

    def _heard(self, codes: dict[int, int], seconds: float) -> bool:
        """Wait until all ranks have answered, or one has failed, or all are gone."""
        end = time.monotonic() + seconds
        while len(codes) < self.size:
            failed = any(codes.values()) or self.process.poll() is not None
            if failed:
                end = min(end, time.monotonic() + _GRACE_S)
            pause = max(0.0, min(0.2, end - time.monotonic()))
            if select.select([self._answers], [], [], pause)[0]:
                for line in os.read(self._answers, 4096).decode().splitlines():
                    rank, code = map(int, line.split())
                    codes[rank] = code
            elif time.monotonic() >= end or self.process.poll() is not None:
                return failed or self.process.poll() is not None
        return True
