"""Which library moves the data of collectives: GPUs have several."""

import pytest
from made_up import made_up

from drbench.errors import UnsupportedError, UsageError
from drbench.launch.cases.case import Case, check_case
from drbench.measure.record import Record


@pytest.mark.parametrize("kind", ["nccl", "gpu-aware", "staged"])
def test_implementations_of_collectives_are_of_gpus(kind):
    check_case(Case(8, 8, 8, backend="cupy", collectives=kind))
    with pytest.raises(UsageError, match="^-o collectives is for GPUs, .* Leave it out, or"):
        check_case(Case(8, 8, 8, collectives=kind))


def test_a_throttled_link_is_of_cores():
    with pytest.raises(UnsupportedError, match="delays loads and stores of cores.*--backend numpy"):
        check_case(Case(8, 8, 8, backend="cupy", transport="throttled:1,1"))


@pytest.mark.parametrize("backend", ["numpy", "cupy"])
def test_auto_is_the_case_without_it(backend):
    assert Case(8, 8, 8, backend=backend, collectives="auto") == Case(8, 8, 8, backend=backend)


def test_records_of_collectives_through_shared_memory_are_read():
    """These collectives were removed, but their records remain."""
    for kind in ("direct", "direct+mpi"):
        row = made_up(collectives=kind).to_row()
        assert Record.from_row(row).collectives == kind
