"""Max-min fair sharing: all transfers that want a link have it at once, and nobody could be faster
without slowing someone who is no faster.

What TCP connections, switches that serve queues in turn, and memory come near. Rates are found by
progressive filling (Bertsekas, Gallager: Data Networks, 6.5.2): all rise together until a link is
full, whose transfers then stay; the others rise on.
"""

from collections.abc import Callable, Hashable, Sequence
from heapq import heapify, heappop, heapreplace

from .transfer import Transfer

#: A link that transfers want no more of than this is nobody's limit.
_FULL = 1 + 1e-9


def speeds(flows: Sequence[tuple[float, tuple[tuple[Hashable, float], ...]]]) -> list[float]:
    """The speed of each flow, as a part of its full speed.

    Parameters
    ----------
    flows : sequence of (float, tuple of (link, float))
        What a flow moves at full speed, in bytes a second, above 0; and its links, each with the
        part of it, above 0, that the flow takes at full speed.

    Returns
    -------
    list of float
        Above 0, at most 1. Max-min fair in bytes a second, no link taken more than whole.

    Examples
    --------
    Three flows into one device, of which one comes over a slow card that a fourth shares:

    >>> port, card = (("port", 1.0),), (("card", 1.0), ("port", 0.25))
    >>> speeds([(8.0, port), (8.0, port), (2.0, card), (2.0, (("card", 1.0),))])
    [0.4375, 0.4375, 0.5, 0.5]
    """
    left: dict = {}  # of each link
    users: dict = {}  # of each link, (flow, what a byte a second of it takes of the link)
    for f, (full, uses) in enumerate(flows):
        for link, share in uses:
            left[link] = 1.0
            users.setdefault(link, []).append((f, share / full))
    rising = {link: len(each) for link, each in users.items()}
    found: list[float] = [0.0] * len(flows)
    heap = [(1.0 / _total(users[link], found), at, link) for at, link in enumerate(left)]
    heapify(heap)
    by_full = sorted(range(len(flows)), key=lambda f: -flows[f][0])  # the slowest last
    level = 0.0
    while by_full:
        if found[by_full[-1]]:
            by_full.pop()
            continue
        least, stops = flows[by_full[-1]][0], by_full[-1:]  # who stops by itself next, or at a link
        while heap:
            known, at, link = heap[0]
            if not rising[link]:
                heappop(heap)
                continue
            now = left[link] / _total(users[link], found)
            if now > known:  # some of its flows have stopped since; it can only be later
                heapreplace(heap, (now, at, link))
                continue
            if known < least:
                least, stops = known, [f for f, _ in users[link] if not found[f]]
            break
        level = max(level, least)
        for f in stops:
            full, uses = flows[f]
            speed = found[f] = min(1.0, level / full)
            for link, share in uses:
                left[link] -= share * speed
                rising[link] -= 1
    return found


def _total(users: list[tuple[int, float]], found: list[float]) -> float:
    """What a byte a second more of all whose speed is not found takes of a link: added up one by
    one, as the compiled loop does, whatever this Python's ``sum`` does."""
    total = 0.0
    for f, each in users:
        if not found[f]:
            total += each
    return total


