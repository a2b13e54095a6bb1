"""The C of another library is verified like drbench's, and its record leaves empty what is not
known."""

import pytest

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(60)]

WRONG = ["one element", "nan", "lost part", "wrong place", "replicated, one element"]
WAYS = ["right", "replicated", "refuses", "bfloat16", *WRONG]


@pytest.fixture(scope="module")
def ended(mpirun):
    """For each rank the record of every way, by way, and the ways that were closed."""
    ranks = mpirun(3, "fake_library.py", *WAYS)
    return [(dict(zip(WAYS, rank["records"])), rank["closed"]) for rank in ranks]


@pytest.mark.parametrize("way", WRONG)
def test_a_wrong_result_of_a_library_is_caught(ended, way):
    record = ended[0][0][way]
    assert record["status"] == "wrong" and "rows of C" in record["reason"]


@pytest.mark.parametrize("way", ["right", "replicated"])
def test_a_right_result_of_a_library_passes(ended, way):
    record = ended[0][0][way]
    assert (record["status"], record["error"]) == ("ok", 0.0) and len(record["samples_s"]) == 2


def test_a_refusal_is_a_row_in_the_library_s_own_words(ended):
    assert (ended[0][0]["refuses"]["status"], ended[0][0]["refuses"]["reason"]) == (
        "unsupported",
        "fake refuses: not today",
    )


def test_element_types_that_no_library_takes_are_a_row_with_the_reason(ended):
    record = ended[0][0]["bfloat16"]
    assert record["status"] == "unsupported" and "got bfloat16:float32" in record["reason"]


def test_every_rank_has_the_same_record_and_closes_what_it_prepared(ended):
    for records, closed in ended:
        assert closed == [way for way in WAYS if way not in ("refuses", "bfloat16")]
        assert [(record["status"], record["best_s"]) for record in records.values()] == [
            (record["status"], record["best_s"]) for record in ended[0][0].values()
        ]


def test_what_a_library_does_not_tell_stays_empty(ended):
    right, replicated = ended[0][0]["right"], ended[0][0]["replicated"]
    assert right["collective_bytes"] == 3 * 24 and replicated["collective_bytes"] is None
    for name in (
        "prefetch",
        "get",
        "progress",
        "pool_bytes",
        "steps",
        "plan_s",
        "phase_gemm_s",
        "phase_get_wait_s",
        "get_bytes",
    ):
        assert right[name] is None
    assert (
        right["a"],
        replicated["c"],
        right["dataflow"],
        right["transport"],
        right["algorithm"],
    ) == ("row", "row/c3", "right", "none", "fake")


def test_the_roof_is_measured_between_the_repeats_of_a_library_too(ended):
    assert (
        ended[0][0]["right"]["percent_of_gemm_only"] > 0
        and ended[0][0]["replicated"]["percent_of_gemm_only"] is None
    )
