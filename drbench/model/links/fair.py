"""Max-min fair sharing: all transfers use a link at once, and none could be faster without slowing
another that is not faster.

TCP connections, switches with round-robin queues, and memory are close to this.
:mod:`drbench.model.links.levels` finds the rates.
"""

from collections.abc import Callable

from .levels import Levels
from .transfer import LinkTransfer


class Fair:
    """All links of a machine, each shared by the transfers that use it.

    Parameters
    ----------
    at, begin, gone : callable
        As of :class:`FirstCome`. A transfer begins when it is requested.

    Notes
    -----
    The state: of each transfer on the links (by age) its speed, the time when it was set, the
    seconds at full speed that were left then, and a version, so that an end predicted for an
    earlier speed is ignored; and whether speeds must be set at the end of this instant, after all
    requests of the instant.

    Examples
    --------
    Two transfers share a link of 1; when the shorter ends the other has the link alone:

    >>> from heapq import heappop, heappush
    >>> events = []
    >>> at = lambda time, act, *what: heappush(events, (time, len(events), act, what))
    >>> def gone(now, transfer, _):
    ...     print(transfer.steps, "at", now)
    ...     links.release(transfer, now)
    >>> links = Fair(at, lambda transfer, now: None, gone)
    >>> links.request(LinkTransfer(("a",), 1.0, 0.0, "short"), 0.0)
    >>> links.request(LinkTransfer(("a",), 3.0, 0.0, "long"), 0.0)
    >>> while events:
    ...     time, _, act, what = heappop(events)
    ...     act(time, *what, *[None] * (2 - len(what)))
    short at 2.0
    long at 4.0
    """

    __slots__ = ("_at", "_begin", "_gone", "_age", "_flows", "_levels", "_settling")

    def __init__(self, at: Callable, begin: Callable, gone: Callable):
        self._at, self._begin, self._gone = at, begin, gone
        self._age, self._settling = 0, False
        self._flows: dict[int, _Flow] = {}
        self._levels = Levels()

    def request(self, transfer: LinkTransfer, now: float) -> None:
        """Start the transfer."""
        self._age += 1
        transfer.age = self._age
        self._begin(transfer, now)
        if not transfer.resources or transfer.seconds <= transfer.fixed_s:
            self._at(now + transfer.seconds, self._gone, transfer)
        elif transfer.fixed_s:
            self._at(now + transfer.fixed_s, self._enter, transfer)
        else:
            self._enter(now, transfer)

    def _enter(self, now: float, transfer: LinkTransfer, _=None) -> None:
        """Put the bytes of a transfer on its links."""
        flow = self._flows[transfer.age] = _Flow(transfer, now)
        shares = transfer.shares or (1.0,) * len(transfer.resources)
        uses = tuple(zip(transfer.resources, shares))
        if self._levels.add_flow(transfer.age, transfer.bytes_per_s, uses):
            self._change(now)
        else:
            flow.speed = 1.0
            self._at(now + flow.left, self._due, transfer, flow.version)

    def _due(self, now: float, transfer: LinkTransfer, version: int) -> None:
        flow = self._flows.get(transfer.age)
        if flow is not None and flow.version == version:
            self._gone(now, transfer, None)

    def release(self, transfer: LinkTransfer, now: float) -> None:
        """Remove a transfer that has ended."""
        if self._flows.pop(transfer.age, None) and self._levels.remove_flow(transfer.age):
            self._change(now)

    def _change(self, now: float) -> None:
        """Schedule new speeds for the end of this instant."""
        if not self._settling:
            self._settling = True
            self._at(now, self._resolve_rates)

    def _resolve_rates(self, now: float, *_) -> None:
        """Set the speeds that may have changed."""
        self._settling = False
        for age, speed in self._levels.resolve_rates():
            flow = self._flows[age]
            if flow.set_speed(speed, now):
                self._at(now + flow.left / speed, self._due, flow.transfer, flow.version)


class _Flow:
    """A transfer on the links: its remaining seconds, and its speed."""

    __slots__ = ("transfer", "left", "speed", "since", "version")

    def __init__(self, transfer: LinkTransfer, now: float):
        self.transfer, self.since = transfer, now
        self.left, self.version = transfer.seconds - transfer.fixed_s, 0
        self.speed = 0.0  # not set yet

    def set_speed(self, speed: float, now: float) -> bool:
        """Set another speed; True if the end must be predicted again."""
        if speed == self.speed:
            return False
        self.left = max(0.0, self.left - self.speed * (now - self.since))
        self.speed, self.since = speed, now
        self.version += 1
        return True
