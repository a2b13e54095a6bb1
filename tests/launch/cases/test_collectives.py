"""Who moves what collectives need: each backend takes its own, and says what it takes."""

import pytest

from drbench.errors import UnsupportedError, UsageError
from launch.cases.case import COLLECTIVES, Case, check_case
from launch.cases.machine_models import find_machine
from launch.models.predict import predict

LS = {"algorithm": "collective", "options": {"dataflow": "LS", "mesh": "1x2"}}


@pytest.mark.parametrize("backend", COLLECTIVES)
def test_a_backend_takes_its_own_and_refuses_the_others_in_one_line(backend):
    every = {kind for kinds in COLLECTIVES.values() for kind in kinds}
    for kind in every:
        case = Case(8, 8, 8, backend=backend, collectives=kind)
        if kind in COLLECTIVES[backend]:
            check_case(case)
            continue
        of_devices = backend != "numpy" and kind in COLLECTIVES["cupy"]
        with pytest.raises(UnsupportedError if of_devices else UsageError) as refused:
            check_case(case)
        assert f"--collectives {kind} is for" in str(refused.value)
        assert all(own in str(refused.value) for own in COLLECTIVES[backend])
        assert "\n" not in str(refused.value)


def test_auto_on_devices_is_the_case_without_it():
    assert Case(8, 8, 8, backend="cupy", collectives="auto") == Case(8, 8, 8, backend="cupy")
    assert Case(8, 8, 8, collectives="auto") != Case(8, 8, 8)


def test_direct_is_refused_on_a_model_whose_ranks_reach_nobody():
    found = predict(Case(64, 64, 64, **LS, collectives="direct"), find_machine("pvc12"), 2)
    assert found.status == "unsupported"
    assert "Use --collectives mpi or auto." in found.reason
    auto, plain = (
        predict(Case(64, 64, 64, **LS, collectives=who), find_machine("pvc12"), 2)
        for who in ("auto", None)
    )
    assert auto.median_s == plain.median_s


def test_the_record_of_a_prediction_says_who_moved_what():
    case = Case(64, 64, 64, **LS, collectives="direct", transport="throttled:1,10")
    found = predict(case, find_machine("pvc12"), 2)
    assert (found.status, found.collectives, found.collective_bytes) == ("ok", "direct", 0)
    assert found.direct_bytes == 64 * 64 * 4
