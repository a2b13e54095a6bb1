"""A peer that multiplies by rows and can be told to get it wrong: ``fake_peer.py WAY ...``; each
rank's record of each way."""

import sys
import types

import numpy as np
from harness import answer
from mpi4py import MPI

import launch.peers
from drbench.errors import UnsupportedError
from drbench.host.blas import load_blas
from drbench.options import Option
from launch.peers import Availability, Job, Peer, Setting
from launch.ranks.run_case import Case, run_case

WAYS = sys.argv[1:]
closed = []


class Multiplication(Job):
    def __init__(self, problem, topology, fill, threads, options):
        super().__init__()
        self.way, comm = options["variant"], topology.comm
        if self.way == "refuses":
            raise UnsupportedError("fake refuses: not today")
        low, high = (problem.m * rank // comm.size for rank in (comm.rank, comm.rank + 1))
        self.everywhere = self.way.startswith("replicated")
        self.row, self.rank = (0, comm.rank) if self.everywhere else (low, comm.rank)
        a = np.empty((problem.m if self.everywhere else high - low, problem.k), problem.dtype)
        b = np.empty((problem.k, problem.n), problem.dtype)
        fill.into(a, "A", self.row, 0)
        fill.into(b, "B", 0, 0)
        self.a, self.b, self.c = a, b, None
        self.replicas = comm.size if self.everywhere else 1
        self.blas, self.layouts = (
            load_blas(),
            ("row", "row", "row/c3" if self.everywhere else "row"),
        )
        self.resolved = {"transport": "none", "dataflow": self.way, "unknown_column": 1}
        self.moved = {"collective_bytes": 24} if self.way == "right" else {}

    def run(self):
        self.c = self.a @ self.b

    def parts(self):
        last = self.rank == 2
        if self.way in ("one element", "replicated, one element") and last:
            self.c[-1, -1] += 1
        if self.way == "nan" and last:
            self.c[0, 0] = np.nan
        parts = [(self.row, 0, self.c)]
        if self.way == "lost part" and last:
            parts = []
        if self.way == "wrong place":
            parts = [(self.row, 0, self.c[::-1])]
        return self.rank if self.everywhere else 0, parts

    def close(self):
        closed.append(self.way)


peer = Peer(
    "fake",
    "for tests",
    lambda: Availability(True, "here", ""),
    lambda nprocs: [Setting("only", {})],
    lambda a, b, c, nprocs, **options: (a or "row", b or "row", c or "row"),
    Multiplication,
    options={"variant": Option("variant", str)},
)
sys.modules["launch.peers.fake"] = types.SimpleNamespace(PEER=peer)
launch.peers.PEERS["fake"] = {}

records = []
for way in WAYS:
    case = Case(
        31,
        17,
        23,
        algorithm="fake",
        options={"variant": way},
        iters=2,
        budget=0,
        threads=1,
        roof=way == "right",
    )
    records.append(run_case(case, MPI.COMM_WORLD).to_json_dict())
answer(MPI.COMM_WORLD, MPI.COMM_WORLD.gather({"records": records, "closed": closed}))
