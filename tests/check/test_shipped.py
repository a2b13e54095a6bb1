"""The programs of all shipped algorithms are right, by the check that authors use."""

import pytest
from any_multiplications import any_of, programs_of

from drbench.algorithms import algorithms
from drbench.check.check import check
from drbench.errors import UnsupportedError, UsageError


def findings_of(case):
    """What the check finds in the programs of a case; None if the algorithm refuses it."""
    try:
        found, traces = programs_of(case)
    except (UnsupportedError, UsageError):
        return None
    return check(traces, bool(found.get("replicate_result"))).findings


@pytest.mark.parametrize("name", algorithms())
def test_two_hundred_random_problems_of_each_algorithm_pass_the_check(name):
    passed = 0
    for seed in range(1000, 1300):  # some are refused
        findings = findings_of(any_of(name, seed))
        assert not findings, (name, seed)
        passed += findings is not None
        if passed == 200:
            return
    pytest.fail(f"only {passed} of 300 problems are not refused")
