"""DTensor and DTensor on drbench beside each other, product by product: the same placements and the
same BLAS, in turn."""

from collections.abc import Sequence
from dataclasses import dataclass

from drbench.measure.noise import Ratio, ratio_of
from drbench.measure.record import Record
from launch.sweeps.rounds import over, pooled, seconds_of, turn_of

#: Stock, and the same with drbench under it.
STOCK, OURS = "dtensor", "dtensor+drbench"


@dataclass(frozen=True)
class Line:
    """A product by stock and by drbench.

    Attributes
    ----------
    shape : (int, int, int)
        m, n, k.
    placements : (str, str, str)
    stock, ours : Record
        Of all rounds.
    time, cpu : Ratio or None
        Stock's over drbench's, paired in rounds: above 1 drbench is faster, or takes less CPU time.
    rounds : int
    """

    shape: tuple
    placements: tuple
    stock: Record
    ours: Record
    time: Ratio | None
    cpu: Ratio | None
    rounds: int


def placement_lines(records: Sequence[Record]) -> list[Line]:
    """A line a product, of the records of all turns."""
    products: dict[tuple, dict[str, dict[int, Record]]] = {}
    for r in records:
        key = (r.m, r.n, r.k), (r.a, r.b, r.c)
        products.setdefault(key, {}).setdefault(r.algorithm, {})[turn_of(r.case)] = r
    found = []
    for (shape, placements), runs in products.items():
        if not {STOCK, OURS} <= set(runs):
            continue
        stock, ours = runs[STOCK], runs[OURS]
        pools = [pooled(list(run.values())) for run in (stock, ours)]
        fine = all(pool.status == "ok" for pool in pools)
        time, cpu = (
            _ratio(of(stock), of(ours)) if fine else None for of in (seconds_of, cpu_seconds_of)
        )
        found.append(Line(shape, placements, *pools, time, cpu, min(map(len, (stock, ours)))))
    return found


def cpu_seconds_of(run) -> dict[int, float]:
    """The CPU time of a rank, of each turn that has it."""
    return {turn: record.cpu_s for turn, record in run.items() if record.cpu_s is not None}


def _ratio(stock, ours) -> Ratio | None:
    found = over(stock, ours)
    return ratio_of(found) if found else None
