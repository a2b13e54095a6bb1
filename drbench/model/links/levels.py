"""Max-min fair rates of flows over links, updated when flows start and end.

Every link has a level: the rate, in bytes a second, of the flows that it limits. The rate of a flow
is the lowest level of its links, at most its rate alone; the level of a link is the one at which
the link is full, given the rates to which the levels of other links limit its other flows. One set
of levels satisfies this for all links at once: that of progressive filling (Bertsekas, Gallager:
Data Networks, 6.5.2). When a flow starts or ends, the levels of its links are computed again, and
those of links that a changed level may concern, until no level changes. Other links are not
computed (Charny, Clark, Jain: Congestion control with explicit rate indication, 1995, do this
between switches, and prove that it ends).
"""

from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from math import inf

Uses = Sequence[tuple[Hashable, float]]

#: A link limits no flow if its flows together want at most this much of it.
FULL = 1 + 1e-9
#: Relative difference below which levels are equal, but summed in another order.
SAME = 1e-13
#: Binary logarithm of the number of computed levels after which SAME is doubled, so that rounding
#: cannot loop for ever.
PATIENCE = 20


class Levels:
    """The flows on all links, and their rates.

    Notes
    -----
    The state: of each flow its rate alone and its links; of each link its flows, each with the
    fraction of the link that one byte a second uses, the sum of the fractions that they want, and
    its level if it limits a flow; and the links of flows that started or ended since levels were
    computed.

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
    >>> levels.remove_flow("short"), dict(levels.resolve_rates())
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
        """Add a flow.

        Parameters
        ----------
        name : hashable
        full : float
            Its rate at full speed, in bytes a second, above 0.
        uses : sequence of (link, float)
            Its links, each with the fraction of it, above 0, that the flow uses at full speed.

        Returns
        -------
        bool
            Whether one of the links is oversubscribed: rates change.
        """
        self._flows[name] = full, uses
        oversubscribed = False
        for link, share in uses:
            self._on.setdefault(link, {})[name] = share / full
            wanted = self._wanted[link] = self._wanted.get(link, 0.0) + share
            oversubscribed |= wanted > FULL
        return oversubscribed and self._change(uses)

    def remove_flow(self, name: Hashable) -> bool:
        """Remove a flow; True if rates of others change."""
        _, uses = self._flows.pop(name)
        oversubscribed = False
        for link, share in uses:
            on = self._on[link]
            del on[name]
            oversubscribed |= self._wanted[link] > FULL and bool(on)
            self._wanted[link] = self._wanted[link] - share if on else 0.0
        return oversubscribed and self._change(uses)

    def _change(self, uses: Uses) -> bool:
        self._changed.update(dict.fromkeys(link for link, _ in uses))
        return True

    def resolve_rates(self) -> Iterator[tuple]:
        """Compute the levels; (name, speed) of flows whose speed may change, once or more often."""
        moved, self._changed = self._changed, {}
        self._find(moved)
        flows, level = self._flows, self._level
        for link in moved:
            for name in self._on[link]:
                full, uses = flows[name]
                rate = full
                for used, _ in uses:
                    if level.get(used, inf) < rate:
                        rate = level[used]
                yield name, rate / full

    def _find(self, moved: dict) -> None:
        """Compute the levels of ``moved`` and of links that they concern; adds those whose level
        has changed to ``moved``."""
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
            for name in self._on[link]:  # only flows faster than the lower one
                full, uses = flows[name]
                for other, _ in uses if full > lower else ():
                    if other != link and level.get(other, inf) > lower and wanted[other] > FULL:
                        if other not in queued:
                            queued.add(other)
                            queue.append(other)

    def _level_of(self, link: Hashable) -> float:
        """The level at which a link is full, given those of the other links."""
        if self._wanted[link] <= FULL:
            return inf
        flows, level = self._flows, self._level
        most = []  # for each flow: its rate by its other links, and the fraction per byte
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
        lower, higher = 0.0, 1.0 / wants  # if no flow is limited elsewhere
        while higher > lower:
            lower, rest, wants = higher, 1.0, 0.0
            for rate, takes in most:
                if rate < lower:
                    rest -= takes * rate
                else:
                    wants += takes
            higher = rest / wants if wants else lower
        return lower
