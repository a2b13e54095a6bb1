"""Too little memory is a record with the missing bytes, before anything is allocated."""

import re

import pytest
from cases import case
from starting import within

from drbench.launch.host.memory import windows_bytes

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(120)]

CASE = case(200, 300, 400, "row", "column", "block", stationary="B", get="copy")


def refused(out):
    """Its reason, once it is sure that all ranks refused alike, before any window was made."""
    assert out["status"] == "out_of_memory", out["reason"]
    assert out["same_on_every_rank"] and out["windows"] == 0 and out["samples_s"] == []
    assert "missing" in out["reason"]
    return out["reason"]


def in_bytes(amounts):
    """``1.5 KiB`` -> 1536, for each amount in a text."""
    units = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
    return [
        float(number) * units[unit]
        for number, unit in re.findall(r"([0-9.e+]+) (B|[KMGT]iB)\b", amounts)
    ]


def test_a_pool_is_enough_exactly_from_what_the_plan_announced(mpirun):
    (free,) = mpirun.cases(2, [CASE])
    pool = free["pool_bytes"]
    assert pool > 1000
    enough, too_small, none = mpirun.cases(
        2, [CASE | {"pool": pool}, CASE | {"pool": pool - 1}, CASE | {"pool": 0}]
    )
    assert (enough["status"], enough["pool_bytes"]) == ("ok", pool)
    assert re.search(r"rank \d", refused(too_small))
    needed, allowed, missing = in_bytes(refused(none))
    assert (needed, allowed, missing) == (
        pytest.approx(pool, rel=1e-3),
        0,
        pytest.approx(pool, rel=1e-3),
    )
    assert "-o pool" in none["reason"] and "-o prefetch" in none["reason"]


@pytest.mark.parametrize("situation", ["direct", "rma", "mixed", "remote"])
def test_too_small_a_pool_is_refused_in_every_situation(mpirun, situation):
    for out in mpirun.cases(
        3,
        [CASE | {"pool": 100, "progress": progress} for progress in ("poll", "none")],
        situation=situation,
    ):
        refused(out)


def test_an_absurdly_large_problem_is_refused_at_once(mpirun):
    cases = [
        case(*[10**6] * 3, *[form] * 3, stationary=stationary, transport=transport)
        for form in ("row", "column", "block", "tiles:16x16")
        for stationary in "ABC"
        for transport in ("auto", "rma")
    ]
    for out in mpirun.cases(2, cases):
        assert "missing" in refused(out)
        assert within(out["seconds"], 5)


def test_too_little_shared_memory_is_named_with_what_is_missing(mpirun):
    (out,) = mpirun.cases(2, [CASE | {"pretend": {"shared_memory_free": 4096}}])
    tiles = windows_bytes([2 * (200 * 300 + 300 * 400 + 400 * 200)] * 2)
    needed, free, missing = in_bytes(refused(out))
    assert "/dev/shm" in out["reason"]
    assert (needed, free, missing) == (
        pytest.approx(tiles, rel=1e-3),
        4096,
        pytest.approx(tiles - 4096, rel=1e-3),
    )


def test_too_little_memory_is_named_with_what_is_missing(mpirun):
    (out,) = mpirun.cases(2, [CASE | {"pretend": {"available_memory": 10**5}}])
    needed, available, missing = in_bytes(refused(out))
    assert needed > 4 * (200 * 300 + 300 * 400 + 400 * 200)  # the tiles, and the pools
    assert missing == pytest.approx(needed - available, rel=1e-2)


def test_a_limit_of_the_shell_is_named_with_what_is_missing(mpirun):
    for flag in ("-v", "-d"):
        (out,) = mpirun.cases(2, [CASE | {"pretend": {"left_to_process": {flag: 10**8}}}])
        assert f"ulimit {flag} leaves" in refused(out)


def test_one_rank_needs_no_shared_memory(mpirun):
    (out,) = mpirun.cases(1, [CASE | {"pretend": {"shared_memory_free": 0}}])
    assert out["status"] == "ok"
