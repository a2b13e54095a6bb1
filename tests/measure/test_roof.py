"""The roof takes the local shape with the smallest median time, whatever single trials say."""

from collections import Counter
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("mpi4py")
import numpy as np
from mpi4py import MPI

from drbench.algorithms.overlap.experts import ExpertProblem
from drbench.launch.cases.case import Case
from drbench.launch.ranks.run_case import run_case
from drbench.measure import roof
from drbench.measure.noise import Timed
from drbench.measure.roof import GemmOnly, LocalGemms, elements, fastest, gemms_to_try
from drbench.program.problem import Problem

SHAPES = [
    LocalGemms((512,), 2048, 8192),
    LocalGemms((1024,), 1024, 8192),
    LocalGemms((700, 324), 2048, 4096),
    LocalGemms((1,), 3, 5),
]


def work(gemms):
    return sum(gemms.rows) * gemms.n * gemms.k


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


class Work:
    """A roof without GEMMs that records what is prepared and run, and checks that A and B are
    filled and C was written since the last run."""

    pads = True

    def __init__(self):
        self.ran, self.sizes = [], []

    def empty(self, size, dtype):
        self.sizes.append(size)
        return np.full(size, np.nan, dtype)

    def fill(self, array, fill, matrix):
        array[...] = 1

    def set(self, array, value):
        array.fill(value)

    def prepare_gemms(self, gemms, beta):
        def multiply():
            for a, b, c in gemms:
                assert np.all(a == 1) and np.all(b == 1)
                assert np.isnan(c).all() if beta == 0 else np.all(c == 0)
                c[...] = 2
                self.ran.append((*c.shape, a.shape[1], *(max(x.strides) for x in (a, b, c))))

        return multiply


@pytest.fixture
def quick(monkeypatch):
    """Every timed call takes a millisecond."""

    def timed(comm, function):
        function()
        return Timed(1e-3)

    monkeypatch.setattr(roof, "timed", timed)


@pytest.mark.parametrize("updates", [False, True])
@pytest.mark.parametrize("transpose", ["", "ab"])
def test_known_gemms_are_not_searched_again_and_need_no_more_memory(quick, transpose, updates):
    problem = Problem(8, 12, 20, 4, transpose=transpose, updates=updates)
    first, again = Work(), Work()
    found = GemmOnly(problem, None, first, None)
    assert len(set(first.ran)) == len(problem.local_shapes()) > 3
    known = GemmOnly(problem, None, again, None, found.gemms)
    (m,), n, k, padded = found.gemms
    assert known.gemms == found.gemms and again.sizes == [m * k, k * n, m * n] and not padded
    assert len(again.ran) == 1  # to touch the pages before the samples
    known.sample()
    assert [each[:3] for each in again.ran] == [(m, n, k)] * 2


@pytest.mark.parametrize("transpose", ["", "a", "b", "ab"])
@pytest.mark.parametrize("shape", [(512, 1024, 2048), (300, 260, 515), (8, 2048, 8)])
def test_each_shape_is_tried_with_the_row_strides_of_padded_matrices_and_without(
    quick, shape, transpose
):
    """As NumPy and BLAS would see them: a stored row of 1 KiB or more begins at an odd number of
    cache lines after the one before."""
    problem, work_ = Problem(*shape, 2, transpose=transpose), Work()
    GemmOnly(problem, None, work_, None)

    def strides(m, n, k, padded):
        widths = m if "a" in transpose else k, k if "b" in transpose else n, n
        lines = (-(-4 * width // 64) for width in widths)
        return [
            64 * (line + 1 - line % 2) if padded and 4 * width >= 1024 else 4 * width
            for width, line in zip(widths, lines)
        ]

    expected = {
        (m, n, k, *strides(m, n, k, padded))
        for (m,), n, k in problem.local_shapes()
        for padded in (False, True)
    }
    assert {*work_.ran} == expected
    assert sorted(work_.sizes) == sorted(elements(problem, gemms_to_try(problem)).values())


def test_devices_have_no_padded_rows(quick):
    work_ = Work()
    work_.pads = False
    assert not GemmOnly(Problem(1024, 1024, 1024, 2), None, work_, None).gemms.padded
    assert len({each[:3] for each in work_.ran}) == len({*work_.ran})


def test_the_roof_of_experts_is_a_gemm_for_each_expert_with_rows(quick):
    problem = ExpertProblem(40, 12, 20, 2, experts=30, topk=2, routing="skewed")
    counts = [stop - start for _, (start, stop), _ in problem.batches()]
    assert 1 < len(counts) < 30 and sum(counts) == 80
    work_, gemms = Work(), LocalGemms(tuple(counts), 6, 20)
    known = GemmOnly(problem, SimpleNamespace(size=2), work_, None, gemms)
    work_.ran.clear()
    known.sample()
    assert [each[:3] for each in work_.ran] == [(count, 6, 20) for count in counts]
    assert known.flops == problem.flops
    assert work_.sizes == [80 * 20, len(counts) * 20 * 6, 80 * 6]


@pytest.mark.parametrize("extent", [64, 128])
def test_one_rank_that_moves_nothing_is_not_faster_than_its_gemms_alone(extent):
    """Operands prepared in the timed region, or a cold C, made it twice as fast."""
    case = Case(extent, extent, extent, gemm_only=True, iters=40, budget=0.0, threads=1)
    found = run_case(case, MPI.COMM_SELF)
    assert found.status == "ok" and found.percent_of_gemm_only_low <= 100
