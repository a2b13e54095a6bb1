"""Other work on the machine: processes that compute and never wait, next to a test."""

import os
import subprocess
import sys
from contextlib import contextmanager

#: Processes for each core: a process next to them has half of a core at most.
_EACH = 1


@contextmanager
def busy_cores():
    """Keep every core busy while this is open."""
    command = [sys.executable, "-c", "print(flush=True)\nwhile True: pass"]
    others = [
        subprocess.Popen(command, stdout=subprocess.PIPE)
        for _ in range(_EACH * len(os.sched_getaffinity(0)))
    ]
    try:
        for other in others:
            other.stdout.read(1)
        yield
    finally:
        for other in others:
            other.kill()
            other.communicate()
