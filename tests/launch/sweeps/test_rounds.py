"""Rounds: each contender once in each, in changing order; ratios of the same round; contenders with
a known ratio leave, and contenders within noise are not ranked."""

from collections import Counter, defaultdict
from contextlib import nullcontext
from dataclasses import replace
from random import Random
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up import made_up

from drbench.errors import UsageError
from drbench.measure.decision import FASTEST, SLOWER, decide
from drbench.measure.noise import MOST_REPEATS, ratio_of
from drbench.measure.record_file import read_csv
from launch.cases.case import Case, case_keys
from launch.host.show import console
from launch.sweeps.experiment import run_rounds
from launch.sweeps.rounds import (
    Experiment,
    Job,
    pooled,
    rotated,
    round_of,
)
from launch.sweeps.supervisor import Settings

CASE = Case(8, 8, 8, iters=5, budget=1000.0)


def row(seconds, **more):
    times = {"best_s": seconds, "median_s": seconds, "samples_s": [seconds]}
    return made_up(**{"m": 8, "n": 8, "k": 8, "warmup": 1, **times} | more)


def played(groups, seconds_of, least=6, budget_s=1e9, probe=False):
    """Run turns of contenders with times ``seconds_of(name, turn)``: return the names in order, and
    each contender's records by turn."""
    done, order, runs = {}, [], defaultdict(dict)
    more = {"iters": least, "budget": budget_s}
    jobs = [[Job(name, 2, replace(case, **more)) for name, case in g.items()] for g in groups]
    for name, _, case in Experiment(jobs, "known", probe).todo(done):
        who, turn = name.partition(" | ")[2], round_of(name)
        found = seconds_of(who, turn)
        done[name] = row(found, case=name) if not isinstance(found, dict) else made_up(**found)
        order.append((who, turn, case))
        runs[who][turn] = done[name]
    return order, runs


def probed(names, seconds_of, budget_s=1e9):
    """The records by turn of each contender of a probe."""
    return played([dict.fromkeys(names, CASE)], seconds_of, 5, budget_s, probe=True)[1]


def test_a_probe_finds_the_fastest_and_spends_its_turns_on_close_contenders():
    """Eight contenders, each 10 % slower than the one before, times that scatter by 3 %, and a
    machine that slows down for some rounds."""
    right = 0
    for seed in range(60):
        random = Random(seed)
        names = random.sample("abcdefgh", 8)
        slow = [random.choice([1.0, 1.0, 1.5]) for _ in range(MOST_REPEATS)]
        seconds = lambda who, turn: (
            1.1 ** "abcdefgh".index(who) * slow[turn] * random.gauss(1, 0.03)
        )
        runs = probed(names, seconds)
        counts = sorted(len(run) for run in runs.values())
        assert counts[:4] == [5] * 4 and counts[4:6] == [10] * 2 and counts[6] == counts[7] >= 10
        right += decide([*runs.values()])[[*runs].index("a")].best
    assert right >= 58


def test_a_probe_ends_in_a_tie_within_the_budget_or_2_percent():
    random = Random(1)
    noisy = probed("ab", lambda who, turn: random.gauss(1, 0.1), budget_s=60.0)
    assert len(noisy["a"]) == len(noisy["b"]) < MOST_REPEATS
    assert not any(each.state in (FASTEST, SLOWER) for each in decide([*noisy.values()]))
    same = probed("ab", lambda who, turn: 1.0)
    assert [len(run) for run in same.values()] == [6, 6]  # the fewest turns that have an interval
    apart = probed("ab", lambda who, turn: 1.0 + (who == "b"))
    assert [len(run) for run in apart.values()] == [6, 6]


