"""Did every rank find the same error? Asked before one of them leaves in good order."""

from __future__ import annotations

import time

from mpi4py import MPI

__all__ = ["everyone_is_here"]

_PATIENCE_S = 5.0


def everyone_is_here(comm: MPI.Comm | None = None) -> bool:
    """True if all ranks come here within a few seconds; False if this one is alone, and has to end
    the others."""
    if not MPI.Is_initialized() or MPI.Is_finalized():
        return True
    comm = comm or MPI.COMM_WORLD
    if comm.size == 1:
        return True
    arrived, deadline = comm.Ibarrier(), time.monotonic() + _PATIENCE_S
    while not arrived.Test():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.001)
    return True
