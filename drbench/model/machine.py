"""Machine models: how long a product, a transfer or a collective takes on machines, also those
nobody here has.

A model is the section ``[model]`` of a TOML file (``launch/data/machines``), in which every number
has its unit in its name and its source beside it. One efficiency model serves all machines; only
its constants differ.
"""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from math import inf, prod

from drbench.common import TransportChoice
from drbench.errors import UnsupportedError, UsageError, did_you_mean, shown
from drbench.program.problem import ITEMSIZES
from drbench.program.steps import Block

from .constants import Calibrated, check_table, read_table, refuse_unknown
from .gemm import Compute
from .links import ARBITRATIONS

#: What one link may be shared by: the two ranks of an ordered pair; all flows out of (into) a
#: device; all flows out of (into) a node; all flows there are (the core of a fabric); or nobody but
#: the rank that started the transfer (the throttled transport).
SHARED = ("pair", "device", "node", "fabric", "initiator")
#: What products are made of, each with a peak of its own: element types, and TF32, an arithmetic
#: for float32.
ARITHMETICS = (*(name for name in ITEMSIZES if ":" not in name), "tf32")


#: Who moves data.
LANES = ("copy", "nic")
#: Names in tables of a machine, by table.
_KNOWN = {
    "collectives": ("allgather", "reducescatter", "broadcast", "reduce", "shift"),
    "transports": ("direct", "rma"),
    "residuals": ("direct", "rma", "throttled", "any"),
}


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
    core_bytes_per_s : float
        Rate at which the core that computes has to copy what it gets; inf where a copy engine moves
        the data.
    core_apart_bytes_per_s, core_row_s : float
        The same of a block whose rows lie apart in the owner's memory (inf: no slower), and seconds
        more for each of the rows.
    core_add_bytes_per_s : float
        Where the core makes accumulates itself (``adds_on_core``): bytes of the block a second; inf
        for what memory allows.
    core_add_apart_bytes_per_s, core_add_row_s : float
        The same of a block whose rows lie apart.
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
    core_bytes_per_s: float = inf
    core_row_s: float = 0.0
    core_add_bytes_per_s: float = inf
    core_apart_bytes_per_s: float = inf
    core_add_apart_bytes_per_s: float = inf
    core_add_row_s: float = 0.0
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
    def free(self) -> bool:
        """Whether transfers take no time."""
        return self.bandwidth_bytes_per_s == inf and not self.latency_s

    def copy_s(self, block: Block, nbytes: int) -> float:
        """Seconds of the core that getting a block costs.

        Examples
        --------
        Half the columns of a tile of 8 rows and 4 columns, and half its rows:

        >>> link = Link("node", 1e9, core_bytes_per_s=64.0, core_row_s=0.25)
        >>> (
        ...     link.copy_s(Block("A", 1, 0, (0, 0), 0, 8, 0, 2, full=False), 64),
        ...     link.copy_s(Block("A", 1, 0, (0, 0), 0, 4, 0, 4), 64),
        ... )
        (3.0, 1.0)
        """
        return _core_s(
            block, nbytes, self.core_bytes_per_s, self.core_apart_bytes_per_s, self.core_row_s
        )

    def add_s(self, block: Block, nbytes: int, cut: bool = False) -> float:
        """The same of adding to a block, where ``core_add_bytes_per_s`` is known; ``cut`` if the
        rows of what is added lie apart.

        Examples
        --------
        >>> link = Link("node", 1e9, core_add_bytes_per_s=64.0, core_add_apart_bytes_per_s=32.0)
        >>> whole = Block("C", 1, 0, (0, 0), 0, 4, 0, 4)
        >>> link.add_s(whole, 64), link.add_s(whole, 64, cut=True)
        (1.0, 2.0)
        """
        apart, row_s = self.core_add_apart_bytes_per_s, self.core_add_row_s
        return _core_s(block, nbytes, self.core_add_bytes_per_s, apart, row_s, cut)

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


#: How a collective may go: round the ring of its group; by doubling distances, or down a pipelined
#: tree; as is fastest of these; or directly, where each pair of a node's ranks has a link of its
#: own, every rank to every other at once.
SHAPES = ("ring", "tree", "fastest", "direct")


