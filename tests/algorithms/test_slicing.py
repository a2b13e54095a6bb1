"""GEMMs of the universal algorithm: their order, their length and the bytes that they move."""

import itertools
from collections import Counter

import pytest
from oracles import exhaustive, traces_of

from drbench.algorithms import get_algorithm
from drbench.algorithms.universal.algorithm1 import Share, local_gemms
from drbench.algorithms.universal.choice import choose_offset
from drbench.algorithms.universal.distribution import (
    largest_matrix,
    own_first_balances,
    result_is_local,
)
from drbench.launch.cases.case import Case
from drbench.launch.cases.machine_models import find_machine
from drbench.launch.models.predict import predict_with
from drbench.partitions import preset
from drbench.program.problem import Problem
from drbench.program.steps import Gemm, Get

KINDS = ("row", "column", "block", "tiles:3x2")
# tiles of 3x2 are misaligned on every axis, and 2, 3, 4, 6 ranks divide none evenly
M, N, K = (
    7,
    5,
    6,
)


def in_pairs(p, stationary, kinds=KINDS):
    """Triples of a Latin square, another for each stationary matrix: every form of one matrix is
    combined with every form of another."""
    every = list(exhaustive(p, kinds))
    number = {form: x for x, form in enumerate(sorted({texts[0] for texts in every}))}
    first = "ABC".index(stationary)
    return [texts for texts in every if sum(number[form] for form in texts) % len(number) == first]


@pytest.mark.parametrize(
    "a, c", [("S(0),S(1)@2x2", "S(0),R@2x2"), ("S(1),S(0)@2x2", "R,S(0)@2x2"), ("S(0)", "S(0)")]
)
def test_strided_replicas_of_the_result_need_no_accumulate(a, c):
    """Each rank has the rows of C for which it has rows of A: nothing is accumulated."""
    assert result_is_local(Problem(8, 8, 8, 4, a, "R", c), "A")
    assert not result_is_local(Problem(8, 8, 8, 4, a, "R", c + ",R@2x2" * ("@" not in c)), "B")


# -- slices
# ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("stationary", "ABC")
def test_nothing_is_cut_where_nothing_moves(stationary):
    """k was cut, which only made GEMMs slower."""
    texts = {
        "A": ("row", "R", "row"),
        "B": ("R", "column", "column"),
        "C": ("R", "column", "column"),
    }
    problem = Problem(32, 32, 32, 4, *texts[stationary])
    for rank in range(4):
        ((group, _),) = local_gemms(Share(problem, rank, stationary), 4)
        assert len(group) == 1 and group[0].a.shape[1] == 32


@pytest.mark.parametrize("chunk", [1, 2, 3, 100])
@pytest.mark.parametrize("stationary, axis", [("C", "k"), ("B", "m"), ("A", "n")])
def test_no_gemm_with_transfers_is_longer_than_the_chunk_along_the_free_axis(
    chunk, stationary, axis
):
    """GEMMs of local operands may be longer along m or n, where cutting costs time."""
    problem, longest = Problem(M, N, K, 4, "tiles:3x2", "block", "column"), 0
    for rank in range(4):
        for group, _ in local_gemms(Share(problem, rank, stationary), chunk):
            blocks = [block for gemm in group for block in gemm[:3]]
            for a, b, *_ in group:
                extent = {"m": a.shape[0], "k": a.shape[1], "n": b.shape[1]}[axis]
                longest = max(longest, extent)
                if axis == "k" or any(block.owner != rank for block in blocks):
                    assert 1 <= extent <= chunk
    assert longest >= min(chunk, 2)


def own_share(problem, rank, stationary):
    """The share of a rank's multiply-adds that belongs to its own tiles of C."""
    own = total = 0
    for group, _ in local_gemms(Share(problem, rank, stationary)):
        for a, _b, c, *_ in group:
            work = c.size * a.shape[1]
            total += work
            own += work if c.owner == rank else 0
    return own / total if total else None


