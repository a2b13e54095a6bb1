"""Run a program of ``programs/`` under the real mpiexec, in one of the situations every transport
must survive.

======  =============================================================  =============================
direct  nothing is set: one node                                       every peer is read in place
rma     the cases ask for ``transport="rma"``                          RMA through shared memory
mixed   ``MPIR_CVAR_NUM_CLIQUES=2``: two "nodes", ranks dealt in turn  in place and RMA in one run
nodes   as mixed, but ranks numbered node by node, as on a cluster     replicas that lie on one node
remote  ``MPIR_CVAR_NOLOCAL=1 UCX_TLS=tcp,self``: a node for each      RMA over TCP
        rank
======  =============================================================  =============================
"""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
from starting import ROOT, Ended, run_process

collect_ignore = ["programs"]  # they start MPI when they are imported

PROGRAMS = Path(__file__).parent / "programs"

#: What a situation adds to the environment; what is not empty only MPICH understands.
SITUATIONS = {
    "direct": {},
    "rma": {},
    "mixed": {"MPIR_CVAR_NUM_CLIQUES": "2"},
    "nodes": {"MPIR_CVAR_NUM_CLIQUES": "2"},
    "remote": {"MPIR_CVAR_NOLOCAL": "1", "UCX_TLS": "tcp,self"},
}


class MpiRun:
    """Runs programs under mpiexec; see :meth:`__call__`."""

    def __init__(self, mpiexec: str, library: str, folder: Path):
        self._mpiexec, self._library, self._folder, self._files = mpiexec, library, folder, 0

    def __call__(self, n, script, *args, **how):
        """What ``script`` answers (JSON on stdout) on ``n`` ranks.

        Fails the test as :meth:`Ended.json` does. An argument that is not a text goes through a
        JSON file.
        """
        return self.process(n, script, *args, **how).json()

    def process(self, n, script, *args, situation="direct", timeout=90, gently=True) -> Ended:
        """The run as it ended, well or not. Every process of it is gone when this returns.

        Ranks share the cores with each other and with other tests, so those that wait do so
        ``gently`` where no time is measured: MPICH lets them sleep for a moment instead of asking
        again at once, so that those with work get to it.
        """
        if SITUATIONS[situation] and not self._library.startswith("MPICH"):
            pytest.skip(
                f"only MPICH can pretend to be several nodes; this is {self._library.split(',')[0]}"
            )
        environ = SITUATIONS[situation] | {
            "OPENBLAS_NUM_THREADS": "1",
            "MPIR_CVAR_ENABLE_HEAVY_YIELD": str(int(n > 1 and gently)),
            "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests' / 'shared'}",
            "DRBENCH_TEST_SITUATION": situation,
        }
        command = [self._mpiexec, "-n", n, sys.executable, "-m", "mpi4py", PROGRAMS / script]
        command += [arg if isinstance(arg, str) else self._json_file(arg) for arg in args]
        return run_process(command, self._folder, environ, timeout)

    def cases(self, n, cases, *options, situation="direct", timeout=90) -> list[dict]:
        """What ``programs/run_cases.py`` says of each case; in the situation rma they ask for that
        transport."""
        return self.cases_and_naps(n, cases, *options, situation=situation, timeout=timeout)[0]

    def cases_and_naps(
        self, n, cases, *options, situation="direct", timeout=90
    ) -> tuple[list[dict], dict]:
        """The same, and how often ranks slept before what (``--delays``)."""
        if situation == "rma":
            cases = [{"transport": "rma", **case} for case in cases]
        out = self(
            n,
            "run_cases.py",
            cases,
            *options,
            situation=situation,
            timeout=timeout,
            gently="--delays" not in options,
        )
        assert len(out["answers"]) == len(cases)
        return out["answers"], out["naps"]

    def _json_file(self, value) -> str:
        self._files += 1
        path = self._folder / f"{self._files}.json"
        path.write_text(json.dumps(value))
        return str(path)


@pytest.fixture(scope="session")
def mpirun(tmp_path_factory, mpiexec, mpi_library) -> MpiRun:
    """``mpirun(n, script, *args, situation=...)``: the JSON that a program answers under
    mpiexec."""
    return MpiRun(mpiexec, mpi_library[0], tmp_path_factory.mktemp("mpi"))


@pytest.fixture(scope="session")
def kernels(tmp_path_factory) -> str:
    """Path of the GPU's kernels compiled for the host."""
    from fake_cuda import compile_kernels

    if not shutil.which("g++"):
        pytest.skip("no g++ to compile the kernels for the host")
    return str(compile_kernels(tmp_path_factory.mktemp("kernels")))
