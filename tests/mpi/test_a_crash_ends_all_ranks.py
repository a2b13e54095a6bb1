"""A crash of one rank ends all ranks within 10 s, prints the reason, and leaves nothing in shared
memory."""

import pytest
from starting import within

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]

LIMIT_S = 10
#: Each place in one situation at least, and each situation at one place.
RAISES = [
    *((place, "direct") for place in ("window", "fill", "accumulate", "verify")),
    *(("get", "rma"), ("gemm", "mixed"), ("fence", "remote")),
]


@pytest.mark.parametrize("place, situation", RAISES)
def test_an_exception_on_one_rank_ends_all_with_its_traceback(mpirun, place, situation):
    ranks = 3 if place in ("accumulate", "fence") else 2
    ended = mpirun.process(ranks, "crash.py", place, situation=situation, timeout=12)
    assert ended.returncode != 0
    assert within(ended.seconds, LIMIT_S)
    assert (
        "Traceback (most recent call last)" in ended.stderr
        and "RuntimeError: struck by the test" in ended.stderr
    )
    assert "nothing happened" not in ended.stderr
    assert ended.left == ()


@pytest.mark.parametrize(
    "what, situation",
    [
        *(("memory", "direct"), ("killed with a lock", "direct")),
        *(("killed", situation) for situation in ("direct", "remote")),
    ],
)
def test_a_rank_that_is_out_of_memory_or_killed_ends_all(mpirun, what, situation):
    ended = mpirun.process(
        2 if what == "memory" else 3, "crash.py", what, situation=situation, timeout=12
    )
    assert ended.returncode != 0 and within(ended.seconds, LIMIT_S)
    assert ended.left == () and (what != "memory" or "MemoryError" in ended.stderr)
