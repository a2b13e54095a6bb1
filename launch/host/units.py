"""Bytes and seconds for people to read."""


def format_bytes(count: int) -> str:
    """Bytes in binary units.

    Examples
    --------
    >>> format_bytes(0), format_bytes(1536), format_bytes(5 * 2**30)
    ('0 B', '1.5 KiB', '5 GiB')
    """
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(value) < 1024 or unit == "TiB":
            return f"{value:.4g} {unit}" if abs(value) < 1024 else f"{value:.0f} {unit}"
        value /= 1024


def seconds(value: float | None) -> str:
    """Time with a unit.

    Examples
    --------
    >>> seconds(0.0123), seconds(2.5), seconds(4e-6)
    ('12.3 ms', '2.5 s', '4 us')
    """
    if value is None:
        return "-"
    if value >= 1000:
        return f"{value:.0f} s"
    for scale, unit in ((1, "s"), (1e-3, "ms"), (1e-6, "us")):
        if value >= scale or unit == "us":
            return f"{value / scale:.3g} {unit}"
