"""Every kind of step, and tables from kind of step to what a consumer of steps does with it.

A consumer (an executor, the simulator, a memory plan) has one table with an entry for each kind;
None for kinds that never reach it. So a new kind of step fails when the first module that forgot it
is imported, by an error with the consumer's name, not in a run.
"""

from typing import TypeVar

from .group_steps import AllGather, Broadcast, Reduce, ReduceScatter, Shift
from .signal_steps import Await, Offer, Push, Take
from .steps import (
    Accumulate,
    Add,
    Copy,
    Fence,
    FilledScratch,
    Gemm,
    Get,
    Join,
    OperationEnd,
    Pack,
    Part,
    Put,
    ReplicaAdd,
    ReplicaGet,
    Scratch,
    Step,
    Zero,
)

#: One-sided reads and writes of tiles of any rank.
READS = (Get, ReplicaGet, Pack)
ADDS = (Accumulate, ReplicaAdd)
WRITES = (Put, *ADDS)
#: Computes; an Add may also run during the others.
COMPUTES = (Gemm, Add, Copy, Zero)
#: Views of the memory of other steps.
VIEWS = (FilledScratch, Part, Join)
GROUP_STEPS = (Shift, Broadcast, AllGather, Reduce, ReduceScatter)
SIGNAL_STEPS = (Push, Await, Offer, Take)

#: Every kind of step that a program yields.
KINDS: tuple[type[Step], ...] = (
    *READS,
    *WRITES,
    *COMPUTES,
    Fence,
    *GROUP_STEPS,
    *SIGNAL_STEPS,
    Scratch,
    *VIEWS,
    OperationEnd,
)

_T = TypeVar("_T")
#: By consumer the family of steps that it handles, and its table.
TABLES: dict[str, tuple[type[Step], dict]] = {}


def table_of_steps(
    consumer: str, entries: dict[type | tuple[type, ...], _T], family: type[Step] = Step
) -> dict[type, _T]:
    """A table with an entry for each kind of step, or of a family of them (such as ``GroupStep``).

    Parameters
    ----------
    consumer : str
        What uses the table, for the error.
    entries : dict
        Kind, or kinds, -> what the consumer does with it.

    Raises
    ------
    TypeError
        If a kind has no entry.

    Examples
    --------
    >>> from drbench.program.signal_steps import Signal
    >>> table_of_steps("an example", {(Push, Offer): "to", (Await, Take): "from"}, Signal)[Take]
    'from'
    >>> table_of_steps("an example", {Push: "to", (Await, Take): "from"}, Signal)
    Traceback (most recent call last):
        ...
    TypeError: the table of an example has no entry for the step Offer
    """
    table: dict[type, _T] = {}
    for kinds, entry in entries.items():
        table.update(dict.fromkeys(kinds if isinstance(kinds, tuple) else (kinds,), entry))
    for kind in KINDS:
        if issubclass(kind, family) and kind not in table:
            raise TypeError(f"the table of {consumer} has no entry for the step {kind.__name__}")
    TABLES[consumer] = family, table
    return table
