"""Libraries from the command line, with none of them installed: refusals, a made-up cosma_miniapp,
and the comparison itself."""

import json
import os
import re
from pathlib import Path

import pytest

from drbench.measure.record_file import read_csv

#: Prints the output of COSMA's program, on one rank. PRINT replaces the times. It lasts a moment:
#: MPICH's mpiexec can die of a broken pipe if its processes end while it still starts them.
MINIAPP = """#!/bin/sh
trap 'sleep 0.1' EXIT
[ "${PMI_RANK:-${OMPI_COMM_WORLD_RANK:-0}}" = 0 ] || exit 0
echo "$@" >> "$ASKED"
echo "Strategy = Matrix dimensions (m, n, k) = (1, 1, 1)"
echo "parallel (n / 2)"
case "$*" in *--test*) echo "Result is$NOT CORRECT!"; exit 0;; esac
echo "${PRINT-COSMA TIMES [ms] = 4 5 9 }"
"""
PROBLEM = "-m 64 -n 64 -k 64".split()
COSMA = ["run", "-p", 2, *PROBLEM, *"--algorithm cosma --iters 2 --budget 0 --json".split()]


@pytest.fixture
def cosma(tmp_path):
    """Environment in which a made-up cosma_miniapp is on PATH."""
    program = tmp_path / "bin" / "cosma_miniapp"
    program.parent.mkdir()
    program.write_text(MINIAPP)
    program.chmod(0o755)
    return {
        "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}",
        "ASKED": str(tmp_path / "asked"),
    }


@pytest.fixture
def without(tmp_path):
    """Environment in which no library is installed, whatever this machine has."""
    code = (
        "import importlib.util as u\nreal = u.find_spec\n"
        "u.find_spec = lambda name, *more: None if name in ('torch', 'heat', 'jax', 'pylops_mpi') "
        "else real(name, *more)\n"
    )
    (tmp_path / "hide").mkdir()
    (tmp_path / "hide" / "sitecustomize.py").write_text(code)
    return {
        "PYTHONPATH": f"{tmp_path / 'hide'}{os.pathsep}{Path(__file__).parents[3]}",
        "DRBENCH_SCALAPACK": "/nowhere",
    }


@pytest.mark.parametrize("name", ["dtensor", "cosma"])
def test_a_missing_library_exits_3_before_any_rank_is_started(run_cli, nothing_installed, name):
    line = run_cli("run", "-p", 2, *PROBLEM, "--algorithm", name).refusal(3)
    assert f"{name} is not available" in line


@pytest.mark.parametrize(
    "options, words",
    [
        (("-o", "prefetch=3"), "takes no -o prefetch"),
        (("--transport", "rma"), "takes no --transport"),
        (("--a", "row"), "cosma chooses its own partitions"),
        (
            (
                "-o",
                "gemm_only=true",
            ),
            "leave -o gemm_only out",
        ),
        (("-o", "variant=k2"), "is not a list of splits"),
    ],
)
def test_options_that_a_library_does_not_have_are_refused(
    run_cli, monkeypatch, cosma, options, words
):
    monkeypatch.setenv("PATH", cosma["PATH"])
    assert words in run_cli("run", "-p", 2, *PROBLEM, "--algorithm", "cosma", *options).refusal(2)


def test_a_library_has_no_program_to_plan(run_cli):
    assert "is a library" in run_cli("plan", "-p", 2, *PROBLEM, "--algorithm", "dtensor").refusal(2)


def test_cosma_does_the_same_work_and_its_times_become_a_record(drbench, cosma, tmp_path):
    record = drbench(*COSMA, *"-o variant=sm2,pk2 --csv out.csv".split(), env=cosma).json()
    timed, verified = (tmp_path / "asked").read_text().splitlines()
    assert verified.split() == [*timed.split()[:-2], "--test"]
    assert timed.split() == "-m 64 -n 64 -k 64 -t float -s sm2,pk2 -r 3".split()
    asked = {"status": "ok", "samples_s": [0.004, 0.005], "best_s": 0.004, "error": None}
    asked |= {"dataflow": "sm2,pk2", "fill": "its own"}
    assert {name: record[name] for name in asked} == asked
    assert record["gflops"] == pytest.approx(2 * 64**3 / 0.0045 / 1e9)
    assert [one.to_json_dict() for one in read_csv(tmp_path / "out.csv")] == [record]


@pytest.mark.parametrize(
    "printed, status, code, words",
    [
        ("COSMA TIMES [ms] = 0 1 1 ", "unsupported", 3, "whole milliseconds"),
        ("MPI_Init failed", "failed", 5, "MPI_Init failed"),
        (
            "Splitting strategy not well defined.\nDimension k at step 0 = 1, which is less",
            "unsupported",
            3,
            "cosma refuses: Dimension k at step 0",
        ),
    ],
)
def test_output_without_times_is_no_record_of_success(drbench, cosma, printed, status, code, words):
    ended = drbench(*COSMA, env=cosma | {"PRINT": printed})
    record = json.loads(ended.stdout)
    assert (ended.returncode, record["status"]) == (code, status) and words in record["reason"]


@pytest.mark.parametrize("text, status, code", [("", "ok", 0), (" NOT", "wrong", 1)])
def test_cosma_reports_whether_its_result_is_right_and_how_it_split(
    drbench, cosma, text, status, code
):
    ended = drbench(*COSMA, "-o", "overlap=on", env=cosma | {"NOT": text})
    record = json.loads(ended.stdout)
    assert (ended.returncode, record["status"]) == (code, status)
    assert (record["dataflow"], record["options"]) == ("pn2", "overlap=on")
    unasked = drbench(*COSMA, "-o", "check=false", env=cosma | {"NOT": text})
    assert (unasked.returncode, unasked.json()["status"]) == (0, "ok")


@pytest.mark.mpi
def test_own_shapes_run_next_to_libraries_in_rounds(drbench, cosma, without, tmp_path):
    words = "sweep libraries -p 2 --peak none --out out".split()
    for each in ("m=40", "n=24", "k=32", "preset=row", "rounds=2", "iters=1", "budget=0"):
        words += ["-o", each]
    environ = without | cosma
    first = drbench(*words, env=environ, timeout=60)
    assert (first.returncode, first.stderr) == (0, "")
    (absent,) = re.findall(r"^Not installed: (.*) \(", first.stdout, re.M)
    assert {"dtensor", "heat", "jax"} <= {*absent.split(", ")}
    assert "cosma" in first.stdout
    turns = read_csv(tmp_path / "out" / "rounds" / "records.csv")
    rows = read_csv(tmp_path / "out" / "records.csv")
    assert len(turns) == 2 * len(rows) and {row.case.partition(" ")[0] for row in turns} == {
        "1",
        "2",
    }
    ok = [row for row in rows if row.status == "ok"]
    assert {(row.m, row.n, row.k) for row in rows} == {(40, 24, 32)}
    assert {"universal", "fsdp", "cosma"} <= {row.algorithm for row in ok}
    assert all(row.error == 0.0 and row.gemm_only_gflops for row in ok if row.algorithm != "cosma")
