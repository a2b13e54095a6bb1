"""The trace: the list of steps that one rank will execute, from the program's generator, which runs
to its end before the timed run.

The generator cannot see data, so it needs none. The trace adds the data that executor, simulator
and explainer need about the whole list: how often each value is used, the first writes into C
(``beta``), the tiles that must be zeroed, and how far a communication step may run ahead.
"""

import gc
from bisect import bisect_left
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from drbench.errors import UnsupportedError, UsageError

from .group_steps import AllGather, Broadcast, Reduce, ReduceScatter, Shift
from .kinds import READS, SIGNAL_STEPS, VIEWS, table_of_steps
from .problem import Problem, product_flops
from .steps import (
    Accumulate,
    Add,
    Block,
    Copy,
    Fence,
    Gemm,
    Group,
    OperationEnd,
    Pack,
    Put,
    ReplicaAdd,
    Scratch,
    Step,
    Zero,
)

#: Most steps of a rank: to plan them takes a quarter of a minute and 1 GB, to run them 2 GB.
MOST_STEPS = 1 << 21


@dataclass(slots=True)
class Trace:
    """One rank's steps.

    Attributes
    ----------
    problem : Problem
    rank : int
    steps : list of Step
        In program order; ``steps[t].index == t``.
    written : str
        Name of the matrix that one-sided steps write; results of GEMMs have its type.
    ops : list of int or None
        Of a lowered program: the number of each step's operation, ascending. None if the program
        yields no OperationEnd.
    signals : bool
        Ranks of the program signal each other; this one may have no signals.
    """

    problem: Problem
    rank: int
    steps: list
    written: str = "C"
    ops: list | None = None
    signals: bool = False

    @property
    def flops(self) -> int:
        """FLOPs of this rank's GEMMs.

        Raises
        ------
        UsageError
            If the shapes of a GEMM's operands and result do not fit.
        """
        gemms = [step for step in self.steps if type(step) is Gemm]
        for gemm in gemms:
            (m, k), (l, n), into = *(x.shape for x in gemm.inputs[:2]), gemm.block or gemm.onto
            if k != l or (into is not None and into.shape != (m, n)):
                raise UsageError(f"rank {self.rank}: operands and result do not fit: {gemm!r}.")
        factor = product_flops(self.problem.dtype) if self.problem else 2
        return factor * sum(gemm.products for gemm in gemms)

    @property
    def panel_bytes(self) -> int:
        """Bytes that are copied into packed operands."""
        sizes = self.problem.itemsizes if self.problem else {}
        return sum(
            step.block.size * sizes[step.block.matrix] for step in self.steps if type(step) is Pack
        )

    @property
    def fences(self) -> bool:
        """True if the program has Fences, which all of its ranks then have."""
        return Fence in set(map(type, self.steps))

    @property
    def groups(self) -> list[Group]:
        """The process rows and columns whose steps this program issues, by name."""
        groups = {step.group for step in self.steps if step.grouped}
        return sorted(groups, key=lambda group: (group.name, len(group), group.members))

    def element_types(self, of_matrix: dict) -> list:
        """The type of each step's value, of its transfer, or of the written matrix.

        Parameters
        ----------
        of_matrix : dict
            Name of each matrix -> type of its elements (or their size).

        Notes
        -----
        Blocks that are read have the type of their matrix, values that are shifted or copied keep
        their type; results of GEMMs have the type of the written matrix.

        Examples
        --------
        >>> from drbench.program.steps import Get
        >>> def program():
        ...     a = yield Get(Block("A", 0, 0, (0, 0), 0, 2, 0, 3))
        ...     b = yield Get(Block("B", 0, 0, (0, 0), 0, 3, 0, 2))
        ...     yield Gemm(a, b)
        >>> trace(program(), None, 0, fresh=False).element_types(
        ...     {"A": "bfloat16", "B": "bfloat16", "C": "float32"}
        ... )
        ['bfloat16', 'bfloat16', 'float32']
        """
        types: list = []
        for step in self.steps:
            matrix = _own_matrix(step, self.written)
            types.append(types[step.inputs[0].index] if matrix is None else of_matrix[matrix])
        return types


