"""Benchmarks have one entry point, and each of them loads."""

import subprocess
import sys

from starting import ROOT

from benchmarks.__main__ import ON_RANKS, list_benchmarks, main

NAMES = set(list_benchmarks())


def test_without_a_name_they_are_listed(capsys):
    assert main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert {line.split()[0] for line in lines} == NAMES >= {"core", "pages", "model.tune"}
    assert ON_RANKS < NAMES


def test_an_unknown_name_is_refused_in_one_line(capsys):
    assert main(["nope"]) == 2
    line = capsys.readouterr().err
    assert line.count("\n") == 1 and "'nope'" in line and "model.tune" in line


def test_one_is_run_with_its_own_arguments():
    command = [sys.executable, "-m", "benchmarks", "core", "--help"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0 and "python -m benchmarks core" in done.stdout


def test_every_benchmark_can_be_loaded():
    """Except the one that needs torch."""
    names = sorted(NAMES - {"dtensor"})
    code = f"import importlib; [importlib.import_module('benchmarks.' + x) for x in {names}]"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
