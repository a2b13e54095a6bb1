"""What every figure asks of its records: which cases count, where they come from, and what a line
is called.

Pure: no matplotlib. Whatever is left out is returned as a text, for the figure's small print and
for standard error.
"""

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from drbench.measure.record import OPTION_COLUMNS, STATUSES, Record, read_options

from .selection import LEGEND, UNIVERSAL, SelectionError, moved_bytes, split_factor

Item = TypeVar("Item")
Shape = tuple[int, int, int]

QUANTITIES = {"peak": "percent_of_peak", "roof": "percent_of_roof"}
AXIS = {
    "percent_of_peak": "percent of peak (%)",
    "percent_of_roof": "percent of the no-communication roof (%)",
}
#: Texts of more names than this end in "and 12 more".
NAMED = 8


@dataclass(frozen=True)
class Options:
    """What a figure may be asked for; each figure names those it takes.

    Attributes
    ----------
    moving_only : bool
        Leave out cases that move no bytes at all, as the paper's figures do.
    quantity : str
        ``peak``, ``roof``, or ``auto``: percent of peak if every case has it.
    shape : (m, n, k), optional
        Only this shape.
    """

    moving_only: bool = False
    quantity: str = "auto"
    shape: Shape | None = None


class Source(NamedTuple):
    """Where numbers come from; one panel holds those of one source."""

    mode: str | None
    machine: str | None
    ranks: int | None
    nodes: int | None
    threads: int | None
    dtype: str | None

    @property
    def text(self) -> str:
        """In one line, e.g. ``4 ranks, spr-2core, float32, measured``."""
        ranks = None if self.ranks is None else f"{self.ranks} rank{'s' * (self.ranks != 1)}"
        nodes = f"{self.nodes} nodes" if (self.nodes or 1) > 1 else None
        threads = f"{self.threads} threads a rank" if (self.threads or 1) > 1 else None
        return ", ".join(
            part for part in (ranks, nodes, threads, self.machine, self.dtype, self.mode) if part
        )


def source_of(record: Record) -> Source:
    """The source of one record."""
    return Source(
        record.mode, record.machine, record.ranks, record.nodes, record.threads, record.dtype
    )


def shape_of(record: Record) -> Shape:
    """Give (m, n, k)."""
    return record.m, record.n, record.k


def shape_text(shape: Shape) -> str:
    """Print a shape.

    Examples
    --------
    >>> shape_text((64, 3072, 768))
    '64 × 3072 × 768'
    """
    return " × ".join(map(str, shape))


def communicated_bytes(record: Record) -> int | None:
    """Sum the bytes of every kind, those of collectives included; ``None`` if none was counted."""
    moved, collective = moved_bytes(record), record.collective_bytes
    return None if moved is None and collective is None else (moved or 0) + (collective or 0)


def usable(records: Iterable[Record], options: Options) -> tuple[list[Record], list[str]]:
    """Keep the cases a figure may draw; say how many of which kind are left out.

    Raises
    ------
    SelectionError
        If nothing is left.

    Examples
    --------
    >>> ok = Record(mode="measured", status="ok", best_s=1.0, m=4, n=4, k=4, get_bytes=0)
    >>> late = Record(mode="measured", status="timeout", reason="60 s", m=4, n=4, k=4)
    >>> kept, notes = usable([ok, late], Options())
    >>> len(kept), notes
    (1, ['not drawn: 1 case not ok (1 timeout)'])
    """
    left, notes, statuses = [], [], {}
    records = _of_shape(list(records), options.shape)
    for record in records:
        if record.status == "ok":
            left.append(record)
        else:
            statuses[record.status] = statuses.get(record.status, 0) + 1
    if statuses:
        told = ", ".join(
            f"{statuses[status]} {status}" for status in STATUSES if status in statuses
        )
        notes.append(f"not drawn: {cases(sum(statuses.values()))} not ok ({told})")
    stages: list[tuple[str, Callable[[Record], bool]]] = [
        ("over a throttled transport", lambda record: "throttled" not in (record.transport or "")),
        ("without sizes", lambda record: all(size and size > 0 for size in shape_of(record))),
    ]
    if options.moving_only:
        stages.append(("that move no bytes", lambda record: communicated_bytes(record) != 0))
    for what, keeps in stages:
        kept = [record for record in left if keeps(record)]
        if len(kept) < len(left):
            notes.append(f"not drawn: {cases(len(left) - len(kept))} {what}")
        left = kept
    if not left:
        raise SelectionError(
            f"nothing to draw in {len(records)} records{': ' * bool(notes)}{'; '.join(notes)}. "
            "Run more cases."
        )
    return left, notes


def _of_shape(records: list[Record], shape: Shape | None) -> list[Record]:
    chosen = [record for record in records if shape in (None, shape_of(record))]
    if records and not chosen:
        shapes = names(
            [
                "x".join(map(str, each))
                for each in sorted({shape_of(record) for record in records}, key=rising)
            ]
        )
        raise SelectionError(
            f"no case of shape {'x'.join(map(str, shape))}; there are {shapes}. Choose one."
        )
    return chosen


