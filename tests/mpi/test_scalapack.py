"""Arrays and descriptors of ScaLAPACK in drbench, against ScaLAPACK itself."""

import pytest

from drbench.launch.libraries import get_library

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]


@pytest.mark.parametrize("ranks", [1, 4, 6])
def test_pgemm_and_drbench_agree_on_the_same_arrays(mpirun, ranks):
    found = get_library("scalapack").available()
    if not found.ok:
        pytest.skip(f"{found.what}. {found.get}")
    assert mpirun(ranks, "scalapack.py", str(ranks), "40") == []
