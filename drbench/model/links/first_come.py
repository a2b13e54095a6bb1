"""First come, first served: a transfer starts when all its links are free, the oldest first.

Reserving links when a transfer is requested would leave gaps: one case was 3.4 times too slow.
"""

from collections.abc import Callable
from heapq import heapify, heappop, heappush

from .transfer import LinkTransfer


class FirstCome:
    """All links of a machine, each carrying one transfer at a time.

    Parameters
    ----------
    at : callable
        ``at(time, act, first, second)``: ``act(time, first, second)`` is called at that time.
    begin : callable
        ``begin(transfer, now)``, called when a transfer starts; it may still set its seconds.
    gone : callable
        ``gone(now, transfer, None)``, called when its last byte has left; it calls
        :meth:`release`.

    Notes
    -----
    The state: the set of busy links; for each busy link a heap by age of transfers that wait at it;
    and the number of requested transfers, which gives the age.

    Examples
    --------
    The second transfer waits for the first, the third for none; when the first is done the oldest
    waiting one starts:

    >>> begin = lambda transfer, now: print(transfer.steps, "at", now)
    >>> links = FirstCome(lambda *event: None, begin, None)
    >>> first, second, third = (
    ...     LinkTransfer(("a", "b"), 1, 0, "1st"),
    ...     LinkTransfer(("b", "c"), 1, 0, "2nd"),
    ...     LinkTransfer(("d",), 1, 0, "3rd"),
    ... )
    >>> for transfer in (first, second, third):
    ...     links.request(transfer, 0.0)
    1st at 0.0
    3rd at 0.0
    >>> links.release(first, 1.0)
    2nd at 1.0
    """

    __slots__ = ("_at", "_begin", "_gone", "_busy", "_waiting", "_age")

    def __init__(self, at: Callable, begin: Callable, gone: Callable):
        self._at, self._begin, self._gone = at, begin, gone
        self._busy, self._waiting, self._age = set(), {}, 0

    def request(self, transfer: LinkTransfer, now: float) -> None:
        """Start the transfer if all its links are free; else it waits."""
        self._age += 1
        transfer.age = self._age
        self._start_or_wait(transfer, now)

    def release(self, transfer: LinkTransfer, now: float) -> None:
        """Free the links that a transfer has occupied to its end."""
        self._free(transfer.occupied().get(1.0, ()) if transfer.shares else transfer.resources, now)

    def _free(self, resources: tuple, now: float) -> None:
        """Free links, and start transfers that wait for one of them, the oldest first.

        A waiting transfer waits *at* one of its busy links only. A transfer that can start now
        waited at a link just released, so none is missed, and long queues at busy links cost
        nothing.
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
            if resource in busy:  # occupied again: the others keep waiting
                continue
            queue = waiting[resource]
            self._start_or_wait(heappop(queue)[1], now)
            if queue:
                heappush(fronts, (queue[0][0], resource))

    def _start_or_wait(self, transfer: LinkTransfer, now: float) -> None:
        busy, resources = self._busy, transfer.resources
        if busy.isdisjoint(resources):
            busy.update(resources)
            self._start(transfer, now)
            return
        at = next(resource for resource in resources if resource in busy)
        heappush(self._waiting.setdefault(at, []), (transfer.age, transfer))

    def _start(self, transfer: LinkTransfer, now: float) -> None:
        self._begin(transfer, now)
        if transfer.shares:
            for share, resources in transfer.occupied().items():
                if share < 1:
                    self._at(now + share * transfer.seconds, self._left, resources)
        self._at(now + transfer.seconds, self._gone, transfer)

    def _left(self, now: float, resources: tuple, _) -> None:
        """Free the faster links of a transfer, which it no longer needs."""
        self._free(resources, now)
