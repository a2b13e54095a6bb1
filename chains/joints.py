"""The parts of a chain's program put together: steps on matrices of other names, and where a Fence
stands between them."""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy

from drbench.program.group_steps import GroupStep, Shift
from drbench.program.steps import Accumulate, Block, Fence, Get, Put, Step


def renamed(steps: list[Step], names: dict[str, str]) -> list[Step]:
    """The steps on matrices of other names; blocks that others may hold stay as they are.

    Examples
    --------
    >>> block = Block("A", 0, 0, (0, 0), 0, 2, 0, 2)
    >>> renamed([Get(block)], {"A": "X"}), block
    ([Get(X[0:2, 0:2]@0)], A[0:2, 0:2]@0)
    """
    found: dict[int, Block] = {}
    held = []  # so that no id is used twice

    def other(block: Block) -> Block:
        made = found.get(id(block))
        if made is None:
            made = found[id(block)] = copy(block)
            made.matrix = names[block.matrix]
            held.append(block)
        return made

    for step in steps:
        if isinstance(step, GroupStep):
            pieces = []
            for piece in step.pieces:
                piece = copy(piece)
                piece.block = other(piece.block)
                pieces.append(piece)
            step.pieces = pieces
            if isinstance(step, Shift) and step.brings is not None:
                step.brings = other(step.brings)
        elif step.block is not None:
            step.block = other(step.block)
        if step.like is not None:
            step.like = names[step.like]
    return steps


def fences(parts: list[list[list[Step]]]) -> list[bool]:
    """For each part of the programs of all ranks, whether a Fence comes before it.

    A part needs one if some rank reads of another, or hands on what it reads of itself, elements
    made since the last Fence; or if these came from others.
    """
    dirty: dict[str, bool] = {}  # matrix made since the last Fence -> others have written it
    found = []
    for ranks in zip(*parts):
        apart: set[str] = set()
        own: set[str] = set()
        made: dict[str, bool] = {}
        fenced = False
        for rank, steps in enumerate(ranks):
            reads, plain, after, has = _touched(steps, rank)
            apart |= reads
            own |= plain
            for name, foreign in after.items():
                made[name] = made.get(name, False) or foreign
            fenced |= has
        needed = any(name in apart or (name in own and dirty[name]) for name in dirty)
        found.append(needed)
        if needed or fenced:
            dirty = {}
        for name, foreign in made.items():
            dirty[name] = dirty.get(name, False) or foreign
    return found


def _touched(steps: Iterable[Step], rank: int) -> tuple[set, set, dict, bool]:
    """Of one rank's part: matrices that it reads of others or hands on; those of which products
    read its own tiles; those written after its last Fence, and whether by others too; whether it
    has a Fence."""
    apart: set[str] = set()
    own: set[str] = set()
    made: dict[str, bool] = {}
    fenced = False
    gets: dict[int, str] = {}
    for step in steps:
        kind = type(step)
        if kind is Fence:
            made, fenced = {}, True
            continue
        if isinstance(step, Get):
            name = step.block.matrix
            if step.block.owner != rank or step.onto is not None:
                apart.add(name)
            else:
                own.add(name)
                gets[id(step)] = name
            continue
        if not step.computes:  # a value read of itself is handed on
            apart.update(gets[id(value)] for value in step.inputs if id(value) in gets)
        if step.grouped and not step.sums:
            apart.update(block.matrix for block in step.reads() if block.transposed)
        for block in step.writes():
            if step.grouped and not step.sums:
                continue
            foreign = step.grouped or step.side or isinstance(step, (Accumulate, Put))
            made[block.matrix] = made.get(block.matrix, False) or foreign
    return apart, own, made, fenced
