"""DTensor compared with DTensor on drbench, from made-up records with known ratios."""

import pytest
from made_up import made_up

from drbench.launch.studies.libraries import OURS, STOCK, compare_placements


def row(turn, algorithm, seconds, cpu_s=None, c="S(0)", **more):
    known = {"m": 8, "n": 8, "k": 8, "a": "S(0)", "b": "S(0)", "c": c, "cpu_s": cpu_s}
    known |= {"best_s": seconds, "median_s": seconds, "samples_s": [seconds] if seconds else []}
    return made_up(algorithm=algorithm, case=f"{turn} | {algorithm} {c}", **known | more)


def test_ratios_are_of_the_same_round_on_a_machine_that_drifts():
    """Twice as slow in every other round; stock takes 1.2 times as long, and 1.5 the CPU time."""
    made = []
    for turn in range(1, 7):
        slow = 1 + turn % 2
        made += [row(turn, STOCK, 1.2 * slow, 3.0 * slow), row(turn, OURS, slow, 2.0 * slow)]
    made.append(row(7, STOCK, 50.0, 50.0))  # a round that the other has not yet
    (line,) = compare_placements(made)
    assert tuple(line.time) == pytest.approx((1.2,) * 3) and line.rounds == 6
    assert tuple(line.cpu) == pytest.approx((1.5,) * 3)


def test_a_multiplication_that_failed_has_no_ratio_and_a_reason():
    made = [row(1, STOCK, 1.0, 1.0), row(1, OURS, None, status="failed", reason="no memory")]
    (line,) = compare_placements(made)
    assert line.time is None and line.cpu is None
    assert (line.ours.status, line.ours.reason) == ("failed", "no memory")


def test_multiplications_are_distinguished_by_their_placements():
    made = [row(1, who, 1.0, 1.0, c=c) for c in ("S(0)", "S(1)") for who in (STOCK, OURS)]
    assert [line.placements[2] for line in compare_placements(made)] == ["S(0)", "S(1)"]
