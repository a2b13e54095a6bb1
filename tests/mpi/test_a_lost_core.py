"""A rank that lost its core to another process is distinguished from one that slept."""

import sys

import pytest
from starting import wait_until_empty

from drbench.measure.noise import DISTURBED

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux counts sleeps"),
]


def amiss(mpirun) -> list[str]:
    """What is not as it should be; on a machine that has more to do, as often as not something."""
    found = mpirun(2, "core_lost.py", gently=False)  # who sleeps is no witness
    slept_s, slept_lost, slept_cpu_s = found["slept"]
    shared_s, shared_lost, shared_cpu_s = found["shared"]
    right = {
        "slept": slept_s >= 0.2 and slept_lost <= DISTURBED and slept_cpu_s < slept_s / 2,
        "lost": shared_s >= 0.4 and 3 * DISTURBED < shared_lost < 1,
        # the mean of a rank that shares its core and one that need not
        "processor": 0.1 * shared_s < shared_cpu_s < shared_s,
    }
    return [f"{name}: {found}" for name, holds in right.items() if not holds]


def test_time_of_other_processes_on_a_rank_s_core_is_lost_and_sleep_is_not(mpirun):
    assert wait_until_empty(lambda: amiss(mpirun)) == []
