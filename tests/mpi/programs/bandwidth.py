"""Bandwidth's verification of wrong transfers: answer the error of each way and type of transfer.

``right``: nothing is wrong. ``element``: one element received by the last rank, or by the first
if only that receives, is wrong. ``old``: the last repeat moves nothing.
"""

from unittest import mock

import numpy as np
from faults import few_transfers
from harness import answer, ranks

from drbench.errors import DrbenchError
from drbench.host.executor_base import ExecutorBase
from drbench.launch.cases.case import Case
from drbench.launch.ranks import bandwidth
from drbench.launch.ranks.transfers import PROGRAMS


def main() -> None:
    found: dict = {}
    few_transfers()
    run, rows_of = ExecutorBase.run, bandwidth.HostElements.rows_of
    for way in ("right", "element", "old"):
        found[way] = {}
        for name in PROGRAMS:
            hurt = False

            def arrived(tile, rows):
                values = np.array(rows_of(tile, rows))
                first = name == "reduce"
                if way == "element" and comm.rank == (0 if first else comm.size - 1):
                    values[-1, 0] += 1
                return values

            def run_or_not(frame):
                nonlocal hurt
                if way != "old" or not hurt:
                    run(frame)

            def verified(*words):
                return verify(*words)

            def filled(tile, fill, *place):
                nonlocal hurt
                hurt = fill.seed == 2  # values moved before are old from now on
                fill_into(tile, fill, *place)

            fill_into = lambda tile, fill, matrix, row0, col0=0: fill.into(tile, matrix, row0, col0)
            verify = bandwidth._verify
            with (
                mock.patch.object(bandwidth.HostElements, "rows_of", staticmethod(arrived)),
                mock.patch.object(ExecutorBase, "run", run_or_not),
                mock.patch("drbench.measure.roof.HostWork.fill", lambda self, *a: filled(*a)),
                ranks() as comm,
            ):
                try:
                    bandwidth.measure_here(Case(1, 1, 1, threads=1), [64], [name])
                except DrbenchError as error:
                    found[way][name] = type(error).__name__
    with ranks() as comm:
        answer(comm, found)


if __name__ == "__main__":
    main()
