"""GEMMs of experts under mpiexec: exact on every transport, with the plan's bytes and memory."""

import itertools
import random

import pytest
from cases import amiss, case
from signal_runs import COLLECTIVE, EXPERTS, RUNS, SHAPES

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(240)]


def sample(p):
    """Every program on every shape; experts and all else are drawn."""
    chance = random.Random(p)
    cases = []
    for seed, ((name, options), (m, n, k)) in enumerate(
        itertools.product(COLLECTIVE + EXPERTS, SHAPES)
    ):
        if name == "moe_collective":
            options = options | {"kernel": chance.choice(("fused", "parts"))}
        experts = chance.choice((1, 4, 7, 40))
        scaled = chance.random() < 0.3
        cases.append(
            case(m, n, k, algorithm=name, iters=2, warmup=1, seed=seed, experts=experts, **options)
            | {
                "topk": chance.randint(1, min(4, experts)),
                "routing": chance.choice(("uniform", "skewed", "skewed:5")),
                "prefetch": chance.choice((None, "all", 0, 1, 2)),
                "get": chance.choice(("view", "copy")),
                "progress": chance.choice(("poll", "none")),
                "dtype": chance.choice(("float32", "float64")),
                "transpose": chance.choice((None, "a", "b", "ab")),
                "alpha": -2.0 if scaled else None,
                "beta": 3.0 if scaled else None,
                "fill": "uniform" if chance.random() < 0.2 else "integer",
            }
        )
    return cases


@pytest.mark.parametrize("p, situation", RUNS)
def test_experts_are_exact_and_move_the_bytes_of_the_plan(mpirun, dealt, p, situation):
    cases = dealt(sample(p), list(RUNS).index((p, situation)), 7)
    answers = mpirun.cases(p, cases, *RUNS[p, situation], situation=situation)
    ran = 0
    for made, out in zip(cases, answers):
        if out["status"] == "unsupported":
            why = "of A and of C" if made["algorithm"] in ("ag2_moe", "moe_rs2") else "of k"
            assert f"share {why} on every rank" in out["reason"], (made, out["reason"])
            assert made["m"] == 3 or {"variant", "dataflow"} & set(made), made
            continue
        ran += 1
        assert not amiss(made, out), (made, amiss(made, out))
    assert ran >= max(len(cases) - 5, len(cases) // 2)


def test_overlap_is_recorded_against_the_collective_of_experts(mpirun):
    how = {"iters": 3, "warmup": 1, "gemm_only": True, "experts": 6, "topk": 2}
    names = "ag_moe", "moe_rs"
    for out in mpirun.exact(2, [case(256, 64, 64, algorithm=name, **how) for name in names]):
        assert (out["experts"], out["topk"], out["routing"]) == (6, 2, "uniform")
        assert out["overlap_efficiency"] is not None
        rate = 2 * 256 * 2 * 64 * 64 / out["median_s"] / 1e9
        assert out["gflops"] == pytest.approx(rate, rel=1e-6)
