"""``drbench doctor``: what this machine offers, what is wrong with it, and what to change."""

import json
import os
import sys
from dataclasses import replace
from functools import cache

import pytest
from busy import busy_cores

import drbench.launch.commands.doctor
import drbench.launch.commands.run
import drbench.launch.commands.sweep
import drbench.launch.host.kernels
from drbench.launch.host.kernels import KernelSpeed, measure_kernels, pinned, without_weaker_pins
from drbench.measure.settings import SETTINGS

SUBJECTS = {"MPI", "windows", "RMA", "messages", "cores", "BLAS", "memory", "shared memory", "GPUs"}
OURS = {"UCX_TCP_TX_SEG_SIZE": "1M", "UCX_TCP_RX_SEG_SIZE": "1M"}
PEAKS = {"peak float32", "peak float64"}
FAST, SLOW = KernelSpeed("SkylakeX", 60e9), KernelSpeed("Haswell", 40e9)
GIB = 1 << 30


@pytest.fixture
def kernels(monkeypatch):
    """``kernels(held, free)``: results of the benchmark of kernels with and without pins, without
    running it."""

    def pretend(held=FAST, free=FAST):
        for module in (drbench.launch.host.kernels, drbench.launch.commands.doctor):
            monkeypatch.setattr(
                module,
                "measure_kernels",
                lambda environ=os.environ, **how: held if pinned(environ) else free,
            )

    pretend()
    return pretend


@pytest.fixture
def findings(run_cli, kernels, monkeypatch):
    """``findings()``: subject -> finding, without starting ranks or looking for GPUs."""
    monkeypatch.setattr(drbench.launch.commands.doctor, "_mpi", lambda *given: [])
    monkeypatch.setattr(drbench.launch.commands.doctor, "_gpus", lambda *given: ([], {}))
    return lambda *options: {
        each["subject"]: each for each in run_cli("doctor", "--json", *options).json()
    }


@pytest.mark.mpi
def test_a_machine_that_can_run_has_nothing_missing(process, files_of_a_user):
    """The real thing: ranks are started, kernels measured, with weaker kernels pinned if the
    processor has them; the processes import no file of the working folder."""
    drbench = "from drbench.launch.commands.cli import main; raise SystemExit(main())"
    words = sys.executable, "-P", "-c", drbench, *"doctor --json -p 2".split()
    found = process(*words, env={"OPENBLAS_CORETYPE": "Haswell"}, timeout=60).json()
    by_subject = {each["subject"]: each for each in found}
    tcp = by_subject.pop("TCP", None)  # of an MPI on UCX
    assert tcp is None or all(f"{name}={value}" in tcp["text"] for name, value in OURS.items())
    settings = {setting.subject for setting in SETTINGS.values()} | {"settings"}
    known = {name: by_subject.pop(name) for name in settings & by_subject.keys()}
    assert known and all(found["level"] in ("ok", "advice", "unknown") for found in known.values())
    assert set(by_subject) == SUBJECTS | PEAKS | {"other load"}
    assert all("GFLOP/s on one core" in by_subject[subject]["text"] for subject in PEAKS)
    assert all(each["level"] in ("ok", "advice") for each in by_subject.values())
    assert all(each["text"] for each in found)
    assert all(each["remedy"] for each in found if each["level"] == "advice")
    assert "launcher" in by_subject["MPI"]["text"] and "GFLOP/s" in by_subject["BLAS"]["text"]
    if by_subject["BLAS"]["text"].startswith("openblas"):
        assert "OPENBLAS_CORETYPE=Haswell" in by_subject["BLAS"]["text"]


def test_weaker_kernels_by_a_variable_are_advice_with_their_cost(findings, kernels, monkeypatch):
    kernels(held=SLOW, free=FAST)
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    blas = findings()["BLAS"]
    assert blas["level"] == "advice"
    numbers = "Haswell kernels", "SkylakeX kernels", "40 GFLOP/s", "60 GFLOP/s", "33 %"
    assert all(part in blas["text"] for part in ("OPENBLAS_CORETYPE=Haswell", *numbers))
    assert blas["remedy"] == "unset OPENBLAS_CORETYPE"


def test_a_peak_of_cores_that_others_used_is_advice_with_the_share(findings, kernels):
    single = findings()["peak float32"]
    assert single["level"] == "ok" and single["remedy"].startswith("--peak 60 ")
    kernels(replace(FAST, core_share=0.42), replace(FAST, core_share=0.42))
    for subject in PEAKS:
        assert findings()[subject]["level"] == "advice"
    busy = findings()["other load"]
    assert busy["level"] == "advice" and "42 % of their cores" in busy["text"]


def test_doctor_next_to_busy_processes_gives_no_peak_for_sure(findings, monkeypatch):
    """The real thing, measured once for both peaks: what had half of its core is advice."""
    monkeypatch.setattr(drbench.launch.commands.doctor, "_blas", lambda *given: [])
    once = cache(lambda processes: measure_kernels(processes=processes))
    measured = lambda environ=None, dtype=None, processes=1: once(processes)
    monkeypatch.setattr(drbench.launch.commands.doctor, "measure_kernels", measured)
    with busy_cores():
        found = findings()
    for subject in PEAKS:
        assert found[subject]["level"] == "advice", found[subject]
        assert "--peak" not in found[subject]["remedy"]


