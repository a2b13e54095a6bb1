"""Alpha and beta near the ends of an element type: NumPy's C passes the check, and a wrong one does
not; or the case is refused in one line."""

from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("mpi4py")
import numpy as np
from mpi4py import MPI

from drbench.errors import UsageError
from drbench.host.fill import Fill
from drbench.launch.cases.case import Case
from drbench.launch.ranks.run_case import run_case
from drbench.measure.verify import verify
from drbench.program.problem import Problem

M, N, K = 9, 8, 33
FACTORS = st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(
    [0.0, -0.0, 1.0, -3.0, 1e308, -1.7e308, 3e38, 3e36, -1e39, 1e-38, 1e-45, -1e-300, 5e-324, 1e200]
)


def whole(fill, name, rows, cols, dtype):
    out = np.empty((rows, cols), dtype)
    fill.into(out, name, 0, 0)
    return out


@settings(max_examples=200)
@given(
    FACTORS,
    FACTORS,
    st.sampled_from(["float32", "float64"]),
    st.sampled_from(["uniform", "integer"]),
)
def test_the_check_of_a_result_agrees_with_numpy(alpha, beta, dtype, kind):
    problem = Problem(M, N, K, 1, dtype=dtype, updates=beta != 0)
    real = np.dtype(dtype).type
    with np.errstate(over="ignore"):
        too_large = not np.isfinite(real(abs(alpha) * K + abs(beta)))
    try:
        fill = Fill(kind, 0, K, alpha, beta, dtype)
    except UsageError as error:
        assert "\n" not in str(error)
        assert too_large or kind == "integer"
        return
    assert not too_large
    a, b, start = (whole(fill, *of, dtype) for of in (("A", M, K), ("B", K, N), ("C", M, N)))
    c = real(alpha) * (a @ b) + real(beta) * start
    assert np.isfinite(c).all()
    block = SimpleNamespace(row0=0, row1=M, col0=0, col1=N)
    matrix = SimpleNamespace(
        topology=SimpleNamespace(comm=MPI.COMM_SELF), own_blocks=lambda: [(block, c)], replica=0
    )
    right = verify(matrix, problem, fill)
    assert right.ok, (right, alpha, beta)
    wrong = real(1.01) * c[4, 5] + real(1)
    if abs(alpha) > 1e-30 or abs(beta) > 1e-30:
        c[4, 5] = wrong
        assert not verify(matrix, problem, fill).ok


@pytest.mark.parametrize(
    "fields, status",
    [
        ({"alpha": 3e36}, "ok"),
        ({"alpha": 1e-45, "beta": 1e-300}, "ok"),
        ({"alpha": 1e-310, "dtype": "float64"}, "ok"),
        ({"alpha": 1e306, "beta": -1e307, "dtype": "float64"}, "ok"),
        ({"alpha": 0.0, "beta": 3.0, "fill": "integer"}, "ok"),
        ({"alpha": 3e38}, "float32 ends at"),
        ({"beta": 1e39}, "float32 ends at"),
        ({"alpha": 1e308, "fill": "integer"}, "float32 ends at"),
        ({"alpha": 1.7e308, "dtype": "float64"}, "float64 ends at"),
        ({"alpha": 1e30, "fill": "integer"}, "Use -o fill=uniform"),
    ],
)
def test_a_run_is_right_or_refused(fields, status):
    case = Case(M, N, K, **{"fill": "uniform", "iters": 1, "budget": 0.0, "warmup": 0} | fields)
    if status == "ok":
        assert run_case(case, MPI.COMM_SELF).status == "ok"
    else:
        with pytest.raises(UsageError, match=status):
            run_case(case, MPI.COMM_SELF)
