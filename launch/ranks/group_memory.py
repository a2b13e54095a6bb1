"""Memory of ranks: what a case needs, which is checked before any allocation, and what the cases of
one group share from turn to turn: matrices in windows, operands of local GEMMs, programs,
and what is known of the result."""

import operator
import platform
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from drbench.arrays import numpy_type
from drbench.errors import OutOfMemory
from drbench.host.launcher import SHARED_MEMORY, shared_memory_free
from drbench.host.matrix import DistributedMatrix
from drbench.host.topology import ClosedTogether, Topology
from drbench.launch.host.memory import available_memory, left_to_process, windows_bytes
from drbench.measure.roof import elements, gemms_to_try
from drbench.program.problem import Problem
from drbench.texts import bytes_text
from drbench.transport import TransportChoice

#: Most programs that are kept, and most windows of them and of matrices: MPI has few.
_MOST, _MOST_WINDOWS = 1000, 200
#: Address space that MPI, BLAS and Python need in addition: a run of two ranks mapped 60 MiB.
_OTHERS = 128 << 20


@dataclass(frozen=True)
class Need:
    """Bytes that one rank needs: its tiles (in windows), its arena with its inboxes, and the
    separate buffers of GEMM-only speed and the baseline; ``inboxes`` are those of program and
    baseline, in windows."""

    tiles: int
    arena: int
    measuring: int
    inboxes: int = 0

    @classmethod
    def of(
        cls,
        problem: Problem,
        rank: int,
        gemm_only: bool,
        arena: int = 0,
        baseline: int = 0,
        inboxes: int = 0,
        names: str = "ABC",
    ) -> "Need":
        """The need of a case on one rank; ``baseline`` is the arena of the baseline, ``names`` are
        the matrices that are not there yet."""
        tried = elements(problem, gemms_to_try(problem))
        local = map(operator.mul, tried.values(), problem.itemsizes.values())
        tiles = sum(nbytes for name, nbytes in problem.tile_bytes(rank).items() if name in names)
        return cls(tiles, arena, baseline + (sum(local) if gemm_only else 0), inboxes)

    @property
    def total(self) -> int:
        return self.tiles + self.arena + self.measuring


def check_memory(
    topology: Topology,
    need: Need,
    pool_limit: int | None = None,
    limit: int | None = None,
    device_free: int | None = None,
    stored: int = 0,
) -> None:
    """Raise on every rank if the pool of a rank, the memory of a node, or the limit per node is too
    small (collective).

    ``device_free`` is the memory that this rank can allocate on its device, which then stores
    everything instead of the node; ``stored`` what it stores for other cases, which counts for the
    limit alone.

    Raises
    ------
    OutOfMemory
        With the needed, the available and the missing memory.
    """
    comm, first = topology.comm, topology.node.rank == 0
    space = (shared_memory_free(), available_memory()) if first else None
    # one message, so that every rank finds the same
    mine = need, device_free, platform.node(), space, stored, left_to_process()
    needs, free, hosts, spaces, others, limits = zip(*comm.allgather(mine))
    rank = max(range(comm.size), key=lambda r: needs[r].arena)
    _refuse(
        needs[rank].arena,
        pool_limit,
        f"the plan needs a pool of {{}} on rank {rank}, -o pool allows {{}}",
        "Use a larger -o pool, a lower -o prefetch or smaller tiles",
    )
    fewer = "smaller matrices or lower replication factors"
    if device_free is not None:
        for rank, (need, space) in enumerate(zip(needs, free)):
            space = space if limit is None else min(space, limit)
            described = f"rank {rank} needs {{}} of device memory, {{}} are free"
            _refuse(need.total, space, described, f"Use more devices, {fewer}")
        return
    for lowest in sorted({*topology.node_of}):
        here = [need for need, node in zip(needs, topology.node_of) if node == lowest]
        left = limit
        if limit is not None:
            left -= sum(nbytes for nbytes, node in zip(others, topology.node_of) if node == lowest)
        who, (shared, available) = f"the {len(here)} ranks on {hosts[lowest]}", spaces[lowest]
        if len(here) > 1:
            _refuse(
                windows_bytes([need.tiles + need.inboxes for need in here]),
                shared,
                f"tiles and inboxes of {who} need {{}} of shared memory (including MPI's), "
                f"{SHARED_MEMORY} has {{}} free",
                f"Enlarge {SHARED_MEMORY}, or use more nodes or smaller matrices",
            )
        for space, note in ((left, "--mem-limit allows {}"), (available, "{} are available")):
            described = f"{who} need {{}} of memory, {note}"
            _refuse(sum(need.total for need in here), space, described, f"Use more nodes, {fewer}")
        # a rank maps the windows of its node, also at addresses for huge pages
        windows = 2 * sum(need.tiles + need.inboxes for need in here)
        for rank in (rank for rank, node in enumerate(topology.node_of) if node == lowest):
            own = needs[rank].arena + needs[rank].measuring + _OTHERS
            for flag, left in limits[rank].items():
                _refuse(
                    own + (windows if flag == "-v" else 0),
                    left,
                    f"rank {rank} needs {{}} of address space, ulimit {flag} leaves {{}}",
                    f"Raise this limit, or use {fewer}",
                )


