"""The transports that a user chooses from, and their text form."""

from dataclasses import dataclass

from .errors import UsageError


@dataclass(frozen=True)
class TransportChoice:
    """The transport that the user chose.

    Attributes
    ----------
    kind : str
        ``"auto"`` (in place where another rank's memory can be reached, RMA elsewhere),
        ``"direct"`` (all in place, else unsupported), ``"rma"`` (RMA even on the node) or
        ``"throttled"``.
    bandwidth_bytes_per_s, latency_s : float or None
        Of each rank's link, one direction; throttled only.
    """

    kind: str
    bandwidth_bytes_per_s: float | None = None
    latency_s: float | None = None

    def __str__(self) -> str:
        if self.kind != "throttled":
            return self.kind
        gbps, us = self.bandwidth_bytes_per_s / 1e9, self.latency_s * 1e6  # type: ignore[operator]
        return f"throttled:{gbps:g},{us:g}"


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
