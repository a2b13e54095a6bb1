"""The steps of a rank's program. No MPI, no arrays, no clocks.

A program is a generator that yields steps in textbook order. ``yield`` returns the step itself as
the *token* of the value it makes (a fetched block, the result of a local GEMM); later steps have
tokens as inputs. Tokens contain no data, so a program cannot branch on data and can be traced
before it is run.

=================  ===========================================================  ====================
step               meaning                                                      bytes counted as
=================  ===========================================================  ====================
``Get``            one-sided read of a block                                    ``get_bytes``
``ReplicaGet``     the same from another replica of the result                  ``replica_bytes``
``Put``            one-sided write of a token into a block                      ``put_bytes``
``Accumulate``     one-sided element-wise add of a token into a block           ``accumulate_bytes``
``ReplicaAdd``     the same into another replica of the result                  ``replica_bytes``
``Gemm``           local multiply; into a block of an own tile, onto a token,   --
                   or (``into=None``) a new token
``Add``, ``Copy``  a token added to, or copied into, a block of an own tile;    --
                   ``Copy`` also into an array of its own
``Zero``           a block of an own tile made zero, or beta times itself       --
``Fence``          one-sided work of all ranks complete and visible             --
``Shift``          a token sent along a ring, another one received              ``collective_bytes``
``Broadcast``      a fragment of one member sent to the whole group             ``collective_bytes``
``AllGather``      every member's fragment sent to the whole group              ``collective_bytes``
``Reduce``         the members' tokens summed into a fragment of one of them    ``collective_bytes``
``ReduceScatter``  the members' tokens summed, each member's part into its      ``collective_bytes``
                   fragment
``Push``           a token put into another rank's inbox, with a signal         ``put_bytes``
``Await``          the value of a Push, once it has arrived                     --
``Offer``          a token stored for another rank to read, with a signal       --
``Take``           the value of an Offer, read after its signal                 ``get_bytes``
``Scratch``        memory that Gemms, or a Pack each, fill part by part         --
``Pack``           one-sided read of a block into its place in a Scratch        ``get_bytes``
``FilledScratch``  a Scratch once its blocks have arrived, without a copy       --
``Part``           a range of rows or columns of a token, without a copy        --
``Join``           tokens joined along an axis, without a copy                  --
``OperationEnd``   end of an operation of a lowered program; not a step of the  --
                   trace, which numbers its steps by operation
=================  ===========================================================  ====================

One-sided steps count a block once if its owner is another rank, whatever the transport. Steps of a
group (:mod:`drbench.program.group_steps`) count the payload a rank receives; ``Reduce`` and
``ReduceScatter`` what it sends. Steps with signals are in :mod:`drbench.program.signal_steps`.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

from drbench.partitions.intervals import Pair, Range

#: Byte counters of a record. For Gets ``get_bytes`` were copied and ``direct_bytes`` read in place.
COUNTERS = (
    "get_bytes",
    "direct_bytes",
    "put_bytes",
    "accumulate_bytes",
    "collective_bytes",
    "replica_bytes",
)

#: What a rank does in a step: GEMMs; reading, writing and adding, one-sided or local; steps of its
#: group; copying or preparing own tiles; and waiting.
DOES = ("multiply", "fetch", "send", "add", "collective", "copy", "wait")


@dataclass(slots=True, eq=False, repr=False)
class Block:
    """A sub-range of one tile of one replica: rows [row0, row1), columns [col0, col1), in global
    indices.

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
    transposed : bool
        The owner stores the transposed matrix: columns of the block, not rows, are contiguous.
    full : bool
        The block's rows (columns, if stored transposed) are whole rows of the owner's local array:
        without padding they follow one another.
    """

    matrix: str
    owner: int
    replica: int
    tile: Pair
    row0: int
    row1: int
    col0: int
    col1: int
    transposed: bool = False
    full: bool = True

    @property
    def shape(self) -> Pair:
        """Rows and columns."""
        return self.row1 - self.row0, self.col1 - self.col0

    @property
    def size(self) -> int:
        """Elements."""
        return (self.row1 - self.row0) * (self.col1 - self.col0)

    @property
    def rows(self) -> Range:
        """[start, stop) of its rows, in global indices."""
        return self.row0, self.row1

    @property
    def cols(self) -> Range:
        """[start, stop) of its columns, in global indices."""
        return self.col0, self.col1

    @property
    def key(self) -> tuple:
        """A key that is equal for blocks of the same memory."""
        return self.matrix, self.replica, self.row0, self.row1, self.col0, self.col1

    def overlaps(self, other: "Block") -> bool:
        """True if the two have memory in common."""
        return (
            self.row0 < other.row1
            and other.row0 < self.row1
            and self.col0 < other.col1
            and other.col0 < self.col1
            and self.replica == other.replica
            and self.matrix == other.matrix
        )

    def contains(self, other: "Block") -> bool:
        """True if a block of the same tile is inside this one."""
        return (
            self.row0 <= other.row0
            and other.row1 <= self.row1
            and self.col0 <= other.col0
            and other.col1 <= self.col1
        )

    def __repr__(self) -> str:
        at = f"@{self.owner}" + (f"/replica {self.replica}" if self.replica else "")
        return f"{self.name}[{self.row0}:{self.row1}, {self.col0}:{self.col1}]{at}"

    @property
    def name(self) -> str:
        """The name of the matrix in programs: ``Aᵀ`` if A is stored transposed."""
        return f"{self.matrix}ᵀ" if self.transposed else self.matrix


@dataclass(slots=True, unsafe_hash=True, repr=False)
class Group:
    """A process row or column: the ranks that issue its steps together, in the same order; equal on
    all of them.

    Attributes
    ----------
    name : str
        ``"row"`` or ``"column"``; a rank is in at most one group of a name.
    members : tuple of int
        Global ranks, by position.
    position : int
        Of the rank whose program this is.
    """

    name: str
    members: tuple[int, ...]
    position: int = field(compare=False)

    def __len__(self) -> int:
        return len(self.members)

    def __repr__(self) -> str:
        return f"{self.name} {list(self.members)}"


class Step:
    """One operation of a rank. The step is also the token of the value it makes.

    ``index`` (its place in the trace) and ``uses`` (how many later steps use its value) are set by
    :func:`drbench.program.trace.trace`. ``shape`` is the shape of the value, None without a value.
    ``block`` is the block of a distributed matrix that the step reads or writes, if any.
    """

    __slots__ = ("index", "uses")

    #: Factor of the old value of a block that the step writes. None: the caller's beta, which is
    #: set at the run.
    beta: Any = 0.0
    index: int
    uses: int
    #: What a rank does meanwhile, one of :data:`DOES`; empty if it takes no time.
    does = ""
    #: True for work of the compute engine, which runs in program order; False for communication.
    computes = False
    #: Record counter of the bytes of this step.
    counter: str | None = None
    #: True if a rank that can map the memory that the step reads uses it in place, without a copy.
    views = False
    #: The communicator whose members all issue this step in the same order: ``"world"`` or a Group;
    #: None for one-sided and local steps.
    group: Any = None
    #: True for a step of a process row or column (:mod:`drbench.program.group_steps`).
    grouped = False
    #: True for a step with a signal (:mod:`drbench.program.signal_steps`).
    signals = False
    #: True for a Push or Await of a value with flags in its words, and a Push of a value that the
    #: rank has just pushed to another one.
    flagged = again = False
    #: True if the step never blocks its rank: it may start at any time, and only steps that use its
    #: value wait for it.
    nonblocking = False
    #: True for a compute that runs concurrently with others as soon as its inputs are ready, and
    #: so counts as communication.
    concurrent = False
    #: True if values of several ranks are summed into blocks; False in a group step: blocks are
    #: sent to several ranks.
    sums = False
    #: True if the value is a view of memory of other steps.
    alias = False
    shape: Any = None
    block: Any = None
    #: The matrix whose elements the value has, if the step has no block.
    like: str | None = None
    #: True if the columns of the value, not its rows, are contiguous: as its matrix is stored.
    transposed: Any = False
    #: Tokens that the step uses, and steps that must be finished before it.
    inputs: "tuple[Step, ...]" = ()
    #: The token a compute adds onto, or fills; None if it has a value of its own or writes into a
    #: block.
    onto: "Step | None" = None

    @property
    def matrix(self) -> str | None:
        """Name of the distributed matrix that the step reads or writes, if any."""
        return None if self.block is None else self.block.matrix

    def reads(self) -> Sequence[Block]:
        """Blocks of a distributed matrix that this rank reads; in a group step, of its own tile."""
        return ()

    def writes(self) -> Sequence[Block]:
        """Blocks of a distributed matrix that this rank writes; in a group step, of its own
        tile."""
        return () if self.block is None else (self.block,)

    def moved(self, rank: int) -> list[tuple[int, int]]:
        """The transfers between this rank and others: (other rank, elements) pairs."""
        if self.counter is None or self.block.owner == rank:
            return []
        return [(self.block.owner, self.block.size)]

    def counted(self, in_place: bool) -> str | None:
        """The counter of the step's bytes, if the rank reads in place (``in_place``) or not."""
        seen = in_place and self.views and self.counter == "get_bytes"
        return "direct_bytes" if seen else self.counter

    def target_of(self, values: list, view: Callable) -> Any:
        """Where a compute writes, if not into its own buffer: the value that it adds to or fills,
        or ``view(block)`` of an own tile; None for its own buffer. ``values`` are those of the
        steps before."""
        if self.onto is not None:
            return values[self.onto.index]
        works = self.computes or self.concurrent
        return view(self.block) if works and self.block is not None else None

    def location(self) -> "tuple[Step, int, int]":
        """The step whose memory stores the value, and the row and column at which the value begins
        there.

        Examples
        --------
        >>> whole = Scratch((8, 6))
        >>> Part(Part(whole, 0, 2, 8), 1, 3, 6).location()[1:]
        (2, 3)
        """
        step = self
        while step.onto is not None:  # a sum of thousands of terms is a long chain
            step = step.onto
        return (self, 0, 0) if step is self else step.location()

    @property
    def may_be_offered(self) -> bool:
        """True if the value has its own memory that other ranks may read: the result of a GEMM, or
        an awaited value."""
        return self.block is None and (self.computes or self.concurrent or self.nonblocking)

    def elements(self) -> int:
        """Elements of memory of its own that the step needs, for its value or to send it to a
        tile."""
        if self.alias or self.onto is not None:
            return 0
        shape = self.shape
        return 0 if shape is None else shape[0] * shape[1]

    def __repr__(self) -> str:
        taken = f"%{self.inputs[0].index} -> " if self.inputs else ""
        return f"{type(self).__name__}({taken}{self.block!r})"


