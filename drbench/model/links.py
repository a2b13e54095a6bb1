"""Links and who is waiting for them: a transfer starts when all its links are free, the oldest
first; and lanes, queues in which transfers keep their order.

Reserving links when a transfer is asked for would leave gaps: one case came out 3.4 times too slow.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush


@dataclass(slots=True, eq=False)
class Transfer:
    """Something that occupies links for some seconds; ``steps`` are the (rank, step index) that
    then complete.

    ``flows`` are the links that each of them sends or receives on. ``shares`` say of each resource
    for which part of the seconds it is occupied; empty for all of them throughout. ``lane`` is the
    queue it is in, if any. ``age`` is set when it is asked for.
    """

    resources: tuple
    seconds: float
    latency_s: float
    steps: tuple
    flows: int = 1
    shares: tuple = ()
    lane: tuple | None = None
    age: int = 0

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


class Links:
    """All links of a machine.

    Parameters
    ----------
    begin : callable
        ``begin(transfer, now)``, called when a transfer starts.

    Examples
    --------
    The second transfer waits for the first, the third for nobody; when the first is done the oldest
    waiting one goes:

    >>> links = Links(lambda transfer, now: print(transfer.steps, "at", now))
    >>> first, second, third = (
    ...     Transfer(("a", "b"), 1, 0, "1st"),
    ...     Transfer(("b", "c"), 1, 0, "2nd"),
    ...     Transfer(("d",), 1, 0, "3rd"),
    ... )
    >>> for each in (first, second, third):
    ...     links.ask(each, 0.0)
    1st at 0.0
    3rd at 0.0
    >>> links.release(first.resources, 1.0)
    2nd at 1.0
    """

    __slots__ = ("_begin", "_busy", "_waiting", "_age")

    def __init__(self, begin: Callable[[Transfer, float], None]):
        self._begin, self._busy, self._waiting, self._age = begin, set(), {}, 0

    def ask(self, transfer: Transfer, now: float) -> None:
        """Start the transfer if all its links are free; else it waits."""
        self._age += 1
        transfer.age = self._age
        self._start_or_wait(transfer, now)

    def release(self, resources: tuple, now: float) -> None:
        """Nobody occupies these any more: whoever waits for one of them may go, the oldest first.

        A waiting transfer waits *at* one of its busy links only. Whoever could start now waited at
        a link just released, so nobody is missed, and a crowd at a busy link costs nothing.
        """
        busy, waiting = self._busy, self._waiting
        busy.difference_update(resources)
        fronts = [
            (queue[0][0], resource) for resource in resources if (queue := waiting.get(resource))
        ]
        if len(fronts) > 1:
            heapify(fronts)
        while fronts:
            _, resource = heappop(fronts)
            if resource in busy:  # taken again: the others here go on waiting
                continue
            queue = waiting[resource]
            self._start_or_wait(heappop(queue)[1], now)
            if queue:
                heappush(fronts, (queue[0][0], resource))

    def _start_or_wait(self, transfer: Transfer, now: float) -> None:
        busy, resources = self._busy, transfer.resources
        if busy.isdisjoint(resources):
            busy.update(resources)
            self._begin(transfer, now)
            return
        at = next(resource for resource in resources if resource in busy)
        heappush(self._waiting.setdefault(at, []), (transfer.age, transfer))


class Lanes:
    """Queues in which transfers keep their order: one is asked for when those before it in its lane
    are through.

    Parameters
    ----------
    ask : callable
        ``ask(transfer, now)``, as :meth:`Links.ask`.

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
