"""A rank that something else kept from its core is told from one that slept."""

import sys

import pytest

from drbench.measure.noise import DISTURBED

pytestmark = [
    pytest.mark.mpi,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux counts sleeps"),
]


def test_what_others_had_of_a_rank_s_core_is_lost_and_what_it_slept_is_not(mpirun):
    found = mpirun(2, "core_lost.py", gently=False)  # who sleeps is no witness
    seconds, lost, cpu_s = found["slept"]
    assert seconds >= 0.2 and lost == 0 and cpu_s < seconds / 2
    seconds, lost, cpu_s = found["shared"]
    assert seconds >= 0.4 and 3 * DISTURBED < lost < 1
    assert (
        0.1 * seconds < cpu_s < seconds
    )  # the mean of a rank that shares its core and one that need not
