"""Which cases a comparison calls slower: both ratios beyond the tolerance, and not explained by
noise."""

import random
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up import made_up

from drbench.errors import UsageError
from drbench.launch.studies.compare import (
    ALLOWED,
    OUTCOMES,
    REGRESSIONS,
    compare,
    list_failures,
    select_sides,
    summarise,
)
from drbench.plots.select.records import frame


def run(samples=(1.0,) * 5, m=64, **values):
    """One ok case; its times from its samples, or nothing but best_s."""
    samples = list(samples)
    times = {
        "best_s": min(samples),
        "median_s": sorted(samples)[len(samples) // 2],
        "samples_s": samples,
    }
    return made_up(**{"m": m, "algorithm": "universal", "label": "here", **times, **values})


def bad(m=64, status="failed", reason="rank 1 raised"):
    return made_up(status=status, reason=reason, m=m, algorithm="universal", label="here")


def outcome(old, new, tolerance=0.05):
    (pair,), _ = compare([old], [new], tolerance)
    return pair.outcome


def expected(old, new, tolerance, noisy):
    """The outcome of two sides of 1, 2, 3, 5, 7 or 10 samples, by hand."""
    ratios = [each(new) / each(old) for each in (min, median)]
    if not (all(r > 1 + tolerance for r in ratios) or all(1 / r > 1 + tolerance for r in ratios)):
        return "same"
    # the interval of a median of ten is from the second to the ninth
    ends = lambda side: [sorted(side)[at] for at in (len(side) // 10, -1 - len(side) // 10)]
    (a, b), (c, d) = map(ends, (old, new))
    if noisy or min(len(old), len(new)) > 2 and a <= d and c <= b:
        return "noise"
    return "slower" if ratios[0] > 1 else "faster"


@pytest.mark.parametrize("tolerance", [0.05, 0.25])
def test_both_ratios_must_be_beyond_the_tolerance_and_not_explained_by_noise(tolerance):
    chance, sides, want = random.Random(7), ([], []), []
    for m in range(1, 401):
        noisy = [chance.choice([None, False, False, True]) for _ in sides]
        samples = []
        for side, each in zip(sides, noisy):
            middle, spread = chance.choice([1.0, 1.1, 1.24, 1.26, 2.0]), chance.choice([9, 50, 1e9])
            drawn = lambda: middle * (1 + chance.expovariate(spread))
            samples.append([drawn() for _ in range(chance.choice([1, 3, 5, 7, 10]))])
            side.append(run(samples[-1], m=m, noisy=each))
        want.append(expected(*samples, tolerance, any(noisy)))
    pairs, _ = compare(*sides, tolerance)
    assert [pair.outcome for pair in sorted(pairs, key=lambda pair: pair.new.m)] == want
    assert min(map(want.count, ("slower", "faster", "same", "noise"))) > 20


def test_without_samples_the_ratio_decides_and_the_noise_is_called_unknown():
    pairs, _ = compare([run((1.0,))], [run((1.2,))], 0.05)
    assert (
        pairs[0].outcome == "slower"
        and pairs[0].low is None
        and summarise(pairs)["unknown_noise"] == 1
    )


@pytest.mark.parametrize(
    "factor, count, noise, most, least", [(1.0, 300, 12, 3, 0), (1.33, 40, 25, 40, 36)]
)
def test_a_slowdown_of_a_third_is_nearly_always_found_and_none_hardly_ever(
    factor, count, noise, most, least
):
    chance = random.Random(5)
    drawn = lambda mean: [
        run([mean * (1 + chance.expovariate(noise)) for _ in range(7)], m=m)
        for m in range(1, count + 1)
    ]
    pairs, _ = compare(drawn(1.0), drawn(factor), 0.05)
    assert least <= sum(pair.outcome in REGRESSIONS for pair in pairs) <= most


@pytest.mark.parametrize(
    "old, new, expected",
    [
        (run(), bad(), "broken"),
        (bad(), run(), "fixed"),
        (bad(), bad(), "failing"),
        (*[bad(status="unsupported", reason="needs 4 ranks")] * 2, "refused"),
        (bad(), bad(status="timeout", reason="60 s"), "status"),
    ],
)
def test_a_change_of_status_is_a_separate_outcome(old, new, expected):
    assert outcome(old, new) == expected


def test_cases_of_one_side_are_missing_and_new():
    pairs, _ = compare([run(m=1), run(m=2)], [run(m=2), run(m=3)], 0.05)
    assert [(pair.outcome, (pair.new or pair.old).m) for pair in pairs] == [
        ("missing", 1),
        ("new", 3),
        ("same", 2),
    ]


def test_columns_that_only_describe_the_run_do_not_distinguish_cases():
    old = run(
        label="before", environment="a", case="x", iters=5, timestamp="2026-01-01T00:00:00+00:00"
    )
    pairs, notes = compare([old], [run(label="after", environment="b", case="y", iters=9)], 0.05)
    assert pairs[0].outcome == "same" and notes == ["label differs: before and after"]


places = st.lists(st.tuples(*map(st.sampled_from, ("AB", (1, 2), (64, 128)))), min_size=1)


@settings(max_examples=12, deadline=None)
@given(places, places)
def test_rows_of_another_machine_or_number_of_nodes_are_no_repeats(old, new):
    """Matched by hand: by what a side has several of; of what each has one, whatever that is."""
    known = [[{row[at] for row in side} for at in (0, 1)] for side in (old, new)]
    matter = [*(len(known[0][at]) + len(known[1][at]) > 2 for at in (0, 1)), True]
    want = [{tuple(x for x, by in zip(row, matter) if by) for row in side} for side in (old, new)]
    times = {row: 1.0 + number for number, row in enumerate(sorted({*old, *new}))}
    tables = [
        [run([times[row]] * 5, m=row[2], label=row[0], nodes=row[1]) for row in side]
        for side in (old, new)
    ]
    if not want[0] & want[1]:
        with pytest.raises(UsageError, match="no case of OLD"):
            compare(*tables, 0.05)
        return
    pairs, notes = compare(*tables, 0.05)
    both = [pair for pair in pairs if pair.best is not None]
    assert (len(pairs), len(both)) == (len(want[0] | want[1]), len(want[0] & want[1]))
    for pair in both:
        there, here = ((row.label, row.nodes, row.m) for row in (pair.old, pair.new))
        assert all(x == y for x, y, by in zip(there, here, matter) if by)
        assert pair.best == times[here] / times[there]
    assert any("label differs" in note for note in notes) == (known[0][0] != known[1][0])


def test_any_column_is_compared_and_what_the_rest_is_matches():
    rows = [
        run([factor] * 5, m=m, threads=threads, blas_kernel=kernel, mpi="MPICH 5")
        for m in (64, 128)
        for factor, threads, kernel in ((4.0, 1, "Haswell"), (2.0, 2, "Haswell"), (3.0, 1, "Zen"))
    ]
    table = frame(rows)
    judged = lambda old, new, **by: compare(*select_sides(old, new, by), 0.05, by)[0]
    found = judged(table, None, threads="")
    assert [pair.outcome for pair in found] == ["faster"] * 2 + ["missing"] * 2
    assert [pair.best for pair in found[:2]] == [0.5, 0.5]
    assert {pair.best for pair in judged(table, None, threads="2,1")} == {2.0, None}
    assert {pair.best for pair in judged(table, None, blas_kernel="Has,Zen") if pair.best} == {0.75}
    alone = [table[table.threads == number] for number in (1, 2)]
    assert {pair.best for pair in judged(*alone, threads="") if pair.best} == {0.5}
    with pytest.raises(UsageError, match="threads is 1 there and 2 here; --by threads"):
        judged(*alone)
    for by, text in (
        ({"thread": ""}, "Did you mean threads?"),
        ({"mpi": ""}, "one value for each side"),
        ({"threads": "1,4"}, "'1', '2'"),
        ({"threads": "1,2,4"}, "OLD,NEW"),
    ):
        with pytest.raises(UsageError, match=text):
            judged(table, None, **by)
    with pytest.raises(UsageError, match="a side has cases with several"):
        judged(alone[0][alone[0].blas_kernel == "Zen"], table, threads="")


def test_two_kernels_of_one_case_are_no_repeats_but_an_update_of_all_is_compared():
    old = [run([1.0] * 5, blas_kernel="Zen"), run([2.0] * 5, blas_kernel="Haswell")]
    pairs, _ = compare(old, [run([2.0] * 5, blas_kernel="Zen")], 0.05)
    assert [(pair.outcome, pair.best) for pair in pairs] == [("slower", 2.0), ("missing", None)]
    # a sweep that was resumed with another MPI
    old, new = ([run(m=m, mpi=name) for m, name in enumerate(mpi, 1)] for mpi in ("AA", "AB"))
    pairs, notes = compare(old, new, 0.05)
    assert [pair.outcome for pair in pairs] == ["same", "same"]
    assert notes == ["mpi differs: A and A, B"]


def test_a_form_that_one_side_never_has_is_another_problem():
    with pytest.raises(UsageError, match="transpose is None there and a here"):
        compare([run()], [run(transpose="a")], 0.05)


def test_a_case_that_did_not_run_is_the_case_that_would_have_run():
    ran = {"threads": 1, "transport": "direct", "stationary": "C", "blas": "openblas", "nodes": 1}
    old = [run(m=m, **ran) for m in (64, 128)]
    new = [
        run(m=64, **ran),
        made_up(
            status="timeout",
            reason="60 s",
            m=128,
            label="here",
            algorithm="universal",
            transport="auto",
        ),
    ]
    assert [pair.outcome for pair in compare(old, new, 0.05)[0]] == ["broken", "same"]
    assert [pair.outcome for pair in compare(new, old, 0.05)[0]] == ["fixed", "same"]
    assert [pair.outcome for pair in compare(old[:1], new, 0.05)[0]] == ["failing", "same"]


@pytest.mark.parametrize(
    "counts, allowed, failed",
    [
        ({"same": 8, "missing": 7}, ("failing", "noisy"), True),
        ({"same": 8, "missing": 7}, ("missing",), False),
        ({"failing": 8}, (), True),
        ({"failing": 8, "status": 1}, ("failing",), False),
        ({"noise": 8, "new": 1, "refused": 1}, (), True),
        ({"noise": 8}, ("noisy",), False),
        ({"noise": 8, "same": 1}, (), False),
        ({"slower": 1, "noise": 1}, ALLOWED, True),
        ({"broken": 1}, ALLOWED, True),
        ({"refused": 3, "faster": 1, "fixed": 1, "new": 1}, (), False),
    ],
)
def test_what_fails_a_comparison_and_what_may_be_allowed(counts, allowed, failed):
    found = dict.fromkeys(OUTCOMES, 0) | counts
    assert bool(list_failures(found, allowed)) is failed


def test_a_column_that_one_side_never_fills_is_not_compared_by_and_reported():
    pairs, notes = compare([run()], [run(backend="numpy")], 0.05)
    assert pairs[0].outcome == "same" and notes == [
        "not compared by backend: OLD does not record it"
    ]


def test_repeated_runs_of_a_case_are_one_case():
    pairs, notes = compare([run((1.0, 1.1)), run((0.9, 1.2)), bad()], [run((0.95,) * 4)], 0.05)
    assert notes == [
        "OLD: of cases that are ok in another row, 1 failed are not compared",
        "OLD: 2 rows are repeated runs of a case, merged with it",
    ]
    assert (pairs[0].old.best_s, pairs[0].old.samples_s, pairs[0].best) == (
        0.9,
        [1.0, 1.1, 0.9, 1.2],
        0.95 / 0.9,
    )


def test_a_case_with_a_wrong_run_is_wrong_however_many_were_right():
    wrong = bad(status="wrong", reason="row 0 is wrong")
    for new in ([wrong, run()], [run(), *[wrong] * 9], [run(), run(), wrong]):
        (pair,), _ = compare([run()], new, 0.05)
        assert (pair.outcome, pair.new.status) == ("broken", "wrong")
    (pair,), _ = compare([run(), wrong], [run()], 0.05)
    assert pair.outcome == "fixed"


def test_regressions_come_first_and_the_worst_of_them_at_the_top():
    factors = {1: 1.2, 2: 3.0, 3: 1.0, 4: 0.5, 5: 2.0}
    pairs, _ = compare(
        [run(m=m) for m in factors], [run([factor] * 5, m=m) for m, factor in factors.items()], 0.05
    )
    assert [(pair.outcome, pair.new.m) for pair in pairs] == [
        ("slower", 2),
        ("slower", 5),
        ("slower", 1),
        ("faster", 4),
        ("same", 3),
    ]


def test_nothing_to_compare_is_refused():
    with pytest.raises(UsageError, match="NEW has no records"):
        compare([run()], [], 0.05)
