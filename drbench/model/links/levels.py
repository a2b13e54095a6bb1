"""Max-min fair rates of flows over links, kept up while flows come and go.

Every link has a level: what the flows that it holds up move, in bytes a second. A flow moves what
the lowest level on its way is, at most what it moves alone; a link's level is the one at which it
is full, given what the others on it may move by the levels of their other links. One set of levels
has this for all links at once, and it is that of progressive filling (Bertsekas, Gallager: Data
Networks, 6.5.2). When somebody comes or goes, the links on its way are looked at, and whoever a
level that moved may concern, until no level moves: what is elsewhere is not touched, however many
share links with it (Charny, Clark, Jain: Congestion control with explicit rate indication, 1995,
has this between switches, and why it ends).
"""

from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from math import inf

Uses = Sequence[tuple[Hashable, float]]

#: A link that flows want no more of than this is nobody's limit.
FULL = 1 + 1e-9
#: Levels that are as near as this are the same one, added up in another order.
SAME = 1e-13
#: The same, after so many links have been looked at in vain: rounding shall not go on for ever.
PATIENCE = 20


class Levels:
    """The flows on all links, and their rates.

    Notes
    -----
    The state: of each flow what it moves alone and the links on its way; of each link its flows,
    each with the part of the link that a byte a second of it takes, what they want together, and
    its level, unless it holds up nobody; and the links where somebody came or went since levels
    were found.

    Examples
    --------
    >>> levels = Levels()
    >>> (
    ...     levels.add_flow("short", 8.0, [("wire", 1.0)]),
    ...     levels.add_flow("long", 8.0, [("wire", 1.0)]),
    ... )
    (False, True)
    >>> dict(levels.resolve_rates())
    {'short': 0.5, 'long': 0.5}
    >>> levels.go("short"), dict(levels.resolve_rates())
    (True, {'long': 1.0})
    """

    __slots__ = ("_changed", "_flows", "_level", "_on", "_wanted")

    def __init__(self) -> None:
        self._flows: dict = {}
        self._on: dict = {}
        self._wanted: dict = {}
        self._level: dict = {}
        self._changed: dict = {}

    def add_flow(self, name: Hashable, full: float, uses: Uses) -> bool:
        """A flow comes.

        Parameters
        ----------
        name : hashable
        full : float
            What it moves at full speed, in bytes a second, above 0.
        uses : sequence of (link, float)
            Its links, each with the part of it, above 0, that the flow takes at full speed.

        Returns
        -------
        bool
            Whether one of them is wanted by more than it carries: rates change.
        """
        self._flows[name] = full, uses
        crowded = False
        for link, share in uses:
            self._on.setdefault(link, {})[name] = share / full
            wanted = self._wanted[link] = self._wanted.get(link, 0.0) + share
            crowded |= wanted > FULL
        return crowded and self._change(uses)

    def go(self, name: Hashable) -> bool:
        """A flow goes: whether rates of others change."""
        _, uses = self._flows.pop(name)
        crowded = False
        for link, share in uses:
            on = self._on[link]
            del on[name]
            crowded |= self._wanted[link] > FULL and bool(on)
            self._wanted[link] = self._wanted[link] - share if on else 0.0
        return crowded and self._change(uses)

    def _change(self, uses: Uses) -> bool:
        self._changed.update(dict.fromkeys(link for link, _ in uses))
        return True

    def resolve_rates(self) -> Iterator[tuple]:
        """Find the levels; (name, speed) of whoever may go at another one, once or more often."""
        moved, self._changed = self._changed, {}
        self._find(moved)
        flows, level = self._flows, self._level
        for link in moved:
            for name in self._on[link]:
                full, uses = flows[name]
                rate = full
                for each, _ in uses:
                    if level.get(each, inf) < rate:
                        rate = level[each]
                yield name, rate / full

    def _find(self, moved: dict) -> None:
        """Find the levels, in links that were looked at and those they concern; adds those whose
        level moved."""
        flows, level, wanted = self._flows, self._level, self._wanted
        queue, queued, looked = deque(moved), set(moved), 0
        while queue:
            link = queue.popleft()
            queued.discard(link)
            same = SAME * 2 ** (looked >> PATIENCE)
            looked += 1
            old, new = level.get(link, inf), self._level_of(link)
            if new == old or abs(new - old) <= same * old < inf:
                continue
            if new < inf:
                level[link] = new
            else:
                del level[link]
            moved[link] = None
            lower = min(old, new)
            for name in self._on[link]:  # only who went faster than the lower one is concerned
                full, uses = flows[name]
                for other, _ in uses if full > lower else ():
                    if other != link and level.get(other, inf) > lower and wanted[other] > FULL:
                        if other not in queued:
                            queued.add(other)
                            queue.append(other)

    def _level_of(self, link: Hashable) -> float:
        """The level at which a link is full, by those of the other links."""
        if self._wanted[link] <= FULL:
            return inf
        flows, level = self._flows, self._level
        most = []  # of each flow: what the rest of its way lets it move, and what a byte takes
        wants = taken = 0.0
        for name, takes in self._on[link].items():
            rate, uses = flows[name]
            for other, _ in uses:
                if other != link and level.get(other, inf) < rate:
                    rate = level[other]
            most.append((rate, takes))
            wants += takes
            taken += takes * rate
        if taken <= 1 + SAME:
            return inf
        found, higher = 0.0, 1.0 / wants  # as if nobody were held up elsewhere: no more than that
        while higher > found:
            found, rest, wants = higher, 1.0, 0.0
            for rate, takes in most:
                if rate < found:
                    rest -= takes * rate
                else:
                    wants += takes
            higher = rest / wants if wants else found
        return found
