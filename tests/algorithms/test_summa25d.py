"""2.5-D SUMMA without MPI: what it computes in every order of completion, what it moves, and that a
Fence waits for the reductions before it."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mesh_machine import Machine, dealt

from algorithms import get_algorithm
from drbench.errors import UnsupportedError, UsageError
from drbench.plan.explain import traffic
from drbench.plan.schedule import Lookahead
from drbench.program.group_steps import Reduce

SUMMA25D = get_algorithm("summa2.5d")
DATAFLOWS = ("OS", "LS", "RS")
#: Ranks, replicas, and the mesh of each replica.
MESHES = [(1, 1, (1, 1)), (2, 2, (1, 1)), (4, 2, (1, 2)), (8, 2, (2, 2)), (12, 3, (2, 2))]
MESHES += [(12, 2, (2, 3)), (8, 1, (2, 4)), (5, 5, (1, 1))]
SHAPES = [(48, 48, 48), (16, 96, 24), (101, 67, 53), (7, 5, 3)]


def programs(m, n, k, ranks, replicas, **options):
    problem = SUMMA25D.problem(m, n, k, ranks, replicas=replicas, **options)
    resolved = SUMMA25D.resolve(problem, replicas=replicas, **options)
    return [SUMMA25D.trace(problem, rank, **resolved) for rank in range(ranks)], resolved


def computed(m, n, k, ranks, replicas, mesh, depth=1, seed=0, **options):
    """C of replica 0 as the machine without MPI leaves it, and A·B."""
    traces, resolved = programs(m, n, k, ranks, replicas, **options)
    numbers = np.random.default_rng(seed)
    a, b = (numbers.integers(-4, 5, shape).astype(float) for shape in ((m, k), (k, n)))
    upright, turned = (mesh, "row"), (mesh[::-1], "col")
    where = {
        "A": turned if resolved["dataflow"] == "RS" else upright,
        "B": turned if resolved["dataflow"] == "LS" else upright,
        "C": upright,
    }
    shapes = zip("ABC", ((m, k), (k, n), (m, n)))
    owners = {matrix: dealt(shape, *where[matrix]) for matrix, shape in shapes}
    return Machine(traces, a, b, owners, depth, seed).run(), a @ b


@pytest.mark.parametrize("dataflow", DATAFLOWS)
def test_the_product_is_exact_on_every_mesh_and_number_of_replicas(dataflow):
    for shape, ranks in product(SHAPES, MESHES):
        c, right = computed(*shape, *ranks, dataflow=dataflow)
        assert (c == right).all(), (shape, ranks)


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_any_order_of_completion_and_any_look_ahead_gives_the_same_product(data):
    ranks, replicas, mesh = data.draw(st.sampled_from(MESHES))
    c, right = computed(
        *(data.draw(st.integers(1, 40)) for _ in "mnk"),
        ranks,
        replicas,
        mesh,
        depth=data.draw(st.integers(0, 4)),
        seed=data.draw(st.integers(0, 10**6)),
        dataflow=data.draw(st.sampled_from(DATAFLOWS)),
        panel=data.draw(st.sampled_from([None, 1, 3, 8])),
    )
    assert (c == right).all()


def share(extent, parts, x):
    """Elements of the x-th of ``parts`` blocks of ⌈extent / parts⌉."""
    step = -(-extent // parts)
    return max(0, min(extent, (x + 1) * step) - min(extent, x * step))


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
    traces, _ = programs(m, n, k, ranks, replicas, dataflow=dataflow, panel=panel)
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


def test_replicas_of_ragged_shares_move_each_panel_once_to_each_chip_of_a_row_or_column():
    m, n, k, (rows, cols), replicas = 101, 67, 53, (2, 3), 2
    traces, _ = programs(m, n, k, 12, replicas, dataflow="OS")
    for trace in traces:
        replica, chip = divmod(trace.rank, rows * cols)
        i, j = divmod(chip, cols)
        start = replica * -(-k // replicas)
        mine = range(start, start + share(k, replicas, replica))
        own = lambda parts, x: len(
            [e for e in mine if x * -(-k // parts) <= e < (x + 1) * -(-k // parts)]
        )
        left = share(m, rows, i) * (len(mine) - own(cols, j))
        right = share(n, cols, j) * (len(mine) - own(rows, i))
        assert traffic(trace).counters["collective_bytes"] == 4 * (left + right)


def test_one_replica_is_summa():
    summa = get_algorithm("summa")
    for dataflow in DATAFLOWS:
        problem = summa.problem(24, 36, 48, 6, dataflow=dataflow)
        plain = summa.trace(problem, 4, **summa.resolve(problem, dataflow=dataflow))
        traces, _ = programs(24, 36, 48, 6, 1, dataflow=dataflow)
        assert list(map(repr, plain.steps)) == list(map(repr, traces[4].steps))


def test_the_default_is_the_largest_factor_whose_cube_fits():
    for ranks, replicas in [(1, 1), (4, 1), (7, 1), (8, 2), (12, 2), (36, 3), (64, 4)]:
        problem = SUMMA25D.problem(64, 64, 64, ranks)
        assert [operand.partition.replicas for operand in problem.operands] == [replicas] * 3
        assert SUMMA25D.resolve(problem)["replicas"] == replicas


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
def test_what_it_does_not_take_is_refused_with_a_way_out(error, options, words):
    texts = {key: options.pop(key) for key in "abc" if key in options}
    with pytest.raises(error) as caught:
        problem = SUMMA25D.problem(48, 48, 48, 8, *map(texts.get, "abc"), **options)
        SUMMA25D.resolve(problem, **options)
    assert all(word in str(caught.value) for word in words), caught.value


def test_other_words_for_the_same_replicas_are_taken():
    problem = SUMMA25D.problem(48, 48, 48, 2, "row/c2", "R", "column/c2")
    assert SUMMA25D.resolve(problem)["replicas"] == 2


def test_a_fence_waits_for_the_reductions_before_it(monkeypatch):
    """Where C moves (LS, RS) partial sums arrive in C by reductions, which the other replica reads
    after the Fence. With the rule as it was, which knew only steps on a block, it would read what
    is not there yet."""
    cases = list(product(("LS", "RS"), range(4)))
    for dataflow, seed in cases:
        c, right = computed(24, 24, 24, 8, 2, (2, 2), depth=1, seed=seed, dataflow=dataflow)
        assert (c == right).all()

    regular = Lookahead.__init__

    def blocks_only(self, trace, depth):
        regular(self, trace, depth)
        for step in trace.steps:
            if type(step) is Reduce:
                self.fences[step.index] = -1

    monkeypatch.setattr(Lookahead, "__init__", blocks_only)
    wrong = 0
    for dataflow, seed in cases:
        c, right = computed(24, 24, 24, 8, 2, (2, 2), depth=1, seed=seed, dataflow=dataflow)
        wrong += not (c == right).all()
    assert wrong
