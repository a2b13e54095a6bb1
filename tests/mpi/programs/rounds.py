"""Run cases in turns that keep what they need, and once each; answer the records of both, and how
many windows were open.

``rounds.py FILE``: {"cases": fields of each, "rounds": N, "limits": each bytes of a node or null,
"corrupt": [case, round] or null}. After that turn an element of C is off by one. The turns are run
with each limit.
"""

import json
import sys
from unittest import mock

from harness import answer, ranks

import drbench.launch.ranks.run_case
from drbench.host.matrix import Window
from drbench.host.topology import Topology
from drbench.launch.ranks.group_memory import GroupMemory
from drbench.launch.ranks.run_case import Case, run_case

verify, make, free = drbench.launch.ranks.run_case.verify, Window.__init__, Window.close


def main() -> None:
    with open(sys.argv[1]) as file:
        asked = json.load(file)
    now, opened = [0], [0, 0, 0]  # at the moment, at most, in all

    def count(window, *args, **keywords):
        make(window, *args, **keywords)
        opened[0] += 1
        opened[1:] = max(opened[1], opened[0]), opened[2] + 1

    def uncount(window):
        free(window)
        opened[0] -= 1

    def corrupt_and_verify(matrix, *others):
        if now == asked["corrupt"] and matrix.rank == 0:
            matrix.own_blocks()[0][1][0, 0] += 1
        return verify(matrix, *others)

    with (
        ranks() as comm,
        Topology(comm) as topology,
        mock.patch.object(drbench.launch.ranks.run_case, "verify", corrupt_and_verify),
        mock.patch.object(Window, "__init__", count),
        mock.patch.object(Window, "close", uncount),
    ):
        cases = [Case(**fields, iters=1, budget=0, threads=1) for fields in asked["cases"]]
        once = [run_case(case, comm, topology).to_json_dict() for case in cases]
        found = []
        for limit in asked["limits"]:
            opened[:] = 0, 0, 0
            turns: list = [[] for _ in cases]
            with GroupMemory() as memory:
                for turn in range(asked["rounds"]):
                    for at, case in enumerate(cases):
                        now[:] = at, turn
                        memory.begin("group")
                        record = run_case(case, comm, topology, limit, None, memory, turn)
                        turns[at].append(record.to_json_dict())
            found.append({"once": once, "turns": turns, "opened": [*opened]})
        answer(comm, found)


if __name__ == "__main__":
    main()
