"""Accumulates under stress: all ranks into the same elements at the same time, for long, and every
sum is exact."""

import os

import pytest

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]

#: By situation: layout and rounds of tiles, and the protocol. Without locks the rounds of
#: ``test_the_stress_would_notice_missing_locks`` are enough to lose an update.
TILES = {
    "direct": ("block", "100", "locked"),
    "rma": ("block", "60", "mpi"),
    "mixed": ("block", "60", "mpi"),
    "nodes": ("block:2x1/c2", "120", "locked"),  # two nodes, each with a replica of its own
    "remote": ("block", "60", "mpi"),
}
BLOCKS = ("block", "tiles:100x77@1x2/c2")


@pytest.fixture(scope="module", params=TILES)
def stressed(request, mpirun, dealt):
    """What came of the tiles, and of the blocks, of one mpiexec; the protocol of the tiles."""
    layout, rounds, protocol = TILES[request.param]
    blocks = dealt(BLOCKS, list(TILES).index(request.param), 2)
    words = [
        "tiles",
        layout,
        rounds,
        *(word for each in blocks for word in ("blocks", each, "1000")),
    ]
    tiles, *found = mpirun(4, "stress.py", *words, situation=request.param)
    assert len(found) == len(blocks)
    return tiles, found, protocol


def test_every_rank_adding_into_every_tile_at_once_loses_nothing(stressed):
    tiles, _, protocol = stressed
    assert tiles["protocols"] == [protocol]
    assert tiles["adds"] >= 960
    assert tiles["wrong"] == 0


@pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="on one core two adds hardly ever meet"
)
def test_the_stress_would_notice_missing_locks(mpirun):
    (found,) = mpirun(4, "stress.py", "unlocked", "block", "100")
    assert found["wrong"] > 0


def test_accumulates_of_overlapping_blocks_by_the_executor_lose_nothing(stressed):
    _, blocks, _ = stressed
    assert [(each["wrong"], each["adds"]) for each in blocks] == [(0, 12000)] * len(blocks)
