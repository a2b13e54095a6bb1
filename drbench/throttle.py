"""The choice of transport, and the throttle: transfers that complete by a timer.

A throttled run reads and adds in place like the direct transport, but a transfer counts as complete
only when the modelled link would have delivered it. Overlap and models can so be measured on a few
cores: the link costs no core. Such rows are marked by their transport text and never stand in
published comparisons.
"""

from __future__ import annotations

from dataclasses import dataclass

from .errors import UsageError

__all__ = ["Throttle", "TransportChoice", "parse_transport"]


@dataclass(frozen=True)
class TransportChoice:
    """What the user asked for.

    Attributes
    ----------
    kind : str
        ``"auto"`` (in place where a peer's memory can be reached, RMA elsewhere), ``"direct"`` (all
        in place, else unsupported), ``"rma"`` (RMA even on the node) or ``"throttled"``.
    bandwidth_bytes_per_s, latency_s : float or None
        Of each rank's link, one direction; throttled only.
    """

    kind: str
    bandwidth_bytes_per_s: float | None = None
    latency_s: float | None = None

    def __str__(self) -> str:
        if self.kind != "throttled":
            return self.kind
        return f"throttled:{self.bandwidth_bytes_per_s / 1e9:g},{self.latency_s * 1e6:g}"


def parse_transport(text: str) -> TransportChoice:
    """Read ``auto``, ``direct``, ``rma`` or ``throttled:GBps,us``.

    Examples
    --------
    >>> parse_transport("throttled:20,5")
    TransportChoice(kind='throttled', bandwidth_bytes_per_s=20000000000.0, latency_s=5e-06)
    """
    kind, _, numbers = text.strip().partition(":")
    if kind in ("auto", "direct", "rma") and not numbers:
        return TransportChoice(kind)
    if kind == "throttled":
        try:
            bandwidth, latency = (float(x) for x in numbers.split(","))
            if 0 < bandwidth < float("inf") and 0 <= latency < float("inf"):
                return TransportChoice(kind, bandwidth * 1e9, latency / 1e6)
        except ValueError:
            pass
        raise UsageError(
            f"throttled needs a bandwidth in GB/s and a latency in us, got {text!r}. "
            "Use for example throttled:20,5."
        )
    raise UsageError(f"transport must be auto, direct, rma or throttled:GBps,us, got {text!r}.")


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
        """When a transfer started now is complete, in seconds on the caller's clock.

        ``link`` is ``"in"`` or ``"out"``, or a direction of the ring of a process row or column.
        ``hops`` messages follow each other on it, ``nbytes`` together: a ring collective takes hops
        · latency + nbytes / bandwidth.

        Examples
        --------
        >>> Throttle(1e9, 0.5).due("row+", 3 * 10**9, now=0.0, hops=3)
        4.5
        """
        start = max(now, self._free.get(link, now))
        self._free[link] = start + nbytes / self.bandwidth_bytes_per_s + (hops - 1) * self.latency_s
        return self._free[link] + self.latency_s
