"""MPI datatypes of blocks stored by columns, and copies merged into one: arrays of several ranks
in one process."""

import itertools
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mpi4py import MPI
from oracles import by_place

from drbench.host.copies import Strided, copy_of, joined
from drbench.host.executor_base import ExecutorBase
from drbench.host.inbox import Inbox, Route
from drbench.host.matrix import DistributedMatrix, Location, Window
from drbench.host.redistribution import Redistributor
from drbench.host.topology import Topology
from drbench.partitions import partition
from drbench.program.problem import Operand
from drbench.program.redistribution import redistribute
from drbench.program.steps import Accumulate, Block, Gemm, Get
from drbench.program.trace import trace


def placed(name, text, shape, arrays, reached=True):
    """A matrix over as many ranks as arrays, all in this process's memory, as rank 0 sees it."""
    size, dtype = len(arrays), arrays[0].dtype
    memory = np.zeros(sum(array.nbytes for array in arrays) + 64, np.uint8)
    places, at = [], 32
    for array in arrays:
        places.append(Location(at, *array.strides))
        at += array.nbytes
    in_reach = [memory if reached or rank == 0 else None for rank in range(size)]
    window = Window.__new__(Window)
    window.win, window.in_reach, window._types = None, in_reach, {}
    window.reach = [[reached or r == s for s in range(size)] for r in range(size)]
    topology = SimpleNamespace(comm=SimpleNamespace(rank=0, size=size), group=None)
    operand = Operand(name, partition(text, shape, size))
    made = DistributedMatrix(operand, topology, dtype, window, places)
    locals_ = [
        np.ndarray(array.shape, dtype, memory, place.offset, array.strides)
        for array, place in zip(arrays, places)
    ]
    for target, array in zip(locals_, arrays):
        target[...] = array
    return made, locals_


def test_a_block_without_elements_is_readable_in_place_on_any_rank():
    """No element of it is fetched, and it has no receive buffer."""
    matrix, _ = placed("A", "row", (1, 4), [np.zeros((1, 4)), np.zeros((0, 4))], reached=False)
    nothing = Block("A", 1, 0, (0, 0), 1, 1, 0, 4)
    assert nothing.size == 0 and matrix.view(nothing).shape == (0, 4)
    assert matrix.view(Block("A", 1, 0, (0, 0), 0, 1, 0, 4)) is None


def test_blocks_by_columns_are_read_into_any_order_and_whole_columns_as_one_run():
    whole = np.arange(24, dtype="f4").reshape(6, 4)
    matrix, _ = placed("A", "row", whole.shape, [np.asfortranarray(whole)])
    with from_afar(matrix):
        for (low, high), order in itertools.product([(0, 6), (1, 4)], "CF"):
            place = matrix.locate(matrix.operand.block((low, high), (0, 3)))
            out = np.zeros((high - low, 3), "f4", order=order)
            matrix.window.rget(out, 0, place).Wait()
            assert (out == whole[low:high, :3]).all()
            runs = matrix.window._ends(out, 0, place)[2][1:] == (18, MPI.FLOAT)
            assert runs == (high - low == 6)


@pytest.mark.parametrize("column_major", [False, True])
@pytest.mark.parametrize("shape", [(3, 4), (3, 1), (1, 4), (1, 1), (0, 4)])
def test_an_offered_value_of_a_remote_rank_is_read_in_its_order(shape, column_major):
    """A part of a larger value, from this rank's own window as from another's."""
    whole = np.arange(8 * 9, dtype="f4").reshape(8, 9)
    rows, cols = shape
    with topology_of_one() as topology:
        window = Window(topology, whole.nbytes)
        window.local[:] = whole.reshape(-1).view(np.uint8)
        stored = whole.T if column_major else whole
        offset = stored[2, 3:].__array_interface__["data"][0]
        offset -= whole.__array_interface__["data"][0]
        inbox = Inbox.__new__(Inbox)
        inbox.window = window
        inbox.routes = {0: Route(0, 0, False, None, None, None, offset, 9 * 4)}
        out = np.zeros(shape, "f4", order="F" if column_major else "C")
        inbox.read(0, out, column_major).Wait()
        assert (out == stored[2 : 2 + rows, 3 : 3 + cols]).all()
        window.close()


