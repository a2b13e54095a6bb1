"""Links and collectives of a machine model: what a transfer occupies, and how fast the core copies
or adds what it moves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from drbench.errors import UsageError
from drbench.program.steps import Block

#: What one link may be shared by: the two ranks of an ordered pair; all flows out of (into) a
#: device; all flows out of (into) a node; all flows there are (the core of a fabric); or nobody but
#: the rank that started the transfer (the throttled transport).
SHARED = ("pair", "device", "node", "fabric", "initiator")
#: Who moves data.
LANES = ("copy", "nic")
#: How a collective may go: round the ring of its group; by doubling distances, or down a pipelined
#: tree; as is fastest of these; or directly, where each pair of a node's ranks has a link of its
#: own, every rank to every other at once.
SHAPES = ("ring", "tree", "fastest", "direct")


@dataclass(frozen=True)
class Rate:
    """How fast the core that computes copies or adds blocks.

    Attributes
    ----------
    bytes_per_s : float
    apart_bytes_per_s : float
        Of a block whose rows lie apart in memory; inf for no slower.
    row_s : float
        Seconds more for each row of such a block.
    """

    bytes_per_s: float = inf
    apart_bytes_per_s: float = inf
    row_s: float = 0.0

    def seconds(self, block: Block | None, nbytes: int, cut: bool = False) -> float:
        """Seconds of so many bytes of a block, None for what has no gaps; ``cut`` if the rows of
        what is added to it lie apart.

        Examples
        --------
        Half the columns of a tile of 8 rows and 4 columns, and half its rows:

        >>> rate = Rate(64.0, row_s=0.25)
        >>> [
        ...     rate.seconds(Block("A", 1, 0, (0, 0), 0, rows, 0, cols, full=cols == 4), 64)
        ...     for rows, cols in ((8, 2), (4, 4))
        ... ]
        [3.0, 1.0]
        """
        if block is None or (block.full and not cut):
            return nbytes / self.bytes_per_s
        rows_s = block.shape[block.transposed] * self.row_s
        return nbytes / min(self.bytes_per_s, self.apart_bytes_per_s) + rows_s


@dataclass(frozen=True)
class Link:
    """One class of links.

    Attributes
    ----------
    within : int
        Joins ranks a and b with ``a // within == b // within``; 0 joins all. The first class that
        joins two ranks is theirs.
    rails : int
        Joins ranks a and b with ``a % rails == b % rails``: cards of the same place in their nodes,
        which hang on one switch; 0 joins whom ``within`` does.
    bandwidth_bytes_per_s : float
        One direction; of one transfer, where the link carries more than one.
    carries_bytes_per_s : float
        What all transfers on it move together at most, one direction: the cards of a node, or a
        fabric with fewer links up than down. 0 for no more than one transfer.
    latency_s : float
        From the last byte leaving the link to the step being complete; it does not occupy the link.
    shared : str
        One of :data:`SHARED`.
    node : int
        Ranks of a node, where links are shared by nodes.
    reads_in_place : bool
        A Get is a view, and costs what ``bandwidth_bytes_per_s`` says (nothing if that is inf), but
        counts as direct bytes.
    get : Rate
        At which the core that computes has to copy what it gets, ``core_bytes_per_s`` and so on in
        a file; inf where a copy engine moves the data.
    add : Rate
        Where the core makes accumulates itself (``adds_on_core``), ``core_add_bytes_per_s`` and so
        on in a file: bytes of the block a second; inf for what memory allows.
    through : tuple of str
        Links that a transfer occupies too, as long as its bytes need there: the PCIe port of both
        ends on the way to a network card, say. It is never faster than the slowest of them.
    lane : str
        One of :data:`LANES`: transfers of a rank on links of one lane keep their order
        (``copy_streams``).
    """

    name: str
    bandwidth_bytes_per_s: float
    latency_s: float = 0.0
    within: int = 0
    shared: str = "device"
    node: int = 1
    reads_in_place: bool = False
    get: Rate = Rate()
    add: Rate = Rate()
    through: tuple[str, ...] = ()
    lane: str = "copy"
    rails: int = 0
    carries_bytes_per_s: float = 0.0

    def __post_init__(self):
        object.__setattr__(self, "through", tuple(self.through))
        if self.shared not in SHARED:
            raise UsageError(
                f"link {self.name}: shared must be one of {', '.join(SHARED)}, got {self.shared!r}."
            )
        if self.lane not in LANES:
            raise UsageError(
                f"link {self.name}: lane must be one of {', '.join(LANES)}, got {self.lane!r}."
            )
        if 0 < self.carries_bytes_per_s < self.bandwidth_bytes_per_s:
            raise UsageError(
                f"link {self.name}: carries_bytes_per_s must be at least bandwidth_bytes_per_s, "
                f"which one transfer has, {self.bandwidth_bytes_per_s:g}, got "
                f"{self.carries_bytes_per_s:g}."
            )

    def joins(self, a: int, b: int) -> bool:
        """Whether it is a link between two ranks.

        Examples
        --------
        >>> rail = Link("rail", 50e9, rails=8)
        >>> rail.joins(1, 9), rail.joins(1, 10), Link("nvlink", 450e9, within=8).joins(1, 7)
        (True, False, True)
        """
        if self.rails and a % self.rails != b % self.rails:
            return False
        return not self.within or a // self.within == b // self.within

    @property
    def own_timer(self) -> bool:
        """Whether a transfer occupies nothing but a timer of the rank that started it."""
        return self.shared == "initiator"

    @property
    def free(self) -> bool:
        """Whether transfers take no time."""
        return self.bandwidth_bytes_per_s == inf and not self.latency_s

    def resources(self, source: int, target: int) -> tuple:
        """What a transfer from ``source`` to ``target`` occupies.

        Examples
        --------
        >>> Link("nvlink", 450e9).resources(0, 3), Link("xe", 20e9, shared="pair").resources(0, 3)
        ((('nvlink', 'out', 0), ('nvlink', 'in', 3)), (('xe', 0, 3),))
        """
        if self.shared == "device":
            return (self.name, "out", source), (self.name, "in", target)
        if self.shared == "node":
            return (self.name, "out", source // self.node), (self.name, "in", target // self.node)
        if self.shared == "fabric":
            return ((self.name, "all", 0),)
        return ((self.name, source, target),)


@dataclass(frozen=True)
class Collective:
    """A collective on P ranks, in the simplest shape ``launch_s + (P - 1) · (sync_s + bytes of a
    shard / bandwidth)`` (MeshSlice, §3.2.2); :mod:`drbench.model.costs` has the others.

    ``shape`` is one of :data:`SHAPES`.

    ``bandwidth_bytes_per_s`` is what one link of a rank gives, that of the links on the ring if it
    is None: where each pair of ranks has a link, all of a group's are used. ``both_directions``
    says that it goes round the ring in both directions at once: twice that bandwidth, on the links
    of both directions. ``column_bandwidth_bytes_per_s`` is that of process columns where their
    links differ from those of rows. ``across_bandwidth_bytes_per_s`` is what one network card gives
    to groups which are not within one node of ``node`` ranks, that of the link between the nodes if
    it is None: a group has the cards of its own ranks (:mod:`drbench.model.costs`).
    ``across_launch_s`` and ``across_sync_s`` are theirs too; None for the same as within a node.
    """

    launch_s: float = 0.0
    sync_s: float = 0.0
    bandwidth_bytes_per_s: float | None = None
    column_bandwidth_bytes_per_s: float | None = None
    both_directions: bool = False
    node: int = 0
    across_bandwidth_bytes_per_s: float | None = None
    shape: str = "ring"
    across_sync_s: float | None = None
    across_launch_s: float | None = None

    def __post_init__(self):
        if self.shape not in SHAPES:
            raise UsageError(
                f"a collective's shape must be one of {', '.join(SHAPES)}, got {self.shape!r}."
            )
        if self.shape == "direct" and self.bandwidth_bytes_per_s is not None:
            raise UsageError(
                "a collective of shape direct goes at the rate of the links of its pairs, got "
                f"bandwidth_bytes_per_s = {self.bandwidth_bytes_per_s}. Remove it, or the shape."
            )

    def across(self, members: Sequence[int]) -> bool:
        """Whether a group is not within one node."""
        return bool(self.node) and len({rank // self.node for rank in members}) > 1

    def starts(self, members: Sequence[int]) -> tuple[float, float]:
        """Seconds of launching, and of synchronising once, of the group with these members.

        Examples
        --------
        >>> gather = Collective(2.0, 1.0, node=2, across_launch_s=5.0)
        >>> gather.starts((0, 1)), gather.starts((1, 2))
        ((2.0, 1.0), (5.0, 1.0))
        """
        if not self.across(members):
            return self.launch_s, self.sync_s
        launch, sync = self.across_launch_s, self.across_sync_s
        return (
            self.launch_s if launch is None else launch,
            self.sync_s if sync is None else sync,
        )

    def ring_bandwidth(self, name: str, members: Sequence[int]) -> float | None:
        """One direction's bandwidth of the group of that name with these members, if the collective
        has one of its own: of one card, over nodes.

        Examples
        --------
        >>> gather = Collective(bandwidth_bytes_per_s=9.0, node=2, across_bandwidth_bytes_per_s=5.0)
        >>> gather.ring_bandwidth("row", (0, 1)), gather.ring_bandwidth("row", (1, 2))
        (9.0, 5.0)
        """
        if self.across(members):
            return self.across_bandwidth_bytes_per_s or self.bandwidth_bytes_per_s
        own = self.column_bandwidth_bytes_per_s if name == "column" else None
        return own or self.bandwidth_bytes_per_s