class Get(Step):
    """One-sided read of a block; the token is read-only, and a view of the owner's tile if that can
    be mapped.

    Examples
    --------
    >>> Get(Block("A", owner=1, replica=0, tile=(0, 0), row0=0, row1=4, col0=2, col1=6)).shape
    (4, 4)
    """

    __slots__ = ("block",)
    does = "fetch"
    counter = "get_bytes"
    views = True

    def __init__(self, block: Block):
        self.block = block

    @property
    def shape(self):
        return self.block.shape

    @property
    def transposed(self):
        return self.block.transposed

    def reads(self):
        return (self.block,)

    def writes(self):
        return ()


class ReplicaGet(Get):
    """A Get from another replica of the result, for its reduction or broadcast."""

    __slots__ = ()
    counter = "replica_bytes"


class Pack(Get):
    """A Get into a place of a Scratch: a copy even if the block could be read in place.

    Parameters
    ----------
    block : Block
    scratch : Scratch
        Of the block's matrix, in its storage order.
    row, col : int
        Start of the block in it.
    """

    __slots__ = ("inputs", "onto", "row", "col")
    views = False
    onto: Step

    def __init__(self, block: Block, scratch: "Scratch", row: int, col: int):
        super().__init__(block)
        self.inputs, self.onto, self.row, self.col = (scratch,), scratch, row, col

    def target_of(self, values, view):
        rows, cols = self.block.shape
        scratch = values[self.onto.index]
        return scratch[self.row : self.row + rows, self.col : self.col + cols]

    def __repr__(self):
        rows, cols = self.block.shape
        place = f"{self.row}:{self.row + rows}, {self.col}:{self.col + cols}"
        return f"Pack({self.block!r} -> %{self.onto.index}[{place}])"


