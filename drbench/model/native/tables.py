"""The traces of all ranks as flat tables, for the compiled event loop.

A step is a number of a row and the steps that it takes; a row says what a step is, costs and
occupies, and serves all steps alike. What the tables hold does not depend on the look-ahead.
"""

from array import array
from collections import Counter
from collections.abc import Sequence
from math import inf

from drbench.common import PHASES
from drbench.program.steps import (
    COUNTERS,
    Accumulate,
    Assemble,
    Fence,
    Gemm,
    Get,
    Put,
    ReplicaAdd,
    ReplicaGet,
    Scratch,
    Step,
)
from drbench.program.trace import Trace

from ..costs import (
    Cost,
    GroupCost,
    Way,
    compute_s,
    group_cost,
    group_ways,
    is_cut,
    parts_of,
    side_s,
    step_cost,
)
from ..kernel import part_tiles, tilings
from ..machine import Machine
from ..rank import wait_of, work_of
from .loop import MORE_INTS, MORE_REALS

#: As ``events.c`` counts them.
ALIAS, OWN, MOVE, FENCE, COMPUTE, SIDE_ON_CORE, SIDE, OFFER, AWAIT, PUSH, TAKE, GROUP = range(12)
COMPUTES, MAKES, MOVES, TOUCHES, AT_HAND, HELD = 1, 2, 4, 8, 16, 32
ANYTIME, ADDS, TERM, OWN_LINK, SENDS = 64, 128, 256, 512, 1024
SHIFTS, ALONE, THROTTLED = 2048, 4096, 8192

_SIGNALS = {("push", True): PUSH, ("push", False): AWAIT, ("offer", True): OFFER}
#: Steps whose cost follows from their type, block and its owner.
_OF_BLOCK = {Get, ReplicaGet, Assemble, Put, Accumulate, ReplicaAdd}
_INTS = ("kind", "flags", "wait", "work", "lane", "engine", "onto", "value", "resource0")
_REALS = ("core_s", "link_s", "latency_s", "bytes_per_s")
_OF_NONE = dict.fromkeys(("lane", "engine", "onto", "value", "seat", "group", "kernel"), -1)

#: What costs nothing.
_NOTHING = Cost()


