"""Collectives by NCCL: calls of all ranks are executed together on host memory, with the results of
MPI."""

import sys
import threading
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from fake_cuda import NCCL_CALLS, memory
from hypothesis import given, settings
from hypothesis import strategies as st

from drbench.device.address import DeviceArray
from drbench.device.gpu.nccl import NcclGroup, nccl_group
from drbench.errors import MissingError, UnsupportedError, UsageError

STREAM = SimpleNamespace(cupy=SimpleNamespace(ptr=0x51))
#: ncclFloat32 and ncclFloat64 of nccl.h: what the calls below are read with.
DTYPES = {7: np.dtype("f4"), 8: np.dtype("f8")}


class World:
    """NCCL for ``size`` ranks: calls are collected rank by rank, then executed in order."""

    available, broken, aborted = True, None, 0

    def __init__(self, size):
        self.size, self.calls, self.rank, self.depth, self.version, self.destroyed = (
            size,
            [[] for _ in range(size)],
            0,
            0,
            22707,
            0,
        )

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


def values(rng, size, dtype):
    return rng.integers(-50, 51, size).astype(dtype)


sizes_of_fragments = st.one_of(
    st.lists(st.integers(0, 6), min_size=1, max_size=5),
    st.tuples(st.integers(0, 6), st.integers(1, 5)).map(lambda x: [x[0]] * x[1]),
)
dtypes = st.sampled_from(["f4", "f8"])
examples = settings(max_examples=80, deadline=None)


@examples
@given(sizes=sizes_of_fragments, dtype=dtypes)
def test_gathered_fragments_are_contiguous_on_all_ranks(sizes, dtype):
    world, fragments = (
        World(len(sizes)),
        [values(np.random.default_rng(r), size, dtype) for r, size in enumerate(sizes)],
    )
    flats = []
    for rank, fragment in enumerate(fragments):
        flat = np.full(sum(sizes), np.nan, dtype)
        flat[sum(sizes[:rank]) : sum(sizes[: rank + 1])] = fragment
        world.group(rank).all_gather(put(flat), sizes, STREAM)
        flats.append(flat)
    world.run()
    assert all((flat == np.concatenate(fragments)).all() for flat in flats)
    calls = [call for calls in world.calls for call in calls]
    assert all(
        (call.name == "allGather") == (len(set(sizes)) == 1)
        and (call.name == "allGather" or call.grouped)
        for call in calls
    )


@examples
@given(sizes=sizes_of_fragments, dtype=dtypes)
def test_scattered_sums_are_the_fragments_of_the_sum(sizes, dtype):
    world = World(len(sizes))
    sent = [values(np.random.default_rng(rank), sum(sizes), dtype) for rank in range(len(sizes))]
    parts = [np.full(size, np.nan, dtype) for size in sizes]
    for rank, part in enumerate(parts):
        world.group(rank).reduce_scatter(put(sent[rank]), put(part), sizes, STREAM)
    world.run()
    assert (np.concatenate(parts) == sum(sent)).all()


@pytest.mark.parametrize("root", [0, 2])
@pytest.mark.parametrize("shape", [(3, 4), (0, 4)])
def test_broadcast_and_reduce_are_from_and_to_the_root(root, shape):
    world, arrays = World(3), [np.full(shape, rank + 1.0) for rank in range(3)]
    into = np.zeros(shape)
    for rank in range(3):
        world.group(rank).broadcast(put(arrays[rank]), root, STREAM)
        world.group(rank).reduce(
            put(arrays[rank]), put(into) if rank == root else None, root, STREAM
        )
    world.run()
    assert all((array == root + 1).all() for array in arrays) and (into == 3 * (root + 1)).all()


