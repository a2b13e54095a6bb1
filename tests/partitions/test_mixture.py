"""Who is routed to whom, by counting one by one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from partitions import LayoutError
from partitions.mixture import MOST_WEIGHT, ROUTINGS, Mixture, parse_routing, routes_of, shapes


@st.composite
def mixture(draw):
    experts = draw(st.integers(1, 9))
    routing = f"{draw(st.sampled_from(ROUTINGS))}:{draw(st.integers(0, 99))}"
    return Mixture(experts, draw(st.integers(1, experts)), routing, draw(st.booleans()))


@given(st.integers(1, 40), mixture())
def test_a_token_chooses_as_many_different_experts_as_it_should(m, each):
    routes = routes_of(m, each)
    assert len(routes.choices) == m
    for chosen in routes.choices:
        experts = [expert for expert, _ in chosen]
        assert len(set(experts)) == len(experts) == each.topk
        assert all(0 <= expert < each.experts for expert in experts)
        assert all(1 <= weight <= MOST_WEIGHT for _, weight in chosen)


@given(st.integers(1, 40), mixture(), st.data())
def test_pairs_lie_in_order_of_experts_then_of_tokens(m, each, data):
    routes = routes_of(m, each)
    pairs = [
        (expert, token, weight)
        for expert in range(each.experts)
        for token in range(m)
        for other, weight in routes.choices[token]
        if other == expert
    ]
    assert [routes.pair(row) for row in range(m * each.topk)] == pairs
    assert routes.counts == [sum(e == expert for e, *_ in pairs) for expert in range(each.experts)]
    start, stop = sorted(data.draw(st.integers(0, m)) for _ in "ab")
    for expert in range(each.experts):
        rows = [x for x, (e, token, _) in enumerate(pairs) if e == expert and start <= token < stop]
        first, last = routes.rows(expert, start, stop)
        assert list(range(first, last)) == rows


def test_a_routing_is_that_of_its_seed_and_skewed_ones_are_uneven():
    def counts(text):
        return routes_of(4096, Mixture(16, 2, text)).counts

    assert counts("uniform:3") == counts("uniform:3") != counts("uniform:4")
    even, uneven = counts("uniform"), counts("skewed")
    assert sum(even) == sum(uneven) == 2 * 4096
    assert max(even) < 1.25 * 512 < 3 * min(even)
    assert max(uneven) > 3 * 512 and min(uneven) < 512 / 2
    popular = {counts(f"skewed:{seed}").index(max(counts(f"skewed:{seed}"))) for seed in range(8)}
    assert len(popular) > 2  # not always the same expert


def test_experts_may_be_left_without_any_row():
    assert routes_of(3, Mixture(30, 2)).counts.count(0) >= 24
    assert routes_of(1, Mixture(64, 64, "skewed")).counts == [1] * 64


def test_shapes_of_the_three_matrices():
    assert shapes(8, 3, 5, Mixture(4, 3)) == {"A": (8, 5), "B": (20, 3), "C": (24, 3)}
    combined = shapes(8, 3, 5, Mixture(4, 3, combines=True))
    assert combined == {"A": (24, 5), "B": (20, 3), "C": (8, 3)}


@pytest.mark.parametrize(
    "arguments, said",
    [
        ((0,), "--experts must be at least 1, got 0"),
        ((4, 5), "--topk must be 1 to 4, the number of experts, got 5"),
        ((4, 0), "--topk must be 1 to 4"),
        ((4, 2, "zipf"), "--routing must be uniform or skewed"),
        ((4, 2, "skewed:x"), "got 'skewed:x'"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(arguments, said):
    with pytest.raises(LayoutError, match=said) as refused:
        Mixture(*arguments)
    assert "\n" not in str(refused.value)


def test_a_routing_is_written_as_it_is_read():
    for text in ("uniform", "skewed", "skewed:12"):
        assert str(parse_routing(text)) == text
