"""What is learned about programs equals a regression on their attributes, one weight each."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as at_most
from hypothesis import strategies as st

from drbench.launch.tune.ratios import ATTRIBUTES, Ratios

PROGRAMS = st.lists(
    st.tuples(st.just(0), *[st.integers(0, 3)] * (ATTRIBUTES - 1)), min_size=1, max_size=12
)


@at_most(max_examples=40, deadline=None)
@given(seen=PROGRAMS, asked=PROGRAMS, data=st.data())
def test_likely_ratios_are_those_of_a_regression_with_a_weight_for_each_attribute(
    seen, asked, data
):
    """The oracle regresses on columns of zeros and ones, with weights of variance 0.03 and errors
    of variance 0.003."""
    ratios, logs = Ratios(), [data.draw(st.floats(-1, 2)) for _ in seen]
    for attributes, log in zip(seen, logs):
        ratios.learn(attributes, np.exp(log))
    columns = sorted({pair for each in (*seen, *asked) for pair in enumerate(each)})
    ones = lambda programs: np.array(
        [[float(each[at] == value) for at, value in columns] for each in programs]
    )
    known = ones(seen)
    precision = np.eye(len(columns)) / 0.03 + known.T @ known / 0.003
    weights = np.linalg.solve(precision, known.T @ logs / 0.003)
    errors = np.sqrt(np.einsum("ij,jk,ik->i", ones(asked), np.linalg.inv(precision), ones(asked)))
    likely = np.exp(ones(asked) @ weights)
    assert ratios.likely(np.array(asked)) == pytest.approx(likely, rel=1e-6)
    assert ratios.optimistic(np.array(asked)) == pytest.approx(likely / np.exp(errors), rel=1e-5)
