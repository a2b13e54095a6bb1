"""Lowered programs under mpiexec: exact, with the plan's bytes, within the plan's memory; refused
by all ranks or none."""

import pytest
from cases import case

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]

LAYOUTS = [
    case(65, 48, 130, "column", "column", "column", stationary="C", chunk=20),
    case(130, 65, 48, "column", "row", "row", stationary="B", chunk=24),
    case(31, 48, 65, "tiles:11x17", "tiles:19x13", "block", stationary="A"),
    case(48, 31, 65, "row/c3", "column", "block/c3", stationary="B", replicate_result=True),
]


@pytest.mark.parametrize("turn, situation", enumerate(["direct", "rma"]))
def test_every_schedule_is_exact_and_moves_the_bytes_of_the_plan(mpirun, dealt, turn, situation):
    cases = [
        layout
        | {"schedule": f"{schedule}:{bound}x2", "iters": 2}
        | {"prefetch": x % 3, "get": ("view", "copy")[x % 2]}
        for x, layout in enumerate(LAYOUTS)
        for schedule in ("greedy", "cost", *(["exhaustive"] if x < 2 else []))
        for bound in (1, 2)
    ]
    cases = dealt(cases, turn, 2)
    answers = mpirun.exact(3, cases, "--delays", "1", situation=situation)
    wanted = [made["schedule"].removesuffix(":1x2") for made in cases]
    assert [out["schedule"] for out in answers] == wanted


def test_a_search_too_large_on_one_rank_alone_is_refused_by_all(mpirun):
    tiles = "tiles:9x11", "tiles:7x10", "tiles:47x43"
    search = case(47, 43, 53, *tiles, stationary="C", schedule="exhaustive:3x4")
    (out,) = mpirun.cases(2, [search])
    assert (
        out["status"] == "unsupported"
        and out["same_on_every_rank"]
        and out["reason"].startswith("exhaustive lowering of rank 0's")
    )