def test_a_contender_that_fails_in_a_probe_has_no_further_turn_and_a_single_one_needs_no_second():
    refused = {"status": "failed", "reason": "no"}
    runs = probed("abc", lambda who, turn: refused if who == "b" else 1.0 + (who == "c"))
    assert len(runs["b"]) == 1 and len(runs["a"]) == len(runs["c"]) == 6
    assert len(probed("a", lambda who, turn: 1.0)["a"]) == 1
    alone = probed("ab", lambda who, turn: refused if who == "b" else 1.0)
    assert [len(run) for run in alone.values()] == [1, 1]


@given(st.integers(1, 9), st.integers(1, 40))
def test_each_is_once_in_each_round_and_a_steady_drift_cancels_in_every_two(count, pairs):
    orders = [rotated(range(count), turn) for turn in range(2 * pairs)]
    assert all(sorted(order) == list(range(count)) for order in orders)
    for even, odd in zip(orders[::2], orders[1::2]):
        assert {even.index(each) + odd.index(each) for each in range(count)} == {count - 1}
    firsts = Counter(order[0] for order in orders)
    assert max(firsts.values()) - min(firsts.get(each, 0) for each in range(count)) <= 2


def test_ratios_are_of_the_same_round_on_a_machine_that_drifts():
    """Three times as slow in the end: times of one contender after the other would be wrong."""
    speed = {"a": 1.0, "b": 1.05, "c": 1.3}
    _, runs = played([dict.fromkeys(speed, CASE)], lambda who, turn: speed[who] * (1 + turn / 3))
    found = dict(zip(runs, decide(list(runs.values()))))
    assert [found[who].best for who in "abc"] == [True, False, False]
    for who in "bc":
        assert tuple(found[who].ratio) == pytest.approx((speed[who],) * 3)


def test_contenders_with_a_known_ratio_leave_and_the_fastest_stays_as_the_reference():
    noise = Random(7)
    factor = {"fastest": 1.0, "known": 1.2, "unsure": 1.02}

    def seconds_of(who, turn):
        return factor[who] * (1 + (noise.gauss(0, 0.08) if who == "unsure" else 0))

    order, runs = played([dict.fromkeys(factor, CASE)], seconds_of)
    played_of = Counter(who for who, _, _ in order)
    assert played_of["known"] == 6 and played_of["unsure"] == played_of["fastest"] > 15
    ratios = [runs["unsure"][turn].time_s for turn in runs["unsure"]]
    low, high = ratio_of(ratios)[1:]
    assert high - low <= 2 * 0.02 * median(ratios) or len(ratios) == MOST_REPEATS


def test_the_budget_ends_the_rounds_and_without_one_their_number_is_exact():
    noise = Random(3)
    seconds_of = lambda who, turn: 0.5 * noise.choice([1.0, 2.0])
    two = [{"a": CASE, "b": CASE}]
    order, _ = played(two, seconds_of, least=3, budget_s=0)
    assert Counter(who for who, _, _ in order) == {"a": 3, "b": 3}
    order, runs = played(two, seconds_of, least=3, budget_s=12)
    spent = [0.03 + 2 * record.time_s for record in runs["b"].values()]
    assert sum(spent[:-1]) < 12 and len(spent) > 3
    order, _ = played(two, lambda who, turn: noise.choice([1e-6, 2e-6]), 200, 1e9)
    assert Counter(who for who, _, _ in order) == {"a": 200, "b": 200}


def test_groups_are_compared_within_and_measured_in_the_same_rounds():
    groups = [{"a": CASE, "b": CASE}, {"c": CASE, "d": CASE}]
    times = {"a": 1.0, "b": 1.5, "c": 5.0, "d": 4.0}
    order, _ = played(groups, lambda who, turn: times[who])
    by_turn = defaultdict(list)
    for who, turn, _ in order:
        by_turn[turn].append(who)
    assert len(by_turn) == 6 and all(sorted(each) == list("abcd") for each in by_turn.values())
    assert [each[0] for each in by_turn.values()] == "a d d a a d".split()


