"""Rounds: each contender once in each, in changing order; ratios of the same round; contenders that
are slower or tied for certain leave, and contenders within noise are not ranked."""

from collections import Counter, defaultdict
from contextlib import nullcontext
from dataclasses import replace
from fractions import Fraction
from itertools import islice
from math import comb
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up import made_up

from drbench.errors import UsageError
from drbench.launch.cases.case import Case, case_keys
from drbench.launch.host.show import console
from drbench.launch.sweeps.experiment import run_rounds
from drbench.launch.sweeps.rounds import (
    Experiment,
    Job,
    pool_records,
    round_of,
)
from drbench.launch.sweeps.supervisor import Settings
from drbench.measure.decision import FASTEST, SLOWER, best_of, decide
from drbench.measure.noise import MOST_REPEATS
from drbench.measure.record_file import read_csv

CASE = Case(8, 8, 8, iters=5, budget=1000.0)


def row(seconds, **more):
    times = {"best_s": seconds, "median_s": seconds, "samples_s": [seconds]}
    return made_up(**{"m": 8, "n": 8, "k": 8, "warmup": 1, **times} | more)


def played(groups, seconds_of, least=6, budget_s=1e9, probe=False, done=None, most=None):
    """Run turns of contenders with times ``seconds_of(name, turn)``, from the rows that are
    ``done``: return the names in order, and each contender's records by turn."""
    done, order, runs = {} if done is None else done, [], defaultdict(dict)
    jobs = [[Job(name, 2, replace(CASE, budget=budget_s)) for name in group] for group in groups]
    experiment = Experiment(jobs, "known", probe, least)
    todo = (job for stage in experiment.stages for job in experiment.turns(stage, done))
    for job in islice((job for job in todo if job.name not in done), most):
        who, turn = job.name.partition(" | ")[2], round_of(job.name)
        found = seconds_of(who, turn)
        done[job.name] = row(**found) if isinstance(found, dict) else row(found)
        assert job.turn == turn and job.case.iters == CASE.iters
        order.append((who, turn))
    for name, record in done.items():
        runs[name.partition(" | ")[2]][round_of(name)] = record
    return order, runs


def probed(names, seconds_of, budget_s=1e9):
    """The records by turn of each contender of a probe."""
    return played([names], seconds_of, 5, budget_s, probe=True)[1]


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
    for seconds in (1.0, 2.0):
        runs = probed("ab", lambda who, turn, slower=seconds: slower if who == "b" else 1.0)
        # the fewest turns that have an interval
        assert [len(run) for run in runs.values()] == [6, 6]


def test_a_contender_that_fails_in_a_probe_has_no_further_turn():
    refused = {"seconds": 1.0, "status": "failed", "reason": "no"}
    runs = probed("abc", lambda who, turn: refused if who == "b" else 1.0 + (who == "c"))
    assert len(runs["b"]) == 1 and len(runs["a"]) == len(runs["c"]) == 6


def by_hand(ratios, drift):
    """Whether some ratios show slower (True), tied (False), or neither (None), by the binomial
    distribution."""
    count, order = len(ratios), sorted(ratios)
    chance, place = 0, -1
    while (chance := chance + Fraction(comb(count, place + 1), 2**count)) <= Fraction(25, 1000):
        place += 1
    if place < 0:
        return None
    low, high = order[place], order[-1 - place]
    return True if low > 1 else False if 1 - drift <= low and high <= 1 + drift else None


