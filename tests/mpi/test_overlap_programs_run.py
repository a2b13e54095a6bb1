"""Programs with signals under mpiexec: each run has the operands of that run, signals that are
broken on purpose are caught, and transfers take their time."""

import pytest
from signal_runs import unnoticed
from starting import wait_until_empty, within

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(240)]


PUSHED = (
    [
        {
            "algorithm": name,
            "shape": [64, 32, 32],
            "options": {"variant": variant, "tile": 8, "part": 1},
        }
        for name, variants in (
            ("ag_gemm", ("push", "ring")),
            ("gemm_rs", ("write", "pull", "ring")),
        )
        for variant in variants
    ]
    + [
        {
            "algorithm": "ag2",
            "shape": [64, 32, 32],
            "options": {"protocol": "ll", "tile": 8, "part": 1},
        }
    ]
    + [
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
)


OVER_NODES = [
    {
        "algorithm": name,
        "shape": [64, 32, 32],
        "options": {"inside": inside, "tile": 4, "part": 8},
    }
    for name in ("ag2", "rs2")
    for inside in ("direct", "ring")
]


def test_operands_that_change_from_run_to_run_are_those_of_the_run(mpirun, dealt):
    throttled = [case | {"throttle": [5e7, 1e-4]} for case in dealt(PUSHED, 0, 4)]
    for turn, (p, situation) in enumerate(((3, "direct"), (4, "mixed"), (3, "remote"))):
        cases = dealt(PUSHED + OVER_NODES, turn, 2) + (throttled if situation == "direct" else [])
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