def test_a_contender_that_failed_has_no_further_turn_and_no_ratio():
    bad = {"status": "timeout", "reason": "60 s"}
    order, runs = played(
        [{"a": CASE, "b": CASE}], lambda who, turn: bad if (who, turn) == ("b", 1) else 1.0
    )
    assert len(runs["b"]) == 2 and len(runs["a"]) == 6  # a alone is compared with nobody
    a, b = decide([runs["a"], runs["b"]])
    assert a.state == FASTEST and b.ratio is None and not b.ranked


def test_a_finished_comparison_has_no_further_turns():
    """The next turns depend only on the finished ones."""
    noise = Random(5)
    group = [Job(name, 2, replace(CASE, budget=3.0)) for name in "abc"]
    experiment, done = Experiment([group], "known"), {}
    for name, _, _ in experiment.todo(done):
        done[name] = row(noise.uniform(0.01, 0.02))
    before = len(done)
    assert {job.name for job in experiment.todo(done)} == set(done)
    assert len(done) == before > 15


def test_with_a_roof_the_first_turn_is_the_whole_case_and_the_others_one_repeat():
    case = replace(CASE, roof=True, budget=2.0, iters=3)
    order, _ = played([{"a": case}], lambda who, turn: 1.0, least=3, budget_s=2.0)
    assert [each for _, _, each in order] == [
        case,
        *[replace(case, iters=1, budget=0.0, roof=False)] * 2,
    ]
    order, _ = played([{"a": CASE}], lambda who, turn: 1.0, least=2)
    assert {(each.iters, each.budget) for _, _, each in order} == {(1, 0.0)}


def test_rounds_weigh_alike_and_percent_of_the_roof_is_of_the_rounds_that_have_it():
    first = row(1.0, samples_s=[1.0, 9.0, 9.0], median_s=9.0, percent_of_roof=80.0, noisy=False)
    found = pooled([replace(first, percent_of_roof_low=70.0), row(2.0), row(3.0)])
    assert found.samples_s == [1.0, 2.0, 3.0] and found.median_s == 2.0
    assert (found.percent_of_roof, found.percent_of_roof_low) == (80.0, 70.0)
    roofed = [
        row(1.0, percent_of_roof=each, percent_of_roof_low=1.0) for each in (90.0, 70.0, 80.0)
    ]
    assert pooled(roofed).percent_of_roof == 80.0 and pooled(roofed).percent_of_roof_low is None


@pytest.fixture
def fake_ranks(monkeypatch):
    """The cases given to ranks that answer at once."""
    ran = []

    def measure(job):
        ran.append(job.name)
        known = case_keys(job.case) | {"mode": "measured", "status": "ok"}
        seconds = job.case.m / 8 * (1 + round_of(job.name))
        return row(seconds, **{k: v for k, v in known.items() if k not in "mnk"})

    monkeypatch.setattr("launch.sweeps.experiment.supervised", lambda *_: nullcontext(measure))
    return ran


def test_rounds_are_kept_with_one_row_for_each_contender_and_not_run_again(fake_ranks, tmp_path):
    cases, out = [replace(CASE, m=m) for m in (8, 16, 24, 32)], tmp_path / "out"
    settings, run_cli = Settings(), console()
    found = run_rounds(cases, 2, settings, run_cli, str(out))
    assert len(fake_ranks) == 4 * 6
    assert [list(run) for run in found] == [list(range(6))] * 4
    rows, turns_of = read_csv(out / "records.csv"), read_csv(out / "rounds" / "records.csv")
    assert [len(each.samples_s) for each in rows] == [6] * 4 and len(turns_of) == 24
    assert run_rounds(cases, 2, settings, run_cli, str(out)) == found and len(fake_ranks) == 24
    assert read_csv(out / "records.csv") == rows


def test_the_records_of_another_run_are_not_overwritten(fake_ranks, tmp_path):
    (tmp_path / "records.csv").write_text("something\n")
    with pytest.raises(UsageError, match="another run"):
        run_rounds([CASE], 2, Settings(), console(), str(tmp_path))
    assert (tmp_path / "records.csv").read_text() == "something\n" and not fake_ranks
