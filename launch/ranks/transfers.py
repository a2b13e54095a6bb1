"""Programs of one type of transfer, made of the steps of algorithms: a Get, a Put, an Accumulate or
a collective, and nothing else.

C has two rows per rank: row r, the *source*, which rank r owns and no rank writes, and row p + r,
its *target*. Each rank sends to the next one, or along the group of all ranks.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

from drbench.program.group_steps import AllGather, Broadcast, Reduce, ReduceScatter, Shift
from drbench.program.problem import Problem
from drbench.program.steps import (
    Accumulate,
    Block,
    Copy,
    Fence,
    Get,
    Group,
    OperationEnd,
    Put,
    Step,
)
from drbench.program.trace import Trace, trace


@dataclass(frozen=True)
class LocalRows:
    """The rows of C from the view of one rank.

    Attributes
    ----------
    problem : Problem
        C is 2p × columns in p rows of tiles, distributed cyclically.
    rank : int
    """

    problem: Problem
    rank: int

    @classmethod
    def of(cls, columns: int, ranks: int, rank: int, dtype: str = "float32") -> "LocalRows":
        """Rows of this number of elements."""
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


#: One transfer of each type, by the names of machine models; a sender sends its own source.
PROGRAMS: dict[str, Callable[[LocalRows, Any], Step]] = {
    "get": lambda rows, own: Get(rows.source(rows.rank + 1)),
    "put": lambda rows, own: Put(own, rows.target(rows.rank + 1)),
    "accumulate": lambda rows, own: Accumulate(own, rows.target(rows.rank + 1)),
    "broadcast": lambda rows, own: Broadcast(rows.source(0), rows.group),
    "allgather": lambda rows, own: AllGather(
        [rows.source(rank, True) for rank in range(rows.ranks)], rows.group, 0
    ),
    "reduce": lambda rows, own: Reduce(own, rows.target(0), rows.group),
    "reducescatter": lambda rows, own: ReduceScatter(
        own, [rows.target(rank, True) for rank in range(rows.ranks)], rows.group, 1
    ),
    "shift": lambda rows, own: Shift(own, rows.group, 1, rows.source(rows.rank - 1)),
    "copy": lambda rows, own: Copy(own, into=rows.target(rows.rank)),
}


def _program(name: str, rows: LocalRows, times: int) -> Generator[Step, Step, None]:
    """One-sided steps are started together and completed by one Fence, as OSU's bandwidth tests do;
    collectives follow each other."""
    own = None
    if name not in ("get", "broadcast", "allgather"):
        source, parts = rows.source(rows.rank), rows.ranks if name == "reducescatter" else 1
        columns = rows.problem.n // parts * parts
        own = yield Get(rows.problem.c.block((source.row0, source.row1), (0, columns)))
    for _ in range(times):
        step = yield PROGRAMS[name](rows, own)
        if step.grouped:
            yield OperationEnd()
    if step.does in ("send", "add"):
        yield Fence()


def trace_of(name: str, rows: LocalRows, times: int = 1) -> Trace:
    """The trace of a rank that makes one type of transfer ``times`` times.

    Examples
    --------
    >>> for step in trace_of("put", LocalRows.of(8, 2, 0)).steps:
    ...     print(step)
    Get(C[0:1, 0:8]@0)
    Put(%0 -> C[3:4, 0:8]@1)
    Fence()
    """
    return trace(_program(name, rows, times), rows.problem, rows.rank, fresh=False)
