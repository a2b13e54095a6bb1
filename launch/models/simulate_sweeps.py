"""The sweeps of the paper's figures on a machine model: their cases, resumed where they stopped,
and the rows worth keeping.

They run the paper's own program, not the one that users get: :data:`PAPER` and
:func:`as_in_the_paper` are all that makes the difference.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, replace
from functools import partial
from itertools import product
from typing import NamedTuple

from algorithms import algorithms
from drbench.common import Clock
from drbench.errors import DrbenchError, UsageError
from drbench.measure.record import Record
from drbench.measure.record_file import append_csv, read_csv
from drbench.model.machine import Machine
from drbench.program.trace import no_collection
from launch.cases.case import Case
from launch.cases.sweep_file import load_sweep
from partitions import LayoutError, preset
from partitions.arithmetic import near_square
from partitions.enumerate import KINDS, REPLICATIONS
from partitions.partition import replica_suffix

from .intervals import alternatives
from .predict import predict_with, programs_of, simulated_keys, with_interval

#: Hidden size, its multiple, and batch sizes of the paper (§5.2.1).
HIDDEN, RATIO, BATCHES = 12288, 4, (1024, 2048, 4096, 8192)

#: n and k of the two layers.
LAYERS = {"mlp1": (RATIO * HIDDEN, HIDDEN), "mlp2": (HIDDEN, RATIO * HIDDEN)}
#: Partitionings that have a line in the figures, by their kinds.
LEGEND = {
    preset(name, 12): name for name in ("row", "column", "block", "inner", "outer", "traditional")
}
#: Options of the paper's own program: whole tiles are fetched and make one product (§4.2), replicas
#: of C are pushed with the atomic kernel (the authors' repository), look-ahead 1 is the default.
PAPER = {"chunk": "none", "fetch": "tile", "reduce": "push"}
#: What says what PyTorch's DTensor does.
DTENSOR = "dtensor_mm"
#: Sweeps of drbench that reproduce the paper, where they are simulated.
_PAPERS = ("lowering",)
#: Records written at once: each write waits for the disk.
_BATCH = 64
#: Cases that a process takes at once.
_CHUNK = 16
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
    line. All are the paper's own program, see :func:`as_in_the_paper`, but for what ``options``
    says otherwise. Beside them stands DTensor's program, by rows and by columns. ``fields`` are
    further ones of :class:`Case`.

    Examples
    --------
    >>> next(case for case in sweep_cases("mlp2", 12, legend=True) if case.preset == "block").a
    'block:4x3'
    >>> (
    ...     len(list(sweep_cases("mlp1", 12))),
    ...     len(list(sweep_cases("mlp2", 12, replication="equal", stationaries="CB", legend=True))),
    ... )
    (12104, 296)
    """
    n, k = LAYERS[layer]
    factors = list(REPLICATIONS[replication](ranks))
    kinds = [*product(KINDS, repeat=3), ("traditional",) * 3]
    for batch, triple, each, stationary in product(batches, kinds, factors, stationaries):
        if legend and triple not in LEGEND:
            continue
        a, b, c = (kind + replica_suffix(factor) for kind, factor in zip(triple, each))
        case = Case(
            batch, n, k, a, b, c, options={"stationary": stationary}, preset=LEGEND.get(triple)
        )
        yield as_in_the_paper(replace(case, **fields), ranks, options)
    for batch, by in product(batches, ("row", "column")):
        yield replace(dtensor_case(batch, n, k, by), **fields)


def dtensor_case(m: int, n: int, k: int, by: str) -> Case:
    """What PyTorch's DTensor does with matrices that all lie by ``row`` or by ``column``."""
    return Case(m, n, k, by, by, by, algorithm=DTENSOR)


def as_in_the_paper(case: Case, ranks: int, options: dict | None = None) -> Case:
    """A case as the paper's program has it: :data:`PAPER`, and near-square grids of blocks with no
    fewer rows than columns, written out.

    Parameters
    ----------
    options : dict, optional
        Options that are not the paper's.

    Examples
    --------
    >>> case = as_in_the_paper(Case(8, 8, 8, "block/c2", "row", "block", preset="block"), 12)
    >>> case.a, case.b, case.c, case.options
    ('block:3x2/c2', 'row', 'block:4x3', {'chunk': 'none', 'fetch': 'tile', 'reduce': 'push'})
    """
    texts = {name: _tall(getattr(case, name), ranks) for name in "abc"}
    return replace(case, **texts, options=case.options | PAPER | (options or {}))