def _refuse(needed: int, space: int | None, text: str, remedy: str) -> None:
    """Raise if more memory is needed than available; None is no limit."""
    if space is not None and needed > space:
        sizes = bytes_text(needed), bytes_text(space)
        missing = bytes_text(needed - space)
        raise OutOfMemory(f"{text.format(*sizes)}: {missing} are missing. {remedy}.")


class GroupMemory(ClosedTogether):
    """Allocated and filled memory of a group of cases on cores. Everything is freed together: when
    another group begins, or when a case needs the memory.

    All methods but :meth:`missing` are collective, and all ranks call them in the same order,
    because windows are made and freed by all ranks together.

    Attributes
    ----------
    programs : dict of str to PreparedCase
        By case.
    roofs : dict of tuple to GemmOnly
    expected : dict
        Of :func:`drbench.measure.verify.verify`.
    """

    def __init__(self) -> None:
        self._group: str | None = None
        self._forget()

    def _forget(self) -> None:
        self.programs: dict[str, Any] = {}
        self.roofs: dict[tuple, Any] = {}
        self.expected: dict = {}
        self._open, self._nbytes, self._windows = ExitStack(), 0, 0
        self._matrices: dict[tuple, DistributedMatrix] = {}

    def begin(self, group: str | None) -> None:
        """Free everything, unless the group is the one before; None is a group of its own."""
        if group is None or group != self._group:
            self.close()
        self._group = group

    @contextmanager
    def keep_open(self, key: str, make: Callable[[], AbstractContextManager]) -> Iterator[Any]:
        """A context with what the context ``make()`` gives, which stays open for the next turn,
        unless there are too many."""
        if key in self.programs:
            yield self.programs[key]
        elif len(self.programs) < _MOST and self._windows < _MOST_WINDOWS:
            ready = (context := make()).__enter__()  # may free all others before it allocates
            self._open.push(context)
            self.programs[key] = ready
            self._windows += getattr(ready.executor, "inbox", None) is not None
            yield ready
        else:
            with make() as ready:
                yield ready

    def check(
        self,
        topology: Topology,
        need_of: Callable[[], Need],
        *limits,
        device: int | None = None,
        planned: bool = True,
    ) -> None:
        """Check the memory of the next case, as :func:`check_memory`; if it is too little, free
        everything first. ``need_of`` gives what is needed in addition to what is kept, from now on
        if it is ``planned``."""
        if len(self._matrices) > _MOST_WINDOWS:
            self.close()
        try:
            check_memory(topology, need := need_of(), *limits, device, self._nbytes)
        except OutOfMemory:
            if not self.close():
                raise
            check_memory(topology, need := need_of(), *limits, device)
        self._nbytes += need.total if planned else 0

    def missing(self, problem: Problem, *of) -> str:
        """The names of the matrices that are not there yet; ``of`` are choice and values."""
        names = (operand.name for operand in problem.operands)
        return "".join(x for x in names if _key(problem, x, *of) not in self._matrices)

    def matrices(
        self,
        problem: Problem,
        topology: Topology,
        choice: TransportChoice,
        fill: Callable[[DistributedMatrix], None],
        values: tuple,
    ) -> dict[str, DistributedMatrix]:
        """A, B and C of a problem, by name: those of the same layout and ``values`` that are there,
        or new ones, of which ``fill`` fills A and B."""
        matrices = {}
        for operand in problem.operands:
            name, key = operand.name, _key(problem, operand.name, choice, values)
            if key not in self._matrices:
                dtype = numpy_type(problem.type_of(name))
                self._matrices[key] = DistributedMatrix.open(
                    operand, topology, dtype, choice, problem.padded
                )
                if name != "C":
                    fill(self._matrices[key])
            matrices[name] = self._matrices[key]
        return matrices

    def close(self) -> bool:
        """Free everything; return whether there was anything."""
        there, opened, matrices = bool(self.programs), self._open, self._matrices
        self._forget()
        opened.close()
        for matrix in matrices.values():
            matrix.close()
        return there or bool(matrices)


def _key(problem: Problem, name: str, choice: TransportChoice, values: tuple) -> tuple:
    """What identifies the storage of a matrix. Any C is written by each case."""
    operand = problem.operand(name)
    stored = operand.stored
    layout = stored.text, stored.shape, operand.transposed, problem.padded
    return (name, *layout, problem.type_of(name), choice, name != "C" and values)
