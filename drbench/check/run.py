"""The programs of all ranks run step by step, not on numbers but on what these stand for: which
element of A or B a value is, or which products it is the sum of.

Each rank runs its steps in the order of its program and waits at each until it is finished. If that
comes to its end then so does every look-ahead, since the scheduler only lets steps start earlier;
and without a race (:mod:`drbench.check.order`) every order has the same values.
"""

from collections import Counter
from collections.abc import Sequence
from functools import singledispatchmethod
from typing import Any

import numpy as np

from drbench.errors import UsageError
from drbench.program.group_steps import Broadcast, Shift
from drbench.program.signal_steps import Signal
from drbench.program.steps import (
    Accumulate,
    Add,
    Copy,
    Fence,
    FilledScratch,
    Gemm,
    Get,
    Join,
    Pack,
    Part,
    Put,
    Scratch,
    Step,
    Zero,
)
from drbench.program.trace import Trace
from drbench.texts import plural

from .findings import Fault
from .memory import SymbolicMemory
from .products import Multiplied, unwritten

Value = np.ndarray


class Run:
    """A run of the programs of all ranks.

    Attributes
    ----------
    memory : SymbolicMemory
    gemms : list of Multiplied
        The GEMMs that were done.
    """

    def __init__(self, traces: Sequence[Trace]):
        self.traces, self.memory = traces, SymbolicMemory(traces[0].problem)
        self.products = self.memory.products
        self.gemms: list[Multiplied] = []
        self._values: list[list[Any]] = [[None] * len(trace.steps) for trace in traces]
        self._at = [0] * len(traces)  # the step that each rank has come to
        self._sent: dict[tuple, tuple[Value, int, Step]] = {}  # by name: value, rank and step
        self._met: dict[tuple, dict[int, Step]] = {}  # (group, which of its steps) -> who has come
        self._passed: Counter = Counter()  # (group, rank) -> its steps that are finished

    # -- order

    def to_end(self) -> None:
        """Run all steps.

        Raises
        ------
        Fault
            At the first one, or if no rank can go on.
        """
        moving = True
        while moving:
            moving = False
            for rank, trace in enumerate(self.traces):
                while self._at[rank] < len(trace.steps):
                    step = trace.steps[self._at[rank]]
                    if self._waits(rank, step):
                        break
                    if step.group is None:
                        self._values[rank][step.index] = self._do(step, rank)
                    self._at[rank] += 1
                    moving = True
        left = [
            (rank, trace.steps[at])
            for rank, (trace, at) in enumerate(zip(self.traces, self._at))
            if at < len(trace.steps)
        ]
        if left:
            waits = [f"rank {rank} waits for {self._waits(rank, step)}" for rank, step in left[:3]]
            text = f"{plural(len(left), 'rank')} cannot go on: {'; '.join(waits)}"
            raise Fault("deadlock", text, left)

    def _waits(self, rank: int, step: Any) -> str:
        """What a step waits for; nothing if it can be done now. Only who uses the value of an Await
        waits for it. A step of a group is done when its last member comes to it."""
        for value in (step, *step.inputs):
            waits = (
                value.nonblocking if value is not step else step.signals and not step.nonblocking
            )
            if waits and not value.sends and name_of(rank, value) not in self._sent:
                return f"the value {value.key!r} of rank {value.peer}"
        if step.group is None:
            return ""
        members = step.group.members if step.grouped else range(len(self.traces))
        if rank not in members:
            raise Fault("misplaced", f"rank {rank} is no member of {step.group}", [(rank, step)])
        here = self._met.setdefault((step.group, self._passed[step.group, rank]), {})
        if rank not in here:
            here[rank] = step
            if len(here) == len(members):
                self._meet(here)
        if len(here) < len(members):
            missing = next(member for member in members if member not in here)
            return f"rank {missing} {f'in {step.group}' if step.grouped else 'at a Fence'}"
        self._passed[step.group, rank] += 1
        return ""

    # -- values

    def _take(self, rank: int, step: Step, token: Step) -> Value:
        """The value of a token that a step uses, complete."""
        value = self._value(rank, token)
        if value is None or unwritten(value).any():
            text = f"rank {rank} uses the value of step {token.index}, not all of which is written"
            raise Fault("unwritten", text, [(rank, token), (rank, step)])
        return value

    def _value(self, rank: int, token: Step) -> Any:
        """The value of a token so far; of a Part a view of it, of a Join a copy."""
        if isinstance(token, Part):
            whole = self._value(rank, token.inputs[0])
            within = slice(token.start, token.stop)
            return None if whole is None else whole[within] if token.axis == 0 else whole[:, within]
        if isinstance(token, Join):
            parts = [self._value(rank, value) for value in token.inputs]
            return None if any(x is None for x in parts) else np.concatenate(parts, token.axis)
        if isinstance(token, FilledScratch):
            return self._value(rank, token.inputs[0])
        if token.onto is not None:
            return self._value(rank, token.onto)
        if token.nonblocking:
            return self._received(rank, token)
        return self._values[rank][token.index]

    def _store(self, rank: int, step: Step, token: Any, value: Value, adds: bool) -> None:
        """Write a value into the memory of a token, or add it there."""
        (rows, cols), (height, width) = token.shape, value.shape[:2]
        if (rows, cols) != (height, width):
            text = f"a value of {height}x{width} elements is stored in another of {rows}x{cols}"
            raise Fault("misplaced", text, [(rank, step)])
        self._allocate(rank, token, value.shape[2])
        root, row, col = token.location()
        if isinstance(root, Join):
            whole = self._value(rank, root)
            target = whole[row : row + height, col : col + width]
        else:
            target = self._value(rank, token)
        target[...] = self.products.total(rank, step, target, value) if adds else value
        if isinstance(root, Join):
            cuts = np.cumsum([piece.shape[root.axis] for piece in root.inputs])[:-1]
            for piece, part in zip(root.inputs, np.split(whole, cuts, root.axis)):
                self._store(rank, step, piece, part, False)

    def _allocate(self, rank: int, token: Step, depth: int) -> None:
        """Make the memory of a token, without values yet, if there is none."""
        root = token.location()[0]
        if isinstance(root, Join):
            for piece in root.inputs:
                self._allocate(rank, piece, depth)
        elif self._value(rank, root) is None:
            self._values[rank][root.index] = self.products.unfilled(depth, *root.shape)

    def _received(self, rank: int, step: Any) -> Value:
        """The value of a signal that has come."""
        value, source, sent = self._sent[name_of(rank, step)]
        if value.shape[:2] != tuple(step.shape):
            text = f"rank {rank} expects a value of another shape than it gets"
            raise Fault("misplaced", text, [(source, sent), (rank, step)])
        return value

    # -- steps

    @singledispatchmethod
    def _do(self, step: Step, rank: int) -> Value | None:
        """Do a step of a rank; return its value, if it has one of its own."""
        raise UsageError(f"a check does not know the step {step!r} of rank {rank}.")

    @_do.register
    def _nothing(self, step: Part | Join | FilledScratch | Scratch, rank: int) -> None:
        """A step that only names memory."""

    @_do.register
    def _get(self, step: Get, rank: int) -> Value:
        return self.memory.read(rank, step, step.block)

    @_do.register
    def _pack(self, step: Pack, rank: int) -> None:
        value = self.memory.read(rank, step, step.block)
        rows = Part(step.onto, 0, step.row, step.row + value.shape[0])
        into = Part(rows, 1, step.col, step.col + value.shape[1])
        self._store(rank, step, into, value, False)

    @_do.register
    def _signal(self, step: Signal, rank: int) -> Value | None:
        if step.sends:
            value = self._take(rank, step, step.inputs[0])
            self._sent[name_of(rank, step)] = value.copy(), rank, step
        return None if step.sends or step.nonblocking else self._received(rank, step)

    @_do.register
    def _zero(self, step: Zero, rank: int) -> None:
        self.memory.write(rank, step, step.block, self.products.none(*step.block.shape), step.beta)

    @_do.register
    def _send(self, step: Put | Accumulate, rank: int) -> None:
        value, adds = self._take(rank, step, step.inputs[0]), isinstance(step, Accumulate)
        self.memory.write(rank, step, step.block, value, float(adds))

    @_do.register
    def _copy(self, step: Copy, rank: int) -> Value | None:
        value = self._take(rank, step, step.inputs[0])
        return self._put(rank, step, value.copy(), step.beta)

    @_do.register
    def _add(self, step: Add, rank: int) -> Value | None:
        values = (self._take(rank, step, term) for term in step.terms)
        return self._put(rank, step, self.products.total(rank, step, *values), 1.0)

    @_do.register
    def _gemm(self, step: Gemm, rank: int) -> Value | None:
        a, b = (self._take(rank, step, token) for token in step.inputs[:2])
        self.gemms.append(self.products.multiplied(rank, step, a, b))
        return self._put(rank, step, self.gemms[-1].sums, step.beta)

    def _put(self, rank: int, step: Step, value: Value, beta: float | None) -> Value | None:
        """Write the result of a compute to where it goes; return it if it is a new value."""
        if step.block is not None:
            self.memory.write(rank, step, step.block, value, beta)
        elif step.onto is not None:
            if beta:
                self._take(rank, step, step.onto)
            self._store(rank, step, step.onto, value, bool(beta))
        else:
            return value
        return None

    # -- groups

    def _meet(self, here: dict[int, Step]) -> None:
        """Do a step of a group to whose place all its members have come."""
        if len(kinds := {type(step) for step in here.values()}) > 1:
            raise Fault("deadlock", "members of a group begin different steps", here.items())
        if Fence in kinds:
            return
        steps: dict[int, Any] = here
        first = next(iter(steps.values()))
        members, given = list(first.group.members), {}
        roots = [fragment.owner for fragment in first.fragments[:1]]
        for rank, step in steps.items():
            owners = [fragment.owner for fragment in step.fragments]
            known = owners in (members, roots, []) and {*owners} <= {*members}
            if not known or (step.own is not None and step.own.owner != rank):
                raise Fault("misplaced", "fragments are not those of the members", here.items())
            if step.sums or isinstance(step, Shift):
                given[rank] = self._take(rank, step, step.inputs[0])
            elif step.own is not None:
                given[rank] = self.memory.read(rank, step, step.own)
        for rank in members:
            self._values[rank][steps[rank].index] = self._left(rank, steps, given)

    def _left(self, rank: int, steps: dict[int, Any], given: dict[int, Value]) -> Value | None:
        """The value of a member of a group, from what all of them give."""
        step = steps[rank]
        if step.sums:
            self._reduce(rank, step, given)
            return None
        if isinstance(step, Shift):
            if steps[step.source].target != rank:
                raise Fault("misplaced", "members shift by different distances", steps.items())
            values = [given[step.source]]
        elif isinstance(step, Broadcast):
            values = [*given.values()]
        else:
            values = [given[member] for member in step.group.members]
        value = np.concatenate(values, step.axis)
        if value.shape[:2] != tuple(step.shape):
            raise Fault("misplaced", "members expect values of other shapes", steps.items())
        return value

    def _reduce(self, rank: int, step: Any, given: dict[int, Value]) -> None:
        """Write a member's part of the sum of all values."""
        if step.own is None:
            return
        total = self.products.total(rank, step, *given.values())
        if len(step.fragments) > 1:
            ends = np.cumsum([fragment.shape[step.axis] for fragment in step.fragments])
            total = np.split(total, ends[:-1], step.axis)[step.group.position]
        self.memory.write(rank, step, step.own, total, step.beta)


def name_of(rank: int, step: Any) -> tuple:
    """The name of a signal: what it is, from where, to where, and its key."""
    ends = (rank, step.peer) if step.sends else (step.peer, rank)
    return step.kind, *ends, step.key
