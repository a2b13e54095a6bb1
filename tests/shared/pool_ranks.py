"""The ranks of a pool: run one program after the other, each as if it had just been started.

``pool_ranks.py FOLDER``. A rank sleeps at its pipe ``FOLDER/in-RANK`` until an order arrives, a
line of JSON with the program's ``words``, the ``situation`` and ``to``: its output is written to
``to-RANK.out`` and ``to-RANK.err``. It answers its number and the exit code at ``FOLDER/answers``.
An empty order, or the end of the sender, ends it."""

import json
import os
import runpy
import sys
import threading
import time
import traceback
from pathlib import Path

from mpi4py import MPI

PROGRAMS = Path(__file__).parents[1] / "mpi" / "programs"


def run(words: list[str]) -> int:
    """Run a program here and return its exit code. Its own modules are imported anew each time."""
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(str(PROGRAMS)):
            del sys.modules[name]
    sys.argv[:] = words
    try:
        runpy.run_path(words[0], run_name="__main__")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def held() -> set[str]:
    """Files in /dev/shm that this process has mapped, but for MPI's own, and its threads."""
    with open("/proc/self/maps") as file:
        paths = {line.split(None, 5)[-1].strip() for line in file if "/dev/shm/" in line}
    ours = {path for path in paths if "/mpich_shm_" not in path and "/sm_segment." not in path}
    return ours | {thread.name for thread in threading.enumerate()}


def all_here(comm) -> None:
    """Wait for the other ranks: MPI makes no progress for them once this rank sleeps."""
    arrived = comm.Ibarrier()
    while not arrived.Test():
        time.sleep(1e-4)


def to_files(beginning: str) -> None:
    """Write standard output and error, those of libraries too, to files."""
    sys.stdout.flush()
    sys.stderr.flush()
    for number, name in ((1, "out"), (2, "err")):
        handle = os.open(f"{beginning}.{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(handle, number)
        os.close(handle)


def main(folder: str) -> None:
    comm = MPI.COMM_WORLD
    at_first = os.dup(1), os.dup(2)
    sys.path.insert(0, str(PROGRAMS))
    answers = os.open(f"{folder}/answers", os.O_WRONLY)
    with open(f"{folder}/in-{comm.rank}") as orders:
        for line in orders:
            order = json.loads(line)
            if not order:
                break
            to_files(f"{order['to']}-{comm.rank}")
            os.environ["DRBENCH_TEST_SITUATION"] = order["situation"]
            before = held()
            code = run(order["words"])
            if code == 0:
                all_here(comm)
                left, late = held() - before, time.monotonic() + 2
                while left and time.monotonic() < late:  # a thread that ends, on a busy machine
                    time.sleep(0.01)
                    left = held() - before
                if left:
                    sys.stderr.write(f"still held after the program: {sorted(left)}\n")
            sys.stdout.flush()
            sys.stderr.flush()
            os.write(answers, f"{comm.rank} {code}\n".encode())
    for number, handle in zip((1, 2), at_first):
        os.dup2(handle, number)  # for the output of MPI at its end


if __name__ == "__main__":
    main(sys.argv[1])
