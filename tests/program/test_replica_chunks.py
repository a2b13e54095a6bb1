"""Replicas are pulled in panels that are neither small nor large nor many, and together are the
tile."""

import pytest

from drbench.program.problem import Problem
from drbench.program.replicas import broadcast_replica, reduce_replicas
from drbench.program.steps import Add, Copy, ReplicaGet

MIB_OF_FLOAT32 = 1 << 18  # elements


@pytest.mark.parametrize(
    "m, n",
    [
        (3, 5),
        (1024, 1024),
        (100, 1 << 20),  # a row is more than a panel
        (1 << 17, 1 << 12),  # 2048 panels of 1 MiB: too many
        (100_003, 4_099),
    ],
)
@pytest.mark.parametrize(
    "move, kind, rank", [(reduce_replicas, Add, 0), (broadcast_replica, Copy, 1)]
)
def test_panels_cover_the_tile_once_and_are_neither_small_nor_many(m, n, move, kind, rank):
    c = Problem(m, n, 8, 2, c="row/c2").c
    steps = list(move(c, rank))
    panels = [step.block for step in steps if type(step) is kind]
    pulled = [step.block for step in steps if type(step) is ReplicaGet]
    assert [(b.row0, b.row1) for b in panels] == [(b.row0, b.row1) for b in pulled]
    assert {b.replica for b in panels} == {rank} and {b.replica for b in pulled} == {1 - rank}
    assert (panels[0].row0, panels[-1].row1) == (0, m)
    assert all(one.row1 == two.row0 for one, two in zip(panels, panels[1:]))
    assert {(b.col0, b.col1) for b in panels} == {(0, n)}
    assert len(panels) <= 64
    height = panels[0].row1 - panels[0].row0
    if len(panels) > 1:  # so few rows that one more would be too large, but for a 64th of the tile
        assert (height + 1) * n > MIB_OF_FLOAT32
    if len(panels) < 33:  # not larger than need be
        assert height == 1 or height * n <= MIB_OF_FLOAT32