class Tables:
    """The traces of all ranks of a problem on a machine.

    Attributes
    ----------
    machine : Machine
    ranks, steps : int
    counters : dict of str to int
        Bytes by kind, as of :class:`drbench.model.simulate.Simulated`.
    first, row, input0, inputs, op : array of int
        Of each rank its first step (and the number of all); of each step its row, where its inputs
        begin, and its operation, -1 of programs that are not lowered; the inputs, counted from the
        rank's first step.
    columns : dict of str to array
        Of the rows.
    on, shares : array
        What rows occupy, from ``resource0`` of a row to that of the next.
    sizes : array of int
        Members of each group.
    resources, lanes, values, seats, ways : int
        How many there are: a seat is a rank in a group, a way the direction in which a rank's
        throttled ring goes.
    """

    def __init__(self, traces: Sequence[Trace], machine: Machine):
        self.machine, self.ranks = machine, len(traces)
        self.first, self.row, self.op = array("i", [0]), array("i"), array("i")
        self.input0, self.inputs = array("i", [0]), array("i")
        self.columns = {name: array("i") for name in _INTS + MORE_INTS}
        self.columns |= {name: array("d") for name in _REALS + MORE_REALS}
        self.on, self.shares = array("i"), array("d")
        self.counters = dict.fromkeys(COUNTERS, 0)
        problem = traces[0].problem
        self._itemsize = problem.itemsize if problem else 4
        self.fence_s = machine.fence_of(problem.nprocs if problem else len(traces))
        self._seats = {trace.rank: seat for seat, trace in enumerate(traces)}
        self._routes: dict = {}
        self._numbers: dict = {}  # what a transfer can occupy -> its number
        self._lanes: dict = {}
        self._values: dict = {}
        self._sitting: dict = {}  # (rank, group), and ranks' ways, kernels, groups: their numbers
        self._ways: dict = {}
        self._kernels: dict = {}
        self._groups: dict = {}
        self._rings: dict = {}  # costs of collectives
        self.sizes = array("i")
        self._everywhere: dict = {}  # rows that are alike on all ranks
        self._moved: dict = {}  # row -> (counter, elements)
        self._copied = any(
            min(link.core_bytes_per_s, link.core_add_bytes_per_s) < inf for link in machine.links
        )
        for trace in traces:
            self._add(trace)
        uses = Counter(self.row)
        self.columns["resource0"].append(len(self.on))
        for row, (name, elements) in self._moved.items():
            self.counters[name] += self._itemsize * elements * uses[row]
        self.resources, self.lanes = len(self._numbers), len(self._lanes)
        self.steps, self.values = len(self.row), len(self._values)
        self.seats, self.ways = len(self._sitting), len(self._ways)

    def _add(self, trace: Trace) -> None:
        rank, everywhere, here = trace.rank, self._everywhere, {}
        parts = parts_of(trace, self.machine)
        kernels = tilings(trace.steps, self.machine, self._itemsize)
        rows, inputs, input0, ordered = self.row, self.inputs, self.input0, {trace.written}
        for step in trace.steps:
            for value in step.inputs:
                inputs.append(value.index)
            input0.append(len(inputs))
            kind = type(step)
            if kind is Gemm:
                known, block = everywhere, step.block
                key = (step.extents, step.turned, block is None, block and block.matrix in ordered)
                if step.rows is not None:
                    key += (True,)
                if step.index in parts or step.index in kernels:
                    known, key = here, (*key, *parts.get(step.index, ()), id(step.kernel))
            elif kind in _OF_BLOCK:
                known, block = here, step.block
                key = (kind, block.owner, block.size, block.matrix)
                if self._copied:
                    cut = isinstance(step, Accumulate) and is_cut(step)
                    key += (block.stored_shape, block.ld, cut)
            elif step.grouped:
                known, key = here, self._like(step, rank)
            elif kind is Fence:
                known, key = here, kind
            elif step.alias or kind is Scratch:
                known, key = everywhere, kind
            else:
                known, key = {}, None
            row = known.get(key)
            if row is None:
                row = known[key] = self._made(step, rank, ordered, parts, kernels)
            rows.append(row)
        self.op.extend(trace.ops or [-1] * len(trace.steps))
        self.first.append(len(rows))

    # -- rows

    def _made(self, step, rank: int, ordered: frozenset, parts: dict, kernels: dict) -> int:
        """The number of a new row."""
        kind = type(step)
        flags = TOUCHES if kind is Fence or step.matrix in ordered else 0
        if step.anytime:
            flags |= ANYTIME
        if kind is Scratch:
            return self._row(step, ALIAS, flags | AT_HAND)
        if step.alias:
            return self._row(step, ALIAS, flags)
        if kind is Fence:
            return self._row(step, FENCE, flags, seat=self._seat(rank, "world"))
        if step.computes:
            flags |= COMPUTES | (MAKES if kind is Gemm and step.block is None else 0)
            if step.index in kernels:
                return self._part(step, rank, flags, kernels[step.index])
            seconds = compute_s(self.machine, step, self._itemsize, parts.get(step.index))
            return self._row(step, COMPUTE, flags, Cost(seconds))
        if step.grouped:
            return self._group(step, rank, flags)
        self._count(step, rank)
        if step.signals or step.onto is not None or step.moved(rank):
            flags |= MOVES
        if step.signals:
            return self._signal(step, rank, flags)
        if step.side:
            return self._sum(step, rank, flags)
        return self._one_sided(step, rank, flags)

    def _row(self, step: Step, kind: int, flags: int, cost: Cost = _NOTHING, **more) -> int:
        given = {"kind": kind, "flags": flags, "work": PHASES.index(work_of(step))}
        given["wait"] = PHASES.index(wait_of(step))
        given["resource0"] = len(self.on)
        given |= {name: getattr(cost, name) for name in _REALS}
        for name, column in self.columns.items():
            value = more.get(name)
            column.append(given.get(name, _OF_NONE.get(name, 0)) if value is None else value)
        return len(self.columns["kind"]) - 1

    def _part(self, step: Gemm, rank: int, flags: int, tiling) -> int:
        """Of a kernel."""
        more = {"workers": tiling.units, "tiles": part_tiles(step, tiling)}
        more["kernel"] = self._kernels.setdefault((rank, id(step.kernel)), len(self._kernels))
        return self._row(step, COMPUTE, flags, **more, tile_s=tiling.tile_s)

    def _like(self, step, rank: int) -> tuple:
        """What group steps of a rank that are alike have in common; counts their bytes."""
        self.counters[step.counter] += self._itemsize * sum(n for _, n in step.moved(rank))
        by = (step.by, step.elements()) if step.kind == "shift" else ()
        packs = step.packs(self.machine.adds_on_core)[0], step.packs()[1]
        return type(step), id(step.group), step.matrix, step.shard(), packs, step.ring(), *by

    def _group(self, step, rank: int, flags: int) -> int:
        """A row of a group step."""
        machine, itemsize, group, size = self.machine, self._itemsize, step.group, len(step.group)
        shifts = step.kind == "shift"
        by = step.by % size if shifts else 0
        alone = size == 1 or (shifts and not by)
        flags |= SHIFTS * shifts | ALONE * alone | (MOVES if size > 1 or step.moved(rank) else 0)
        number = self._groups.setdefault(group, len(self._groups))
        if number == len(self.sizes):
            self.sizes.append(size)
        more = {"seat": self._seat(rank, group), "group": number}
        more |= {"position": group.position, "by": by}
        times = {"before_s": step.packs(machine.adds_on_core)[0], "after_s": step.packs()[1]}
        for name, elements in times.items():
            copied_s = machine.compute.memory_s(2 * elements * itemsize)
            more[name] = copied_s if elements else -1.0
        link = machine.link(*group.members[:2]) if size > 1 else None
        if link and link.shared == "initiator" and link.bandwidth_bytes_per_s < inf:
            way, hops, elements = step.ring()
            more["way"] = self._ways.setdefault((rank, way), len(self._ways))
            more["link_s"] = elements * itemsize / link.bandwidth_bytes_per_s
            more |= {"fixed_s": (hops - 1) * link.latency_s, "latency_s": link.latency_s}
            return self._row(step, GROUP, flags | THROTTLED, **more)
        if alone:
            return self._row(step, GROUP, flags, **more)
        cost = self._ring_cost(step, rank)
        both = 1 if shifts else 2 * (1 + machine.collective(step.operation).both_ways)
        queued = machine.arbitration == "fair" and not shifts and not machine.adds_on_core
        row = self._row(
            step,
            GROUP,
            flags,
            **more,
            flows=both,
            lane=self._lane(("ring", group)) if queued else -1,
            link_s=cost.seconds,
            fixed_s=cost.fixed_s,
            bytes_per_s=cost.bytes_per_s,
        )
        self.on.extend(cost.links)
        self.shares.extend(cost.shares or [-1.0] * len(cost.links))
        return row

    def _ring_cost(self, step, rank: int) -> GroupCost:
        machine, group = self.machine, step.group
        if step.kind == "shift":
            ways = [Way(rank, step.target, 1.0, step.shard())]
            return group_cost(step, machine, ways, self._itemsize, self.route)
        key = group, type(step), step.shard()
        if key not in self._rings:
            ways = group_ways(step, machine, range(len(group)))
            self._rings[key] = group_cost(step, machine, ways, self._itemsize, self.route)
        return self._rings[key]

    def _seat(self, rank: int, group) -> int:
        return self._sitting.setdefault((rank, group), len(self._sitting))

    def _sum(self, step: Step, rank: int, flags: int) -> int:
        machine, itemsize = self.machine, self._itemsize
        if machine.adds_on_core:
            return self._row(step, SIDE_ON_CORE, flags, Cost(compute_s(machine, step, itemsize)))
        cost = Cost(*(side_s(machine, step, itemsize, beside) for beside in (False, True)))
        return self._row(step, SIDE, flags | TERM, cost, lane=self._lane((rank, "sums")))

    def _signal(self, step, rank: int, flags: int) -> int:
        kind = _SIGNALS.get((step.kind, step.sends), TAKE)
        ends = (rank, step.peer) if step.sends else (step.peer, rank)
        value = self._values.setdefault((*ends, step.kind, step.key), len(self._values))
        if kind in (OFFER, AWAIT):
            return self._row(step, kind, flags, value=value)
        return self._transfer(step, kind, rank, step.peer, not step.sends, flags, value)

    def _one_sided(self, step: Step, rank: int, flags: int) -> int:
        owner = step.block.owner
        if isinstance(step, Accumulate):
            flags |= ADDS
        if isinstance(step, Get) and step.onto is None:
            link = None if owner == rank else self.route(owner, rank)[0]
            if link is None or (link.reads_in_place and link.free):
                flags |= AT_HAND
            if type(step) is Get:
                flags |= HELD
        if owner == rank:
            return self._row(step, OWN, flags, self._cost(step, rank))
        return self._transfer(step, MOVE, rank, owner, isinstance(step, Get), flags)

    def _transfer(
        self, step: Step, kind: int, rank: int, other: int, reads: bool, flags: int, value: int = -1
    ) -> int:
        cost, streams = self._cost(step, rank), self.machine.copy_streams
        if cost.links[0] in ("in", "out"):
            flags |= OWN_LINK | (SENDS if cost.links[0] == "out" else 0)
            return self._row(step, kind, flags, cost, value=value)
        row = self._row(
            step,
            kind,
            flags,
            cost,
            value=value,
            lane=self._lane((rank, reads, cost.lane, (other - rank - 1) % streams))
            if streams
            else -1,
            engine=self._seats[rank] if cost.engine else -1,
            onto=self._seats.get(other, -1) if type(step) is Accumulate else -1,
        )
        self.on.extend(each if type(each) is int else self._number(each) for each in cost.links)
        self.shares.extend(cost.shares or [-1.0] * len(cost.links))
        return row

    def _cost(self, step: Step, rank: int) -> Cost:
        return step_cost(self.machine, step, rank, self._itemsize, self.route)

    def route(self, source: int, target: int):
        """The link between two ranks, and what a transfer occupies, as numbers."""
        found = self._routes.get((source, target))
        if found is None:
            link, resources = self.machine.route(source, target)
            found = self._routes[source, target] = link, tuple(map(self._number, resources))
        return found

    def _number(self, resource: tuple) -> int:
        return self._numbers.setdefault(resource, len(self._numbers))

    def _lane(self, name: tuple) -> int:
        return self._lanes.setdefault(name, len(self._lanes))

    def _count(self, step: Step, rank: int) -> None:
        """Bytes of the row that comes next, and of steps of several owners at once."""
        row = len(self.columns["kind"])
        moved = [
            (step.counted(self.route(owner, rank)[0].reads_in_place), elements)
            for owner, elements in step.moved(rank)
        ]
        if len(moved) == 1:
            self._moved[row] = moved[0]
            return
        for name, elements in moved:
            self.counters[name] += self._itemsize * elements
