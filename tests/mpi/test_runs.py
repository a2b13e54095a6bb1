"""Runs under mpiexec that random small multiplications (``test_any_multiplication_runs.py``) rarely
have: long messages, throttled links, results that do not count, and defaults of several nodes."""

import itertools

import pytest
from cases import case

from drbench.program.problem import TRANSPOSES

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]

LARGE = case(300, 420, 360, prefetch=2)
UNEVEN = LARGE | {"a": "tiles:190x150", "b": "tiles:170x250", "c": "tiles:200x260"}
#: Messages too long to be sent at once.
LONG = [
    LARGE | {"a": "column", "b": "column", "c": "row", "stationary": "B"},
    LARGE | {"a": "column", "b": "column", "c": "row", "stationary": "C"},
    UNEVEN | {"stationary": "A", "pack": "always", "work": "level"},
    UNEVEN | {"stationary": "C", "pack": "never", "work": "level"},
    case(310, 290, 330, "tiles:100x90", "tiles:70x110", "tiles:130x51", stationary="B"),
    case(160, 240, 320, algorithm="summa2.5d", replicas=2, iters=2),
    case(240, 160, 320, algorithm="meshslice", dataflow="RS", slices=2, block=4),
]
#: Partial sums that a machine's model makes as one GEMM before they are pushed; of ranks without
#: tiles; and searches for an order.
SUMS = {"sums": "push", "machine": "pvc12"}
OTHERS = [
    case(65, 48, 130, "row", "row", "row", stationary="B", chunk=16, **SUMS),
    case(130, 65, 48, "block", "tiles:17x19", "column", stationary="A", chunk=16, **SUMS),
    *(case(33, 17, 60, *["grid:1x1x1"] * 3, work="1x1x4", sums=x) for x in ("auto", "accumulate")),
    case(65, 48, 130, *["column"] * 3, stationary="C", chunk=20, schedule="exhaustive:2x2"),
    case(130, 65, 48, "column", "row", "row", stationary="B", chunk=24, schedule="exhaustive:1x2"),
]


@pytest.mark.parametrize("situation", ["direct", "mixed", "remote"])
def test_long_messages_and_rare_orders_are_exact(mpirun, dealt, situation):
    turn = len(situation)
    cases = dealt(LONG, turn, 2) + dealt(OTHERS, turn, 3)
    answers = mpirun.exact(4, cases, "--small-segments", situation=situation)
    for made, out in zip(cases, answers):
        if "schedule" in made:
            assert out["schedule"] == made["schedule"].removesuffix(":1x2")


def test_a_search_too_large_on_one_rank_alone_is_refused_by_all(mpirun):
    tiles = "tiles:9x11", "tiles:7x10", "tiles:47x43"
    search = case(47, 43, 53, *tiles, stationary="C", schedule="exhaustive:3x4")
    (out,) = mpirun.cases(2, [search])
    assert out["status"] == "unsupported" and out["same_on_every_rank"]
    assert out["reason"].startswith("exhaustive lowering of rank 0's")


@pytest.mark.parametrize("situation", ["direct", "rma"])
def test_grids_that_leave_ranks_out_take_every_form(mpirun, situation):
    """A transposed grid of fewer ranks than there are has no text form; that ended the ranks."""
    grids = itertools.product(TRANSPOSES[1:], ("grid:1x1x2", "grid:2x1x1", "grid:1x2x1"))
    cases = [case(6, 7, 8, *[grid] * 3, transpose=transpose) for transpose, grid in grids]
    mpirun.exact(3, cases, situation=situation)


@pytest.mark.parametrize("situation", ["mixed", "remote"])
def test_what_a_rank_without_rows_has_of_a_matrix_is_not_fetched_from_another_node(
    mpirun, situation
):
    """To reshard, a rank fetches its part of every tile: of one row on two ranks, one is empty."""
    few = case(1, 27, 19, "row", "column", "row", algorithm="dtensor_mm")
    odd = case(6, 3, 15, "row", "column", "column", algorithm="dtensor_mm", strategy="partial")
    mpirun.exact(2, [few], situation=situation)
    mpirun.exact(4, [odd, odd | {"get": "view"}], situation=situation)


def test_values_of_c_that_do_not_count_are_never_read(mpirun):
    """C is NaN before every run; with beta 0 nothing of it may come through, alpha 0 or not."""
    cases = [
        case(33, 21, 17, a, None, c, stationary=stationary, alpha=alpha, beta=0.0, transpose="b")
        for a, c in (("row", "row/c2"), ("column", "block"), ("row/c2", "tiles:5x5"))
        for stationary in "ABC"
        for alpha in (0.0, 2.0)
    ]
    mpirun.exact(2, cases)


