"""Steps that all members of a process row or column issue together: shifts along its ring, and
collectives on fragments of tiles."""

from collections.abc import Sequence
from typing import NamedTuple

from .steps import Block, Group, Step, joined_shape

#: Ranges of a fragment at least this long on average are multiplied in place; shorter ones are
#: packed first.
LONG_RANGE = 128


class Fragment:
    """A selection of a tile: whole ranges of its rows and columns, packed together in ascending
    order.

    Attributes
    ----------
    block : Block
        The bounding block, inside one tile.
    rows, cols : tuple of (int, int)
        Half-open ranges in global indices, ascending and disjoint; none for a fragment without
        elements.

    Examples
    --------
    >>> tile = Block("A", 1, 0, (0, 1), 0, 8, 10, 20)
    >>> Fragment(tile, cols=((10, 12), (14, 16))).shape
    (8, 4)
    """

    __slots__ = ("block", "rows", "cols", "shape")

    def __init__(self, block: Block, rows: tuple | None = None, cols: tuple | None = None):
        self.block = block
        self.rows = (block.rows,) if rows is None else rows
        self.cols = (block.cols,) if cols is None else cols
        self.shape = (
            (block.row1 - block.row0) if rows is None else sum(high - low for low, high in rows),
            (block.col1 - block.col0) if cols is None else sum(high - low for low, high in cols),
        )

    @property
    def owner(self) -> int:
        return self.block.owner

    @property
    def size(self) -> int:
        """Elements."""
        return self.shape[0] * self.shape[1]

    @property
    def plain(self) -> bool:
        """True if it is one range of rows and one of columns: a view of the tile."""
        return len(self.rows) <= 1 and len(self.cols) <= 1

    @property
    def contiguous(self) -> bool:
        """True if the elements are contiguous in the local array, unless that is padded."""
        along = 0 if self.block.transposed else 1
        full = self.block.full and self.shape[along] == self.block.shape[along]
        return not self.size or (self.plain and (full or self.shape[1 - along] == 1))

    def blocks(self) -> list[Block]:
        """The fragment as blocks, one for each range of rows and columns."""
        b = self.block
        whole = b.rows if b.transposed else b.cols
        return [
            Block(
                b.matrix,
                b.owner,
                b.replica,
                b.tile,
                r0,
                r1,
                c0,
                c1,
                b.transposed,
                b.full and whole == ((r0, r1) if b.transposed else (c0, c1)),
            )
            for r0, r1 in self.rows
            for c0, c1 in self.cols
        ]

    def __repr__(self) -> str:
        b = self.block
        rows, cols = (
            f"{low}:{high}" if len(ranges) == 1 else f"{len(ranges)} of {low}:{high}"
            for ranges, low, high in ((self.rows, b.row0, b.row1), (self.cols, b.col0, b.col1))
        )
        return f"{b.name}[{rows}, {cols}]@{b.owner}"


class Ring(NamedTuple):
    """The data of a group step on the link of one member of the ring.

    Attributes
    ----------
    direction : str
        The group's name and the direction: ``"row+"``.
    hops : int
        Neighbours on the route, one after another.
    elements : int
        Elements that cross a link of the ring.
    """

    direction: str
    hops: int
    elements: int


