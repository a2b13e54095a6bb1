"""Steps with signals in virtual time: a value arrives where it was pushed, or is pulled once its
rank has said that it is there."""

from drbench.program.signal_steps import Signal

from .rank import Rank


class SignalSteps:
    """The Pushes, Awaits, Offers and Takes under way in a simulation.

    An Await ends when what is pushed to it has arrived and its signal is seen, ``signal_s`` later;
    a Take's transfer begins when the Offer is seen.

    Parameters
    ----------
    simulation
        Of which this takes ``machine``, ``at(time, act, one, two)``, ``finish(time, rank, step
        index)`` and ``send(rank, step index, time)``, which begins a transfer.
    """

    def __init__(self, simulation):
        self.simulation, self.machine = simulation, simulation.machine
        self.seen: set = set()  # values whose signal is seen: (from, to, kind, key)
        self.waits: dict = {}  # such a value -> (Rank, step index) of who waits for it
        self.takes: dict[Rank, list[int]] = {}  # step indices whose Offers are seen at this instant

    def start(self, rank: Rank, t: int, step: Signal, now: float) -> None:
        """A rank starts a step."""
        value = _value(step, rank.number)
        if step.kind == "push" and step.sends:
            self.simulation.send(rank, t, now)
        elif step.sends:
            self.simulation.at(now + self.machine.signal_s, self._see, value)
            self.simulation.at(now, self.simulation.finish, rank, t)
        elif value in self.seen:
            self._go_on(now, rank, t)
        else:
            self.waits[value] = rank, t

    def pushed(self, now: float, rank: Rank, step: Signal) -> None:
        """The last byte of a Push is there; its signal follows."""
        self.simulation.at(now + self.machine.signal_s, self._see, _value(step, rank.number))

    def _see(self, now: float, value, _) -> None:
        self.seen.add(value)
        waiting = self.waits.pop(value, None)
        if waiting:
            self._go_on(now, *waiting)

    def _go_on(self, now: float, rank: Rank, t: int) -> None:
        """What a step waited for is there: an Await is done, a Take reads it."""
        if rank.steps[t].kind == "push":
            self.simulation.at(now, self.simulation.finish, rank, t)
            return
        takes = self.takes.setdefault(rank, [])
        if not takes:
            self.simulation.at(now, self._take, rank)
        takes.append(t)

    def _take(self, now: float, rank: Rank, _) -> None:
        """Begin the transfers of Takes in the order of the program, as a stream has them, whichever
        rank made its offer first at this instant."""
        for t in sorted(self.takes.pop(rank)):
            self.simulation.send(rank, t, now)


def _value(step: Signal, rank: int) -> tuple:
    """What names the value of a step: from whom, to whom, how, and its key."""
    ends = (rank, step.peer) if step.sends else (step.peer, rank)
    return *ends, step.kind, step.key
