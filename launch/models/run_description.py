"""A run as plain data for a page to draw: the layouts, and when each rank stored, fetched,
multiplied, sent and added which blocks. For simulated and measured runs.

A run is its traces, and the bars of its timeline (:class:`drbench.clock.StepTime`). A bar is the
time of a step; its operands follow from the traces: a fetched value is the block it was read from,
a shifted value that of the neighbour, the result of a GEMM the rows of one operand and the columns
of the other.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from drbench.clock import StepTime
from drbench.errors import UsageError
from drbench.partitions.intervals import Range, intersect, length, split, union
from drbench.plan.explain import moved_by
from drbench.plan.signals import pairs_of
from drbench.program.problem import Operand
from drbench.program.steps import DOES, Block, Step
from drbench.program.trace import Trace

#: Most ranges of rows, or of columns, of one region; more are replaced by their hull.
_MOST_RANGES = 64

Ranges = tuple[Range, ...]


class Region(NamedTuple):
    """Elements of a matrix in the multiplication's orientation: ranges of rows times ranges of
    columns, in their order in a value."""

    matrix: str
    replica: int
    rows: Ranges
    cols: Ranges

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of the value."""
        return length(self.rows), length(self.cols)


class Regions:
    """The regions of the values of all steps of all ranks.

    Parameters
    ----------
    traces : sequence of Trace
        Of all ranks.

    Attributes
    ----------
    sent : dict of tuple to tuple
        (rank, step) that receives with a signal -> (rank, step) that sends.
    received : dict of tuple to tuple
        The inverse of ``sent``.

    Examples
    --------
    >>> from drbench.algorithms import get_algorithm
    >>> cannon = get_algorithm("cannon")
    >>> problem = cannon.problem(4, 4, 4, 4, mesh="2x2")
    >>> traces = [cannon.trace(problem, rank, mesh="2x2", dataflow="OS") for rank in range(4)]
    >>> regions = Regions(traces)
    >>> shift = next(step for step in traces[1].steps if step.grouped)
    >>> shift, regions.of(1, shift)  # doctest: +ELLIPSIS
    (Shift(...), Region(matrix='...', replica=0, rows=((...),), cols=((...),)))
    """

    def __init__(self, traces: Sequence[Trace]):
        self._known: dict[tuple[int, int], Region | None] = {}
        self._traces = {trace.rank: trace for trace in traces}
        self.sent = {target: source for source, target in pairs_of(traces).items()}
        self.received = {source: target for target, source in self.sent.items()}

    def of(self, rank: int, step: Step) -> Region | None:
        """The region of the value of a step; None if it has no value, or rows of several matrices
        or blocks."""
        key = rank, step.index
        if key not in self._known:
            self._known[key] = None  # during the search
            region = self._derive(rank, step)
            self._known[key] = region if region and region.shape == step.shape else None
        return self._known[key]

    def _derive(self, rank: int, step: Any) -> Region | None:
        """The region of the value of a step, by its source or its operands."""
        if step.grouped and step.shape is not None:
            if step.kind == "shift":
                return step.receives and _whole(step.receives)
            return _join(
                [_fragment(fragment) for fragment in step.fragments], getattr(step, "axis", 0)
            )
        if step.reads():
            return _whole(step.reads()[0])
        if (rank, step.index) in self.sent:
            source, index = self.sent[rank, step.index]
            return self.of(source, self._traces[source].steps[index].inputs[0])
        if step.does == "multiply":
            return self._gemm(rank, step)
        if step.alias:
            return self._shown(rank, step)
        if step.does == "copy" and step.shape is not None:
            return self.of(rank, step.inputs[0])
        return None if step.onto is None else self.of(rank, step.onto)

    def _gemm(self, rank: int, step: Step) -> Region | None:
        """The region of C that a GEMM computes: rows of one operand, columns of the other. If C is
        the sum of several GEMMs, those of the same block of B."""
        a, b = (self.of(rank, value) for value in step.inputs[:2])
        if a is None or b is None or not b.rows:
            return None
        trace, rows = self._traces[rank], []
        block = max(0, b.rows[-1][1] - 1) // trace.problem.k
        for (into, _), of_a, number in trace.problem.gemms():
            for taken in a.rows if number == block else ():
                start, stop = intersect(taken, of_a)
                if start < stop:
                    rows.append((start - of_a[0] + into, stop - of_a[0] + into))
        replica = trace.problem.c.partition.replica_of(rank)
        return Region(trace.written, replica, tuple(rows), b.cols)

    def _shown(self, rank: int, step: Any) -> Region | None:
        """The region of a part of a value, of several values joined, or of a filled Scratch."""
        is_filled = not hasattr(step, "axis")
        seen = [self.of(rank, value) for value in step.inputs[is_filled:]]
        regions = [region for region in seen if region is not None]
        if not regions or len(regions) < len(seen):
            return None
        if is_filled:
            rows, cols = (union(sum(side, ())) for side in zip(*(part[2:] for part in regions)))
            return regions[0]._replace(rows=tuple(rows), cols=tuple(cols))
        if not hasattr(step, "start"):
            return _join(regions, step.axis)
        (region,) = regions
        cut = (region.rows, region.cols)[step.axis]
        cut = tuple(split(cut, [step.start, step.stop])[1])
        return region._replace(rows=cut) if step.axis == 0 else region._replace(cols=cut)


