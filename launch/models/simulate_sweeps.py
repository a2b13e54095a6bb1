"""The sweeps of the paper's figures on a machine model: their cases, resumed where they stopped,
and the rows worth keeping."""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, replace
from itertools import product

from algorithms import algorithms
from drbench.errors import UsageError
from drbench.measure.record import Record, append_csv, read_csv
from drbench.model.machine import Machine
from launch.cases.case import Case
from launch.cases.sweep_file import load_sweep
from partitions import LayoutError, preset
from partitions.enumerate import KINDS, REPLICATIONS
from partitions.partition import replica_suffix

from .predict import predict, simulated_keys

#: Hidden size, its multiple, and batch sizes of the paper (§5.2.1).
HIDDEN, RATIO, BATCHES = 12288, 4, (1024, 2048, 4096, 8192)

#: n and k of the two layers.
LAYERS = {"mlp1": (RATIO * HIDDEN, HIDDEN), "mlp2": (HIDDEN, RATIO * HIDDEN)}
#: Partitionings that have a line in the figures, by their kinds.
LEGEND = {
    preset(name, 12): name for name in ("row", "column", "block", "inner", "outer", "traditional")
}
#: Records written at once: each write waits for the disk.
_BATCH = 64
#: Mixed factors that an excerpt keeps for each partitioning, data movement and batch size.
_MIXED = 3


def sweep_cases(
    layer: str,
    ranks: int,
    *,
    replication: str = "paired",
    stationaries: str = "CBA",
    batches=BATCHES,
    legend: bool = False,
    options: dict | None = None,
    **fields,
) -> Iterator[Case]:
    """The cases of one figure: partitionings × replication × data movement × batch sizes.

    Every triple of row, column and block, and traditional; with ``legend`` those six that have a
    line. Whole tiles are one product, as in the paper (chunk ``none``), unless ``options`` says
    otherwise. ``fields`` are further ones of :class:`Case`.

    Examples
    --------
    >>> (
    ...     len(list(sweep_cases("mlp1", 12))),
    ...     len(list(sweep_cases("mlp2", 12, replication="equal", stationaries="CB", legend=True))),
    ... )
    (12096, 288)
    """
    n, k = LAYERS[layer]
    factors = list(REPLICATIONS[replication](ranks))
    kinds = [*product(KINDS, repeat=3), ("traditional",) * 3]
    for batch, triple, each, stationary in product(batches, kinds, factors, stationaries):
        if legend and triple not in LEGEND:
            continue
        a, b, c = (kind + replica_suffix(factor) for kind, factor in zip(triple, each))
        yield Case(
            batch,
            n,
            k,
            a,
            b,
            c,
            options={"stationary": stationary, "chunk": "none", **(options or {})},
            preset=LEGEND.get(triple),
            **fields,
        )


def legend_cases(layer: str, ranks: int, **changes) -> Iterator[Case]:
    """The cases a figure chooses its points from: six partitionings, Stationary B and C, the
    factors the layer admits."""
    return sweep_cases(
        layer,
        ranks,
        replication="equal" if layer == "mlp1" else "paired",
        stationaries="CB",
        legend=True,
        **changes,
    )


def load_cases(text: str, ranks: int) -> list[Case]:
    """The cases of a sweep file, as ``drbench sweep`` takes it (a path, or the name of a shipped
    one), or of a JSON file: a list of :class:`Case` fields.

    Raises
    ------
    UsageError
        If there is no such file, or it holds no cases.

    Examples
    --------
    >>> cases = load_cases("lowering", 8)
    >>> len(cases), cases[1].options
    (352, {'chunk': 'none', 'stationary': 'C', 'schedule': 'greedy'})
    """
    if not text.endswith(".json"):
        return list(load_sweep(text, ranks).cases)
    try:
        with open(text) as file:
            return [Case(**fields) for fields in json.load(file)]
    except OSError as error:
        raise UsageError(
            f"{text}: {error.strerror}. Use {', '.join(LAYERS)}, a sweep file, or a JSON file of "
            "cases."
        ) from None
    except (ValueError, TypeError) as error:
        raise UsageError(
            f"{text} is no list of cases: {error}. Each needs at least m, n and k."
        ) from None


def _hash(value, digits: int) -> str:
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:digits]


def case_key(case: Case, machine: Machine, ranks: int) -> str:
    """What names a case on a machine in the record's column ``case``.

    Examples
    --------
    >>> from launch.cases.machine_models import find_machine
    >>> machine = find_machine("pvc12")
    >>> case_key(Case(8, 8, 8), machine, 4) == case_key(
    ...     Case(8, 8, 8, machine="elsewhere"), machine, 4
    ... )
    True
    """
    return _hash(asdict(case) | {"machine": machine.name, "ranks": ranks}, 16)


def run_simulations(
    cases: Iterable[Case],
    machine: Machine,
    ranks: int,
    path: str | os.PathLike | None,
    on_case: Callable[[Record], None] = lambda record: None,
) -> list[Record]:
    """Predict the cases that the file does not hold yet, and append their records.

    Parameters
    ----------
    path : path or None
        CSV file; None keeps the records in memory only.

    Returns
    -------
    list of Record
        Of all cases asked for, in their order, also those that were in the file.

    Raises
    ------
    UsageError
        If the file holds rows of another version of the machine model: numbers of two models do not
        belong together.
    """
    known: dict[str, Record] = {}
    model = f"model:{_hash(machine.sources, 12)}"
    if path is not None and os.path.exists(path):
        for record in read_csv(path):
            if record.environment != model:
                raise UsageError(
                    f"{path} holds rows of another version of the model of {machine.name}. Move "
                    "the file away, or use another --out."
                )
            known[record.case] = record
    out, fresh = [], []

    def write():
        if path is not None and fresh:
            append_csv(path, *fresh)
        fresh.clear()

    try:
        for case in cases:
            key = case_key(case, machine, ranks)
            record = known.get(key)
            if record is None:
                record = replace(_predicted(case, machine, ranks), case=key, environment=model)
                fresh.append(record)
                on_case(record)
                if len(fresh) >= _BATCH:
                    write()
            out.append(record)
    finally:
        write()
    return out


def _predicted(case: Case, machine: Machine, ranks: int) -> Record:
    """The record of one case of many: one that makes no sense is a row like the others."""
    keys = simulated_keys(case, machine, ranks)
    if case.algorithm not in algorithms():
        return Record(
            **keys,
            status="unsupported",
            reason=f"{case.algorithm} is no algorithm of this drbench, and only these can be "
            "simulated",
        )
    try:
        return predict(case, machine, ranks)
    except (UsageError, LayoutError) as error:
        return Record(**keys, status="failed", reason=str(error))


def excerpt(records: Iterable[Record]) -> list[Record]:
    """The rows that figures and claims need: a line's partitionings, Stationary B and C, equal
    factors, and the best three mixed ones."""
    from plots.select.cases import factors, layer_of

    kept, mixed = [], {}
    for record in records:
        if record.preset not in LEGEND.values() or record.stationary not in ("B", "C"):
            continue
        a, b, c = factors(record)
        if a == b == c:
            kept.append(record)
        elif a == b and layer_of(record) == "mlp2" and record.status == "ok":
            mixed.setdefault((record.preset, record.stationary, record.m), []).append(record)
    for group in mixed.values():
        kept += sorted(group, key=lambda record: record.best_s)[:_MIXED]
    return kept
