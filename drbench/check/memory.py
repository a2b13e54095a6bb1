"""The matrices of all ranks during a check: what each element of each replica is, and who wrote
it."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from drbench.program.group_steps import Fragment
from drbench.program.problem import Operand, Problem
from drbench.program.steps import Accumulate, Block, Put, Step
from drbench.texts import plural

from .findings import Fault, ProgramFault, finding
from .products import COUNTS, HOME, OLD, SCALED, UNWRITTEN, Multiplied, Products


def owners_of(operand: Operand) -> np.ndarray:
    """The rank that has each element of each replica of a matrix."""
    partition = operand.partition
    owners = np.full((len(partition.places.replicas), *partition.shape), -1)
    for rank in range(partition.nprocs):
        for tile in partition.tiles_of(rank):
            rows, cols = (slice(*bounds) for bounds in partition.tile_bounds(tile))
            owners[partition.replica_of(rank), rows, cols] = rank
    return owners


class SymbolicMemory:
    """A, B and C.

    Attributes
    ----------
    products : Products
    c : ndarray
        The sums of each element of each replica of C.
    """

    def __init__(self, problem: Problem):
        self.problem, self.products = problem, Products(problem)
        self._owners = {operand.name: owners_of(operand) for operand in problem.operands}
        self._numbers, first = {}, 0
        for operand in (problem.a, problem.b):
            rows, cols = operand.partition.shape
            numbers = first + np.arange(rows * cols).reshape(rows, cols, 1)
            self._numbers[operand.name], first = numbers, first + rows * cols
        owners = self._owners["C"]
        used = np.array([problem.uses_old_c(rank) for rank in range(problem.nprocs)])[owners]
        self.c = self.products.none(*owners.shape)
        self.c[..., HOME] = self.products.elements
        self.c[..., OLD], self.c[..., UNWRITTEN] = used, ~used
        self._unread = used
        self._writes: list[tuple[int, Step, tuple]] = []

    def read(self, rank: int, step: Step, block: Block | Fragment) -> np.ndarray:
        """What a rank reads in a block."""
        name, where = self._place(rank, step, block)
        if name != "C":
            return self._numbers[name][where[1:]]
        value = self.c[where]
        if value[..., UNWRITTEN].any():
            text = f"rank {rank} reads {block!r}, not all of which is written"
            raise Fault("unwritten", text, [(rank, step)])
        self._unread[where] = False
        return value

    def write(
        self,
        rank: int,
        step: Step,
        block: Block | Fragment,
        value: np.ndarray,
        beta: float | None,
    ) -> None:
        """Write a value plus beta times the old one (None: the caller's beta) into a block of C."""
        name, where = self._place(rank, step, block)
        if name != "C" or (block.owner != rank and not isinstance(step, Put | Accumulate)):
            raise Fault("misplaced", f"rank {rank} computes into {block!r}", [(rank, step)])
        old, home = self.c[where], self.products.elements[where[1:]]
        self._check_fit(rank, step, block, value, home)
        lost = (old[..., SCALED:] > 0).any(axis=2)
        if beta == 1:
            if (unwritten := np.argwhere(old[..., UNWRITTEN])).size:
                name = self.products.element(home[tuple(unwritten[0])])
                text = f"rank {rank} adds to {name}, which is not written before"
                raise Fault("unwritten", text, [(rank, step)])
            value, lost = self.products.total(rank, step, old, value), np.zeros(0)
        elif beta == 0:
            lost = self._unread[where] & (lost | (old[..., OLD] > 0))
        else:
            value = value.copy()
            value[..., SCALED] += old[..., OLD]
        if lost.any():
            i, j = np.argwhere(lost)[0]
            row, col = int(where[1][i, 0]), int(where[2][0, j])
            text = f"rank {rank} overwrites the sum in C[{row}, {col}] of rank {block.owner}"
            before = self._writers([where[0]], row, col)[-2:]
            raise Fault("overwritten", text, [*before, (rank, step)])
        self.c[where] = value
        self.c[(*where, HOME)] = home
        self._unread[where] = True
        self._writes.append((rank, step, where))

    def _check_fit(
        self, rank: int, step: Step, block: Any, value: np.ndarray, home: np.ndarray
    ) -> None:
        """Raise a Fault unless a value is of the elements of a block."""
        if value.shape != (*home.shape, self.c.shape[3]):
            text = f"a value that does not fit goes into {block!r}"
            raise Fault("misplaced", text, [(rank, step)])
        misplaced = np.argwhere((value[..., HOME] >= 0) & (value[..., HOME] != home))
        if misplaced.size:
            x = tuple(misplaced[0])
            source, other = map(self.products.element, (value[..., HOME][x], home[x]))
            raise Fault("misplaced", f"a sum of {source} goes into {other}", [(rank, step)])

    def _place(self, rank: int, step: Step, block: Block | Fragment) -> tuple[str, tuple]:
        """The matrix of a block, and the index of its elements there."""
        ranges: Any = block.rows, block.cols
        if isinstance(block, Fragment):
            whole = block.block
        else:
            whole, ranges = block, ([block.rows], [block.cols])
        rows, cols = (np.array([x for bounds in of for x in range(*bounds)], int) for of in ranges)
        owners = self._owners[whole.matrix]
        indices: tuple = ([whole.replica], rows, cols)
        for numbers, extent in zip(indices, owners.shape):
            if not all(0 <= x < extent for x in numbers):
                text = f"{block!r} is not inside its matrix"
                raise Fault("misplaced", text, [(rank, step)])
        where: tuple = (whole.replica, *np.ix_(rows, cols))
        others = owners[where][owners[where] != whole.owner]
        if others.size:
            text = f"{block!r} has elements of rank {others[0]}, in replica {whole.replica}"
            raise Fault("misplaced", text, [(rank, step)])
        return whole.matrix, where

    def _writers(self, replicas: Sequence[int], row: int, col: int) -> list[tuple[int, Step]]:
        """Steps that wrote an element of some replicas of C, the first one first."""
        return [
            (rank, step)
            for rank, step, (replica, rows, cols) in self._writes
            if replica in replicas and row in rows and col in cols
        ]

    # -- the result

    def findings(self, gemms: Sequence[Multiplied], everywhere: bool) -> Iterator[ProgramFault]:
        """What is wrong in the result, in each copy of C or in the first one."""
        terms: dict[int, list[int]] = {}
        for replica in range(len(self.c)):
            terms.setdefault(self.problem.c.partition.term_of(replica), []).append(replica)
        for replicas in [*zip(*terms.values())][: None if everywhere else 1]:
            total, due = self.c[[*replicas]].sum(axis=0), self.products.due[:, None, :]
            counts, scaled = total[..., COUNTS:], len(replicas) * self.problem.updates
            if (counts < due).any():
                yield self._wrong("missing", counts < due, replicas, gemms)
            elif (unwritten := np.argwhere(self.c[[*replicas]][..., UNWRITTEN])).size:
                x, row, col = unwritten[0]
                name = self._name(replicas[x], row, col)
                yield finding("unwritten", f"{name} is not written at the end", ())
            elif (wrong := np.argwhere(total[..., [OLD, SCALED]] != [0, scaled])).size:
                row, col, _ = wrong[0]
                text = f"C[{row}, {col}] has its old value without beta, or not at all"
                yield finding("missing", text, self._writers(replicas, row, col))
            if (counts > due).any():
                yield self._wrong("twice", counts > due, replicas, gemms)

    def _wrong(
        self, kind: str, where: np.ndarray, replicas: Sequence[int], gemms: Sequence[Multiplied]
    ) -> ProgramFault:
        """The finding of wrong counts of products."""
        row, col, number = np.argwhere(where)[0]
        product, of_a, of_b = self.products.named(row, number, col)
        culprits = [
            (gemm.rank, gemm.step)
            for gemm in gemms
            if of_a in gemm.of_a and of_b in gemm.of_b and col in gemm.cols
        ]
        more, name = int(where.sum()) - 1, self._name(replicas[0], row, col)
        others = f", and {plural(more, 'more product')}" if more else ""
        if kind == "twice":
            culprits += self._writers(replicas, row, col)
            return finding(kind, f"{name} has {product} more than once{others}", culprits)
        why = "what these multiply does not come there" if culprits else "no rank multiplies it"
        return finding(kind, f"{name} lacks {product}{others}: {why}", culprits)

    def _name(self, replica: int, row: int, col: int) -> str:
        """The name of an element of a replica of C."""
        return f"C[{row}, {col}]@{self._owners['C'][replica, row, col]}"
