"""Contexts with matrices on a device, on one rank: what is refused, and what is closed."""

from types import SimpleNamespace

import numpy as np
import pytest
from host_device import HostDevice
from mpi4py import MPI

import drbench
from drbench.device.gpu import cuda
from drbench.device.matrix import Slab
from drbench.errors import MissingError, OutOfMemory, UnsupportedError, UsageError
from drbench.host.topology import Topology


@pytest.fixture
def device():
    made = HostDevice(0, 0)
    yield made
    made.close()


def test_a_device_is_cpu_gpu_or_an_object():
    with pytest.raises(
        UsageError, match="device must be cpu, gpu or a Device, got 'gpuu'. Did you mean gpu"
    ):
        drbench.init(MPI.COMM_SELF, "1M", device="gpuu")
    with drbench.init(MPI.COMM_SELF, "1M", device="cpu") as ctx:
        assert type(ctx.zeros((2, 2)).local) is np.ndarray


def test_without_a_gpu_it_is_refused_in_one_line(monkeypatch):
    def missing():
        raise MissingError("--backend cupy cannot load CuPy: there is none.")

    monkeypatch.setattr(cuda, "_import_cupy", missing)
    with pytest.raises(MissingError, match="^device='gpu': .* cannot load CuPy: there is none.$"):
        drbench.init(MPI.COMM_SELF, "1M", device="gpu")


def test_a_heap_larger_than_the_device_is_refused_with_both_sizes(device, monkeypatch):
    monkeypatch.setattr(device, "free_bytes", lambda: 1000)
    with pytest.raises(
        OutOfMemory, match="rank 0 needs 4096 bytes of device memory, 1000 are free"
    ):
        drbench.init(MPI.COMM_SELF, 4096, device=device)


def test_a_device_without_memory_is_reported_on_every_rank():
    def full(nbytes):
        raise OutOfMemory("no memory")

    device = SimpleNamespace(ipc_handle=None, allocate=full)
    with Topology(MPI.COMM_SELF) as topology, pytest.raises(OutOfMemory, match="no memory"):
        Slab(topology, device, 100)


def test_a_library_user_is_warned_if_gpus_of_a_node_do_not_reach_each_other(device, monkeypatch):
    monkeypatch.setattr(Slab, "why_unreached", "rank 0 to rank 1: no peer access")
    with pytest.warns(RuntimeWarning, match="GPUs of a node go through the host: rank 0 to rank 1"):
        drbench.init(MPI.COMM_SELF, "1M", device=device).close()


def test_single_tiles_on_a_device_are_refused_in_one_line(device):
    with drbench.init(MPI.COMM_SELF, "1M", device=device) as ctx:
        with pytest.raises(UnsupportedError, match="tiles of 2x2 float32 row are on a device, .* "):
            ctx.zeros((2, 2), "row").fence()


def test_a_device_serves_one_context_after_another(device):
    for n in (3, 12):
        with drbench.init(MPI.COMM_SELF, "1M", device=device) as ctx:
            A = ctx.from_global(np.arange(n * n, dtype="f4").reshape(n, n) % 5, "tiles:2x2")
            B = ctx.wrap(np.asfortranarray(np.eye(n, dtype="f4")), "row", (n, n))
            assert B.local.flags.f_contiguous and (A @ B).to_global().tolist() == A.local.tolist()
            with pytest.raises(UsageError, match="one of float32, float64; got 'bfloat16'"):
                ctx.zeros((2, 2), "row", "bfloat16")
            full = pytest.raises(OutOfMemory, match="the heap is too small: an array of 900x900")
            with full:
                ctx.empty((900, 900))
            A = B = None
    stream = device.stream("after")  # the caller must close it
    stream.synchronise()


def test_streams_and_arena_are_shared_by_all_plans(device):
    made, stream = [], device.stream
    device.stream = lambda name, multiplies=False: made.append(name) or stream(name, multiplies)
    with drbench.init(MPI.COMM_SELF, "1M", device=device) as ctx:
        for n in range(2, 12):
            A = ctx.from_global(np.ones((n, n)), "row")
            drbench.multiply(A, A, stationary="ABC"[n % 3])
        assert len(made) == len(set(made)) <= 5
        sizes, allocate = [], device.allocate
        device.allocate = lambda nbytes: sizes.append(nbytes) or allocate(nbytes)
        for nbytes in range(10_000, 100_000, 1000):
            ctx.runtime.arena(nbytes)
        assert len(sizes) <= 5  # each time at least the double
        A = None
