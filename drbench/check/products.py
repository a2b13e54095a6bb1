"""The products that a multiplication consists of, and sums of them: arrays that say of each element
which products it is the sum of, in place of its number."""

from typing import NamedTuple

import numpy as np

from drbench.program.problem import Problem
from drbench.program.steps import Step

from .findings import Fault

#: What is stored of an element of a sum: whether it was not written, the element of C that it
#: belongs to, whether the value of C before the run is in it, as it was and times beta, and how
#: often each product is. (Of an element of A or B: its number; -1 if it was not written.)
UNWRITTEN, HOME, OLD, SCALED, COUNTS = range(5)


class Products:
    """The products that each element of C is the sum of. Those of A's row r and a block of B are in
    a slot: number ``slot * k + l`` is A[r, l] times row l of the block.

    Attributes
    ----------
    home, slot : ndarray of int, shape (rows of A, blocks of B)
        The row of C that they belong to, and their slot there; -1 if they are in none.
    elements : ndarray of int, shape (rows and columns of C)
        The element of C that each one is: rows with the same products count as the first of them.
    due : ndarray of int, shape (rows of C, slots * k)
        How often each is to be there.
    """

    def __init__(self, problem: Problem):
        (rows, self.width), self.k = problem.c.partition.shape, problem.k
        self.first_of_b = int(np.prod(problem.a.partition.shape))
        #: Of each row of C: (row of A, block of B), by slot.
        self.pairs: list[list[tuple[int, int]]] = [[] for _ in range(rows)]
        for (start, stop), (top, _), block in problem.gemms():
            for row in range(start, stop):
                self.pairs[row].append((top + row - start, block))
        shape = problem.a.partition.shape[0], problem.b.partition.shape[0] // problem.k
        self.home, self.slot = np.full(shape, -1), np.full(shape, -1)
        self.due = np.zeros((rows, problem.k * max(map(len, self.pairs))), np.int32)
        firsts = []
        for row, pairs in enumerate(self.pairs):
            for slot, pair in enumerate(pairs):
                if self.home[pair] < 0:
                    self.home[pair], self.slot[pair] = row, slot
            firsts.append(self.home[pairs[0]])
            self.due[row, : len(pairs) * problem.k] = 1
        self.elements = np.array(firsts)[:, None] * self.width + np.arange(self.width)

    def named(self, row: int, number: int, column: int) -> tuple[str, int, int]:
        """A product of an element of C as text, and its rows of A and B."""
        slot, l = divmod(number, self.k)
        of_a, block = self.pairs[row][slot]
        of_b = block * self.k + l
        return f"A[{of_a}, {l}]·B[{of_b}, {column}]", of_a, of_b

    def element(self, home: int) -> str:
        """The name of an element of C."""
        return f"C[{home // self.width}, {home % self.width}]"

    def none(self, *shape: int) -> np.ndarray:
        """Sums of no products."""
        sums = np.zeros((*shape, COUNTS + self.due.shape[1]), np.int32)
        sums[..., HOME] = -1
        return sums

    def unfilled(self, depth: int, *shape: int) -> np.ndarray:
        """Values that are not written, as deep as those of A and B (1), or as sums."""
        if depth == 1:
            return np.full((*shape, 1), -1, np.int32)
        sums = self.none(*shape)
        sums[..., UNWRITTEN] = 1
        return sums

    def total(self, rank: int, step: Step, *values: np.ndarray) -> np.ndarray:
        """The sum of values, which must be sums of the same elements of C."""
        total = values[0].copy()
        for value in values[1:]:
            if value.shape != total.shape or value.shape[2] == 1:
                raise Fault("misplaced", "values that do not fit are added", [(rank, step)])
            homes = total[..., HOME].copy(), value[..., HOME]
            differ = np.argwhere((homes[0] >= 0) & (homes[1] >= 0) & (homes[0] != homes[1]))
            if differ.size:
                name, other = (self.element(home[tuple(differ[0])]) for home in homes)
                text = f"sums of {name} and {other} are added"
                raise Fault("misplaced", text, [(rank, step)])
            total += value
            total[..., HOME] = np.maximum(*homes)
        return total

    def multiplied(self, rank: int, step: Step, a: np.ndarray, b: np.ndarray) -> "Multiplied":
        """The products of a GEMM."""

        def refuse(text: str) -> None:
            raise Fault("misplaced", text, [(rank, step)])

        if not (a.shape[2] == b.shape[2] == 1 and a.shape[1] == b.shape[0]):
            refuse("a GEMM multiplies values that do not fit")
        a, b, n, k = a[..., 0], b[..., 0] - self.first_of_b, self.width, self.k
        if (a >= self.first_of_b).any() or (b < 0).any():
            refuse("a GEMM does not multiply A by B")
        sums, none = self.none(a.shape[0], b.shape[1]), np.zeros(0, int)
        if not (a.size and b.size):
            return Multiplied(rank, step, sums, none, none, none)
        rows, along, across, cols = a[:, 0] // k, a[0] % k, b[:, 0] // n, b[0] % n
        if (a != rows[:, None] * k + along).any() or (b != across[:, None] * n + cols).any():
            refuse("an operand is not of whole rows and columns")
        if (others := np.flatnonzero(along != across % k)).size:
            x = others[0]
            refuse(f"column {along[x]} of A is multiplied by row {across[x]} of B")
        home, slot = (of[rows[:, None], across // k] for of in (self.home, self.slot))
        if (differ := np.argwhere((home < 0) | (home != home[:, :1]))).size:
            x, y = differ[0]
            refuse(f"row {rows[x]} of A times row {across[y]} of B is in no sum, or in another one")
        sums[..., HOME] = home[:, :1] * n + cols
        number = COUNTS + slot * k + along
        down, right = np.arange(len(rows))[:, None, None], np.arange(len(cols))[None, :, None]
        np.add.at(sums, (down, right, number[:, None, :]), 1)
        return Multiplied(rank, step, sums, rows, across, cols)


class Multiplied(NamedTuple):
    """The products of a GEMM, as sums; and the rows of A and of B, and the columns of B, that it
    multiplies."""

    rank: int
    step: Step
    sums: np.ndarray
    of_a: np.ndarray
    of_b: np.ndarray
    cols: np.ndarray


def unwritten(value: np.ndarray) -> np.ndarray:
    """Where a value is not written."""
    return value[..., 0] < 0 if value.shape[2] == 1 else value[..., UNWRITTEN] > 0
