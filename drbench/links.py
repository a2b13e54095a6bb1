"""Links and who is waiting for them: a transfer starts when all its links are free, the oldest first.

Reserving links when a transfer is asked for would leave gaps: one case came out 3.4 times too slow.
"""

from __future__ import annotations

from typing import Callable

__all__ = ["Links", "Transfer"]


class Transfer:
    """Something that occupies links for some seconds; ``steps`` are the (rank, step index) that then complete.

    ``age`` is set when it is asked for.
    """

    __slots__ = ("resources", "seconds", "latency_s", "steps", "age")

    def __init__(self, resources: tuple, seconds: float, latency_s: float, steps: tuple):
        self.resources, self.seconds, self.latency_s, self.steps = resources, seconds, latency_s, steps


class Links:
    """All links of a machine.

    Parameters
    ----------
    begin : callable
        ``begin(transfer, now)``, called when a transfer starts.

    Examples
    --------
    The second transfer waits for the first, the third for nobody; when the first is done the oldest waiting one goes:

    >>> links = Links(lambda transfer, now: print(transfer.steps, "at", now))
    >>> first, second, third = Transfer(("a", "b"), 1, 0, "1st"), Transfer(("b", "c"), 1, 0, "2nd"), Transfer(("d",), 1, 0, "3rd")
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
        if self._busy.isdisjoint(transfer.resources):
            self._busy.update(transfer.resources)
            self._begin(transfer, now)
        else:
            for resource in transfer.resources:
                self._waiting.setdefault(resource, {})[transfer.age] = transfer

    def release(self, transfer: Transfer, now: float) -> None:
        """The transfer is done: whoever waits for one of its links may go, the oldest first."""
        busy, waiting = self._busy, self._waiting
        busy.difference_update(transfer.resources)
        queues = [queue for resource in transfer.resources if (queue := waiting.get(resource))]
        if not queues:
            return
        candidates = queues[0] if len(queues) == 1 else {age: each for queue in queues for age, each in queue.items()}
        for age in sorted(candidates):
            candidate = candidates[age]
            if busy.isdisjoint(candidate.resources):
                busy.update(candidate.resources)
                for resource in candidate.resources:
                    del waiting[resource][age]
                self._begin(candidate, now)
                if busy.issuperset(transfer.resources):
                    return
