"""Choose the cases that become the lines of the MLP figures: a pure function of records.

The rules are those of Figures 2 and 3 of the paper, in this order: a case that moves no bytes at
all is left out; only Stationary C and Stationary B compete; for each partitioning and data movement
the best replication factor at each batch size; then the data movement whose best is higher at the
largest batch size, named (S-C) or (S-B). A line without a case is returned empty, with its reason.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from drbench.measure.record import Record

LAYERS = ("mlp1", "mlp2")
UNIVERSAL = "universal"


class Entry(NamedTuple):
    """One row of the legend: its name and the partitionings of A, B and C (none for a peer)."""

    name: str
    texts: tuple[str, str, str] | None


LEGEND = (
    Entry("UA - Row", ("row", "row", "row")),
    Entry("UA - Column", ("column", "column", "column")),
    Entry("UA - Block", ("block", "block", "block")),
    Entry("UA - Inner Prod.", ("row", "column", "column")),
    Entry("UA - Outer Prod.", ("column", "row", "row")),
    Entry("UA - Traditional", ("traditional", "traditional", "traditional")),
    Entry(
        "DT - Row", None
    ),  # records of the algorithm of this name, or measured ones of dtensor by rows
    Entry("DT - Column", None),
    Entry("COSMA-NCCL", None),
)


@dataclass(frozen=True)
class Point:
    """The best case of a line at one batch size.

    ``value`` is in percent; ``factor`` is the replication factor as printed, empty for a peer.
    """

    batch: int
    value: float
    factor: str
    record: Record


@dataclass(frozen=True)
class Line:
    """One line of the figure, points by rising batch size; without points ``why`` says why not.

    ``quantity`` is the field of the records that is drawn, in percent; ``stationary`` the matrix
    that does not move, ``"B"`` or ``"C"``, empty for a peer; ``absent`` the batch sizes at which
    other lines have a point and this one has none.
    """

    name: str
    quantity: str
    stationary: str = ""
    points: tuple[Point, ...] = ()
    absent: tuple[int, ...] = ()
    why: str = ""

    @property
    def legend(self) -> str:
        """The text of the legend, e.g. ``UA - Row (S-B)``."""
        return f"{self.name} (S-{self.stationary})" if self.stationary else self.name


class SelectionError(ValueError):
    """Records that do not belong in one figure: what, got, and the way out."""


def layer_of(record: Record) -> str | None:
    """Tell the layer of a case by its sizes: ``n = 4k`` is mlp1, ``k = 4n`` is mlp2.

    Examples
    --------
    >>> def case(n, k):
    ...     return Record(mode="simulated", status="ok", best_s=1.0, m=64, n=n, k=k)
    >>> layer_of(case(49152, 12288)), layer_of(case(12288, 49152)), layer_of(case(64, 64))
    ('mlp1', 'mlp2', None)
    """
    if not (record.n and record.k):
        return None
    return "mlp1" if record.n == 4 * record.k else "mlp2" if record.k == 4 * record.n else None


def peer_name(record: Record) -> str | None:
    """Give the legend's name of a peer's case: its algorithm, or for a measured DTensor its
    sharding.

    Examples
    --------
    >>> def case(**values):
    ...     return Record(mode="measured", status="ok", best_s=1.0, **values)
    >>> peer_name(case(algorithm="COSMA-NCCL")), peer_name(case(algorithm="dtensor", preset="row"))
    ('COSMA-NCCL', 'DT - Row')
    >>> (
    ...     peer_name(case(algorithm="dtensor", a="column", b="column", c="column")),
    ...     peer_name(case(algorithm="summa")),
    ... )
    ('DT - Column', None)
    """
    name = record.algorithm
    if name == "dtensor":
        forms = {record.preset} if record.preset else {record.a, record.b, record.c}
        name = {frozenset({"row"}): "DT - Row", frozenset({"column"}): "DT - Column"}.get(
            frozenset(forms)
        )
    return name if any(entry.name == name and entry.texts is None for entry in LEGEND) else None


def split_factor(text: str) -> tuple[str, int]:
    """Split the text of a partition into its form and its replication factor.

    Examples
    --------
    >>> split_factor("block:2x3/c2"), split_factor("row")
    (('block:2x3', 2), ('row', 1))
    """
    form, _, factor = text.partition("/c")
    return form, int(factor) if re.fullmatch("[0-9]+", factor) else 1


def factors(record: Record) -> tuple[int, int, int]:
    """Give the replication factors of A, B and C."""
    return tuple(split_factor(text or "")[1] for text in (record.a, record.b, record.c))


def factor_text(record: Record) -> str:
    """Print a replication factor; for a mixed one the A, B factor, a dash, the C factor.

    Examples
    --------
    >>> case = Record(mode="simulated", status="ok", best_s=1.0, a="row/c4", b="row/c4", c="row/c2")
    >>> factor_text(case)
    '4-2'
    """
    a, b, c = factors(record)
    return f"{a}" if a == b == c else f"{a}-{c}"


def moved_bytes(record: Record) -> int | None:
    """Sum the bytes of gets, in place ones included, puts, accumulates and the replica reduction.

    ``None`` if the record counts none of them: unknown is not zero.
    """
    counts = (
        record.get_bytes,
        record.direct_bytes,
        record.put_bytes,
        record.accumulate_bytes,
        record.replica_bytes,
    )
    return None if all(count is None for count in counts) else sum(count or 0 for count in counts)


def select(records: Iterable[Record], layer: str) -> list[Line]:
    """Choose the lines of one layer's figure: one per row of :data:`LEGEND`, in that order.

    What is drawn is ``percent_of_peak`` if every case that may be drawn has it, else
    ``percent_of_roof``; the best case is the highest in what is drawn. Ties go to Stationary C and
    to the smallest replication factors.

    Parameters
    ----------
    records : iterable of Record
        May hold other layers, other algorithms and cases that are not ok.
    layer : str
        ``"mlp1"`` or ``"mlp2"``.

    Raises
    ------
    SelectionError
        If the layer is unknown, or the universal cases come from more than one machine, number of
        ranks, dtype or problem, which one figure cannot compare.

    Examples
    --------
    >>> def case(m, best_s, c="column", stationary="C", moved=8):
    ...     return Record(
    ...         mode="simulated",
    ...         status="ok",
    ...         algorithm="universal",
    ...         a=c,
    ...         b=c,
    ...         c=c,
    ...         m=m,
    ...         n=256,
    ...         k=64,
    ...         stationary=stationary,
    ...         best_s=best_s,
    ...         percent_of_peak=50 / best_s,
    ...         get_bytes=moved,
    ...     )
    >>> lines = select(
    ...     [case(32, 2.0), case(32, 1.0, "column/c2"), case(64, 1.0), case(64, 0.5, moved=0)],
    ...     "mlp1",
    ... )
    >>> [
    ...     (line.legend, [(p.batch, p.value, p.factor) for p in line.points])
    ...     for line in lines
    ...     if line.points
    ... ]
    [('UA - Column (S-C)', [(32, 50.0, '2'), (64, 50.0, '1')])]
    >>> lines[0].legend, lines[0].why
    ('UA - Row', 'no record')
    """
    if layer not in LAYERS:
        raise SelectionError(
            f"layer must be one of {', '.join(LAYERS)}; got {layer!r}. Choose one."
        )
    records = [record for record in records if layer_of(record) == layer]
    chosen = []
    for entry in LEGEND:
        left = [record for record in records if _belongs(record, entry)]
        why = "" if left else "no record"
        for reason, keeps in _stages(entry, layer):
            kept = [record for record in left if keeps(record)]
            if left and not kept:
                why = reason + _statuses(left)
            left = kept
        chosen.append((entry, left, why))
    own = [record for entry, left, _ in chosen if entry.texts for record in left]
    _check_comparable(own, ("mode", "machine", "ranks", "nodes", "threads", "dtype", "k"))
    if own:
        chosen = [_same_problem(entry, left, why, own[0]) for entry, left, why in chosen]
    peers = [record for entry, left, _ in chosen if not entry.texts for record in left]
    _check_comparable(peers, ("mode", "machine", "ranks", "dtype", "k"))

    deciding = own or peers  # peers alone can still make a figure
    peak = all(record.percent_of_peak is not None for record in deciding)
    quantity = "percent_of_peak" if peak else "percent_of_roof"
    lines = [_line(entry, left, why, quantity) for entry, left, why in chosen]
    batches = sorted({point.batch for line in lines for point in line.points})
    return [_with_absent(line, batches) for line in lines]


def missing(lines: Sequence[Line]) -> list[str]:
    """Say what is not drawn, a line of text for each reason: whole lines, then single batch sizes.

    Examples
    --------
    >>> missing(
    ...     [Line(name, "percent_of_peak", why="no record") for name in ("UA - Row", "DT - Row")]
    ... )
    ['not drawn: UA - Row, DT - Row (no record)']
    """
    reasons: dict[str, list[str]] = {}
    for line in lines:
        if line.why:
            reasons.setdefault(line.why, []).append(line.name)
    said = [f"not drawn: {', '.join(names)} ({why})" for why, names in reasons.items()]
    for line in lines:
        if line.points and line.absent:
            said.append(f"{line.legend} has no case at batch {', '.join(map(str, line.absent))}")
    return said


def _belongs(record: Record, entry: Entry) -> bool:
    if entry.texts is None:
        return peer_name(record) == entry.name
    texts = (record.a, record.b, record.c)
    return (
        record.algorithm == UNIVERSAL
        and tuple(split_factor(text or "")[0] for text in texts) == entry.texts
    )


def _stages(entry: Entry, layer: str) -> list[tuple[str, Callable[[Record], bool]]]:
    """Give the rules in the order they apply, each with the reason that an emptied line gets."""
    stages: list[tuple[str, Callable[[Record], bool]]] = [
        ("no case is ok", lambda record: record.status == "ok" and bool(record.m)),
        ("only throttled transports", lambda record: "throttled" not in (record.transport or "")),
    ]
    if entry.texts is None:
        return stages
    return stages + [
        (
            "only lowered programs, and the paper's figures are of direct execution",
            lambda record: record.schedule in (None, "direct"),
        ),
        ("bytes not recorded", lambda record: moved_bytes(record) is not None),
        ("moves no bytes", lambda record: moved_bytes(record) > 0),
        (
            "no Stationary B or C case",
            lambda record: (record.stationary or "").upper() in ("B", "C"),
        ),
        ("no case with an admitted replication factor", lambda record: _admitted(record, layer)),
    ]


def _admitted(record: Record, layer: str) -> bool:
    a, b, c = factors(record)
    return a == b and (b == c or layer == "mlp2")


def _statuses(records: Sequence[Record]) -> str:
    counts: dict[str, int] = {}
    for record in records:
        counts[record.status] = counts.get(record.status, 0) + 1
    counts.pop("ok", None)
    return (
        ": " + ", ".join(f"{count} {status}" for status, count in counts.items()) if counts else ""
    )


def _same_problem(
    entry: Entry, records: list[Record], why: str, own: Record
) -> tuple[Entry, list[Record], str]:
    """Leave out a peer's cases of another problem; other machines stay, and the legend says
    which."""
    if entry.texts:
        return entry, records, why
    left = [record for record in records if (record.k, record.dtype) == (own.k, own.dtype)]
    return entry, left, why if left or not records else f"no case with k = {own.k} in {own.dtype}"


def _check_comparable(records: Sequence[Record], names: Sequence[str]) -> None:
    for name in names:
        values = sorted({str(getattr(record, name)) for record in records})
        if len(values) > 1:
            raise SelectionError(
                f"one figure compares cases of one {name}; got {', '.join(values)}. Give it the "
                "records of one of them."
            )


def _line(entry: Entry, records: Sequence[Record], why: str, quantity: str) -> Line:
    drawable = [record for record in records if getattr(record, quantity) is not None]
    if not drawable:
        return Line(
            entry.name, quantity, why=why or f"no {quantity.replace('_', ' ')} in its records"
        )
    by_movement = {
        stationary: _best_by_batch(
            [r for r in drawable if (r.stationary or "").upper() == stationary], quantity
        )
        for stationary in ("C", "B")
    }
    if entry.texts is None:
        return Line(entry.name, quantity, points=_best_by_batch(drawable, quantity))
    largest = max(record.m for record in drawable)
    # the largest batch size decides even if one movement has no case there; max keeps C on a tie
    at_largest = {
        s: [p.value for p in points if p.batch == largest] for s, points in by_movement.items()
    }
    stationary = max(at_largest, key=lambda s: max(at_largest[s], default=float("-inf")))
    return Line(entry.name, quantity, stationary, by_movement[stationary])


def _best_by_batch(records: Sequence[Record], quantity: str) -> tuple[Point, ...]:
    best: dict[int, Record] = {}
    for record in sorted(records, key=lambda r: (r.m, -getattr(r, quantity), factors(r))):
        best.setdefault(record.m, record)
    return tuple(
        Point(
            m,
            getattr(record, quantity),
            factor_text(record) if record.algorithm == UNIVERSAL else "",
            record,
        )
        for m, record in best.items()
    )


def _with_absent(line: Line, batches: Sequence[int]) -> Line:
    drawn = {point.batch for point in line.points}
    absent = tuple(batch for batch in batches if batch not in drawn)
    return Line(line.name, line.quantity, line.stationary, line.points, absent, line.why)
