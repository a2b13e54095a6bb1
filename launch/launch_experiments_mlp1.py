"""step3 of ARTIFACT.md: ``python launch/launch_experiments_mlp1.py > mlp1.txt``, also under
``mpirun -n 4`` or srun; options as for ``drbench sweep``. It runs 1/16 of the paper's size;
``--scale 1`` is the paper's, hours.

Records go to standard output as CSV, progress to standard error. They are also kept in
results/measured/here/mlp1-scale1of16-pN on N ranks (or --out), so that the same command
resumes a killed run and writes all records.
"""

import runpy
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])  # the checkout, not launch/ itself
    sys.argv[1:] = ["sweep", "mlp1", "--stream", "--scale", "1/16", *sys.argv[1:]]
    runpy.run_module("drbench", run_name="__main__", alter_sys=True)
