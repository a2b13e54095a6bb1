"""Fixtures for tests of libraries."""

import importlib.util

import pytest


@pytest.fixture
def nothing_installed(monkeypatch):
    """Hide all libraries of this machine from this process."""
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *more: (
            None if name in ("torch", "heat", "jax", "pylops_mpi") else real(name, *more)
        ),
    )
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("DRBENCH_SCALAPACK", "/nowhere/libscalapack.so")
