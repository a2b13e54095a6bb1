"""The one decision on who is fastest, against a slow oracle, and on the records that once lied."""

from math import comb, log
from statistics import median

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from made_up import made_up

from drbench.measure.decision import (
    CORES,
    FASTEST,
    QUIET,
    SLOWER,
    TIED,
    UNDECIDED,
    answer,
    best_at,
    decide,
    leaders,
)


def run(times, roofs=(), **more):
    """The rounds of a case."""
    roofs = roofs or [None] * len(times)
    return {
        at: made_up(median_s=s, samples_s=[s], gemm_only_gflops=speed, case=f"{at} | x", **more)
        for at, (s, speed) in enumerate(zip(times, roofs))
    }


def interval_of_median(values):
    """Of all pairs of order statistics that enclose the median with 95 %, the innermost."""
    count, ordered = len(values), sorted(values)
    for at in reversed(range(count // 2)):
        outside = 2 * sum(comb(count, heads) for heads in range(at + 1)) / 2**count
        if outside <= 0.05:
            return ordered[at], ordered[count - 1 - at]
    return None


def by_hand(runs):
    """The states of cases of one problem that ran in rounds and are all quiet, none of them alone;
    None if in the common rounds each is slower than some other."""
    times = [{at: row.time_s for at, row in each.items()} for each in runs]
    pairs = lambda a, b: [times[a][at] / times[b][at] for at in times[a] if at in times[b]]
    every = range(len(runs))
    able = [at for at in every if len(times[at]) >= 6] or every
    unbeaten = [b for b in able if all(median(pairs(a, b)) >= 1 for a in able)]
    if len(unbeaten) != 1:
        return None
    (best,) = unbeaten
    changes = []
    for each in runs:
        for at in each:
            if at - 1 in each:
                changes.append(abs(each[at].gemm_only_gflops / each[at - 1].gemm_only_gflops - 1))
    d, states = median(changes), {}
    for at in every:
        found = interval_of_median(pairs(at, best))
        if at == best:
            continue
        if found is None:
            states[at] = UNDECIDED
        elif found[0] >= 1 - d and found[1] <= 1 + d:
            states[at] = TIED
        else:
            states[at] = SLOWER if found[0] > 1 and found[1] > 1 + d else UNDECIDED
    kinds = set(states.values())
    states[best] = UNDECIDED if UNDECIDED in kinds else TIED if TIED in kinds else FASTEST
    return [states[at] for at in every]


factors = st.floats(0.9, 1.1)


@given(st.data())
def test_the_decision_on_random_rounds_is_that_of_a_slow_oracle(data):
    """On a machine that drifts, with unequal numbers of rounds."""
    most = data.draw(st.integers(2, 12))
    drift = data.draw(st.lists(st.floats(0.5, 2.0), min_size=most, max_size=most))
    noise = data.draw(st.sampled_from([0.001, 0.02, 0.2]))
    runs = []
    for _ in range(data.draw(st.integers(2, 5))):
        rounds = data.draw(st.integers(2, most))
        speed = data.draw(st.sampled_from([1.0, 1.01, 1.05, 1.5]))
        jitter = data.draw(st.lists(st.floats(-1, 1), min_size=most, max_size=most))
        roof = data.draw(st.lists(factors, min_size=most, max_size=most))
        times = [speed * drift[at] * (1 + noise * jitter[at]) for at in range(rounds)]
        runs.append(run(times, [100 * roof[at] for at in range(rounds)]))
    expected = by_hand(runs)
    assume(expected is not None)
    assert [each.state for each in decide(runs)] == expected
    best = best_at(decide(runs))
    lead = leaders(decide(runs))
    assert lead[0] == best and {*lead} == {at for at, s in enumerate(expected) if s != SLOWER}


@given(st.permutations(range(5)), st.lists(st.sampled_from([1.0, 1.1]), min_size=5, max_size=5))
def test_the_order_of_records_decides_nothing_and_equal_times_are_ordered_one_way(order, times):
    steady = [100.0, 99.0, 101.0, 100.0, 99.0, 100.0]
    runs = [
        run([s] * 6, steady, stationary="ABC"[at % 3], a=f"row/c{at // 3 + 1}")
        for at, s in enumerate(times)
    ]
    found, moved = decide(runs), decide([runs[at] for at in order])
    assert [found[at] for at in order] == moved
    first = [at for at in range(5) if times[at] == min(times)]
    assert best_at(found) == min(first, key=lambda at: (-(at % 3), at // 3))


def test_a_case_with_fewer_rounds_can_be_the_best_unless_the_sweep_dropped_it():
    """It ran while the machine was slow."""
    long = run([3.0] * 6 + [1.0] * 6, [50.0] * 6 + [150.0] * 6)
    short = run([2.0] * 6, [50.0] * 6)
    assert [each.state for each in decide([long, short])] == [SLOWER, FASTEST]
    assert best_at(decide([long, short], dropped=[1])) == 0


@pytest.mark.parametrize(
    "doubt, needs",
    [
        ({"noisy": True}, QUIET),
        ({"oversubscribed": True}, CORES),
        ({"status": "wrong", "reason": "1 element differs"}, None),
    ],
)
def test_doubtful_rows_are_never_ranked_and_never_named(doubt, needs):
    failed = "status" in doubt
    bad = run([0.1] * 6, **doubt)
    quick, slow, names = run([1.0] * 6), run([2.0] * 6), ["bad", "quick", "slow"]
    found = decide([bad, quick, slow])
    assert [each.state for each in found] == [UNDECIDED, FASTEST, SLOWER]
    assert not found[0].ranked and answer(found, names) == "quick is fastest"
    assert needs is None or found[0].needs == needs
    # compared with nothing but a doubtful row
    state = FASTEST if failed else UNDECIDED
    found = decide([bad, quick])
    assert found[1].state == state and "bad" not in answer(found, names)
    found = decide([run([0.3] * 6, **doubt), bad])
    assert best_at(found) is None and answer(found, names).startswith("nothing is ranked")
    if not failed:  # its ratio is to its like
        assert found[0].ratio.middle == pytest.approx(3)


def test_rows_measured_one_after_the_other_are_decided_only_by_their_own_intervals():
    """Their intervals, widened by the change of the GEMM-only speed; a tie is never shown."""
    every = [(r, c, k) for r in (1.0, 1.1, 1.3, 2.0) for c in (1.0, 0.7) for k in (True, False)]
    for ratio, change, known in every:
        make = lambda middle, speed: {
            0: made_up(
                best_s=middle,
                median_s=middle,
                samples_s=[middle] * 9,
                median_low_s=0.97 * middle,
                median_high_s=1.03 * middle,
                gemm_only_gflops=speed if known else None,
            )
        }
        first, second = decide([make(1.0, 100.0), make(ratio, 100.0 * change)])
        apart = known and ratio * 0.97 / 1.03 * change > 1
        assert second.state == (SLOWER if apart else UNDECIDED)
        assert first.state == (FASTEST if apart else UNDECIDED)


@given(*[st.floats(0.5, 2.0)] * 2, *[st.floats(0.01, 0.3)] * 2)
def test_predictions_are_tied_where_the_interval_of_their_ratio_contains_1(a, b, own, other):
    def make(s, width, shared=False):
        low, high = s / (1 + width), s * (1 + width)
        interval = {"median_low_s": low, "median_high_s": high}
        samples = [s, low, high, s] * shared
        return {0: made_up(mode="simulated", best_s=s, samples_s=samples, **interval)}

    assume(a != b)
    found = decide([make(a, own), make(b, other)])
    width = (log(1 + own) ** 2 + log(1 + other) ** 2) ** 0.5
    tied = abs(log(a / b)) <= width
    assert sorted(each.state for each in found) == ([TIED, TIED] if tied else [FASTEST, SLOWER])
    # most of the interval is constants that both share
    if abs(log(a / b)) > 1e-6:
        found = decide([make(a, own, True), make(b, own, True)])
        assert sorted(each.state for each in found) == [FASTEST, SLOWER]
    exact = [{0: made_up(mode="simulated", best_s=s)} for s in (a, b, min(a, b))]
    states = [each.state for each in decide(exact)]
    assert states == [SLOWER if s > min(a, b) else TIED for s in (a, b, min(a, b))]
