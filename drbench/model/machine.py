"""Performance models: the time of a GEMM, a transfer or a collective on a machine, also on one that
you do not have.

A model is the section ``[model]`` of a TOML file (:mod:`drbench.model.machine_file`). One
efficiency model serves all machines; only its constants differ.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from math import gcd, inf

from drbench.errors import UsageError
from drbench.mappings import remembered

from .constants import Calibrated
from .gemm import Compute
from .kernels.attention import DecodeAttention, PrefillAttention
from .kernels.collectives import AllReduceKernel, Nccl
from .kernels.experts import ExpertExchange
from .links import ARBITRATIONS
from .machine_file import MachineFile
from .network import Collective, Link, Rate

__all__ = ["Collective", "Link", "Machine", "Rate"]


@dataclass(frozen=True)
class Machine(MachineFile):
    """A machine model.

    Attributes
    ----------
    name : str
        Name of the model.
    devices : int or None
        Ranks that the model is made for; without it any number.
    memory_bytes : float
        Memory of one device.
    clock : float
        Share of the clock rate at which the constants hold; a power limit lowers it.
        GEMMs and attention run at this share; memory and links do not change.
    compute : Compute
        Local GEMMs and memory of one device.
    links : tuple of Link
        Classes of links; two ranks use the first that joins them.
    torus : tuple of int or None
        Rows and columns of a 2-D torus of ranks; transfers occupy every link of their route.
        They follow a row of the torus first, then a column.
    fence_s : float
        From the last rank entering a Fence to all ranks leaving it.
    step_s : float
        Time of the computing core to start one step.
    dispatch_s : float
        Host time of a library called from Python until the device has work; dtensor_mm only.
        The overhead of LogP: it counts from the call, or from when the host knows what it has
        waited for.
    accumulate_efficiency : float
        Bandwidth of an accumulate over that of a copy.
    accumulate_slowdown : float
        Local GEMMs take (1 + value) times as long while the rank accumulates.
    accumulates_in_order : bool
        An accumulate with a thread block a unit begins after all tiles of earlier GEMMs.
        It takes all units until it ends. With fewer blocks accumulate_slowdown counts.
    arbitration : str
        How transfers share a link: fair (max-min fair shares) or fifo (one transfer at a time).
        Fair is closer to what a throttled link did
        (``results/measured/spr-2core/shared-links.csv``).
    copy_streams : int
        Queues for a rank's transfers of one direction and lane; each keeps its order; 0: no queues.
        Targets are assigned to queues round-robin. Without queues a transfer starts as soon as its
        links are free.
    signal_s : float
        From the last byte of a pushed value to its signal being visible; the queue waits for it.
    pull_efficiency : float
        Bandwidth of reading another rank's memory over that of writing to it.
    kernel_slowdown : float
        A fused GEMM takes (1 + value) times as long as the library's whole GEMM.
        Its tiles start as their operands arrive.
    side_units : int
        Units of compute that a reduction during a GEMM takes from the GEMM; 0: none.
        A GEMM that leaves them idle is not slowed.
    adds_on_core : bool
        The core that computes also accumulates, packs, and moves the data of collectives.
        It accumulates at ``compute.memory_bytes_per_s``.
    gemm_per_fragment : bool
        An operand of several gathered arrays needs one GEMM call for each array.
        CPU libraries need that.
    dtype : str
        Element type of compute, and the default of drbench simulate.
    dtypes : dict of str to Compute
        Other element types: peak_flops, and the keys of compute that differ.
    packets : int
        Packets of a pipelined broadcast or reduction.
    collectives : dict of str to Collective
        By operation: allgather, reducescatter, broadcast, reduce, shift.
        A machine with ``nccl`` does not use them.
    nccl : Nccl or None
        NCCL, whose protocol changes with the size of a message.
    prefill : PrefillAttention or None
        A fused kernel of causal attention; without it scores are written and read.
    latent_prefill : PrefillAttention or None
        The same of latent attention.
    decode : DecodeAttention or None
        Attention of a new token to a cache.
    latent_decode : DecodeAttention or None
        The same of latent attention.
    allreduces : dict of str to AllReduceKernel
        By their engines' names, kernels that inference engines use for all-reduce.
    exchanges : dict of str to ExpertExchange
        DeepEP's kernels by name: dispatch, combine, low_latency_dispatch, low_latency_combine.
    doubt : float
        All intervals of measured kernels are so many times wider.
        The constants are those of another board, changed by the ratio of the data sheets.
    assumed : tuple of str
        Paths of constants without a source, which intervals vary; "PATH by X": by at most X.
        The constants of one path with ``*`` are varied together. ``links.xe.bandwidth_bytes_per_s
        by 1.33`` means that the true value is at most so many times as large or as small
        (:attr:`factors`). Lists (``tiles``, ``splits``) and counts of queues or multiprocessors
        (``copy_streams``, ``side_units``) are not varied.
    calibrated : dict
        What drbench calibrate measured: ranks, nodes, threads, extents, bytes, date, processor.
    residuals : dict of str to list of float
        Measured over predicted times of whole programs, by transport or any; for the intervals.
        :func:`drbench.model.fit.spread` makes intervals of them.
    sources : dict
        The section as read, for :meth:`vary`.

    Examples
    --------
    >>> machine = Machine.from_dict(
    ...     {
    ...         "name": "toy",
    ...         "compute": {"peak_flops": 1e12},
    ...         "links": {"wire": {"bandwidth_bytes_per_s": 1e9}},
    ...     }
    ... )
    >>> (
    ...     machine.link(0, 1).bandwidth_bytes_per_s,
    ...     machine.vary("links.wire.bandwidth_bytes_per_s", 2).link(0, 1).bandwidth_bytes_per_s,
    ... )
    (1000000000.0, 2000000000.0)
    """

    name: str
    compute: Compute
    links: tuple[Link, ...] = ()
    devices: int | None = None
    memory_bytes: float = inf
    clock: float = 1.0
    torus: tuple[int, int] | None = None
    fence_s: float = 0.0
    step_s: float = 0.0
    dispatch_s: float = 0.0
    accumulate_efficiency: float = 1.0
    accumulate_slowdown: float = 0.0
    accumulates_in_order: bool = False
    arbitration: str = "fair"
    copy_streams: int = 0
    signal_s: float = 0.0
    pull_efficiency: float = 1.0
    kernel_slowdown: float = 0.0
    side_units: int = 0
    adds_on_core: bool = False
    gemm_per_fragment: bool = False
    dtype: str = "float32"
    dtypes: dict[str, Compute] = field(default_factory=dict)
    packets: int = 8
    collectives: dict[str, Collective] = field(default_factory=dict)
    nccl: Nccl | None = None
    prefill: PrefillAttention | None = None
    latent_prefill: PrefillAttention | None = None
    decode: DecodeAttention | None = None
    latent_decode: DecodeAttention | None = None
    allreduces: dict[str, AllReduceKernel] = field(default_factory=dict)
    exchanges: dict[str, ExpertExchange] = field(default_factory=dict)
    doubt: float = 1.0
    assumed: tuple[str, ...] = ()
    factors: dict[str, float] = field(default_factory=dict)
    calibrated: Calibrated = field(default_factory=Calibrated)
    residuals: dict[str, list[float]] = field(default_factory=dict)
    sources: dict = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self):
        named = {link.name: link for link in self.links}
        for link in self.links:
            unknown = [name for name in link.through if name not in named]
            if unknown:
                raise UsageError(
                    f"link {link.name}: through names {', '.join(unknown)}, which machine "
                    f"{self.name} does not have. It has {', '.join(named)}."
                )
        slowest = [
            min([link, *(named[name] for name in link.through)], key=_bandwidth)
            for link in self.links
        ]
        links = (
            replace(link, bandwidth_bytes_per_s=_bandwidth(least))
            for link, least in zip(self.links, slowest)
        )
        object.__setattr__(self, "links", tuple(links))
        for name, ratios in self.residuals.items():
            if len(ratios) < 2:
                raise UsageError(
                    f"machine {self.name}: residuals.{name} must be two or more measured over "
                    f"predicted times, got {ratios}."
                )
        if self.arbitration not in ARBITRATIONS:
            raise UsageError(
                f"machine {self.name}: arbitration must be one of {', '.join(ARBITRATIONS)}, got "
                f"{self.arbitration!r}."
            )
        if not 0 <= self.side_units < max(self.compute.units, 1):
            raise UsageError(
                f"machine {self.name}: side_units must be less than compute.units, "
                f"{self.compute.units}, got {self.side_units}."
            )

    @property
    def peaks(self) -> dict[str, float]:
        """FLOP/s of one device by element type, that of ``compute`` first."""
        return {self.dtype: self.compute.peak_flops} | {
            name: compute.peak_flops for name, compute in self.dtypes.items()
        }

    @property
    def runs_kernels(self) -> bool:
        """Whether it is a GPU: units of compute share kernels, and none of them communicates."""
        return self.compute.units > 1 and not self.adds_on_core and self.torus is None

    def collective(self, operation: str) -> Collective:
        """The model of an operation; if there is none, one that takes the time of its links."""
        default = Collective(node=self.node_ranks if self.nccl else 0)
        return self.collectives.get(operation) or default

    def nccl_s(
        self, operation: str, nbytes: float, members: Sequence[int], itemsize: int = 2
    ) -> float:
        """Seconds of NCCL's operation in a group (:meth:`Nccl.seconds`); needs ``nccl``."""
        assert self.nccl is not None
        nodes = Counter(rank // (self.node_ranks or inf) for rank in members)
        sizes = len(members), len(nodes), itemsize, min(nodes.values())
        return self.nccl.seconds(operation, nbytes, *sizes)

    def link(self, a: int, b: int) -> Link:
        """The class of link that joins two ranks."""
        for link in self.links:
            if link.joins(a, b):
                return link
        raise UsageError(
            f"machine {self.name} has no link between ranks {a} and {b}. Add one with within = 0."
        )

    def links_within(self, members: Sequence[int]) -> int:
        """The number of links of a rank to the others of a group inside a node.

        Examples
        --------
        >>> mesh, switch = Link("xgmi", 50e9, shared="pair"), Link("nvlink", 450e9)
        >>> [
        ...     Machine("t", Compute(1e12), (link,)).links_within((0, 1, 2, 3))
        ...     for link in (mesh, switch)
        ... ]
        [3, 1]
        """
        if len(members) < 2 or self.torus or self.link(*members[:2]).shared != "pair":
            return 1
        return len(members) - 1

    def route(self, source: int, target: int) -> tuple[Link, tuple]:
        """The link class of a transfer, and the links it occupies.

        Examples
        --------
        >>> Machine("t", Compute(1e12), (Link("ici", 1e9),), torus=(2, 4)).route(0, 6)[1]
        (('ici', 0, 1), ('ici', 1, 2), ('ici', 2, 6))
        """
        route = self.known.get((source, target))
        if route is None:
            link = self.link(source, target)
            route = self.known[source, target] = link, self._resources(link, source, target)
        return route

    def _resources(self, link: Link, source: int, target: int) -> tuple:
        """The resources of a transfer on a link, with those of the links of ``through``."""
        if self.torus is None:
            traversed = link, *(self._links_by_name[name] for name in link.through)
            return tuple(
                resource for part in traversed for resource in part.resources(source, target)
            )
        rows, cols = self.torus
        (row, col), (to_row, to_col) = divmod(source, cols), divmod(target, cols)
        path = [source, *(row * cols + x for x in _steps_around(col, to_col, cols))]
        path += [x * cols + to_col for x in _steps_around(row, to_row, rows)]
        return tuple((link.name, a, b) for a, b in pairwise(path))

    def shares(self, link: Link) -> tuple[float, ...]:
        """The fraction of the time of a transfer on a link for which it occupies each resource, in
        the order of :meth:`route`: less than 1 for faster links on its route. Empty if all are 1.

        Examples
        --------
        >>> port, card = Link("port", 20.0), Link("card", 10.0, through=("port",))
        >>> machine = Machine("t", Compute(1e12), (port, card))
        >>> machine.shares(card), machine.shares(port)
        ((1.0, 1.0, 0.5, 0.5), ())
        """
        shares = self.known.get(link.name)
        if shares is None:
            traversed = [link, *(self._links_by_name[name] for name in link.through)]
            rate = link.bandwidth_bytes_per_s
            all_of_it = tuple(
                1.0 if part.bandwidth_bytes_per_s == rate else rate / part.bandwidth_bytes_per_s
                for part in traversed
                for _ in part.resources(0, 1)
            )
            shares = self.known[link.name] = () if min(all_of_it) == 1 else all_of_it
        return shares

    @property
    def node_ranks(self) -> int:
        """Ranks of a node: those that the first link joins; 0: all.

        Examples
        --------
        >>> Machine(
        ...     "t", Compute(1e12), (Link("nvlink", 1e9, within=8), Link("nic", 1e8))
        ... ).node_ranks
        8
        """
        return self.links[0].within if self.links else 0

    def along(self, stride: int, extent: int, ranks: int) -> "Machine":
        """The machine as the ranks 0, stride, 2·stride, … of a group see it, numbered from 0, while
        all groups of this kind do the same: they share the links of a node and of a fabric.

        Parameters
        ----------
        stride, extent : int
            Distance of neighbours, and members, of each group.
        ranks : int
            Of all groups.

        Raises
        ------
        UsageError
            If a torus has no such rings.

        Examples
        --------
        Every rank of a node of 8 has a neighbour on the other node, over the one card of the node:

        >>> links = Link("near", 100.0, within=8), Link("card", 40.0, shared="node", node=8)
        >>> seen = Machine("t", Compute(1e12), links).along(8, 2, 16)
        >>> seen.link(0, 1).name, seen.link(0, 1).bandwidth_bytes_per_s
        ('card', 5.0)
        """
        key = "along", stride, extent, ranks
        return remembered(self.known, key, lambda: self._along(stride, extent, ranks))

    def _along(self, stride: int, extent: int, ranks: int) -> "Machine":
        if extent in (1, ranks):
            return self
        torus, fewer = None, lambda count: count and max(1, count // stride)
        if self.torus is not None:
            rows, cols = self.torus
            rings = {(1, cols): (1, extent), (cols, rows): (extent, 1)}
            torus = rings.get((stride, extent))
            if torus is None:
                raise UsageError(
                    f"machine {self.name} is a torus of {rows}x{cols}, which has no rings of "
                    f"{extent} ranks with stride {stride}. Use a mesh of {rows} and {cols} ranks."
                )
        links, slower = [], {}
        for link in self.links:
            rate = link.bandwidth_bytes_per_s
            groups = {  # that share the link
                "node": min(link.node, ranks) / min(fewer(link.node) or 1, extent),
                "fabric": ranks / extent,
            }.get(link.shared, 1.0)
            slow = rate / max(1.0, groups)
            slower[link.name] = rate / slow if rate < inf else 1.0
            links.append(
                replace(
                    link,
                    bandwidth_bytes_per_s=slow,
                    within=fewer(link.within),
                    node=fewer(link.node),
                    rails=link.rails // gcd(link.rails, stride),
                )
            )
        members = [*range(0, stride * extent, stride)]
        ring = () if self.adds_on_core else [*zip(members, members[1:] + members[:1])]
        collectives = {}
        for name, collective in self.collectives.items():
            shared = [1.0, 1.0]  # by the rings of other groups, inside and between nodes
            for a, b in ring:
                far = collective.across((a, b))
                shared[far] = max(shared[far], slower[self.link(a, b).name])
            own, across = collective.bandwidth_bytes_per_s, collective.across_bandwidth_bytes_per_s
            own = stride > 1 and collective.column_bandwidth_bytes_per_s or own
            collectives[name] = replace(
                collective,
                node=fewer(collective.node),
                bandwidth_bytes_per_s=own and own / shared[0],
                across_bandwidth_bytes_per_s=across and across / shared[1],
            )
        return replace(
            self, links=tuple(links), torus=torus, devices=extent, collectives=collectives
        )

    @cached_property
    def known(self) -> dict:
        """A cache of routes, shares, groups over nodes, transports and groups."""
        return {}

    @cached_property
    def _links_by_name(self) -> dict[str, Link]:
        return {link.name: link for link in self.links}


def _bandwidth(link: Link) -> float:
    return link.bandwidth_bytes_per_s


def _steps_around(at: int, to: int, size: int) -> list[int]:
    """The positions on the shorter route around a ring, without the first; on a tie ahead."""
    ahead = (to - at) % size
    by, hops = (1, ahead) if 2 * ahead <= size else (-1, size - ahead)
    return [(at + by * hop) % size for hop in range(1, hops + 1)]
