"""Programs of one kind of transfer, of the same steps as any algorithm's: what executors do for a
Get, a Put, an Accumulate or a collective, and nothing else.

C has two rows a rank: row r, the *source*, which rank r owns and nobody writes, and row p + r, its
*target*. Data goes from each rank to the next one, or along the one group that all ranks make.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass

from drbench.program.group_steps import AllGather, Broadcast, Reduce, ReduceScatter, Shift
from drbench.program.problem import Problem
from drbench.program.steps import (
    Accumulate,
    Block,
    Boundary,
    Copy,
    Fence,
    Get,
    Group,
    Put,
    Step,
)
from drbench.program.trace import Trace, trace


@dataclass(frozen=True)
class Rows:
    """The rows of C, as one rank sees them.

    Attributes
    ----------
    problem : Problem
        C is 2p × columns in p rows of tiles, dealt in turn.
    rank : int
    """

    problem: Problem
    rank: int

    @classmethod
    def of(cls, columns: int, ranks: int, rank: int, dtype: str = "float32") -> "Rows":
        """Rows of so many elements."""
        c = f"tiles:1x{columns}@{ranks}x1"
        return cls(Problem(2 * ranks, columns, 1, ranks, "row", "column", c, dtype), rank)

    @property
    def ranks(self) -> int:
        return self.problem.nprocs

    @property
    def group(self) -> Group:
        """All ranks."""
        return Group("row", tuple(range(self.ranks)), self.rank)

    def source(self, rank: int, part: bool = False) -> Block:
        """The source of a rank, or its first p-th part, rounded down."""
        return self._row(rank % self.ranks, part)

    def target(self, rank: int, part: bool = False) -> Block:
        """The target of a rank, likewise."""
        return self._row(self.ranks + rank % self.ranks, part)

    def _row(self, row: int, part: bool) -> Block:
        columns = self.problem.n // (self.ranks if part else 1)
        return self.problem.c.block((row, row + 1), (0, columns))


Program = Generator[Step, Step, None]


def _get(rows: Rows, times: int) -> Program:
    for _ in range(times):
        yield Get(rows.source(rows.rank + 1))


def _put(rows: Rows, times: int) -> Program:
    own = yield Get(rows.source(rows.rank))
    for _ in range(times):
        yield Put(own, rows.target(rows.rank + 1))
    yield Fence()


def _accumulate(rows: Rows, times: int) -> Program:
    own = yield Get(rows.source(rows.rank))
    for _ in range(times):
        yield Accumulate(own, rows.target(rows.rank + 1))
    yield Fence()


def _broadcast(rows: Rows, times: int) -> Program:
    for _ in range(times):
        yield Broadcast(rows.source(0), rows.group)
        yield Boundary()


def _allgather(rows: Rows, times: int) -> Program:
    for _ in range(times):
        yield AllGather([rows.source(rank, True) for rank in range(rows.ranks)], rows.group, 0)
        yield Boundary()


def _reduce(rows: Rows, times: int) -> Program:
    own = yield Get(rows.source(rows.rank))
    for _ in range(times):
        yield Reduce(own, rows.target(0), rows.group)
        yield Boundary()


def _reducescatter(rows: Rows, times: int) -> Program:
    columns = rows.problem.n // rows.ranks * rows.ranks
    source = rows.source(rows.rank)
    own = yield Get(
        rows.problem.c.block((source.row0, source.row1), (0, columns)),
    )
    for _ in range(times):
        parts = [rows.target(rank, True) for rank in range(rows.ranks)]
        yield ReduceScatter(own, parts, rows.group, 1)
        yield Boundary()


def _shift(rows: Rows, times: int) -> Program:
    own = yield Get(rows.source(rows.rank))
    for _ in range(times):
        yield Shift(own, rows.group, 1, rows.source(rows.rank - 1))
        yield Boundary()


def _copy(rows: Rows, times: int) -> Program:
    own = yield Get(rows.source(rows.rank))
    for _ in range(times):
        yield Copy(own, into=rows.target(rows.rank))


#: By the names that machine models have for collectives. One-sided steps are started together and
#: completed by one Fence, as OSU's bandwidth tests do; collectives follow each other.
PROGRAMS: dict[str, Callable[[Rows, int], Program]] = {
    "get": _get,
    "put": _put,
    "accumulate": _accumulate,
    "broadcast": _broadcast,
    "allgather": _allgather,
    "reduce": _reduce,
    "reducescatter": _reducescatter,
    "shift": _shift,
    "copy": _copy,
}


def trace_of(name: str, rows: Rows, times: int = 1) -> Trace:
    """What a rank does to make one kind of transfer so many times.

    Examples
    --------
    >>> for step in trace_of("put", Rows.of(8, 2, 0)).steps:
    ...     print(step)
    Get(C[0:1, 0:8]@0)
    Put(%0 -> C[3:4, 0:8]@1)
    Fence()
    """
    return trace(PROGRAMS[name](rows, times), rows.problem, rows.rank, fresh=False)
