"""Throttled links take their time, and no delay of any rank changes a result."""

import random

import pytest
from cases import case

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]

THROTTLED = [
    {"a": "column", "b": "column", "c": "column", "stationary": "C"},  # A moves
    {"a": "row", "b": "column", "c": "block", "stationary": "B"},  # C is accumulated
    {"a": "block/c2", "b": "block", "c": "block/c2", "stationary": "A"},  # C is reduced, too
    {"a": "tiles:37x29@2x2", "b": "row", "c": "column/c4", "stationary": "C"}
    | {"replicate_result": True},
]
LATE = [(4, "direct"), (3, "rma"), (4, "mixed"), (4, "nodes"), (3, "remote")]


def test_throttled_transfers_take_at_least_their_bytes_over_the_bandwidth(mpirun, dealt):
    bandwidth = 0.01  # GB/s: 10 to 100 ms a case
    how = {"transport": f"throttled:{bandwidth},0", "warmup": 1}
    cases = [
        case(160, 240, 320, prefetch=prefetch, **how, **each)
        for each in THROTTLED
        for prefetch in (0, 1, 4)
    ]
    cases = dealt(cases, 0, 2)
    for made, out in zip(cases, mpirun.exact(4, cases)):
        assert out["transport"] == f"throttled:{bandwidth},0", made
        assert out["planned"]["link"] > 10**5
        assert min(out["samples_s"]) >= out["planned"]["link"] / (bandwidth * 1e9), made


def test_throttled_transfers_take_at_least_the_latency(mpirun):
    latency = 0.03
    how = {"transport": f"throttled:100,{latency * 1e6:g}", "iters": 2}
    cases = [case(8, 8, 8, **how, **each) for each in THROTTLED[:3]]
    for made, out in zip(cases, mpirun.exact(4, cases)):
        assert out["transport"] == made["transport"]
        assert min(out["samples_s"]) >= latency, made


@pytest.mark.parametrize("p, situation", LATE)
def test_random_delays_change_no_result(mpirun, dealt, p, situation):
    """Each rank sleeps now and then before it starts, computes or completes something, and while it
    holds a lock."""
    chance = random.Random(p)
    layouts = ["row", "column", "block", "tiles:19x31", "tiles:40x13"]
    layouts += [f"row/c{p}", f"tiles:33x17@1x1/c{p}"]
    layouts += ["block/c2", "tiles:25x25/c2"] if p == 4 else []
    cases = [
        case(70, 90, 110, *(chance.choice(layouts) for _ in "abc"), stationary="ABC"[x % 3], seed=x)
        | {
            "prefetch": x % 5,
            "progress": ("poll", "none")[x // 5 % 2],
            "replicate_result": chance.random() < 0.5,
            "get": chance.choice(["view", "copy"]),
            # every other one accumulates on several nodes, too, where sums are pushed by default
            "sums": "accumulate" if x % 2 else None,
        }
        for x in range(15)
    ]
    cases = dealt(cases, LATE.index((p, situation)), 2)
    mpirun.exact(p, cases, "--delays", "1", "--small-segments", situation=situation)
    own = {"Accumulate", "release"} if situation == "direct" else {"Get", "Accumulate"}
    assert {*mpirun.naps} >= {"_compute", "_arrived", "Fence", *own}
