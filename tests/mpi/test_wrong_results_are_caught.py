"""Verification under mpiexec: every rank reports a wrong C, and a right C passes."""

import pytest
from cases import case

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]

FINITE = ["one_element", "lost_chunk", "twice", "swapped_rows", "little", "orthogonal", "zero"]
NOT_FINITE = ["nan", "all_nan", "infinity"]
#: Fill, rows of C (all of which uniform fill looks at, this C being small) and situation.
RUNS = [
    ("integer", "32", "direct"),
    ("integer", "32", "remote"),
    ("uniform", "16", "direct"),
    ("uniform", "400", "mixed"),
]


@pytest.fixture(scope="module", params=RUNS, ids="-".join)
def ranks(request, mpirun):
    """For each rank its verdict on every way to corrupt C, and its record."""
    fill, m, situation = request.param
    ways = ("nothing", *NOT_FINITE, *FINITE)
    return mpirun(3, "corrupt.py", fill, m, *ways, situation=situation)


@pytest.mark.parametrize("way", FINITE)
def test_a_corrupted_result_is_caught(ranks, way):
    ok, error, reason = ranks[0]["verdicts"][way]
    assert not ok and reason
    assert float(error) > 0


def test_the_right_result_passes(ranks):
    ok, error, reason = ranks[0]["verdicts"]["nothing"]
    assert ok and float(error) <= 1 and reason == ""


def test_every_rank_comes_to_the_same_verdict(ranks):
    assert ranks == [ranks[0]] * 3


def test_the_record_of_a_corrupted_run_is_wrong_and_names_the_place(ranks):
    assert ranks[0]["status"] == "wrong" and "rows of C" in ranks[0]["reason"]


@pytest.mark.parametrize("way", NOT_FINITE)
def test_what_is_not_finite_is_caught_without_a_warning(ranks, way):
    """A warning on stderr would fail the fixture."""
    assert not ranks[0]["verdicts"][way][0]


def test_uniform_fill_allows_what_rounding_does_and_not_ten_times_as_much(mpirun):
    ranks = mpirun(3, "corrupt.py", "uniform", "32", "nothing", "little")
    right, little = (ranks[0]["verdicts"][way] for way in ("nothing", "little"))
    assert right[0] and float(right[1]) <= 1
    assert not little[0] and 9 < float(little[1]) < 11 + 1


def test_every_replica_that_has_the_result_and_every_term_of_it_is_verified(mpirun):
    """C is corrupted on the second replica alone, before it is verified: that has the result too, a
    term of a pending sum, or a copy that was not requested."""
    term, copy = "P,S(1)@2x2", "R,S(1)@2x2"
    cases = [(True, "row/c2", "integer"), (False, "row/c2", "integer")]
    cases += [(False, c, fill) for c in (term, copy) for fill in ("integer", "uniform")]
    answers = mpirun(4, "other_replica.py", cases)
    statuses = [{rank["status"] for rank in ranks} for ranks in answers]
    assert statuses == [{"wrong"}, {"ok"}, {"wrong"}, {"wrong"}, {"ok"}, {"ok"}], answers
    named = ["replica 1" in (ranks[0]["reason"] or "") for ranks in answers[:2]]
    assert named == [True, False] and {len(ranks) for ranks in answers} == {4}


def test_a_nan_is_caught_in_rows_that_uniform_fill_does_not_sample(mpirun):
    ranks = mpirun(3, "corrupt.py", "uniform", "400:few", "nan")
    assert [rank["status"] for rank in ranks] == ["wrong"] * 3


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_least_error_that_an_element_can_have_is_caught(mpirun, dtype):
    ranks = mpirun(3, "corrupt.py", f"integer:{dtype}", "32", "nothing", "least")
    right, least = (ranks[0]["verdicts"][way] for way in ("nothing", "least"))
    assert right[0] and not least[0] and least[2]
    assert ranks == [ranks[0]] * 3


@pytest.mark.parametrize(
    "backend, situation",
    [("numpy", "direct"), ("numpy", "mixed"), ("cupy", "direct")],
)
def test_a_repeat_that_leaves_work_out_is_not_saved_by_the_one_before(mpirun, backend, situation):
    found = mpirun(4, "idle.py", backend, "nobody", "one", "all", situation=situation)
    assert found == {"nobody": ["ok"] * 4, "one": ["wrong"] * 4, "all": ["wrong"] * 4}


@pytest.mark.parametrize("backend", ["numpy", "cupy"])
@pytest.mark.parametrize("situation, late", [("remote", (0, 1)), ("direct", (3,))])
def test_bytes_that_come_too_late_are_not_replaced_by_those_of_the_repeat_before(
    mpirun, backend, situation, late
):
    """Gets, as with MPI_Rget of MPICH 4 over UCX; and pushes, which are messages between nodes."""
    (found,) = mpirun(4, "idle.py", backend, "late", situation=situation).values()
    assert [place for place, status in enumerate(found) if status == "wrong"] == [*late]


def test_with_uniform_fill_the_right_result_of_any_shape_passes(mpirun):
    """fp32 and fp64, all-positive sums to cancelling ones, one element to many rows."""
    shapes = [(1, 1, 1), (1, 1, 3000), (300, 2, 1), (64, 64, 64), (200, 150, 1000)]
    cases = [
        case(*shape, "row", "column", "block", fill="uniform", seed=seed)
        | {"dtype": dtype, "stationary": stationary}
        for seed, shape in enumerate(shapes)
        for dtype, stationary in (("float32", "BC"[seed % 2]), ("float64", "CB"[seed % 2]))
    ]
    mpirun.exact(2, cases)
