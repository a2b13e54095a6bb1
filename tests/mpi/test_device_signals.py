"""Fused overlap on devices of worker threads: exact under every order that streams and ranks can
take, whoever signals; and signals that are broken on purpose are caught."""

import random

import pytest
from signal_runs import COLLECTIVE, EXPERTS, OVERLAP, unnoticed

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(240)]

WHOLE = ("te_chunks", "async_tp", "moe_collective")  # their tiles are chunks
SHAPES = [(64, 48, 32), (45, 43, 43)]
#: Few ranks on every transport, without these options, are in test_any_multiplication_runs.py.
RUNS = {
    (3, "rma"): {"direct": True},
    (4, "direct"): {"serial": True},
    (4, "mixed"): {},
    (5, "direct"): {"hosts": True},
    (6, "nodes"): {"direct": True},
    (6, "mixed"): {"serial": True},
    (8, "direct"): {"learns": True},
}


def sample(p, how):
    """Every variant; shapes, orders and all else are drawn."""
    chance = random.Random(p)
    cases = []
    for seed, (name, options) in enumerate(OVERLAP + EXPERTS + COLLECTIVE):
        if name not in WHOLE and "moe" not in name:
            tile = chance.choice((5, 16, 200))
            options = options | {"tile": tile, "part": chance.choice((1, 7, 40))}
        if name == "ag_gemm":
            options = options | {"order": chance.choice(("ranks", "mesh"))}
        if name in ("ag_gemm", "gemm_rs", "gemm_ar"):
            options = options | {"swizzle": chance.choice(("ranks", "naive"))}
        if "moe" in name:
            experts, topk = chance.choice(((1, 1), (5, 3), (30, 2)))
            options = options | {"experts": experts, "topk": topk, "routing": "skewed:2"}
        cases.append(
            {
                "algorithm": name,
                "shape": chance.choice(SHAPES),
                "options": options,
                "prefetch": chance.choice(("all", "all", 0, 1, 2)),
                "get": chance.choice(("view", "copy")),
                "gemms": chance.choice((1, 2)),
                "streams": chance.choice((1, 2, 7)),
                "dtype": chance.choice(("float32", "float64")),
                "transpose": chance.choice(("", "a", "b", "ab")),
                "seed": seed,
            }
            | how
        )
    return cases


@pytest.mark.parametrize("p, situation", RUNS)
def test_every_variant_is_exact_in_every_run_and_moves_the_bytes_of_the_plan(
    mpirun, dealt, p, situation
):
    how = RUNS[p, situation]
    cases = dealt(sample(p, how), list(RUNS).index((p, situation)), len(RUNS))
    found = mpirun(p, "devices.py", cases, situation=situation)
    wanted = {"hosts": [False] * 2, "learns": [False, True]}
    streams = next((wanted[name] for name in how if name in wanted), [True] * 2)
    for case, out in zip(cases, found):
        message = [False] * 2 if case["algorithm"] == "moe_collective" else streams
        text = out["wrong"], out["as_planned"], out["by_streams"]
        assert text == ([0] * 2, True, message), case
    apart = [out["apart"] for out in found]
    assert (max(apart) > 0) == (situation != "direct")


PUSHED = [
    {
        "algorithm": name,
        "shape": [64, 32, 32],
        "options": {"variant": variant, "tile": 4, "part": 1},
    }
    for name, variant in (("ag_gemm", "push"), ("ag_gemm", "ring"), ("gemm_rs", "write"))
]


@pytest.mark.parametrize(  # hosts have the epoch of cores, and no flag in a stream
    "mutant, hosts",
    [
        *(("no_epoch", False), ("shared_slots", False), ("signal", False), ("flag", False)),
        *(("shared_slots", True), ("signal", True)),
    ],
)
def test_signals_broken_on_purpose_give_wrong_results(mpirun, mutant, hosts):
    """No epoch; a slot used by two values; no wait for the flag; the flag before the value."""
    edges = mutant in ("signal", "flag")
    cases = [case | {"hosts": hosts, "without": [mutant] * edges} for case in PUSHED]
    words = () if edges else ("--mutant", mutant)
    if edges:  # late all the same: streams with long delays
        cases = [case | {"delay_s": 4e-3} for case in cases]
    run = lambda cases: mpirun(3, "devices.py", cases, *words, gently=True)
    right = unnoticed(run, cases, tries=2)
    if edges:  # nobody came too early: this machine is slower than the delays
        right = unnoticed(run, [case | {"delay_s": 4e-2, "seeds": 4} for case in right])
    assert right == [], mutant


@pytest.mark.parametrize("mutant, name", [("made", "moe_rs"), ("ready", "ag_moe")])
def test_experts_broken_on_purpose_give_wrong_results(mpirun, mutant, name):
    """No wait for what experts made, or for tokens that come."""
    case = {"algorithm": name, "shape": [64, 32, 32], "prefetch": 2, "gemms": 2, "seed": 1}
    case |= {"options": {"experts": 4, "topk": 3}, "without": [mutant], "delay_s": 2e-3}
    run = lambda cases: mpirun(3, "devices.py", cases, gently=True)
    assert unnoticed(run, [case]) == []


def test_copies_are_dealt_to_as_many_streams_as_are_asked_for(mpirun):
    case = {"algorithm": "gemm_rs", "shape": [64, 32, 32]}
    cases = [
        case | {"options": {"variant": variant, "tile": 4}, "streams": streams}
        for variant, streams in (("write", 1), ("write", 2), ("pull", 3))
    ]
    lanes = [out["lanes"] for out in mpirun(4, "devices.py", cases)]
    assert lanes[0] == ["gemm0", "push0", "side"]
    assert lanes[1] == ["gemm0", "push0", "push1", "side"]
    assert lanes[2] == ["gemm0", "in0", "in1", "in2", "push0", "push1", "push2", "side"]
