"""How often a case is tried, with made-up ranks."""

import io
from unittest.mock import Mock

import pytest
from rich.console import Console

from drbench.launch.cases.case import Case
from drbench.launch.sweeps import supervisor
from drbench.launch.sweeps.plan import SweepRequest, plan_cases
from drbench.launch.sweeps.progress import SweepProgress
from drbench.launch.sweeps.rounds import Job
from drbench.launch.sweeps.starter import RanksEnded
from drbench.launch.sweeps.store import Store, case_id
from drbench.launch.sweeps.supervisor import ATTEMPTS, CRASHES, Settings, supervised

CASE = Case(8, 8, 8, "row", "row", "row")
CRASH = RanksEnded("failed", "a rank was killed by SIGSEGV", 139, crashed=True)
KILL = RanksEnded("failed", "the launcher was killed by SIGKILL", -9)
SURE = RanksEnded("out_of_memory", "rank 1: MemoryError", 1, sure=True)
LATE = RanksEnded("timeout", "no result after 2 s; its ranks were killed", sure=True)


@pytest.fixture
def tried(tmp_path, monkeypatch, rows):
    """``tried(fates)``: the record of a case whose ranks meet these fates one after another."""

    def run(fates):
        def meet(*_):
            fate = fates[ranks.run.call_count - 1]
            if isinstance(fate, RanksEnded):
                raise fate
            return rows(CASE).to_row()

        ranks = Mock(environ={}, command=["mpiexec"])
        ranks.wait_ready.return_value, ranks.run.side_effect = [], meet
        monkeypatch.setattr(supervisor, "Ranks", lambda *_: ranks)
        monkeypatch.setattr(supervisor, "describe", lambda *_: {})
        monkeypatch.setattr(supervisor, "write_environment", lambda *_: "e")
        name, store = case_id(CASE, 2), Store(tmp_path)
        store.open(2, [name])
        watch = SweepProgress(1, [], Console(file=io.StringIO()))
        with supervised(Settings(), store, watch) as measure:
            return measure(Job(name, 2, CASE)), ranks.run.call_count

    return run


@pytest.mark.parametrize(
    "fates, status, times",
    [
        # ranks crashed twice and were then killed: the cause is unknown
        ([CRASH] * (CRASHES - 1) + [KILL] * 2, "ok", CRASHES + 2),
        ([CRASH, KILL, CRASH, CRASH], "failed", 4),
        ([KILL] * ATTEMPTS, "failed", ATTEMPTS),
        ([SURE], "out_of_memory", 1),  # with a reason
        ([LATE], "timeout", 1),
    ],
)
def test_a_case_is_tried_again_while_it_may_not_be_the_cause(tried, fates, status, times):
    record, tries = tried([*fates, "ok"])
    assert (record.status, tries) == (status, times)
    assert (f"{CRASHES} attempts" in (record.reason or "")) == (fates.count(CRASH) == CRASHES)


def test_the_machine_of_a_file_is_used_unless_an_option_overrides_it(sweep_file):
    file = sweep_file('[[cases]]\nm = 8\nn = 8\nk = 8\nlabel = "box"\n')
    machines = lambda **asked: {
        job.case.label for job in plan_cases(SweepRequest(file, 2, "out", **asked)).jobs
    }
    assert machines() == {"box"}
    assert machines(label="another") == {"another"}
