"""Memory that an executor on a device frees when its block ends."""

import pytest
from host_device import HostDevice
from mpi4py import MPI

from drbench.algorithms import get_algorithm
from drbench.device.executor import DeviceExecutor
from drbench.device.matrix import device_matrices
from drbench.errors import UsageError
from drbench.host.topology import Topology, start_mpi


@pytest.mark.parametrize("error, freed", [(None, True), (UsageError, True), (KeyError, False)])
def test_the_arena_is_freed_unless_a_single_rank_failed(error, freed):
    """An error of all ranks ends all of them here; after any other error the device may still work
    for another rank. Once the arena stayed after both."""
    algorithm, device = get_algorithm("universal"), HostDevice(0, 0)
    problem = algorithm.problem(8, 8, 8, 1)
    found = algorithm.trace(problem, 0, **algorithm.resolve(problem, stationary="C"))
    start_mpi(MPI.COMM_SELF)
    with Topology(MPI.COMM_SELF) as topology, device_matrices(problem, topology, device) as here:
        try:
            with DeviceExecutor(found, here) as executor:
                arena, given = executor._memory, []
                arena.free = lambda free=arena.free: given.append(free())
                executor.run()
                if error is not None:
                    raise error("struck by the test")
        except (UsageError, KeyError):
            pass
    device.close()
    assert bool(given) == freed
