"""Whole chains on ranks: every matrix is exactly what NumPy makes of the whole ones, in layouts and
ways drawn at random, on every transport, at several look-aheads."""

import json
import random

import pytest

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(240)]

#: On two ranks a partial sum for the other rank's tile is one of its steps.
SUMS = [[7, [8, 8, 8, 8], ["relu", ""], True, 26021]]


def cases(seed, count):
    rng = random.Random(seed)
    found = []
    for x in range(count):
        multiplications = rng.choice([1, 2, 2, 3])
        widths = [rng.choice([4, 5, 8, 12]) for _ in range(multiplications + 1)]
        if rng.random() < 0.5:
            widths[-1] = widths[0]
        between = [rng.choice(["", "relu"]) for _ in range(multiplications - 1)]
        found.append([rng.choice([4, 7, 8]), widths, between, rng.random() < 0.5, 1000 * seed + x])
    return found


@pytest.mark.parametrize(
    "ranks, situation, count",
    [
        (2, "direct", 8),
        (3, "direct", 4),
        (6, "direct", 4),
        (4, "rma", 4),
        (4, "mixed", 4),
        (4, "remote", 4),
    ],
)
def test_whole_chains_make_what_numpy_makes(mpirun, dealt, ranks, situation, count):
    seed = 10 * ranks + len(situation)
    sums = dealt(SUMS, ranks - 2, 3) if situation == "direct" else []
    text = json.dumps([*dealt(cases(seed, count), 0, 4), *sums])
    assert mpirun(ranks, "whole_chains.py", text, situation=situation) == []
