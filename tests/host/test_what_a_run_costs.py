"""Times of a run on cores: waiting is counted once, without first touches of pages, and without
copies of blocks that can be read in place."""

import resource
import time
from types import SimpleNamespace

import numpy as np
import pytest
from mpi4py import MPI

from drbench.clock import Clock
from drbench.host.executor import Executor
from drbench.host.executor_base import ExecutorBase
from drbench.host.matrix import DistributedMatrix
from drbench.host.topology import Topology
from drbench.partitions import partition
from drbench.program.problem import Operand
from drbench.program.steps import Accumulate, Block, Gemm, Get, ReplicaGet, Scratch
from drbench.program.trace import trace

HELD_S, PAGE = 0.3, 4096


@pytest.fixture
def matrix():
    """C, 8x8, on one rank."""
    with Topology(MPI.COMM_SELF) as topology:
        made = DistributedMatrix.open(Operand("C", partition("block", (8, 8), 1)), topology, "f4")
        yield made
        made.close()


def traced(program):
    return trace(program, None, 0, fresh=False)


def test_a_phase_is_the_sum_of_the_times_inside_it(monkeypatch):
    times = iter([10.0, 12.0, 20.0, 20.5])
    monkeypatch.setattr(time, "perf_counter", lambda: next(times))
    clock = Clock()
    for _ in range(2):
        with clock.phase("pack"):
            pass
    monkeypatch.undo()
    assert {name: s for name, s in clock.seconds.items() if s} == {"pack": 2.5}
    clock.reset()
    assert not any(clock.seconds.values())


def test_waiting_for_a_lock_is_counted_once(matrix, monkeypatch):
    (block,) = matrix.operand.own_tiles(0)

    def program():
        yield Accumulate((yield Get(block)), block)

    class Held:
        """Locks that another rank releases after a while."""

        def try_acquire(self, *_):
            return time.perf_counter() > until

        def release(self, *_):
            pass

    monkeypatch.setattr(matrix.topology, "locks", Held())
    clock = Clock()
    with Executor(traced(program()), {"C": matrix}) as executor:
        executor.clock = clock
        start = time.perf_counter()
        until = start + HELD_S
        executor.run()
        elapsed = time.perf_counter() - start
    assert 0.9 * HELD_S < clock.seconds["accumulate"] <= elapsed
    assert sum(clock.seconds.values()) <= elapsed


def test_gemms_are_prepared_before_the_first_run(matrix):
    (block,) = matrix.operand.own_tiles(0)
    happened = []

    class Noting:
        def prepare_gemm(self, *arrays, conjugated):
            happened.append("prepared")
            return lambda beta, alpha: happened.append("multiplied")

    def program():
        a = yield Get(block)
        yield Gemm(a, a, into=block)

    with Executor(traced(program()), {"C": matrix}, blas=Noting()) as executor:
        assert happened == ["prepared"]  # before any clock runs, whatever is warmed up
        for _ in range(2):
            executor.run()
    assert happened == ["prepared", "multiplied", "multiplied"]


def test_the_arena_has_its_pages_before_the_clock_runs(matrix):
    def program():
        yield Scratch((4096, 4096))

    with Executor(traced(program()), {"C": matrix}) as executor:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        executor.arena[::PAGE] = 1
        assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before < 10


@pytest.mark.parametrize("apart", ["A", "C"])
def test_only_blocks_out_of_reach_are_copied(apart):
    """Where devices cannot add into each other's memory C is out of reach, and A is not."""
    blocks = {name: Block(name, 1, 1, (0, 0), 0, 4, 0, 4) for name in "AC"}

    def program():
        for block in blocks.values():
            yield (Get if block.matrix == "A" else ReplicaGet)(block)

    memory = np.zeros(16, "f4")
    matrices = {
        name: SimpleNamespace(
            dtype=memory.dtype,
            window=SimpleNamespace(in_reach=[memory, None if name == apart else memory]),
            topology=SimpleNamespace(comm=None, group=None),
            view=lambda block: memory.reshape(block.shape),
            column_major=lambda block: block.transposed,
        )
        for name in "AC"
    }
    frame = ExecutorBase(traced(program()), matrices, prefetch=1, get="view")
    copied = {name for t, name in enumerate("AC") if t in frame.buffers}
    assert copied == {apart}
