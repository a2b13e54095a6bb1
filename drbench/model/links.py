"""Links and who is waiting for them: a transfer starts when all its links are free, the oldest
first.

Reserving links when a transfer is asked for would leave gaps: one case came out 3.4 times too slow.
"""

from collections.abc import Callable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush


@dataclass(slots=True, eq=False)
class Transfer:
    """Something that occupies links for some seconds; ``steps`` are the (rank, step index) that
    then complete.

    ``flows`` are the links that each of them sends or receives on; ``age`` is set when it is asked
    for.
    """

    resources: tuple
    seconds: float
    latency_s: float
    steps: tuple
    flows: int = 1
    age: int = 0


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
    >>> links.release(first, 1.0)
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

    def release(self, transfer: Transfer, now: float) -> None:
        """The transfer is done: whoever waits for one of its links may go, the oldest first.

        A waiting transfer waits *at* one of its busy links only. Whoever could start now waited at
        a link just released, so nobody is missed, and a crowd at a busy link costs nothing.
        """
        busy, waiting = self._busy, self._waiting
        busy.difference_update(transfer.resources)
        fronts = [
            (queue[0][0], resource)
            for resource in transfer.resources
            if (queue := waiting.get(resource))
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
