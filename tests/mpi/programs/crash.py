"""A fault on rank 1 alone in the middle of a case. ``crash.py WHERE``: see :data:`PLACES`
and :data:`STEPS`."""

import os
import signal
import sys

from harness import TRANSPORT, ranks, wrap_starters

import drbench.host.matrix
import drbench.launch.ranks.group_memory
import drbench.launch.ranks.run_case
from drbench.host.blas import Blas
from drbench.host.fill import Fill
from drbench.host.launcher import until_heard
from drbench.host.topology import RangeLocks
from drbench.launch.ranks.run_case import Case, run_case
from drbench.program.steps import Accumulate, Fence, Get


def strike():
    raise RuntimeError("struck by the test")


def kill():
    os.kill(os.getpid(), signal.SIGKILL)


def holding_a_lock(function):
    """Take the lock, then die with it."""

    def wrapped(*args):
        function(*args)
        kill()

    return wrapped


def before(happens):
    def around(function):
        def wrapped(*args, **kwargs):
            happens()
            return function(*args, **kwargs)

        return wrapped

    return around


def before_gemms(happens):
    """Wrap the function that prepares a GEMM: call ``happens`` before each time the GEMM runs."""

    def around(function):
        return lambda *operands, **named: before(happens)(function(*operands, **named))

    return around


#: Steps that fail when they start.
STEPS = {"get": Get, "accumulate": Accumulate, "fence": Fence}
#: Other functions that are replaced on rank 1, and their wrappers.
PLACES = {
    "fill": (Fill, "into", before(strike)),
    "window": (drbench.host.matrix.Window, "__init__", before(strike)),
    "gemm": (Blas, "prepare_gemm", before_gemms(strike)),
    "verify": (drbench.launch.ranks.run_case, "verify", before(strike)),
    "memory": (drbench.launch.ranks.group_memory, "check_memory", before(lambda: [0] * (1 << 60))),
    "killed": (Blas, "prepare_gemm", before_gemms(kill)),
    "killed with a lock": (RangeLocks, "try_acquire", holding_a_lock),
}


def run_cli(*error) -> None:
    """Fail before mpi4py ends all ranks, which loses all that mpiexec has not read."""
    sys.__excepthook__(*error)
    until_heard()


def main() -> None:
    sys.excepthook = run_cli
    where = sys.argv[1]
    case = Case(
        96,
        96,
        3000,
        a="row",
        b="row",
        c="block",
        transport=TRANSPORT.kind,
        options={"stationary": "B", "chunk": 8, "sums": "accumulate"},
        prefetch=2,
        budget=0,
        threads=1,
    )
    with ranks() as comm:
        if comm.rank == 1:
            if where in STEPS:
                wrap_starters(STEPS[where], before(strike))
            else:
                place, name, around = PLACES[where]
                setattr(place, name, around(getattr(place, name)))
        run_case(case, comm)
    print("nothing happened", file=sys.stderr)


if __name__ == "__main__":
    main()
