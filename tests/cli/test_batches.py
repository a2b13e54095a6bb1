"""Many cases in one mpiexec: a case that takes the ranks down costs its own row, and no more."""

import os

import pytest

from drbench.record import read_csv
from launch.batch import run_batch
from launch.case_fields import Case

pytestmark = pytest.mark.mpi


@pytest.fixture
def batch(tmp_path, mpiexec, environ):
    """``batch(cases, env)``: (index, status) of each call, and the records of the file."""
    def run(cases, env=None):
        calls, path = [], tmp_path / "batch.csv"
        run_batch(cases, 2, str(path), lambda index, summary: calls.append((index, summary)), environ(**(env or {})))
        return calls, read_csv(path)
    return run


def case(k, **fields):
    return Case(12, 14, k, iters=1, warmup=0, threads=1, **fields)


def test_every_case_is_a_row_and_a_call_in_order(batch):
    cases = [case(8), case(9, a="row", b="column/c2", c="block", options={"stationary": "B"}, preset="inner", machine="there"), case(10, dtype="float64")]
    calls, records = batch(cases)
    assert [(index, summary["status"]) for index, summary in calls] == [(0, "ok"), (1, "ok"), (2, "ok")]
    assert [summary["gflops"] for _, summary in calls] == [record.gflops for record in records]
    assert [(record.k, record.status, record.error) for record in records] == [(8, "ok", 0), (9, "ok", 0), (10, "ok", 0)]
    fields = ("a", "b", "c", "stationary", "preset", "machine", "ranks")
    assert [getattr(records[1], name) for name in fields] == ["row", "column/c2", "block", "B", "inner", "there", 2]


def test_a_case_that_kills_its_ranks_is_failed_and_the_rest_go_on(batch, fault):
    """MPICH's mpiexec announces the killed rank on stdout, where it is taken for a summary: JSONDecodeError ends the
    batch, and with it ``drbench mlp``."""
    cases = [case(k, a="row", b="column", options={"stationary": "C"}, machine="there") for k in (8, 13, 9, 13, 13)]
    calls, records = batch(cases, fault("killed at k = 13"))
    assert [(index, summary["status"]) for index, summary in calls] == [(0, "ok"), (1, "failed"), (2, "ok"), (3, "failed"), (4, "failed")]
    assert [record.status for record in records] == ["ok", "failed", "ok", "failed", "failed"]
    assert [record.k for record in records] == [8, 13, 9, 13, 13]
    assert (records[1].a, records[1].stationary, records[1].machine, records[1].ranks) == ("row", "C", "there", 2)
    assert "case 2 of their mpiexec" in records[1].reason and records[1].reason == calls[1][1]["reason"]


def test_what_is_refused_or_makes_no_sense_is_a_row_and_the_rest_go_on(batch):
    cases = [case(8, a="block:3x3"), case(9, pool=0, get="copy", a="column", b="column", c="column"), case(10)]
    calls, records = batch(cases)
    assert [record.status for record in records] == ["failed", "out_of_memory", "ok"]
    assert "block:3x3" in records[0].reason and "--pool" in records[1].reason
    assert [summary["reason"] for _, summary in calls] == [record.reason for record in records]


def test_what_libraries_say_on_stdout_does_no_harm(batch, fault):
    """every line the ranks print is taken for a summary; the first that is not JSON ends the whole batch."""
    calls, records = batch([case(8), case(9)], fault("chatter"))
    assert [record.status for record in records] == ["ok", "ok"]
    assert [index for index, _ in calls] == [0, 1]


def test_an_exception_of_the_caller_ends_the_ranks(batch, tmp_path, mpiexec):
    class Enough(Exception):
        pass

    def enough(index, summary):
        raise Enough
    before = set(os.listdir("/proc"))
    with pytest.raises(Enough):
        run_batch([case(8)] * 200, 2, str(tmp_path / "stopped.csv"), enough)
    assert 1 <= len(read_csv(tmp_path / "stopped.csv")) < 200
    assert not [pid for pid in set(os.listdir("/proc")) - before if pid.isdigit() and "drbench-cases-" in _command(pid)]


def _command(pid):
    try:
        with open(f"/proc/{pid}/cmdline") as file:
            return file.read()
    except OSError:
        return ""                                # it has just ended