@pytest.mark.parametrize("stationary", "AB")
@pytest.mark.parametrize("p", [2, 4, 6])
def test_predicates_on_own_tiles_of_the_result_hold_on_every_rank(p, stationary):
    stays = balances = 0
    triples = in_pairs(p, stationary, (*KINDS, "tiles:2x6"))
    if p == 4:  # strided replicas and shards too
        words = ("R", "S(0)", "S(1)", "_S(0,2)")
        placed = [f"{one},{other}@2x2" for one, other in itertools.product(words, repeat=2)]
        pairs = itertools.product(placed, placed)
        triples += [(x, "R", c) if stationary == "A" else ("R", x, c) for x, c in pairs]
    for texts in triples:
        problem = Problem(12, 12, 12, p, *texts)
        if result_is_local(problem, stationary):
            stays += 1
            assert {own_share(problem, rank, stationary) for rank in range(p)} <= {1.0, None}, texts
        if own_first_balances(problem, stationary):
            balances += 1
            shares = [own_share(problem, rank, stationary) for rank in range(p)]
            assert max(shares) - min(shares) < 1e-9, (texts, shares)
    assert stays and balances


@pytest.mark.parametrize("stationary", "AB")
def test_gemms_with_one_target_are_consecutive(stationary):
    """Their sum is then sent once: within a group no target recurs after another one."""
    for texts in exhaustive(4, KINDS, [(1, 1, 1), (2, 2, 2)]):
        for rank in range(4):
            for group, _ in local_gemms(Share(Problem(M, N, K, 4, *texts), rank, stationary)):
                finished, open_target = set(), None
                for _, _, c, last in group:
                    assert open_target in (None, c) and id(c) not in finished
                    open_target = None if last else c
                    if last:
                        finished.add(id(c))
                assert open_target is None


@pytest.mark.parametrize("p", [2, 3, 5])
@pytest.mark.parametrize(
    "stationary, texts, moving",
    [  # the tile that stays spans the tiles of all ranks in A, B or C
        ("C", ("column", "column", "column"), "a"),
        ("C", ("row", "row", "row"), "b"),
        ("C", ("row", "column", "column"), "a"),
        ("C", ("row", "column", "row"), "b"),
        ("B", ("column", "column", "row"), "a"),
        ("B", ("row/c{p}", "row", "column"), "c"),
        ("A", ("row", "row", "row"), "b"),
        ("A", ("column", "row/c{p}", "row"), "c"),
    ],
)
def test_each_rank_starts_with_a_block_of_another_owner(stationary, texts, moving, p):
    """The iteration offset along the stationary tile's own axes: no two ranks read from, or add
    to, one owner at the same step of the program."""
    problem = Problem(30, 30, 30, p, *(text.format(p=p) for text in texts))
    owners = [
        [
            getattr(each, moving).owner
            for group, _ in local_gemms(Share(problem, rank, stationary))
            for each in group
        ]
        for rank in range(p)
    ]
    for at_once in zip(*owners, strict=True):
        assert sorted(at_once) == list(range(p))
    assert [first for first, *_ in owners] == list(range(p))


@pytest.mark.parametrize("c, tiles", [(2, 2), (2, 4), (2, 6), (3, 3), (4, 4)])
@pytest.mark.parametrize(
    "stationary, texts, moving",
    [  # a range of the free axis for each tile of a replica, of which each rank needs 1/c
        ("C", ("column/c{c}", "R", "column/c{c}"), "a"),
        ("C", ("R", "row/c{c}", "row/c{c}"), "b"),
        ("B", ("row/c{c}", "row/c{c}", "R"), "a"),
        ("B", ("R", "column/c{c}", "row/c{c}"), "c"),
        ("A", ("column/c{c}", "column/c{c}", "R"), "b"),
        ("A", ("row/c{c}", "R", "column/c{c}"), "c"),
    ],
)
def test_ranks_of_all_replicas_start_with_different_owners(stationary, texts, moving, c, tiles):
    """Without an offset over the whole axis the ranks of a replica used 1/c of the owners."""
    p = c * tiles
    problem = Problem(2 * p, 2 * p, 2 * p, p, *(text.format(c=c) for text in texts))
    assert choose_offset(problem, stationary) == "axis"

    def owners(offset):
        return [
            [getattr(gemm, moving).owner for (gemm,), _ in local_gemms(share)]
            for share in (Share(problem, r, stationary, offset=offset) for r in range(p))
        ]

    for at_once in zip(*owners("axis"), strict=True):
        assert sorted(at_once) == list(range(p))
    assert len({first for first, *_ in owners("interval")}) == p // c


