"""Cases of a group keep matrices, programs and roofs between their turns on the ranks. A turn is
the same run as a run alone, and each is verified."""

import pytest

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(100)]

ROWS, MIXED = dict.fromkeys("abc", "row"), {"a": "row", "b": "column", "c": "block/c2"}
#: Columns that do not depend on time.
SAME = """status error stationary options transport prefetch collectives steps panel_bytes
    pool_bytes get_bytes direct_bytes put_bytes accumulate_bytes collective_bytes replica_bytes
    iters budget_s warmup balance_limit a b c blas threads""".split()


def cases(**more):
    sizes = {"m": 45, "n": 62, "k": 33, "transport": "rma"}
    make = lambda **fields: sizes | more | fields
    with_options = lambda layout, **options: make(**layout, options=options)
    return [
        *(with_options(ROWS, stationary=x) for x in "ABC"),
        with_options(MIXED, stationary="B"),
        with_options(MIXED, stationary="C", replicate_result=True),
        with_options(ROWS, stationary="A", sums="push"),
        make(algorithm="collective", **ROWS),
        make(algorithm="cannon", options={"mesh": "1x4"}),  # which it does not support
    ]


@pytest.mark.parametrize(
    "more, limit",
    [({"gemm_only": True}, 200_000), ({"transpose": "a", "alpha": 2.0, "beta": 1.0}, 100_000)],
)
def test_a_turn_is_the_same_run_as_alone_whatever_is_kept(mpirun, more, limit):
    asked = {"cases": cases(**more), "rounds": 2, "limits": [None, limit], "corrupt": None}
    kept, least = mpirun(4, "rounds.py", asked)
    for found in (kept, least):
        for once, turns in zip(found["once"], found["turns"]):
            for turn in turns:
                assert [(x, turn[x]) for x in SAME] == [(x, once[x]) for x in SAME]
                assert bool(turn["gemm_only_gflops"]) is bool(
                    more.get("gemm_only") and turn["best_s"]
                )
        assert found["opened"][0] == 0
    assert [each["status"] for each in kept["once"]][:6] == ["ok"] * 6
    assert kept["once"][7]["status"] == "unsupported"
    # matrices of one layout are shared, and made once; without memory they are freed in between
    assert kept["opened"][1] == kept["opened"][2] < 3 * 7
    assert least["opened"][1] < kept["opened"][1] < kept["opened"][2] + 1 < least["opened"][2]


def test_a_wrong_result_of_any_turn_is_found(mpirun):
    asked = {"cases": cases()[:3], "rounds": 3, "limits": [None], "corrupt": [1, 2]}
    (found,) = mpirun(2, "rounds.py", asked)
    statuses = [[turn["status"] for turn in turns] for turns in found["turns"]]
    assert statuses == [["ok"] * 3, ["ok", "ok", "wrong"], ["ok"] * 3]


def test_cases_of_one_layout_and_other_values_keep_their_own(mpirun):
    values = [{}, {"fill": "uniform"}, {"seed": 5}]
    same = [case for more in values for case in cases(**more)[:1]]
    asked = {"cases": same, "rounds": 2, "limits": [None], "corrupt": None}
    (found,) = mpirun(2, "rounds.py", asked)
    assert [[turn["status"] for turn in turns] for turns in found["turns"]] == [["ok"] * 2] * 3
