"""Windows large enough to be mapped again hold the same memory for loads, stores and RMA, and leave
no mapping."""

import pytest

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(60)]


@pytest.mark.parametrize(
    "p, situation", [(1, "direct"), (3, "direct"), (4, "mixed"), (2, "remote")]
)
def test_a_large_window_is_one_memory_for_everyone(mpirun, p, situation):
    assert mpirun(p, "huge_pages.py", situation=situation) == {"right": True, "left": 0}
