"""Links and collectives of a machine model: the resources of a transfer, and the rate at which the
core copies or adds its data."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from drbench.errors import UsageError
from drbench.program.steps import Block

#: The flows that share one link: those of an ordered pair of ranks; all flows out of (into) a
#: device; all flows out of (into) a node; all flows (the core of a fabric); or only those of the
#: rank that started the transfer (the throttled transport).
SHARED = ("pair", "device", "node", "fabric", "initiator")
#: Who moves data.
LANES = ("copy", "nic")
#: Shapes of a collective: around the ring of its group; by recursive doubling, or down a pipelined
#: tree; the fastest of these; or directly from every rank to every other at once, if each pair of a
#: node's ranks has a link of its own.
SHAPES = ("ring", "tree", "fastest", "direct")


@dataclass(frozen=True)
class Rate:
    """The rate at which the compute core copies or adds blocks.

    Attributes
    ----------
    bytes_per_s : float
        Rate of a contiguous block; inf: the core is not involved.
    apart_bytes_per_s : float
        Rate of a block whose rows are not contiguous; inf: the same rate.
    row_s : float
        Added for each row of such a block.
    """

    bytes_per_s: float = inf
    apart_bytes_per_s: float = inf
    row_s: float = 0.0

    def seconds(self, block: Block | None, nbytes: int, cut: bool = False) -> float:
        """Seconds of ``nbytes`` of a block, None for contiguous memory; ``cut`` if the rows that
        are added to it are not contiguous.

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
        Joins ranks a and b if a // within == b // within; 0: all ranks.
    rails : int
        Joins ranks a and b if a % rails == b % rails (cards on one switch); 0: no such condition.
    bandwidth_bytes_per_s : float
        Bandwidth of one transfer, one direction; inf: no transfer, tiles are read in place.
    latency_s : float
        From the last byte leaving the link to the step being complete; the link is free meanwhile.
    shared : str
        Who shares one link: pair, device, node, fabric (all ranks) or initiator (nobody).
    node : int
        Ranks of a node, if shared is node.
    reads_in_place : bool
        Get is a view: its bytes count as direct_bytes.
        Its time follows from ``bandwidth_bytes_per_s``, and is 0 if that is inf.
    get : Rate
        Rate at which the compute core copies fetched blocks.
        ``core_bytes_per_s`` and so on in a file; inf if a copy engine moves the data.
    add : Rate
        Rate at which the compute core adds to a remote block (adds_on_core).
        ``core_add_bytes_per_s`` and so on in a file; inf for the bandwidth of memory.
    through : tuple of str
        Other links that a transfer also occupies, such as the PCIe ports of a network card, or a
        fabric that many transfers share.
        It is never faster than the slowest of them.
    lane : str
        copy or nic: transfers of a rank in one lane share its copy_streams.
    multicast_s : float
        Latency of flagged values, where the switch copies one store to all ranks; 0: it does not.
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
    multicast_s: float = 0.0

    def __post_init__(self):
        object.__setattr__(self, "through", tuple(self.through))
        if self.multicast_s and self.shared != "device":
            raise UsageError(
                f"link {self.name}: multicast_s is of a switch with a link to each device, got "
                f"shared = {self.shared!r}. Leave multicast_s out."
            )
        if self.shared not in SHARED:
            raise UsageError(
                f"link {self.name}: shared must be one of {', '.join(SHARED)}, got {self.shared!r}."
            )
        if self.lane not in LANES:
            raise UsageError(
                f"link {self.name}: lane must be one of {', '.join(LANES)}, got {self.lane!r}."
            )

    def joins(self, a: int, b: int) -> bool:
        """Whether the link joins two ranks.

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
        """The resources of a transfer from ``source`` to ``target``.

        Examples
        --------
        >>> Link("nvlink", 450e9).resources(0, 3), Link("xe", 20e9, shared="pair").resources(0, 3)
        ((('nvlink', 'out', 0), ('nvlink', 'in', 3)), (('xe', 0, 3),))
        """
        if self.shared == "fabric":
            return ((self.name, "all", 0),)
        if self.shared not in ("device", "node"):
            return ((self.name, source, target),)
        ranks = self.node if self.shared == "node" else 1
        return (self.name, "out", source // ranks), (self.name, "in", target // ranks)


@dataclass(frozen=True)
class Collective:
    """A collective on P ranks, in the simplest shape ``launch_s + (P - 1) · (sync_s + bytes of a
    shard / bandwidth)`` (MeshSlice, §3.2.2); :mod:`drbench.model.costs` has the others.

    Attributes
    ----------
    launch_s : float
        Start of the operation.
    sync_s : float
        One synchronisation of neighbours; a ring of P ranks has P - 1.
    bandwidth_bytes_per_s : float or None
        Bandwidth of one link of a rank; without it that of the links of the ring.
        Where each pair of ranks has a link, a group uses all of its own.
    column_bandwidth_bytes_per_s : float or None
        The same for process columns; without it as for rows.
    both_directions : bool
        Rings run in both directions at once: twice the bandwidth.
    node : int
        Ranks of a node; groups within one node use the keys without across_; 0: all groups do.
    across_bandwidth_bytes_per_s : float or None
        Bandwidth of one network card, for groups on several nodes; without it that of the link.
        A group has the cards of its own ranks (:mod:`drbench.model.costs`).
    shape : str
        ring, tree, fastest (of these two) or direct (each pair at once over its own link).
    across_sync_s : float or None
        One synchronisation in groups on several nodes; without it sync_s.
    across_launch_s : float or None
        Start of the operation in groups on several nodes; without it launch_s.
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
                "a collective of shape direct has the rate of the links of its pairs, got "
                f"bandwidth_bytes_per_s = {self.bandwidth_bytes_per_s}. Remove it, or the shape."
            )

    def across(self, members: Sequence[int]) -> bool:
        """Whether a group is on several nodes."""
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
        """The bandwidth in one direction of the group of that name with these members, if the
        collective has its own: that of one card, over nodes.

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
