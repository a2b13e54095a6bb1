"""Fused overlap under mpiexec: exact on every transport, with the plan's bytes and memory, and
signals that are broken on purpose are caught."""

import itertools
import random

import pytest
from cases import amiss, case
from signal_runs import OVERLAP, RUNS, SHAPES, unnoticed
from starting import wait_until_empty, within

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(240)]


def sample(p):
    """Every variant on every shape; orders and all else are drawn."""
    chance = random.Random(p)
    cases = []
    for seed, ((name, options), (m, n, k)) in enumerate(itertools.product(OVERLAP, SHAPES)):
        if name not in ("te_chunks", "async_tp"):
            tile = chance.choice((1, 5, 16, 200)) if m > 4 else 1
            options = options | {"tile": tile, "part": chance.choice((1, 7, 40))}
        if name == "ag_gemm":
            options = options | {"order": chance.choice(("ranks", "mesh", "interleaved"))}
        if name in ("ag_gemm", "gemm_rs", "gemm_ar"):
            options = options | {"swizzle": chance.choice(("ranks", "naive"))}
        cases.append(
            case(m, n, k, algorithm=name, iters=2, warmup=1, seed=seed, **options)
            | {
                "prefetch": chance.choice((None, "all", 0, 1, 2)),
                "get": chance.choice(("view", "copy")),
                "progress": chance.choice(("poll", "none")),
                "dtype": chance.choice(("float32", "float64")),
                "transpose": chance.choice((None, "a", "b", "ab")),
            }
        )
    return cases


@pytest.mark.parametrize("p, situation", RUNS)
def test_every_variant_is_exact_and_moves_the_bytes_of_the_plan(mpirun, dealt, p, situation):
    cases = dealt(sample(p), list(RUNS).index((p, situation)), 7)
    ran = 0
    answers = mpirun.cases(p, cases, *RUNS[p, situation], situation=situation)
    for made, out in zip(cases, answers):
        if out["status"] == "unsupported":
            assert "algorithm requirement" in out["reason"], (made, out["reason"])
            assert made["m"] == 3, made  # fewer rows than ranks
            continue
        ran += 1
        assert not amiss(made, out), (made, amiss(made, out))
        if situation in ("rma", "remote") or made["get"] == "copy":
            assert not out["direct_bytes"], made
    assert ran >= 2 * len(cases) // len(SHAPES)
    if "--delays" in RUNS[p, situation]:
        assert {*mpirun.naps} >= {"_compute", "Signal"}


def test_prefetch_is_recorded_and_empty_without_limit(mpirun):
    cases = [case(8, 8, 8, algorithm="ag_gemm", prefetch=each) for each in (None, "all", 2)]
    answers = mpirun.exact(2, cases)
    assert [out["prefetch"] for out in answers] == [None, None, 2]
    assert all("variant=pull" in out["options"] for out in answers)


def test_overlap_is_recorded_as_flux_defines_it_against_collective_on_the_same_layout(mpirun):
    """Eq. 1 and 2: the time beyond the local GEMMs, over that of what overlaps nothing."""
    how = {"iters": 3, "warmup": 1, "gemm_only": True}
    names = "ag_gemm", "gemm_rs", "te_chunks"
    for out in mpirun.exact(2, [case(256, 256, 256, algorithm=name, **how) for name in names]):
        beyond = out["median_s"] - out["local_gemm_s"]
        assert out["effective_communication_s"] == pytest.approx(beyond, abs=1e-8)
        assert out["overlap_efficiency"] is not None


# -- broken on purpose

