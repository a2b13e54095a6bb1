"""Collectives by NCCL: calls of all ranks are executed together on host memory, with the results of
MPI."""

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from fake_cuda import NCCL_CALLS, memory
from hypothesis import example, given, settings
from hypothesis import strategies as st

from drbench.device.address import DeviceArray
from drbench.device.gpu.nccl import NcclGroup, nccl_group
from drbench.errors import DrbenchError, MissingError, UnsupportedError, UsageError

STREAM = SimpleNamespace(cupy=SimpleNamespace(ptr=0x51))
#: ncclFloat32 and ncclFloat64 of nccl.h: what the calls below are read with.
DTYPES = {7: np.dtype("f4"), 8: np.dtype("f8")}


class World:
    """NCCL for ``size`` ranks: calls are collected rank by rank, then executed in order."""

    available, broken, aborted = True, None, 0

    def __init__(self, size):
        self.size, self.calls = size, [[] for _ in range(size)]
        self.depth, self.version, self.destroyed = 0, 22707, 0

    def groupStart(self):
        self.depth += 1

    def groupEnd(self):
        self.depth -= 1

    def get_unique_id(self):
        return b"name"

    def get_version(self):
        return self.version

    def NcclCommunicator(self, size, name, rank):
        assert (size, name) == (self.size, b"name")
        if rank == self.broken:
            raise RuntimeError("NCCL_ERROR_SYSTEM_ERROR:\n shared memory")
        return Communicator(self, rank)

    def group(self, rank):
        return NcclGroup(self, Communicator(self, rank), rank, self.size)

    def run(self):
        assert self.depth == 0
        for rank in range(self.size):  # sends and receives are paired, whatever comes between
            for call in [c for c in self.calls[rank] if c.name == "recv"]:
                peer = [c for c in self.calls[call.peer] if c.name == "send" and c.peer == rank]
                (sent,) = peer
                assert (sent.count, sent.kind) == (call.count, call.kind)
                call.write(call.target, sent.values())
        rest = [[c for c in calls if c.name not in ("send", "recv")] for calls in self.calls]
        assert len({len(calls) for calls in rest}) == 1, (
            "the ranks disagree about how many collectives there are"
        )
        for together in zip(*rest):
            assert len({(c.name, c.count, c.kind, c.root) for c in together}) == 1
            getattr(self, together[0].name)(together)

    def broadcast(self, calls):
        values = calls[calls[0].root].values()
        for call in calls:
            call.write(call.target, values)

    def reduce(self, calls):
        root = calls[calls[0].root]
        root.write(root.target, sum(call.values() for call in calls))

    def allGather(self, calls):
        values = np.concatenate([call.values() for call in calls])
        for rank, call in enumerate(calls):
            assert call.source == call.target + rank * call.count * DTYPES[call.kind].itemsize
            call.write(call.target, values)

    def reduceScatter(self, calls):
        total = sum(call.values(call.count * self.size) for call in calls)
        for rank, call in enumerate(calls):
            call.write(call.target, total[rank * call.count : (rank + 1) * call.count])


class Call(SimpleNamespace):
    def values(self, count=None):
        dtype = DTYPES[self.kind]
        return memory(self.source, (count or self.count) * dtype.itemsize).view(dtype).copy()

    def write(self, target, values):
        memory(target, values.nbytes)[:] = values.view(np.uint8)


class Communicator:
    def __init__(self, world, rank):
        self.world, self.rank = world, rank

    def __getattr__(self, name):
        def called(*given):
            known = {"name": name, "root": None, "operation": 0, "grouped": self.world.depth}
            call = Call(**known | dict(zip(NCCL_CALLS[name].split(), given, strict=True)))
            assert call.stream == STREAM.cupy.ptr and call.count > 0 and call.operation == 0
            assert call.grouped or name not in ("send", "recv")
            assert name != "reduce" or bool(call.target) == (call.root == self.rank)
            self.world.calls[self.rank].append(call)

        return called

    def destroy(self):
        self.world.destroyed += 1

    def abort(self):
        self.world.aborted += 1


