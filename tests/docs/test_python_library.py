"""The examples of docs/how-to/use-the-python-library.md, as doctests and under mpiexec."""

import doctest
import re
import sys

import pytest
from starting import ROOT, run_process

PAGE = ROOT / "docs/how-to/use-the-python-library.md"


def test_the_examples_of_the_page_print_what_it_shows():
    found = doctest.testfile(str(PAGE), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert found.attempted > 15 and found.failed == 0


@pytest.mark.mpi
@pytest.mark.timeout(60)
def test_the_first_example_of_the_page_runs_on_several_ranks(mpiexec, tmp_path):
    first = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.M | re.S)[0]
    check = (
        "    result = C.to_global()\n"
        "    wanted = result.T @ A.to_global()\n"
        "    right = ctx.rank or np.allclose(whole, wanted)\n"
        "    assert right and np.allclose(result, A.to_global().sum(1)[:, None])\n"
        "    assert (whole is None) == (ctx.rank > 0)\n"
        "    if not ctx.rank: print('exact')\n"
    )
    smaller = first.replace("4096", "128").replace("1024", "64").replace("2048", "96")
    (tmp_path / "first.py").write_text(smaller + check)
    command = [mpiexec, "-n", 3, sys.executable, tmp_path / "first.py"]
    ended = run_process(command, tmp_path, {"OPENBLAS_NUM_THREADS": "1"}, 40)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "exact\n", "")
