"""The programs of fused overlap without MPI: their bytes, their order and their kernels."""

import itertools
from dataclasses import replace

import pytest
from traced import everyone_of, resolved_as

from drbench.algorithms import get_algorithm
from drbench.errors import UnsupportedError
from drbench.model.costs import reduction_s
from drbench.model.gemm import Compute
from drbench.model.machine import Machine
from drbench.plan.explain import traffic
from drbench.plan.schedule import Lookahead, pool_bytes
from drbench.program.signal_steps import Await, Offer, Push
from drbench.program.steps import Add, Copy, Gemm, Get, Join

#: Program and options: each variant and order.
PROGRAMS = (
    [
        ("ag_gemm", {"variant": variant, "order": order, "swizzle": swizzle})
        for variant, order, swizzle in itertools.product(
            ("pull", "push", "ring"), ("ranks", "mesh", "interleaved"), ("ranks", "naive")
        )
    ]
    + [
        ("gemm_rs", {"variant": variant, "swizzle": swizzle})
        for variant, swizzle in itertools.product(
            ("write", "reduce", "pull", "ring"), ("ranks", "naive")
        )
    ]
    + [("gemm_rs", {"variant": how, "additions": "end"}) for how in ("write", "pull", "ring")]
    + [("ag_gemm", {"variant": how, "buffer": "symmetric"}) for how in ("pull", "push", "ring")]
    + [("gemm_ar", {"swizzle": swizzle}) for swizzle in ("ranks", "naive")]
    + [(name, {"dataflow": flow}) for name in ("te_chunks", "async_tp") for flow in ("AG", "RS")]
    + [(name, {"inside": inside}) for name in ("ag2", "rs2") for inside in ("direct", "ring")]
    + [("ag2", {"protocol": "ll", "inside": inside}) for inside in ("direct", "ring")]
)
named = pytest.mark.parametrize(
    "name, options",
    PROGRAMS,
    ids=lambda value: value if isinstance(value, str) else "-".join(value.values()),
)


def made(name, options, p, shape, **more):
    """The resolved options, and the traces of all ranks."""
    taken = get_algorithm(name).options
    options = options | {each: more[each] for each in more if each in taken}
    found = resolved_as(name, *shape, p, **options)
    return found[2], everyone_of(*found)


def moved(traces):
    return sum(sum(traffic(trace).counters.values()) for trace in traces)


@pytest.mark.parametrize("name, width", [("ag_gemm", 24), ("gemm_rs", 16)])
def test_every_variant_moves_each_row_or_partial_sum_once_to_every_other_rank(name, width):
    """Rows of A, k wide; rows of C, n wide."""
    m, n, k, p = 32, 16, 24, 4
    for variant in get_algorithm(name).options["variant"].tried:
        _, traces = made(name, {"variant": variant}, p, (m, n, k), tile=3)
        assert moved(traces) == (p - 1) * m * width * 4, variant


@pytest.mark.parametrize(
    "name, options, adds",
    [
        ("gemm_rs", {"variant": "write"}, 2),
        ("gemm_rs", {"variant": "pull"}, 2),
        ("te_chunks", {"dataflow": "RS"}, 1),
        ("async_tp", {"dataflow": "RS"}, 1),
    ],
)
def test_partial_sums_of_other_ranks_are_added_to_a_tile_in_one_pass(name, options, adds):
    """As the kernels of FLUX and Triton-distributed reduce: one launch a tile, which reads each
    partial sum and the rank's own once and writes the sum once."""
    m, n, k, p = 32, 16, 24, 4
    _, traces = made(name, options, p, (m, n, k), tile=4, part=1)
    rows = m // p // adds
    machine = Machine("m", Compute(1.0, memory_bytes_per_s=4.0, launch_s=1000.0))
    for trace in traces:
        found = [step for step in trace.steps if type(step) is Add]
        assert [len(step.terms) for step in found] == [p - 1] * adds
        assert {reduction_s(machine, step, 4, concurrent=False) for step in found} == {
            1000 + (p + 1) * rows * n
        }