class _Write(Step):
    __slots__ = ("block", "inputs")

    def __init__(self, token: Step, into: Block):
        self.block = into
        self.inputs = (token,)


class Put(_Write):
    """One-sided write of a token into a block that no other rank accesses before the next Fence."""

    __slots__ = ()
    does = "send"
    counter = "put_bytes"


class Accumulate(_Write):
    """One-sided element-wise add of a token into a block; atomic against every other Accumulate."""

    __slots__ = ()
    does = "add"
    counter = "accumulate_bytes"


class ReplicaAdd(Accumulate):
    """An Accumulate into another replica of the result, for its reduction: of an own tile, once it
    is complete."""

    __slots__ = ()
    counter = "replica_bytes"


class Copy(_Write):
    """A token copied into a block of an own tile, or (``beta``) added to its old value; without a
    block into memory of its own, which makes one array of several.

    Examples
    --------
    >>> half = Get(Block("A", 0, 0, (0, 0), 0, 2, 0, 3))
    >>> whole = Copy(Join([half, half], axis=1))
    >>> whole.shape, whole.elements(), list(whole.writes())
    ((2, 6), 12, [])
    """

    __slots__ = ("beta", "shape")
    does = "copy"
    computes = True

    def __init__(self, token: Step, into: Block | None = None):
        self.block, self.inputs = into, (token,)
        self.beta, self.shape = 0.0, token.shape if into is None else None

    @property
    def transposed(self):
        return self.block is None and self.inputs[0].transposed

    def __repr__(self):
        return super().__repr__() if self.block is not None else f"Copy(%{self.inputs[0].index})"