def describe_run(traces: Sequence[Trace], timeline: Iterable[StepTime]) -> dict[str, Any]:
    """The run of a problem as plain data, for JSON.

    Parameters
    ----------
    traces : sequence of Trace
        Of all ranks, in order.
    timeline : iterable of StepTime
        A bar for each step that took time.

    Returns
    -------
    dict
        ``time_s``: when the last bar ends. ``does``: :data:`drbench.program.steps.DOES`.
        ``matrices``: :func:`layout` of A, B and C in the multiplication's orientation. ``regions``:
        each ``[matrix, replica, row ranges, column ranges]``. ``ranks``: for each rank its bars by
        their start, each ``[step, does, start_s, stop_s, held_s, bytes, reads, writes, moves,
        computes]``: the end of the lifetime of its value (0: no value) and its bytes; numbers of
        the regions that the step reads, and of those that it writes or that are its value;
        ``[source, target, bytes]`` of its transfers between ranks; whether the compute engine runs
        it.

    Raises
    ------
    UsageError
        If a bar is of a step that the traces do not have.

    Examples
    --------
    >>> from drbench.algorithms import get_algorithm
    >>> from drbench.program.problem import Problem
    >>> problem = Problem(8, 8, 8, 2, a="column", b="column", c="column")
    >>> traces = [get_algorithm("universal").trace(problem, rank) for rank in range(2)]
    >>> bar = lambda t, *at: StepTime(0, "compute", t, repr(traces[0].steps[t]), *at)
    >>> found = describe_run(traces, [bar(3, 0.0, 2.0), bar(5, 2.0, 3.0)])
    >>> fetch, gemm = found["ranks"][0]
    >>> fetch[:6], fetch[8], found["regions"][fetch[7][0]]
    ([3, 'fetch', 0.0, 2.0, 3.0, 128], [[1, 0, 128]], ['A', 0, [[0, 8]], [[4, 8]]])
    >>> [found["regions"][each] for each in gemm[7]]
    [['C', 0, [[0, 8]], [[0, 4]]]]
    """
    regions = Regions(traces)
    bars: dict[int, dict[int, tuple]] = {trace.rank: {} for trace in traces}
    for bar in timeline:
        steps = traces[bar.rank].steps if bar.rank in bars else ()
        if bar.index >= len(steps) or repr(steps[bar.index]) != bar.name:
            raise UsageError(
                f"step {bar.index} of rank {bar.rank} is {bar.name} in the timeline, which is not "
                "in the program. Use the timeline with the case that wrote it."
            )
        bars[bar.rank][bar.index] = bar.start_s, bar.stop_s
    problem, numbers = traces[0].problem, dict[tuple, int]()
    number = lambda region: numbers.setdefault(_plain(region), len(numbers))
    ranks = [_bars(trace, regions, bars, number) for trace in traces]
    return {
        "time_s": max((stop for spans in bars.values() for _, stop in spans.values()), default=0.0),
        "does": list(DOES),
        "matrices": [layout(operand) for operand in problem.operands],
        "regions": [
            [*region[:2], *(list(map(list, side)) for side in region[2:])] for region in numbers
        ],
        "ranks": ranks,
    }


def layout(operand: Operand) -> dict[str, Any]:
    """The partition of an operand in the multiplication's orientation: names, extents, cuts with
    the coordinates that own each range, and the rank offset of each coordinate.

    Examples
    --------
    >>> from drbench.program.problem import Problem
    >>> found = layout(Problem(8, 8, 8, 4, a="row/c2").a)
    >>> found["rows"], found["places"], found["text"]
    ([[4, 0], [8, 1]], [[0, 1], [0], [0, 2]], 'row/c2')
    """
    partition, stored = operand.partition, operand.stored
    axes = [
        [[axis[x].stop, axis[x].coordinate] for x in range(len(axis))]
        for axis in (partition.rows, partition.cols)
    ]
    places = partition.places
    return {
        "name": operand.name,
        "transposed": operand.transposed,
        "text": stored.text,
        "shape": list(partition.shape),
        "rows": axes[0],
        "cols": axes[1],
        "places": [list(places.rows), list(places.cols), list(places.replicas)],
        "ranks": list(places.ranks),
        "terms": [partition.term_of(q) for q in range(partition.replicas)],
    }


