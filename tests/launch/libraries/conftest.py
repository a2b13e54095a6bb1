"""What tests of peers share."""

import importlib.util

import pytest


@pytest.fixture
def nothing_installed(monkeypatch):
    """This process finds no peer, whatever this machine has."""
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *more: None if name in ("torch", "heat", "pylops_mpi") else real(name, *more),
    )
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("DRBENCH_SCALAPACK", "/nowhere/libscalapack.so")