class GroupStep(Step):
    """A step that all members of a process row or column issue.

    Attributes
    ----------
    group : Group
    fragments : sequence of Fragment
        Fragments of a distributed matrix: of each member by position, or of the root alone.
    """

    __slots__ = ("inputs", "group", "fragments")
    group: Group
    fragments: Sequence[Fragment]
    grouped = True
    does = "collective"
    counter = "collective_bytes"
    #: ``"ring"`` (one shard of each member is forwarded around), ``"pipeline"`` (the whole, in
    #: packets) or ``"shift"``.
    kind: str
    #: Name of the collective in machine models.
    operation: str
    #: How fragments of all members are joined: 0 along rows, 1 along columns.
    axis = 0

    def __init__(
        self, tokens: tuple[Step, ...], fragments: Sequence[Fragment | Block], group: Group
    ):
        self.inputs, self.group = tokens, group
        self.fragments = [
            fragment if isinstance(fragment, Fragment) else Fragment(fragment)
            for fragment in fragments
        ]

    @property
    def matrix(self):
        return self.fragments[0].block.matrix

    @property
    def transposed(self):
        return self.fragments[0].block.transposed

    @property
    def root(self) -> int:
        """Position of the owner of the first fragment in the group."""
        return self.group.members.index(self.fragments[0].owner)

    @property
    def own(self) -> Fragment | None:
        """The fragment of this member; None if only the root has one."""
        return self.fragments[self.group.position]

    @property
    def sizes(self) -> list[int]:
        """Elements of each fragment."""
        return [fragment.size for fragment in self.fragments]

    def reads(self):
        return () if self.sums or self.own is None else self.own.blocks()

    def writes(self):
        return self.own.blocks() if self.sums and self.own is not None else ()

    def moved(self, rank):
        pairs = zip(self.group.members, self.sizes)
        return [(member, size) for member, size in pairs if member != rank]

    def shard(self) -> int:
        """Elements of the largest shard of a ring, of the whole data of a pipeline, or of what this
        member sends in a shift."""
        return max(self.sizes)

    def ring(self) -> Ring:
        """The data of the step on the links of the ring.

        Examples
        --------
        >>> fragments = [Block("A", x, 0, (0, x), 0, 4, 4 * x, 4 * x + 4) for x in range(3)]
        >>> AllGather(fragments, Group("row", (0, 1, 2), 0), axis=1).ring()
        Ring(direction='row+', hops=2, elements=32)
        """
        size = sum(self.sizes)
        if self.kind == "ring":
            size -= self.fragments[self.group.position].size
        return Ring(f"{self.group.name}+", len(self.group) - 1, size)

    def in_place(self) -> bool:
        """True if the token of this member is a view of its own tile, or its part of a sum is
        received there."""
        return False

    def elements(self):
        rows, cols = self.shape
        return 0 if self.in_place() else rows * cols

    def packs(self, always: bool = True) -> tuple[int, int]:
        """Elements this member copies out of its fragment before the step, and into its fragment
        after.

        Parameters
        ----------
        always : bool
            A gather also copies a contiguous own fragment, as the executor does; else it is sent
            from the tile.

        Examples
        --------
        Columns with gaps of an own tile are packed before a gather; a whole tile is not:

        >>> tile, row = Block("A", 0, 0, (0, 0), 0, 8, 0, 8), Group("row", (0, 1), 0)
        >>> [
        ...     AllGather([fragment, fragment], row, axis=1).packs(always=False)
        ...     for fragment in (Fragment(tile, cols=((0, 2), (4, 6))), Fragment(tile))
        ... ]
        [(32, 0), (0, 0)]
        """
        own = self.own
        if own is None or self.in_place():
            return 0, 0
        return (0, own.size) if self.sums else (own.size, 0)

    def __repr__(self):
        taken = f"%{self.inputs[0].index} -> " if self.sums else ""
        more = f" and {len(self.group) - 1} more" if self.kind == "ring" else ""
        fragment = self.fragments[self.group.position] if more else self.fragments[0]
        return f"{type(self).__name__}({taken}{fragment!r}{more} along {self.group!r})"


class Shift(GroupStep):
    """Send a token ``by`` positions along the ring of the group, and receive one from the same
    distance on the other side.

    ``receives``: the block that arrives (the owner in the block is where it was stored at the
    start, not who sends it), or its shape. Tiles may be short, so it can differ from the shape that
    is sent.
    """

    __slots__ = ("by", "shape", "what", "receives")
    kind, operation = "shift", "shift"
    matrix = own = None

    def __init__(self, token: Step, group: Group, by: int, receives: tuple[int, int] | Block):
        self.inputs, self.group, self.by = (token,), group, by
        self.fragments = ()
        self.receives = receives if isinstance(receives, Block) else None
        self.shape = receives.shape if isinstance(receives, Block) else receives
        self.what = (
            repr(receives) if isinstance(receives, Block) else f"{receives[0]}x{receives[1]}"
        )

    @property
    def transposed(self):
        return self.inputs[0].transposed

    @property
    def source(self) -> int:
        """Global rank that sends the value."""
        return self.group.members[(self.group.position - self.by) % len(self.group)]

    @property
    def target(self) -> int:
        """Global rank that receives the input."""
        return self.group.members[(self.group.position + self.by) % len(self.group)]

    def moved(self, rank):
        return [(self.source, self.elements())] if self.source != rank else []

    def shard(self):
        rows, cols = self.inputs[0].shape
        return rows * cols

    def ring(self):
        ahead = self.by % len(self.group)
        hops = min(ahead, len(self.group) - ahead)
        return Ring(
            f"{self.group.name}{'+' if hops == ahead else '-'}",
            hops,
            hops * max(self.shard(), self.elements()),
        )

    def packs(self, always=True):
        """A token shifted around the whole ring is copied."""
        return (0 if self.by % len(self.group) else self.shard()), 0

    def __repr__(self):
        return (
            f"Shift(%{self.inputs[0].index} by {self.by:+d} along {self.group!r}, brings "
            f"{self.what})"
        )


