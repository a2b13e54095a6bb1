"""Accumulates under stress: all ranks into the same elements at the same time, for long, and every
sum is exact."""

import os

import pytest

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]

#: By situation: layout and rounds of tiles, and the protocol. Without locks, or with locks next to
#: MPI's adds, as many rounds lose an update.
TILES = {
    "direct": ("block", "40", "locked"),
    "rma": ("block", "20", "mpi"),
    "mixed": ("block", "40", "mpi"),
    "nodes": ("block:2x1/c2", "120", "locked"),  # two nodes, each with a replica of its own
    "remote": ("block", "10", "mpi"),  # who owns a tile makes all adds to it, one after the other
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
        *(word for each in blocks for word in ("blocks", each, "250")),
    ]
    tiles, *found = mpirun(4, "stress.py", *words, situation=request.param)
    assert len(found) == len(blocks)
    return tiles, found, protocol


def test_every_rank_adding_into_every_tile_at_once_loses_nothing(stressed):
    tiles, _, protocol = stressed
    assert tiles["protocols"] == [protocol]
    assert tiles["adds"] >= 160
    assert tiles["wrong"] == 0


@pytest.mark.skipif(
    len(os.sched_getaffinity(0)) < 2, reason="on one core two adds hardly ever meet"
)
def test_the_stress_would_notice_missing_locks(mpirun):
    (found,) = mpirun(4, "stress.py", "unlocked", "block", "40")
    assert found["wrong"] > 0


def test_accumulates_of_overlapping_blocks_by_the_executor_lose_nothing(stressed):
    _, blocks, _ = stressed
    assert [(each["wrong"], each["adds"]) for each in blocks] == [(0, 3000)] * len(blocks)
