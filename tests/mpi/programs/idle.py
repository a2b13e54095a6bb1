"""Repeats that compute nothing, or not all, after a correct warm-up; answer the status of each
layout for each way.

``idle.py BACKEND WAY...``; ways: ``nobody`` is idle, ``one`` rank multiplies nothing, ``all`` ranks
compute nothing, ``late``: gets of MPI end before their bytes have come, and flags are written
before the values that are pushed.
"""

import sys
from contextlib import ExitStack
from unittest import mock

from harness import TRANSPORT, answer, ranks
from host_device import HostDevice, emulated_gpus
from mpi4py import MPI

import drbench.host.executor
from drbench.device.signals import DeviceSignals
from drbench.host.blas import Blas
from drbench.host.executor_base import ExecutorBase
from drbench.host.matrix import Window
from drbench.launch.ranks.run_case import Case, run_case

LAYOUTS = [
    {"a": "column", "b": "block", "c": "row", "options": {"stationary": "C"}},
    {"a": "column", "b": "block", "c": "row", "options": {"stationary": "B"}},
    {"algorithm": "summa", "options": {"mesh": "2x2"}},
    {"algorithm": "ag_gemm", "options": {"variant": "push"}},
]
RIGHT_RUNS = 1


def main() -> None:
    backend, ways = sys.argv[1], sys.argv[2:]
    on_device = backend == "cupy"
    multiplier, name = (HostDevice, "gemm") if on_device else (Blas, "prepare_gemm")
    real_run, real = ExecutorBase.run, getattr(multiplier, name)
    real_get, shaped = Window.rget, drbench.host.executor.shaped
    copy_to_slot = DeviceSignals._copy_to_slot

    def statuses(comm, way):
        for layout in LAYOUTS:
            runs = 0

            def run(frame):
                nonlocal runs
                runs += 1
                if way != "all" or runs <= RIGHT_RUNS:
                    real_run(frame)

            def multiply(self, *operands, **named):
                works = lambda: way != "one" or comm.rank != 1 or runs <= RIGHT_RUNS
                if on_device:
                    return real(self, *operands, **named) if works() else None
                gemm = real(self, *operands, **named)
                return lambda *scalars: gemm(*scalars) if works() else None

            on_time = lambda: way != "late" or runs <= RIGHT_RUNS

            def get(self, out, owner, place):
                if on_time():
                    return real_get(self, out, owner, place)
                return self.win.Rget([out, 0, MPI.BYTE], owner, (0, 0, MPI.BYTE))

            case = Case(
                48,
                64,
                96,
                backend=backend,
                transport=TRANSPORT.kind,
                iters=2,
                budget=0,
                warmup=RIGHT_RUNS,
                threads=None if on_device else 1,
                **layout,
            )
            patches = [
                mock.patch.object(ExecutorBase, "run", run),
                mock.patch.object(multiplier, name, multiply),
                mock.patch.object(Window, "rget", get),
                mock.patch.object(
                    drbench.host.executor,
                    "shaped",
                    lambda slot, *how: shaped(slot if on_time() else slot.copy(), *how),
                ),
                mock.patch.object(
                    DeviceSignals,
                    "_copy_to_slot",
                    lambda *what: copy_to_slot(*what) if on_time() else None,
                ),
            ]
            with ExitStack() as stack:
                for patch in patches:
                    stack.enter_context(patch)
                yield run_case(case, comm).status

    with ranks() as comm, emulated_gpus():
        answer(comm, {way: list(statuses(comm, way)) for way in ways})


if __name__ == "__main__":
    main()
