"""Relabelled layouts against all ways to give the parts of a layout to ranks."""

import itertools
import random
import sys

import pytest

from drbench.errors import UnsupportedError
from drbench.library.relabel import relabel
from drbench.partitions import flows, partition

TEXTS = ("row", "column", "block", "tiles:2x3", "row/c2", "tiles:3x2@2x2:from1x1", "row/on3+1")
TEXTS += ("tiles:2x2@1x3/on2+0+1", "block:2x2:col")


def moved(old, new):
    return sum(elements for *_, elements in flows(old, new))


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("scipy", [True, False])
def test_no_other_ranks_need_fewer_bytes(monkeypatch, seed, scipy):
    chance = random.Random(seed)
    shape = chance.randint(0, 9), chance.randint(1, 9)
    texts = chance.choice(TEXTS), chance.choice(TEXTS)
    old, new = (partition(text, shape, 4) for text in texts)
    if not scipy:
        monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    else:
        pytest.importorskip("scipy", reason="needs scipy: pip install scipy")
    found = relabel(old, new, 8)
    chosen = partition(found.layout, shape, 4)
    assert found.moved_bytes == 8 * moved(old, chosen)
    assert found.saved_bytes == 8 * (moved(old, new) - moved(old, chosen)) >= 0
    if scipy:
        ways = itertools.permutations(range(4))
        every = (f"{texts[1]}/on{'+'.join(map(str, way))}" for way in ways)
        least = min(moved(old, partition(text, shape, 4)) for text in every)
        assert found.moved_bytes == 8 * least


def test_a_pending_sum_is_refused_since_its_ranks_need_all_terms():
    whole, pending = (partition(text, (6, 6), 4) for text in ("row", "P"))
    for pair in ((whole, pending), (pending, whole)):
        with pytest.raises(UnsupportedError, match="P has a pending sum"):
            relabel(*pair, 8)
