"""Other work on the machine: processes that compute and never wait, next to what is tested."""

import os
import subprocess
import sys
from contextlib import contextmanager

#: Processes for each core: who computes next to them has a half of one at most.
_EACH = 1


@contextmanager
def busy_cores():
    """Every core has other work while this is open."""
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