PUSHED = [
    {
        "algorithm": name,
        "shape": [64, 32, 32],
        "options": {"variant": variant, "tile": 8, "part": 1},
    }
    for name, variants in (("ag_gemm", ("push", "ring")), ("gemm_rs", ("write", "pull", "ring")))
    for variant in variants
] + [
    {
        "algorithm": "universal",
        "shape": [64, 36, 32],
        "texts": texts,
        "options": {"sums": "push", "stationary": stationary, "chunk": 8},
    }
    for stationary, texts in (
        ("B", ["row", "row", "row"]),
        ("B", ["column", "column", "row"]),
        ("A", ["block", "tiles:7x9", "column"]),
    )
]


def test_operands_that_change_from_run_to_run_are_those_of_the_run(mpirun, dealt):
    throttled = [case | {"throttle": [5e7, 1e-4]} for case in dealt(PUSHED, 0, 2)]
    for p, situation in ((3, "direct"), (4, "mixed"), (3, "remote")):
        cases = PUSHED + (throttled if situation == "direct" else [])
        answers = mpirun(p, "signals.py", cases, "--delays", "3", situation=situation)
        assert [out["wrong"] for out in answers] == [[0] * 3] * len(cases)
        assert all(out["apart"] == (0 if situation == "direct" else p) for out in answers)


@pytest.mark.parametrize("mutant", ["no_flag_check", "no_epoch", "shared_slots"])
def test_signals_broken_on_purpose_give_wrong_results(mpirun, mutant):
    cases = [case for case in PUSHED if case["options"].get("variant") not in ("pull", "ring")]
    run = lambda cases: mpirun(3, "signals.py", cases, "--mutant", mutant, "--delays", "3")
    assert unnoticed(run, cases) == []


# -- time


def test_a_throttled_push_takes_its_time_and_its_receiver_waits_for_it(mpirun):
    """Each of two ranks sends 64·256 elements at 10 MB/s, and nothing arrives before."""
    cases = [
        {
            "algorithm": name,
            "shape": [128, 128, 256] if name == "ag_gemm" else [128, 256, 128],
            "options": {"variant": variant, "tile": 16},
            "throttle": [1e7, 0.0],
        }
        for name, variant in (
            ("ag_gemm", "push"),
            ("ag_gemm", "ring"),
            ("gemm_rs", "write"),
            ("gemm_rs", "pull"),
        )
    ]
    for made, out in zip(cases, mpirun(2, "signals.py", cases)):
        assert out["wrong"] == [0] * 3
        least = 64 * 256 * 4 / 1e7
        assert least <= out["seconds"] and within(out["seconds"], 10 * least), made


def test_an_offered_value_is_read_while_a_long_gemm_runs(mpirun):
    """Rank 1 begins its own rows, a GEMM of 105 ms, before rank 0 offers its tiles, which then need
    100 ms of a link: rank 1 ends soon after its GEMM if it polls for them."""
    case = {
        "algorithm": "gemm_rs",
        "shape": [64, 64, 4096],
        "options": {"variant": "pull", "tile": 8, "part": 1},
        "flops_per_s": 8e7,
        "throttle": [8192 / 0.1, 0.0],
        "late_s": 0.1,
    }
    late = wait_until_empty(
        lambda: not within(mpirun(2, "signals.py", [case])[0]["seconds_of"][1], 0.28)
    )
    assert not late


def test_a_push_and_an_await_take_less_than_20_microseconds_of_a_core(mpirun):
    cost_s = lambda: mpirun(2, "signals.py", "--cost", "300", gently=False)
    slow = wait_until_empty(lambda: not within(cost_s(), 20e-6))
    assert not slow


@pytest.mark.parametrize("situation", ["direct", "remote"])
def test_columns_of_a_gemm_are_read_in_place_with_gaps_between_rows(mpirun, situation):
    """In place, and by RMA with a type that leaves the gaps out."""
    cases = [{"algorithm": "columns offered", "shape": shape} for shape in ([5, 8, 6], [1, 2, 2])]
    for out in mpirun(2, "signals.py", cases, situation=situation):
        assert out["wrong"] == [0] * len(out["wrong"])
        assert (out["apart"] == 2) == (situation == "remote")