@contextmanager
def topology_of_one():
    topology = Topology(MPI.COMM_SELF)
    try:
        yield topology
    finally:
        topology.close()


@pytest.mark.parametrize("order, column_major", [("C", False), ("F", True)])
def test_values_read_and_added_have_the_order_of_their_memory(order, column_major):
    halves = [np.zeros((2, 4), "f4", order=order)] * 2
    A, C = (placed(name, "row", (4, 4), halves, reached=False)[0] for name in "AC")

    def program():
        a = yield Get(A.operand.block((2, 4), (0, 4)))
        b = yield Get(A.operand.block((0, 2), (0, 2)))
        gemm = yield Gemm(b, a)
        gemm = yield Gemm(b, a, into=gemm)
        yield Accumulate(gemm, C.operand.block((2, 4), (0, 4)))

    frame = ExecutorBase(trace(program(), None, 0, fresh=False), {"A": A, "C": C}, 1, "view")
    for t in (0, 2, 3):
        flags = frame.values[t].flags
        assert (flags.f_contiguous, flags.c_contiguous) == (column_major, not column_major)


def arena(nbytes):
    return np.zeros(nbytes, np.uint8)


def dealt(part, whole):
    """The local arrays of a matrix."""
    found = []
    for rank in range(part.nprocs):
        found.append(np.zeros(part.local_shape(rank)))
        for place, element in by_place(part, rank).items():
            found[-1][place] = whole[element]
    return found


class Move:
    """What moves on rank 0, all arrays in this process: the ``redistribution`` of its ``program``,
    the source matrix ``A``, the ``target`` that it fills, and the expected values ``wants``."""

    def __init__(self, old, new, terms, ranks, order="C", **how):
        """``terms``: the whole matrix, or each rank's term of a sum."""
        whole, shape = sum(terms), terms[0].shape
        before = terms if old == "P" else dealt(partition(old, shape, ranks), whole)
        after = dealt(partition(new, shape, ranks), whole)
        before, after = ([np.asarray(each, order=order) for each in x] for x in (before, after))
        self.A, _ = placed("A", old, shape, before, **how)
        unset = [np.full_like(each, np.nan) for each in after]
        C, (self.target, *self.others) = placed("C", new, shape, unset, **how)
        self.matrices, self.wants = {"A": self.A, "C": C}, after[0]
        self.program = trace(redistribute(self.A.operand, C.operand, 0), None, 0, fresh=False)

    def redistribution(self):
        return Redistributor(self.program, self.matrices, arena)

    def done(self):
        """Whether rank 0 has the expected values, and the other ranks none."""
        untouched = all(np.isnan(each).all() for each in self.others)
        return untouched and np.array_equal(self.target, self.wants)


@pytest.mark.parametrize(
    "old, new, most",
    [
        ("row", "tiles:2x2@1x2", 2),
        ("tiles:2x2@1x2", "row", 2),
        ("tiles:1x3@2x1", "tiles:3x1@1x2", 18),
        ("row", "column", 2),
        ("P", "row", 1),
    ],
)
def test_copies_and_sums_at_equal_distances_are_one(old, new, most):
    whole = np.arange(12.0 * 12).reshape(12, 12)
    move = Move(old, new, [whole, 10 + 0 * whole] if old == "P" else [whole], 2)
    redistribution = move.redistribution()
    ((calls, *_),) = redistribution._stages
    copies = sum(step.computes for step in move.program.steps)
    assert len(calls) <= most < copies + (most == 2)
    redistribution.run()
    assert move.done()


def test_a_bound_mover_moves_other_arrays_by_the_same_plan(monkeypatch):
    """Otherwise each new target of a redistribution is planned anew."""
    whole = np.arange(144.0).reshape(12, 12)
    first, second = (Move("row", "tiles:2x2@1x2", [factor * whole], 2) for factor in (1, 3))
    redistribution = first.redistribution()
    monkeypatch.setattr(Redistributor, "_make_plans", None)
    for each, move in ((redistribution, first), (redistribution.bound(second.matrices), second)):
        each.run()
        assert move.done()


