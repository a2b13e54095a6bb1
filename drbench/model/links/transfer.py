"""A transfer, and lanes: queues in which transfers keep their order."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class LinkTransfer:
    """An operation that occupies links for some seconds; ``steps`` are the (rank, step index) that
    it completes.

    Attributes
    ----------
    resources : tuple
        The links of its route.
    seconds : float
        Its time if it is alone.
    latency_s : float
        Added after the transfer has left the links.
    shares : tuple of float
        Fraction of the seconds for which each of ``resources`` is occupied; empty: 1. With shared
        links: the fraction of the link that the transfer uses at full speed.
    lane : tuple or None
        Its queue.
    age : int
        Set when it is requested.
    fixed_s : float
        Part of the seconds without data on the links: launching, synchronising. It is not shared,
        and slows no other transfer.
    bytes_per_s : float
        Its rate at full speed: fair shares are of bytes.
    began : float
        When it started.
    """

    resources: tuple
    seconds: float
    latency_s: float
    steps: tuple
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
        >>> LinkTransfer(("card", "port"), 2.0, 0.0, (), shares=(1.0, 0.5)).occupied()
        {1.0: ('card',), 0.5: ('port',)}
        """
        if not self.shares:
            return {1.0: self.resources}
        by_share: dict[float, tuple] = {}
        for share, resource in zip(self.shares, self.resources):
            by_share[share] = (*by_share.get(share, ()), resource)
        return by_share


class Lanes:
    """Queues in which transfers keep their order: each is requested when those before it in its
    lane have left their links.

    Parameters
    ----------
    request : callable
        ``request(transfer, now)``, as :meth:`FirstCome.request`.

    Examples
    --------
    >>> lanes = Lanes(lambda transfer, now: print(transfer.steps, "at", now))
    >>> first, second, third = (
    ...     LinkTransfer(("a",), 1, 0, steps, lane=lane)
    ...     for steps, lane in (("1st", "out"), ("2nd", "out"), ("3rd", "in"))
    ... )
    >>> for transfer in (first, second, third):
    ...     lanes.add(transfer, 0.0)
    1st at 0.0
    3rd at 0.0
    >>> lanes.start_next(1.0, first.lane)
    2nd at 1.0
    """

    __slots__ = ("_request", "_waiting")

    def __init__(self, request: Callable[[LinkTransfer, float], None]):
        self._request, self._waiting = request, {}

    def add(self, transfer: LinkTransfer, now: float) -> None:
        """Request a transfer, at once if it has no lane or its lane is empty."""
        waiting = self._waiting.get(transfer.lane)
        if waiting is not None:
            waiting.append(transfer)
            return
        if transfer.lane is not None:
            self._waiting[transfer.lane] = deque()
        self._request(transfer, now)

    def start_next(self, now: float, lane: object, _=None) -> None:
        """Start the next transfer of a lane: the one before has left its links."""
        waiting = self._waiting[lane]
        if waiting:
            self._request(waiting.popleft(), now)
        else:
            del self._waiting[lane]
