"""The search over layouts finds the optimum of trying everything, whatever the costs."""

import itertools
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from algorithms.chains.search import Factor, Label, best, search

CHOICES = "rcb"
SHAPES = {
    "a path": [("x", "y"), ("y", "z"), ("z", "w")],
    "a ring": [("x", "y"), ("y", "z"), ("z", "x")],
    "multiplications": [("x", "v", "y"), ("y", "w", "x"), ("y",)],
    "apart": [("x",), ("y", "z")],
}


def labels(most):
    costs = st.tuples(*[st.integers(0, 9)] * 4)
    return st.lists(costs.map(lambda each: Label(*map(float, each))), max_size=most)


@st.composite
def problems(draw):
    scopes = SHAPES[draw(st.sampled_from(sorted(SHAPES)))]
    factors = [
        Factor(
            scope, {key: draw(labels(2)) for key in itertools.product(CHOICES, repeat=len(scope))}
        )
        for scope in scopes
    ]
    names = sorted({name for scope in scopes for name in scope})
    return dict.fromkeys(names, CHOICES), factors


def everything(domains, factors, limit):
    """Try every choice of every variable, and every label of every operation."""
    found = None
    for choice in itertools.product(*domains.values()):
        known = dict(zip(domains, choice))
        tables = [each.table[tuple(known[name] for name in each.scope)] for each in factors]
        for ways in itertools.product(*tables):
            time_s = max(sum(way.serial_s for way in ways), sum(way.link_s for way in ways))
            memory = sum(way.nbytes for way in ways) + max(way.pool for way in ways)
            if memory <= limit and (found is None or time_s < found):
                found = time_s
    return found


@given(problems(), st.sampled_from([inf, 5, 12, 20, 30]))
def test_the_search_finds_the_optimum_with_and_without_a_limit(problem, limit):
    domains, factors = problem
    found = search(domains, factors, limit)
    assert (found and found.time_s) == everything(domains, factors, limit)
    assert found is None or found.memory <= limit


def test_the_report_of_a_choice_lists_what_it_consists_of():
    pair = {(a, b): [Label(float(a != b), 0.0, 1, 2, (a + b,))] for a in "rc" for b in "rc"}
    end = {("r",): [Label(2.0, how=("slow",))], ("c",): [Label(0.5)]}
    found = search({"x": "rc", "y": "rc"}, [Factor(("x", "y"), pair), Factor(("y",), end)])
    assert dict(found.chosen) == {"x": "c", "y": "c"} and found.how == ("cc",)


@given(st.lists(st.tuples(*[st.integers(0, 5)] * 4), max_size=8), st.integers(0, 11))
def test_labels_are_kept_that_fit_and_are_not_dominated(costs, limit):
    tried = [Label(*each) for each in costs]
    kept = {each[:4] for each in best(tried, limit)}
    for each in tried:
        beaten = any(
            other[:4] != each[:4] and all(a <= b for a, b in zip(other[:4], each[:4]))
            for other in tried
        )
        assert (each[:4] in kept) == (each.memory <= limit and not beaten)


def test_nothing_is_found_where_nothing_fits():
    only = Factor(("x",), {("r",): [Label(1.0, 0.0, 9)]})
    assert search({"x": "r"}, [only], 8) is None
    assert search({"x": "r"}, [only], 9).time_s == pytest.approx(1.0)
