"""A transfer, and lanes: queues in which transfers keep their order."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Transfer:
    """Something that occupies links for some seconds; ``steps`` are the (rank, step index) that
    then complete.

    Attributes
    ----------
    resources : tuple
        The links on its way.
    seconds : float
        What it takes alone.
    latency_s : float
        After the links, which it does not occupy.
    flows : int
        The links that each of its ranks sends or receives on.
    shares : tuple of float
        For which part of the seconds each of ``resources`` is occupied; empty for all of them
        throughout. Where links are shared: the part of it that the transfer takes at full speed.
    lane : tuple or None
        The queue it is in.
    age : int
        Set when it is asked for.
    fixed_s : float
        Of the seconds, those in which nothing is on the links: launching, synchronising. They
        cannot be shared, and hold up nobody who shares.
    bytes_per_s : float
        What it moves a second at full speed: fair shares are of bytes.
    began : float
        When it went.
    """

    resources: tuple
    seconds: float
    latency_s: float
    steps: tuple
    flows: int = 1
    shares: tuple = ()
    lane: tuple | None = None
    age: int = 0
    fixed_s: float = 0.0
    bytes_per_s: float = 1.0
    began: float = 0.0

    def occupied(self) -> dict[float, tuple]:
        """Share of the seconds -> the resources that are occupied for so long.

        Examples
        --------
        >>> Transfer(("card", "port"), 2.0, 0.0, (), shares=(1.0, 0.5)).occupied()
        {1.0: ('card',), 0.5: ('port',)}
        """
        if not self.shares:
            return {1.0: self.resources}
        found: dict[float, tuple] = {}
        for share, resource in zip(self.shares, self.resources):
            found[share] = (*found.get(share, ()), resource)
        return found


class Lanes:
    """Queues in which transfers keep their order: one is asked for when those before it in its lane
    are through.

    Parameters
    ----------
    ask : callable
        ``ask(transfer, now)``, as :meth:`FirstCome.ask`.

    Examples
    --------
    >>> lanes = Lanes(lambda transfer, now: print(transfer.steps, "at", now))
    >>> first, second, third = (
    ...     Transfer(("a",), 1, 0, steps, lane=lane)
    ...     for steps, lane in (("1st", "out"), ("2nd", "out"), ("3rd", "in"))
    ... )
    >>> for each in (first, second, third):
    ...     lanes.add(each, 0.0)
    1st at 0.0
    3rd at 0.0
    >>> lanes.go_on(first.lane, 1.0)
    2nd at 1.0
    """

    __slots__ = ("_ask", "_waiting")

    def __init__(self, ask: Callable[[Transfer, float], None]):
        self._ask, self._waiting = ask, {}

    def add(self, transfer: Transfer, now: float) -> None:
        """Ask for a transfer, at once if it is in no lane or its lane is empty."""
        waiting = self._waiting.get(transfer.lane)
        if waiting is not None:
            waiting.append(transfer)
            return
        if transfer.lane is not None:
            self._waiting[transfer.lane] = deque()
        self._ask(transfer, now)

    def go_on(self, lane: object, now: float) -> None:
        """The transfer under way in a lane is through."""
        waiting = self._waiting[lane]
        if waiting:
            self._ask(waiting.popleft(), now)
        else:
            del self._waiting[lane]
