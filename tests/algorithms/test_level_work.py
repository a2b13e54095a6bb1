"""GEMMs that ranks with more of the stationary matrix leave to ranks with less."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import layouts
from traced import everyone_of

from drbench.algorithms import get_algorithm
from drbench.algorithms.universal.distribution import level_work
from drbench.algorithms.universal.explain import why as why_universal
from drbench.errors import UsageError
from drbench.launch.cases.machine_models import find_machine
from drbench.model.simulate import simulate
from drbench.plan.explain import balance
from drbench.program.problem import Problem

universal = get_algorithm("universal")


def held(partition):
    """The owner of each element of replica 0."""
    everywhere = itertools.product(*map(range, partition.shape))
    return {at: partition.owner(partition.tile_index(*at)) for at in everywhere}


@settings(max_examples=120, deadline=None)
@given(st.data(), st.sampled_from([1, 2, 3, 4, 6]), st.integers(1, 11), st.integers(1, 11))
def test_every_coordinate_has_its_share_and_the_least_work_is_moved(data, nprocs, rows, cols):
    stored = data.draw(layouts((rows, cols), nprocs, 5))
    stored = Problem(rows, cols, 1, nprocs, c=stored).c.partition
    found = level_work(stored)
    for axis, new in zip((stored.rows, stored.cols), (found.rows, found.cols) if found else ()):
        lengths = [axis.length(x) for x in range(axis.parts)]
        least, more = divmod(axis.extent, axis.parts)
        uneven = max(lengths) > least + bool(more)
        after = [new.length(x) for x in range(new.parts)]
        even = [least] * (axis.parts - more) + [least + 1] * more
        assert sorted(after) == sorted(even if uneven else lengths)
    if found is None:
        for axis in (stored.rows, stored.cols):
            most = max(axis.length(x) for x in range(axis.parts))
            assert most <= -(-axis.extent // axis.parts)
        return
    before, after = held(stored), held(found)
    moved = sum(before[at] != after[at] for at in before)
    kept = 1.0
    for axis in (stored.rows, stored.cols):
        least, more = divmod(axis.extent, axis.parts)
        lengths = sorted((axis.length(x) for x in range(axis.parts)), reverse=True)
        if lengths[0] > least + bool(more):
            kept *= sum(min(length, least + (x < more)) for x, length in enumerate(lengths))
        else:
            kept *= axis.extent
    assert moved == rows * cols - kept


@pytest.mark.parametrize("stationary", "ABC")
def test_the_busiest_rank_has_no_more_than_the_mean(stationary):
    texts = {"a": "tiles:13x9@2x1", "b": "tiles:13x17@1x2", "c": "tiles:16x11@1x2"}
    problem = Problem(40, 40, 40, 2, **texts)

    def limit(**options):
        options = universal.resolve(problem, stationary=stationary, pack="never", **options)
        return balance([each.flops for each in everyone_of(universal, problem, options)])

    assert limit() < 0.95 and limit(work="level") == 1.0


def test_the_simulator_decides_whether_it_pays():
    """On a fast machine, and on one whose links are a hundred times slower."""
    problem = Problem(4096, 4096, 4096, 2, "column", "tiles:1300x1700@1x2", "row")
    machine = find_machine("h100x8")
    slow = machine.with_value("links.nvlink.bandwidth_bytes_per_s", 1e9)

    def seconds(model, **options):
        options = universal.resolve(problem, False, stationary="B", **options)
        return simulate(everyone_of(universal, problem, options), model).time_s

    assert seconds(machine, work="level") < 0.97 * seconds(machine)
    assert seconds(slow, work="level") > seconds(slow)


def test_the_reasons_for_level_work_name_the_share_of_the_busiest_rank():
    even = Problem(8, 8, 8, 2, "row", "row", "row")
    assert why_universal(even, stationary="B", work="level") == [
        "work is level: no rank holds more than its share of B"
    ]
    assert why_universal(even, stationary="B") == []
    uneven = Problem(8, 8, 8, 2, "row", "tiles:8x3@1x2", "row")
    text = why_universal(uneven, stationary="B", work="level", sums="auto", in_place=False)
    assert text == [
        "partial sums are pushed: m is cut into tiles of 128; slots for 64 bytes on rank 0, the "
        "most",
        "level work: 8 elements of B are multiplied by another rank than their owner; the busiest "
        "rank has 1.000 times the mean, 1.250 before",
    ]


@pytest.mark.parametrize("work", ["levl", "2x2", "1x1x4"])
def test_work_that_cannot_be_done_is_refused(work):
    with pytest.raises(UsageError, match="work"):
        universal.resolve(Problem(8, 8, 8, 2), stationary="B", work=work)
