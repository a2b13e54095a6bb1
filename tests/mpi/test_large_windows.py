"""Windows large enough to be mapped again hold the same memory for loads, stores and RMA, and leave
no mapping."""

import pytest

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(60)]


@pytest.mark.parametrize(
    "p, situation", [(1, "direct"), (3, "direct"), (4, "mixed"), (2, "remote")]
)
def test_a_large_window_is_one_memory_for_everyone(mpirun, p, situation):
    assert mpirun(p, "huge_pages.py", situation=situation) == {"right": True, "left": 0}


@pytest.mark.parametrize("p", [2, 3])
def test_nobody_writes_before_all_storage_is_ready(mpirun, p):
    """To gather pages their owner sets them to zero: what others wrote before would be lost."""
    assert mpirun(p, "windows.py", "late") is True


def test_without_the_unified_memory_model_nobody_else_is_in_reach(mpirun):
    """Loads and stores would not see what RMA brings. Every MPI here is unified, so it is made to
    say otherwise."""
    assert mpirun(2, "windows.py", "separate") is True
