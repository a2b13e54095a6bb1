"""Shared links: rates are those of progressive filling in fractions, simulated times those of a
slow simulator, and with any rule bytes are conserved and no bound is broken."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slow_simulator import filled
from traced import traced

from drbench.model.bounds import bound_of
from drbench.model.gemm import Compute
from drbench.model.links import ARBITRATIONS
from drbench.model.links.levels import Levels
from drbench.model.machine import Link, Machine
from drbench.model.simulate import simulate
from drbench.program.problem import Problem
from drbench.program.steps import Block, Get

seeds = st.integers(0, 10**6)
quick = settings(max_examples=60, deadline=None, derandomize=True)
rates = st.sampled_from([1.0, 2.0, 3.0, 0.5, 7.25, 1e3])
uses = st.dictionaries(
    st.integers(0, 5), st.sampled_from([1.0, 1.0, 0.5, 0.3, 0.125]), min_size=1, max_size=3
)
flows = st.lists(st.tuples(rates, uses), min_size=1, max_size=9)


def speeds(asked):
    """The speed of each flow, as a part of its full speed."""
    levels = Levels()
    for name, (full, uses) in enumerate(asked):
        levels.add_flow(name, full, tuple(uses.items()))
    return list((dict.fromkeys(range(len(asked)), 1.0) | dict(levels.resolve_rates())).values())


@settings(quick, max_examples=300)
@given(flows)
def test_speeds_are_those_of_progressive_filling_in_fractions(asked):
    found = speeds(asked)
    assert found == pytest.approx([float(each) for each in filled(asked)], rel=1e-12)


@pytest.mark.parametrize("seed", range(8))
def test_rates_stay_max_min_while_flows_start_and_end(seed):
    """Several at a time, so that a distant flow that a change affects would be noticed."""
    rng = random.Random(seed)
    links, levels = rng.choice([5, 12, 30]), Levels()
    going, speed = {}, {}
    for name in range(150):
        rate, ways = rng.choice([1.0, 1.0, 0.4, 7.25, 1e3]), rng.sample(range(links), 3)
        uses = {way: rng.choice([1.0, 1.0, 0.3]) for way in ways[: rng.randint(1, 3)]}
        going[name], speed[name] = (rate, uses), 1.0
        changed = levels.add_flow(name, rate, tuple(uses.items()))
        for leaves in rng.sample(sorted(going), rng.choice([0, 0, 0, 1, 1, min(4, len(going))])):
            del going[leaves], speed[leaves]
            changed |= levels.remove_flow(leaves)
        if changed and rng.random() < 0.7:
            speed |= levels.resolve_rates()
            fresh = speeds(list(going.values()))
            assert list(map(speed.get, going)) == pytest.approx(fresh, rel=1e-11)
    speed |= levels.resolve_rates()
    expected = list(map(float, filled(list(going.values()))))
    assert list(map(speed.get, going)) == pytest.approx(expected, rel=1e-9)


def test_links_that_a_change_does_not_affect_are_not_visited(monkeypatch):
    """A long row in which each flow shares a link with the next: a new one in the middle affects
    only a few links."""
    levels, looked = Levels(), []
    for x in range(300):
        levels.add_flow(x, 1.0, ((x, 0.7), (x + 1, 0.7)))
    assert dict(levels.resolve_rates())[150] == pytest.approx(1 / 1.4)
    level_of = Levels._level_of
    monkeypatch.setattr(Levels, "_level_of", lambda *a: looked.append(a[1]) or level_of(*a))
    levels.add_flow("new", 1.0, ((150, 0.7),))
    list(levels.resolve_rates())
    assert 150 in looked and len(looked) < 30


def block(matrix, owner, size=8):
    return Block(matrix, owner, 0, (0, 0), 0, size, 0, size)


def readers(p, what):
    """Traces in which each rank but the first does one step with a block of rank 0."""

    def program(rank):
        if rank:
            yield from what()

    return traced(program, Problem(8, 8, 8, p))


def get():
    yield Get(block("A", 0))


def test_three_readers_share_one_port_and_end_together():
    wire = (Link("wire", 256.0),)
    for rule, waits in (("fair", 3 * [3.0]), ("fifo", [1.0, 2.0, 3.0])):
        machine = Machine("m", Compute(1.0), wire, arbitration=rule)
        found = simulate(readers(4, get), machine, timeline=True)
        assert sorted(bar.stop_s for bar in found.timeline) == waits, rule


@pytest.mark.parametrize("rule", ARBITRATIONS)
def test_an_oversubscribed_fabric_limits_the_rate(rule):
    """Four readers on other nodes, each over a card of its own and one fabric that carries two."""
    links = (
        Link("card", 256.0, within=1),
        Link("far", 256.0, shared="pair", through=("fabric", "card")),
        Link("fabric", 512.0, shared="fabric"),
    )

    def program(rank):
        if rank >= 4:
            yield Get(block("A", rank - 4))

    traces = traced(program, Problem(8, 8, 8, 8))
    machine = Machine("m", Compute(1.0), links, arbitration=rule)
    assert machine.shares(links[1]) == (1.0, 0.5, 1.0, 1.0)
    assert simulate(traces, machine).time_s == (2.0 if rule == "fair" else 2.5)
    assert bound_of(traces, machine).links_s == 2.0


def test_cards_of_one_rail_are_joined_by_their_switch_and_others_by_the_spine():
    links = (
        Link("nvlink", 8.0, within=4),
        Link("rail", 4.0, rails=4),
        Link("spine", 4.0, shared="pair", through=("fabric", "rail")),
        Link("fabric", 16.0, shared="fabric"),
    )
    machine = Machine("m", Compute(1.0), links)
    assert [machine.link(1, x).name for x in (2, 5, 9, 6)] == ["nvlink", "rail", "rail", "spine"]
    rail = ("rail", "out", 1), ("rail", "in", 6)
    assert machine.route(1, 6)[1] == (("spine", 1, 6), ("fabric", "all", 0), *rail)
    assert machine.shares(links[2]) == (1.0, 0.25, 1.0, 1.0)
