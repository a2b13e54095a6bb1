"""Calls of the executor to MPI at a Fence and while it is idle.

MPI on one machine completes puts, keeps windows coherent, and makes progress between processes that
share memory without these calls. Other MPIs and machines need them, so the tests record the calls.
"""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from mpi4py import MPI

import drbench.host.executor
from drbench.host.executor import Executor
from drbench.host.matrix import DistributedMatrix
from drbench.host.throttle import Throttle
from drbench.host.topology import Topology
from drbench.partitions import partition
from drbench.program.problem import Operand
from drbench.program.steps import Accumulate, Fence, Gemm, Get, Put
from drbench.program.trace import trace


@pytest.fixture
def matrix():
    """C, 8x8 in two tiles, on one rank."""
    with Topology(MPI.COMM_SELF) as topology:
        c = Operand("C", partition("tiles:4x8", (8, 8), 1))
        made = DistributedMatrix.open(c, topology, "f4")
        yield made
        made.close()


def ran(matrix, program, monkeypatch, **words) -> list[str]:
    """Calls to MPI and to the window in a run of a program, in order."""
    asked = []

    def noted(name, call):
        def wrapped(*arguments):
            asked.append(name)
            return call(*arguments)

        return wrapped

    win = matrix.window.win
    names = "Flush_all", "Sync", "Rput", "Rget", "Raccumulate"
    calls = {name: getattr(win, name) for name in names}
    heard = SimpleNamespace(**{name: noted(name, call) for name, call in calls.items()})
    monkeypatch.setattr(matrix.window, "win", heard)
    found = trace(program(), None, 0, fresh=False)
    yields = words.pop("yields", True)
    with Executor(found, {"C": matrix}, **words) as executor:
        executor.yields = yields
        comm = executor.comm
        executor.comm = SimpleNamespace(
            Ibarrier=noted("Ibarrier", comm.Ibarrier), Iprobe=noted("Iprobe", comm.Iprobe)
        )
        finish = executor._finish
        executor._finish = lambda t: (asked.append(f"{found.steps[t]!r} is done"), finish(t))
        executor.run()
    return asked


def test_a_fence_completes_at_the_targets_and_syncs_before_and_after_the_barrier(
    matrix, monkeypatch
):
    """Flush_all completes puts. Sync, Ibarrier, Sync make puts of other ranks visible to loads
    (MPI 4.1, 12.7, a window's public and private copy)."""

    def program():
        yield Fence()

    asked = [each for each in ran(matrix, program, monkeypatch) if each != "Iprobe"]
    assert asked == ["Flush_all", "Sync", "Ibarrier", "Sync", "Fence() is done"]


@pytest.mark.parametrize("kind, call", [(Put, "Rput"), (Accumulate, "Raccumulate")])
def test_writes_by_rma_are_flushed_before_the_barrier(matrix, monkeypatch, kind, call):
    source, target = matrix.operand.own_tiles(0)
    view = matrix.view
    apart = lambda block: None if block.tile == target.tile else view(block)
    monkeypatch.setattr(matrix, "view", apart)  # as if the target were out of reach
    monkeypatch.setattr(matrix, "protocols", ["mpi"])

    def program():
        yield kind((yield Get(source)), target)
        yield Fence()

    asked = [each for each in ran(matrix, program, monkeypatch) if "C[" not in each]
    asked = [each for each in asked if each != "Iprobe"]
    assert asked == [call, "Flush_all", "Sync", "Ibarrier", "Sync", "Fence() is done"]


def test_blocks_of_c_are_read_in_place_only_after_the_fence(matrix):
    """A read in place takes no time, and its reader need not write C. Other ranks may write the
    block until the Fence, which they reach when this rank has nothing else left to do."""
    tile = matrix.operand.own_tiles(0)[0]
    column = matrix.operand.block(tile.rows, (0, 4))

    def program():
        yield Fence()
        made = yield Get(tile)
        yield Gemm((yield Get(column)), made)  # into memory of its own

    found = trace(program(), None, 0, fresh=False)
    with Executor(found, {"C": matrix}) as executor:
        comm, idle, nothing = executor.comm, executor._idle, bytearray()

        def others_come():
            comm.Send(nothing, 0)
            idle()

        executor._idle = others_come
        executor.comm = SimpleNamespace(Ibarrier=lambda: comm.Irecv(nothing, 0), Iprobe=comm.Iprobe)
        executor.timeline = []
        executor.run()
        done = [found.steps[t] for t, _, _ in executor.timeline]
    assert list(map(type, done)) == [Fence, Get, Get, Gemm]