def test_settings_that_need_no_change_are_shown_with_v_only(run_cli, findings, monkeypatch):
    values = {"governor": "powersave", "boost": "0", "numa_balancing": "0", "smt": "0"}
    monkeypatch.setattr(drbench.launch.commands.doctor, "read_settings", lambda: values)
    assert findings()["clock"]["level"] == "advice"
    short, long = (run_cli("doctor", *words).stdout for words in ([], ["-v"]))
    assert "cpupower frequency-set -g performance" in short and "cpupower" in short.splitlines()[-1]
    assert "huge pages: not to be read" in short and "NUMA" not in short and "NUMA" in long


def test_more_ranks_than_cores_is_advice(findings):
    cores = len(os.sched_getaffinity(0))
    assert findings("-p", cores)["cores"]["level"] == "ok"
    found = findings("-p", cores + 1)["cores"]
    assert found["level"] == "advice" and f"at most {cores} ranks" in found["remedy"]


def test_memory_is_what_a_run_may_use(findings, monkeypatch):
    """In a control group of 400 MB doctor saw the memory of the machine."""
    monkeypatch.setattr(drbench.launch.commands.doctor, "available_memory", lambda: 400 << 20)
    assert findings()["memory"]["text"].startswith("400 MiB")


def test_little_shared_memory_is_advice_with_the_command(findings, monkeypatch):
    monkeypatch.setattr(drbench.launch.commands.doctor, "shared_memory_free", lambda: 64 << 20)
    little = findings()["shared memory"]
    assert "64 MiB" in little["text"] and "remount" in little["remedy"]
    for free, level in ((64 << 20, "advice"), (None, "advice"), (4 * GIB, "ok")):
        monkeypatch.setattr(
            drbench.launch.commands.doctor, "shared_memory_free", lambda free=free: free
        )
        assert findings()["shared memory"]["level"] == level


def test_a_missing_launcher_exits_3(run_cli, kernels, monkeypatch, tmp_path):
    monkeypatch.setenv("MPI4PY_LIBMPI", "/opt/some/libmpi.so")
    monkeypatch.setenv("PATH", str(tmp_path))
    ended = run_cli("doctor", "--json")
    assert (ended.returncode, ended.stderr) == (3, "")
    missing = [each for each in json.loads(ended.stdout) if each["level"] == "missing"]
    assert len(missing) == 1 and "pip install '.[mpich]'" in missing[0]["text"]


@pytest.mark.mpi
def test_a_launcher_of_another_mpi_is_missing(run_cli, kernels, mpi_library, monkeypatch, tmp_path):
    mpiexec = tmp_path / "mpiexec"
    mpiexec.write_text('#!/bin/sh\n[ "$1" = --version ] && exit\nshift 2\n"$@"\n"$@"\n')
    mpiexec.chmod(0o755)
    monkeypatch.setenv("MPI4PY_LIBMPI", mpi_library[1])
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    ended = run_cli("doctor", "--json")
    mpi = {each["subject"]: each for each in json.loads(ended.stdout)}["MPI"]
    assert ended.returncode == 3 and mpi["level"] == "missing"
    assert "sees 1" in mpi["text"] and "MPI4PY_LIBMPI" in mpi["remedy"]


@pytest.mark.parametrize(
    "held, free, weaker",
    [
        (SLOW, FAST, True),
        (FAST, FAST, False),
        (SLOW, KernelSpeed("SkylakeX", 41e9), False),  # faster by less than the noise
        (KernelSpeed("SkylakeX", 40e9), FAST, False),  # the same kernels: it was the noise
    ],
)
def test_pins_are_weaker_if_the_kernels_differ_and_are_slower(
    kernels, monkeypatch, held, free, weaker
):
    kernels(held, free)
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    monkeypatch.delenv("OPENBLAS_L2_SIZE", raising=False)
    lines = []
    lifted = "OPENBLAS_CORETYPE" not in without_weaker_pins(lines.append)
    assert (lifted, len(lines)) == (weaker, weaker)


def test_run_and_sweep_lift_weaker_kernels_and_report_it_in_one_line(
    run_cli, kernels, monkeypatch, tmp_path
):
    """125 and 242 GFLOP/s a thread were once measured in one session, without a message."""
    kernels(held=SLOW, free=FAST)
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    given = []
    monkeypatch.setattr(
        drbench.launch.commands.run, "run_ranks", lambda *args: given.append(args[-1]) or 0
    )
    monkeypatch.setattr(
        drbench.launch.commands.sweep,
        "run_sweep",
        lambda plan, request, *more: given.append(request.environ) or 0,
    )
    monkeypatch.setattr(os, "execve", lambda *_: pytest.fail("only a process that computes itself"))
    words = "-p 2 -m 64 -n 64 -k 64".split()
    ended = run_cli("run", *words), run_cli("sweep", "mlp1-small", "-p", 2, "--out", tmp_path / "x")
    lines = ended[0].stderr, ended[1].stdout
    for line, environ in zip(lines, given, strict=True):
        assert "OPENBLAS_CORETYPE" not in environ and "PATH" in environ
        assert line.count("\n") == 1 and line.startswith("OPENBLAS_CORETYPE=Haswell holds this")
        assert "unset for this run: SkylakeX kernels reach 60 GFLOP/s" in line
    kernels(held=FAST, free=FAST)
    ended = run_cli("run", *words)
    assert given[-1]["OPENBLAS_CORETYPE"] == "Haswell" and ended.stderr == ""
