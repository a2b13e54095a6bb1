"""Corrupt a tile of C's second replica before the result is verified; answer every rank's record of
each case.

``other_replica.py FILE``: a list of cases, each whether the result is to be on all replicas, its
partition and the fill.
"""

import json
import sys
from unittest import mock

from harness import answer, ranks

import drbench.launch.ranks.run_case
from drbench.launch.ranks.run_case import Case, run_case

verify = drbench.launch.ranks.run_case.verify


def poison_and_verify(matrix, *others):
    """The last element of each tile is off by one on replica 1."""
    if matrix.replica == 1:
        for _, tile in matrix.own_blocks():
            tile[-1, -1] += 1
    matrix.topology.comm.Barrier()
    return verify(matrix, *others)


def run(comm, replicate: bool, c: str, fill: str):
    options = {"stationary": "C", "replicate_result": replicate}
    layout = {"a": "row/c2", "b": "row/c2", "c": c, "fill": fill, "options": options}
    case = Case(32, 24, 40, **layout, iters=1, budget=0, warmup=0, threads=1)
    record = run_case(case, comm)
    return comm.gather({"status": record.status, "reason": record.reason})


def main() -> None:
    with open(sys.argv[1]) as file:
        cases = json.load(file)
    with (
        ranks() as comm,
        mock.patch.object(drbench.launch.ranks.run_case, "verify", poison_and_verify),
    ):
        answer(comm, [run(comm, *case) for case in cases])


if __name__ == "__main__":
    main()
