"""Nothing a run makes outlives it, and what other processes could trip over is gone while it still
runs."""

import pytest
from cases import case

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]

CASE = case(30, 40, 50, "row", "column", stationary="B", get="copy")
ENDS = {
    "ok": CASE,
    "unsupported": CASE | {"transport": "direct"},
    "out_of_memory": CASE | {"pool": 0},
    "usage": CASE | {"a": "block:5x5"},
}


@pytest.mark.parametrize("status", ENDS)
def test_however_a_case_ends_its_communicators_windows_and_files_are_closed(mpirun, status):
    """MPICH has 2048 communicators a process: a sweep in one process would run out of them."""
    (out,) = mpirun.cases(4, [ENDS[status]], situation="mixed")
    assert (out["status"], out["left_open"]) == (status, {})


@pytest.mark.parametrize("situation", ["direct", "mixed", "remote"])
def test_locks_and_matrices_have_no_names_even_while_they_are_in_use(mpirun, situation):
    """So nothing of ours can be left behind, however a run ends."""
    names = mpirun(3, "names.py", situation=situation)
    assert [
        name for name in names if not name.startswith(("mpich_shm_", "sm_segment."))
    ] == []  # MPI's own, from its start