def test_a_rank_that_waits_without_a_request_lets_mpi_serve_the_others(matrix, monkeypatch):
    """A rank that only waits for a timer or a lock has no request to test: without a call into MPI
    RMA of other ranks to it would wait as long."""
    there = replace(
        matrix.operand.own_tiles(0)[0], owner=1
    )  # another rank's, so that the link takes its time
    monkeypatch.setattr(matrix.window, "in_reach", matrix.window.in_reach * 2)
    monkeypatch.setattr(matrix, "places", matrix.places * 2)

    def program():
        yield Get(there)

    asked = ran(matrix, program, monkeypatch, throttle=Throttle(1e9, 0.02), yields=False)
    assert asked[-1].endswith("is done") and set(asked[:-1]) == {"Iprobe"}
    assert asked.count("Iprobe") > 10


@pytest.mark.parametrize("yields", [True, False])
def test_a_rank_that_shares_its_core_yields_it_after_each_gemm(matrix, monkeypatch, yields):
    """After starting the transfer of its result, for which another rank may wait. The kernel would
    give that rank the core only at its clock tick, milliseconds later."""
    asked = []
    monkeypatch.setattr(drbench.host.executor.os, "sched_yield", lambda: asked.append("yields"))
    source, target = (matrix.operand.block((row, row + 4), (0, 4)) for row in (0, 4))
    view = matrix.view
    monkeypatch.setattr(matrix, "view", lambda b: view(b) if b.tile == source.tile else None)

    def sent(value, block):
        asked.append("sends")
        return MPI.COMM_SELF.Ibarrier()

    monkeypatch.setattr(matrix, "rput", sent)

    class Noted:
        def prepare_gemm(self, *arrays, conjugated):
            return lambda beta, alpha: asked.append("multiplies")

    def program():
        a = yield Get(source)
        yield Put((yield Gemm(a, a)), target)
        yield Gemm(a, a)

    found = trace(program(), None, 0, fresh=False)
    with Executor(found, {"C": matrix}, blas=Noted()) as executor:
        executor.yields = yields
        executor.run()
    expected = ["multiplies", "sends", "yields", "multiplies", "yields"]
    assert asked == [each for each in expected if yields or each != "yields"]


@pytest.mark.parametrize("waits, fragments", [(True, 3), (False, 1)])
def test_a_long_gemm_is_cut_along_k_only_while_a_transfer_is_awaited(
    matrix, monkeypatch, waits, fragments
):
    """A throttled read is under way for longer than the GEMM takes."""
    monkeypatch.setattr(drbench.host.executor, "_SEGMENT_S", 1e-12)
    monkeypatch.setattr(drbench.host.executor, "cuts", lambda k, count: [1, 2, 4])
    monkeypatch.setattr(matrix.window, "in_reach", matrix.window.in_reach * 2)
    monkeypatch.setattr(matrix, "places", matrix.places * 2)
    tile = matrix.operand.block((0, 4), (0, 4))
    multiplied = []

    class Noted:
        def gemm(self, a, b, c, beta, alpha, conjugated=""):
            multiplied.append(a.shape[1])

        def prepare_gemm(self, *arrays, conjugated):
            return lambda *factors: self.gemm(*arrays, *factors)

    def program():
        a = yield Get(tile)
        if waits:
            yield Get(replace(tile, owner=1))
        yield Gemm(a, a)

    link = Throttle(1e9, 0.05)
    found = trace(program(), None, 0, fresh=False)
    with Executor(found, {"C": matrix}, blas=Noted(), throttle=link, prefetch="all") as executor:
        executor.run()
    assert len(multiplied) == fragments and sum(multiplied) == 4
