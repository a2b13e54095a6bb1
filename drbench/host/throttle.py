"""The throttle: transfers that complete by a timer.

A throttled run reads and adds in place like the direct transport, but a transfer counts as complete
only when the modelled link would have delivered it. So overlap and models can be measured on a few
cores: the link costs no core. Such rows are marked by their transport text and are never used in
published comparisons.
"""


class Throttle:
    """One rank's link: each direction carries one transfer at a time, in the order they were
    started.

    A transfer is complete ``latency_s`` after its last byte left the link.

    Examples
    --------
    >>> link = Throttle(bandwidth_bytes_per_s=1e9, latency_s=0.5)
    >>> (
    ...     link.due("in", 10**9, now=0.0),
    ...     link.due("in", 10**9, now=0.0),
    ...     link.due("out", 10**9, now=0.0),
    ... )
    (1.5, 2.5, 1.5)
    """

    def __init__(self, bandwidth_bytes_per_s: float, latency_s: float):
        self.bandwidth_bytes_per_s = bandwidth_bytes_per_s
        self.latency_s = latency_s
        self._free: dict[str, float] = {}

    def due(self, link: str, nbytes: int, now: float, hops: int = 1) -> float:
        """The end of a transfer started now, in seconds on the caller's clock.

        ``link`` is ``"in"`` or ``"out"``, or a direction of the ring of a process row or column.
        ``hops`` messages use it one after another, ``nbytes`` together: a ring collective takes
        hops · latency + nbytes / bandwidth.

        Examples
        --------
        >>> Throttle(1e9, 0.5).due("row+", 3 * 10**9, now=0.0, hops=3)
        4.5
        """
        start = max(now, self._free.get(link, now))
        self._free[link] = start + nbytes / self.bandwidth_bytes_per_s + (hops - 1) * self.latency_s
        return self._free[link] + self.latency_s