@pytest.mark.parametrize("by", [1, 2, -1])
@pytest.mark.parametrize("sizes", [[4, 4, 4], [3, 0, 5]])
def test_a_shift_sends_each_rank_the_value_of_another(by, sizes):
    world, size = World(3), len(sizes)
    sent = [np.full(sizes[rank], rank, "f4") for rank in range(size)]
    came = [np.full(sizes[(rank - by) % size], np.nan, "f4") for rank in range(size)]
    for rank in range(size):
        world.group(rank).shift(
            put(came[rank]), put(sent[rank]), (rank - by) % size, (rank + by) % size, STREAM
        )
    world.run()
    assert all((came[rank] == (rank - by) % size).all() for rank in range(size))


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
        self.size, self.places, self.barrier = (
            size,
            [None] * size,
            threading.Barrier(size, timeout=120),
        )

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


def make(monkeypatch, world, bus_ids, devices=None):
    """The result of each rank: a group or an error."""
    cuda = ModuleType("cupy.cuda")
    cuda.nccl = world
    monkeypatch.setitem(sys.modules, "cupy", ModuleType("cupy"))
    monkeypatch.setitem(sys.modules, "cupy.cuda", cuda)
    devices = devices or [Device(bus_id) for bus_id in bus_ids]
    ranks, results = Ranks(len(devices)), [None] * len(devices)

    def start(rank):
        try:
            results[rank] = nccl_group(ranks.at(rank), devices[rank])
        except Exception as error:
            results[rank] = error

    threads = [threading.Thread(target=start, args=(rank,)) for rank in range(len(devices))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_a_group_is_made_and_closed_by_all_its_ranks(monkeypatch):
    world = World(3)
    groups = make(monkeypatch, world, ["a", "b", "c"])
    assert [(group.rank, group.size) for group in groups] == [(0, 3), (1, 3), (2, 3)]
    for group in groups:
        group.close()
    assert world.destroyed == 3


@pytest.mark.parametrize("names", ["abc", "a"])
def test_a_group_is_connected_in_one_order_before_it_is_used(names, monkeypatch):
    world, devices = World(len(names)), [Device(name) for name in names]
    make(monkeypatch, world, [*names], devices)
    world.run()  # the steps of all ranks fit each other
    kinds = "broadcast allGather reduce reduceScatter send recv".split()
    assert all([call.name for call in calls] == kinds for calls in world.calls)
    assert all(device.waited == 1 for device in devices)


def test_a_group_that_nccl_cannot_connect_is_refused_in_one_line_on_every_rank(monkeypatch):
    world = World(2)
    world.broken = 1
    for error in make(monkeypatch, world, ["a", "b"]):
        assert type(error) is UnsupportedError and "\n" not in str(error)
        assert "on rank 1: RuntimeError: NCCL_ERROR_SYSTEM_ERROR: shared memory" in str(error)
    assert (world.aborted, world.destroyed) == (1, 0)  # destroying may wait for the other rank


def test_a_group_whose_first_steps_do_not_end_is_refused_on_every_rank(monkeypatch):
    """As where another rank has failed."""
    world = World(2)
    monkeypatch.setattr("drbench.device.gpu.nccl._CONNECT_S", 0.0)
    for error in make(monkeypatch, world, [], [Device("a"), Device("b", ends=False)]):
        assert type(error) is UnsupportedError and "on rank 1: CaseFailed: its first" in str(error)
    assert (world.aborted, world.destroyed) == (2, 0)


def test_without_nccl_every_rank_reports_it(monkeypatch):
    world = World(2)
    world.available = False
    errors = make(monkeypatch, world, ["a", "b"])
    assert all(
        type(error) is MissingError and "rank 0 has none: CuPy cannot load libnccl" in str(error)
        for error in errors
    )


def test_ranks_that_share_a_device_are_refused_on_all_ranks_unless_nccl_takes_them(monkeypatch):
    monkeypatch.delenv("NCCL_MULTI_RANK_GPU_ENABLE", raising=False)
    world = World(3)
    errors = make(monkeypatch, world, ["a", "b", "a"])
    assert all(
        type(error) is UnsupportedError and "ranks 0, 2 share" in str(error) for error in errors
    )
    monkeypatch.setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1")
    assert all(
        type(error) is UnsupportedError for error in make(monkeypatch, world, ["a", "b", "a"])
    )
    world.version = 23203
    assert all(type(group) is NcclGroup for group in make(monkeypatch, world, ["a", "b", "a"]))
