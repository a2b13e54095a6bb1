"""The steps: what one rank's program is made of. No MPI, no arrays, no clocks.

A program is a generator that yields steps in textbook order. ``yield`` hands the step itself back as the
*token* of the value it makes (a fetched block, a local product); later steps take tokens as inputs.
Tokens carry no data, so a program cannot branch on data and can be traced before it is run.

=================  ==============================================================  =====================
step               meaning                                                         bytes counted as
=================  ==============================================================  =====================
``Get``            one-sided read of a block                                       ``get_bytes``
``ReplicaGet``     the same from another replica of the result                     ``replica_bytes``
``Put``            one-sided write of a token into a block                         ``put_bytes``
``Accumulate``     one-sided element-wise add of a token into a block              ``accumulate_bytes``
``Gemm``           local multiply; into a block of an own tile, onto a token,      --
                   or (``into=None``) a new token
``Add``, ``Copy``  a token added to, or copied into, a block of an own tile        --
``Zero``           a block of an own tile made zero                                --
``Fence``          everyone's one-sided work complete and visible                  --
=================  ==============================================================  =====================

Bytes count once if the owner of the block is another rank, whatever the transport.
"""

from __future__ import annotations

from typing import Union

__all__ = ["Block", "Step", "Get", "ReplicaGet", "Put", "Accumulate", "Gemm", "Add", "Copy", "Zero", "Fence", "Token",
           "COUNTERS"]

#: Byte counters of a record. Of a run's Gets ``get_bytes`` was copied and ``direct_bytes`` read in place.
COUNTERS = ("get_bytes", "direct_bytes", "put_bytes", "accumulate_bytes", "collective_bytes", "replica_bytes")


class Block:
    """A sub-range of one tile of one replica: rows [row0, row1), columns [col0, col1), in global indices.

    Attributes
    ----------
    matrix : str
        ``"A"``, ``"B"`` or ``"C"``.
    owner : int
        Global rank that stores the tile.
    replica : int
        Replica the tile belongs to.
    tile : tuple of int
        Index (i, j) in the tile grid.
    row0, row1, col0, col1 : int
        Half-open bounds in the whole matrix.
    offset : int
        Element offset of the block's first element in the owner's storage.
    ld : int
        Leading dimension in elements: the width of the tile (storage is row-major).
    """

    __slots__ = ("matrix", "owner", "replica", "tile", "row0", "row1", "col0", "col1", "offset", "ld")

    def __init__(self, matrix, owner, replica, tile, row0, row1, col0, col1, offset, ld):
        self.matrix = matrix
        self.owner = owner
        self.replica = replica
        self.tile = tile
        self.row0 = row0
        self.row1 = row1
        self.col0 = col0
        self.col1 = col1
        self.offset = offset
        self.ld = ld

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.row1 - self.row0, self.col1 - self.col0

    @property
    def size(self) -> int:
        """Elements."""
        return (self.row1 - self.row0) * (self.col1 - self.col0)

    @property
    def key(self) -> tuple:
        """What makes two blocks the same memory."""
        return self.matrix, self.replica, self.row0, self.row1, self.col0, self.col1

    def __repr__(self) -> str:
        at = f"@{self.owner}" + (f"/replica {self.replica}" if self.replica else "")
        return f"{self.matrix}[{self.row0}:{self.row1}, {self.col0}:{self.col1}]{at}"


class Step:
    """One thing a rank does. The step doubles as the token of the value it makes.

    ``index`` (its place in the trace) and ``uses`` (how many later steps take its value) are set by
    :func:`drbench.trace.trace`. ``shape`` is the shape of the value, None when there is none.
    ``block`` is the block of a distributed matrix the step reads or writes, if any.
    """

    __slots__ = ("index", "uses")

    #: True for work of the compute engine, which runs in program order; False for communication.
    computes = False
    #: Record counter the bytes of this step go to.
    counter: str | None = None
    #: Name of the communicator whose members all issue this step in the same order; None for one-sided steps.
    group: str | None = None
    shape: tuple[int, int] | None = None
    block: Block | None = None
    inputs: tuple["Step", ...] = ()


class Get(Step):
    """One-sided read of a block; the token is read-only, and a view of the owner's tile where that can be reached."""

    __slots__ = ("block",)
    counter = "get_bytes"

    def __init__(self, block: Block):
        self.block = block

    @property
    def shape(self):
        return self.block.shape

    def __repr__(self):
        return f"{type(self).__name__}({self.block!r})"


class ReplicaGet(Get):
    """A Get from another replica of the result, for its reduction or broadcast."""

    __slots__ = ()
    counter = "replica_bytes"


class _Remote(Step):
    __slots__ = ("block", "inputs")

    def __init__(self, token: "Token", block: Block):
        self.block = block
        self.inputs = (token,)

    def __repr__(self):
        return f"{type(self).__name__}(%{self.inputs[0].index} -> {self.block!r})"


class Put(_Remote):
    """One-sided write of a token into a block that no one else touches before the next Fence."""

    __slots__ = ()
    counter = "put_bytes"


class Accumulate(_Remote):
    """One-sided element-wise add of a token into a block; atomic against every other Accumulate."""

    __slots__ = ()
    counter = "accumulate_bytes"


class Gemm(Step):
    """Local multiply of two tokens: a (m×k) times b (k×n).

    ``into`` is a block of an own tile (C[block] += a·b, or = where the trace finds this to be the first write:
    ``beta``), the token of an earlier product (added onto it, in place), or None for a new token.
    """

    __slots__ = ("inputs", "block", "onto", "beta")
    computes = True

    def __init__(self, a: "Token", b: "Token", into: Union[Block, "Gemm", None] = None):
        if into is None:
            self.inputs, self.block, self.onto = (a, b), None, None
        elif type(into) is Block:
            self.inputs, self.block, self.onto = (a, b), into, None
        else:
            self.inputs, self.block, self.onto = (a, b, into), None, into
        self.beta = 0.0 if into is None else 1.0

    @property
    def shape(self):
        return None if self.block is not None else (self.inputs[0].shape[0], self.inputs[1].shape[1])

    @property
    def flops(self) -> int:
        """2·m·n·k of this product."""
        m, k = self.inputs[0].shape
        return 2 * m * k * self.inputs[1].shape[1]

    def __repr__(self):
        a, b = self.inputs[:2]
        into = f" -> {self.block!r}" if self.block is not None else f" -> %{self.onto.index}" if self.onto else ""
        m, k = a.shape
        return f"Gemm(%{a.index} · %{b.index}{into}, {m}x{b.shape[1]}x{k}, beta={self.beta:g})"


class _Own(Step):
    __slots__ = ("block", "inputs")
    computes = True

    def __init__(self, token: "Token", into: Block):
        self.block = into
        self.inputs = (token,)

    def __repr__(self):
        return f"{type(self).__name__}(%{self.inputs[0].index} -> {self.block!r})"


class Add(_Own):
    """A token added to a block of an own tile; only where no one else can be adding (after a Fence)."""

    __slots__ = ()


class Copy(_Own):
    """A token copied into a block of an own tile."""

    __slots__ = ()


class Zero(Step):
    """A block of an own tile made zero, ready for accumulation."""

    __slots__ = ("block",)
    computes = True

    def __init__(self, block: Block):
        self.block = block

    def __repr__(self):
        return f"Zero({self.block!r})"


class Fence(Step):
    """Everyone's one-sided work on the result is complete and visible to everyone."""

    __slots__ = ()
    group = "world"

    def __repr__(self):
        return "Fence()"


#: What a program gets back from ``yield``: the step, standing for the value it makes.
Token = Union[Get, Gemm]