class Add(_Write):
    """Tokens added in one pass to a block of an own tile, only while no other rank can add to it
    (after a Fence), or onto another token.

    With ``concurrent`` it is a reduction that runs during GEMMs: it counts for the look-ahead as
    communication, and computes before and after it that write the same elements keep their order
    with it.
    """

    __slots__ = ("onto", "shape", "concurrent", "count")
    does = "add"

    def __init__(self, tokens: Step | Sequence[Step], into: Block | Step, concurrent: bool = False):
        terms = tuple(tokens) if isinstance(tokens, (list, tuple)) else (tokens,)
        self.concurrent, self.count = concurrent, len(terms)
        if isinstance(into, Block):
            self.block, self.onto, self.inputs, self.shape = into, None, terms, None
        else:
            self.block, self.onto, self.inputs = None, into, (*terms, into)
            self.shape = into.shape

    @property
    def terms(self) -> tuple[Step, ...]:
        """The tokens that are added; further inputs are the target, and steps before."""
        return self.inputs[: self.count]

    @property
    def computes(self):  # type: ignore[override]  # a class attribute of other steps
        return not self.concurrent

    def __repr__(self):
        into = repr(self.block) if self.onto is None else f"%{self.onto.index}"
        text = ", ".join(f"%{token.index}" for token in self.terms)
        return f"Add({text} -> {into}{', side' * self.concurrent})"


class Kernel:
    """One launch shared by several GEMMs: its parts begin as their operands arrive, in program
    order, with the efficiency of the whole GEMM.

    Parameters
    ----------
    m, n, k : int
        Of the whole GEMM.
    units : int, optional
        Multiprocessors it may use, by default all.

    Notes
    -----
    A program makes one object and passes it to each of the parts, which are matched by identity.

    Examples
    --------
    >>> Kernel(8192, 6144, 12288)
    Kernel(8192x6144x12288)
    """

    __slots__ = ("m", "n", "k", "units")

    def __init__(self, m: int, n: int, k: int, units: int | None = None):
        self.m, self.n, self.k, self.units = m, n, k, units

    def __repr__(self):
        units = "" if self.units is None else f" on {self.units}"
        return f"Kernel({self.m}x{self.n}x{self.k}{units})"


class Gemm(Step):
    """Local multiply of two tokens: a (m×k) times b (k×n).

    ``into`` is a block of an own tile (C[block] += a·b, or = where the trace finds this to be the
    first write, or beta times the old value: ``beta``), a token that was computed or received
    (added onto it, in place), a Part or Join of Scratches (which become the result), or None for a
    new token. ``kernel`` is the launch it is a part of; None for one of its own.
    """

    __slots__ = ("inputs", "block", "onto", "beta", "kernel")
    does = "multiply"
    computes = True

    def __init__(
        self,
        a: Step,
        b: Step,
        into: Block | Step | None = None,
        kernel: Kernel | None = None,
    ):
        self.kernel = kernel
        self.block = into if isinstance(into, Block) else None
        self.onto = None if isinstance(into, Block) else into
        self.inputs = (a, b) if self.onto is None else (a, b, self.onto)
        self.beta = 0.0 if into is None or type(into) in (Part, Join) else 1.0

    @property
    def shape(self):
        return (
            None if self.block is not None else (self.inputs[0].shape[0], self.inputs[1].shape[1])
        )

    @property
    def transposed_operands(self) -> str:
        """Which operands are stored transposed: ``a``, ``b``, both or none."""
        return "".join(name for name, value in zip("ab", self.inputs) if value.transposed)

    @property
    def extents(self) -> tuple[int, int, int]:
        """m, n and k of this GEMM."""
        m, k = self.inputs[0].shape
        return m, self.inputs[1].shape[1], k

    @property
    def products(self) -> int:
        """m·n·k of this GEMM, its multiply-adds."""
        m, n, k = self.extents
        return m * n * k

    def elements(self):
        return 0 if self.block is not None else super().elements()

    def __repr__(self):
        a, b = self.inputs[:2]
        into = (
            f" -> {self.block!r}" if self.block else f" -> %{self.onto.index}" if self.onto else ""
        )
        m, n, k = self.extents
        beta = "beta" if self.beta is None else f"{self.beta:g}"
        part = "" if self.kernel is None else f", part of {self.kernel!r}"
        return f"Gemm(%{a.index} · %{b.index}{into}, {m}x{n}x{k}, beta={beta}{part})"


