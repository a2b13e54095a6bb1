"""Steps in series: by a search of all cuts, at the place where they begin, and not in noise."""

import random
from itertools import combinations, pairwise
from math import exp, log
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drbench.plots.select.history import find_steps

VALUES = st.lists(st.sampled_from([1.0, 1.01, 1.02, 1.05, 1.2, 1.5]), min_size=6, max_size=8)


def steps_by_trying_all_cuts(values, tolerance):
    """The definition: the best of all sets of cuts, then pieces of three or more."""
    count, logs = len(values), [log(value) for value in values]
    if count < 6:
        return {}
    changes = sorted(abs(a - b) for a, b in pairwise(logs))
    place = 0.75 * (count - 2)
    low, high = changes[int(place)], changes[min(int(place) + 1, count - 2)]
    price = 1e-9 + 2.5 * log(count) * (low + (place - int(place)) * (high - low))
    distances = lambda piece: sum(abs(x - median(piece)) for x in piece)
    sets = (
        (0, *cuts, count) for size in range(count) for cuts in combinations(range(1, count), size)
    )
    cost = lambda cuts: sum(price + distances(logs[a:b]) for a, b in pairwise(cuts))
    cuts = min(sets, key=cost)
    pieces = [(a, median(values[a:b])) for a, b in pairwise(cuts) if b - a >= 3]
    ratios = {at: after / before for (_, before), (at, after) in pairwise(pieces)}
    return {at: x for at, x in ratios.items() if x > 1 + tolerance or 1 / x > 1 + tolerance}


@settings(max_examples=12)
@given(VALUES, st.sampled_from([0.0, 0.05, 0.3]))
def test_steps_are_those_of_the_best_of_all_cuts(values, tolerance):
    spread = [value * (1 + 1e-6 * 0.7**at) for at, value in enumerate(values)]  # no two are equal
    assert find_steps(spread, tolerance) == pytest.approx(
        steps_by_trying_all_cuts(spread, tolerance)
    )


@pytest.mark.parametrize("factor", [1.1, 1 / 1.1, 3.0])
@pytest.mark.parametrize("count, at", [(6, 3), (8, 5), (20, 3), (20, 10), (20, 17), (40, 37)])
def test_a_clean_step_is_where_it_began(count, at, factor):
    chance = random.Random(count + at)
    noise = [exp(chance.gauss(0, 0.003)) for _ in range(count)]
    values = [x * (factor if place >= at else 1) for place, x in enumerate(noise)]
    ((place, ratio),) = find_steps(values).items()
    assert place == at and ratio == pytest.approx(factor, rel=0.01)
    assert [*find_steps(values[::-1])] == [count - at]
    assert find_steps([1e-6 * x for x in values]) == pytest.approx({place: ratio})
    assert find_steps(values, tolerance=2.5) == {}


def test_what_lasted_for_less_than_three_runs_is_no_step():
    assert find_steps([1.0] * 9 + [1.5] * 2) == {} == find_steps([1.0] * 6 + [9.0] + [1.0] * 6)
    assert find_steps([1.0] * 9 + [1.5] * 3) == {9: 1.5}


@pytest.mark.thorough
@pytest.mark.parametrize("spread", [0.02, 0.1, 0.3])
@pytest.mark.parametrize("kind", ["normal", "long tail", "outliers", "two levels"])
def test_noise_alone_hardly_ever_gives_a_step(kind, spread):
    chance = random.Random(f"{kind}{spread}")
    draw = {
        "normal": lambda: exp(chance.gauss(0, spread)),
        "long tail": lambda: 1 + chance.expovariate(1 / spread),
        "outliers": lambda: exp(chance.gauss(0, 0.02)) + 2 * spread * (chance.random() < 0.1),
        "two levels": lambda: 1 + spread * (chance.random() < 0.5) + 0.01 * chance.random(),
    }[kind]
    series = [[draw() for _ in range(count)] for count in (6, 9, 14, 25) for _ in range(15)]
    assert sum(bool(find_steps(values)) for values in series) <= 3
