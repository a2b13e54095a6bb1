"""Tables of results/libraries.md: drbench next to other libraries."""

from collections import defaultdict
from collections.abc import Iterator
from itertools import chain

from drbench.launch.studies.libraries import (
    OURS,
    STOCK,
    ContenderLine,
    compare_contenders,
    compare_placements,
    contender_of,
)
from drbench.measure.decision import over
from drbench.measure.noise import Ratio, ratio_of
from drbench.measure.record_file import read_csv
from drbench.plots.select.records import rows as records_of

from ..dtensor_rows import steps
from .records import HERE, RESULTS, records, rows
from .tables import describe_ratio, table

#: Names of the libraries on pages.
_NAMES = {
    "drbench": "drbench",
    "dtensor": "DTensor",
    "scalapack": "ScaLAPACK",
    "cosma": "COSMA",
    "pylops": "pylops-mpi",
    "heat": "HeAT",
    "jax": "JAX",
}
#: drbench's default layout of A, B and C.
_DEFAULT = "block"


def libraries(*folders: str) -> str:
    """Each library by default and with its fastest setting: its time, and the ratio to drbench's
    default in the same rounds. Noisy ones in square brackets."""
    over_default = "over drbench's default"
    header = ["shape", "ranks", "library", "default", over_default, "fastest setting", over_default]
    return table(header, chain.from_iterable(map(_compare, folders)))


def _compare(folder: str) -> Iterator[tuple]:
    """The lines of a folder of records."""
    cases = records(f"measured/{folder}")
    times: dict[tuple, dict[int, float]] = defaultdict(dict)
    for record in records_of(cases):
        turn, *contender = contender_of(record)
        if record.status == "ok":
            times[tuple(contender)][turn] = record.time_s
    every = compare_contenders(cases)
    fastest = {(line.shape, line.who): line for line in every if line.best}
    default: dict[tuple, ContenderLine] = {}
    for line in every:
        if line.who != "drbench" or line.label == _DEFAULT:
            default.setdefault((line.shape, line.who), line)
    for (shape, who), line in default.items():
        if line.median_s is not None and who in _NAMES:
            cells = [shape, folder.rpartition("-p")[2], _NAMES[who]]
            for setting in (line, fastest[shape, who]):
                text = f"{setting.label}, {1e3 * setting.median_s:.1f} ms"
                ratio = ratio_of(over(times[setting[:3]], times[shape, "drbench", _DEFAULT]))
                is_base = setting[1:3] == ("drbench", _DEFAULT)
                cells.append(f"[{text}]" if setting.noisy else text)
                cells.append("1" if is_base else _describe_apart(ratio))
            yield tuple(cells)


def _describe_apart(ratio: Ratio) -> str:
    """A ratio of times, and whether it is not known to differ from 1.

    Examples
    --------
    >>> _describe_apart(Ratio(1.25, 1.05, 2.0)), _describe_apart(Ratio(1.25))
    ('1.25 (1.05–2.00)', '1.25, undecided')
    >>> _describe_apart(Ratio(0.974, 0.951, 0.998))
    '0.974 (0.951–0.998)'
    """
    if not ratio.significant:
        return f"{describe_ratio(ratio)}, undecided"
    if "1.00" in (f"{ratio.low:.2f}", f"{ratio.high:.2f}"):
        return f"{ratio.middle:.3f} ({ratio.low:.3f}–{ratio.high:.3f})"
    return describe_ratio(ratio)


def placements(folder: str, stock: str = STOCK, ours: str = OURS) -> str:
    """Multiplications by layouts, of a library and of drbench."""
    name = "stock" if stock == STOCK else _NAMES[stock]
    return table(
        [
            "m = n = k",
            "A · B to C",
            name,
            "drbench",
            f"{name} / drbench, time",
            "CPU time",
            "rounds",
        ],
        [
            (
                line.ours.m,
                f"{line.placements[0]} · {line.placements[1]} to {line.placements[2]}",
                *(f"{1e3 * side.time_s:.1f} ms" for side in (line.stock, line.ours)),
                *map(describe_ratio, (line.time, line.cpu)),
                line.rounds,
            )
            for line in compare_placements(
                read_csv(RESULTS / f"measured/{folder}/rounds/records.csv"), stock, ours
            )
        ],
    )


def dtensor_mlp() -> str:
    """Training steps of the MLP, forward and backward."""
    header = ["batch × width × hidden", "stock", "drbench", "stock / drbench, time"]
    return table(
        [*header, "CPU time", "rounds"],
        [
            (
                "×".join(map(str, step.work[:3])),
                *(f"{1e3 * seconds:.2f} ms" for seconds in (step.stock_s, step.ours_s)),
                *map(describe_ratio, (step.time, step.cpu)),
                step.rounds,
            )
            for step in steps(rows(f"{HERE}/dtensor-p2/mlp.csv"))
            if "backward" in step.work[3]
        ],
    )
