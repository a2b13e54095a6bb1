"""Helpers of the programs: their situation, the ranks in its order, and the one answer."""

import json
import os
import sys
import time
from contextlib import contextmanager

import numpy as np
from mpi4py import MPI
from signal_runs import overlapping_slots
from whole_multiplications import expected

import drbench
import drbench.host.inbox
from drbench.errors import DrbenchError
from drbench.host.executor import Executor
from drbench.host.topology import Topology
from drbench.transport import TransportChoice

SITUATION = os.environ["DRBENCH_TEST_SITUATION"]
if (
    os.environ.get("MPIR_CVAR_ENABLE_HEAVY_YIELD") == "1"
):  # of MPICH; loops of drbench then yield too
    os.sched_yield = lambda: time.sleep(1e-4)
TRANSPORT = TransportChoice("rma" if SITUATION == "rma" else "auto")


@contextmanager
def ranks():
    """All ranks. In the situation ``nodes`` they are numbered node by node: MPICH deals them to its
    cliques cyclically."""
    world = MPI.COMM_WORLD
    if SITUATION != "nodes":
        yield world
        return
    with Topology(world) as topology:
        comm = world.Split(0, topology.node_of[world.rank] * world.size + world.rank)
    yield comm
    comm.Free()


@contextmanager
def matrix(comm, text, shape, dtype="float32"):
    """A matrix of the library over ``comm``, fenced once, in the situation's transport."""
    with drbench.init(comm, heap="16M", transport=TRANSPORT.kind) as ctx:
        made = ctx.empty(shape, text, dtype)
        made.fence()
        yield made
        made.memory = (
            None  # the caller still refers to the matrix: without this its memory would stay
        )


def fence(matrix):
    """Complete all ranks' stores and one-sided transfers and make them visible (collective)."""
    matrix.window.flush()
    matrix.window.sync()
    matrix.topology.comm.Barrier()
    matrix.window.sync()


@contextmanager
def restored(*places):
    """Restore these attributes afterwards, pairs of an object and a name: other programs may run in
    this process."""
    kept = [(owner, name, vars(owner)[name]) for owner, name in places]
    try:
        yield
    finally:
        for owner, name, value in kept:
            setattr(owner, name, value)


def refilled(problem, matrices, run):
    """The expected C, after filling A and B with small integers, different in each run."""
    wholes = []
    for name, operand in (("A", problem.a), ("B", problem.b)):
        shape = operand.partition.shape
        wholes.append(np.random.default_rng([run, *name.encode()]).integers(-4, 5, shape))
        for block, tile in matrices[name].own_blocks():
            tile.view(np.ndarray)[...] = wholes[-1][slice(*block.rows), slice(*block.cols)]
    return expected(problem, *wholes)


def wrong_in(matrix, whole, everywhere=True) -> int:
    """Number of wrong elements in own blocks, over all ranks (collective), or those with the first
    replica."""
    wrong = sum(
        int((tile.view(np.ndarray) != whole[slice(*block.rows), slice(*block.cols)]).sum())
        for block, tile in matrix.own_blocks()
        if everywhere or matrix.replica == 0
    )
    return matrix.topology.comm.allreduce(wrong)


def wrap_starters(kind, wrapper) -> None:
    """Wrap the function that starts communication steps of a type in the executor."""
    Executor._STARTERS = {
        step: wrapper(start) if issubclass(step, kind) else start
        for step, start in Executor._STARTERS.items()
    }


def message_of(function):
    """The class and the text of the error that a call ends with."""
    try:
        function()
    except DrbenchError as error:
        return [type(error).__name__, str(error)]
    return None


def answer(comm, value) -> None:
    """Print ``value`` on rank 0, as JSON."""
    if comm.rank == 0:
        sys.stdout.write(json.dumps(value))  # four times as fast as json.dump
        sys.stdout.flush()


#: What this changes.
SLOTS = drbench.host.inbox, "plan_inbox"


def shared_slots():
    """Two Awaits have one slot, which is written again before it is read."""
    drbench.host.inbox.plan_inbox = overlapping_slots
