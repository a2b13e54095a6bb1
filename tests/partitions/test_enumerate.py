"""Replication factors of sweeps are complete and without duplicates."""

import pytest

from drbench.partitions.enumerate import REPLICATIONS


@pytest.mark.parametrize("p", [1, 2, 4, 7, 12])
def test_replications_are_those_a_search_over_all_factors_finds(p):
    factors = range(1, p + 1)
    valid = [
        (a, b, c) for a in factors for b in factors for c in factors if p % a == p % b == p % c == 0
    ]
    found = {name: list(make(p)) for name, make in REPLICATIONS.items()}
    assert found["all"] == valid
    assert found["equal"] == [t for t in valid if t[0] == t[1] == t[2]]
    assert found["paired"] == [t for t in valid if t[0] == t[1]]