def with_quantity(
    records: Sequence[Record], options: Options
) -> tuple[list[Record], str, list[str]]:
    """Choose what is drawn, and keep the cases that have it: (cases, field, notes).

    Raises
    ------
    SelectionError
        If no case has it.
    """
    if options.quantity == "auto":
        field = (
            "percent_of_peak"
            if all(finite(record.percent_of_peak) for record in records)
            else "percent_of_roof"
        )
    else:
        field = QUANTITIES[options.quantity]
    kept = [record for record in records if finite(getattr(record, field))]
    words = field.replace("_", " ")
    if not kept:
        raise SelectionError(
            f"no case of {len(records)} has a {words}. Run with --roof, or choose another "
            "--quantity."
        )
    lost = len(records) - len(kept)
    return kept, field, [f"not drawn: {cases(lost)} without {words}"] if lost else []


def finite(value: float | None) -> bool:
    """Tell a number from None, NaN and infinity."""
    return value is not None and math.isfinite(value)


def groups(items: Iterable[Item], key: Callable[[Item], Hashable]) -> dict:
    """Put items of one key together, keys in rising order of their texts, numbers as numbers."""
    found: dict = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return {each: found[each] for each in sorted(found, key=rising)}


def rising(value) -> tuple:
    """A sort key for mixed tuples: nothing first, then numbers, then texts."""
    if isinstance(value, tuple):
        return tuple(rising(part) for part in value)
    return (
        (0, 0, "")
        if value is None
        else (1, value, "")
        if isinstance(value, (int, float))
        else (2, 0, str(value))
    )


def fastest(records: Iterable[Record]) -> Record:
    """The case with the smallest best time; ties go to the first in the order of their
    definitions."""
    return min(records, key=lambda record: (record.best_s, rising(definition(record))))


#: Options that order cases before their partitions do.
_OLDEST = OPTION_COLUMNS.index("schedule")


def definition(record: Record) -> tuple:
    """What tells a case from another of its shape and source, for a stable order."""
    return (
        record.algorithm,
        *(getattr(record, name) for name in OPTION_COLUMNS[:_OLDEST]),
        record.a,
        record.b,
        record.c,
        record.preset,
        *(getattr(record, name) for name in OPTION_COLUMNS[_OLDEST:]),
        record.backend,
        record.compute,
        record.collectives,
        record.max_gemms,
        record.max_accumulates,
        record.accumulate_blocks,
        record.transport,
        record.get,
        record.progress,
        record.prefetch,
        record.median_s,
        record.timestamp,
    )


def partitioning(record: Record) -> str:
    """Name the partitioning of a universal case as the paper's legend does, else by its preset;
    ``""`` without a name."""
    texts = tuple(split_factor(text or "")[0] for text in (record.a, record.b, record.c))
    known = next((entry.name for entry in LEGEND if entry.texts == texts), None)
    return known or (f"UA - {record.preset}" if record.preset else "")


def series(record: Record) -> str:
    """The line a case belongs to: a partitioning of the universal algorithm, or an algorithm.

    Examples
    --------
    >>> def case(**values):
    ...     return Record(mode="measured", status="ok", best_s=1.0, **values)
    >>> (
    ...     series(case(algorithm="universal", a="row/c2", b="column", c="column")),
    ...     series(case(algorithm="summa", mesh="2x2")),
    ... )
    ('UA - Inner Prod.', 'summa')
    """
    if record.algorithm == UNIVERSAL:
        return partitioning(record) or "universal"
    return record.algorithm or "unnamed"


def variant(record: Record) -> str:
    """An algorithm with its data movement, e.g. ``universal S-C`` or ``summa OS``."""
    movement = f"S-{record.stationary}" if record.stationary else record.dataflow
    return " ".join(part for part in (record.algorithm or "unnamed", movement) if part)


def configuration(record: Record) -> str:
    """The choices of a case that its name does not tell: mesh, slices, partitions.

    Examples
    --------
    >>> configuration(Record(mode="measured", status="ok", best_s=1.0, mesh="2x2", slices=8))
    '2x2, slices 8'
    >>> configuration(
    ...     Record(mode="measured", status="ok", best_s=1.0, a="row", b="row", c="row/c2")
    ... )
    'row | row | row/c2'
    """
    parts = [record.mesh] if record.mesh else []
    parts += [
        f"{name} {getattr(record, name)}"
        for name in ("slices", "panel", "block", "unroll")
        if getattr(record, name)
    ]
    parts += [f"{name} {value}" for name, value in read_options(record.options).items()]
    if not parts and (record.a or record.b or record.c):
        texts = [record.a or "?", record.b or "?", record.c or "?"]
        parts = [texts[0] if len(set(texts)) == 1 else " | ".join(texts)]
    return ", ".join(parts)


def cases(count: int) -> str:
    """``1 case``, ``2 cases``."""
    return f"{count} case{'s' * (count != 1)}"


def names(found: Sequence[str], most: int = NAMED) -> str:
    """List names, at most some of them.

    Examples
    --------
    >>> names(["a", "b", "c"], most=2)
    'a, b and 1 more'
    """
    told = ", ".join(found[:most])
    return told if len(found) <= most else f"{told} and {len(found) - most} more"


def elided(text: str, most: int) -> str:
    """Shorten a text in its middle; what cannot be printed becomes a replacement character.

    Examples
    --------
    >>> elided("abcdefgh", 5), elided("abc", 5)
    ('ab…gh', 'abc')
    """
    text = "".join(
        character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text
    )  # no font has those
    if len(text) <= most:
        return text
    head = (most - 1) // 2
    return f"{text[:head]}…{text[len(text) - (most - 1 - head) :]}"
