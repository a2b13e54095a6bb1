"""The universal algorithm with signals under mpiexec: exact on every transport, for any layout,
with the plan's bytes and memory."""

import itertools
import random
from math import prod

import pytest
from cases import case
from drawn_layouts import FORMS, layout

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(240)]

RUNS = {
    (2, "direct"): (),
    (2, "remote"): ("--delays", "4"),
    (3, "rma"): ("--small-segments",),
    (4, "mixed"): ("--delays", "1", "--small-segments"),
    (4, "throttled"): ("--delays", "5"),
    (5, "direct"): ("--delays", "2"),
    (6, "nodes"): (),
    (8, "direct"): (),
}


def sample(p, situation):
    """Layouts, shapes and all else are drawn."""
    chance = random.Random(f"{p} {situation}")
    others = random.Random(f"grids {p} {situation}")
    extents, cases = (1, 3, 16, 31, 65, 130), []
    for seed in range(12 if p > 4 else 16):
        m, n, k = (chance.choice(extents) for _ in "mnk")
        beta = chance.choice((None, None, 1.0, -2.0))
        shapes = (m, k), (k, n), (m, n)
        made = case(m, n, k, *(layout(chance, chance.choice(FORMS), each, p) for each in shapes))
        made |= {
            "sums": "push",
            "stationary": "BABC"[seed % 4],
            "replicate_result": chance.random() < 0.3,
            "prefetch": chance.choice((None, "all", 0, 1, 2)),
            "get": chance.choice(("view", "copy")),
            "progress": chance.choice(("poll", "none")),
            "dtype": chance.choice(("float32", "float64")),
            "alpha": chance.choice((None, 2.0)),
            "beta": beta,
            "iters": 2,
            "warmup": seed % 2,
            "seed": seed,
        }
        if seed % 3 == 1:
            grids = [
                each
                for each in itertools.product(range(1, p + 1), repeat=3)
                if p - prod(each) in (0, 1)
            ]
            made["work"] = "x".join(map(str, others.choice(grids)))
            made["stationary"] = others.choice("ABCC")
        tile = chance.choice((None, 5, 16, 40))
        if tile:
            made["chunk"] = max(tile, max(m, n, k) // 12)
        if situation not in ("rma", "throttled") and made["dtype"] == "float32":
            made["machine"] = chance.choice((None, "pvc12"))  # partial sums as one GEMM
        if situation == "throttled":
            made["transport"] = "throttled:0.05,20"
        cases.append(made)
    return cases


@pytest.mark.parametrize("p, situation", RUNS)
def test_every_layout_is_exact_and_moves_the_bytes_of_the_plan(mpirun, dealt, p, situation):
    cases, turn = sample(p, situation), list(RUNS).index((p, situation))
    by_layout = [made for made in cases if "work" not in made]
    by_grid = [made for made in cases if "work" in made]
    cases = dealt(by_layout, turn, 3) + dealt(by_grid, turn, 2)
    where = situation if situation != "throttled" else "direct"
    pushed = by_grid = 0
    for made, out in zip(cases, mpirun.exact(p, cases, *RUNS[p, situation], situation=where)):
        assert not out["accumulate_bytes"], made
        assert "sums=push" in out["options"]
        pushed += bool(out["put_bytes"])
        by_grid += bool(out["put_bytes"]) and "work" in made
    assert pushed >= len(cases) // 8 and by_grid
    if "--delays" in RUNS[p, situation]:
        assert {*mpirun.naps} >= {"_compute", "Signal"}


def test_auto_goes_without_slots_that_do_not_fit_and_always_is_refused(mpirun):
    small = 256 << 10  # less than slots for half of C, partial sums for them, and a part of A
    rows = case(256, 256, 256, *["row"] * 3, transport="rma", stationary="B", prefetch=1)
    asked = [{"sums": sums, "pool": pool} for sums in ("auto", "push") for pool in (None, small)]
    answers = mpirun.cases(2, [rows | each for each in asked])
    assert [out["status"] for out in answers] == ["ok", "ok", "ok", "out_of_memory"]
    assert ["sums=push" in (out["options"] or "") for out in answers[:3]] == [1, 0, 1]
    assert [bool(out["accumulate_bytes"]) for out in answers[:3]] == [0, 1, 0]
    assert "-o pool allows" in answers[3]["reason"]
