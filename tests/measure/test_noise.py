"""The interval of a median has its stated coverage, whatever the distribution of times; repeats
stop when it is narrow, and rows that prove nothing are marked."""

from math import ceil, comb
from statistics import median

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up import made_up

from drbench.measure.noise import (
    DISTURBED,
    FEWEST,
    LEAST_SHARE,
    MOST_REPEATS,
    Timed,
    cores_had,
    doubts,
    enough,
    interquartile_range,
    is_noisy,
    is_stable,
    median_interval,
    median_ranks,
    most_repeats,
    nearest_to_median,
    ratio_columns,
    time_columns,
    undisturbed,
)

times = st.floats(1e-6, 1e3)


@pytest.mark.parametrize("samples", [*range(1, MOST_REPEATS + 1), 500, 1000])
def test_the_ranks_are_the_innermost_that_hold_the_median_with_95_percent(samples):
    """Each sample is below the median or above, for any distribution: all combinations are
    counted."""
    ways = [comb(samples, below) for below in range(samples + 1)]
    # sample low is below the median, and the one as far from the other end above
    covers = lambda low: sum(ways[low + 1 : samples - low]) * 100 >= 95 * sum(ways)
    low, high = median_ranks(samples) or (-1, samples)
    assert (low >= 0) == (samples >= FEWEST) == covers(0)
    assert low + high == samples - 1 and not covers(low + 1)
    if low >= 0:
        assert covers(low) and median_interval([*range(samples)][::-1]) == (low, high)


@pytest.mark.parametrize("samples", [1024, 1100, 20000])
def test_thousands_of_samples_have_the_order_statistics_of_the_normal_distribution(samples):
    """Rows of one case are merged: 2 to the power of the samples is no float then."""
    low, high = median_ranks(samples)
    assert low + high == samples - 1
    assert low == pytest.approx(samples / 2 - 1.96 * (samples / 4) ** 0.5, abs=1.5)


#: Ways times are spread with the median 1: (generator, n) -> n times, and how often the interval
#: holds the median at least if one stops when it is narrow.
SPREADS = {
    "normal": (lambda draw, n: 1 + 0.05 * draw.standard_normal(n), 0.90),
    "one-sided": (lambda draw, n: 1 + 0.1 * (draw.exponential(size=n) - numpy.log(2)), 0.86),
}


@pytest.mark.parametrize("spread, least", SPREADS.values(), ids=list(SPREADS))
def test_stopping_after_any_repeat_costs_a_few_of_the_95_percent(spread, least):
    held = stopped = 0
    draw = numpy.random.default_rng(3)
    for _ in range(600):
        source, samples = iter(spread(draw, MOST_REPEATS)), []
        while not enough(samples, 0.0, 6, 60.0):
            samples.append(float(next(source)))
        low, high = median_interval(samples)
        held += low <= 1 <= high
        stopped += len(samples) < MOST_REPEATS
    assert held / 600 > least and stopped > 300


@given(
    samples=st.lists(times, max_size=2 * MOST_REPEATS),
    spent_s=st.floats(0, 100),
    least=st.integers(1, 2 * MOST_REPEATS),
    budget_s=st.floats(0, 50),
    ratios=st.lists(times, max_size=20),
)
def test_repeats_continue_until_the_median_is_known_or_the_budget_is_spent(
    samples, spent_s, least, budget_s, ratios
):
    """Where a reference was timed with each repeat, the ratios to it must be stable."""
    done = enough(samples, spent_s, least, budget_s, ratios)
    if len(samples) < least:
        assert not done
    elif budget_s == 0 or spent_s >= budget_s or len(samples) >= MOST_REPEATS:
        assert done
    else:
        assert done == is_stable(ratios if ratios else samples)


lost = st.sampled_from([0.0, DISTURBED, DISTURBED + 1e-9, 0.5])


@given(st.lists(st.tuples(lost, lost), min_size=1, max_size=12), st.integers(1, 12))
def test_repeats_count_if_all_ranks_had_their_cores_and_a_row_is_noisy_if_most_did_not(
    shares, least
):
    """Or if the median repeat lost much of its core. Where too few repeats count, all do."""
    repeats = [tuple(Timed(1.0, share) for share in each) for each in shares]
    fine = [place for place, each in enumerate(shares) if max(each) <= DISTURBED]
    counted = fine if len(fine) >= least else [*range(len(shares))]
    assert undisturbed(repeats, least) == counted
    found = cores_had(repeats, counted)
    bad = [place for place in range(len(shares)) if place not in fine]
    assert found.disturbed == len(bad)
    share = 1 - median(shares[place][0] for place in counted)
    assert found.core_share == pytest.approx(share, abs=1e-4)
    bad_ones = len({*bad} & {*counted})
    assert found.lacking == (2 * bad_ones > len(counted) or share < LEAST_SHARE)


