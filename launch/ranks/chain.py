"""A whole chain on the ranks of this process: filled, run as one program, verified, timed."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

import numpy as np

from chains.description import Product
from chains.program import Bound, traces
from drbench.common import PHASES, Clock, numpy_type, parse_transport
from drbench.errors import DrbenchError
from drbench.host.blas import load_blas
from drbench.host.executor import Executor
from drbench.host.fill import Fill
from drbench.host.kernels.elementwise import apply
from drbench.host.matrix import DistributedMatrix
from drbench.host.topology import Topology, mpi_version
from drbench.measure.noise import cores_had, enough, is_noisy, time_columns, undisturbed
from drbench.measure.record import Record
from drbench.measure.roof import timed
from drbench.measure.verify_chain import product_error, tiles_error
from drbench.program.steps import COUNTERS
from launch.cases.chains import ChainOrder, inner, keys_of

from .case import MPI, world

_LEAST = 5  # repeats that must be left where others had the cores for a while


def run_chain(order: ChainOrder, comm=None) -> Record:
    """The record of a chain on these ranks (collective)."""
    comm = comm or world()
    with Topology(comm) as topology:
        try:
            with _open(order.bound(), topology, order.transport) as (bound, matrices):
                return _measured(order, bound, matrices, topology)
        except DrbenchError as error:
            return Record(**keys_of(order), status=error.status, reason=str(error))


@contextmanager
def _open(bound: Bound, topology: Topology, transport: str) -> Iterator:
    """Windows of all matrices of a chain (collective)."""
    choice, dtype = parse_transport(transport), numpy_type(bound.dtype)
    matrices: dict[str, DistributedMatrix] = {}

    def close():
        for matrix in matrices.values():
            matrix.close()

    try:
        for name, operand in bound.operands.items():
            matrices[name] = DistributedMatrix.open(operand, topology, dtype, choice)
        yield bound, matrices
    except DrbenchError:
        close()
        raise
    close()


def elements(fill: str, seed: int, name: str):
    """What writes a block of a matrix that is given, the same whatever its layout: -1, 0 or 1, or
    multiples of 2⁻²³ in [-1, 1)."""
    found = Fill(fill, seed + zlib.crc32(name.encode()) % (1 << 20), 1)
    if fill == "integer":
        found.bound = 1
    return lambda block, out: found.into(out, "A", block.row0, block.col0)


def _measured(order: ChainOrder, bound: Bound, matrices: dict, topology: Topology) -> Record:
    comm, clock = topology.comm, Clock()
    start = Clock.now()
    found = traces(bound)[comm.rank]
    plan_s = Clock.now() - start
    given = {
        name: elements(order.fill, order.seed, name)
        for name, each in bound.chain.matrices.items()
        if each.kind != "made"
    }
    for name, made in given.items():
        for block, tile in matrices[name].own_blocks():
            made(block, tile)
    written = bound.written
    yields = topology.oversubscribed(1)
    with Executor(found, matrices, blas=load_blas(), prefetch=order.prefetch) as executor:
        executor.clock, executor.yields = clock, yields
        repeats, spent = [], 0.0
        began = Clock.now()

        def once():
            for name in written:
                matrices[name].spoil()
            executor.prepare()
            comm.Barrier()
            for matrix in matrices.values():
                matrix.window.sync()
            clock.seconds.update(dict.fromkeys(clock.seconds, 0.0))
            return timed(comm, executor.run)

        once()  # pages, buffers of MPI
        phases = []
        while not enough([each.seconds for each in repeats], spent, order.iters, order.budget_s):
            repeats.append(once())
            phases.append(dict(clock.seconds))
            spent = comm.bcast(Clock.now() - began)
        comm.Barrier()
        for matrix in matrices.values():
            matrix.window.sync()
        error = _error(order, bound, matrices, comm, given)
        counters = {name: comm.allreduce(executor.bytes[name]) for name in COUNTERS}
        arena = comm.allreduce(executor.arena_bytes, MPI.MAX)
    due, pairs = topology.core_due(1), [(each,) for each in repeats]
    kept = undisturbed(pairs, _LEAST) if due == 1 else range(len(repeats))
    cores = cores_had(pairs, kept, due)
    samples = [repeats[x].seconds for x in kept]
    ok = error <= (0.0 if order.fill == "integer" else 1.0)
    columns = time_columns(samples)
    flops = bound.chain.flops
    mean = {name: float(np.mean([phases[x].get(name, 0.0) for x in kept])) for name in PHASES}
    return Record(
        **keys_of(order),
        status="ok" if ok else "wrong",
        reason=None if ok else f"some operation is wrong: {error:g} times what it may differ",
        **columns,
        noisy=cores.lacking or is_noisy(samples),
        disturbed=cores.disturbed,
        core_share=cores.core_share,
        gflops=flops / columns["median_s"] / 1e9,
        error=error,
        plan_s=plan_s,
        steps=comm.allreduce(len(found.steps)),
        pool_bytes=arena,
        **counters,
        **{
            f"phase_{name}_s": comm.allreduce(seconds) / comm.size for name, seconds in mean.items()
        },
        threads=1,
        nodes=topology.nodes,
        oversubscribed=topology.oversubscribed(1),
        mpi=mpi_version(),
        blas=load_blas().info.library,
        seed=order.seed,
        iters=order.iters,
        budget_s=order.budget_s,
        timestamp=datetime.now().astimezone().isoformat(timespec="seconds"),
    )


def _error(order: ChainOrder, bound: Bound, matrices: dict, comm, given: dict) -> float:
    """The worst of all operations, and of what was given (collective)."""
    chain, exact = bound.chain, order.fill == "integer"
    worst = max(tiles_error(comm, matrices[name], made) for name, made in given.items())
    for each in chain.operations:
        c = matrices[each.c]
        if isinstance(each, Product):
            a, b = matrices[each.a], matrices[each.b]
            k = inner(chain, each)
            error = product_error(comm, c, a, b, each.transpose, k, exact, order.seed)
        else:
            takes = [matrices[name] for name in each.takes]

            def made(block, out, takes=takes, each=each):
                inputs = []
                for x, source in enumerate(takes):
                    cols = each.function.taken((block.col0, block.col1), x)
                    own = source.operand.block(
                        (block.row0, block.row1), cols, source.partition.replica_of(comm.rank)
                    )
                    inputs.append(source.view(own))
                apply(each.function, out, inputs)

            error = tiles_error(comm, c, made)
        worst = max(worst, error)
    return worst


def serve_chain(path: str, answer: str) -> int:
    """Run the order of a file; rank 0 writes the record's cells to another."""
    import json
    from pathlib import Path

    from drbench.errors import EXIT_CODES

    comm = world()
    order = ChainOrder.read(Path(path).read_text())
    record = run_chain(order, comm)
    if comm.rank == 0:
        Path(answer).write_text(json.dumps(record.to_row()))
    comm.Barrier()
    return EXIT_CODES[record.status]