def _core_s(
    block: Block, nbytes: int, rate: float, apart: float, row_s: float, cut: bool = False
) -> float:
    """Seconds of the core that a block takes at a rate, or another where rows lie apart."""
    if block.full and not cut:
        return nbytes / rate
    return nbytes / min(rate, apart) + block.shape[block.transposed] * row_s


@dataclass(frozen=True)
class Collective:
    """A collective on P ranks, in the simplest shape ``launch_s + (P - 1) · (sync_s + bytes of a
    shard / bandwidth)`` (MeshSlice, §3.2.2); :mod:`drbench.model.costs` has the others.

    ``shape`` is one of :data:`SHAPES`.

    ``bandwidth_bytes_per_s`` is what one link of a rank gives, that of the links on the ring if it
    is None: where each pair of ranks has a link, all of a group's are used. ``both_ways`` says
    that it goes round the ring in both directions at once: twice that bandwidth, on the links of
    both directions. ``column_bandwidth_bytes_per_s`` is that of process columns where their links
    differ from those of rows. ``across_bandwidth_bytes_per_s`` is what one network card gives to
    groups which are not within one node of ``node`` ranks, that of the link between the nodes if it
    is None: a group has the cards of its own ranks (:mod:`drbench.model.costs`).
    ``across_launch_s`` and ``across_sync_s`` are theirs too; None for the same as within a node.
    """

    launch_s: float = 0.0
    sync_s: float = 0.0
    bandwidth_bytes_per_s: float | None = None
    column_bandwidth_bytes_per_s: float | None = None
    both_ways: bool = False
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