def test_ranks_of_several_nodes_fetch_whole_rows_and_push_partial_sums_by_default(mpirun):
    cases = [
        case(92, 100, 112, *["column"] * 3, stationary="C", iters=2),
        case(92, 100, 112, *["row"] * 3, stationary="B", iters=2),
    ]
    cases.append(cases[1] | {"sums": "accumulate"})
    far, tcp, near = (mpirun.exact(4, cases, situation=x) for x in ("mixed", "remote", "rma"))
    for found in (far, tcp):
        assert [out["options"] for out in found] == ["fetch=rows", "sums=push", "fetch=rows"]
        assert [bool(out["put_bytes"]) for out in found] == [False, True, False]
        assert [bool(out["accumulate_bytes"]) for out in found] == [False, False, True]
        assert found[1]["put_bytes"] == 4 * 3 * 92 * 100
    assert [out["options"] for out in near] == [None] * 3


def test_auto_goes_without_slots_that_do_not_fit_and_always_is_refused(mpirun):
    small = 256 << 10  # less than slots for half of C, partial sums for them, and a part of A
    rows = case(256, 256, 256, *["row"] * 3, transport="rma", stationary="B", prefetch=1)
    asked = [{"sums": sums, "pool": pool} for sums in ("auto", "push") for pool in (None, small)]
    answers = mpirun.cases(2, [rows | each for each in asked])
    assert [out["status"] for out in answers] == ["ok", "ok", "ok", "out_of_memory"]
    assert ["sums=push" in (out["options"] or "") for out in answers[:3]] == [1, 0, 1]
    assert [bool(out["accumulate_bytes"]) for out in answers[:3]] == [0, 1, 0]
    assert "-o pool allows" in answers[3]["reason"]


def test_overlap_is_recorded_as_flux_defines_it_against_collective_on_the_same_layout(mpirun):
    """Eq. 1 and 2: the time beyond the local GEMMs, over that of what overlaps nothing; of experts
    over that of their collective."""
    how = {"iters": 3, "warmup": 1, "gemm_only": True}
    names = "ag_gemm", "gemm_rs", "te_chunks"
    experts = {"experts": 6, "topk": 2}
    cases = [case(256, 256, 256, algorithm=name, **how) for name in names]
    moe = [case(256, 64, 64, algorithm=name, **how, **experts) for name in ("ag_moe", "moe_rs")]
    found = mpirun.exact(2, cases + moe)
    for out in found:
        beyond = out["median_s"] - out["local_gemm_s"]
        assert out["effective_communication_s"] == pytest.approx(beyond, abs=1e-8)
        assert out["overlap_efficiency"] is not None
    for out in found[3:]:
        assert (out["experts"], out["topk"], out["routing"]) == (6, 2, "uniform")
        rate = 2 * 256 * 2 * 64 * 64 / out["median_s"] / 1e9
        assert out["gflops"] == pytest.approx(rate, rel=1e-6)


# -- throttled links

THROTTLED = [
    {"a": "column", "b": "column", "c": "column", "stationary": "C"},  # A moves
    {"a": "row", "b": "column", "c": "block", "stationary": "B"},  # C is accumulated
    {"a": "block/c2", "b": "block", "c": "block/c2", "stationary": "A"},  # C is reduced, too
    {"a": "tiles:37x29@2x2", "b": "row", "c": "column/c4", "stationary": "C"}
    | {"replicate_result": True},
]


def test_throttled_transfers_take_at_least_their_bytes_over_the_bandwidth(mpirun, dealt):
    bandwidth = 0.01  # GB/s: 10 to 100 ms a case
    how = {"transport": f"throttled:{bandwidth},0", "warmup": 1}
    cases = [
        case(160, 240, 320, prefetch=prefetch, **how, **each)
        for each in THROTTLED
        for prefetch in (0, 1, 4)
    ]
    cases = dealt(cases, 0, 3)
    for made, out in zip(cases, mpirun.exact(4, cases)):
        assert out["transport"] == f"throttled:{bandwidth},0", made
        assert out["planned"]["link"] > 10**5
        assert min(out["samples_s"]) >= out["planned"]["link"] / (bandwidth * 1e9), made


def test_throttled_transfers_take_at_least_the_latency(mpirun):
    latency = 0.03
    how = {"transport": f"throttled:100,{latency * 1e6:g}", "iters": 2}
    cases = [case(8, 8, 8, **how, **each) for each in THROTTLED[:3]]
    cases.append(case(65, 31, 16, *["row"] * 3, stationary="B", sums="push", **how))
    for made, out in zip(cases, mpirun.exact(4, cases)):
        assert out["transport"] == made["transport"]
        assert min(out["samples_s"]) >= latency, made


def test_a_throttled_ring_takes_its_time(mpirun):
    """collective on 2x2: the A row is 48·24 elements from one neighbour, the B column the same, at
    once on rings of their own."""
    ring = {"algorithm": "collective", "dataflow": "OS"}
    cases = [
        case(96, 96, 96, mesh="2x2", transport="throttled:0.001,0", **ring),
        case(8, 8, 8, mesh="4x1", transport="throttled:100,20000", **ring),
    ]
    slow, late = (out["best_s"] for out in mpirun.exact(4, cases))
    assert slow >= 48 * 48 * 4 / 1e6  # one neighbour's tile
    assert late >= 3 * 0.02  # P - 1 messages, one after the other