@given(st.data())
@settings(max_examples=60)
def test_contenders_continue_until_they_are_slower_or_tied_for_certain(data):
    """Every contender has six rounds, and then one of two reasons to stop, or no budget; the
    fastest is in every round of its group; one group is finished before the next; and a comparison
    that is stopped anywhere resumes as if it had not been."""
    random = Random(data.draw(st.integers(0, 1000)))
    sizes = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
    names = [[f"{group}{who}" for who in range(size)] for group, size in enumerate(sizes)]
    speed = {who: random.choice([1.0, 1.0, 1.01, 1.1, 2.0]) for who in sum(names, [])}
    scatter, budget_s = random.choice([0.001, 0.02, 0.1]), random.choice([0.0, 30.0, 1e9])
    bad = (random.choice(sum(names, [])), random.choice([0, 3, 99]))

    def seconds_of(who, turn):
        chance = Random(f"{who} {turn} {scatter}")
        if (who, turn) == bad:
            return {"seconds": 1.0, "status": "timeout", "reason": "60 s"}
        roof = 100.0 * 1.01**turn
        return {"seconds": speed[who] * chance.gauss(1, scatter), "gemm_only_gflops": roof}

    order, runs = played(names, seconds_of, budget_s=budget_s)
    assert len({*order}) == len(order)
    assert [who[0] for who, _ in order] == sorted(who[0] for who, _ in order)
    for group in names:
        ok = [who for who in group if who != bad[0] or bad[1] not in runs[who]]
        assert all(len(runs[who]) == bad[1] + 1 for who in group if who not in ok)
        assert all(len(runs[who]) >= 6 for who in ok)
        for who in ok:
            last = max(runs[who])
            times = lambda each, until: {t: r.time_s for t, r in runs[each].items() if t <= until}
            fails = lambda each: each == bad[0] and bad[1] <= last
            there = [each for each in group if last in runs[each] and not fails(each)]
            mine = {each: times(each, last) for each in there}
            base = best_of(mine)
            ratios = [s / mine[base][t] for t, s in times(who, last).items() if t in mine[base]]
            spent = 2 * sum(record.time_s for record in runs[who].values())
            decided = by_hand(ratios, 0.01) is not None
            assert decided or who == base or spent >= budget_s or last + 1 == MOST_REPEATS
    for most in (1, len(order) // 2):
        done = {}
        first, _ = played(names, seconds_of, budget_s=budget_s, done=done, most=most)
        rest, again = played(names, seconds_of, budget_s=budget_s, done=done)
        assert first + rest == order and again == runs


def test_a_new_case_is_compared_in_new_rounds_next_to_the_fastest():
    """Its rows are never paired with those of another day."""
    speed, done = {"a": 1.0, "b": 1.2, "new": 1.1}, {}
    seconds_of = lambda who, turn: speed[who]
    played(["ab"], seconds_of, done=done)
    order, _ = played([["a", "b", "new"]], seconds_of, done=done)
    assert Counter(who for who, _ in order) == {"new": 6, "a": 5}  # the last round was still open
    assert not played([["a", "b", "new"]], seconds_of, done=done)[0]


def test_a_noisy_machine_gets_no_further_rounds():
    random = Random(1)
    noisy = lambda who, turn: {"seconds": random.uniform(1, 2), "noisy": True}
    assert len(played(["abc"], noisy)[0]) == 18


def test_a_case_that_moves_nothing_is_no_reference():
    scatter = Random(3)

    def seconds_of(who, turn):
        layout = "row" if who == "a" else who  # a problem of one layout is measured without moving
        known = {"a": layout, "direct_bytes": 8 * (who != "a")}
        return known | {"seconds": scatter.gauss(0.1 if who == "a" else 1.0, 0.05)}

    _, runs = played(["abc"], seconds_of, budget_s=100.0)
    assert len(runs["a"]) == 6 and len(runs["b"]) == len(runs["c"]) > 12


def test_rounds_weigh_alike_and_percent_of_the_roof_is_of_the_rounds_that_have_it():
    first = row(1.0, samples_s=[1.0, 9.0, 9.0], median_s=9.0, percent_of_gemm_only=80.0)
    found = pool_records([replace(first, percent_of_gemm_only_low=70.0), row(2.0), row(3.0)])
    assert found.samples_s == [1.0, 2.0, 3.0] and found.median_s == 2.0
    assert (found.percent_of_gemm_only, found.percent_of_gemm_only_low) == (80.0, 70.0)
    three = [row(1.0, percent_of_gemm_only=each) for each in (90.0, 70.0, 80.0)]
    found = pool_records([replace(each, percent_of_gemm_only_low=1.0) for each in three])
    assert (found.percent_of_gemm_only, found.percent_of_gemm_only_low) == (80.0, None)


@pytest.fixture
def fake_ranks(monkeypatch):
    """The cases given to ranks that answer at once."""
    ran = []

    def measure(job):
        ran.append(job.name)
        known = case_keys(job.case) | {"mode": "measured", "status": "ok"}
        seconds = job.case.m / 8 * (1 + round_of(job.name))
        return row(seconds, **{k: v for k, v in known.items() if k not in "mnk"})

    monkeypatch.setattr(
        "drbench.launch.sweeps.experiment.supervised", lambda *_: nullcontext(measure)
    )
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
