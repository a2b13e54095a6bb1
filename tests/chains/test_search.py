"""The search over layouts, compared with trying everything: its choice, its bound, its memory."""

import itertools
import random
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drbench.chains.model.search import Factor, Label, best, search

#: An impossible alternative that a search takes shows as infinity minus infinity.
pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")
CHOICES = "rcb"
SHAPES = {
    "a path": [("x", "y"), ("y", "z"), ("z", "w")],
    "a ring": [("x", "y"), ("y", "z"), ("z", "x")],
    "multiplications": [("x", "v", "y"), ("y", "w", "x"), ("y",)],
    "apart": [("x",), ("y", "z")],
}
#: What is not zero in a label: seconds in sequence, of links between nodes and of links inside a
#: node, of the forward pass, then of the backward pass; bytes; bytes of a pool.
ALL = range(8)
SERIAL, BACK_SERIAL, NBYTES, POOL = 0, 3, 6, 7


def label_of(*numbers):
    return Label(tuple(numbers[:6]), *numbers[6:])


@st.composite
def problems(draw, numbers=ALL):
    """Variables and the costs of operations, of which these are not zero; some choices are not
    possible."""
    scopes = SHAPES[draw(st.sampled_from(sorted(SHAPES)))]
    rng = draw(st.randoms(use_true_random=False))
    label = lambda: label_of(*(rng.randrange(10) if x in numbers else 0 for x in ALL))
    factors = [
        Factor(
            scope,
            {
                key: [label() for _ in range(rng.choice((0, 1, 1, 2)))]
                for key in itertools.product(CHOICES, repeat=len(scope))
                if rng.random() < 0.95
            },
        )
        for scope in scopes
    ]
    names = sorted({name for scope in scopes for name in scope})
    return dict.fromkeys(names, CHOICES), factors


def time_of(labels):
    """Each pass takes the longest of its operations in sequence and of its links of each kind."""
    sums = [sum(each.seconds[x] for each in labels) for x in range(6)]
    return max(sums[:3]) + max(sums[3:])


def bytes_of(labels):
    return sum(each.nbytes for each in labels)


def memory_of(labels):
    return bytes_of(labels) + max(each.pool for each in labels)


def everything(domains, factors):
    """The labels of every choice of every variable, and of every way of every operation."""
    for choice in itertools.product(*domains.values()):
        known = dict(zip(domains, choice))
        tables = [each.table.get(tuple(known[n] for n in each.scope), ()) for each in factors]
        yield from itertools.product(*tables)


def least_of(domains, factors, limit=inf):
    every = everything(domains, factors)
    return min((time_of(x) for x in every if memory_of(x) <= limit), default=None)


@given(problems(), st.sampled_from([inf, 5, 12, 20, 30]))
@settings(max_examples=20)
def test_the_optimum_is_between_the_bound_and_the_choice(problem, limit):
    domains, factors = problem
    found, least_s = search(domains, factors, limit), least_of(domains, factors, limit)
    if found is None:
        return
    assert found.least_s <= least_s + 1e-9 and least_s <= found.label.time_s + 1e-9
    assert found.label.memory <= limit
    # the choice consists of a label of every operation, in its layouts
    known = dict(found.label.chosen)
    tables = [each.table[tuple(known[name] for name in each.scope)] for each in factors]
    assert any(
        found.label[:2] == (tuple(map(sum, zip(*(x.seconds for x in ways)))), bytes_of(ways))
        for ways in itertools.product(*tables)
    )
    assert found.label.time_s == pytest.approx(time_of([found.label]))


@given(problems((SERIAL, BACK_SERIAL)))
@settings(max_examples=40)
def test_the_choice_is_the_optimum_where_links_and_memory_do_not_matter(problem):
    found, least_s = search(*problem), least_of(*problem)
    assert (found and (found.label.time_s, found.least_s)) == (least_s and (least_s, least_s))


