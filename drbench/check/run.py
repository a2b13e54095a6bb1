"""The programs of all ranks run step by step, not on numbers but on what these stand for: which
element of A or B a value is, or which products it is the sum of.

Each rank runs its steps in the order of its program and waits at each until it is finished. If that
comes to its end then so does every look-ahead, since the scheduler only lets steps start earlier;
and without a race (:mod:`drbench.check.order`) every order has the same values.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import singledispatchmethod
from typing import Any

import numpy as np

from drbench.errors import UsageError
from drbench.program.group_steps import AllGather, Broadcast, Fragment, GroupStep, Shift
from drbench.program.problem import Problem
from drbench.program.signal_steps import Signal
from drbench.program.steps import (
    Accumulate,
    Add,
    Block,
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

from .findings import Fault, Finding, finding

#: What is stored of an element of a sum: whether it was not written, the element of C that it
#: belongs to, whether the value of C before the run is in it, as it was and times beta, and how
#: often each product is.
_UNWRITTEN, _HOME, _OLD, _SCALED, _PRODUCTS = range(5)


class Products:
    """The products that each element of C is the sum of. Those of A's row r and a block of B are in
    a slot: number ``slot * k + l`` is A[r, l] times row l of the block.

    Attributes
    ----------
    home, slot : ndarray of int, shape (rows of A, blocks of B)
        The row of C that they belong to, and their slot there; -1 if they are in none.
    rows : ndarray of int, shape (rows of C)
        For each row the first one that has the same products.
    due : ndarray of int, shape (rows of C, slots * k)
        How often each is to be there.
    """

    def __init__(self, problem: Problem):
        rows = problem.c.partition.shape[0]
        terms: list[list[tuple[int, int]]] = [[] for _ in range(rows)]
        for (start, stop), (top, _), block in problem.gemms():
            for row in range(start, stop):
                terms[row].append((top + row - start, block))
        shape = problem.a.partition.shape[0], problem.b.partition.shape[0] // problem.k
        self.k, self.terms = problem.k, terms
        self.home, self.slot = np.full(shape, -1), np.full(shape, -1)
        self.rows = np.arange(rows)
        self.due = np.zeros((rows, problem.k * max(map(len, terms))), np.int32)
        for row, pairs in enumerate(terms):
            for slot, pair in enumerate(pairs):
                if self.home[pair] < 0:
                    self.home[pair], self.slot[pair] = row, slot
            self.rows[row] = self.home[pairs[0]]
            self.due[row, : len(pairs) * problem.k] = 1

    def text(self, row: int, number: int, column: int) -> tuple[str, int, int]:
        """A product of a row of C as text, and its rows of A and B."""
        slot, l = divmod(number, self.k)
        of_a, block = self.terms[row][slot]
        of_b = block * self.k + l
        return f"A[{of_a}, {l}]·B[{of_b}, {column}]", of_a, of_b


class Run:
    """A run of the programs of all ranks.

    Parameters
    ----------
    traces : sequence of Trace
        Of all ranks, in their order.
    everywhere : bool
        Every copy of C gets the result, not only the first one.
    """

    def __init__(self, traces: Sequence[Trace], everywhere: bool = False):
        self.traces, self.everywhere, self.problem = traces, everywhere, traces[0].problem
        problem, self.products = self.problem, Products(self.problem)
        self.values: list[list[Any]] = [[None] * len(trace.steps) for trace in traces]
        self.at = [0] * len(traces)  # the step that each rank has come to
        self.sent: dict[tuple, tuple] = {}  # (kind, from, to, key) -> the value of a signal
        self.met: dict[tuple, dict[int, Step]] = {}  # (group, which of its steps) -> who has come
        self.passed: Counter = Counter()  # (group, rank) -> its steps that are finished
        self.gemms: list[tuple] = []  # rank, step, rows of A and of B, columns
        self.writes: list[tuple] = []  # rank, step, replica, rows, columns
        elements = [int(np.prod(each.partition.shape)) for each in problem.operands]
        self.first_of_b = elements[0]
        self.owner, self.memory = {}, {}
        numbers = {"A": np.arange(elements[0]), "B": np.arange(elements[1]) + elements[0]}
        for operand in problem.operands:
            partition = operand.partition
            shape = len(partition.places.replicas), *partition.shape
            self.owner[operand.name] = np.full(shape, -1)
            for rank in range(problem.nprocs):
                for tile in partition.tiles_of(rank):
                    (top, end), (left, side) = partition.tile_bounds(tile)
                    where = partition.replica_of(rank), slice(top, end), slice(left, side)
                    self.owner[operand.name][where] = rank
            if operand.name in numbers:
                values = numbers[operand.name].reshape(*partition.shape, 1)
                self.memory[operand.name] = np.broadcast_to(values, (*shape, 1))
        owner = self.owner["C"]
        self.width = owner.shape[2]
        self.home = self.products.rows[:, None] * self.width + np.arange(self.width)
        c = self.memory["C"] = self.sums(*owner.shape)
        c[..., _HOME] = self.home
        keeps = np.array([problem.keeps(rank) for rank in range(problem.nprocs)])[owner]
        c[..., _OLD], c[..., _UNWRITTEN] = keeps, ~keeps
        self.unread = keeps.copy()

    def sums(self, *shape: int) -> np.ndarray:
        """Sums without products."""
        found = np.zeros((*shape, _PRODUCTS + self.products.due.shape[1]), np.int32)
        found[..., _HOME] = -1
        return found

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
                while self.at[rank] < len(trace.steps):
                    step = trace.steps[self.at[rank]]
                    if self.waits(rank, step):
                        break
                    if step.group is None:
                        self.values[rank][step.index] = self.do(step, rank)
                    self.at[rank] += 1
                    moving = True
        left = [
            (rank, trace.steps[self.at[rank]])
            for rank, trace in enumerate(self.traces)
            if self.at[rank] < len(trace.steps)
        ]
        if left:
            reasons = "; ".join(f"rank {rank} waits for {self.waits(*each)}"
                                for each in left[:3] for rank in each[:1])  # fmt: skip
            raise Fault("deadlock", f"{len(left)} ranks cannot go on: {reasons}", left)

    def waits(self, rank: int, step: Step) -> str:
        """What a step waits for; nothing if it can be done now. A step of a group is done when its
        last member comes to it."""
        for value in (step, *step.inputs):
            if isinstance(value, Signal) and not value.sends and (value is step or value.anytime):
                if not (value is step and step.anytime) and name_of(rank, value) not in self.sent:
                    return f"the value {value.key!r} of rank {value.peer}"
        if step.group is None:
            return ""
        members = step.group.members if step.grouped else range(len(self.traces))
        number = self.passed[step.group, rank]
        here = self.met.setdefault((step.group, number), {})
        if rank not in here:
            here[rank] = step
            if len(here) == len(members):
                self.meet(here)
        if len(here) < len(members):
            return f"rank {next(each for each in members if each not in here)} in {step.group}"
        self.passed[step.group, rank] += 1
        return ""

    # -- values

    def fail(self, kind: str, text: str, rank: int, step: Step, more: Sequence = ()) -> None:
        """Raise a Fault of a step."""
        raise Fault(kind, text, [*more, (rank, step)])

    def take(self, rank: int, step: Step, token: Step) -> np.ndarray:
        """The value of a token that a step uses, complete."""
        value = self.value(rank, token)
        if value is None or (_unwritten(value)).any():
            text = f"rank {rank} uses the value of step {token.index}, not all of which is written"
            self.fail("unwritten", text, rank, step, [(rank, token)])
        return value

    def value(self, rank: int, token: Step) -> Any:
        """The value of a token so far; of a Part a view of it, of a Join a copy."""
        if isinstance(token, Part):
            whole = self.value(rank, token.inputs[0])
            within = slice(token.start, token.stop)
            return None if whole is None else whole[within] if token.axis == 0 else whole[:, within]
        if isinstance(token, Join):
            parts = [self.value(rank, each) for each in token.inputs]
            return None if any(x is None for x in parts) else np.concatenate(parts, token.axis)
        if isinstance(token, FilledScratch):
            return self.value(rank, token.inputs[0])
        if token.onto is not None:
            return self.value(rank, token.onto)
        if token.anytime:  # it has come, or a step would wait for it
            return self.received(rank, token)
        return self.values[rank][token.index]

    def store(self, rank: int, step: Step, token: Step, value: np.ndarray, adds: bool) -> None:
        """Write a value into the memory of a token, or add it there."""
        if value.shape[:2] != tuple(token.shape):
            text = f"a value of {value.shape[0]}x{value.shape[1]} elements is stored in another of"
            self.fail("misplaced", f"{text} {token.shape[0]}x{token.shape[1]}", rank, step)
        self.allocate(rank, token, value.shape[2])
        root, row, col = token.location()
        if isinstance(root, Join):
            whole = self.value(rank, root)
            part = whole[row : row + value.shape[0], col : col + value.shape[1]]
            part[...] = self.sum(rank, step, part, value) if adds else value
            cuts = np.cumsum([each.shape[root.axis] for each in root.inputs])[:-1]
            for each, part in zip(root.inputs, np.split(whole, cuts, root.axis)):
                self.store(rank, step, each, part, False)
            return
        target = self.value(rank, token)
        target[...] = self.sum(rank, step, target, value) if adds else value

    def allocate(self, rank: int, token: Step, depth: int) -> None:
        """Make the memory of a token, without values yet, if there is none."""
        root = token.location()[0]
        if isinstance(root, Join):
            for each in root.inputs:
                self.allocate(rank, each, depth)
        elif self.values[rank][root.index] is None:
            empty = self.values[rank][root.index] = np.full((*root.shape, depth), -1, np.int32)
            if depth > 1:
                empty[...] = self.sums(*root.shape)
                empty[..., _UNWRITTEN] = 1

    def sum(self, rank: int, step: Step, *values: np.ndarray) -> np.ndarray:
        """The sum of sums of the same elements of C."""
        total = values[0].copy()
        for value in values[1:]:
            if value.shape != total.shape or value.shape[2] == 1:
                self.fail("misplaced", "values that do not fit are added", rank, step)
            homes = total[..., _HOME], value[..., _HOME]
            apart = (homes[0] >= 0) & (homes[1] >= 0) & (homes[0] != homes[1])
            if apart.any():
                x = tuple(np.argwhere(apart)[0])
                text = f"sums of {self.element(homes[0][x])} and {self.element(homes[1][x])}"
                self.fail("misplaced", f"{text} are added", rank, step)
            home = np.maximum(*homes)
            total += value
            total[..., _HOME] = home
        return total

    def element(self, home: int) -> str:
        """The name of an element of C."""
        return f"C[{home // self.width}, {home % self.width}]"

    # -- matrices

    def read(self, rank: int, step: Step, block: Block | Fragment) -> np.ndarray:
        """The value of a block."""
        name, where = self.where(rank, step, block)
        value = self.memory[name][where]
        if name == "C":
            if value[..., _UNWRITTEN].any():
                text = f"rank {rank} reads {block!r}, not all of which is written"
                self.fail("unwritten", text, rank, step)
            self.unread[where] = False
        return value

    def write(self, rank: int, step: Step, block: Block | Fragment, value, beta) -> None:
        """Write a value plus beta times the old one (None: the caller's beta) into a block of
        C."""
        name, where = self.where(rank, step, block)
        if name != "C" or (block.owner != rank and not isinstance(step, Put | Accumulate)):
            self.fail("misplaced", f"rank {rank} computes into {block!r}", rank, step)
        old, home = self.memory["C"][where], self.home[where[1:]]
        if value.shape != old.shape:
            self.fail("misplaced", f"a value that does not fit goes into {block!r}", rank, step)
        apart = (value[..., _HOME] >= 0) & (value[..., _HOME] != home)
        if apart.any():
            x = tuple(np.argwhere(apart)[0])
            text = (
                f"a sum of {self.element(value[..., _HOME][x])} goes into {self.element(home[x])}"
            )
            self.fail("misplaced", text, rank, step)
        summed = (old[..., _SCALED:] > 0).any(axis=2)
        if beta == 1 and (unwritten := old[..., _UNWRITTEN] > 0).any():
            x = tuple(np.argwhere(unwritten)[0])
            text = f"rank {rank} adds to {self.element(home[x])}, which is not written before"
            self.fail("unwritten", text, rank, step)
        lost = self.unread[where] & (summed | (old[..., _OLD] > 0)) if beta == 0 else None
        if beta is None:
            lost = summed
            value = value.copy()
            value[..., _SCALED] += old[..., _OLD]
        if lost is not None and lost.any():
            x = tuple(np.argwhere(lost)[0])
            row, col = (int(each.flat[i]) for each, i in zip(where[1:], x))
            text = f"rank {rank} overwrites the sum in C[{row}, {col}] of rank {block.owner}"
            earlier = self.writers(int(where[0]), row, col)
            self.fail("overwritten", text, rank, step, earlier[-2:])
        new = self.sum(rank, step, old, value) if beta == 1 else value
        self.memory["C"][where] = new
        self.memory["C"][where + (_HOME,)] = home
        self.unread[where] = True
        self.writes.append((rank, step, where))

    def where(self, rank: int, step: Step, block: Block | Fragment) -> tuple[str, tuple]:
        """The matrix of a block, and the index of its elements there."""
        whole = block.block if isinstance(block, Fragment) else block
        ranges = (block.rows, block.cols) if isinstance(block, Fragment) else (
            (block.rows,), (block.cols,))  # fmt: skip
        rows, cols = (
            np.concatenate([np.arange(*each) for each in along]).astype(int)
            if along
            else np.zeros(0, int)
            for along in ranges
        )
        owner = self.owner[whole.matrix]
        inside = 0 <= whole.replica < len(owner) and all(
            not x.size or (x.min() >= 0 and x.max() < extent)
            for x, extent in zip((rows, cols), owner.shape[1:])
        )
        if not inside:
            self.fail("misplaced", f"{block!r} is not inside its matrix", rank, step)
        where = (np.intp(whole.replica), *np.ix_(rows, cols))
        owners = owner[where]
        if (owners != whole.owner).any():
            other = owners[owners != whole.owner][0]
            text = f"{block!r} has elements of rank {other}, in replica {whole.replica}"
            self.fail("misplaced", text, rank, step)
        return whole.matrix, where

    def writers(self, replica: int, row: int, col: int) -> list[tuple[int, Step]]:
        """Steps that wrote an element of C, the first one first."""
        return [
            (rank, step)
            for rank, step, (copy, rows, cols) in self.writes
            if copy == replica and row in rows and col in cols
        ]

    # -- steps

    @singledispatchmethod
    def do(self, step: Step, rank: int) -> Any:
        """Do a step of a rank; return its value, if it has one of its own."""
        raise UsageError(f"a check does not know the step {step!r} of rank {rank}.")

    @do.register(Part)
    @do.register(Join)
    @do.register(FilledScratch)
    @do.register(Scratch)
    def _(self, step, rank):
        return None

    @do.register
    def _(self, step: Get, rank):
        return self.read(rank, step, step.block)

    @do.register
    def _(self, step: Pack, rank):
        value = self.read(rank, step, step.block)
        height, width = value.shape[:2]
        rows = Part(step.onto, 0, step.row, step.row + height)
        self.store(rank, step, Part(rows, 1, step.col, step.col + width), value, False)

    @do.register
    def _(self, step: Signal, rank):
        if step.sends:
            value = self.take(rank, step, step.inputs[0])
            self.sent[name_of(rank, step)] = value.copy(), (rank, step)
        elif not step.anytime:
            return self.received(rank, step)
        return None

    def received(self, rank: int, step: Signal) -> np.ndarray:
        """The value of a signal that has come."""
        value, sender = self.sent[name_of(rank, step)]
        if value.shape[:2] != tuple(step.shape):
            text = f"rank {rank} expects a value of another shape than it gets"
            self.fail("misplaced", text, rank, step, [sender])
        return value

    @do.register
    def _(self, step: Zero, rank):
        self.write(rank, step, step.block, self.sums(*step.block.shape), step.beta)

    @do.register
    def _(self, step: Put, rank):
        self.write(rank, step, step.block, self.take(rank, step, step.inputs[0]), 0)

    @do.register
    def _(self, step: Accumulate, rank):
        self.write(rank, step, step.block, self.take(rank, step, step.inputs[0]), 1)

    @do.register
    def _(self, step: Copy, rank):
        value = self.take(rank, step, step.inputs[0])
        if step.block is None:
            return value.copy()
        return self.write(rank, step, step.block, value, step.beta)

    @do.register
    def _(self, step: Add, rank):
        value = self.sum(rank, step, *(self.take(rank, step, each) for each in step.terms))
        return self.put(rank, step, value, 1)

    @do.register
    def _(self, step: Gemm, rank):
        return self.put(rank, step, self.multiplied(rank, step), step.beta)

    def put(self, rank: int, step: Step, value: np.ndarray, beta) -> np.ndarray | None:
        """Write the result of a compute to where it goes; return it if it is a new value."""
        if step.block is not None:
            return self.write(rank, step, step.block, value, beta)
        if step.onto is None:
            return value
        if beta:
            self.take(rank, step, step.onto)
        return self.store(rank, step, step.onto, value, bool(beta))

    def multiplied(self, rank: int, step: Gemm) -> np.ndarray:
        """The products of a GEMM."""
        a, b = (self.take(rank, step, token) for token in step.inputs[:2])
        k, n = self.products.k, self.width
        if not (a.shape[2] == b.shape[2] == 1 and a.shape[1] == b.shape[0]):
            self.fail("misplaced", "a GEMM multiplies values that do not fit", rank, step)
        value = self.sums(a.shape[0], b.shape[1])
        if not (a.size and b.size):
            return value
        a, b = a[..., 0], b[..., 0] - self.first_of_b
        if (a >= self.first_of_b).any() or (b < 0).any():
            self.fail("misplaced", "a GEMM does not multiply A by B", rank, step)
        rows, along, across, cols = a[:, 0] // k, a[0] % k, b[:, 0] // n, b[0] % n
        boxes = (a == rows[:, None] * k + along).all() and (b == across[:, None] * n + cols).all()
        if not boxes:
            self.fail("misplaced", "an operand is not of whole rows and columns", rank, step)
        if (along != across % k).any():
            x = np.flatnonzero(along != across % k)[0]
            text = f"column {along[x]} of A is multiplied by row {across[x]} of B"
            self.fail("misplaced", text, rank, step)
        home, slot = (each[rows[:, None], across // k] for each in
                      (self.products.home, self.products.slot))  # fmt: skip
        if (home != home[:, :1]).any() or (home < 0).any():
            x, y = np.argwhere((home != home[:, :1]) | (home < 0))[0]
            text = f"row {rows[x]} of A times row {across[y]} of B is in no sum, or in another one"
            self.fail("misplaced", text, rank, step)
        value[..., _HOME] = home[:, :1] * n + cols
        number = _PRODUCTS + slot * k + along
        x, y = np.arange(len(rows))[:, None, None], np.arange(len(cols))[None, :, None]
        np.add.at(value, (x, y, number[:, None, :]), 1)
        self.gemms.append((rank, step, rows, across, cols))
        return value

    # -- groups

    def meet(self, here: dict[int, Step]) -> None:
        """Do a step of a group to whose place all its members have come."""
        kinds = {type(step) for step in here.values()}
        if len(kinds) > 1:
            raise Fault("deadlock", "members of a group begin different steps", here.items())
        if Fence in kinds:
            return
        steps: dict[int, Any] = here
        one = next(iter(steps.values()))
        members = one.group.members
        reads, given = isinstance(one, Broadcast | AllGather), {}
        for rank, step in steps.items():
            if not isinstance(step, Shift):
                owners = [each.owner for each in step.fragments]
                if owners != list(members) and (
                    len(owners) > 1 or owners != [one.fragments[0].owner]
                ):
                    raise Fault("misplaced", "fragments are not those of the members", here.items())
            if not reads:
                given[rank] = self.take(rank, step, step.inputs[0])
            elif step.own is not None:
                given[rank] = self.read(rank, step, step.own)
        for rank in members:
            self.values[rank][steps[rank].index] = self.left(rank, steps, given)

    def left(self, rank: int, steps: dict[int, Any], given: dict[int, np.ndarray]) -> Any:
        """The value of a member of a group, from what all of them give."""
        step = steps[rank]
        if isinstance(step, Shift):
            if steps[step.source].target != rank:
                raise Fault("misplaced", "members shift by different distances", steps.items())
            value = given[step.source].copy()
        elif isinstance(step, Broadcast):
            value = next(iter(given.values())).copy()
        elif isinstance(step, AllGather):
            value = np.concatenate([given[each] for each in step.group.members], step.axis)
        else:
            return self.reduced(rank, step, given)
        if value.shape[:2] != tuple(step.shape):
            raise Fault("misplaced", "members expect values of other shapes", steps.items())
        return value

    def reduced(self, rank: int, step: GroupStep, given: dict[int, np.ndarray]) -> None:
        """Write a member's part of the sum of all values."""
        if step.own is None:
            return
        total = self.sum(rank, step, *given.values())
        if len(step.fragments) > 1:
            ends = np.cumsum([each.shape[step.axis] for each in step.fragments])
            total = np.split(total, ends[:-1], step.axis)[step.group.position]
        self.write(rank, step, step.own, total, step.beta)

    # -- the result

    def result(self) -> Iterator[Finding]:
        """The first product that is missing in C, and the first that is there twice."""
        terms, due = self.problem.c.partition.places.terms or (0,) * len(self.owner["C"]), (
            self.products.due[:, None, :])  # fmt: skip
        copies = [[q for q, each in enumerate(terms) if each == term] for term in sorted({*terms})]
        for together in [*zip(*copies)][: None if self.everywhere else 1]:
            terms_of = self.memory["C"][list(together)]
            total = terms_of.sum(axis=0)
            count = total[..., _PRODUCTS:]
            if (count < due).any():
                yield self.wrong("missing", count < due, together)
            elif (total[..., _UNWRITTEN] > 0).any():
                replica, row, col = map(int, np.argwhere(terms_of[..., _UNWRITTEN])[0])
                rank = self.owner["C"][together[replica], row, col]
                yield finding("unwritten", f"C[{row}, {col}]@{rank} is not written at the end", ())
            if (count > due).any():
                yield self.wrong("twice", count > due, together)
            kept = (total[..., _SCALED] != self.problem.updates * len(together)) | (
                total[..., _OLD] > 0)  # fmt: skip
            if kept.any() and not (count < due).any():
                row, col = map(int, np.argwhere(kept)[0])
                text = f"C[{row}, {col}] has its old value without beta, or not at all"
                yield finding("missing", text, self.all_writers(together, row, col))

    def wrong(self, kind: str, where: np.ndarray, together: Sequence[int]) -> Finding:
        """The finding of wrong numbers of products."""
        row, col, number = map(int, np.argwhere(where)[0])
        product, of_a, of_b = self.products.text(row, number, col)
        made = [
            (rank, step)
            for rank, step, rows, across, cols in self.gemms
            if of_a in rows and of_b in across and col in cols
        ]
        more, landed = int(where.sum()) - 1, self.all_writers(together, row, col)
        others = f", and {more} more products" if more else ""
        at = f"C[{row}, {col}]@{self.owner['C'][together[0], row, col]}"
        if kind == "twice":
            return finding(kind, f"{at} has {product} more than once{others}", made + landed)
        why = "no rank multiplies it" if not made else "what these multiply does not come there"
        return finding(kind, f"{at} lacks {product}{others}: {why}", made)

    def all_writers(self, together: Sequence[int], row: int, col: int) -> list[tuple[int, Step]]:
        """Steps that wrote an element of some replicas of C."""
        return [each for replica in together for each in self.writers(replica, row, col)]


def name_of(rank: int, step: Signal) -> tuple:
    """The name of a signal: what it is, from where, to where, and its key."""
    ends = (rank, step.peer) if step.sends else (step.peer, rank)
    return step.kind, *ends, step.key


def _unwritten(value: np.ndarray) -> np.ndarray:
    """Where a value is not written."""
    return value[..., 0] < 0 if value.shape[2] == 1 else value[..., _UNWRITTEN] > 0
