"""Multiplications of random layouts with random options by each algorithm, without MPI: exact in
random orders of completion, in planned memory, without needless transfers.

``python tests/shared/any_multiplications.py FIRST COUNT`` tries other seeds.
"""

import pytest
from any_multiplications import failing

from drbench.algorithms import algorithms

#: Of which algorithms fewer than all cases are exact, and how many; others are refused in one line.
#: A fault that only refuses more of them is a fault too.
EXACT = {
    "ag2": 54,
    "ag2_moe": 55,
    "dtensor_mm": 53,
    "gemm_rs": 48,
    "meshslice": 50,
    "moe_rs": 58,
    "moe_rs2": 50,
    "rs2": 55,
}


@pytest.mark.parametrize("name", algorithms())
def test_any_multiplication_is_exact_or_refused_in_one_line(name):
    count = 600 if name == "universal" else 60
    exact, wrong = failing(name, range(count))
    assert not wrong
    assert exact == EXACT.get(name, count)


@pytest.mark.thorough
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", algorithms())
def test_many_more_multiplications_are_exact_or_refused_in_one_line(name):
    count = 12_000 if name == "universal" else 400
    exact, wrong = failing(name, range(count))
    assert not wrong
    assert exact > 0.75 * count
