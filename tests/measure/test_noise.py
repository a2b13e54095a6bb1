"""The interval of a median covers it as often as it says, whatever times are like; repeats stop
when it is narrow, and rows that prove nothing are marked."""

from itertools import product
from math import ceil
from statistics import median

import numpy
import pytest
from hypothesis import given, settings
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
#: Ways times are spread, all with the median 1: name -> (generator, n) -> n times.
SPREADS = {
    "normal": lambda draw, n: 1 + 0.05 * draw.standard_normal(n),
    "one-sided": lambda draw, n: 1 + 0.1 * (draw.exponential(size=n) - numpy.log(2)),
    "heavy tails": lambda draw, n: 1 + 0.01 * draw.standard_cauchy(n),
    "two speeds": lambda draw, n: 1 + draw.choice([-1, 1], n) * (0.2 + 0.01 * draw.random(n)),
    "log-normal": lambda draw, n: numpy.exp(0.3 * draw.standard_normal(n)),
}


@pytest.mark.parametrize("samples", range(1, 15))
def test_the_ranks_are_the_innermost_that_hold_the_median_with_95_percent(samples):
    """Each sample is below the median or above: all ways are counted one by one."""
    below = [sum(way) for way in product((0, 1), repeat=samples)]

    def covers(low, high):  # sample low is below the median, and sample high above
        return sum(low < count <= high for count in below) / len(below)

    places = [(i, samples - 1 - i) for i in range((samples + 1) // 2)]
    fitting = [each for each in places if each[0] < each[1] and covers(*each) >= 0.95]
    assert median_ranks(samples) == (fitting[-1] if fitting else None)
    assert (samples >= FEWEST) == bool(fitting)


@pytest.mark.parametrize("samples", [1023, 1024, 1100, 5000, 20000])
def test_thousands_of_samples_have_the_ranks_of_the_normal_distribution(samples):
    """Rows of one case are merged: 2 to the power of the samples is no float then."""
    low, high = median_ranks(samples)
    assert low + high == samples - 1
    assert low == pytest.approx(samples / 2 - 1.96 * (samples / 4) ** 0.5, abs=1.5)


@pytest.mark.parametrize("spread", SPREADS)
@settings(max_examples=8, deadline=None)
@given(samples=st.integers(FEWEST, MOST_REPEATS), seed=st.integers(0, 99))
def test_the_interval_holds_the_median_in_95_of_100_runs(spread, samples, seed):
    draw, runs = numpy.random.default_rng(seed), 1500
    found = [
        median_interval(list(each))
        for each in SPREADS[spread](draw, runs * samples).reshape(runs, samples)
    ]
    held = sum(low <= 1 <= high for low, high in found) / runs
    assert held > 0.95 - 4 * (0.95 * 0.05 / runs) ** 0.5


@pytest.mark.parametrize("spread, least", [("normal", 0.90), ("one-sided", 0.86)])
def test_looking_after_each_repeat_costs_a_few_of_the_95_percent(spread, least):
    held = stopped = 0
    draw = numpy.random.default_rng(3)
    for _ in range(600):
        source, samples = iter(SPREADS[spread](draw, MOST_REPEATS)), []
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
def test_repeats_go_on_until_the_median_is_known_or_the_budget_is_spent(
    samples, spent_s, least, budget_s, ratios
):
    """Where something was timed beside each repeat, the ratios to it have to be known."""
    done = enough(samples, spent_s, least, budget_s, ratios)
    if len(samples) < least:
        assert not done
    elif budget_s == 0 or spent_s >= budget_s or len(samples) >= MOST_REPEATS:
        assert done
    else:
        assert done == is_stable(ratios if ratios else samples)


lost = st.sampled_from([0.0, DISTURBED, DISTURBED + 1e-9, 0.5])


@given(st.lists(st.tuples(lost, lost), max_size=12), st.integers(1, 12))
def test_a_repeat_counts_if_every_rank_had_its_core_in_all_that_was_timed(shares, least):
    repeats = [tuple(Timed(1.0, share) for share in each) for each in shares]
    fine = [place for place, each in enumerate(shares) if max(each) <= DISTURBED]
    everything = list(range(len(shares)))
    assert undisturbed(repeats, least) == (fine if len(fine) >= least else everything)


def test_repeats_that_were_disturbed_do_not_count_as_made():
    """With a budget it goes on; without one nothing is left out, and there are as many as asked."""
    fine, kept = Timed(1.0), Timed(1.5, 0.4)
    repeats = [(fine,)] * 7 + [(kept,)] * 2
    assert undisturbed(repeats, 7) == list(range(7))
    assert undisturbed(repeats[:8], 8) == list(range(8))


@given(st.lists(st.tuples(lost, lost), min_size=1, max_size=12), st.integers(1, 12))
def test_a_row_lacks_its_cores_if_most_repeats_that_count_were_disturbed_or_the_median_lost_much(
    shares, least
):
    repeats = [tuple(Timed(1.0, share) for share in each) for each in shares]
    fine = [place for place, each in enumerate(shares) if max(each) <= DISTURBED]
    counted = fine if len(fine) >= least else [*range(len(shares))]
    found = cores_had(repeats, undisturbed(repeats, least))
    bad = [place for place in range(len(shares)) if place not in fine]
    assert found.disturbed == len(bad)
    share = 1 - median(shares[place][0] for place in counted)
    assert found.core_share == pytest.approx(share, abs=1e-4)
    bad_ones = len({*bad} & {*counted})
    assert found.lacking == (2 * bad_ones > len(counted) or share < LEAST_SHARE)


def test_a_row_of_disturbed_repeats_alone_is_not_as_good_as_one_of_none():
    """However few repeats there are: all counted, all disturbed, and it is said."""
    kept = (Timed(6.0, 0.83, 1.0), Timed(6.0, 0.83, 1.0))
    assert cores_had([kept] * 5, undisturbed([kept] * 5, 5)).lacking
    fine = (Timed(1.0, 0.0, 1.0),) * 2
    assert not cores_had([fine] * 5 + [kept] * 40, undisturbed([fine] * 5 + [kept] * 40, 5)).lacking


@pytest.mark.parametrize("due", [1.0, 0.5, 0.25])
def test_ranks_that_share_cores_are_judged_by_what_they_are_due(due):
    alone, beside = (Timed(1 / due, 1 - due, 1.0),), (Timed(2 / due, 1 - due / 2, 1.0),)
    assert not cores_had([alone] * 3, range(3), due).lacking
    assert cores_had([beside] * 3, range(3), due).lacking
    assert cores_had([beside] * 3, range(3), None) == (0, None, False)


@given(repeat_s=st.floats(1e-3, 10), least=st.integers(1, 150), budget_s=st.floats(0, 20))
def test_the_most_repeats_are_those_of_a_median_that_never_settles(repeat_s, least, budget_s):
    unsettled = [1.0, 3.0] * 200
    made = next(n for n in range(1, 400) if enough(unsettled[:n], n * repeat_s, least, budget_s))
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
        ([1.0] * 8, [110.5] * 8, True),  # faster than local products alone
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
def test_the_columns_are_of_the_record_and_lie_in_order(samples, ratios):
    record = made_up(**time_columns(samples, ratios), **ratio_columns(ratios))
    assert record.best_s == min(samples) <= record.median_s == median(samples) == record.time_s
    if len(samples) >= FEWEST:
        assert record.best_s <= record.median_low_s <= record.median_s <= record.median_high_s
    else:
        assert record.median_low_s is record.median_high_s is None
    assert record.stable == is_stable(ratios)
    assert record.percent_of_roof_min <= record.percent_of_roof <= record.percent_of_roof_max
    if len(ratios) >= FEWEST:
        low, high = record.percent_of_roof_low, record.percent_of_roof_high
        assert record.percent_of_roof_min <= low <= record.percent_of_roof <= high


@given(st.lists(times, min_size=1, max_size=9))
def test_the_sample_nearest_to_the_median_is_it_or_the_one_below(samples):
    assert samples[nearest_to_median(samples)] == sorted(samples)[ceil(len(samples) / 2) - 1]


def test_doubts_are_said_in_words_and_unknown_is_none():
    said = doubts(made_up(noisy=True, oversubscribed=True, stable=False))
    assert said == ["noisy", "oversubscribed", "not stable"]
    assert (
        doubts(made_up(noisy=False, oversubscribed=False, stable=True)) == doubts(made_up()) == []
    )