LAYOUTS = ["row", "column", "block", "tiles:2x3@1x3", "tiles:3x2@3x1", "tiles:1x2@1x3", "S(1)"]


@contextmanager
def from_afar(matrix):
    """RMA to all ranks of a matrix, whose parts are one memory of this process; the ranks it
    reads."""
    asked = []

    class Reading:
        def Rget(self, origin, owner, target):
            asked.append(owner)
            return win.Rget(origin, 0, target)

    win = MPI.Win.Create(matrix.window.in_reach[0], 1, comm=MPI.COMM_SELF)
    win.Lock_all()
    matrix.window.win = Reading()
    yield asked
    win.Unlock_all()
    win.Free()


@pytest.mark.parametrize("old", [*LAYOUTS, "P"])
@pytest.mark.parametrize("new", LAYOUTS)
def test_any_redistribution_copies_in_panels_or_fetches_one_message_an_owner(old, new, monkeypatch):
    monkeypatch.setattr("drbench.host.copies._CHUNK", 100)
    terms = [np.arange(99.0).reshape(11, 9)] * (3 if old == "P" else 1)
    for order, reached in itertools.product("CF", (True, False)):
        move = Move(old, new, terms, 3, order, reached=reached)
        owners = {step.block.owner for step in move.program.steps if isinstance(step, Get)} - {0}
        redistribution = move.redistribution()
        with from_afar(move.A) as asked:
            for _ in range(2):
                move.target[...] = np.nan
                redistribution.run()
                assert move.done()
        assert sorted(asked) == ([] if reached else sorted(2 * [*owners]))


def test_large_sums_are_fetched_in_batches_through_two_buffers(monkeypatch):
    monkeypatch.setattr("drbench.host.redistribution._MOST_ADDED", 20)
    monkeypatch.setattr("drbench.program.redistribution._SUMMED_CHUNK", 6)
    terms = [np.arange(72.0).reshape(12, 6) * factor for factor in (1, 10, 100)]
    move = Move("P", "row/c3", terms, 3, reached=False)
    redistribution = move.redistribution()
    with from_afar(move.A) as asked:
        redistribution.run()
    assert move.done()
    assert asked == [1] * 4 + [2] * 4 and redistribution.arena.nbytes == 2 * 18 * 8


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_joined_copies_equal_the_given_ones(data):
    source = np.arange(400.0).reshape(20, 20)
    pairs, spots = [], st.integers(0, 3)
    first, second = np.zeros((20, 20)), np.zeros((20, 20))
    for number in range(data.draw(st.integers(0, 5))):
        rows, cols = data.draw(st.integers(1, 2)), data.draw(st.integers(1, 2))
        row, col = 4 * number, 4 * data.draw(spots)
        to = slice(row, row + rows), slice(col, col + cols)
        of = (slice(4 * data.draw(spots), None), slice(4 * data.draw(spots), None))
        value = source[of][:rows, :cols]
        pairs.append((first[to], value))
        second[to] = value
    found = joined([tuple(map(strided, pair)) for pair in pairs], 8)
    for move in found:
        copy_of(move, 8, (first, source))()
    assert len(found) <= len(pairs) and np.array_equal(first, second)


def strided(array):
    return Strided(array.__array_interface__["data"][0], array.shape, array.strides)


def test_a_target_between_the_sources_is_not_joined():
    """NumPy would copy everything from the first source to the last."""
    memory = np.arange(40.0)
    sources, targets = (memory[0:4], memory[32:36]), (memory[12:16], memory[20:24])
    places = lambda *pairs: [tuple(map(strided, pair)) for pair in pairs]
    assert len(joined(places(*zip(targets, sources)), 8)) == 2
    assert len(joined(places(*zip(targets, sources)), 8, local=False)) == 1
    assert len(joined(places(*zip(sources[::-1], targets)), 8)) == 2  # the other way
    alternating = places(*((memory[x : x + 2], memory[20 + x : 22 + x]) for x in (0, 4, 8)))
    assert [target.shape for target, _ in joined(alternating, 8)] == [(3, 2)]
