"""Group steps in virtual time: who has come, which links the data takes, and when it is where it
belongs."""

from __future__ import annotations

from math import inf

from .costs import GROUP_COSTS, group_seconds, packed, ring_way
from .folding import moved_by_all, packed_by_any
from .links import Transfer

__all__ = ["GroupSteps"]


class GroupSteps:
    """The group steps under way in a simulation.

    A member comes once its piece is packed. A collective begins when all have come, a shift between
    two neighbours when both have. Where the core that computes does everything (``adds_on_core``),
    packing and the data of collectives take its time.

    Parameters
    ----------
    run : _Run
        The simulation.
    """

    def __init__(self, run):
        self.run = run
        self.met: dict = {}  # (group, number) -> {rank: step} of the members that have come
        self.number: dict = {}  # (group, rank) -> group steps started
        self.halves: dict = {}  # (rank, step) of a shift -> transfers still to come
        self.due: dict = {}  # (rank, step) -> when the throttled ring is done with it

    def start(self, rank: int, t: int, step, now: float) -> None:
        """A rank starts a group step."""
        run, group = self.run, step.group
        if group.name in run.folded:
            run.counters["collective_bytes"] += (
                run.itemsize * run.stands_for * moved_by_all(step) // len(group)
            )
        else:
            run.counters["collective_bytes"] += (
                run.itemsize * run.stands_for * sum(elements for _, elements in step.moved(rank))
            )
        before = (
            packed_by_any(step)
            if group.name in run.folded
            else packed(step, run.machine.adds_on_core)[0]
        )
        number = self.number[group, rank] = self.number.get((group, rank), -1) + 1
        throttled = len(group) > 1 and self._throttled(group)
        if throttled:
            link, hops, elements = ring_way(step)
            free = (
                max(now, run.own_free.get((rank, link), 0.0))
                + elements * run.itemsize / throttled.bandwidth_bytes_per_s
                + (hops - 1) * throttled.latency_s
            )
            run.own_free[rank, link], self.due[rank, t] = free, free + throttled.latency_s
        if before:
            now = self._copied(rank, now, before)
        if run.bars is not None:
            run.began[rank, t] = now
        run._at(now, self._come, rank, (t, number))

    def _copied(self, rank: int, now: float, elements: int) -> float:
        """When a copy of so many elements is done."""
        run = self.run
        seconds = run.machine.compute.memory_s(2 * elements * run.itemsize)
        if run.machine.adds_on_core:
            now = run.core_free[rank] = max(now, run.core_free[rank]) + seconds
            return now
        return now + seconds

    def _throttled(self, group):
        """The link, if transfers complete by a timer of the rank that started them."""
        link = self.run.machine.link(*group.members[:2])
        return link if link.shared == "initiator" and link.bandwidth_bytes_per_s < inf else None

    def _come(self, now: float, rank: int, which) -> None:
        run, (t, number) = self.run, which
        step = run.traces[rank].steps[t]
        cost, group = GROUP_COSTS[type(step)], step.group
        if group.name in run.folded and len(group) > 1:
            return self._folded(cost, group, rank, t, step, now)
        here = self.met.setdefault((group, number), {})
        here[rank] = t
        complete = len(here) == len(group)
        if len(group) == 1 or (cost.kind == "shift" and step.by % len(group) == 0):
            self._arrived(now, rank, t)
        elif cost.kind == "shift":
            self._shift(cost, group, here, rank, step, now)
        elif complete and (rank, t) in self.due:
            for each, other in here.items():
                self._at_due(now, each, other)
        elif complete:
            self._collective(cost, group, tuple(here.items()), step, now)
        if complete:
            del self.met[group, number]

    def _folded(self, cost, group, rank: int, t: int, step, now: float) -> None:
        """All members come now: the links that this one sends on stand for all of its ring."""
        run, members, me = self.run, group.members, group.position
        kept = run.machine.collectives.get(cost.operation)
        ways = (
            (step.by,)
            if cost.kind == "shift"
            else (1, -1)
            if kept is not None and kept.both_ways
            else (1,)
        )
        routes = [run._route(rank, members[(me + way) % len(members)]) for way in ways]
        seconds = group_seconds(
            cost,
            run.machine,
            len(group),
            run.itemsize * cost.shard(step),
            routes[0][0].bandwidth_bytes_per_s,
            group.name,
        )
        run.links.ask(
            Transfer(
                tuple(dict.fromkeys(resource for _, each in routes for resource in each)),
                seconds,
                0.0,
                ((rank, t),),
                2 * len(ways),
            ),
            now,
        )

    def _collective(self, cost, group, steps, step, now: float) -> None:
        run, members = self.run, group.members
        ends = list(zip(members, members[1:] + members[:1]))
        kept = run.machine.collectives.get(cost.operation)
        if kept is not None and kept.both_ways:
            ends += [(b, a) for a, b in ends]
        routes = [run._route(a, b) for a, b in ends]
        rate = min(link.bandwidth_bytes_per_s for link, _ in routes)
        seconds = group_seconds(
            cost, run.machine, len(group), run.itemsize * cost.shard(step), rate, group.name
        )
        if run.machine.adds_on_core:
            for rank, t in steps:
                run._at(self._on_core(rank, now, seconds), self._arrived, rank, t)
            return
        resources = tuple(dict.fromkeys(resource for _, each in routes for resource in each))
        run.links.ask(Transfer(resources, seconds, 0.0, steps, 2 * len(ends) // len(members)), now)

    def _on_core(self, rank: int, now: float, seconds: float) -> float:
        """The core of this rank moves the data, now or, if it computes, in between: the product
        then ends later."""
        run = self.run
        if run.computing[rank] is not None:
            run.left[rank] += seconds
            run._predict(rank)
            return now + seconds
        run.core_free[rank] = max(now, run.core_free[rank]) + seconds
        return run.core_free[rank]

    def _shift(self, cost, group, here, rank, step, now: float) -> None:
        """What this rank sends, and what it receives, as far as the other side has come."""
        run, members = self.run, group.members
        self.halves[rank, here[rank]] = 2
        me = members.index(rank)
        target, source = (
            members[(me + step.by) % len(members)],
            members[(me - step.by) % len(members)],
        )
        for a, b in ((rank, target), (source, rank)):
            if a not in here or b not in here:
                continue
            steps = ((a, here[a]), (b, here[b]))
            if steps[0] in self.due:
                for each, t in steps:
                    self.part_done(now, each, t)
                continue
            link, resources = run._route(a, b)
            seconds = group_seconds(
                cost,
                run.machine,
                len(group),
                run.itemsize * cost.shard(run.traces[a].steps[here[a]]),
                link.bandwidth_bytes_per_s,
                group.name,
            )
            if run.machine.adds_on_core:
                for each, t in steps:
                    run._at(self._on_core(each, now, seconds / 2), self.part_done, each, t)
            else:
                run.links.ask(Transfer(resources, seconds, 0.0, steps), now)

    def _at_due(self, now: float, rank: int, t: int) -> None:
        due = self.due.pop((rank, t))
        if due > now:
            self.run._at(due, self._arrived, rank, t)
        else:
            self._arrived(now, rank, t)

    def part_done(self, now: float, rank: int, t: int) -> None:
        """A transfer of this step is complete; a shift is when both of its are."""
        left = self.halves.pop((rank, t), 1) - 1
        if left:
            self.halves[rank, t] = left
        elif (rank, t) in self.due:
            self._at_due(now, rank, t)
        else:
            self._arrived(now, rank, t)

    def _arrived(self, now: float, rank: int, t: int) -> None:
        """The data is there; it may have to be put into its place."""
        run = self.run
        _, after = packed(run.traces[rank].steps[t], False)
        if after:
            return run._at(self._copied(rank, now, after), run._finish, rank, t)
        run._finish(now, rank, t)