@given(problems((SERIAL, NBYTES, POOL)), st.integers(0, 40))
@settings(max_examples=40)
def test_something_is_found_whenever_something_fits(problem, limit):
    least_s = least_of(*problem, limit)
    assert (search(*problem, limit) is None) == (least_s is None)


def test_the_choice_is_the_optimum_and_the_bound_is_near_where_memory_binds():
    """Only 2 % of all choices fit, or fewer."""
    shares = []
    for seed in (0, 3, 6, 9):
        rng = random.Random(seed)
        scopes = SHAPES[rng.choice(sorted(SHAPES))]
        label = lambda: label_of(*(rng.randrange(10) for _ in range(6)), 100 + rng.randrange(10))
        keys = lambda scope: itertools.product(CHOICES, repeat=len(scope))
        factors = [
            Factor(each, {x: [label(), label(), label()] for x in keys(each)}) for each in scopes
        ]
        domains = dict.fromkeys(sorted({name for each in scopes for name in each}), CHOICES)
        every = [(memory_of(x), time_of(x)) for x in everything(domains, factors)]
        limit = sorted(every)[len(every) // 50][0]
        least_s = min(time_s for nbytes, time_s in every if nbytes <= limit)
        found = search(domains, factors, limit)
        assert found.label.time_s == pytest.approx(least_s)
        shares.append(found.least_s / least_s)
    assert sum(shares) / len(shares) > 0.8 and max(shares) <= 1 + 1e-9


def test_the_report_of_a_choice_lists_what_it_consists_of():
    pair = {
        (a, b): [Label((float(a != b), 0, 0, 0, 0, 0), 1, 2, (a + b,))] for a in "rc" for b in "rc"
    }
    end = {("r",): [label_of(2.0, 0, 0, 0, 0, 0)], ("c",): [label_of(0.5, 0, 0, 0, 0, 0)]}
    found = search({"x": "rc", "y": "rc"}, [Factor(("x", "y"), pair), Factor(("y",), end)])
    assert dict(found.label.chosen) == {"x": "c", "y": "c"} and found.label.how == ("cc",)


@given(st.lists(st.tuples(*[st.integers(0, 3)] * 6), max_size=8))
@settings(max_examples=40)
def test_labels_are_left_out_that_others_beat(costs):
    tried = [label_of(*each[:3], 0, each[3], 0, *each[4:]) for each in costs]
    of = lambda label: (*label.seconds, label.nbytes, label.pool)
    kept, every = [of(each) for each in best(tried)], {of(each) for each in tried}
    assert len({*kept}) == len(kept) and {*kept} <= every
    for each in every - {*kept}:
        assert any(all(a <= b for a, b in zip(other, each)) for other in kept)
    for each, other in itertools.permutations(best(tried), 2):
        equal = each.time_s == other.time_s
        assert equal or not all(a <= b for a, b in zip(of(each), of(other)))


def test_nothing_is_found_where_nothing_fits():
    only = Factor(("x",), {("r",): [label_of(1.0, 0, 0, 0, 0, 0, 9)]})
    assert search({"x": "r"}, [only], 8) is None
    assert search({"x": "r"}, [only], 9).label.time_s == pytest.approx(1.0)


def test_an_alternative_that_buffers_exclude_is_not_taken_where_no_pair_fits():
    """The first of six labels does not fit with its buffer, so its place in the table is
    impossible."""
    first = [label_of(3, 1, 0, 1, 1, 1, 2, 2), label_of(0, 1, 0, 0, 1, 3, 2, 0)]
    second = [label_of(1, 1, 3, 0, 3, 1, 0, 1), label_of(0, 0, 1, 1, 1, 0, 0, 1)]
    third = [label_of(0, 2, 2, 2, 3, 2, 0, 0), label_of(0, 0, 2, 1, 1, 0, 3, 0)]
    factors = [Factor(("x",), {("r",): labels}) for labels in (first, second, third)]
    assert search({"x": "r"}, factors, 3).label.time_s == pytest.approx(8)
