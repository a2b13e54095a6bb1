"""Run a chain on the ranks of this process with the Python library: fill, run, verify, time."""

import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from drbench.chains.model.description import Chain, LocalMap, Matmul
from drbench.chains.model.functions import apply
from drbench.chains.order import ChainOrder, keys_of
from drbench.chains.ranks.verify import multiplication_error
from drbench.clock import Clock
from drbench.errors import EXIT_CODES, DrbenchError
from drbench.host.blas import load_blas
from drbench.host.fill import Fill
from drbench.host.topology import Topology, mpi_version
from drbench.launch.ranks.run_case import MPI, world
from drbench.library import Context, init
from drbench.measure.noise import Timed
from drbench.measure.record import Record
from drbench.measure.roof import timed
from drbench.measure.samples import sample
from drbench.partitions import partition

_HEAP_MARGIN = 1 << 16  # bytes of a heap for headers next to the elements of each matrix


class ChainRun:
    """A chain on the ranks of a context, as matrices and calls of the library.

    Parameters
    ----------
    context : Context
    chain : Chain
    layouts : dict of str to str
        The layout of every variable.
    multiplications : dict
        For each result the layouts of A, B and C of its multiplication, and the stationary matrix.
    dtype : str

    Attributes
    ----------
    matrices : dict of str to Matrix
    """

    def __init__(
        self,
        context: Context,
        chain: Chain,
        layouts: Mapping[str, str],
        multiplications: Mapping[str, Sequence[str]],
        dtype: str,
    ):
        self.context, self.chain, self._calls = context, chain, []
        self.matrices = {
            name: context.empty(matrix.shape, layouts[chain.variable(name)], dtype)
            for name, matrix in chain.matrices.items()
        }
        for operation in chain.operations:
            if isinstance(operation, LocalMap):
                inputs = [self.matrices[name].local for name in operation.takes]
                c = self.matrices[operation.c]
                self._calls.append(partial(apply, operation.function, c.local, inputs))
            else:
                self._add_multiplication(operation, *multiplications[operation.c])

    def _add_multiplication(self, matmul: Matmul, a: str, b: str, c: str, stationary: str) -> None:
        operands, result = [], self.matrices[matmul.c]
        for (name, transposed), layout in zip(matmul.operands, (a, b)):
            stored = self.matrices[name]
            moved = self.context.redistribute(stored, layout)
            shared = np.shares_memory(moved.local, stored.local)  # false without elements
            if not self.context.comm.allreduce(shared, MPI.LOR):
                self._calls.append(partial(self.context.redistribute, stored, moved))
            operands.append(moved.T if transposed else moved)
        own = result.layout == c
        out = result if own else self.context.empty(result.shape, c, result.dtype)
        self._calls.append(self.context.plan(*operands, out, stationary=stationary))
        if not own:
            self._calls.append(partial(self.context.redistribute, out, result))

    def poison(self) -> None:
        """Fill all results with NaN."""
        for name, matrix in self.matrices.items():
            if self.chain.matrices[name].kind == "made":
                matrix.local.fill(np.nan)

    def run(self) -> None:
        """Compute the chain (collective)."""
        for call in self._calls:
            call()

    def error(self, exact: bool, seed: int, given: Mapping[str, Callable]) -> float:
        """The largest error of all operations, each checked against its stored operands, and of the
        inputs against ``given[name](out)``: 0 is exact, above 1 is wrong (collective)."""
        comm, worst, wanted = self.context.comm, 0.0, dict(given)
        for operation in self.chain.operations:
            if isinstance(operation, Matmul):
                a, b = (
                    self.matrices[name].T if transposed else self.matrices[name]
                    for name, transposed in operation.operands
                )
                error = multiplication_error(comm, self.matrices[operation.c], a, b, exact, seed)
                worst = max(worst, error)
            else:
                inputs = [self.matrices[name].local for name in operation.takes]
                wanted[operation.c] = partial(apply, operation.function, inputs=inputs)
        for name, write in wanted.items():
            local = self.matrices[name].local
            write(out := np.empty_like(local))
            if comm.allreduce(not np.array_equal(out, local), MPI.LOR):
                return float("inf")
        return worst


def heap_bytes(chain: Chain, order: ChainOrder) -> int:
    """The most bytes of the heap that a chain needs on a rank, including copies in other
    layouts."""
    nbytes = 0
    for name, matrix in chain.matrices.items():
        texts = [order.layouts[chain.variable(name)]]
        for matmul in chain.multiplications:
            texts += [
                layout
                for other, layout in zip((*matmul.takes, matmul.c), order.multiplications[matmul.c])
                if other == name
            ]
        for text in texts:
            size = partition(text, matrix.shape, order.ranks).local_size(0)
            nbytes += 8 * size + _HEAP_MARGIN
    return nbytes


def run_chain(order: ChainOrder, comm=None) -> Record:
    """Run a chain on these ranks and return its record (collective)."""
    comm, chain = comm or world(), order.asked.chain()
    with Topology(comm) as topology:
        try:
            heap = heap_bytes(chain, order)
            with init(comm, heap, transport=order.transport) as context:
                start = Clock.now()
                run = ChainRun(context, chain, order.layouts, order.multiplications, order.dtype)
                return _measured(order, run, topology, start)
        except DrbenchError as error:
            return Record(**keys_of(order), status=error.status, reason=str(error))


def writer_of(matrix, fill: str, seed: int, name: str):
    """A function that fills a local array of an input matrix, independent of its layout: with -1, 0
    or 1, or multiples of 2⁻²³ in [-1, 1)."""
    filler = Fill(fill, seed + zlib.crc32(name.encode()) % (1 << 20), 1)
    if fill == "integer":
        filler.bound = 1

    def write(out):
        if out.size:
            filler.into(out, "A", int(matrix.rows[0]), int(matrix.columns[0]))

    return write


def _measured(order: ChainOrder, run: ChainRun, topology: Topology, start: float) -> Record:
    comm, chain = topology.comm, run.chain
    given = {
        name: writer_of(run.matrices[name], order.fill, order.seed, name)
        for name, matrix in chain.matrices.items()
        if matrix.kind != "made"
    }
    for name, write in given.items():
        write(run.matrices[name].local)

    def once(place: int) -> tuple[Timed]:
        run.poison()
        comm.Barrier()
        return (timed(comm, run.run),)

    once(0)  # plans, pages, buffers of MPI
    plan_s = Clock.now() - start
    statistics, _, _ = sample(comm, once, order.iters, order.budget_s, topology.core_due(1))
    exact = order.fill == "integer"
    error = run.error(exact, order.seed, given)
    ok = error <= (0.0 if exact else 1.0)
    return Record(
        **keys_of(order),
        **statistics,
        status="ok" if ok else "wrong",
        reason=None if ok else f"some operation is wrong: {error:g} times the tolerance",
        gflops=chain.flops / statistics["median_s"] / 1e9,
        error=error,
        plan_s=plan_s,
        threads=1,
        nodes=topology.nodes,
        oversubscribed=topology.oversubscribed(1),
        mpi=mpi_version(),
        blas=load_blas().info.library,
        seed=order.seed,
        iters=order.iters,
        budget_s=order.budget_s,
        timestamp=Clock.date(),
    )


def serve_chain(path: str, answer: str) -> int:
    """Run the order in a file; rank 0 writes the cells of the record to another file."""
    comm = world()
    order = ChainOrder.read(Path(path).read_text("utf-8"))
    record = run_chain(order, comm)
    if comm.rank == 0:
        Path(answer).write_text(json.dumps(record.to_row()), "utf-8")
    comm.Barrier()
    return EXIT_CODES[record.status]
