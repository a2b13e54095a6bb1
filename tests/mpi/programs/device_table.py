"""The primitives of Table 1 on a matrix in device memory (of worker threads); answer what came out
wrong, on any rank.

Every element says where it is and in which replica: ``100·row + column + 1 000 000·(replica + 1)``.
"""

from itertools import product

import numpy as np
from harness import answer, ranks

from drbench.common import TransportChoice
from drbench.device.matrix import DeviceMatrix, device_windows
from drbench.device.threads import HostDevice
from drbench.errors import UnsupportedError
from drbench.host.topology import Topology
from drbench.program.problem import Operand
from drbench.table1 import table1
from partitions import partition

SHAPE = (23, 17)
LAYOUTS = ("block", "tiles:5x4@2x2:col", "tiles:6x3@1x2/c2", "tiles:4x17/c4")


def element(bounds, replica):
    (row0, row1), (col0, col1) = bounds
    return (
        100.0 * np.arange(row0, row1)[:, None] + np.arange(col0, col1) + 1e6 * (replica + 1)
    ).astype("f4")


def check(comm, topology, text, transport, direct):
    """What is wrong on one layout, and how many puts were refused as out of reach."""
    wrong, refused, device = [], 0, HostDevice(comm.rank, 2e-4)
    operand = Operand("C", partition(text, SHAPE, comm.size, role="C"))
    window = device_windows(
        topology, device, {"C": (operand.partition.local_size(comm.rank), np.dtype("f4"))}
    )["C"]
    matrix = DeviceMatrix(
        operand, topology, np.dtype("f4"), TransportChoice(transport), window, device, direct
    )
    c = table1(matrix)
    tiles, replicas = (
        list(product(*map(range, c.partition.grid_shape))),
        range(c.partition.replicas),
    )

    def expect(what, wanted):
        for replica, idx in product(replicas, tiles):
            found = c.get_tile(idx, replica)
            if not np.array_equal(found, wanted(c.tile_bounds(idx), replica)):
                wrong.append(
                    f"{text} {transport} rank {comm.rank}: {what}, tile {idx} of replica {replica}"
                )
        comm.Barrier()

    def refill():
        c.fence()
        for block, _ in c.own_blocks():
            c.put_tile(block.tile, element(c.tile_bounds(block.tile), block.replica))
        c.fence()

    refill()
    expect("put by its owner", element)
    futures = [c.get_tile_async(idx) for idx in tiles]
    for idx, future in zip(tiles, futures):
        value = future.wait()
        if not (
            future.done()
            and np.array_equal(
                device.rows_of(value, np.arange(value.shape[0])),
                element(c.tile_bounds(idx), c.replica),
            )
        ):
            wrong.append(f"{text}: future of {idx}")
    comm.Barrier()
    for replica, idx in product(replicas, tiles):  # all ranks add to everything, as integers
        c.accumulate_tile(
            idx,
            np.full([stop - start for start, stop in c.tile_bounds(idx)], comm.rank + 1.0),
            replica,
        )
    c.fence()
    total = comm.size * (comm.size + 1) // 2
    expect(
        "added to by everyone", lambda bounds, replica: element(bounds, replica) + np.float32(total)
    )
    refill()
    for replica, idx in product(replicas, tiles):
        if (c.partition.owner(idx, replica) + 1) % comm.size == comm.rank:
            try:
                c.put_tile(idx, -element(c.tile_bounds(idx), replica), replica)
            except UnsupportedError:
                refused += 1
    c.fence()
    if not comm.allreduce(refused):
        expect("put by another rank", lambda bounds, replica: -element(bounds, replica))
    refill()
    c.reduce_replicas(0)
    c.fence()
    expect(
        "reduced",
        lambda bounds, replica: (
            element(bounds, replica)
            if replica
            else sum(element(bounds, q) for q in replicas).astype("f4")
        ),
    )
    refill()
    c.broadcast_replica(len(replicas) - 1)
    c.fence()
    expect("broadcast", lambda bounds, replica: element(bounds, len(replicas) - 1))
    matrix.close()
    device.close()
    return wrong, refused


def main():
    with ranks() as comm, Topology(comm) as topology:
        wrong, refused = [], 0
        for text, (transport, direct) in product(
            LAYOUTS, (("auto", False), ("rma", False), ("rma", True))
        ):
            found = check(comm, topology, text, transport, direct)
            wrong += sum(comm.allgather(found[0]), [])
            refused += comm.allreduce(found[1]) if transport == "auto" else 0
        answer(comm, {"wrong": wrong[:10], "refused_in_reach": refused})


if __name__ == "__main__":
    main()