class _Rooted(GroupStep):
    __slots__ = ()
    kind = "pipeline"

    @property
    def fragment(self) -> Fragment:
        """The root's fragment."""
        return self.fragments[0]

    @property
    def own(self):
        (fragment,), group = self.fragments, self.group
        return fragment if fragment.block.owner == group.members[group.position] else None

    def moved(self, rank):
        return [(self.fragment.owner, self.fragment.size)] if self.fragment.owner != rank else []


class Broadcast(_Rooted):
    """A fragment of its owner's tile sent to every member of the group; the token is that
    fragment."""

    __slots__ = ("shape",)
    operation = "broadcast"

    def __init__(self, fragment: Fragment | Block, group: Group):
        super().__init__((), (fragment,), group)
        self.shape = self.fragments[0].shape

    def in_place(self):
        own = self.own
        return own is not None and (own.contiguous or (len(self.group) == 1 and own.plain))


class AllGather(GroupStep):
    """Every member's fragment sent to every member.

    ``fragments`` has one fragment for each member, by position; they are joined along ``axis`` (0:
    rows, 1: columns).
    """

    __slots__ = ("axis", "shape")
    kind, operation = "ring", "allgather"

    def __init__(self, fragments: Sequence, group: Group, axis: int):
        super().__init__((), fragments, group)
        self.axis, self.shape = (
            axis,
            joined_shape([fragment.shape for fragment in self.fragments], axis),
        )

    def in_place(self):
        """True for a member alone in its group whose fragment is one range, or ranges long enough
        to multiply: it need not be packed."""
        if len(self.group) > 1:
            return False
        fragment = self.fragments[0]
        across, along = (fragment.rows, fragment.cols)[:: 1 if self.axis else -1]
        return len(across) <= 1 and (
            len(along) <= 1 or fragment.shape[self.axis] >= LONG_RANGE * len(along)
        )

    def packs(self, always=True):
        own, alone = self.fragments[self.group.position], len(self.group) == 1
        return super().packs() if always or alone or not own.contiguous else (0, 0)


class _Sum(GroupStep):
    __slots__ = ("beta",)
    sums = True

    def __init__(
        self, tokens: tuple[Step, ...], fragments: Sequence[Fragment | Block], group: Group
    ):
        super().__init__(tokens, fragments, group)
        self.beta = 0.0

    def in_place(self):
        return len(self.group) > 1 and self.own is not None and self.own.contiguous

    def elements(self):
        """Elements of the buffer in which a sum for a fragment with gaps is received; 0 for a
        member alone in its group."""
        return self.packs()[1] if len(self.group) > 1 else 0


class Reduce(_Sum, _Rooted):
    """The members' tokens summed; the sum overwrites a fragment of its owner's tile, or (``beta``)
    is added to it: then its owner adds it to the own token first."""

    __slots__ = ()
    operation = "reduce"

    def __init__(self, token: Step, fragment: Fragment | Block, group: Group):
        super().__init__((token,), (fragment,), group)


class ReduceScatter(_Sum):
    """The members' tokens summed and divided: each member's part overwrites its fragment, or is
    added to it as in :class:`Reduce`.

    ``fragments`` has one fragment for each member, by position; in the token their parts are joined
    along ``axis`` (0: rows, 1: columns). ``after`` is a step that must be finished before, such as
    the last Gemm into a Scratch.
    """

    __slots__ = ("axis",)
    kind, operation = "ring", "reducescatter"

    def __init__(
        self, token: Step, fragments: Sequence, group: Group, axis: int, after: Step | None = None
    ):
        super().__init__((token,) if after is None else (token, after), fragments, group)
        self.axis = axis