def put(array):
    return array.view(DeviceArray)


sizes_of_fragments = st.one_of(
    st.lists(st.integers(0, 6), min_size=1, max_size=5),
    st.tuples(st.integers(0, 6), st.integers(1, 5)).map(lambda x: [x[0]] * x[1]),
)


@settings(max_examples=100, deadline=None)
@given(sizes_of_fragments, st.sampled_from(["f4", "f8"]), st.integers(0, 4), st.integers(0, 4))
@example([3, 0, 5], "f4", 2, 2)
def test_steps_of_all_ranks_have_the_results_of_mpi(sizes, dtype, root, by):
    """Each rank has a fragment of its size; unequal ones are sent as one group."""
    size, ends = len(sizes), np.cumsum(sizes)
    world, rng, root = World(size), np.random.default_rng(size), root % size
    sent = [rng.integers(-50, 51, sum(sizes)).astype(dtype) for _ in range(size)]
    own = [slice(end - count, end) for count, end in zip(sizes, ends)]
    empty = lambda count: np.full(count, np.nan, dtype)
    flats, copies, into = [empty(sum(sizes)) for _ in sizes], [each.copy() for each in sent], []
    parts = [empty(count) for count in sizes]
    came = [empty(sizes[(rank - by) % size]) for rank in range(size)]
    for rank in range(size):
        group = world.group(rank)
        flats[rank][own[rank]] = sent[rank][own[rank]]
        group.all_gather(put(flats[rank]), sizes, STREAM)
        group.reduce_scatter(put(sent[rank]), put(parts[rank]), sizes, STREAM)
        group.broadcast(put(copies[rank]), root, STREAM)
        into.append(empty(sum(sizes)) if rank == root else None)
        group.reduce(put(sent[rank]), put(into[rank]) if rank == root else None, root, STREAM)
        mine = sent[rank][own[rank]]
        group.shift(put(came[rank]), put(mine), (rank - by) % size, (rank + by) % size, STREAM)
    world.run()
    gathered = np.concatenate([each[mine] for each, mine in zip(sent, own)])
    assert all((flat == gathered).all() for flat in flats)
    assert (np.concatenate(parts) == sum(sent)).all() and (into[root] == sum(sent)).all()
    assert all((copy == sent[root]).all() for copy in copies)
    whence = [(rank - by) % size for rank in range(size)]
    assert all((each == sent[x][own[x]]).all() for each, x in zip(came, whence))
    alone = [{call.name for call in calls if not call.grouped} for calls in world.calls]
    whole = {"broadcast", "reduce"} | (
        {"allGather", "reduceScatter"} if len({*sizes}) == 1 else set()
    )
    assert alone == [whole if sum(sizes) else set()] * size


def test_memory_with_gaps_and_fragments_that_do_not_fit_are_refused():
    group, flat = World(2).group(0), np.zeros(12, "f4")
    for call, error in [
        (lambda: group.broadcast(put(flat.reshape(3, 4)[:, :2]), 0, STREAM), "contiguous memory"),
        (
            lambda: group.all_gather(put(flat), [6, 5], STREAM),
            "11 elements together, their memory 12",
        ),
        (
            lambda: group.reduce_scatter(put(flat), put(flat[:5]), [6, 6], STREAM),
            "own fragment has 6 elements, its place 5",
        ),
        (
            lambda: group.reduce(put(flat), put(flat[:4]), 0, STREAM),
            "12 elements are sent, their place has 4",
        ),
    ]:
        with pytest.raises(UsageError, match=error):
            call()
    with pytest.raises(UnsupportedError, match="got int32"):
        group.broadcast(put(np.zeros(3, "i4")), 0, STREAM)


# -- making a group: all ranks, or none


