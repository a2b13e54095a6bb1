"""Multiplications of random layouts, algorithms and options, without MPI: exact in
random orders of completion, in planned memory, without needless transfers.

``python tests/shared/any_multiplications.py FIRST COUNT`` tries other seeds.
"""

import pytest
from any_multiplications import failing


@pytest.mark.parametrize("part", range(4))
def test_any_multiplication_is_exact_or_refused_in_one_line(part):
    tally, wrong = failing(range(part, 600, 4))
    assert not wrong
    assert tally["refused"] < 22 and tally["universal"] > 75


@pytest.mark.thorough
@pytest.mark.timeout(1800)
def test_twenty_thousand_multiplications_are_exact_or_refused_in_one_line():
    tally, wrong = failing(range(20_000))
    assert not wrong
    assert len(tally) > 20 and tally["refused"] < 1500