def _own_matrix(step: Step, written: str) -> str | None:
    """The matrix whose type a step's value has; None if that is the type of its input."""
    matrix = step.matrix if step.block is None else step.block.matrix
    if matrix is None and step.inputs and (not step.computes or type(step) is Copy):
        return None
    return matrix or step.like or written


def matrix_of(step: Step) -> str:
    """The matrix whose type a step's value, or transfer, has (:meth:`Trace.element_types`)."""
    while (matrix := _own_matrix(step, "C")) is None:
        step = step.inputs[0]
    return matrix


@contextmanager
def no_collection() -> Iterator[None]:
    """A context without Python's garbage collector, which would scan millions of steps again and
    again, and find nothing."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@no_collection()
def trace(
    program: Generator[Step, Any, None],
    problem: Problem | None,
    rank: int,
    *,
    fresh: bool = True,
    written: str = "C",
    signals: bool = False,
) -> Trace:
    """Collect the steps of a program for one rank.

    Parameters
    ----------
    program : generator of Step
        What ``algorithm.program(problem, rank, ...)`` returned.
    problem : Problem
    rank : int
    fresh : bool
        True if the program computes a new C; False if it updates a matrix with values (then no
        tile is zeroed, and no problem is needed).
    written : str
        Name of the matrix the program writes.
    signals : bool
        Another rank's program may have steps with signals even if this one has none.

    Returns
    -------
    Trace
        With ``index`` and ``uses`` of every step and ``beta`` of those that write C set. If an own
        tile of C would stay partly unwritten, or its writes overlap without being equal, a Zero of
        the tile is added first. Group steps, reductions during computes, and computes on the same
        elements of the written matrix have each other as inputs, in program order.

    Raises
    ------
    UsageError
        If the program yields an object that is no step, uses a value before it is made, computes
        into a tile of another rank, or accumulates into another replica.
    UnsupportedError
        If the program has more than :data:`MOST_STEPS` steps.

    Notes
    -----
    Time and memory are proportional to this rank's own steps. The cyclic garbage collector is
    disabled meanwhile.

    Examples
    --------
    >>> from drbench.algorithms import get_algorithm
    >>> problem = Problem(8, 8, 8, 2, a="column", b="column", c="column")
    >>> for step in trace(
    ...     get_algorithm("universal").program(problem, 0, stationary="C"), problem, 0
    ... ).steps:
    ...     print(step.index, step)
    0 Get(A[0:8, 0:4]@0)
    1 Get(B[0:4, 0:4]@0)
    2 Gemm(%0 · %1 -> C[0:8, 0:4]@0, 8x4x4, beta=0)
    3 Get(A[0:8, 4:8]@1)
    4 Get(B[4:8, 0:4]@0)
    5 Gemm(%3 · %4 -> C[0:8, 0:4]@0, 8x4x4, beta=1)
    """
    if not isinstance(program, Generator):
        raise UsageError(f"a program yields its steps; got {type(program).__name__} from it.")
    steps: list[Step] = []
    append, send, token = steps.append, program.send, None
    try:
        for _ in range(MOST_STEPS):
            token = send(token)
            append(token)
        raise UnsupportedError(
            f"rank {rank} would have more than {MOST_STEPS} steps, too many to plan (our "
            "implementation). Use larger tiles or chunks, or more ranks."
        )
    except StopIteration:
        pass
    kinds: set[type[Step]] = set(map(type, steps))
    for kind in kinds:
        if not issubclass(kind, Step):
            raise UsageError(f"a program yields steps, such as Get(block); got a {kind.__name__}.")
    ops = _number_operations(steps) if OperationEnd in kinds else None
    zeros = []
    if fresh and problem:
        zeros = _plan_betas(steps, rank, problem)
    if zeros:
        steps[:0] = zeros
        if ops is not None:  # an operation of their own
            ops = [0] * len(zeros) + [op + 1 for op in ops]
    for index, step in enumerate(steps):
        step.index = index
        step.uses = 0
        try:
            for value in step.inputs:
                value.uses += 1
        except AttributeError:
            raise UsageError(
                f"step {index} of rank {rank}, a {type(step).__name__}, takes a value that no step "
                "before it made. Write value = yield Get(...)."
            ) from None
    if any(kind.grouped for kind in kinds) or any(step.concurrent for step in steps):
        _order_concurrent(steps, written)
    signals = signals or any(kind.signals for kind in kinds)
    known: Any = problem  # None in tests
    return Trace(known, rank, steps, written, ops, signals)


def _number_operations(steps: list) -> list[int]:
    """Remove each OperationEnd from the steps; return the operation number of each other step.

    Examples
    --------
    >>> steps = [Fence(), OperationEnd(), Fence(), Fence(), OperationEnd()]
    >>> _number_operations(steps), steps
    ([0, 1, 1], [Fence(), Fence(), Fence()])
    """
    before = accumulate((type(step) is OperationEnd for step in steps), initial=0)
    numbered = [(op, step) for op, step in zip(before, steps) if type(step) is not OperationEnd]
    steps[:] = [step for _, step in numbered]
    return [op for op, _ in numbered]


def _plan_betas(steps: list, rank: int, problem: Problem) -> list[Zero]:
    """Set beta of the steps that write C; return the Zeros that must come first.

    Beta is 0 for the first write on a region, else 1. A tile whose first writes do not cover it
    exactly once (or that no step writes) is zeroed before, and then beta is 1, but for a value from
    elsewhere on a region that no other write overlaps. If the old values of C count
    (:meth:`Problem.uses_old_c`), the caller's beta (None) replaces 0.
    """
    uses_old, replica = problem.uses_old_c(rank), problem.c.partition.replica_of(rank)
    start = None if uses_old else 0.0
    # tile -> region -> the step that found it unwritten
    first: dict[tuple, dict[tuple, tuple[Step, Block]]] = {}
    zeroed: set = set()  # tiles the program zeroes itself
    zeroed_first: set = set()  # tiles that are zeroed before their first write
    # after a Fence other ranks may have added to the tile: it must be prepared before
    fenced = False
    for step in steps:
        kind = type(step)
        if not _WRITES_C.get(kind):
            continue
        if kind is Gemm:
            block = step.block
            if block is None:
                continue
            if block.owner != rank:
                raise UsageError(
                    f"rank {rank} computes into {block!r}, a tile of rank {block.owner}. Compute "
                    "into its own (problem.c.own_tiles), and Accumulate partial sums of others."
                )
            blocks = (block,)
        elif kind is Zero:
            zeroed.add(step.block.tile)
            step.beta = start
            continue
        elif kind is Fence:
            fenced = True
            continue
        elif kind is Accumulate and step.block.replica != replica:
            raise UsageError(
                f"rank {rank}, of replica {replica} of C, accumulates into {step.block!r} of "
                f"replica {step.block.replica}. Accumulate into its own: reduce_replicas adds "
                "the others."
            )
        elif kind is Copy and step.block is not None and not fenced:
            blocks = (step.block,)
        elif step.grouped and step.writes():
            blocks = step.writes()
        else:  # of no own block, or after a Fence
            continue
        step.beta, unwritten = start, 0
        for block in blocks:  # all of one tile
            regions = first.get(block.tile)
            if regions is None:
                first[block.tile] = regions = {}
            region = block.rows, block.cols
            if regions.setdefault(region, (step, block))[0] is step:
                unwritten += 1
        if unwritten < len(blocks):  # it adds to all its blocks
            step.beta = 1.0
            if unwritten:
                zeroed_first.add(blocks[0].tile)
    zeros = []
    for tile in problem.c.own_tiles(rank):
        writes = list(first.get(tile.tile, {}).values())
        written = [block for _, block in writes]
        if tile.tile not in zeroed:
            if tile.tile not in zeroed_first and _covers(tile, written):
                continue
            zeros.append(Zero(tile))
            zeros[-1].beta = start
        received = any(type(step) is not Gemm for step, _ in writes)
        onto = uses_old or (received and not _disjoint(written))
        for step, _ in writes:
            if onto or type(step) is Gemm:
                step.beta = 1.0
    return zeros


#: Whether a step may be the first write of an own tile, or decide what is.
_WRITES_C = table_of_steps(
    "first writes of a trace",
    {
        (Gemm, Copy, Zero, Fence, Accumulate, Reduce, ReduceScatter): True,
        # into the tiles of others, onto values, or after a first write
        (*READS, Put, ReplicaAdd, Add, *SIGNAL_STEPS, Scratch, *VIEWS, OperationEnd): False,
        (Shift, Broadcast, AllGather): False,
    },
)


def _order_concurrent(steps: list, written: str) -> None:
    """Make a group step that reads or writes elements of an own tile wait for earlier computes and
    group steps that write them, and these for it; likewise a reduction during computes, and one sum
    after another.

    Computes run one after another anyway, and one-sided steps run after Fences.
    """
    kinds = {}
    for step in steps:
        if step.grouped:
            if step.matrix == written:
                kinds[step] = "sum" if step.sums else "read"
        elif step.block is not None and (step.computes or step.concurrent):
            kinds[step] = "side" if step.concurrent else "compute"
    present = set(kinds.values())
    if len(present) < 2 and "sum" not in present:
        return
    # by kind and tile: blocks of different tiles have nothing in common
    seen: dict[tuple, list[tuple[Step, Block]]] = {}
    others = {
        kind: [other for other in present if other != kind or kind == "sum"] for kind in present
    }
    for step, kind in kinds.items():
        blocks = step.reads() or step.writes()
        for block in blocks:
            tile = block.matrix, block.replica, block.tile
            for other_kind in others[kind]:
                for other, theirs in seen.get((other_kind, *tile), ()):
                    if block.overlaps(theirs) and other not in step.inputs:
                        step.inputs += (other,)
                        other.uses += 1
        for block in blocks:
            seen.setdefault((kind, block.matrix, block.replica, block.tile), []).append(
                (step, block)
            )


def _covers(tile: Block, regions: list[Block]) -> bool:
    """True if the regions are disjoint and fill the tile.

    Examples
    --------
    >>> make = lambda *bounds: Block("C", 0, 0, (0, 0), *bounds)
    >>> tile, left, right, low = (
    ...     make(0, 4, 0, 4),
    ...     make(0, 4, 0, 2),
    ...     make(0, 4, 2, 4),
    ...     make(2, 4, 0, 4),
    ... )
    >>> _covers(tile, [right, left]), _covers(tile, [left, low]), _covers(tile, [left])
    (True, False, False)
    """
    # of equal area: they fill the tile exactly if no two overlap
    return sum(region.size for region in regions) == tile.size and _disjoint(regions)


def _disjoint(regions: list[Block]) -> bool:
    """True if no two regions overlap: a sweep down the rows over the regions' columns."""
    regions = [region for region in regions if region.size]
    # at one row, regions that end are removed before others are added
    events = sorted(
        [(r.row0, 1, r.col0, r.col1) for r in regions]
        + [(r.row1, 0, r.col0, r.col1) for r in regions]
    )
    columns: list[tuple[int, int]] = []  # of the regions the sweep line crosses, from left to right
    for _, enters, col0, col1 in events:
        at = bisect_left(columns, (col0, col1))
        if not enters:
            del columns[at]
        elif (at and columns[at - 1][1] > col0) or (at < len(columns) and columns[at][0] < col1):
            return False
        else:
            columns.insert(at, (col0, col1))
    return True
