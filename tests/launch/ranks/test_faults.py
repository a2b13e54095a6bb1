"""Whatever fails on a rank, however drbench was started: all ranks end, print the reason, and the
exit code names the class of the error."""

import json
import signal
import sys
import time

import pytest
from starting import wait_until, within

from drbench.measure.record_file import read_csv

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(60)]

RUN = "run -m 16 -n 16 -k 16 --iters 1 --budget 0 -o warmup=0 --threads 1".split()
#: An exception must end all ranks within this.
LIMIT_S = 10


def test_a_wrong_result_exits_1_names_the_place_and_is_a_row(drbench, mpich, fault, tmp_path):
    ended = drbench(*RUN, "-p", 3, "--json", "--csv", "out.csv", env=fault("wrong"))
    assert (ended.returncode, ended.stderr) == (1, "")
    record = json.loads(ended.stdout)
    assert record["status"] == "wrong" and record["error"] > 0
    assert "row 0" in record["reason"] and "rows of C" in record["reason"]
    (row,) = read_csv(tmp_path / "out.csv")
    assert row.to_json_dict() == record


def test_every_rank_exits_1_with_a_wrong_result(under_mpiexec, fault):
    ended = under_mpiexec(2, *RUN, env=fault("wrong"))
    assert ended.codes == (1, 1)
    assert "wrong: " in ended.stdout


#: Fault of rank 1 -> exit codes, what is printed once, and whether with a traceback.
FAULTS = {
    "exception": ((5,), "RuntimeError: struck by the test", True),
    "exit": ((5,), "SystemExit: struck by the test", True),
    "memory": ((6,), "drbench: the system gives no more memory (struck by the test)", False),
    # as a new algorithm might, while the program is traced: the others would wait for ever
    "unsupported": ((3, 5), "struck by the test", None),
    # before MPI_Init, in which the others would wait, without an error of mpiexec
    "import": (range(2, 256), "threadpoolctl", None),
    "killed": (range(2, 256), "", None),
}


@pytest.mark.parametrize("way", ["run -p", "mpiexec"])
def test_a_fault_of_one_rank_ends_all_ranks_and_is_reported(mpiexec, process, fault, dealt, way):
    """A killed rank is code 5 of drbench, not code 9 of mpiexec. A timeout that is not reached
    changes nothing."""
    itself = way == "run -p"
    before, after = ([], ["-p", 3, "--timeout", 60]) if itself else ([mpiexec, "-n", 3], [])
    always = "killed" if itself else "exception"
    for name in {always: 0} | dict.fromkeys(dealt(FAULTS, not itself, 2)):
        codes, text, traced = FAULTS[name]
        command = [*before, sys.executable, "-m", "drbench", *RUN, *after]
        ended = process(*command, env=fault(name), timeout=LIMIT_S)
        assert ended.returncode % 256 in codes and ended.left == (), name
        assert text in ended.stderr + ended.stdout, name
        if itself and name == "killed":
            assert ended.returncode == 5 and "drbench: " in ended.stderr
        if traced is not None:
            assert ended.stderr.count("Traceback (most recent call last)") == traced, name
            assert ended.stderr.count(text) == 1, name


def test_a_hanging_case_is_killed_at_its_timeout(drbench, fault, mpich):
    """With one line, and no page of the launcher."""
    ended = drbench(*RUN, "-p", 2, "--timeout", 1, env=fault("hang"), timeout=LIMIT_S)
    assert 1 <= ended.seconds and within(ended.seconds, 8)
    line = ended.refusal(4)
    assert "the 2 ranks did not end within 1 s" in line and "--timeout" in line
    assert ended.left == ()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP], ids=lambda number: number.name)
def test_ending_run_p_ends_its_ranks(drbench, fault, tmp_path, number, mpich):
    """On SIGTERM (below) and SIGHUP too (``timeout 60 drbench run -p …``, a batch system, a closed
    terminal): ranks of a hanging case that are left would poll on their cores for ever. The
    message is one line, and no page of the launcher."""

    def signal_it(process):
        wait_until((tmp_path / "hanging").exists, LIMIT_S, process)
        process.send_signal(number)

    ended = drbench(*RUN, "-p", 2, env=fault("hang"), during=signal_it, timeout=LIMIT_S)
    check_interrupted(ended)


def check_interrupted(ended):
    assert (ended.returncode, ended.stdout, ended.left) == (130, "", ())
    assert ended.stderr.lstrip() == "drbench: interrupted\n"  # after the ^C of a terminal


def test_a_hangup_that_is_to_be_ignored_ends_nothing(process, fault, tmp_path, mpich):
    """``nohup drbench run -p …`` outlives its terminal."""

    def hang_up(process):
        wait_until((tmp_path / "hanging").exists, LIMIT_S, process)
        process.send_signal(signal.SIGHUP)
        time.sleep(0.5)
        alive.append(process.poll() is None)
        process.send_signal(signal.SIGTERM)

    alive = []
    nohup = ["sh", "-c", 'trap "" HUP; exec "$@"', "sh", sys.executable, "-m", "drbench"]
    ended = process(*nohup, *RUN, "-p", 2, env=fault("hang"), during=hang_up, timeout=LIMIT_S)
    assert alive == [True]
    check_interrupted(ended)
