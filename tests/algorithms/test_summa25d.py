"""2.5-D SUMMA without MPI: its bytes, its defaults and what it refuses."""

import pytest
from traced import of_algorithm, resolved_as

from drbench.errors import UnsupportedError, UsageError
from drbench.plan.explain import traffic

DATAFLOWS = ("OS", "LS", "RS")
#: Ranks, replicas, and the mesh of each replica.
MESHES = [(1, 1, (1, 1)), (2, 2, (1, 1)), (4, 2, (1, 2)), (8, 2, (2, 2)), (12, 3, (2, 2))]
MESHES += [(12, 2, (2, 3)), (8, 1, (2, 4)), (5, 5, (1, 1))]


def programs(m, n, k, ranks, replicas, *texts, **options):
    return of_algorithm("summa2.5d", m, n, k, ranks, *texts, replicas=replicas, **options)


@pytest.mark.parametrize("panel", [None, 5])
@pytest.mark.parametrize("dataflow", DATAFLOWS)
@pytest.mark.parametrize("ranks, replicas, mesh", MESHES)
def test_bytes_are_those_of_summa_on_a_share_of_k_and_of_the_reduction(
    ranks, replicas, mesh, dataflow, panel
):
    """Extents that everything divides: a replica's panels of the operands that hold k are 1/c of
    SUMMA's, (P - 1) / P of a process row's or column's; replica 0 pulls its tiles of C from the
    c - 1 others (Solomonik & Demmel, 2011, §6). In OS the owners of a replica's share of k receive
    less than the other chips, so there it is the sum over a replica."""
    m, n, k = 120, 240, 360
    (rows, cols), chips = mesh, ranks // replicas
    a, b, c = m * k // replicas, k * n // replicas, m * n
    along_rows, along_columns = {"OS": (a, b), "LS": (c, b), "RS": (a, c)}[dataflow]
    traces = programs(m, n, k, ranks, replicas, dataflow=dataflow, panel=panel)
    counters = [traffic(trace).counters for trace in traces]
    each = 4 * ((cols - 1) * along_rows + (rows - 1) * along_columns)
    for replica in range(replicas):
        of_replica = counters[replica * chips : (replica + 1) * chips]
        moved = [found["collective_bytes"] for found in of_replica]
        assert sum(moved) == each
        assert dataflow == "OS" or moved == [each // chips] * chips
        for found in of_replica:
            pulled = 4 * (replicas - 1) * m * n // chips if replica == 0 else 0
            assert found == dict.fromkeys(found, 0) | {
                "collective_bytes": found["collective_bytes"],
                "replica_bytes": pulled,
            }


def test_one_replica_is_summa():
    for dataflow in DATAFLOWS:
        plain = of_algorithm("summa", 24, 36, 48, 6, dataflow=dataflow)[4]
        ours = programs(24, 36, 48, 6, 1, dataflow=dataflow)[4]
        assert list(map(repr, plain.steps)) == list(map(repr, ours.steps))


def test_the_default_is_the_largest_factor_whose_cube_fits():
    for ranks, replicas in [(1, 1), (4, 1), (7, 1), (8, 2), (12, 2), (36, 3), (64, 4)]:
        _, problem, resolved = resolved_as("summa2.5d", 64, 64, 64, ranks)
        assert [operand.partition.replicas for operand in problem.operands] == [replicas] * 3
        assert resolved["replicas"] == replicas


@pytest.mark.parametrize(
    "error, options, words",
    [
        (UsageError, {"replicas": 3}, ["divides", "Use one of 1, 2, 4, 8"]),
        (UsageError, {"replicas": 16}, ["divides", "Use one of 1, 2, 4, 8"]),
        (UsageError, {"replicas": 0}, ["replicas must be"]),
        (UsageError, {"panel": 0}, ["panel must be"]),
        (UnsupportedError, {"a": "row"}, ["A as block:2x2/c2", "got row", "Leave --a out"]),
        (UnsupportedError, {"c": "block/c4"}, ["A as block:1x2/c4", "got block:2x2/c2"]),
        (UnsupportedError, {"replicas": 4, "c": "block"}, ["C as block:1x2/c4", "got block"]),
    ],
)
def test_an_unsupported_case_is_refused_with_a_remedy(error, options, words):
    texts = [options.pop(key, None) for key in "abc"]
    with pytest.raises(error) as caught:
        resolved_as("summa2.5d", 48, 48, 48, 8, *texts, **options)
    assert all(word in str(caught.value) for word in words), caught.value


def test_other_texts_of_the_same_replicas_are_accepted():
    *_, resolved = resolved_as("summa2.5d", 48, 48, 48, 2, "row/c2", "R", "column/c2")
    assert resolved["replicas"] == 2