class Ranks:
    """An mpi4py communicator between threads: allgather and bcast."""

    def __init__(self, size):
        self.size, self.places = size, [None] * size
        self.barrier = threading.Barrier(size, timeout=120)

    def at(self, rank):
        def allgather(value):
            self.places[rank] = value
            self.barrier.wait()
            everybody = list(self.places)
            self.barrier.wait()
            return everybody

        return SimpleNamespace(
            rank=rank, size=self.size, allgather=allgather, bcast=lambda value: allgather(value)[0]
        )


class Device:
    """Host memory and a stream."""

    def __init__(self, bus_id, ends=True):
        self.bus_id, self.kept, self.waited, self.ends = bus_id, [], 0, ends

    def use(self):
        pass

    def allocate(self, nbytes):
        self.kept.append(np.zeros(nbytes, np.uint8))
        return SimpleNamespace(address=self.kept[-1].ctypes.data, free=lambda: None)

    def stream(self, name):
        return SimpleNamespace(**vars(STREAM), record=lambda event: None)

    def event(self):
        self.waited += 1
        return SimpleNamespace(query=lambda: self.ends)


@pytest.fixture
def make(monkeypatch):
    """``make(world, devices)``: the result of each rank, a group or an error."""

    def on(world, devices):
        cuda = ModuleType("cupy.cuda")
        cuda.nccl = world
        monkeypatch.setitem(sys.modules, "cupy", ModuleType("cupy"))
        monkeypatch.setitem(sys.modules, "cupy.cuda", cuda)
        ranks = Ranks(len(devices))

        def start(rank):
            try:
                return nccl_group(ranks.at(rank), devices[rank])
            except DrbenchError as error:
                return error

        with ThreadPoolExecutor(len(devices)) as pool:
            return [*pool.map(start, range(len(devices)))]

    return on


@pytest.mark.parametrize("names", ["abc", "a"])
def test_a_group_is_connected_in_one_order_before_it_is_used_and_closed_by_all(names, make):
    world, devices = World(len(names)), [*map(Device, names)]
    groups = make(world, devices)
    assert [(group.rank, group.size) for group in groups] == [
        (x, len(names)) for x in range(len(names))
    ]
    world.run()  # the steps of all ranks fit each other
    kinds = "broadcast allGather reduce reduceScatter send recv".split()
    assert all([call.name for call in calls] == kinds for calls in world.calls)
    assert all(device.waited == 1 for device in devices)
    for group in groups:
        group.close()
    assert world.destroyed == len(names)


@pytest.mark.parametrize(
    "fault, buses, ends, error, words, aborted",
    [
        ({"available": False}, "ab", True, MissingError, "rank 0 has none: CuPy cannot load", 0),
        # destroying may wait for the other rank
        ({"broken": 1}, "ab", True, UnsupportedError, "on rank 1: RuntimeError: NCCL_ERROR_SYS", 1),
        ({}, "ab", False, UnsupportedError, "on rank 1: CaseFailed: its first", 2),
        ({}, "aba", True, UnsupportedError, "ranks 0, 2 share", 0),
    ],
)
def test_a_group_that_cannot_be_made_is_refused_in_one_line_on_every_rank(
    make, monkeypatch, fault, buses, ends, error, words, aborted
):
    """The last rank but the first may have failed: its first steps do not end."""
    monkeypatch.delenv("NCCL_MULTI_RANK_GPU_ENABLE", raising=False)
    monkeypatch.setattr("drbench.device.gpu.nccl._CONNECT_S", 0.0)
    world = World(len(buses))
    vars(world).update(fault)
    for found in make(world, [Device(bus, ends or rank != 1) for rank, bus in enumerate(buses)]):
        assert type(found) is error and "\n" not in str(found) and words in str(found)
    assert (world.aborted, world.destroyed) == (aborted, 0)


@pytest.mark.parametrize("version, kind", [(22707, UnsupportedError), (23203, NcclGroup)])
def test_ranks_that_share_a_device_have_a_group_if_nccl_takes_them(
    make, monkeypatch, version, kind
):
    monkeypatch.setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1")
    world = World(3)
    world.version = version
    assert {*map(type, make(world, [*map(Device, "aba")]))} == {kind}
