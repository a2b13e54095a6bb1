"""Table 1 of the paper: every primitive of the distributed matrix, with replicas, in every
situation."""

from types import SimpleNamespace

import pytest

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]


@pytest.fixture(scope="module", params=["direct", "rma", "mixed", "nodes", "remote"])
def table(request, mpirun):
    """What primitives got wrong on 4 ranks, and how often a tile was refused because it is out of
    reach."""
    answer = mpirun(4, "table1.py", situation=request.param)
    return SimpleNamespace(situation=request.param, **answer)


def test_every_primitive_does_what_table_1_describes(table):
    assert not table.wrong


def test_tiles_are_refused_exactly_where_memory_is_out_of_reach(table):
    assert (table.refused["tile"] == 0) == (table.situation == "direct")
    assert (table.refused["accumulate"] == 0) == (table.situation == "direct")


@pytest.mark.parametrize("situation", ["direct", "nodes", "remote"])
def test_replicas_of_many_panels_are_reduced_and_broadcast(mpirun, situation):
    """Tiles far larger than the panels in which replicas are pulled."""
    assert mpirun(4, "large_replicas.py", situation=situation) == {
        "reduced": True,
        "broadcast": True,
    }
