"""Which cases are drawn: what every figure leaves out, and the lines of the MLP figures.

The rules of the MLP lines are those of Figures 2 and 3 of the paper, in this order: a case that
moves no bytes at all is left out; only Stationary C and Stationary B compete; for each partitioning
and data movement the best replication factor at each batch size; then the data movement whose best
is higher at the largest batch size, named (S-C) or (S-B). A line without a case is returned empty,
with its reason.

Whatever is left out is returned as a text, for the figure's small print and for standard error.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from numpy import isfinite
from pandas import DataFrame, Series

from drbench.measure.record import OPTION_COLUMNS

from .cases import (
    LEGEND,
    QUANTITIES,
    Entry,
    Options,
    SelectionError,
    Shape,
    cases,
    check_layer,
    factor_text,
    names,
    rising,
    shape_text,
)
from .records import Records, frame, rows

#: What tells a case from another of its shape and source, for a stable order.
_DEFINITION = (
    "algorithm",
    *OPTION_COLUMNS,
    "a",
    "b",
    "c",
    "preset",
    "backend",
    "compute",
    "collectives",
    "max_gemms",
    "max_accumulates",
    "accumulate_blocks",
    "transport",
    "get",
    "progress",
    "prefetch",
    "median_s",
    "timestamp",
)


def usable(records: Records, options: Options) -> tuple[DataFrame, list[str]]:
    """Keep the cases a figure may draw, fastest first; say how many of which kind are left out.

    Ties are in the order of what defines the cases, so that the order of the files is nothing.

    Raises
    ------
    SelectionError
        If nothing is left.

    Examples
    --------
    >>> from drbench.measure.record import Record
    >>> ok = Record(mode="measured", status="ok", best_s=1.0, m=4, n=4, k=4, get_bytes=0)
    >>> late = Record(mode="measured", status="timeout", reason="60 s", m=4, n=4, k=4)
    >>> kept, notes = usable([ok, late], Options())
    >>> len(kept), notes
    (1, ['not drawn: 1 case not ok (1 timeout)'])
    """
    left, notes = _of_shape(frame(records), options.shape), []
    count = len(left)
    ok = left[left.status == "ok"]
    if len(ok) < count:
        ended = left.status[left.status != "ok"].value_counts(sort=False)
        told = ", ".join(f"{number} {status}" for status, number in ended.items() if number)
        notes.append(f"not drawn: {cases(count - len(ok))} not ok ({told})")
    left = ok
    stages = [
        ("over a throttled transport", ~_throttled(left)),
        ("without sizes", (left[["m", "n", "k"]] > 0).fillna(False).all(axis=1)),
    ]
    if options.moving_only:
        stages.append(("that move no bytes", (left.moved_bytes != 0).fillna(True)))
    for what, keeps in stages:
        kept = left[keeps[left.index]]
        if len(kept) < len(left):
            notes.append(f"not drawn: {cases(len(left) - len(kept))} {what}")
        left = kept
    if left.empty:
        raise SelectionError(
            f"nothing to draw in {count} records{': ' * bool(notes)}{'; '.join(notes)}. "
            "Run more cases."
        )
    return left.sort_values(["best_s", *_DEFINITION], na_position="first"), notes


def _throttled(found: DataFrame) -> Series:
    return found.transport.str.contains("throttled", na=False)


def _of_shape(found: DataFrame, shape: Shape | None) -> DataFrame:
    chosen = found if shape is None else found[found["shape"].map(shape.__eq__).astype(bool)]
    if chosen.empty and not found.empty:
        shapes = ["x".join(map(str, each)) for each in sorted(set(found["shape"]), key=rising)]
        raise SelectionError(
            f"no case of shape {'x'.join(map(str, shape))}; there are {names(shapes)}. Choose one."
        )
    return chosen


def with_quantity(found: DataFrame, options: Options) -> tuple[DataFrame, str, list[str]]:
    """Choose what is drawn, and keep the cases that have it: (cases, field, notes).

    Raises
    ------
    SelectionError
        If no case has it.
    """
    peak, roof = QUANTITIES.values()
    field = QUANTITIES.get(options.quantity) or (peak if isfinite(found[peak]).all() else roof)
    kept, words = found[isfinite(found[field])], field.replace("_", " ")
    if kept.empty:
        raise SelectionError(
            f"no case of {len(found)} has a {words}. Run with --roof, or choose another --quantity."
        )
    lost = len(found) - len(kept)
    return kept, field, [f"not drawn: {cases(lost)} without {words}"] if lost else []


def groups(found: DataFrame, by: str | list[str]) -> list[tuple[Any, DataFrame]]:
    """The cases of each key, keys in rising order of their texts, numbers as numbers."""
    return sorted(found.groupby(by, sort=False, observed=True), key=lambda each: rising(each[0]))


def shown(found: DataFrame, most: int) -> tuple[list[tuple[tuple, DataFrame]], list[str]]:
    """The cases of each source and shape, at most some of them, and what is said of the others."""
    every = groups(found, ["source", "shape"])
    return every[:most], not_shown([shape_text(shape) for (_, shape), _ in every[most:]], "shapes")


def not_shown(left: Sequence[str], what: str) -> list[str]:
    """Say which panels have no room."""
    if not left:
        return []
    return [f"not drawn: {len(left)} {what} more ({names(left)}); --shape chooses one"]


@dataclass(frozen=True)
class Point:
    """The best case of a line at one batch size.

    ``record`` is its row; ``value`` is in percent; ``factor`` is the replication factor as
    printed, empty for a peer.
    """

    batch: int
    value: float
    factor: str
    record: Any


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


def select(records: Records, layer: str) -> list[Line]:
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
    >>> from drbench.measure.record import Record
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
    check_layer(layer)
    found = frame(records)
    found = found[found.layer == layer]
    chosen = []
    for entry in LEGEND:
        left = found[found.line == entry.name]
        why = "" if len(left) else "no record"
        for reason, keeps in _stages(entry, layer):
            kept = left[keeps(left)]
            if len(left) and kept.empty:
                why = reason + _statuses(left)
            left = kept
        chosen.append((entry, left, why))
    own = [left for entry, left, _ in chosen if entry.texts and len(left)]
    _check_comparable(own, ("mode", "machine", "ranks", "nodes", "threads", "dtype", "k"))
    if own:
        problem = own[0].iloc[0]
        chosen = [_same_problem(*each, problem) for each in chosen]
    peers = [left for entry, left, _ in chosen if not entry.texts and len(left)]
    _check_comparable(peers, ("mode", "machine", "ranks", "dtype", "k"))

    # peers alone can still make a figure
    peak = all(left.percent_of_peak.notna().all() for left in own or peers)
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


def _stages(entry: Entry, layer: str) -> list[tuple[str, Callable[[DataFrame], Series]]]:
    """Give the rules in the order they apply, each with the reason that an emptied line gets."""
    stages = [
        ("no case is ok", lambda found: (found.status == "ok") & (found.m > 0).fillna(False)),
        ("only throttled transports", lambda found: ~_throttled(found)),
    ]
    if entry.texts is None:
        return stages
    return stages + [
        (
            "only lowered programs, and the paper's figures are of direct execution",
            lambda found: found.schedule.isna() | (found.schedule == "direct"),
        ),
        ("bytes not recorded", lambda found: found.moved_bytes.notna()),
        # collectives are no part of direct execution
        ("moves no bytes", lambda found: found.moved_bytes > found.collective_bytes.fillna(0)),
        (
            "no Stationary B or C case",
            lambda found: found.stationary.str.upper().isin(["B", "C"]),
        ),
        (
            "no case with an admitted replication factor",
            lambda found: found.factors.map(partial(_admitted, layer)).astype(bool),
        ),
    ]


def _admitted(layer: str, factors: tuple[int, int, int]) -> bool:
    a, b, c = factors
    return a == b and (b == c or layer == "mlp2")


def _statuses(found: DataFrame) -> str:
    counts = found.status[found.status != "ok"].astype(str).value_counts()
    return ": " * bool(len(counts)) + ", ".join(
        f"{count} {status}" for status, count in counts.items()
    )


def _same_problem(
    entry: Entry, found: DataFrame, why: str, own: Series
) -> tuple[Entry, DataFrame, str]:
    """Leave out a peer's cases of another problem; other machines stay, and the legend says
    which."""
    if entry.texts or found.empty:
        return entry, found, why
    left = found[(found.k == own.k) & (found.dtype == own["dtype"])]
    return entry, left, why if len(left) else f"no case with k = {own.k} in {own['dtype']}"


def _check_comparable(tables: Sequence[DataFrame], columns: Sequence[str]) -> None:
    for name in columns:
        values = sorted({str(value) for found in tables for value in found[name].unique()})
        if len(values) > 1:
            raise SelectionError(
                f"one figure compares cases of one {name}; got {', '.join(values)}. Give it the "
                "records of one of them."
            )


def _line(entry: Entry, found: DataFrame, why: str, quantity: str) -> Line:
    drawable = found[found[quantity].notna()].sort_values(
        ["m", quantity, "factors"], ascending=[True, False, True]
    )
    if drawable.empty:
        return Line(
            entry.name, quantity, why=why or f"no {quantity.replace('_', ' ')} in its records"
        )
    stationary = ""
    if entry.texts:
        # the largest batch size decides even if one movement has no case there; C wins a tie
        last = drawable[drawable.m == drawable.m.max()]
        highest = last.groupby(last.stationary.str.upper())[quantity].max()
        stationary = (
            "B" if highest.get("B", float("-inf")) > highest.get("C", float("-inf")) else "C"
        )
        drawable = drawable[drawable.stationary.str.upper() == stationary]
    points = tuple(
        Point(case.m, getattr(case, quantity), factor_text(case) if entry.texts else "", case)
        for case in rows(drawable.drop_duplicates("m"))
    )
    return Line(entry.name, quantity, stationary, points)


def _with_absent(line: Line, batches: Sequence[int]) -> Line:
    drawn = {point.batch for point in line.points}
    absent = tuple(batch for batch in batches if batch not in drawn)
    return replace(line, absent=absent)
