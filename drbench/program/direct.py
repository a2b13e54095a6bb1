"""Collectives through shared memory: a program whose shifts, broadcasts, gathers and reductions
become one-sided steps and signals.

:func:`directly` takes a program and yields another of the same kinds of steps, so scheduler,
executor, simulator, explainer and memory plan need not know. What a step of a group becomes, by
where its members are:

=================  =======================================  ======================================
step               members on a node                        members on other nodes
=================  =======================================  ======================================
``Broadcast``      the owner's tile, read in place (Get)    the owner sends the piece to one leader
                                                            a node, whose peers read it there
``AllGather``      all pieces likewise, side by side        likewise, with a leader for each piece
                   (Join); as one array (Gather) where
                   they would cut m or n of a product,
                   or are many short ranges
``Shift``          of an operand: the tile that it brings,  a Get by RMA, or a message
                   read where it lies; of a sum: put into
                   the neighbour's inbox (Push, Await)
``Reduce``,        each rank reads its part of the peers'   a leader adds up its node's parts and
``ReduceScatter``  products where they lie (Offer, Take)    sends the sum
                   and adds them up in one pass (Sum)
=================  =======================================  ======================================

A and B do not change during a run, so whoever reads them waits for nobody. Products are read once
their rank has signalled that they are there, and lie in the inbox, in which nothing is written
twice a run (:mod:`drbench.plan.signals`): no lock, no barrier, no slot that is used again too
early.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Sequence
from itertools import accumulate
from typing import Any

from .group_steps import LONG_RANGE, Broadcast, GroupStep, Piece, Shift
from .signal_steps import Await, Offer, Push, Take
from .steps import Add, Block, Get, Group, Join, Part, Step, joined_shape

#: The axis of a gather along which products go on adding (k), by matrix: cutting it costs next to
#: nothing. A cut of m or n makes BLAS pack the other operand again.
_ALONG_K = {"A": 1, "B": 0}


class Gather(Step):
    """Pieces of tiles, and tokens, copied side by side into one array: the one-sided AllGather.

    Parameters
    ----------
    parts : sequence of Piece or Step
        Stacked (``axis`` 0) or side by side (1). The memory of a piece must be in reach.
    axis : int

    Examples
    --------
    >>> blocks = [Block("B", x, 0, (0, x), 0, 4, 4 * x, 4 * x + 4, 0, 4) for x in range(2)]
    >>> step = Gather([Piece(block) for block in blocks], axis=1)
    >>> step, step.shape, step.moved(0)
    (Gather(B[0:4, 0:4]@0 and 1 more, axis 1), (4, 8), [(1, 16)])
    """

    __slots__ = ("inputs", "parts", "axis", "shape", "like", "transposed")
    counter = "get_bytes"

    def __init__(self, parts: Sequence[Piece | Step], axis: int):
        self.parts, self.axis = parts, axis
        self.inputs = tuple(part for part in parts if isinstance(part, Step))
        self.shape = joined_shape([part.shape for part in parts], axis)
        first = parts[0]
        of = first.block if isinstance(first, Piece) else first
        self.like = of.matrix if isinstance(of, Block) else of.like
        self.transposed = of.transposed

    def reads(self):
        return [block for piece in self._pieces() for block in piece.blocks()]

    def writes(self):
        return ()

    def moved(self, rank):
        return [(each.owner, each.size) for each in self._pieces() if each.owner != rank]

    def _pieces(self) -> list[Piece]:
        return [part for part in self.parts if isinstance(part, Piece)]

    def __repr__(self):
        first = self.parts[0]
        told = repr(first) if isinstance(first, Piece) else f"%{first.index}"
        more = f" and {len(self.parts) - 1} more" if len(self.parts) > 1 else ""
        return f"Gather({told}{more}, axis {self.axis})"


class Sum(Step):
    """Tokens added up into a piece of an own tile, in one pass over panels; the sum takes the place
    of what was there, or (``beta``) is added to it. It runs beside the products, whenever all
    tokens are there."""

    __slots__ = ("inputs", "terms", "piece", "beta")
    side = sums = True

    def __init__(self, tokens: Sequence[Step], into: Piece, after: Sequence[Step] = ()):
        self.terms, self.piece = len(tokens), into
        self.inputs = (*tokens, *after)
        self.beta = 0.0

    @property
    def block(self):
        return self.piece.block

    def writes(self):
        return self.piece.blocks()

    def __repr__(self):
        told = " + ".join(f"%{token.index}" for token in self.inputs[: self.terms])
        return f"Sum({told} -> {self.piece!r}, side)"


Program = Generator[Step, Any, None]
#: Steps that make one value, or several.
Token = Generator[Step, Any, Step]
Tokens = Generator[Step, Any, list]


def directly(program: Program, rank: int, nodes: Sequence[int], written: str = "C") -> Program:
    """A program with its collectives through shared memory, as far as ranks share any.

    Parameters
    ----------
    program : generator of Step
    rank : int
    nodes : sequence of int
        For each rank something that is equal for ranks which reach each other's memory.
    written : str
        The matrix that the program writes, whose tiles are never read as operands are.

    Examples
    --------
    Two ranks share a node. What rank 1 broadcasts is read in its tile; the product is offered to
    rank 1, which adds up both:

    >>> from drbench.program.group_steps import Reduce
    >>> from drbench.program.steps import Gemm
    >>> from drbench.program.trace import trace
    >>> def program(rank):
    ...     row = Group("row", (0, 1), rank)
    ...     a = yield Broadcast(Block("A", 1, 0, (0, 1), 0, 4, 4, 8, 0, 4), row)
    ...     b = yield Get(Block("B", rank, 0, (rank, 0), 4 * rank, 4 * rank + 4, 0, 4, 0, 4))
    ...     product = yield Gemm(a, b)
    ...     yield Reduce(product, Block("C", 1, 0, (0, 1), 0, 4, 4, 8, 0, 4), row)
    >>> for rank in range(2):
    ...     found = trace(directly(program(rank), rank, [0, 0]), None, rank, fresh=False)
    ...     print([type(step).__name__ for step in found.steps])
    ['Get', 'Get', 'Gemm', 'Offer']
    ['Get', 'Get', 'Gemm', 'Take', 'Sum']
    """
    return Lowering(rank, nodes, written).program(program)


def shares_memory(members: Sequence[int], nodes: Sequence[int]) -> bool:
    """Whether any two of these ranks are on one node."""
    return len({nodes[member] for member in members}) < len(members)


class Lowering:
    """The rewriting of one rank's program; parameters as of :func:`directly`.

    Attributes
    ----------
    direct : bool
        Some collective between ranks goes through shared memory.
    """

    def __init__(self, rank: int, nodes: Sequence[int], written: str = "C"):
        self.rank, self.nodes, self.written = rank, nodes, written
        self.direct = False
        self.counts: Counter = Counter()  # steps of each group so far
        self.sums: dict[tuple, list[Sum]] = {}  # by tile

    def program(self, program: Program) -> Program:
        """The program, rewritten."""
        token = None
        try:
            step = next(program)
            while True:
                lowered = self._of(step)
                token = (yield step) if lowered is None else (yield from lowered)
                step = program.send(token)
        except StopIteration:
            return

    def _of(self, step: Step) -> Token | None:
        """The steps in place of one, returning its token; None where it stays as it is."""
        if not isinstance(step, GroupStep):
            return None
        alone = len(step.group) == 1
        if not (alone or shares_memory(step.group.members, self.nodes)):
            return None
        if not step.sums and step.matrix == self.written:
            return None  # tiles of the result may change meanwhile
        if isinstance(step, Shift) and not step.by % len(step.group):
            return None  # a copy
        self.direct |= not alone
        if isinstance(step, Shift):
            return self._shift(step, self._key(step.group))
        if step.sums:
            return self._sum(step, self._key(step.group))
        return self._gather(step, self._key(step.group))

    def _key(self, group: Group) -> tuple:
        """Names what moves in one step of a group; the same for all members."""
        number = self.counts[group.name]
        self.counts[group.name] += 1
        return group.name, number

    # -- who is where

    def _near(self, other: int) -> bool:
        return self.nodes[other] == self.nodes[self.rank]

    def _leader(self, group: Group, like: int, piece: int) -> int:
        """Who of the members on the node of rank ``like`` meets those of other nodes about a piece,
        the leaders of which take turns."""
        here = [other for other in group.members if self.nodes[other] == self.nodes[like]]
        return here[piece % len(here)]

    def _leaders(self, group: Group, piece: int) -> list[int]:
        """Those of the other nodes."""
        far = [other for other in group.members if not self._near(other)]
        return sorted({self._leader(group, other, piece) for other in far})

    def _others(self, group: Group) -> list[int]:
        return [other for other in group.members if other != self.rank]

    # -- operands

    def _gather(self, step: GroupStep, key: tuple) -> Token:
        """Every piece, wherever it lies."""
        group, pieces = step.group, step.pieces
        if all(map(self._near, group.members)):
            parts: list[Piece | Step] = list(pieces)
        else:
            parts = yield from self._exchanged(group, pieces, key)
        views = all(_is_long(part) for part in parts if isinstance(part, Piece))
        along_k = _ALONG_K.get(str(step.matrix)) == step.axis
        if isinstance(step, Broadcast) or len(parts) == 1:
            if views:
                return (yield from self._seen(parts[0], step.axis))
        elif views and along_k:
            tokens = []
            for part in parts:
                if 0 not in part.shape:
                    tokens.append((yield from self._seen(part, step.axis)))
            if len(tokens) == 1:
                return tokens[0]
            if tokens:
                return (yield Join(tokens, step.axis))
        return (yield Gather(parts, step.axis))

    def _seen(self, part: Piece | Step, axis: int) -> Token:
        """A piece where it lies; what has come is a token already."""
        if isinstance(part, Step):
            return part
        tokens = []
        for block in part.blocks():
            tokens.append((yield Get(block)))
        return tokens[0] if len(tokens) == 1 else (yield Join(tokens, int(len(part.cols) > 1)))

    def _exchanged(self, group: Group, pieces: Sequence[Piece], key: tuple) -> Tokens:
        """Pieces of the own node as they are; of others what their owners have sent to a leader
        here. First everybody sends, so that nobody waits in a circle."""
        for x, piece in enumerate(pieces):
            if piece.owner == self.rank and piece.size:
                plain = piece.plain
                value = yield (Get(piece.blocks()[0]) if plain else Gather([piece], axis=0))
                for leader in self._leaders(group, x):
                    yield Push(value, leader, (*key, x))
        parts: list[Piece | Step] = []
        for x, piece in enumerate(pieces):
            if self._near(piece.owner) or not piece.size:
                parts.append(piece)
                continue
            leader = self._leader(group, self.rank, x)
            if leader == self.rank:
                token = yield _brings(Await, piece.owner, (*key, x), piece)
                for other in filter(self._near, self._others(group)):
                    yield Offer(token, other, (*key, x))
            else:
                token = yield _brings(Take, leader, (*key, x), piece)
            parts.append(token)
        return parts

    def _shift(self, step: Shift, key: tuple) -> Token:
        """The tile of an operand where it lies; a sum by a message to the inbox."""
        token, brings = step.inputs[0], step.brings
        if isinstance(token, Get) and token.matrix != self.written and brings is not None:
            return (yield Get(brings))
        yield Push(token, step.target, key)
        came = Await(step.source, key, step.shape)
        came.like = token.matrix if token.matrix != self.written else None
        came.transposed = step.transposed
        return (yield came)

    # -- sums

    def _sum(self, step: GroupStep, key: tuple) -> Token:
        """Every piece summed up by its owner."""
        group, token, after = step.group, step.inputs[0], step.inputs[1:]
        parts: list[Step] = []
        if len(step.pieces) == 1:
            parts = [token]
        else:
            cuts = [0, *accumulate(piece.shape[step.axis] for piece in step.pieces)]
            for low, high in zip(cuts, cuts[1:]):
                parts.append((yield Part(token, step.axis, low, high)))
        kept = token.lies_in()[0].may_be_offered
        for x, (piece, part) in enumerate(zip(step.pieces, parts)):
            taker = self._taker(group, piece, x)
            if piece.size and self.rank not in (piece.owner, taker):
                yield (Offer if kept else Push)(part, taker, (*key, x), after)
        for x, (piece, part) in enumerate(zip(step.pieces, parts)):
            if piece.size and not self._near(piece.owner):
                if self._taker(group, piece, x) == self.rank:  # the leader of the node
                    for theirs in (yield from self._theirs(group, part, (*key, x), kept)):
                        added = Add(theirs, into=part, side=True)
                        added.inputs += after
                        part = yield added
                    yield Push(part, piece.owner, (*key, x), after)
        for x, (piece, part) in enumerate(zip(step.pieces, parts)):
            if piece.size and piece.owner == self.rank:
                terms = [part, *(yield from self._theirs(group, part, (*key, x), kept))]
                for leader in self._leaders(group, x):
                    terms.append((yield Await(leader, (*key, x), part.shape)))
                total = Sum(terms, piece, (*after, *self._before(piece)))
                self.sums.setdefault(piece.block.tile, []).append(total)
                return (yield total)
        return token

    def _taker(self, group: Group, piece: Piece, x: int) -> int:
        """Who takes this node's parts of a sum: its owner, or the node's leader."""
        if self._near(piece.owner):
            return piece.owner
        return self._leader(group, self.rank, x)

    def _theirs(self, group: Group, part: Step, key: tuple, kept: bool) -> Tokens:
        """The parts of the other members on this node."""
        found = []
        for other in filter(self._near, self._others(group)):
            found.append((yield (Take if kept else Await)(other, key, part.shape)))
        return found

    def _before(self, piece: Piece) -> list[Sum]:
        """Earlier sums into the same elements."""
        return [
            earlier
            for earlier in self.sums.get(piece.block.tile, ())
            if any(one.overlaps(two) for one in earlier.writes() for two in piece.blocks())
        ]


def _brings(kind: type, source: int, key: tuple, piece: Piece) -> Step:
    """An Await or Take of a piece."""
    step = kind(source, key, piece.shape)
    step.like, step.transposed = piece.block.matrix, piece.block.transposed
    return step


def _is_long(piece: Piece) -> bool:
    """Whether a piece is worth multiplying where it lies: few ranges, one across."""
    across, along = sorted((len(piece.rows), len(piece.cols)))
    extent = piece.shape[int(len(piece.cols) > 1)]
    return along <= 1 or (across <= 1 and extent >= LONG_RANGE * along)
