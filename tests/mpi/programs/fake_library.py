"""Run a library that multiplies by rows, right or wrong: ``fake_library.py WAY ...``; answer each
rank's record of each way."""

import sys
import types

import numpy as np
from harness import answer
from mpi4py import MPI

import drbench.launch.libraries
from drbench.errors import UnsupportedError
from drbench.host.blas import load_blas
from drbench.launch.libraries import Availability, Library
from drbench.launch.ranks.run_case import Case, run_case
from drbench.options import Option

WAYS = sys.argv[1:]
closed = []


class Fake(Library):
    name, description = "fake", "for tests"
    options = {"variant": Option("variant", str)}

    @staticmethod
    def available():
        return Availability(True, "here")

    @staticmethod
    def layout(nprocs, given, variant):
        replicated = variant.startswith("replicated")
        return ("row/c3",) * 3 if replicated else ("row", "row/c3", "row")

    def prepare(self, options):
        self.way = options["variant"]
        if self.way == "refuses":
            raise UnsupportedError("fake refuses: not today")
        self.operands, self.blas = self.filled(), load_blas()
        self.resolved = {"transport": "none", "dataflow": self.way, "unknown_column": 1}
        self.moved = {"collective_bytes": 24} if self.way == "right" else {}

    def run(self):
        self.out = self.operands[0] @ self.operands[1]

    def own_blocks(self):
        last = self.rank == 2
        if self.way in ("one element", "replicated, one element") and last:
            self.out[-1, -1] += 1
        if self.way == "nan" and last:
            self.out[0, 0] = np.nan
        if self.way == "wrong place":
            self.out = self.out[::-1]
        return [] if self.way == "lost part" and last else super().own_blocks()

    def close(self):
        closed.append(self.way)


sys.modules["drbench.launch.libraries.fake"] = types.SimpleNamespace(LIBRARY=Fake)
drbench.launch.libraries.LIBRARIES["fake"] = Fake.options

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
        gemm_only=way == "right",
        dtype="bfloat16:float32" if way == "bfloat16" else "float32",
    )
    records.append(run_case(case, MPI.COMM_WORLD).to_json_dict())
answer(MPI.COMM_WORLD, MPI.COMM_WORLD.gather({"records": records, "closed": closed}))
