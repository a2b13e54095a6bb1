"""The steps that all members of a process row or column issue together: shifts along its ring, and
collectives."""

from __future__ import annotations

from .blocks import Block, Group, Piece, joined_shape
from .steps import Step

__all__ = ["AllGather", "Broadcast", "Reduce", "ReduceScatter", "Shift"]


class _Grouped(Step):
    """A step that all members of a process row or column issue."""

    __slots__ = ("group",)
    counter = "collective_bytes"


class Shift(_Grouped):
    """Send a token ``by`` positions along the ring of the group, and receive the one from as far on
    the other side.

    ``brings`` is the shape of what arrives (tiles may be short, so it can differ from what leaves).
    """

    __slots__ = ("inputs", "by", "shape", "what")

    def __init__(self, token: Step, group: Group, by: int, brings: tuple[int, int] | Block):
        self.inputs, self.group, self.by = (token,), group, by
        self.shape = brings.shape if type(brings) is Block else brings
        self.what = repr(brings) if type(brings) is Block else f"{brings[0]}x{brings[1]}"

    @property
    def source(self) -> int:
        """Global rank the value comes from."""
        return self.group.members[(self.group.position - self.by) % len(self.group)]

    @property
    def target(self) -> int:
        """Global rank the input goes to."""
        return self.group.members[(self.group.position + self.by) % len(self.group)]

    def moved(self, rank):
        return [(self.source, self.shape[0] * self.shape[1])] if self.source != rank else []

    def __repr__(self):
        return (
            f"Shift(%{self.inputs[0].index} by {self.by:+d} along {self.group!r}, brings "
            f"{self.what})"
        )


class Broadcast(_Grouped):
    """A piece of its owner's tile given to every member of the group; the token is that piece."""

    __slots__ = ("piece", "shape")

    def __init__(self, piece: Piece | Block, group: Group):
        self.piece = piece if type(piece) is Piece else Piece(piece)
        self.group, self.shape = group, self.piece.shape

    @property
    def root(self) -> int:
        """Position of the owner in the group."""
        return self.group.members.index(self.piece.owner)

    def moved(self, rank):
        return [(self.piece.owner, self.piece.size)] if self.piece.owner != rank else []

    def __repr__(self):
        return f"Broadcast({self.piece!r} along {self.group!r})"


class AllGather(_Grouped):
    """Every member's piece given to every member.

    ``pieces`` holds one piece a member, by position; ``axis`` says whether they are stacked (0:
    along rows) or lie side by side (1: along columns).
    """

    __slots__ = ("pieces", "axis", "shape")

    def __init__(self, pieces: list, group: Group, axis: int):
        self.pieces = [piece if type(piece) is Piece else Piece(piece) for piece in pieces]
        self.group, self.axis, self.shape = (
            group,
            axis,
            joined_shape([piece.shape for piece in self.pieces], axis),
        )

    def moved(self, rank):
        return [
            (member, piece.size)
            for member, piece in zip(self.group.members, self.pieces)
            if member != rank
        ]

    def __repr__(self):
        return (
            f"AllGather({self.pieces[self.group.position]!r} and {len(self.group) - 1} more "
            f"along {self.group!r})"
        )


class Reduce(_Grouped):
    """The members' tokens summed; the sum overwrites a piece of its owner's tile."""

    __slots__ = ("inputs", "piece")

    def __init__(self, token: Step, piece: Piece | Block, group: Group):
        self.piece = piece if type(piece) is Piece else Piece(piece)
        self.inputs, self.group = (token,), group

    @property
    def root(self) -> int:
        """Position of the owner in the group."""
        return self.group.members.index(self.piece.owner)

    def moved(self, rank):
        return [(self.piece.owner, self.piece.size)] if self.piece.owner != rank else []

    def writes(self):
        return self.piece.blocks() if self.root == self.group.position else []

    def __repr__(self):
        return f"Reduce(%{self.inputs[0].index} -> {self.piece!r} along {self.group!r})"


class ReduceScatter(_Grouped):
    """The members' tokens summed and divided: each member's part overwrites its piece.

    ``pieces`` holds one piece a member, by position; in the token their parts are stacked (``axis``
    0) or side by side (1). ``after`` is a step that must be finished before, such as the last Gemm
    into a Scratch.
    """

    __slots__ = ("inputs", "pieces", "axis")

    def __init__(
        self, token: Step, pieces: list, group: Group, axis: int, after: Step | None = None
    ):
        self.pieces = [piece if type(piece) is Piece else Piece(piece) for piece in pieces]
        self.inputs = (token,) if after is None else (token, after)
        self.group, self.axis = group, axis

    def moved(self, rank):
        return [
            (member, piece.size)
            for member, piece in zip(self.group.members, self.pieces)
            if member != rank
        ]

    def writes(self):
        return self.pieces[self.group.position].blocks()

    def __repr__(self):
        return (
            f"ReduceScatter(%{self.inputs[0].index} -> {self.pieces[self.group.position]!r} and "
            f"{len(self.group) - 1} more along {self.group!r})"
        )
