"""Group steps in virtual time: who has come, which links the data takes, and when it is where it
belongs."""

from collections.abc import Iterable
from math import inf

from .costs import GroupCost, Way, group_cost, group_ways
from .links import Transfer
from .rank import Rank
from .symmetry import packed_by_any


class GroupSteps:
    """The group steps under way in a simulation.

    A member comes once its piece is packed. A collective begins when all have come, a shift between
    two neighbours when both have. Where the core that computes does everything (``adds_on_core``),
    packing and the data of collectives take its time.

    Parameters
    ----------
    simulation
        Of which this takes ``machine``, ``itemsize``, ``folded`` (names of groups), ``lanes``,
        ``route(a, b)``, ``at(time, act, one, two)`` and ``finish(time, rank, step index)``.
    """

    def __init__(self, simulation):
        self.simulation, self.machine = simulation, simulation.machine
        self.met: dict = {}  # (group, number) -> {rank: (Rank, step)} of the members that have come
        self.number: dict = {}  # (group, rank) -> group steps started
        self.halves: dict = {}  # (rank, step) of a shift -> transfers still to come
        self.due: dict = {}  # (rank, step) -> when the throttled ring is done with it

    def start(self, rank: Rank, t: int, step, now: float) -> None:
        """A rank starts a group step."""
        group, machine, itemsize = step.group, self.machine, self.simulation.itemsize
        number = self.number[group, rank] = self.number.get((group, rank), -1) + 1
        link = machine.link(*group.members[:2]) if len(group) > 1 else None
        if link and link.shared == "initiator" and link.bandwidth_bytes_per_s < inf:
            way, hops, elements = step.ring()  # completes by a timer of the rank that started it
            seconds, latency_s = elements * itemsize / link.bandwidth_bytes_per_s, link.latency_s
            free = rank.queued(way, now, seconds, (hops - 1) * latency_s)
            self.due[rank, t] = free + latency_s
        before = (
            packed_by_any(step)
            if group.name in self.simulation.folded
            else step.packs(machine.adds_on_core)[0]
        )
        if before:
            now = rank.copied(now, before)
        rank.began[t] = now
        self.simulation.at(now, self._come, rank, (t, number))

    def _come(self, now: float, rank: Rank, which) -> None:
        t, number = which
        step = rank.steps[t]
        group = step.group
        if group.name in self.simulation.folded and len(group) > 1:
            # all members come now: the links that this one sends on stand for all of its ring
            return self._collective(step, ((rank, t),), (group.position,), now)
        here = self.met.setdefault((group, number), {})
        here[rank.number] = rank, t
        complete = len(here) == len(group)
        if len(group) == 1 or (step.kind == "shift" and step.by % len(group) == 0):
            self._arrived(now, rank, t)
        elif step.kind == "shift":
            self._shift(here, rank, t, now)
        elif complete and (rank, t) in self.due:
            for each in here.values():
                self._at_due(now, *each)
        elif complete:
            self._collective(step, tuple(here.values()), range(len(group)), now)
        if complete:
            del self.met[group, number]

    def _cost(self, step, ways: list) -> GroupCost:
        simulation = self.simulation
        return group_cost(step, self.machine, ways, simulation.itemsize, simulation.route)

    def _collective(self, step, steps: tuple, senders: Iterable[int], now: float) -> None:
        """The data goes on the links on which these positions send."""
        ways = group_ways(step, self.machine, senders)
        if self.machine.adds_on_core:
            seconds = self._cost(step, ways).seconds
            for rank, t in steps:
                self.simulation.at(rank.between(now, seconds), self._arrived, rank, t)
            return
        both = self.machine.collective(step.operation).both_ways
        self._ask(step, ways, steps, 2 * (1 + both), now)

    def _ask(self, step, ways: list, steps: tuple, flows: int, now: float) -> None:
        """A transfer on all these ways at the same time, as fast as the slowest. Where links are
        shared, collectives of one group follow each other, as on the stream of a communicator;
        otherwise the links see to that."""
        cost, fair = self._cost(step, ways), self.machine.arbitration == "fair"
        transfer = Transfer(
            cost.links,
            cost.seconds,
            0.0,
            steps,
            flows,
            shares=cost.shares,
            lane=("ring", step.group) if fair and step.kind != "shift" else None,
            fixed_s=cost.fixed_s,
            bytes_per_s=cost.bytes_per_s,
        )
        self.simulation.lanes.add(transfer, now)

    def _shift(self, here: dict, rank: Rank, t: int, now: float) -> None:
        """What this rank sends, and what it receives, as far as the other side has come."""
        self.halves[rank, t] = 2
        step, me = rank.steps[t], rank.number
        for a, b in ((me, step.target), (step.source, me)):
            if a not in here or b not in here:
                continue
            steps = here[a], here[b]
            if steps[0] in self.due:
                for each in steps:
                    self.part_done(now, *each)
                continue
            sender, index = steps[0]
            sent = sender.steps[index]
            ways = [Way(a, b, 1.0, sent.shard())]
            if self.machine.adds_on_core:
                seconds = self._cost(sent, ways).seconds
                for each, other in steps:
                    self.simulation.at(each.between(now, seconds / 2), self.part_done, each, other)
            else:
                self._ask(sent, ways, steps, 1, now)

    def _at_due(self, now: float, rank: Rank, t: int) -> None:
        due = self.due.pop((rank, t))
        if due > now:
            self.simulation.at(due, self._arrived, rank, t)
        else:
            self._arrived(now, rank, t)

    def part_done(self, now: float, rank: Rank, t: int) -> None:
        """A transfer of this step is complete; a shift is when both of its are."""
        left = self.halves.pop((rank, t), 1) - 1
        if left:
            self.halves[rank, t] = left
        elif (rank, t) in self.due:
            self._at_due(now, rank, t)
        else:
            self._arrived(now, rank, t)

    def _arrived(self, now: float, rank: Rank, t: int) -> None:
        """The data is there; it may have to be put into its place."""
        _, after = rank.steps[t].packs()
        if after:
            self.simulation.at(rank.copied(now, after), self.simulation.finish, rank, t)
        else:
            self.simulation.finish(now, rank, t)