@dataclass(frozen=True)
class Machine:
    """A machine model.

    Attributes
    ----------
    name : str
    devices : int or None
        Ranks the model is made for; None for any number.
    memory_bytes : float
        Memory of one device.
    compute : Compute
    links : tuple of Link
    torus : tuple of int or None
        Rows and columns of a 2-D torus of ranks; transfers then go along columns first, rows
        second, and occupy every link on the way.
    fence_s : float
        From the last rank coming to a Fence to all leaving it.
    fence_round_s : float
        So much more for each doubling of the ranks: barriers go in rounds (dissemination).
    step_s : float
        Time of the computing core that starting one step costs.
    dispatch_s : float
        Host seconds that a library takes which Python dispatches, from its call, or from the host
        knowing what it has waited for, until the device has work (LogP's overhead); for programs
        that stand for one.
    accumulate_efficiency : float
        Bandwidth of an accumulate over that of a copy.
    accumulate_slowdown : float
        Local products take ``1 + accumulate_slowdown`` times as long while an accumulate of the
        same rank is under way.
    transfer_slowdown : float
        Local products take that much longer for each link that the same rank sends or receives on:
        both share its memory. A ring collective both ways is four.
    arbitration : str
        How transfers get over links, one of :data:`drbench.model.links.ARBITRATIONS`. Fair is
        nearer to what links of this kind do (``benchmarks/shared_links.py``).
    owner_slowdown : float
        Local products take that much longer while another rank adds to the memory of theirs, as
        ``accumulate_slowdown`` says of the rank that adds.
    memory_shared : bool
        Transfers take the memory of both ends too: of ``compute.memory_bytes_per_s`` what their
        bytes need, once where they are read, once where they are written, twice where they are
        added.
    copy_engines : int
        Of a rank: so many of its copies on links whose ``lane`` is ``copy`` are under way at once.
        Accumulates are kernels and need none. 0 for as many as there are copies.
    copy_engine_bytes_per_s : float
        What one of them moves.
    copy_streams : int
        Queues in which a rank's transfers of one direction and lane keep their order, peers being
        dealt to them in turn; each starts when the one before it is through. 0 for as many as there
        are transfers, which then start as links get free.
    signal_s : float
        From the last byte of a pushed value being there to its signal being seen; it holds up the
        queue, which writes the signal after the value.
    pull_efficiency : float
        Bandwidth of a read of another rank's memory over that of a write.
    kernel_slowdown : float
        A product whose parts begin as their operands arrive takes that much longer than the
        library's whole one.
    side_units : int
        Workers (``compute.units``) that a sum beside the products takes from them; 0 for none. A
        product that leaves them idle is not slowed.
    adds_on_core : bool
        The core that computes does everything else, too: accumulates, at
        ``compute.memory_bytes_per_s``, packing, and the data of collectives.
    pieces_apart : bool
        A product whose operands lie in pieces (gathered columns) is one call a piece, as CPU
        libraries need; else it is as fast as of whole ones.
    dtype : str
        The element type that ``compute`` is for, ``drbench simulate``'s default.
    dtypes : dict of str to Compute
        The same for other element types; the file says what differs, at least the peak.
    packets : int
        Pieces of a pipelined broadcast or reduction.
    collectives : dict of str to Collective
        By operation: ``allgather``, ``reducescatter``, ``broadcast``, ``reduce``, ``shift``.
    assumed : tuple of str
        Paths of constants that rest on an assumption: intervals and the sensitivity study vary
        them, those of one path with ``*`` together. A file may say how far what is known of one
        goes, as in ``links.xe.bandwidth_bytes_per_s by 1.33``: so many times as much, or as little
        (:attr:`factors`). Lists (``tiles``, ``splits``) and how many
        queues or multiprocessors there are (``copy_streams``, ``side_units``) have no faster end.
    calibrated : dict
        Of a machine that ``drbench calibrate`` measured: ``ranks`` that measured at once, BLAS
        ``threads`` of each, ``date`` and ``processor``.
    residuals : dict of str to list of float
        Measured over predicted times of whole programs, by transport, ``any`` for those that are
        not named: intervals of predictions are made of them (:func:`drbench.model.fit.spread`).
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
    torus: tuple[int, int] | None = None
    fence_s: float = 0.0
    fence_round_s: float = 0.0
    step_s: float = 0.0
    dispatch_s: float = 0.0
    accumulate_efficiency: float = 1.0
    accumulate_slowdown: float = 0.0
    transfer_slowdown: float = 0.0
    arbitration: str = "fair"
    owner_slowdown: float = 0.0
    memory_shared: bool = False
    copy_engines: int = 0
    copy_engine_bytes_per_s: float = inf
    copy_streams: int = 0
    signal_s: float = 0.0
    pull_efficiency: float = 1.0
    kernel_slowdown: float = 0.0
    side_units: int = 0
    adds_on_core: bool = False
    pieces_apart: bool = False
    dtype: str = "float32"
    dtypes: dict[str, Compute] = field(default_factory=dict)
    packets: int = 8
    collectives: dict[str, Collective] = field(default_factory=dict)
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

    @classmethod
    def from_dict(cls, section: dict, name: str | None = None) -> Machine:
        """Make a machine of a ``[model]`` section.

        Raises
        ------
        UsageError
            If a key is missing or unknown, or a value makes no sense.
        """
        raw = copy.deepcopy(section)
        check_table(raw, "model")
        values = {"torus": None} | raw
        for table in ("compute", "links", "collectives", "dtypes", "transports", "residuals"):
            check_table(values.setdefault(table, {}), f"model.{table}")
        values["name"] = name or values.get("name", "unnamed")
        _check_names(values)
        values["dtypes"] = {
            name: read_table(Compute, _of_dtype(raw, name), f"model.dtypes.{name}")
            for name in values["dtypes"]
        }
        values["compute"] = read_table(Compute, values["compute"], "model.compute")
        links, _ = (
            tuple(
                read_table(Link, link, f"model.{table}.{key}", name=key)
                for key, link in values.pop(table).items()
            )
            for table in ("links", "transports")
        )
        values["links"] = links
        values["collectives"] = {
            key: read_table(Collective, each, f"model.collectives.{key}")
            for key, each in values["collectives"].items()
        }
        values["assumed"], factors = _assumed(values.get("assumed", ()))
        if isinstance(values["torus"], str):
            raise UsageError(
                f"machine {values['name']} needs the shape of its torus. Name it "
                f"{values['name']}-RxC, as {values['name']}-4x8."
            )
        if values["torus"] is not None:
            values.pop("devices", None)
        machine = read_table(cls, values, "model", sources=raw, factors=factors)
        return replace(machine, devices=prod(machine.torus)) if machine.torus else machine

    @classmethod
    def load(cls, path, name: str | None = None, **changes) -> Machine:
        """Read the ``[model]`` section of a TOML file; ``changes`` replace constants of it.

        Raises
        ------
        UsageError
            If the file is not there, is no TOML, or holds no valid ``[model]``.
        """
        try:
            with open(path, "rb") as file:
                section = tomllib.load(file).get("model")
        except OSError as error:
            raise UsageError(
                f"machine file {path}: {error.strerror}. Use drbench list, or drbench calibrate "
                f"--save {path}."
            ) from None
        except (ValueError, RecursionError) as error:
            raise UsageError(f"machine file {path} is no TOML: {error}. Correct it.") from None
        if section is None:
            raise UsageError(
                f"machine file {path} has no section [model]. Add one, or make one with drbench "
                f"calibrate --save {path}."
            )
        check_table(section, "model")
        machine = cls.from_dict(section | changes, name)
        where = f"machine {machine.name} (model.assumed)"
        for constant in machine.assumed:
            (place, *_) = machine._tables(section, constant, True, where)
            _number(place[constant.rpartition(".")[2]], constant, where)
        return machine

    def vary(self, path: str, factor: float) -> Machine:
        """The machine with one constant times a factor; ``path`` as in
        ``links.xe.bandwidth_bytes_per_s``."""
        return self.with_value(path, lambda value: _number(value, path, self.name) * factor)

    def with_value(self, path: str, value) -> Machine:
        """The machine with one constant replaced (or put through a function): ``*`` in its path
        stands for every table that has it.

        Examples
        --------
        >>> each = {"allgather": {"launch_s": 1.0}, "shift": {"launch_s": 0.5}, "reduce": {}}
        >>> section = {"compute": {"peak_flops": 1e12}, "collectives": each}
        >>> found = Machine.from_dict(section).vary("collectives.*.launch_s", 2).collectives
        >>> {kind: collective.launch_s for kind, collective in found.items()}
        {'allgather': 2.0, 'shift': 1.0, 'reduce': 0.0}
        """
        raw = copy.deepcopy(self.sources)
        last = path.rpartition(".")[2]
        for place in self._tables(raw, path, callable(value)):
            place[last] = value(place[last]) if callable(value) else value
        return Machine.from_dict(raw, self.name)

    def constant(self, path: str) -> float:
        """One constant as the file has it, of ``*`` the first."""
        return self._tables(self.sources, path, True)[0][path.rpartition(".")[2]]

    def _tables(self, raw: dict, path: str, known: bool, where: str = "") -> list[dict]:
        """The tables of a section in which the constant of a path stands, where it must be
        ``known``, or may."""
        *folders, last = path.split(".")
        places = [raw]
        for name in folders:
            found = [p.values() if name == "*" else [p.get(name)] for p in places]
            places = [each for tables in found for each in tables if isinstance(each, dict)]
        if known or "*" in folders:
            places = [place for place in places if last in place]
        if not places:
            raise UsageError(
                f"{where or self.name} has no constant {shown(path)}. Its tables are "
                f"{', '.join(k for k, v in raw.items() if isinstance(v, dict))}."
            )
        return places

    def for_transport(self, choice: TransportChoice) -> Machine:
        """The machine as seen through a transport: throttled is exact by definition; others from
        ``[model.transports.NAME]``, which is the link of ranks near each other (all, or those
        ``within`` a node). Links of the file join the others.

        Raises
        ------
        UsageError
            If the machine has no model of that transport.

        Examples
        --------
        >>> section = {
        ...     "compute": {"peak_flops": 1e12},
        ...     "transports": {"rma": {"within": 2, "bandwidth_bytes_per_s": 1e10}},
        ...     "links": {"nic": {"bandwidth_bytes_per_s": 1e9}},
        ... }
        >>> seen = Machine.from_dict(section).for_transport(TransportChoice("rma"))
        >>> [seen.link(0, other).name for other in (1, 2)]
        ['rma', 'nic']
        """
        transports = self.sources.get("transports", {})
        if (
            choice.kind == "throttled"
        ):  # adds are made in place, and then take as long as the link says
            link = {
                "bandwidth_bytes_per_s": choice.bandwidth_bytes_per_s,
                "latency_s": choice.latency_s,
                "shared": "initiator",
                "reads_in_place": True,
            }
            direct = transports.get("direct", {})
            link |= {name: direct[name] for name in direct if name.startswith("core_add_")}
            seen = {"links": {"throttled": link}, "accumulate_efficiency": 1.0, "collectives": {}}
            return Machine.from_dict(self.sources | seen, self.name)
        if choice.kind == "auto" and not transports:
            return self
        kind = "direct" if choice.kind == "auto" else choice.kind
        if kind not in transports:
            raise UsageError(
                f"machine {self.name} has no model of the transport {choice.kind}. It has "
                f"{', '.join(('auto', 'throttled', *transports))}."
            )
        tiers = {kind: transports[kind]} | self.sources.get("links", {})
        return Machine.from_dict(self.sources | {"links": tiers}, self.name)

    @property
    def peaks(self) -> dict[str, float]:
        """FLOP/s of one device by element type, that of ``compute`` first."""
        return {self.dtype: self.compute.peak_flops} | {
            name: compute.peak_flops for name, compute in self.dtypes.items()
        }

    def for_dtype(self, dtype: str) -> Machine:
        """The machine as products of an element type see it (``"tf32"``: of float32 in TF32).

        Raises
        ------
        UnsupportedError
            If it has no peak for that type: another type's would make products wrong, and
            communication look too cheap or too dear.

        Examples
        --------
        >>> section = {"compute": {"peak_flops": 1e12}, "dtypes": {"float64": {"peak_flops": 5e11}}}
        >>> Machine.from_dict(section).for_dtype("float64").compute.peak_flops
        500000000000.0
        >>> Machine.from_dict(section, "toy").for_dtype("bfloat16")
        Traceback (most recent call last):
        drbench.errors.UnsupportedError: machine toy has peaks for float32, float64, none for ...
        """
        if dtype == self.dtype:
            return self
        if dtype not in self.dtypes:
            raise UnsupportedError(
                f"machine {self.name} has {'peaks' if self.dtypes else 'a peak'} for "
                f"{', '.join(self.peaks)}, none for {dtype}. Add to its file "
                f"[model.dtypes.{dtype}] and below it peak_flops = (FLOP/s of one device), or use "
                f"--dtype {self.dtype}."
            )
        compute = _of_dtype(self.sources, dtype)
        return Machine.from_dict(self.sources | {"compute": compute, "dtype": dtype}, self.name)

    def fence_of(self, ranks: int) -> float:
        """Seconds of a Fence of so many ranks.

        Examples
        --------
        >>> machine = Machine("t", Compute(1e12), fence_s=5.0, fence_round_s=2.0)
        >>> [machine.fence_of(ranks) for ranks in (1, 2, 5, 8)]
        [5.0, 7.0, 11.0, 11.0]
        """
        return self.fence_s + self.fence_round_s * (int(ranks) - 1).bit_length()

    def collective(self, operation: str) -> Collective:
        """That of an operation; without a model of its own it takes its links' time alone."""
        return self.collectives.get(operation) or Collective()

    def link(self, a: int, b: int) -> Link:
        """The class of link that joins two ranks."""
        for link in self.links:
            if link.joins(a, b):
                return link
        raise UsageError(
            f"machine {self.name} has no link between ranks {a} and {b}. Add one with within = 0."
        )

    def ring_rate(self, members: tuple[int, ...]) -> float:
        """Bytes a second of the slowest link round the ring of these ranks, of two at least.

        Examples
        --------
        >>> near, far = Link("near", 4e9, within=2), Link("far", 1e9)
        >>> machine = Machine("t", Compute(1e12), (near, far))
        >>> machine.ring_rate((0, 1)), machine.ring_rate((0, 1, 2))
        (4000000000.0, 1000000000.0)
        """
        found = self._ring_rates.get(members)
        if found is None:
            pairs = zip(members, (*members[1:], members[0]))
            found = min(self.link(*pair).bandwidth_bytes_per_s for pair in pairs)
            self._ring_rates[members] = found
        return found

    def links_within(self, members: Sequence[int]) -> int:
        """How many links a rank has to the others of a group inside a node.

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
        link = self.link(source, target)
        if self.torus is None:
            found = link.resources(source, target)
            for name in link.through:
                found += self._named[name].resources(source, target)
            return link, found
        rows, cols = self.torus
        (row, col), (to_row, to_col) = divmod(source, cols), divmod(target, cols)
        path = [source, *(row * cols + x for x in _passed(col, to_col, cols))]
        path += [x * cols + to_col for x in _passed(row, to_row, rows)]
        return link, tuple((link.name, a, b) for a, b in pairwise(path))

    def memory_of(self, source: int, target: int) -> tuple:
        """What a transfer occupies of the memory of both ends; nothing unless it is shared.

        Examples
        --------
        >>> Machine("t", Compute(1e12), memory_shared=True).memory_of(0, 3)
        (('memory', 'of', 0), ('memory', 'of', 3))
        """
        if not self.memory_shared:
            return ()
        return ("memory", "of", source), ("memory", "of", target)

    def shares(self, link: Link) -> tuple[float, ...]:
        """How much of the time of a transfer on a link it occupies each thing on its way, in the
        order of :meth:`route`: less than 1 of faster links that it goes through. Empty if it
        occupies all of them as long as it takes.

        Examples
        --------
        >>> port, card = Link("port", 20.0), Link("card", 10.0, through=("port",))
        >>> machine = Machine("t", Compute(1e12), (port, card))
        >>> machine.shares(card), machine.shares(port)
        ((1.0, 1.0, 0.5, 0.5), ())
        """
        found = self._shares.get(link.name)
        if found is None:
            ways = [link, *(self._named[name] for name in link.through)]
            carried = [way.carries_bytes_per_s or way.bandwidth_bytes_per_s for way in ways]
            all_of_it = tuple(
                1.0 if whole == link.bandwidth_bytes_per_s else link.bandwidth_bytes_per_s / whole
                for way, whole in zip(ways, carried)
                for _ in way.resources(0, 1)
            )
            found = self._shares[link.name] = () if min(all_of_it) == 1 else all_of_it
        return found

    @cached_property
    def over_nodes(self) -> dict:
        """What :mod:`drbench.model.costs` found of groups over several nodes."""
        return {}

    @cached_property
    def _ring_rates(self) -> dict[tuple[int, ...], float]:
        return {}

    @cached_property
    def _shares(self) -> dict[str, tuple[float, ...]]:
        return {}

    @cached_property
    def _named(self) -> dict[str, Link]:
        return {link.name: link for link in self.links}


def _bandwidth(link: Link) -> float:
    return link.bandwidth_bytes_per_s


def _check_names(values: dict) -> None:
    """Refuse an element type, an operation or a transport that there is none of: its constants
    would never be used."""
    for table, known in _KNOWN.items():
        refuse_unknown(values[table], known, f"model.{table}")
    for where, name in (("dtype", values.get("dtype", Machine.dtype)),) + tuple(
        (f"dtypes.{each}", each) for each in values["dtypes"]
    ):
        if name not in ARITHMETICS:
            raise UsageError(
                f"model.{where}: no element type {name!r}. Use {', '.join(ARITHMETICS)}."
                f"{did_you_mean(str(name), ARITHMETICS)}"
            )


def _assumed(texts: Sequence[str]) -> tuple[tuple[str, ...], dict[str, float]]:
    """The paths of assumed constants, and the factors that some of them have.

    Examples
    --------
    >>> _assumed(["fence_s", "links.xe.bandwidth_bytes_per_s by 1.33"])
    (('fence_s', 'links.xe.bandwidth_bytes_per_s'), {'links.xe.bandwidth_bytes_per_s': 1.33})
    """
    if not isinstance(texts, (list, tuple)) or not all(isinstance(text, str) for text in texts):
        raise UsageError(f"model.assumed must be a list of texts, got {shown(texts)}.")
    found = [text.partition(" by ")[::2] for text in texts]
    try:
        factors = {path: float(by) for path, by in found if by}
    except ValueError:
        factors = {"": 0.0}
    if not all(1 <= by < inf for by in factors.values()):
        raise UsageError(
            "model.assumed must be paths of constants, and may have a factor of at least 1, got "
            f"{shown(list(texts))}. Write it as fence_s by 1.5."
        )
    return tuple(path for path, _ in found), factors


def _number(value, path: str, machine: str) -> float:
    """The number that a constant is, to be varied."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise UsageError(f"{machine} has no number {shown(path)} to vary. Name one, as 'fence_s'.")
    return value


def _of_dtype(section: dict, dtype: str) -> dict:
    """The table ``compute`` of a section as products of an element type need it: its own peak, and
    what else differs."""
    own, where = section["dtypes"][dtype], f"model.dtypes.{dtype}"
    if not isinstance(own, dict) or "peak_flops" not in own:
        raise UsageError(f"{where} needs peak_flops. Add it, with its source.")
    return section.get("compute", {}) | own


def _passed(at: int, to: int, size: int) -> list[int]:
    """The positions on the shorter way round a ring, without the first; on a tie ahead."""
    ahead = (to - at) % size
    by, hops = (1, ahead) if 2 * ahead <= size else (-1, size - ahead)
    return [(at + by * hop) % size for hop in range(1, hops + 1)]
