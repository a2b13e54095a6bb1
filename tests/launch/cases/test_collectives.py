"""Which library moves the data of collectives: each backend accepts its own, and reports them."""

import pytest
from made_up import made_up

from drbench.errors import UnsupportedError, UsageError
from drbench.measure.record import Record
from launch.cases.case import COLLECTIVES, Case, check_case


@pytest.mark.parametrize("backend", COLLECTIVES)
def test_a_backend_accepts_its_own_collectives_and_refuses_the_others_in_one_line(backend):
    every = {kind for kinds in COLLECTIVES.values() for kind in kinds}
    for kind in every:
        case = Case(8, 8, 8, backend=backend, collectives=kind)
        if kind in COLLECTIVES[backend]:
            check_case(case)
            continue
        with pytest.raises(UsageError) as refused:
            check_case(case)
        assert f"-o collectives={kind} is for" in str(refused.value)
        assert all(own in str(refused.value) for own in COLLECTIVES[backend])
        assert "\n" not in str(refused.value)


def test_a_throttled_link_is_of_cores():
    with pytest.raises(UnsupportedError, match="delays loads and stores of cores.*--backend numpy"):
        check_case(Case(8, 8, 8, backend="cupy", transport="throttled:1,1"))


def test_auto_on_devices_is_the_case_without_it():
    assert Case(8, 8, 8, backend="cupy", collectives="auto") == Case(8, 8, 8, backend="cupy")


@pytest.mark.parametrize("kind", ["direct", "auto", "staged"])
def test_cores_have_the_collectives_of_mpi_alone_and_say_so(drbench, kind):
    words = [
        *"-p 2 -m 8 -n 8 -k 8 --algorithm summa -o".split(),
        f"collectives={kind}",
    ]
    refused = drbench("run", *words).refusal(2)
    assert kind in refused and "mpi" in refused


def test_records_of_collectives_through_shared_memory_are_read():
    """These collectives were removed, but their records remain."""
    for kind in ("direct", "direct+mpi"):
        row = made_up(collectives=kind).to_row()
        assert Record.from_row(row).collectives == kind
