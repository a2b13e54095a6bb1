"""Time ranks that sleep, and a rank that shares its core with another process while it computes;
answer seconds and the share lost."""

import os
import subprocess
import sys
import time

from harness import answer, ranks

from drbench.measure.roof import timed


def compute() -> None:
    until = time.perf_counter() + 0.4
    while time.perf_counter() < until:
        pass


def main() -> None:
    with ranks() as comm:
        slept = timed(comm, lambda: time.sleep(0.2))
        other = None
        if comm.rank == 1:
            os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # inherited
            other = subprocess.Popen(
                [sys.executable, "-c", "print(flush=True)\nwhile True: pass"],
                stdout=subprocess.PIPE,
            )
            other.stdout.read(1)
        shared = timed(comm, compute)
        if other:
            other.kill()
            other.communicate()
        answer(comm, {"slept": slept, "shared": shared})


if __name__ == "__main__":
    main()