def elements(problem, stationary, offset):
    """Elements that the busiest rank and all ranks move, one by one; accumulated ones count
    three."""
    each = []
    for rank in range(problem.nprocs):
        read, added = set(), 0
        for group, _ in local_gemms(Share(problem, rank, stationary, offset=offset)):
            for a, b, c, last in group:
                for block in (a, b):
                    if block.owner != rank:
                        cells = itertools.product(range(*block.rows), range(*block.cols))
                        read |= {(block.matrix, *cell) for cell in cells}
                added += 3 * c.size * (last and c.owner != rank)
        each.append(len(read) + added)
    return max(each), sum(each)


@pytest.mark.parametrize("stationary", "ABC")
def test_the_whole_axis_is_rotated_unless_ranks_then_move_more(stationary):
    chosen = Counter()
    for texts in in_pairs(4, stationary, ("row", "column", "block")):
        problem = Problem(12, 12, 12, 4, *texts)
        if problem.operand(stationary).partition.replicas > 1:
            axis, interval = (elements(problem, stationary, each) for each in ("axis", "interval"))
            wanted = "interval" if interval < axis else "axis"
            assert choose_offset(problem, stationary) == wanted, texts
            chosen[wanted] += 1
    assert min(chosen["axis"], chosen["interval"]) > 2


@pytest.mark.parametrize(
    "machine, ranks, chosen", [("mi300x", 8, "interval"), ("pvc12", 12, "interval")]
)
def test_where_each_pair_has_a_link_the_offset_with_the_less_busy_link_is_faster(
    machine, ranks, chosen
):
    """Else partial sums and operands would share one direction of a link."""
    times = {}
    for offset in ("auto", *("axis", "interval")):
        options = {"stationary": "B", "offset": offset}
        case = Case(8192, 8192, 8192, *["block/c2"] * 3, dtype="float32", options=options)
        times[offset] = predict_with(case, find_machine(machine), ranks)[0].best_s
    assert times["auto"] == times[chosen] < times["axis"]


@pytest.mark.parametrize(
    "stationary, texts, local, moving",
    [  # half of the free axis is local, the other half another rank's
        ("A", ("row", "column", "row"), [6], [2, 2, 2]),  # along n
        ("B", ("row", "column", "column"), [6], [2, 2, 2]),  # along m
        ("C", ("column", "R", "row"), [2, 2, 2], [2, 2, 2]),  # k: ranges of A and B alternate
    ],
)
def test_ranges_of_m_and_n_are_cut_only_where_something_moves(stationary, texts, local, moving):
    problem = Problem(12, 12, 12, 2, *texts)
    for rank in range(2):
        extents: dict = {True: [], False: []}
        for a, b, c, *_ in (
            each for group, _ in local_gemms(Share(problem, rank, stationary), 2) for each in group
        ):
            extent = {"A": b.shape[1], "B": a.shape[0], "C": a.shape[1]}[stationary]
            extents[{a.owner, b.owner, c.owner} == {rank}].append(extent)
        assert extents == {True: local, False: moving}


@pytest.mark.parametrize("m, n, k", list(itertools.product([2, 3, 5], repeat=3)))
def test_auto_chooses_the_largest_matrix_as_stationary_then_c_then_b(m, n, k):
    largest = max(m * k, k * n, m * n)
    wanted = "C" if m * n == largest else "B" if k * n == largest else "A"
    assert largest_matrix(m, n, k) == wanted


# -- bytes
# -------------------------------------------------------------------------------------------------


def moved(problem, **options):
    """Elements that cross between ranks, over all ranks, by counter."""
    total = dict.fromkeys(["get_bytes", "accumulate_bytes", "replica_bytes"], 0)
    for trace in traces_of(problem, **options):
        for step in trace.steps:
            if step.moved(trace.rank):
                total[step.counter] += step.block.size
    return list(total.values())


SIZES = m, n, k = 24, 48, 72  # divisible, so that the closed forms are exact
a_size, b_size, c_size = m * k, k * n, m * n


