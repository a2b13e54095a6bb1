"""Runs traces of copies from one layout of a matrix to another: in mapped memory as a few strided
copies, elsewhere as a few messages, each element directly into its place."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from functools import partial
from itertools import groupby
from typing import NamedTuple

import numpy as np
from mpi4py import MPI

from drbench.arrays import address_of
from drbench.mappings import grouped
from drbench.program.kinds import GROUP_STEPS, READS, SIGNAL_STEPS, VIEWS, WRITES, table_of_steps
from drbench.program.steps import Add, Block, Copy, Fence, Gemm, OperationEnd, Scratch, Zero
from drbench.program.trace import Trace

from .copies import Strided, copy_of, in_chunks, joined
from .matrix import DistributedMatrix

#: Most elements of one message; of one that is received in a buffer and then added.
_MOST, _MOST_ADDED = 1 << 24, 1 << 20


#: Whether a step that writes C adds to it; None if it does not write.
_ADDS = table_of_steps(
    "redistributions",
    {
        (Zero, Copy): False,
        Add: True,
        (*READS, *WRITES, Gemm, Fence, Scratch, *VIEWS, OperationEnd): None,
        (*GROUP_STEPS, *SIGNAL_STEPS): None,
    },
)


class _BlockWrite(NamedTuple):
    """A block of C that is copied, or added to, or (without a source) zeroed; ``term`` counts the
    writes of the block."""

    term: int
    into: Block
    source: Block | None


#: A rank whose memory is not mapped, and the writes that need its elements.
_Message = tuple[int, list[_BlockWrite]]


class _Plan(NamedTuple):
    """The writes that may run at once: those with a mapped source; and by owner, in batches, those
    that a message reads into C, and those that are received and added."""

    local: list[_BlockWrite]
    straight: list[_Message]
    added: list[_Message]


class _Stage(NamedTuple):
    """A plan on arrays: copies and sums in place, (owner, moves) of messages that are read into C,
    and (owner, moves, sums) of messages that are received and added."""

    calls: list
    straight: list
    added: list


class Redistributor:
    """One rank's redistribution of A into C, which can be run repeatedly.

    Parameters
    ----------
    trace : Trace
        Of :func:`drbench.program.redistribution.redistribute`.
    matrices : dict of str to DistributedMatrix
        A and C.
    arena : callable
        ``arena(nbytes)`` returns receive memory.

    Notes
    -----
    Blocks in mapped memory are copied in the order of the trace. If other blocks are needed, the
    terms of a pending reduction are added one after the other, so that each element is summed in
    the same order on every rank. All messages of the first term are in flight while this rank
    copies; messages that are added use two buffers.
    """

    remote_reads = None

    def __init__(self, trace: Trace, matrices: dict, arena: Callable[[int], np.ndarray]):
        self.trace = trace
        self._old: DistributedMatrix = matrices["A"]
        self._plans = [*self._make_plans()]
        received = [batch for plan in self._plans for _, batch in plan.added]
        most = max((sum(write.into.size for write in batch) for batch in received), default=0)
        self.arena = arena(2 * most * self._old.dtype.itemsize)
        self._bind(matrices)

    def _bind(self, matrices: dict) -> None:
        """Find the arrays of the plans."""
        self._old, self._new = matrices["A"], matrices["C"]
        self._item = self._new.dtype.itemsize
        self._stages = [
            _Stage(
                [*self._calls(plan.local)],
                [(owner, self._along(self._moves(batch))) for owner, batch in plan.straight],
                [*self._messages_to_add(plan.added)],
            )
            for plan in self._plans
        ]

    def bound(self, matrices: dict) -> "Redistributor":
        """This redistribution on other matrices of the same layout, mapped by the same ranks. It
        reuses the plan and the arena of this one, so the two must not run at the same time."""
        again = copy(self)
        again._bind(matrices)
        return again

    def run(self, alpha: float = 1.0, beta: float = 0.0) -> None:
        """Move all elements; C is overwritten."""
        read = partial(self._old.window.read, self._old.dtype)
        for calls, straight, added in self._stages:
            requests = [read(owner, moves) for owner, moves in straight]
            for call in calls:
                call()
            MPI.Request.Waitall(requests)
            in_flight: deque = deque()
            for owner, moves, sums in added:
                if len(in_flight) == 2:  # the number of buffers
                    _finish(*in_flight.popleft())
                in_flight.append((read(owner, moves), sums))
            while in_flight:
                _finish(*in_flight.popleft())

    # -- the layout

    def _make_plans(self) -> Iterator[_Plan]:
        """The plans, one after the other: one for each term of a pending reduction if some terms
        are not in mapped memory, else one."""
        writes = [*self._writes()]
        stages = [writes]
        if any(map(self._is_remote, writes)):
            term = lambda write: write.term
            stages = [[*stage] for _, stage in groupby(sorted(writes, key=term), term)]
        for number, stage in enumerate(stages):
            local = [write for write in stage if not self._is_remote(write)]
            messages = [*self._messages(stage, _MOST_ADDED if number else _MOST)]
            yield _Plan(local, [], messages) if number else _Plan(local, messages, [])

    def _writes(self) -> Iterator[_BlockWrite]:
        """The writes of the trace."""
        terms: dict[tuple, int] = {}
        for step in self.trace.steps:
            adds = _ADDS[type(step)]
            if adds is not None and step.block.size:
                key = step.block.key
                terms[key] = terms[key] + 1 if adds else 0
                yield _BlockWrite(
                    terms[key], step.block, step.inputs[0].block if step.inputs else None
                )

    def _is_remote(self, write: _BlockWrite) -> bool:
        source = write.source
        return source is not None and self._old.window.in_reach[source.owner] is None

    def _calls(self, local: list[_BlockWrite]) -> Iterator[Callable[[], object]]:
        """The writes in place: copies joined to a few strided ones, and a copy followed by an add
        as a sum of two."""
        view, calls = self._new.view, []
        for write in local:
            if write.source is None:
                calls.append(partial(view(write.into).fill, 0))
            elif not write.term:
                calls.append(write)
            else:
                target, first = view(write.into), view(write.into)
                if (
                    calls
                    and type(calls[-1]) is _BlockWrite
                    and calls[-1].into.key == write.into.key
                ):
                    first = self._old.view(calls.pop().source)
                calls.append(partial(np.add, first, self._old.view(write.source), out=target))
        for kind, run in groupby(calls, type):
            if kind is not _BlockWrite:
                yield from run
                continue
            owner = self._new.window.in_reach, self._old.window.in_reach
            for move in in_chunks(joined(self._moves(run), self._item), self._item):
                yield copy_of(move, self._item, owner)

    def _moves(self, writes: Iterable[_BlockWrite]) -> list:
        """Target and source of each write, as addresses."""
        return [(_at(self._new, write.into), _at(self._old, write.source)) for write in writes]

    def _messages_to_add(self, messages: list[_Message]) -> Iterator[tuple]:
        """Messages that are received and added, in two alternating buffers."""
        item = self._item
        for number, (owner, batch) in enumerate(messages):
            moves, sums, at = [], [], number % 2 * (self.arena.size // 2)
            for write in batch:
                rows, cols = write.into.shape
                part = self.arena[at : at + rows * cols * item].view(self._new.dtype)
                buffer, target = part.reshape(rows, cols), self._new.view(write.into)
                start = address_of(buffer)
                moves.append(
                    (Strided(start, (rows, cols), buffer.strides), _at(self._old, write.source))
                )
                sums.append(partial(np.add, target, buffer, out=target))
                at += part.nbytes
            yield owner, self._along(moves), sums

    def _messages(self, stage: list[_BlockWrite], most: int) -> Iterator[_Message]:
        """The writes from memory that is not mapped, by owner, in batches of limited size."""
        remote = filter(self._is_remote, stage)
        for owner, writes in grouped(remote, lambda write: write.source.owner).items():
            batch: list[_BlockWrite] = []
            size = 0
            for write in writes:
                if batch and size + write.into.size > most:
                    yield owner, batch
                    batch, size = [], 0
                batch.append(write)
                size += write.into.size
            yield owner, batch

    def _along(self, moves: list) -> tuple:
        """A few strided moves, with axes in the order of the source's memory."""
        ordered = []
        for target, source in joined(moves, self._item, local=False):
            axes = sorted(
                zip(source.shape, target.strides, source.strides), key=lambda axis: -axis[2]
            )
            shape, here, there = zip(*axes)
            ordered.append(
                (Strided(target.start, shape, here), Strided(source.start, shape, there))
            )
        return tuple(ordered)


def _at(matrix: DistributedMatrix, block: Block) -> Strided:
    offset, *strides = matrix.locate(block)
    memory = matrix.window.in_reach[block.owner]
    base = 0 if memory is None else address_of(memory)
    return Strided(base + offset, block.shape, tuple(strides))


def _finish(request: MPI.Request, sums: list) -> None:
    request.Wait()
    for add in sums:
        add()
