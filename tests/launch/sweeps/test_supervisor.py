"""How often a case is tried, by ranks that are made up."""

import io

import pytest
from rich.console import Console

from launch.cases.case import Case
from launch.sweeps import supervisor
from launch.sweeps.plan import SweepRequest, plan_cases
from launch.sweeps.progress import SweepProgress
from launch.sweeps.rounds import Job
from launch.sweeps.starter import RanksEnded
from launch.sweeps.store import Store, case_id
from launch.sweeps.supervisor import ATTEMPTS, CRASHES, Settings, supervised

CASE = Case(8, 8, 8, "row", "row", "row")
CRASH = RanksEnded("failed", "a rank was killed by SIGSEGV", 139, crashed=True)
KILL = RanksEnded("failed", "the launcher was killed by SIGKILL", -9)
SURE = RanksEnded("out_of_memory", "rank 1: MemoryError", 1, sure=True)


@pytest.fixture
def tried(tmp_path, monkeypatch, rows):
    """``tried(fates)``: the record of a case whose ranks meet these fates in turn."""

    def run(fates):
        fates, told = iter(fates), []

        class Ranks:
            environ, command = {}, ["mpiexec"]

            def __init__(self, *_):
                pass

            def wait_ready(self, seconds):
                return []

            def run(self, *_):
                told.append(1)
                fate = next(fates)
                if isinstance(fate, RanksEnded):
                    raise fate
                return rows(CASE).to_row()

            def end(self):
                pass

            def stop(self, grace_s):
                pass

        monkeypatch.setattr(supervisor, "Ranks", Ranks)
        monkeypatch.setattr(supervisor, "describe", lambda *_: {})
        monkeypatch.setattr(supervisor, "write_environment", lambda *_: "e")
        name, store = case_id(CASE, 2), Store(tmp_path)
        store.open("test", 2, [name])
        watch = SweepProgress(1, [], Console(file=io.StringIO()))
        with supervised(Settings(), store, watch) as measure:
            return measure(Job(name, 2, CASE)), len(told)

    return run


def test_a_kill_is_no_crash(tried):
    """Of a case whose ranks crashed twice and were then killed nobody knows that it is at fault."""
    record, times = tried([CRASH] * (CRASHES - 1) + [KILL] * 2 + ["ok"])
    assert (record.status, times) == ("ok", CRASHES + 2)


def test_a_case_that_crashes_again_and_again_is_failed(tried):
    record, times = tried([CRASH, KILL, CRASH, CRASH, "ok"])
    assert (record.status, times) == ("failed", 4) and f"{CRASHES} attempts" in record.reason


def test_a_case_that_is_killed_again_and_again_is_failed_in_the_end(tried):
    record, times = tried([KILL] * ATTEMPTS + ["ok"])
    assert (record.status, times) == ("failed", ATTEMPTS)


def test_a_case_that_says_why_is_not_tried_again(tried):
    record, times = tried([SURE, "ok"])
    assert (record.status, times) == ("out_of_memory", 1)


def test_the_machine_of_a_file_stays_unless_another_is_asked_for(sweep_file):
    file = sweep_file('[[cases]]\nm = 8\nn = 8\nk = 8\nmachine = "box"\n')
    machines = lambda **asked: {
        job.case.machine for job in plan_cases(SweepRequest(file, 2, "out", **asked)).jobs
    }
    assert machines() == {"box"}
    assert machines(label="another") == {"another"}
