"""Every triple of DTensor placements on a 2x2 mesh, multiplied and compared element by element.

    python benchmarks/placements.py [--situation direct|rma|mixed|remote] [--share 1/8]

{S(0), S(1), R, P} along either dimension of the mesh for A, B and C are 4096 triples, each with
Stationary A, B and C and uneven sizes: 12 288 products on 4 ranks. ``mixed`` makes two nodes of
this machine, ``remote`` four, both MPICH's. Exit code 1 if one is wrong.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from fractions import Fraction
from itertools import product
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from partitions.enumerate import placements  # noqa: E402

SITUATIONS = {
    "direct": {},
    "rma": {},
    "mixed": {"MPIR_CVAR_NUM_CLIQUES": "2"},
    "remote": {"MPIR_CVAR_NOLOCAL": "1", "UCX_TLS": "tcp,self"},
}
SIZES = [(7, 5, 9), (8, 12, 4), (3, 2, 1)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--situation", choices=SITUATIONS, default="direct")
    parser.add_argument("--share", type=Fraction, default=Fraction(1), help="of the triples [1]")
    parser.add_argument("--mpiexec", default="mpiexec")
    given = parser.parse_args()
    step = round(1 / given.share)
    triples = list(enumerate(product(placements("2x2"), repeat=3)))[::step]
    cases = [(SIZES[x % len(SIZES)], *triple) for x, triple in triples]
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(cases, file)
        file.flush()
        program = ROOT / "tests" / "mpi" / "programs" / "placements.py"
        environ = os.environ | SITUATIONS[given.situation]
        environ |= {
            "OPENBLAS_NUM_THREADS": "1",
            "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests' / 'shared'}",
            "DRBENCH_TEST_SITUATION": given.situation,
        }
        command = [given.mpiexec, "-n", "4", sys.executable, "-m", "mpi4py", program, file.name]
        began = time.monotonic()
        done = subprocess.run(command, env=environ, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        return done.returncode
    found = json.loads(done.stdout)
    took = time.monotonic() - began
    print(f"{given.situation}: {found['done']} products, {len(found['wrong'])} wrong, {took:.0f} s")
    for wrong in found["wrong"][:10]:
        print("wrong:", *wrong)
    return int(bool(found["wrong"]))


if __name__ == "__main__":
    sys.exit(main())
