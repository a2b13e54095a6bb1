"""What strikes one rank ends all of them within 10 s, says why, and leaves nothing in shared
memory."""

import pytest
from starting import within

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]

LIMIT_S = 10
#: Each place in one situation at least, and each situation at one place.
RAISES = [
    *((place, "direct") for place in ("window", "fill", "accumulate", "verify")),
    *(("get", "rma"), ("gemm", "mixed"), ("fence", "remote")),
    *(
        pytest.param(*more, marks=pytest.mark.thorough)
        for more in (("gemm", "direct"), ("gemm", "remote"), ("fence", "direct"))
    ),
]


@pytest.mark.parametrize("place, situation", RAISES)
def test_an_exception_on_one_rank_ends_all_with_its_traceback(mpirun, place, situation):
    ended = mpirun.process(3, "crash.py", place, situation=situation, timeout=12)
    assert ended.returncode != 0
    assert within(ended.seconds, LIMIT_S)
    assert (
        "Traceback (most recent call last)" in ended.stderr
        and "RuntimeError: struck by the test" in ended.stderr
    )
    assert "nothing happened" not in ended.stderr
    assert ended.left == ()


def test_running_out_of_memory_on_one_rank_ends_all(mpirun):
    ended = mpirun.process(3, "crash.py", "memory", timeout=12)
    assert (
        ended.returncode != 0 and within(ended.seconds, LIMIT_S) and "MemoryError" in ended.stderr
    )
    assert ended.left == ()


@pytest.mark.parametrize(
    "situation", ["direct", pytest.param("mixed", marks=pytest.mark.thorough), "remote"]
)
def test_a_killed_rank_ends_all(mpirun, situation):
    ended = mpirun.process(3, "crash.py", "killed", situation=situation, timeout=12)
    assert ended.returncode != 0 and within(ended.seconds, LIMIT_S)
    assert ended.left == ()


def test_a_rank_killed_with_a_lock_ends_all(mpirun):
    ended = mpirun.process(3, "crash.py", "killed with a lock", timeout=12)
    assert ended.returncode != 0 and within(ended.seconds, LIMIT_S)
    assert ended.left == ()
