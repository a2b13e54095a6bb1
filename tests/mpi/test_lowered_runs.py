"""Lowered programs under mpiexec: exact, with the plan's bytes, within the plan's memory; refused
by all ranks or none."""

import pytest

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]

LAYOUTS = [
    {
        "m": 65,
        "n": 48,
        "k": 130,
        "a": "column",
        "b": "column",
        "c": "column",
        "stationary": "C",
        "chunk": 20,
    },
    {
        "m": 130,
        "n": 65,
        "k": 48,
        "a": "column",
        "b": "row",
        "c": "row",
        "stationary": "B",
        "chunk": 24,
    },
    {
        "m": 31,
        "n": 48,
        "k": 65,
        "a": "tiles:11x17",
        "b": "tiles:19x13",
        "c": "block",
        "stationary": "A",
    },
    {
        "m": 48,
        "n": 31,
        "k": 65,
        "a": "row/c3",
        "b": "column",
        "c": "block/c3",
        "stationary": "B",
        "replicate_result": True,
    },
]


@pytest.mark.parametrize("situation", ["direct", "rma"])
def test_every_schedule_is_exact_and_moves_what_the_plan_says(mpirun, situation):
    cases = [
        {
            **layout,
            "schedule": f"{schedule}:{bound}x2",
            "prefetch": x % 3,
            "iters": 2,
            "warmup": 0,
            "get": ("view", "copy")[x % 2],
        }
        for x, layout in enumerate(LAYOUTS)
        for schedule in ("greedy", "cost", *(["exhaustive"] if x < 2 else []))
        for bound in (1, 2)
    ]
    answers = mpirun.cases(3, cases, "--delays", "1", situation=situation)
    for case, out in zip(cases, answers):
        assert (out["status"], out["error"], out["same_on_every_rank"]) == ("ok", 0, True), (
            case,
            out,
        )
        assert out["schedule"] == case["schedule"].removesuffix(":1x2")
        plan = out["planned"]
        assert out["get_bytes"] + out["direct_bytes"] == plan["get_bytes"]
        assert all(out[name] == plan[name] for name in ("accumulate_bytes", "replica_bytes"))
        assert out["pool_bytes"] <= plan["arena"]


def test_a_search_too_large_on_one_rank_alone_is_refused_by_all(mpirun):
    case = {
        "m": 47,
        "n": 43,
        "k": 53,
        "a": "tiles:9x11",
        "b": "tiles:7x10",
        "c": "tiles:47x43",
        "stationary": "C",
        "schedule": "exhaustive:3x4",
    }
    (out,) = mpirun.cases(2, [case])
    assert (
        out["status"] == "unsupported"
        and out["same_on_every_rank"]
        and out["reason"].startswith("exhaustive lowering of rank 0's")
    )
