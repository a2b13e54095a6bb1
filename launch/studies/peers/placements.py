"""DTensor and DTensor on drbench beside each other, product by product: the same placements and the
same BLAS, in turn."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from drbench.measure.noise import Ratio, ratio_of
from drbench.measure.record import Record
from launch.cases.case import Case
from launch.host.units import seconds
from launch.peers import get_peer, present
from launch.sweeps.rounds import over, pooled, seconds_of, turn_of
from launch.sweeps.run_rounds import run_rounds
from launch.sweeps.supervisor import Settings

from .bench import Shape, plain_console

#: Placements of A, B and C that are compared, on a mesh of all ranks.
PRODUCTS = (
    ("S(0)", "S(0)", "S(0)"),
    ("S(1)", "S(1)", "S(1)"),
    ("S(1)", "S(0)", "S(0)"),
    ("S(0)", "S(1)", "S(0)"),
)
#: Stock, and the same with drbench under it.
STOCK, OURS = "dtensor", "dtensor+drbench"


def product_cases(base: Case, chosen: Sequence[Shape]) -> list[list[Case]]:
    """Each product of each shape, by stock and by drbench.

    Examples
    --------
    >>> cases = product_cases(Case(1, 1, 1), [Shape("square 8", 8, 8, 8)])
    >>> len(cases), [case.algorithm for case in cases[1]], cases[1][0].a
    (4, ['dtensor', 'dtensor+drbench'], 'S(1)')
    """
    return [
        [replace(base, m=m, n=n, k=k, a=a, b=b, c=c, algorithm=name) for name in (STOCK, OURS)]
        for _, m, n, k in chosen
        for a, b, c in PRODUCTS
    ]


def both_here() -> None:
    """Refuse where torch is not.

    Raises
    ------
    MissingError
    """
    for name in (STOCK, OURS):
        present(get_peer(name))


def run_placements(
    base: Case, chosen: Sequence[Shape], settings: Settings, folder: Path, fresh: bool
) -> int:
    """Measure the products in rounds; the exit code: 0, or 1 if one was wrong or failed."""
    say = plain_console()
    runs = run_rounds(product_cases(base, chosen), "placements", settings, say, folder, fresh)
    bad = [
        record
        for group in runs
        for run in group
        for record in run.values()
        if record.status != "ok"
    ]
    for r in bad:
        say.print(f"not ok: {r.algorithm}, {r.a} · {r.b} to {r.c}: {r.status}: {r.reason}")
    return 1 if bad else 0


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


_HEADER = (
    "shape",
    "A · B to C",
    "stock",
    "drbench",
    "stock / drbench",
    "CPU time",
    "stock's roof",
    "drbench's roof",
    "stock, MiB",
    "drbench, MiB",
    "rounds",
)


def placement_rows(
    found: Sequence[Line], unit: Callable[[float], str] = seconds
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Header and cells as text."""
    rows = []
    for line in found:
        both = line.stock, line.ours
        times = [unit(r.time_s) if r.status == "ok" else f"{r.status}: {r.reason}" for r in both]
        moved = ["" if r.moved_bytes is None else f"{r.moved_bytes / 2**20:.1f}" for r in both]
        a, b, c = line.placements
        rows.append(
            (
                "x".join(map(str, line.shape)),
                f"{a} · {b} to {c}",
                *times,
                *("" if each is None else str(each) for each in (line.time, line.cpu)),
                *map(_of_roof, both),
                *moved,
                str(line.rounds),
            )
        )
    return _HEADER, rows


def _of_roof(record: Record) -> str:
    """The median of the paired ratios, with its interval; nothing where ranks share cores."""
    share, low, high = (getattr(record, f"percent_of_roof{end}") for end in ("", "_low", "_high"))
    if share is None or record.oversubscribed:
        return ""
    return f"{share:.1f} %" + ("" if low is None else f" ({low:.0f}-{high:.0f})")
