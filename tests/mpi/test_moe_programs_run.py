"""Products of experts under mpiexec: exact on every transport, with the plan's bytes and memory."""

import random
from itertools import product

import pytest
from signal_runs import COLLECTIVE, EXPERTS, RUNS, SHAPES

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(240)]


def sample(p):
    """Every program on every shape; experts and all else are drawn."""
    chance = random.Random(p)
    cases = []
    for seed, ((name, options), (m, n, k)) in enumerate(product(COLLECTIVE + EXPERTS, SHAPES)):
        if name == "moe_collective":
            options = options | {"kernel": chance.choice(("fused", "parts"))}
        experts = chance.choice((1, 4, 7, 40))
        scaled = chance.random() < 0.3
        cases.append(
            {
                "m": m,
                "n": n,
                "k": k,
                "algorithm": name,
                "options": options
                | {
                    "experts": experts,
                    "topk": chance.randint(1, min(4, experts)),
                    "routing": chance.choice(("uniform", "skewed", "skewed:5")),
                },
                "iters": 2,
                "warmup": 1,
                "prefetch": chance.choice((None, "all", 0, 1, 2)),
                "get": chance.choice(("view", "copy")),
                "progress": chance.choice(("poll", "none")),
                "dtype": chance.choice(("float32", "float64")),
                "transpose": chance.choice((None, "a", "b", "ab")),
                "alpha": -2.0 if scaled else None,
                "beta": 3.0 if scaled else None,
                "fill": "uniform" if chance.random() < 0.2 else "integer",
                "seed": seed,
            }
        )
    return cases


@pytest.mark.parametrize("p, situation", RUNS)
def test_experts_are_exact_and_move_what_the_plan_says(mpirun, dealt, p, situation):
    cases = dealt(sample(p), list(RUNS).index((p, situation)), 7)
    answers = mpirun.cases(p, cases, *RUNS[p, situation], situation=situation, timeout=200)
    ran = 0
    for case, out in zip(cases, answers):
        if out["status"] == "unsupported":
            why = "of A and of C" if case["algorithm"] in ("ag2_moe", "moe_rs2") else "of k"
            assert f"share {why} on every rank" in out["reason"], (case, out["reason"])
            assert case["m"] == 3 or {"variant", "dataflow"} & set(case["options"]), case
            continue
        ran += 1
        plan = out["planned"]
        assert out["status"] == "ok", (case, out["reason"])
        assert out["error"] <= (case["fill"] == "uniform"), case
        assert out["get_bytes"] + out["direct_bytes"] == plan["get_bytes"], case
        for name in ("put_bytes", "accumulate_bytes", "collective_bytes"):
            assert out[name] == plan[name], (case, name)
        assert out["pool_bytes"] <= plan["arena"], case
        assert not any(out["left_open"].values()), (case, out["left_open"])
    assert ran >= max(len(cases) - 5, len(cases) // 2)


def test_overlap_is_recorded_beside_the_collective_of_experts(mpirun):
    size = {"m": 256, "n": 64, "k": 64, "iters": 3, "roof": True}
    size["options"] = {"experts": 6, "topk": 2}
    cases = [size | {"algorithm": name} for name in ("ag_moe", "moe_rs")]
    for out in mpirun.cases(2, cases):
        assert (out["status"], out["error"]) == ("ok", 0.0)
        assert (out["experts"], out["topk"], out["routing"]) == (6, 2, "uniform")
        assert out["overlap_efficiency"] is not None
        rate = 2 * 256 * 2 * 64 * 64 / out["median_s"] / 1e9
        assert out["gflops"] == pytest.approx(rate, rel=1e-6)
