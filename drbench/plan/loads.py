"""How work and bytes are spread over ranks: what can be said of a program without any machine."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from drbench.program.steps import Step
from drbench.program.trace import Trace


class Transfer(NamedTuple):
    """Bytes that a step of one rank moves between it and another: from ``source`` to ``target``,
    counted as ``counter`` in the records."""

    source: int
    target: int
    nbytes: int
    counter: str


def transfers(trace: Trace) -> Iterator[Transfer]:
    """What the steps of a rank's program move, in their order.

    Examples
    --------
    Rank 0 reads the other half of A, 8·4 elements of 4 bytes:

    >>> from algorithms import get_algorithm
    >>> from drbench.program.problem import Problem
    >>> problem = Problem(8, 8, 8, 2, a="column", b="column", c="column")
    >>> list(transfers(get_algorithm("universal").trace(problem, 0)))
    [Transfer(source=1, target=0, nbytes=128, counter='get_bytes')]
    """
    widths = trace.element_types(trace.problem.itemsizes)
    for step in trace.steps:
        yield from moved_by(step, trace.rank, widths[step.index])


def moved_by(step: Step, rank: int, width: int) -> Iterator[Transfer]:
    """What one step of a rank moves, of elements of ``width`` bytes."""
    sends = step.does in ("send", "add") or (step.grouped and step.sums)
    counter = step.counter or ""  # nothing is moved without one
    for other, elements in step.moved(rank):
        source, target = (rank, other) if sends else (other, rank)
        yield Transfer(source, target, elements * width, counter)


class Loads(NamedTuple):
    """What all ranks together, and the busiest of them, multiply and move.

    Attributes
    ----------
    moved_bytes : int
        Of all ranks together.
    busiest_bytes : int
        Most bytes that one rank sends, or that one receives.
    busiest_flops : int
        Most FLOPs of one rank's products.
    transfers : int
        How many there are of all ranks together.
    """

    moved_bytes: int
    busiest_bytes: int
    busiest_flops: int
    transfers: int


def balance(flops: Sequence[int]) -> float | None:
    """The share of the roof that is the most with so many FLOPs on each rank: their mean over the
    most; None if there are none.

    Examples
    --------
    >>> balance([3, 1]), balance([2, 2]), balance([0])
    (0.6666666666666666, 1.0, None)
    """
    return sum(flops) / len(flops) / max(flops) if any(flops) else None


def busiest(moved: Iterable[tuple[int, int, int]]) -> int:
    """Most bytes that one rank sends or receives, of (source, target, bytes).

    Examples
    --------
    >>> busiest([(0, 1, 4), (0, 2, 4), (2, 0, 7)]), busiest([])
    (8, 0)
    """
    busy: Counter = Counter()
    for source, target, nbytes in moved:
        busy["out", source] += nbytes
        busy["in", target] += nbytes
    return max(busy.values(), default=0)


def loads(traces: Iterable[Trace]) -> Loads:
    """Of the traces of all ranks; of fewer, no more than that.

    Examples
    --------
    Each of two ranks reads the other's half of A, 8·4 elements of 4 bytes:

    >>> from algorithms import get_algorithm
    >>> from drbench.program.problem import Problem
    >>> problem = Problem(8, 8, 8, 2, a="column", b="column", c="column")
    >>> loads(get_algorithm("universal").trace(problem, rank) for rank in range(2))
    Loads(moved_bytes=256, busiest_bytes=128, busiest_flops=512, transfers=2)
    """
    moved: list[Transfer] = []
    flops = 0
    for trace in traces:
        flops = max(flops, trace.flops)
        moved += transfers(trace)
    most = busiest((each.source, each.target, each.nbytes) for each in moved)
    return Loads(sum(each.nbytes for each in moved), most, flops, len(moved))
