"""The roof takes the local shape with the smallest median time, whatever single trials say."""

from collections import Counter
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("mpi4py")
import numpy as np

from algorithms.overlap.experts import ExpertProblem
from drbench.measure import roof
from drbench.measure.noise import Timed
from drbench.measure.roof import Roof, fastest
from drbench.program.problem import Problem

SHAPES = [((512,), 2048, 8192), ((1024,), 1024, 8192), ((700, 324), 2048, 4096), ((1,), 3, 5)]


def work(shape):
    rows, n, k = shape
    return sum(rows) * n * k


@given(st.permutations(range(4)), st.floats(1e-7, 1e-1))
def test_it_is_the_shape_with_the_highest_rate_not_the_shortest_time(order, second):
    rates = {shape: 1 + rank for shape, rank in zip(SHAPES, order)}
    found = fastest(SHAPES, lambda shape: second * work(shape) / 1e9 / rates[shape])
    assert found == max(SHAPES, key=rates.get)


def test_one_lucky_trial_does_not_make_a_shape_the_fastest():
    calls = Counter()

    def seconds(shape):
        calls[shape] += 1
        lucky = shape == SHAPES[0] and calls[shape] == 3
        return work(shape) * (0.95 if lucky else 1.1 if shape == SHAPES[0] else 1.0)

    assert fastest(SHAPES[:2], seconds) == SHAPES[1]


def test_one_late_trial_does_not_rule_out_the_fastest():
    calls = Counter()

    def seconds(shape):
        calls[shape] += 1
        late = shape == SHAPES[1] and calls[shape] == 2
        return work(shape) * (9.0 if late else 1.0 if shape == SHAPES[1] else 1.1)

    assert fastest(SHAPES[:3], seconds) == SHAPES[1]


@pytest.mark.parametrize("jump", range(2, 8))
def test_a_machine_that_slows_down_meanwhile_does_not_choose_the_shape(jump):
    """Whether the speed changes within a turn or between two."""
    calls = Counter()

    def seconds(shape):
        calls["all"] += 1
        slow = 1.6 if calls["all"] > jump else 1.0
        return 0.4 * slow * work(shape) / work(SHAPES[0]) * (0.95 if shape == SHAPES[1] else 1.0)

    assert fastest(SHAPES[:2], seconds) == SHAPES[1]


def test_a_slow_shape_is_not_tried_again_and_trials_end():
    calls = Counter()

    def seconds(shape):
        calls[shape] += 1
        return work(shape) * 1e-12 * (2.0 if shape == SHAPES[0] else 1.0)

    fastest(SHAPES, seconds)
    assert calls[SHAPES[0]] == 1 + 2 and 1 + 3 <= calls[SHAPES[1]] <= 1 + 15
    calls.clear()
    fastest(SHAPES, lambda shape: seconds(shape) * 1e6)  # long ones: no more than three
    assert max(calls.values()) == 1 + 3


@settings(max_examples=50)
@given(st.lists(st.floats(1e-6, 1.0), min_size=40, max_size=40))
def test_ranks_that_see_the_same_times_choose_the_same(times):
    def choose():
        left = iter(times * 4)
        return fastest(SHAPES, lambda _: next(left))

    assert choose() == choose() and choose() in SHAPES


class Work:
    """A roof without GEMMs that records the requested shapes."""

    def __init__(self):
        self.shapes, self.sizes = [], []

    def empty(self, size, dtype):
        self.sizes.append(size)
        return np.empty(size, dtype)

    def fill(self, array, fill, matrix):
        pass

    def multiply(self, a, b, c, beta):
        self.shapes.append((*c.shape, a.shape[1]))


@pytest.fixture
def quick(monkeypatch):
    """Every timed call takes a millisecond."""

    def timed(comm, function):
        function()
        return Timed(1e-3)

    monkeypatch.setattr(roof, "timed", timed)


@pytest.mark.parametrize("transpose", ["", "ab"])
def test_a_known_shape_is_not_searched_again_and_needs_no_more_memory(quick, transpose):
    problem = Problem(8, 12, 20, 4, transpose=transpose)
    first, again = Work(), Work()
    found = Roof(problem, None, first, None)
    assert len(set(first.shapes)) == len(problem.local_shapes()) > 3
    known = Roof(problem, None, again, None, found.shape)
    (m,), n, k = found.shape
    assert known.shape == found.shape and again.sizes == [m * k, k * n, m * n]
    assert again.shapes == [(m, n, k)]  # once, to touch the pages before the samples
    known.sample()
    assert again.shapes == [(m, n, k)] * 2


def test_the_roof_of_experts_is_a_gemm_for_each_expert_with_rows(quick):
    problem = ExpertProblem(40, 12, 20, 2, experts=30, topk=2, routing="skewed")
    counts = [stop - start for _, (start, stop), _ in problem.batches()]
    assert 1 < len(counts) < 30 and sum(counts) == 80
    work_ = Work()
    known = Roof(problem, SimpleNamespace(size=2), work_, None, (tuple(counts), 6, 20))
    work_.shapes.clear()
    known.sample()
    assert work_.shapes == [(count, 6, 20) for count in counts]
    assert known.flops == problem.flops
    assert work_.sizes == [80 * 20, len(counts) * 20 * 6, 80 * 6]
