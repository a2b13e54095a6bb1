"""What a check finds: a fault, and the steps that cause it."""

from collections.abc import Iterable
from typing import NamedTuple

from drbench.program.steps import Step


class Culprit(NamedTuple):
    """A step that takes part in a fault: its rank, its number in the program of that rank, its
    text, and the block of a matrix that it reads or writes, if any."""

    rank: int
    step: int
    text: str
    block: str | None


class ProgramFault(NamedTuple):
    """A fault of a set of programs.

    Attributes
    ----------
    kind : str
        One of :data:`KINDS`.
    text : str
        What is wrong, and where, in a sentence.
    steps : tuple of Culprit
        Steps that cause it, at most :data:`MOST_STEPS` of them.
    """

    kind: str
    text: str
    steps: tuple[Culprit, ...]


#: Kinds of findings, the first found first.
KINDS = {
    "signal": "a signal with one end only, or two of one name",
    "deadlock": "ranks that wait for each other, or for one that has ended",
    "race": "two accesses in no order, of which one writes",
    "unwritten": "a value that is read before it is written",
    "overwritten": "a sum that is overwritten before it is read",
    "misplaced": "a block, a value or a product that does not belong where it is used",
    "missing": "a product that is not in the result",
    "twice": "a product that is in the result more than once",
}
#: Most steps that a finding names.
MOST_STEPS = 6


class Fault(Exception):
    """The end of a run, by a finding."""

    def __init__(self, kind: str, text: str, steps: Iterable[tuple[int, Step]]):
        super().__init__(text)
        self.finding = finding(kind, text, steps)


def finding(kind: str, text: str, steps: Iterable[tuple[int, Step]]) -> ProgramFault:
    """A finding with its steps, given as (rank, step); each is named once."""
    culprits = dict.fromkeys(Culprit(rank, step.index, *_texts(step)) for rank, step in steps)
    return ProgramFault(kind, text, tuple(culprits)[:MOST_STEPS])


def _texts(step: Step) -> tuple[str, str | None]:
    """The text of a step, and of its block."""
    block = step.block or (getattr(step, "own", None) if step.grouped else None)
    return repr(step), None if block is None else repr(block)