def test_over_nodes_every_tile_crosses_once_and_sums_of_a_node_cross_once():
    m, n, k, p, local = 48, 16, 24, 6, 3
    for (name, width), inside in itertools.product((("ag2", k), ("rs2", n)), ("direct", "ring")):
        _, traces = made(name, {"inside": inside}, p, (m, n, k), tile=4)
        pushed = [
            (trace.rank, step.peer, step.inputs[0].shape[0] * width)
            for trace in traces
            for step in trace.steps
            if type(step) is Push
        ]
        crossing = [elements for one, other, elements in pushed if one // local != other // local]
        assert sum(crossing) == (p // local - 1) * m * width, (name, inside)
        steps = {
            (one - other) % local for one, other, _ in pushed if one // local == other // local
        }
        assert steps == ({1} if inside == "ring" else {1, 2}), (name, inside)


def order_of(trace):
    """First rows of the GEMMs, in program order."""
    return [step.block.row0 for step in trace.steps if type(step) is Gemm and step.block]


def test_the_own_rows_are_multiplied_first_in_a_gather_and_last_in_a_reduction():
    shape = (16, 8, 8)
    _, traces = made("ag_gemm", {"variant": "push"}, 4, shape, tile=2, part=1)
    assert [order_of(trace)[:2] for trace in traces] == [[4 * r, 4 * r + 2] for r in range(4)]
    assert order_of(traces[2]) == [8, 10, 12, 14, 0, 2, 4, 6]
    _, traces = made("ag_gemm", {"swizzle": "naive"}, 4, shape, tile=2, part=1)
    assert order_of(traces[2]) == list(range(0, 16, 2))
    _, traces = made("gemm_rs", {}, 4, shape, tile=4, part=1)
    gemms = [step for step in traces[1].steps if type(step) is Gemm]
    assert [step.inputs[0].block.row0 for step in gemms] == [8, 12, 0, 4]


def test_a_mesh_copies_a_tile_of_every_rank_cyclically():
    _, traces = made("ag_gemm", {"variant": "push", "order": "mesh"}, 3, (12, 3, 4), tile=2)
    pushes = [step for step in traces[0].steps if type(step) is Push]
    assert [(step.peer, step.key) for step in pushes] == [
        (2, (0, 2)), (1, (0, 2)), (2, (2, 4)), (1, (2, 4)),
    ]  # fmt: skip


#: Triton-distributed, Fig. 8 and its text, of rank 1 of 4 with three sub-chunks each: in each step
#: the next sub-chunk (rank, number) of every other rank is gathered, and multiplied.
STEPS = [
    [(2, 0), (3, 0), (0, 0)],
    [(2, 1), (3, 1), (0, 1)],
    [(2, 2), (3, 2), (0, 2)],
]
#: When the own sub-chunks are multiplied: before all steps, or one in each, as in their code
#: (``swizzle_ag_gemm_imperfect``: group g is sub-chunk g // 4 of rank (g % 4 + 1) % 4).
GEMM_ORDER = {
    "mesh": [[(1, 0), (1, 1), (1, 2)], *STEPS],
    "interleaved": [[(1, number), *step] for number, step in enumerate(STEPS)],
}


@pytest.mark.parametrize("variant", ["pull", "push"])
@pytest.mark.parametrize("order", GEMM_ORDER)
def test_the_tiles_of_a_mesh_have_the_order_of_the_figure(order, variant):
    options = {"variant": variant, "order": order}
    _, traces = made("ag_gemm", options, 4, (24, 8, 8), tile=2, part=1)
    text = [rank_number for step in GEMM_ORDER[order] for rank_number in step]
    row = lambda rank_number: 6 * rank_number[0] + 2 * rank_number[1]
    assert order_of(traces[1]) == [row(each) for each in text]
    if variant == "pull":
        gets = [s.block for s in traces[1].steps if type(s) is Get and s.block.matrix == "A"]
        assert [b.row0 for b in gets if b.owner != 1] == [row(x) for step in STEPS for x in step]
    else:  # in each step a rank gives its next sub-chunk to every other one
        pushes = [(s.peer, s.key[0]) for s in traces[1].steps if type(s) is Push]
        assert [first for _, first in pushes] == [row((1, x)) for x in range(3) for _ in range(3)]
        assert all({peer for peer, _ in pushes[x : x + 3]} == {0, 2, 3} for x in (0, 3, 6))


def test_no_part_of_a_gemm_has_fewer_rows_than_requested():
    """Tiles of 1 row on chunks of 4: parts of at least 6 rows span ranks, and cover every row."""
    _, traces = made("ag_gemm", {"variant": "push"}, 4, (16, 8, 8), tile=1, part=6)
    for trace in traces:
        gemms = [step for step in trace.steps if type(step) is Gemm]
        spans = sorted((step.block.row0, step.block.row1) for step in gemms)
        assert spans == [(0, 6), (6, 16)]
        assert {type(step.inputs[0]) for step in gemms} == {Join}
        assert len({id(step.kernel) for step in gemms}) == 1


@pytest.mark.parametrize("variant, rows", [("write", 16), ("ring", 16), ("pull", 4)])
def test_nothing_comes_between_the_parts_of_a_fused_kernel(variant, rows):
    """Parts of 16 rows span ranks of 4 rows, or are of one rank as on Hopper; rows that a rank
    keeps are copied after the last part."""
    options = {"variant": variant, "additions": "end"}
    _, traces = made("gemm_rs", options, 4, (16, 8, 8), tile=4, part=16)
    for rank, trace in enumerate(traces):
        computes = [step for step in trace.steps if step.computes]
        kinds = [type(step) for step in computes]
        gemms = 16 // rows
        assert kinds == [Gemm] * gemms + [Copy] * (gemms == 1) + [Add]
        assert {step.extents[0] for step in computes[:gemms]} == {rows}
        assert len(computes[-1].terms) == (1 if variant == "ring" else 3)
        sent = [step.key[0] // 4 for step in trace.steps if type(step) in (Push, Offer)]
        assert [owner for owner in sent if owner != rank] == sent
        assert variant == "write" or sent == [(rank + i) % 4 for i in (1, 2, 3)]


def test_own_rows_are_copied_once_before_other_ranks_read_them():
    _, traces = made("ag_gemm", {"buffer": "symmetric"}, 4, (16, 8, 8), tile=2, part=1)
    for rank, trace in enumerate(traces):
        first, *others = [step for step in trace.steps if step.computes]
        assert type(first) is Copy and first.shape == (4, 8)
        assert {type(step) for step in others} == {Gemm}
        gets = [s.block for s in trace.steps if type(s) is Get and s.block.matrix == "A"]
        assert [(block.owner, block.rows) for block in gets] == [(rank, (4 * rank, 4 * rank + 4))]
        offers = [step for step in trace.steps if type(step) is Offer]
        assert {(s.peer, s.key) for s in offers} == {
            (peer, (x, x + 2)) for peer in {0, 1, 2, 3} - {rank} for x in (4 * rank, 4 * rank + 2)
        }


@named
def test_fused_parts_share_one_kernel_of_the_whole_gemm(name, options):
    resolved, traces = made(name, options, 4, (32, 16, 24), tile=2, part=1)
    for trace in traces:
        gemms = [step for step in trace.steps if type(step) is Gemm]
        kernels = {id(step.kernel): step.kernel for step in gemms}
        if resolved.get("kernel") != "fused":
            assert set(kernels.values()) == {None}
            continue
        (kernel,) = kernels.values()
        assert kernel.m * kernel.n * kernel.k == sum(step.products for step in gemms)


def test_a_gather_without_limit_holds_the_whole_of_a():
    """FLUX's gathered A: the slots of a pushed gather, the buffers of a pulled one, to the byte."""
    m, n, k, p = 64, 32, 16, 4
    for variant in ("push", "pull"):
        _, traces = made("ag_gemm", {"variant": variant}, p, (m, n, k), tile=4, part=1)
        assert {pool_bytes(trace, "all") for trace in traces} == {(p - 1) * (m // p) * k * 4}


# -- refusals


@pytest.mark.parametrize(
    "name, options, texts, message",
    [
        ("ag_gemm", {}, {"a": "column"}, "ag_gemm needs A as row"),
        ("gemm_rs", {}, {"c": "block"}, "gemm_rs needs C as row"),
        ("gemm_rs", {"variant": "ring"}, {}, "needs a share of k on every rank"),
        ("gemm_ar", {}, {"c": "row"}, "gemm_ar needs C as"),
        ("ag2", {"per_node": 3}, {}, "needs as many ranks on each node"),
        ("rs2", {}, {}, "needs a share of A and of C on every rank"),
        ("te_chunks", {"dataflow": "RS"}, {"a": "row"}, "te_chunks RS needs A as column"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line(name, options, texts, message):
    with pytest.raises(UnsupportedError, match=message) as refused:
        resolved_as(name, 9, 8, 3, 4, *map(texts.get, "abc"), **options)
    assert "\n" not in str(refused.value)
    assert "Use" in str(refused.value) or "use" in str(refused.value)


def test_gemm_ar_overwrites_c():
    algorithm = get_algorithm("gemm_ar")
    problem = replace(algorithm.problem(8, 8, 8, 2), updates=True)
    with pytest.raises(UnsupportedError, match="beta other than 0"):
        algorithm.resolve(problem)


def test_the_default_look_ahead_of_programs_with_signals_is_unlimited():
    for name in {name for name, _ in PROGRAMS}:
        assert get_algorithm(name).prefetch() == "all"
    assert get_algorithm("universal").prefetch() == 1
    _, (trace, _) = made("ag_gemm", {}, 2, (8, 8, 8))
    assert Lookahead(trace, "all").depth == float("inf")


@pytest.mark.parametrize("inside", ["direct", "ring"])
def test_every_tile_has_flags_in_its_words_over_nodes_and_inside_them(inside):
    _, traces = made("ag2", {"protocol": "ll", "inside": inside, "per_node": 2}, 4, (16, 8, 8))
    steps = [step for trace in traces for step in trace.steps if type(step) in (Push, Await)]
    assert len(steps) == 2 * 4 * 3 and all(step.flagged for step in steps)
