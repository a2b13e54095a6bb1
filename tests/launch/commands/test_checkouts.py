"""Packages of two checkouts never run together."""

import os
import shutil
from pathlib import Path

import pytest

from drbench.__main__ import checkouts

ROOT = Path(__file__).parents[3]


@pytest.fixture
def two(tmp_path):
    """Environment in which ``plots`` is of another checkout."""
    shutil.copytree(
        ROOT / "plots",
        tmp_path / "elsewhere" / "plots",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    return {"PYTHONPATH": f"{tmp_path / 'elsewhere'}{os.pathsep}{ROOT}"}


def test_the_packages_under_test_are_of_one_checkout():
    assert set(checkouts().values()) == {ROOT.resolve()}


def test_packages_of_two_checkouts_are_refused_with_their_places(drbench, two, tmp_path):
    ended = drbench("list", env=two)
    assert ended.returncode == 3 and ended.stdout == ""
    assert ended.stderr.startswith("drbench: ") and ended.stderr.count("\n") == 1
    for part in (f"plots from {tmp_path / 'elsewhere'}", f"drbench from {ROOT}", "PYTHONPATH"):
        assert part in ended.stderr


@pytest.mark.mpi
def test_run_p_refuses_them_before_it_starts_ranks(drbench, two):
    ended = drbench(*"run -p 2 -m 8 -n 8 -k 8".split(), env=two)
    assert ended.returncode == 3 and ended.stderr.count("\n") == 1


@pytest.mark.mpi
def test_under_mpiexec_they_are_refused_once(under_mpiexec, mpich, two):
    """By one rank for all, not by each."""
    ended = under_mpiexec(3, *"run -m 8 -n 8 -k 8".split(), env=two)
    assert ended.codes == (3, 3, 3)
    assert ended.stderr.count("come from different places") == 1


def test_a_folder_of_the_same_name_is_no_package(drbench, tmp_path):
    for name in ("plots", "launch", "partitions"):
        (tmp_path / name).mkdir()
    assert drbench("list").returncode == 0