class Zero(Step):
    """A block of an own tile prepared for accumulation: zero, or ``beta`` times its old value."""

    __slots__ = ("block", "inputs", "beta")
    does = "copy"
    computes = True

    def __init__(self, block: Block):
        self.block, self.inputs, self.beta = block, (), 0.0

    def __repr__(self):
        return f"{'Scale' if self.beta is None else 'Zero'}({self.block!r})"


class Fence(Step):
    """One-sided work of all ranks on the result is complete and visible on all ranks."""

    __slots__ = ()
    does = "wait"
    group = "world"

    def __repr__(self):
        return "Fence()"


class Scratch(Step):
    """Memory without values yet, which Gemms or Packs fill part by part; for Packs it has the type
    of a matrix (``like``) and its storage order (``transposed``)."""

    __slots__ = ("shape", "like", "transposed")
    may_be_offered = True

    def __init__(self, shape: Pair, like: str | None = None, transposed: bool = False):
        self.shape, self.like, self.transposed = shape, like, transposed

    def __repr__(self):
        return f"Scratch({self.shape[0]}x{self.shape[1]})"


class _Shown(Step):
    """Values of other steps, shown in another way; no copy."""

    __slots__ = ("inputs",)
    alias = True

    @property
    def transposed(self):
        return self.inputs[0].transposed


class FilledScratch(_Shown):
    """A Scratch once all its blocks have arrived, or all GEMMs that fill it are done; no copy.

    Examples
    --------
    Two halves of A, stacked:

    >>> halves = [Block("A", rank, 0, (rank, 0), 0, 2, 0, 3) for rank in (0, 1)]
    >>> scratch = Scratch((4, 3), "A")
    >>> FilledScratch(scratch, [Pack(half, scratch, 2 * half.owner, 0) for half in halves]).shape
    (4, 3)
    """

    __slots__ = ()

    def __init__(self, scratch: Scratch, blocks: Sequence[Step]):
        self.inputs = (scratch, *blocks)

    @property
    def shape(self):
        return self.inputs[0].shape

    @property
    def like(self):  # type: ignore[override]
        return self.inputs[0].like

    def location(self):
        return self.inputs[0].location()

    def __repr__(self):
        return f"FilledScratch(%{self.inputs[0].index}, {len(self.inputs) - 1} blocks)"


class Part(_Shown):
    """Rows [start, stop) or columns [start, stop) of a token; no copy."""

    __slots__ = ("axis", "start", "stop", "shape")

    def __init__(self, token: Step, axis: int, start: int, stop: int):
        self.inputs, self.axis, self.start, self.stop = (token,), axis, start, stop
        rows, cols = token.shape
        self.shape = (stop - start, cols) if axis == 0 else (rows, stop - start)

    def location(self):
        step, row, col = self.inputs[0].location()
        return (step, row, col + self.start) if self.axis else (step, row + self.start, col)

    def __repr__(self):
        at = f"{self.start}:{self.stop}, :" if self.axis == 0 else f":, {self.start}:{self.stop}"
        return f"Part(%{self.inputs[0].index}[{at}])"


class Join(_Shown):
    """Tokens joined along rows (``axis`` 0) or columns (1), as one value; no copy."""

    __slots__ = ("axis", "shape")

    def __init__(self, tokens: list, axis: int):
        self.inputs, self.axis, self.shape = (
            tuple(tokens),
            axis,
            joined_shape([token.shape for token in tokens], axis),
        )

    def __repr__(self):
        return f"Join({', '.join(f'%{token.index}' for token in self.inputs)}, axis {self.axis})"


class OperationEnd(Step):
    """End of one operation of a lowered program: no later step starts before all earlier steps are
    finished, on this rank.

    A program that yields one is *lowered*, and its operations replace the look-ahead
    (:mod:`drbench.plan.schedule`). The trace has no OperationEnd among its steps, but the number of
    each step's operation.
    """

    __slots__ = ()

    def __repr__(self):
        return "OperationEnd()"


#: What a program yields; a part of a program returns tokens.
Steps = Generator[Step, Step, Any]


def joined_shape(shapes: Sequence[Pair], axis: int) -> Pair:
    """Shape of arrays joined along an axis."""
    along = sum(shape[axis] for shape in shapes)
    return (along, shapes[0][1]) if axis == 0 else (shapes[0][0], along)
