"""The best that overlap can do for a product and its collective: no faster than the product, than
the busiest link, or than all that multiprocessors have to do; and how many of these the sums need.

Triton-distributed works out how fast sums of two nodes must be made so that they hide (§3.5), and
searches how many multiprocessors that takes. Here the split is solved, for any program: a product
that would take ``product_s`` on all U workers, and sums of so many bytes that a worker makes at
``unit_bytes_per_s``, share the workers for the whole time T, so that

    T = max((U · product_s + bytes / unit_bytes_per_s) / U, busiest link, bytes / memory bandwidth)

and the sums need ``bytes / unit_bytes_per_s / T`` workers; the product leaves as many as ``U - U ·
product_s / T``.
"""

from collections.abc import Iterable
from math import ceil, inf
from typing import NamedTuple

from drbench.program.trace import Trace

from .bounds import Bound
from .costs import sum_bytes
from .machine import Machine


class Headroom(NamedTuple):
    """What overlap can reach.

    Attributes
    ----------
    seconds : float
        No run is shorter.
    decides : str
        What takes that long: ``product``, ``links`` (or sums that memory bounds) or ``workers``.
    least_units, most_units : int
        Workers for sums: what they need, and what the product can do without; 0 without sums, or
        where the machine does not say what a worker adds.
    """

    seconds: float
    decides: str
    least_units: int
    most_units: int


def headroom(
    product_s: float, bound: Bound, traces: Iterable[Trace], machine: Machine, itemsize: int
) -> Headroom:
    """The best for a product that takes ``product_s`` alone, its program having this bound.

    Examples
    --------
    A product of 6 s on 4 workers, sums of 8 worker-seconds, a link that is busy for 10 s: with 1
    worker for sums the product has 3, and both take 8 s:

    >>> split(6.0, 8.0, 10.0, 4)
    Headroom(seconds=10.0, decides='links', least_units=1, most_units=1)
    >>> split(6.0, 8.0, 0.0, 4)
    Headroom(seconds=8.0, decides='workers', least_units=1, most_units=1)
    """
    rate = machine.compute.unit_bytes_per_s
    most = max(sum_bytes(trace, itemsize) for trace in traces)
    takes = machine.side_units and rate < inf  # else sums take no workers from the product
    sums_s = most / rate if takes else 0.0
    return split(product_s, sums_s, bound.links_s, machine.compute.units)


def split(product_s: float, sums_s: float, links_s: float, units: int) -> Headroom:
    """:func:`headroom` of a product on all workers, sums in seconds of one worker, and the busiest
    link.

    Examples
    --------
    >>> split(2.0, 0.0, 1.0, 132)
    Headroom(seconds=2.0, decides='product', least_units=0, most_units=0)
    """
    share = product_s + sums_s / units
    seconds = max(share, links_s)
    if not sums_s:
        return Headroom(seconds, "product" if product_s >= links_s else "links", 0, 0)
    least = ceil(round(sums_s / seconds, 9))
    most = max(least, int(units * (1 - product_s / seconds) + 1e-9))
    return Headroom(seconds, "workers" if share >= links_s else "links", least, most)