@pytest.mark.parametrize("chunk", [None, 1, 5])
@pytest.mark.parametrize(
    "p, texts, stationary, gets, accumulates",
    [
        (4, ("column", "column", "column"), "C", 3 * a_size, 0),  # every rank reads (p-1)/p of A
        (4, ("row", "row", "row"), "C", 3 * b_size, 0),
        (4, ("row", "column", "column"), "C", 3 * a_size, 0),  # inner product
        (4, ("row", "column", "row"), "C", 3 * b_size, 0),  # fsdp
        (
            4,
            ("column", "row", "row"),
            "C",
            3 * a_size // 4 + 3 * b_size,
            0,
        ),  # outer product, separate partial sums
        (4, ("column", "row", "row"), "B", 0, 3 * c_size),  # outer product: partial sums are sent
        (4, ("column", "row", "row"), "A", 0, 3 * c_size),
        (4, ("column", "row", "column"), "B", 0, 3 * c_size),
        (4, ("row", "row", "row"), "A", 3 * b_size, 0),  # C[m, n] is where A[m, k] is
        (4, ("column", "column", "column"), "B", 3 * a_size, 0),
        (4, ("block", "block", "block"), "C", a_size + b_size, 0),  # (q-1)·|A| + (q-1)·|B| on q x q
        (9, ("block", "block", "block"), "C", 2 * a_size + 2 * b_size, 0),
        # every rank reads q tiles, which the q on the diagonal own one of, and sends q sums, of
        # which it owns one
        (9, ("block", "block", "block"), "B", (9 * 3 - 3) * a_size // 9, 2 * c_size),
        (9, ("block", "block", "block"), "A", (9 * 3 - 3) * b_size // 9, 2 * c_size),
        (
            6,
            ("traditional", "traditional", "traditional"),
            "C",
            2 * a_size + b_size,
            0,
        ),  # 2x3: (Pc-1)|A| + (Pr-1)|B|
        (4, ("row/c4", "column", "column"), "C", 0, 0),  # megatron, first layer
        (4, ("row", "row/c4", "row"), "C", 0, 0),  # sequence parallel
    ],
)
def test_bytes_of_textbook_cases_have_their_closed_forms(
    p, texts, stationary, gets, accumulates, chunk
):
    problem = Problem(m, n, k, p, *texts)
    assert moved(problem, stationary=stationary, chunk=chunk) == [gets, accumulates, 0]


def test_replicas_of_c_divide_the_reads_and_pay_with_a_reduction():
    """2.5D on 2 x 2 x 2: a replica reads half of the k panels, half of them remote; the other
    replica is pulled."""
    problem = Problem(m, n, k, 8, *["block/c2"] * 3)
    assert moved(problem, stationary="C") == [a_size + b_size, 0, c_size]
    assert moved(problem, stationary="C", replicate_result=True) == [a_size + b_size, 0, 2 * c_size]
    # megatron: only the sum moves
    second_layer = Problem(m, n, k, 4, "column", "row", "row/c4")
    assert moved(second_layer, stationary="C") == [0, 0, 3 * c_size]


@pytest.mark.parametrize("stationary", "ABC")
def test_one_rank_and_full_copies_move_nothing_but_replicas(stationary):
    assert moved(Problem(m, n, k, 1), stationary=stationary) == [0, 0, 0]
    assert moved(Problem(m, n, k, 4, *["block/c4"] * 3), stationary=stationary) == [
        0,
        0,
        3 * c_size,
    ]


@pytest.mark.parametrize("stationary", "ABC")
@pytest.mark.parametrize("name", ["megatron", "sequence"])
def test_without_transfers_a_rank_has_one_gemm_even_where_ranges_are_cut(name, stationary):
    problem = Problem(512, 4096, 8192, 8, *preset(name, 8))
    resolved = get_algorithm("universal").resolve(problem, False, stationary=stationary)
    assert resolved["chunk"]  # ranges are cut for transfers
    for trace in traces_of(problem, **resolved):
        assert sum(type(step) is Gemm for step in trace.steps) == 1
        assert not any(step.moved(trace.rank) for step in trace.steps if isinstance(step, Get))