def _tall(text: str, ranks: int) -> str:
    kind, slash, factor = text.partition("/c")
    if kind != "block":
        return text
    fewer, more = near_square(ranks // int(factor or 1))
    return f"block:{more}x{fewer}{slash}{factor}"


def legend_cases(layer: str, ranks: int, **changes) -> Iterator[Case]:
    """The cases a figure chooses its points from, six partitionings, Stationary B and C, the
    factors the layer admits; and DTensor's."""
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
    one), or of a JSON file: a list of :class:`Case` fields. Those of ``lowering`` reproduce the
    paper, so they are its own program here.

    Raises
    ------
    UsageError
        If there is no such file, or it holds no cases.

    Examples
    --------
    >>> cases = load_cases("lowering", 8)
    >>> len(cases), cases[1].options["schedule"], cases[1].options["fetch"]
    (352, 'greedy', 'tile')
    """
    if not text.endswith(".json"):
        cases = load_sweep(text, ranks).cases
        return [as_in_the_paper(case, ranks) if text in _PAPERS else case for case in cases]
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
    out, fresh, others = [], [], alternatives(machine)

    def write():
        if path is not None and fresh:
            append_csv(path, *fresh)
        fresh.clear()

    try:
        for case in cases:
            key = case_key(case, machine, ranks)
            record = known.get(key)
            if record is None:
                record = _predicted(case, machine, ranks, others)
                record = replace(record, case=key, environment=model)
                fresh.append(record)
                on_case(record)
                if len(fresh) >= _BATCH:
                    write()
            out.append(record)
    finally:
        write()
    return out


def _predicted(case: Case, machine: Machine, ranks: int, others) -> Record:
    """The record of one case of many, with its interval: one that makes no sense is a row like the
    others. Its ranks are traced once."""
    keys = simulated_keys(case, machine, ranks)
    if case.algorithm not in algorithms():
        return Record(
            **keys,
            status="unsupported",
            reason=f"{case.algorithm} is no algorithm of this drbench, and only these can be "
            "simulated",
        )
    try:
        with no_collection():
            start = Clock.now()
            made = programs_of(case, machine, ranks)
            plan_s = Clock.now() - start
        record, _ = predict_with(case, machine, ranks, made=made)
        return with_interval(replace(record, plan_s=plan_s), case, machine, ranks, made, others)
    except (UsageError, LayoutError) as error:
        return Record(**keys, status="failed", reason=str(error))
    except DrbenchError as error:
        return Record(**keys, status=error.status, reason=str(error))


def excerpt(records: Iterable[Record]) -> list[Record]:
    """The rows that figures and claims need: a line's partitionings, Stationary B and C, equal
    factors, and the best three mixed ones; and DTensor's."""
    from plots.select.cases import factors, layer_of

    kept, mixed = [], {}
    for record in records:
        if record.algorithm == DTENSOR:
            kept.append(record)
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


class Variant(NamedTuple):
    """A machine, and fields of a case that leave its program as it is (``prefetch``)."""

    machine: Machine
    fields: dict = {}


def run_variants(
    cases: Iterable[Case], variants: Sequence[Variant], ranks: int, processes: int | None = None
) -> list[list[Record]]:
    """Predict all cases with each variant, traced once: a program that goes by what differs is
    traced again.

    Parameters
    ----------
    processes : int, optional
        By default as many as there are cores for this process.

    Returns
    -------
    list of list of Record
        One list a variant, in the order of the cases.

    Raises
    ------
    DrbenchError
        If a case is refused: these sweeps hold none that is.

    Examples
    --------
    >>> from launch.cases.machine_models import find_machine
    >>> machine = find_machine("h100x8")
    >>> slower = machine.vary("links.nvlink.bandwidth_bytes_per_s", 0.1)
    >>> cases = [Case(1024, 1024, 1024, "row", "row", "row")]
    >>> (base,), (slow,) = run_variants(cases, [Variant(machine), Variant(slower)], 8, 1)
    >>> base.get_bytes == slow.get_bytes, base.best_s < slow.best_s
    (True, True)
    """
    predicted = partial(_with_each, variants, ranks)
    processes = processes or len(os.sched_getaffinity(0))
    if processes == 1:
        rows = list(map(predicted, cases))
    else:
        with ProcessPoolExecutor(processes) as pool:
            rows = list(pool.map(predicted, cases, chunksize=_CHUNK))
    return [list(records) for records in zip(*rows)]


def _with_each(variants: Sequence[Variant], ranks: int, case: Case) -> list[Record]:
    made = programs_of(case, variants[0].machine, ranks)
    found = []
    for machine, fields in variants:
        changed = replace(case, **fields)
        found.append(predict_with(changed, machine, ranks, made=made.on(changed, machine))[0])
    return found