def _bars(trace: Trace, regions: Regions, bars: dict, number: Callable) -> list[list]:
    """The bars of one rank."""
    rank, mine = trace.rank, bars[trace.rank]
    widths, lifetimes = (
        trace.element_types(trace.problem.itemsizes),
        _lifetimes(trace, regions, bars),
    )
    out: list[list] = []
    takes: dict[int, int] = {}  # step -> the first that uses its value
    for step in reversed(trace.steps):
        takes.update((value.index, step.index) for value in step.inputs)
    passed: dict[int, list] = {}  # transfers of steps without a bar, by the step that counts them
    for step in trace.steps:
        at = mine.get(step.index)
        moves = passed.pop(step.index, [])
        moves += [list(move[:3]) for move in moved_by(step, rank, widths[step.index])]
        if at is None and step.nonblocking:  # it takes no time: received when it was sent
            source, index = regions.sent[rank, step.index]
            at = (bars[source].get(index, (0.0, 0.0))[1],) * 2
        if at is None:  # read in place, while its value is used
            passed.setdefault(takes.get(step.index, -1), []).extend(moves)
            continue
        until = lifetimes.get(step.index, 0.0)
        reads, writes = _read_and_written(rank, step, regions)
        rows, cols = step.shape if until else (0, 0)
        nbytes = rows * cols * widths[step.index]
        of = [[number(region) for region in side if region is not None] for side in (reads, writes)]
        out.append([step.index, step.does, *at, until, nbytes, *of, moves, step.computes])
    return sorted(out, key=lambda bar: bar[2:4])


def _read_and_written(rank: int, step: Any, regions: Regions) -> tuple[list, list]:
    """The regions that a step reads; and those that it writes, or that are its value."""
    of = lambda value: regions.of(rank, value)
    values = step.inputs[: 2 if step.does == "multiply" else 1]
    reads = [of(value) for value in values if value is not step.onto]
    writes: list[Region | None] = []
    if step.grouped and step.sums:
        writes += [_fragment(fragment) for fragment in step.fragments]
    if not writes:
        block = step.block if step.writes() else None
        writes = [_whole(block) if block is not None else of(step)]
    return reads, writes


def _lifetimes(trace: Trace, regions: Regions, bars: dict) -> dict[int, float]:
    """Step -> end of the lifetime of its value, if it has memory of its own."""
    until: dict[int, float] = {}
    for step in reversed(trace.steps):
        rank, index = trace.rank, step.index
        if index not in bars[rank]:  # an offered value is needed until it is fetched
            rank, index = regions.received.get((rank, index), (rank, index))
        own = bars[rank].get(index, (0.0, 0.0))[1]
        for value in step.inputs:
            same = step.alias or value is step.onto  # another view of the same memory
            last = max(own, until.get(step.index, 0.0)) if same else own
            if value.shape is not None:
                until[value.index] = max(until.get(value.index, 0.0), last)
    has_memory = lambda step: step.nonblocking or step.elements() and (step.computes or step.does)
    return {
        step.index: until[step.index]
        for step in trace.steps
        if step.index in until and step.shape is not None and step.onto is None and has_memory(step)
    }


def _whole(block: Block) -> Region:
    rows, cols = (block.row0, block.row1), (block.col0, block.col1)
    return Region(block.matrix, block.replica, (rows,), (cols,))


def _fragment(fragment: Any) -> Region:
    return _whole(fragment.block)._replace(rows=tuple(fragment.rows), cols=tuple(fragment.cols))


def _join(regions: Sequence[Region], axis: int) -> Region | None:
    """Regions joined along rows (0) or columns (1); empty ones are skipped."""
    regions = [region for region in regions if all(region.shape)] or list(regions)
    first = regions[0]
    other = lambda region: region.cols if axis == 0 else region.rows
    if any(region.matrix != first.matrix or other(region) != other(first) for region in regions):
        return None
    along = tuple(span for region in regions for span in (region.cols if axis else region.rows))
    return first._replace(cols=along) if axis else first._replace(rows=along)


def _plain(region: Region) -> Region:
    """Ranges in rising order, neighbours joined; their hull if they are very many."""
    return region._replace(rows=_rising(region.rows), cols=_rising(region.cols))


def _rising(ranges: Ranges) -> Ranges:
    joined = union(ranges)
    return ((joined[0][0], joined[-1][1]),) if len(joined) > _MOST_RANGES else tuple(joined)
