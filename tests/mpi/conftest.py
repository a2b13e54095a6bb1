"""Run a program of ``programs/`` under the real mpiexec, in one of the situations every transport
must survive.

======  =============================================================  =============================
direct  nothing is set: one node                                       every rank is read in place
rma     the cases ask for ``transport="rma"``                          RMA through shared memory
mixed   ``MPIR_CVAR_NUM_CLIQUES=2``: two "nodes", cyclic ranks         in place and RMA in one run
nodes   as mixed, but ranks numbered node by node, as on a cluster     replicas on one node
remote  ``MPIR_CVAR_NOLOCAL=1 UCX_TLS=tcp,self``: a node for each      RMA over TCP
        rank
======  =============================================================  =============================
"""

import json
import os
import sys
from pathlib import Path

import psutil
import pytest
from cases import amiss
from pool import Pool
from starting import ROOT, Ended, run_process

collect_ignore = ["programs"]  # they start MPI when they are imported

PROGRAMS = Path(__file__).parent / "programs"

#: Variables that a situation adds to the environment; only MPICH has them.
SITUATIONS = {
    "direct": {},
    "rma": {},
    "mixed": {"MPIR_CVAR_NUM_CLIQUES": "2"},
    "nodes": {"MPIR_CVAR_NUM_CLIQUES": "2"},
    "remote": {"MPIR_CVAR_NOLOCAL": "1", "UCX_TLS": "tcp,self"},
}


#: Programs that leave their process unchanged, except with these arguments.
TOGETHER = {
    "corrupt.py": (),
    "devices.py": (),
    "dtensor_multiplications.py": ("outliving", "hooked"),
    "dtensor_training.py": (),
    "fake_gpu.py": (),
    "gpu_pairs.py": ("stuck", "crash"),
    "huge_pages.py": (),
    "idle.py": (),
    "large_replicas.py": (),
    "library.py": ("bad_input", "leaving", "outliving"),
    "names.py": (),
    "other_replica.py": (),
    "rounds.py": (),
    "run_cases.py": (),
    "signals.py": (),
    "streams.py": (),
    "stress.py": (),
    "table1.py": (),
    "whole_chains.py": (),
    "windows.py": (),
}
#: Most ranks that sleep until their next program, in all pools: starting a rank takes longer than
#: most programs. Each needs 64 MiB; half of the memory stays free.
MOST_RANKS = max(32, min(64, psutil.virtual_memory().available // (1 << 27)))


class MpiRun:
    """Runs programs under mpiexec; see :meth:`__call__`."""

    def __init__(self, mpiexec: str, library: str, folder: Path):
        self._mpiexec, self._library, self._folder, self._files = mpiexec, library, folder, 0
        self._pools: dict[tuple, Pool] = {}  # the latest last
        #: How often ranks slept in the latest cases, by what they slept before (``--delays``).
        self.naps: dict[str, int] = {}

    def __call__(self, n, script, *args, situation="direct", timeout=200, gently=True):
        """The answer of ``script`` (JSON on stdout) on ``n`` ranks.

        Fails the test as :meth:`Ended.json` does. An argument that is not a text is passed in
        a JSON file. Programs of :data:`TOGETHER` share ranks that are started once; others, and
        those that do not wait gently, have processes of their own.
        """
        apart = TOGETHER.get(script)
        if not gently or apart is None or any(str(arg).startswith(apart) for arg in args):
            how = {"situation": situation, "timeout": timeout, "gently": gently}
            return self.process(n, script, *args, **how).json()
        pool = self._pool(n, self._environ(n, situation, gently))
        return pool.run([PROGRAMS / script, *self._words(args)], situation, timeout).json()

    def _pool(self, n: int, environ: dict) -> Pool:
        """Ranks that wait for a program; the oldest are closed to limit their number."""
        key = n, environ["UCX_TLS"] if "UCX_TLS" in environ else "MPIR_CVAR_NUM_CLIQUES" in environ
        found = self._pools.pop(key, None)
        if found is None or not found.alive:
            while self._pools and n + sum(pool.size for pool in self._pools.values()) > MOST_RANKS:
                self._pools.pop(next(iter(self._pools))).close().json()
            self._files += 1
            found = Pool(self._mpiexec, n, environ, self._folder / f"pool-{self._files}")
        self._pools[key] = found
        return found

    def close(self) -> None:
        """End all pools; output of MPI at their end is an error."""
        for pool in self._pools.values():
            pool.leave()
        ended = [pool.close() for pool in self._pools.values()]
        self._pools.clear()
        for each in ended:
            each.json()

    def process(self, n, script, *args, situation="direct", timeout=90, gently=True) -> Ended:
        """The ended run, failed or not. All its processes have ended when this returns.

        Ranks share the cores with each other and with other tests, so waiting ranks sleep
        (``gently``) where no time is measured: MPICH then yields the core to ranks with work
        instead of polling.
        """
        environ = self._environ(n, situation, gently)
        command = [self._mpiexec, "-n", n, sys.executable, "-m", "mpi4py", PROGRAMS / script]
        return run_process([*command, *self._words(args)], self._folder, environ, timeout)

    def _environ(self, n, situation, gently) -> dict:
        if SITUATIONS[situation] and not self._library.startswith("MPICH"):
            pytest.skip(
                f"only MPICH can pretend to be several nodes; this is {self._library.split(',')[0]}"
            )
        return SITUATIONS[situation] | {
            "OPENBLAS_NUM_THREADS": "1",
            "MPIR_CVAR_ENABLE_HEAVY_YIELD": str(int(n > 1 and gently)),
            "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests' / 'shared'}",
            "DRBENCH_TEST_SITUATION": situation,
        }

    def _words(self, args) -> list[str]:
        return [arg if isinstance(arg, str) else self._json_file(arg) for arg in args]

    def cases(self, n, cases, *options, situation="direct") -> list[dict]:
        """Answers of ``programs/run_cases.py``, one a case; in the situation rma cases use that
        transport."""
        if situation == "rma":
            cases = [{"transport": "rma", **case} for case in cases]
        out = self(n, "run_cases.py", cases, *options, situation=situation)
        assert len(out["answers"]) == len(cases)
        self.naps = out["naps"]
        return out["answers"]

    def exact(self, n, cases, *options, **how) -> list[dict]:
        """The same answers, after a check that no case is :func:`amiss`."""
        answers = self.cases(n, cases, *options, **how)
        wrong = [(case, what) for case, out in zip(cases, answers) if (what := amiss(case, out))]
        assert not wrong
        return answers

    def _json_file(self, value) -> str:
        self._files += 1
        path = self._folder / f"{self._files}.json"
        path.write_text(json.dumps(value))
        return str(path)


@pytest.fixture(scope="session")
def mpirun(tmp_path_factory, mpiexec, mpi_library):
    """``mpirun(n, script, *args, situation=...)``: the JSON that a program answers under
    mpiexec."""
    run = MpiRun(mpiexec, mpi_library[0], tmp_path_factory.mktemp("mpi"))
    yield run
    run.close()
