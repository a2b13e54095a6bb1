"""Plans of the library for ranks of several nodes: the same bytes, in whole rows of tiles."""

from types import SimpleNamespace
from unittest import mock

import pytest

from drbench.library.plan import Multiplication
from drbench.library.spec import TYPES, Specs
from drbench.plan.explain import traffic


def planned(layout, stationary, several, dtype="float32"):
    nodes = [0, 1, 2, 3] if several else [0] * 4
    runtime = SimpleNamespace(
        in_place=False, on_cores=True, nodes=nodes, size=4, plans=set(), comm=None
    )
    specs = Specs(4, 0, TYPES)
    a, b, c = (specs.of((2048, 2048), layout, dtype) for _ in "abc")
    with mock.patch("drbench.library.plan.Exchange"):  # it asks the other ranks
        return Multiplication(runtime, a, b, c, stationary, False)


def fetched(plan):
    return [step.block for step in plan.trace(0).steps if step.moved(0) and step.block]


@pytest.mark.parametrize("layout", ["row", "column", "block"])
@pytest.mark.parametrize("stationary", "ABC")
def test_no_additional_byte_is_moved_between_nodes(layout, stationary):
    local, remote = (planned(layout, stationary, several) for several in (False, True))
    assert traffic(remote.trace(0)).counters == traffic(local.trace(0)).counters


def test_rows_of_tiles_are_fetched_whole_and_contiguous():
    local, remote = (fetched(planned("block", "C", several)) for several in (False, True))
    assert all(block.full for block in remote)
    assert not all(block.full for block in local) and len(remote) < len(local)


def test_partial_sums_that_are_rounded_at_each_segment_are_not_cut():
    assert len(fetched(planned("block", "C", True, "bfloat16"))) == len(
        fetched(planned("block", "C", True))
    )
