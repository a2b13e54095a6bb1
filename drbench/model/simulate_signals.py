"""Steps with signals in virtual time: a value arrives where it was pushed, or is pulled once its
rank has signalled that it is ready."""

from drbench.program.signal_steps import Signal

from .costs import sends_words
from .rank import Rank


class SimulatedSignals:
    """The Pushes, Awaits, Offers and Takes in progress in a simulation.

    An Await ends ``signal_s`` after its value has arrived, when the signal is visible, or at once
    if the value is flagged; a Take's transfer begins when the Offer is visible.

    Parameters
    ----------
    simulation
        Used: ``machine``, ``at(time, act, first, second)``, ``finish(time, rank, step index)`` and
        ``send(rank, step index, time)``, which begins a transfer.
    """

    def __init__(self, simulation):
        self.simulation, self.machine = simulation, simulation.machine
        self.seen: set = set()  # values whose signal is visible: (from, to, kind, key)
        self.waits: dict = {}  # value -> (Rank, step index) that waits for it
        self.takes: dict[Rank, list[int]] = {}  # steps whose Offers become visible at this instant

    def start(self, rank: Rank, t: int, step: Signal, now: float) -> None:
        """Start a step of a rank."""
        value = _value(step, rank.number)
        if step.kind == "push" and step.sends:
            self.simulation.send(rank, t, now)
        elif step.sends:
            self.simulation.at(now + self.machine.signal_s, self._see, value)
            self.simulation.at(now, self.simulation.finish, rank, t)
        elif value in self.seen:
            self._resume(now, rank, t)
        else:
            self.waits[value] = rank, t

    def pushed(self, now: float, rank: Rank, step: Signal) -> None:
        """Schedule the signal of a Push whose last byte has arrived."""
        in_words = sends_words(self.machine, step, rank.number)
        signal_s = 0.0 if in_words else self.machine.signal_s
        self.simulation.at(now + signal_s, self._see, _value(step, rank.number))

    def _see(self, now: float, value, _) -> None:
        self.seen.add(value)
        waiting = self.waits.pop(value, None)
        if waiting:
            self._resume(now, *waiting)

    def _resume(self, now: float, rank: Rank, t: int) -> None:
        """Resume a step whose value is ready: an Await ends, a Take reads the value."""
        if rank.steps[t].kind == "push":
            self.simulation.at(now, self.simulation.finish, rank, t)
            return
        takes = self.takes.setdefault(rank, [])
        if not takes:
            self.simulation.at(now, self._take, rank)
        takes.append(t)

    def _take(self, now: float, rank: Rank, _) -> None:
        """Begin the transfers of Takes in the order of the program, as on a stream, whichever rank
        made its Offer first at this instant."""
        for t in sorted(self.takes.pop(rank)):
            self.simulation.send(rank, t, now)


def _value(step: Signal, rank: int) -> tuple:
    """The identity of the value of a step: (from, to, kind, key)."""
    ends = (rank, step.peer) if step.sends else (step.peer, rank)
    return *ends, step.kind, step.key
