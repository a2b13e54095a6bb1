"""A program of a user may have packages with the names of drbench's folders."""

import os
import sys

import pytest

from drbench.launch.host.files import ROOT

PROGRAM = """
import algorithms, launch, partitions, plots

import drbench
import drbench.algorithms, drbench.launch.predictions, drbench.partitions, drbench.plots.registry

assert all(each.MINE for each in (algorithms, launch, partitions, plots))
with drbench.init() as context:
    a = context.zeros((4, 4), "row", "float64")
    a.local[...] = 1
    c = drbench.multiply(a, a)
    assert (c.local == 4).all()
case = drbench.Case(m=64, n=64, k=64)
assert drbench.simulate(case, "pvc12", 4).time_s > 0
"""


@pytest.mark.mpi
@pytest.mark.parametrize("start", ["program", "-m", "mpiexec"])
def test_packages_of_the_same_names_are_the_users_own(process, mpiexec, tmp_path, start):
    for name in ("algorithms", "launch", "partitions", "plots"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("MINE = True\n")
    (tmp_path / "program.py").write_text(PROGRAM)
    python = [sys.executable, *(["-m", "program"] if start == "-m" else ["program.py"])]
    words = [mpiexec, "-n", "2", *python] if start == "mpiexec" else python
    path = os.pathsep.join([*([str(tmp_path)] if start == "mpiexec" else []), str(ROOT)])
    ended = process(*words, env={"PYTHONPATH": path})
    assert ended.returncode == 0, ended.stderr
