"""Group steps in virtual time: which members have arrived, which links the data uses, and when it
is stored."""

from math import inf

from drbench.mappings import remembered

from .costs import Cost
from .links import LinkTransfer
from .rank import Rank
from .symmetry import packed_by_any


class GroupSteps:
    """The group steps in progress in a simulation.

    A member arrives once its block is packed. A collective begins when all have arrived, a shift
    between two neighbours when both have; if not all members are simulated, each is alone: the
    links on which it sends represent all. If the compute core also communicates
    (``adds_on_core``), packing and the data of collectives take its time.

    Parameters
    ----------
    simulation
        Used: ``machine``, ``costs``, ``by_number`` (the ranks that are simulated), ``lanes``,
        ``at(time, act, first, second)`` and ``finish(time, rank, step index)``.
    """

    def __init__(self, simulation):
        self.simulation, self.machine = simulation, simulation.machine
        self.met: dict = {}  # (group, number) -> {rank: (Rank, step)} of members that have arrived
        self.number: dict = {}  # (group, rank) -> group steps started
        self.halves: dict = {}  # (rank, step) of a shift -> transfers not complete
        self.whole: dict = {}  # members -> whether all of them are simulated
        self.due: dict = {}  # (rank, step) -> when the throttled ring is done with it

    def start(self, rank: Rank, t: int, step, now: float) -> None:
        """Start a group step of a rank."""
        group, machine, itemsize = step.group, self.machine, self.simulation.costs.item(step)
        number = self.number[group, rank] = self.number.get((group, rank), -1) + 1
        link = machine.link(*group.members[:2]) if len(group) > 1 else None
        if link and link.own_timer and link.bandwidth_bytes_per_s < inf:
            direction, hops, elements = (
                step.ring()
            )  # completes by a timer of the rank that started it
            seconds, latency_s = elements * itemsize / link.bandwidth_bytes_per_s, link.latency_s
            free = rank.queued((direction, rank.number), now, seconds, (hops - 1) * latency_s)
            self.due[rank, t] = free + latency_s
        all_there = self._all_there(group)
        before = step.packs(machine.adds_on_core)[0] if all_there else packed_by_any(step)
        if before:
            now = rank.copied(now, before * itemsize)
        rank.began[t] = now
        self.simulation.at(now, self._arrive, rank, (t, number))

    def _arrive(self, now: float, rank: Rank, which) -> None:
        t, number = which
        step = rank.steps[t]
        group = step.group
        if len(group) == 1 or (step.kind == "shift" and step.by % len(group) == 0):
            return self._receive(now, rank, t)
        if not self._all_there(group):
            return self._move(
                step, self.simulation.costs.group(step, alone=True), ((rank, t),), now
            )
        here = self.met.setdefault((group, number), {})
        here[rank.number] = rank, t
        complete = len(here) == len(group)
        if step.kind == "shift":
            self._shift(here, rank, t, now)
        elif complete and (rank, t) in self.due:
            for member in here.values():
                self._at_due(now, *member)
        elif complete:
            cost = self.simulation.costs.group(step)
            self._move(step, cost, tuple(here.values()), now)
        if complete:
            del self.met[group, number]

    def _all_there(self, group) -> bool:
        """Whether all members of a group are simulated."""
        members, here = group.members, self.simulation.by_number
        return remembered(self.whole, members, lambda: here.keys() >= set(members))

    def _move(self, step, cost: Cost, steps: tuple, now: float) -> None:
        """Transfer the data of these members' steps. If links are shared, collectives of one group
        run one after another, as on the stream of a communicator; otherwise by the order of the
        links."""
        shifts, machine = step.kind == "shift", self.machine
        pair = shifts and len(steps) == 2  # of the two transfers of each
        if machine.adds_on_core:
            parts, done = (2, self.part_done) if pair else (1, self._receive)
            for rank, t in steps:
                self.simulation.at(rank.between(now, cost.link_s / parts), done, rank, t)
            return
        queued = machine.arbitration == "fair" and not shifts
        transfer = LinkTransfer(
            cost.links,
            cost.link_s,
            0.0,
            steps,
            shares=cost.shares,
            lane=("ring", step.group) if queued else None,
            fixed_s=cost.fixed_s,
            bytes_per_s=cost.bytes_per_s,
        )
        self.simulation.lanes.add(transfer, now)

    def _shift(self, here: dict, rank: Rank, t: int, now: float) -> None:
        """Start this rank's two transfers, to and from members that have arrived."""
        self.halves[rank, t] = 2
        step, me = rank.steps[t], rank.number
        for a, b in ((me, step.target), (step.source, me)):
            if a not in here or b not in here:
                continue
            steps = here[a], here[b]
            if steps[0] in self.due:
                for end in steps:
                    self.part_done(now, *end)
                continue
            sender, index = steps[0]
            sent = sender.steps[index]
            self._move(sent, self.simulation.costs.group(sent, alone=True), steps, now)

    def _at_due(self, now: float, rank: Rank, t: int) -> None:
        due = self.due.pop((rank, t))
        if due > now:
            self.simulation.at(due, self._receive, rank, t)
        else:
            self._receive(now, rank, t)

    def part_done(self, now: float, rank: Rank, t: int) -> None:
        """Finish a transfer of a step; a shift ends with the second of its two."""
        left = self.halves.pop((rank, t), 1) - 1
        if left:
            self.halves[rank, t] = left
        elif (rank, t) in self.due:
            self._at_due(now, rank, t)
        else:
            self._receive(now, rank, t)

    def _receive(self, now: float, rank: Rank, t: int) -> None:
        """Finish a step whose data has arrived, after unpacking if necessary."""
        step = rank.steps[t]
        _, after = step.packs()
        if after:
            nbytes = after * self.simulation.costs.item(step)
            self.simulation.at(rank.copied(now, nbytes), self.simulation.finish, rank, t)
        else:
            self.simulation.finish(now, rank, t)
