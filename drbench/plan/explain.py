"""The explainer: what a traced program moves, computes and stores, without running it, and how work
and bytes are distributed over ranks."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from drbench.clock import StepTime
from drbench.partitions import Partition
from drbench.program.problem import product_flops
from drbench.program.steps import COUNTERS, Gemm, Step
from drbench.program.trace import Trace

from .schedule import pool_bytes


class Transfer(NamedTuple):
    """Bytes that a step of one rank moves between it and another: from ``source`` to ``target``,
    counted as ``counter`` in the records."""

    source: int
    target: int
    nbytes: int
    counter: str


def transfers(trace: Trace) -> Iterator[Transfer]:
    """The transfers of a rank's program, in the order of its steps.

    Examples
    --------
    Rank 0 reads the other half of A, 8·4 elements of 4 bytes:

    >>> from drbench.algorithms import get_algorithm
    >>> from drbench.program.problem import Problem
    >>> problem = Problem(8, 8, 8, 2, a="column", b="column", c="column")
    >>> list(transfers(get_algorithm("universal").trace(problem, 0)))
    [Transfer(source=1, target=0, nbytes=128, counter='get_bytes')]
    """
    widths = trace.element_types(trace.problem.itemsizes)
    for step in trace.steps:
        yield from moved_by(step, trace.rank, widths[step.index])


def moved_by(step: Step, rank: int, width: int) -> Iterator[Transfer]:
    """The transfers of one step of a rank, of elements of ``width`` bytes."""
    sends = step.does in ("send", "add") or (step.grouped and step.sums)
    counter = step.counter or ""  # nothing is moved without one
    for other, elements in step.moved(rank):
        source, target = (rank, other) if sends else (other, rank)
        yield Transfer(source, target, elements * width, counter)


def moves(program: Generator[Step, Any, None], rank: int) -> bool:
    """Whether a rank's program moves anything between ranks. It runs to its first transfer only.

    Examples
    --------
    >>> from drbench.algorithms import get_algorithm
    >>> from drbench.program.problem import Problem
    >>> steps = get_algorithm("universal").steps
    >>> [moves(steps(Problem(8, 8, 8, 2, "row", b, "row"), 0), 0) for b in ("row", "row/c2")]
    [True, False]
    """
    step: Any = None
    with suppress(StopIteration):
        while True:
            step = program.send(step)
            if step.counter and any(elements for _, elements in step.moved(rank)):
                return True
    return False


class Loads(NamedTuple):
    """Bytes and FLOPs of all ranks together, and of the busiest.

    Attributes
    ----------
    moved_bytes : int
        Of all ranks together.
    busiest_bytes : int
        Most bytes that one rank sends, or that one receives.
    busiest_flops : int
        Most FLOPs of one rank's GEMMs.
    transfers : int
        Number of transfers of all ranks together.
    """

    moved_bytes: int
    busiest_bytes: int
    busiest_flops: int
    transfers: int


def balance(flops: Sequence[int]) -> float | None:
    """The largest share of GEMM-only speed possible with these FLOPs of the ranks: their mean over
    their maximum; None if all are 0.

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
    """The loads of the traces of all ranks; of a part of them, a lower bound.

    Examples
    --------
    Each of two ranks reads the other's half of A, 8·4 elements of 4 bytes:

    >>> from drbench.algorithms import get_algorithm
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
    most = busiest(transfer[:3] for transfer in moved)
    return Loads(sum(transfer.nbytes for transfer in moved), most, flops, len(moved))


@dataclass
class Traffic:
    """Bytes a rank's program moves between ranks.

    Attributes
    ----------
    by_peer : dict of int to Counter
        For each other rank the bytes by kind, with the names of the records.
    """

    by_peer: dict[int, Counter]

    @property
    def counters(self) -> dict[str, int]:
        """Bytes by kind. ``direct_bytes`` is 0: the transport decides whether a Get is copied or
        read in place, and the plan counts it as ``get_bytes``."""
        return {name: sum(counts[name] for counts in self.by_peer.values()) for name in COUNTERS}


def traffic(trace: Trace) -> Traffic:
    """Count the bytes of a trace: what every step moves between this rank and others.

    Examples
    --------
    Each of two ranks reads the other's half of A, 8·4 elements of 4 bytes:

    >>> from drbench.algorithms import get_algorithm
    >>> from drbench.program.problem import Problem
    >>> problem = Problem(8, 8, 8, 2, a="column", b="column", c="column")
    >>> traffic(get_algorithm("universal").trace(problem, 0)).by_peer
    {1: Counter({'get_bytes': 128})}
    """
    by_peer: dict[int, Counter] = {}
    for source, target, nbytes, counter in transfers(trace):
        other = source if target == trace.rank else target
        by_peer.setdefault(other, Counter())[counter] += nbytes
    return Traffic(by_peer)


def memory_bytes(trace: Trace, prefetch: int = 1) -> dict[str, int]:
    """Bytes in the rank's memory: its tiles of A, B and C; the pool if every remote Get is copied;
    the pool if none is."""
    return trace.problem.tile_bytes(trace.rank) | {
        "pool": pool_bytes(trace, prefetch),
        "pool_direct": pool_bytes(trace, prefetch, views=lambda block: True),
    }


def tile_owners(partition: Partition, height: int = 8, width: int = 24) -> list[list[int]]:
    """The owners in replica 0 of the first tiles, at most height × width of them.

    Examples
    --------
    >>> from drbench.partitions import partition
    >>> tile_owners(partition("block", (8, 8), 4)), tile_owners(partition("row", (9, 8), 3), 2)
    ([[0, 1], [2, 3]], [[0], [1]])
    """
    rows, cols = map(min, partition.grid_shape, (height, width))
    return [[partition.owner((row, col)) for col in range(cols)] for row in range(rows)]


def listing(trace: Trace, limit: int | None = None) -> list[str]:
    """The program as text, one step a line, at most ``limit`` steps and a line for the rest.

    Each operation of a lowered program has a line before its steps, which counts its computes and
    transfers.
    """
    steps = trace.steps if limit is None else trace.steps[:limit]
    width = len(str(max(0, len(trace.steps) - 1)))
    lines, op, widths = [], None, trace.element_types(trace.problem.itemsizes)
    for step in steps:
        note = ""
        if trace.ops is not None and trace.ops[step.index] != op:
            op = trace.ops[step.index]
            lines.append(_op_line(trace, step.index))
        if moved := step.moved(trace.rank):
            nbytes = sum(elements for _, elements in moved) * widths[step.index]
            note = (
                f"    # {nbytes} bytes, rank{'s' if len(moved) > 1 else ''} "
                f"{', '.join(str(other) for other, _ in moved)}"
            )
        elif type(step) is Gemm:
            note = f"    # {product_flops(trace.problem.dtype) * step.products} FLOPs"
        lines.append(f"{step.index:>{width}}  {step!r}{note}")
    if len(steps) < len(trace.steps):
        lines.append(f"... {len(trace.steps) - len(steps)} more steps")
    return lines


def _op_line(trace: Trace, start: int) -> str:
    """The heading of the operation that begins with a step."""
    ops, computes, transfers = trace.ops or [], 0, 0
    op = ops[start]
    for step in trace.steps[start : bisect_right(ops, op)]:
        computes += step.computes
        moves = bool(step.moved(trace.rank) or (step.inputs and not step.alias))
        transfers += not step.computes and moves
    return (
        f"-- operation {op}: {computes} compute{'s' * (computes != 1)}, {transfers} "
        f"transfer{'s' * (transfers != 1)}"
    )


def track_of(step: Step) -> str:
    """``compute``, the name of the group whose ring the step uses (``row``, ``column``), ``fence``,
    or ``one-sided``."""
    if step.computes:
        return "compute"
    if step.grouped:
        return step.group.name
    return "fence" if step.group is not None else "one-sided"


def events_of(
    trace: Trace, timeline: Iterable[tuple[int, float, float]], zero: float
) -> list[StepTime]:
    """Events of one rank from the (step, start, stop) that its executor recorded; ``zero`` is the
    start of the repeat."""
    return [
        StepTime(
            trace.rank, track_of(trace.steps[t]), t, repr(trace.steps[t]), start - zero, stop - zero
        )
        for t, start, stop in timeline
    ]