@pytest.mark.parametrize("due", [1.0, 0.5, 0.25])
def test_ranks_that_share_cores_are_judged_by_their_due_share(due):
    alone, shared = (Timed(1 / due, 1 - due, 1.0),), (Timed(2 / due, 1 - due / 2, 1.0),)
    assert not cores_had([alone] * 3, range(3), due).lacking
    assert cores_had([shared] * 3, range(3), due).lacking
    assert cores_had([shared] * 3, range(3), None) == (0, None, False)


@given(repeat_s=st.floats(1e-3, 10), least=st.integers(1, 150), budget_s=st.floats(0, 20))
def test_the_most_repeats_are_those_of_a_median_that_is_never_stable(repeat_s, least, budget_s):
    unstable = [1.0, 3.0] * 200
    made = next(n for n in range(1, 400) if enough(unstable[:n], n * repeat_s, least, budget_s))
    assert abs(most_repeats(repeat_s, least, budget_s) - made) <= 1  # n * x / x rounds
    assert most_repeats(repeat_s, least, 0) == least


@given(st.lists(times, min_size=2, max_size=40))
def test_the_interquartile_range_is_numpys(samples):
    low, high = numpy.percentile(samples, (25, 75))
    assert interquartile_range(samples) == pytest.approx(high - low, abs=1e-9)


@given(st.lists(times, min_size=1, max_size=40))
def test_a_median_is_stable_if_half_of_its_interval_is_within_two_percent(samples):
    interval = median_interval(samples)
    expected = interval is not None and (interval[1] - interval[0]) / 2 <= 0.02 * median(samples)
    assert is_stable(samples) == expected


@pytest.mark.parametrize(
    "samples, ratios, noisy",
    [
        ([1.0] * 8, [100.0] * 8, False),
        ([1.0] * 8, [], False),
        ([1.0] * 8, [110.0] * 8, False),
        ([1.0] * 8, [110.5] * 8, True),  # faster than the local GEMMs alone
        ([1.0] * 8, [90.0] * 5 + [500.0] * 3, True),  # the middle half of the ratios is wide
        ([1.0] * 5 + [1.3] * 3, [], True),
        ([1.0] * 5 + [1.3] * 3, [95.0] * 8, False),  # the machine changed its speed: both of a pair
        ([1.0] * 7 + [9.0], [], False),  # one outlier of many
        ([1.0, 1.0, 1.25], [], True),  # few: all of them count
        ([1.0, 1.0, 1.15], [], False),
        ([1.0], [95.0], False),
    ],
)
def test_rows_that_prove_nothing_are_noisy(samples, ratios, noisy):
    assert is_noisy(samples, ratios) is noisy


@given(st.lists(times, min_size=1, max_size=60), st.lists(times, min_size=1, max_size=60))
def test_the_columns_are_of_the_record_and_ordered(samples, ratios):
    record = made_up(**time_columns(samples, ratios), **ratio_columns(ratios))
    assert record.best_s == min(samples) <= record.median_s == median(samples) == record.time_s
    if len(samples) >= FEWEST:
        assert record.best_s <= record.median_low_s <= record.median_s <= record.median_high_s
    else:
        assert record.median_low_s is record.median_high_s is None
    assert record.stable == is_stable(ratios)
    assert (
        record.percent_of_gemm_only_min
        <= record.percent_of_gemm_only
        <= record.percent_of_gemm_only_max
    )
    if len(ratios) >= FEWEST:
        low, high = record.percent_of_gemm_only_low, record.percent_of_gemm_only_high
        assert record.percent_of_gemm_only_min <= low <= record.percent_of_gemm_only <= high


@given(st.lists(times, min_size=1, max_size=9))
def test_the_sample_nearest_to_the_median_is_it_or_the_one_below(samples):
    assert samples[nearest_to_median(samples)] == sorted(samples)[ceil(len(samples) / 2) - 1]


def test_doubts_are_words_and_an_unknown_value_is_none():
    text = doubts(made_up(noisy=True, oversubscribed=True, stable=False))
    assert text == ["noisy", "oversubscribed", "not stable"]
    assert (
        doubts(made_up(noisy=False, oversubscribed=False, stable=True)) == doubts(made_up()) == []
    )