class Fair:
    """All links of a machine, each shared by the transfers that want it.

    Parameters
    ----------
    at, begin, gone : callable
        As of :class:`FirstCome`. A transfer begins when it is asked for.

    Notes
    -----
    The state: of each transfer on the links (by age) its speed, the seconds at full speed that were
    left when that speed was set, when that was, and a version, so that an end predicted for an
    earlier speed is passed over; of each link the transfers on it and the sum of their shares; and
    the links where someone came or went at this instant. Speeds are set once an instant, after all
    that happens at it has been asked for, and only of transfers that are joined to one of those
    links by links that are wanted by more than they carry: other speeds cannot change.

    Examples
    --------
    Two share a link of 1; when the shorter is through the other has it alone:

    >>> from heapq import heappop, heappush
    >>> events = []
    >>> at = lambda time, act, *what: heappush(events, (time, len(events), act, what))
    >>> def gone(now, transfer, _):
    ...     print(transfer.steps, "at", now)
    ...     links.release(transfer, now)
    >>> links = Fair(at, lambda transfer, now: None, gone)
    >>> links.ask(Transfer(("a",), 1.0, 0.0, "short"), 0.0)
    >>> links.ask(Transfer(("a",), 3.0, 0.0, "long"), 0.0)
    >>> while events:
    ...     time, _, act, what = heappop(events)
    ...     act(time, *what, *[None] * (2 - len(what)))
    short at 2.0
    long at 4.0
    """

    __slots__ = ("_at", "_begin", "_gone", "_age", "_flows", "_on", "_wanted", "_changed")

    def __init__(self, at: Callable, begin: Callable, gone: Callable):
        self._at, self._begin, self._gone = at, begin, gone
        self._age = 0
        self._flows: dict[int, _Flow] = {}
        self._on: dict = {}  # link -> {age of a transfer on it: its share}
        self._wanted: dict = {}  # link -> sum of the shares
        self._changed: dict = {}  # links where someone came or went at this instant

    def ask(self, transfer: Transfer, now: float) -> None:
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

    def _enter(self, now: float, transfer: Transfer, _=None) -> None:
        """Its bytes come onto the links."""
        flow = self._flows[transfer.age] = _Flow(transfer, now)
        crowded = False
        for link, share in flow.uses:
            self._on.setdefault(link, {})[transfer.age] = share
            wanted = self._wanted[link] = self._wanted.get(link, 0.0) + share
            crowded |= wanted > _FULL
        if crowded:
            self._change(flow, now)
        else:
            flow.speed = 1.0
            self._at(now + flow.left, self._due, transfer, flow.version)

    def _due(self, now: float, transfer: Transfer, version: int) -> None:
        flow = self._flows.get(transfer.age)
        if flow is not None and flow.version == version:
            self._gone(now, transfer, None)

    def release(self, transfer: Transfer, now: float) -> None:
        """A transfer is over."""
        flow = self._flows.pop(transfer.age, None)
        if flow is None:
            return
        crowded = False
        for link, share in flow.uses:
            on = self._on[link]
            del on[transfer.age]
            crowded |= self._wanted[link] > _FULL and bool(on)
            self._wanted[link] = self._wanted[link] - share if on else 0.0
        if crowded:
            self._change(flow, now)

    def _change(self, flow: "_Flow", now: float) -> None:
        """Speeds are set anew at the end of this instant."""
        if not self._changed:
            self._at(now, self._settle)
        self._changed.update(dict.fromkeys(link for link, _ in flow.uses))

    def _settle(self, now: float, *_) -> None:
        """Set the speeds of all that may have changed."""
        flows = self._joined()
        if not flows:
            return
        wanted = self._wanted
        shared = [
            (
                flow.transfer.bytes_per_s,
                tuple(use for use in flow.uses if wanted[use[0]] > _FULL),
            )
            for flow in flows
        ]
        for flow, speed in zip(flows, speeds(shared)):
            if flow.set_speed(speed, now):
                self._at(now + flow.left / speed, self._due, flow.transfer, flow.version)

    def _joined(self) -> "list[_Flow]":
        """The transfers that share crowded links with those at the links where something changed,
        or with others that do; and those at these links themselves."""
        links, self._changed = list(self._changed), {}
        seen, ages = set(links), {}
        for link in links:  # grows
            for age in self._on[link]:
                if age in ages:
                    continue
                flow = ages[age] = self._flows[age]
                for other, _ in flow.uses:
                    if other not in seen and self._wanted[other] > _FULL:
                        seen.add(other)
                        links.append(other)
        return list(ages.values())


class _Flow:
    """A transfer on the links: what is left of it, and how fast it goes."""

    __slots__ = ("transfer", "uses", "left", "speed", "since", "version")

    def __init__(self, transfer: Transfer, now: float):
        self.transfer, self.since = transfer, now
        self.left, self.version = transfer.seconds - transfer.fixed_s, 0
        self.speed = 0.0  # not set yet
        self.uses = tuple(
            zip(transfer.resources, transfer.shares or (1.0,) * len(transfer.resources))
        )

    def set_speed(self, speed: float, now: float) -> bool:
        """Go on at another speed; whether its end is to be predicted anew."""
        if speed == self.speed:
            return False
        self.left = max(0.0, self.left - self.speed * (now - self.since))
        self.speed, self.since = speed, now
        self.version += 1
        return True
