"""Accumulates under stress: all ranks into the same elements at the same time, for long, and every
sum is exact."""

import os

import pytest

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]


@pytest.mark.parametrize(
    "situation, layout, rounds, protocol",
    [
        ("direct", "block", "1500", "locked"),
        ("rma", "block", "1000", "mpi"),
        ("mixed", "block", "600", "mpi"),
        ("nodes", "block:2x1/c2", "1500", "locked"),  # two nodes, each with a replica of its own
        ("remote", "block", "150", "mpi"),
    ],
)
def test_every_rank_adding_into_every_tile_at_once_loses_nothing(
    mpirun, situation, layout, rounds, protocol
):
    answer = mpirun(4, "stress.py", "tiles", layout, rounds, situation=situation)
    assert answer["protocols"] == [protocol]
    assert answer["adds"] >= 2400
    assert answer["wrong"] == 0


@pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="on one core two adds hardly ever meet"
)
def test_the_stress_would_notice_missing_locks(mpirun):
    assert mpirun(4, "stress.py", "unlocked", "block", "400")["wrong"] > 0


@pytest.mark.parametrize("situation", ["direct", "rma", "mixed", "nodes", "remote"])
@pytest.mark.parametrize("layout", ["block", "tiles:100x77@1x2/c2"])
def test_accumulates_of_overlapping_blocks_by_the_executor_lose_nothing(mpirun, situation, layout):
    answer = mpirun(4, "stress.py", "blocks", layout, "2000", situation=situation)
    assert answer["wrong"] == 0
