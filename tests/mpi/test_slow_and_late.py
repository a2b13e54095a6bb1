"""Throttled links take their time, and no delay of any rank changes a result."""

import random

import pytest

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]

THROTTLED = [
    {"a": "column", "b": "column", "c": "column", "stationary": "C"},  # A moves
    {"a": "row", "b": "column", "c": "block", "stationary": "B"},  # C is accumulated
    {"a": "block/c2", "b": "block", "c": "block/c2", "stationary": "A"},  # C is reduced, too
    {
        "a": "tiles:37x29@2x2",
        "b": "row",
        "c": "column/c4",
        "stationary": "C",
        "replicate_result": True,
    },
]


def test_throttled_transfers_take_at_least_their_bytes_over_the_bandwidth(mpirun):
    bandwidth = 0.01  # GB/s: 10 to 100 ms a case
    cases = [
        {
            "m": 160,
            "n": 240,
            "k": 320,
            "iters": 1,
            "warmup": 1,
            "transport": f"throttled:{bandwidth},0",
            "prefetch": prefetch,
            **case,
        }
        for case in THROTTLED
        for prefetch in (0, 1, 4)
    ]
    for case, out in zip(cases, mpirun.cases(4, cases)):
        assert (out["status"], out["error"]) == ("ok", 0.0), (case, out["reason"])
        assert out["transport"] == f"throttled:{bandwidth},0"
        assert out["planned"]["link"] > 10**5
        assert min(out["samples_s"]) >= out["planned"]["link"] / (bandwidth * 1e9), case


def test_throttled_transfers_take_at_least_the_latency(mpirun):
    latency = 0.03
    cases = [
        {
            "m": 8,
            "n": 8,
            "k": 8,
            "iters": 2,
            "warmup": 0,
            "transport": f"throttled:100,{latency * 1e6:g}",
            **case,
        }
        for case in THROTTLED[:3]
    ]
    for case, out in zip(cases, mpirun.cases(4, cases)):
        assert (out["status"], out["error"], out["transport"]) == ("ok", 0.0, case["transport"])
        assert min(out["samples_s"]) >= latency, case


@pytest.mark.parametrize(
    "p, situation", [(4, "direct"), (3, "rma"), (4, "mixed"), (4, "nodes"), (3, "remote")]
)
def test_random_delays_change_no_result(mpirun, p, situation):
    """Each rank sleeps now and then before it starts, computes or completes something, and while it
    holds a lock."""
    chance = random.Random(p)
    layouts = [
        "row",
        "column",
        "block",
        "tiles:19x31",
        "tiles:40x13",
        f"row/c{p}",
        f"tiles:33x17@1x1/c{p}",
    ]
    layouts += ["block/c2", "tiles:25x25/c2"] if p == 4 else []
    cases = [
        {
            "m": 70,
            "n": 90,
            "k": 110,
            "a": chance.choice(layouts),
            "b": chance.choice(layouts),
            "c": chance.choice(layouts),
            "stationary": "ABC"[x % 3],
            "prefetch": x % 5,
            "progress": ("poll", "none")[x // 5 % 2],
            "seed": x,
            "replicate_result": chance.random() < 0.5,
            "iters": 1,
            "warmup": 0,
            "get": chance.choice(["view", "copy"]),
            # every other one accumulates on several nodes, too, where sums are pushed by default
            **({"sums": "accumulate"} if x % 2 else {}),
        }
        for x in range(15)
    ]
    answers, naps = mpirun.cases_and_naps(
        p, cases, "--delays", "1", "--small-pieces", situation=situation
    )
    wrong = [
        (case, out["status"], out["reason"], out["error"])
        for case, out in zip(cases, answers)
        if (out["status"], out["error"]) != ("ok", 0.0)
    ]
    assert wrong == []
    if situation == "direct":
        assert set(naps) >= {"_compute", "_arrived", "Accumulate", "Fence", "release"}
    else:
        assert set(naps) >= {"_compute", "_arrived", "Get", "Accumulate", "Fence"}
