"""What the claims P1-P12 rest on when constants are not a little but entirely other ones: both
machines are simulated again with each of :data:`CHANGES`.
"""

import csv
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from drbench.measure.record import Record
from drbench.model.machine import Machine
from launch.cases.case import Case
from launch.cases.machine_models import find_machine
from launch.models.simulate_sweeps import Variant, legend_cases, run_variants

from .slicing_claims import check_claims
from .verdicts import HOLDS

#: C is in at most so many replicas, or in as many as A and B: no line is drawn with more as long as
#: A and B may be on all ranks, and the simulations take three quarters of the time.
MOST_OF_C = 4
#: Batch sizes by layer. MLP-2 has six times as many cases, so of it the smallest and the largest.
BATCHES = {"mlp1": (1024, 2048, 4096, 8192), "mlp2": (1024, 8192)}
MACHINES = ("pvc12", "h100x8")
_FACTORS = (0.1, 0.5, 2, 10)


class Row(NamedTuple):
    """What a claim says, one of :data:`launch.studies.verdicts.HOLDS`, when all constants are as
    they are, and when a change is made."""

    change: str
    claim: str
    unchanged: str
    changed: str


class Change(NamedTuple):
    """A constant of a machine that is a little different, and the claims that then change."""

    machine: str
    change: str
    changed_claims: str


def _bandwidth(factor: float, machine: Machine) -> Machine:
    for link in machine.links:
        machine = machine.vary(f"links.{link.name}.bandwidth_bytes_per_s", factor)
    return machine


def _swapped(machine: Machine) -> Machine:
    """The machine with the links of the other one."""
    (other,) = (name for name in MACHINES if name != machine.name)
    links = find_machine(other).sources["links"]
    return Machine.from_dict(machine.sources | {"links": links, "assumed": ()}, machine.name)


def changes(machine: Machine) -> Iterator[tuple[str, Variant]]:
    """What is changed, and the machine then.

    Examples
    --------
    >>> [name for name, _ in changes(find_machine("pvc12"))]
    ['bandwidth x 0.1', 'bandwidth x 0.5', 'bandwidth x 2', 'bandwidth x 10', 'no overlap', \
'links swapped']
    """
    for factor in _FACTORS:
        yield f"bandwidth x {factor:g}", Variant(_bandwidth(factor, machine))
    yield "no overlap", Variant(machine, {"prefetch": 0})
    yield "links swapped", Variant(_swapped(machine))


def cases_for_claims(layer: str, ranks: int, **fields) -> list[Case]:
    """The cases of a figure but for those with C in more replicas (:data:`MOST_OF_C`); fields as in
    :func:`legend_cases`.

    Examples
    --------
    >>> len(cases_for_claims("mlp2", 12)), len(cases_for_claims("mlp1", 8))
    (1256, 200)
    """
    return [
        case
        for case in legend_cases(layer, ranks, **fields)
        if _factor(case.c) <= MOST_OF_C or _factor(case.c) == _factor(case.a)
    ]


def _factor(text: str) -> int:
    return int(text.partition("/c")[2] or 1)


def extremes(published: Iterable[Record]) -> list[Row]:
    """A row a change and claim.

    Parameters
    ----------
    published : iterable of Record
        DTensor's published lines, for P12.
    """
    from plots.select.cases import layer_of

    theirs = [record for record in published if record.m in BATCHES[layer_of(record)]]
    found: dict[str, list[Record]] = {}
    for name in MACHINES:
        machine = find_machine(name)
        cases = [
            case
            for layer, batches in BATCHES.items()
            for case in cases_for_claims(layer, machine.devices, batches=batches)
        ]
        variants = {"": Variant(machine), **dict(changes(machine))}
        records = run_variants(cases, list(variants.values()), machine.devices)
        for change, each in zip(variants, records):
            found.setdefault(change, []).extend(each)
    says = {
        change: {each.claim: HOLDS[each.holds] for each in check_claims([*records, *theirs])}
        for change, records in found.items()
    }
    base = says.pop("")
    return [
        Row(change, claim, base[claim], word)
        for change, words in says.items()
        for claim, word in words.items()
    ]


def write_rows(path: Path, rows: Sequence[NamedTuple]) -> None:
    """Rows of one kind as CSV, the names of their fields first."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([rows[0]._fields, *rows])


def told(rows: Iterable[Row]) -> dict[str, str]:
    """Change -> the claims that it turns, in words.

    Examples
    --------
    >>> told([Row("x", "P1", "holds", "does not hold"), Row("y", "P1", "holds", "holds")])
    {'x': 'P1 does not hold', 'y': ''}
    """
    found: dict[str, list[str]] = {}
    for row in rows:
        turned = found.setdefault(row.change, [])
        if row.changed != row.unchanged:
            turned.append(f"{row.claim} {row.changed}")
    return {change: "; ".join(turned) for change, turned in found.items()}
