"""The cases to draw: those that every figure leaves out, and the lines of the MLP figures.

No case is chosen by its share of GEMM-only speed: of several cases the one with the smallest time
is the best; a noisy one is drawn, hollow, only without another.

The rules of the MLP lines are those of Figures 2 and 3 of the paper, in this order: a partitioning
that eliminates communication (:func:`communicates`) is left out; only Stationary C and Stationary B
compete; for each partitioning and data movement the best replication factor at each batch size;
then the data movement whose best is faster at the largest batch size, named (S-C) or (S-B). A line
without a case is returned empty, with its reason.

Omitted cases are returned as texts, for the figure's small print and for standard error.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from numpy import isfinite
from pandas import DataFrame, Series

from drbench.measure.noise import STABLE
from drbench.texts import shape_text

from .cases import (
    LEGEND,
    QUANTITIES,
    UNIVERSAL,
    Options,
    SelectionError,
    Shape,
    cases,
    factor_text,
    names,
    rising,
)
from .records import Records, frame, rows
from .rounds import merged

#: The order of cases by time: noisy ones last, equal ones in one order everywhere.
BY_TIME = ["hollow", "paired_s", "tie"]
#: The note on a case that is not stable.
NOT_STABLE = f"the median is not known within {100 * STABLE:.0f} %"


def select_usable(records: Records, options: Options) -> tuple[DataFrame, list[str]]:
    """Return the cases a figure may draw, over all their rounds (:func:`.rounds.merged`), by time
    and noisy ones last, and notes with the numbers of those left out. :func:`doubts` has those on
    the cases that are then drawn.

    Raises
    ------
    SelectionError
        If nothing is left.

    Examples
    --------
    >>> from drbench.measure.record import Record
    >>> ok = Record(mode="measured", status="ok", best_s=1.0, m=4, n=4, k=4, get_bytes=0)
    >>> late = Record(mode="measured", status="timeout", reason="60 s", m=4, n=4, k=4)
    >>> table, notes = select_usable([ok, late], Options())
    >>> len(table), notes
    (1, ['not drawn: 1 case not ok (1 timeout)'])
    """
    table, notes = merged(_of_shape(frame(records), options.shape)), []
    stages = {
        f"not ok ({_statuses(table, sort=False)})": table.status == "ok",
        "over a throttled transport": ~_throttled(table),
        "without sizes": (table[["m", "n", "k"]] > 0).fillna(False).all(axis=1),
    }
    if options.moving_only:
        stages["that move no bytes"] = (table.moved_bytes != 0).fillna(True)
    keep = table.status.notna()
    for what, mask in stages.items():
        lost = (keep & ~mask).sum()
        if lost:
            notes.append(f"not drawn: {cases(lost)} {what}")
        keep &= mask
    if not keep.any():
        raise SelectionError(
            f"nothing to draw in {len(table)} records{': ' * bool(notes)}{'; '.join(notes)}. "
            "Run more cases."
        )
    return table[keep].sort_values(BY_TIME), notes


def doubts(drawn: Iterable[Any], mark: str = "hollow") -> list[str]:
    """Return notes on the numbers of drawn cases with unreliable times: noisy or measured once,
    which have this mark, ranks that share cores, or not stable. The last says nothing of cases in
    interleaved rounds: these are compared by ratios, which a drift of the machine does not change.

    Examples
    --------
    >>> from drbench.measure.record import Record
    >>> known = {
    ...     "mode": "measured",
    ...     "status": "ok",
    ...     "m": 4,
    ...     "n": 4,
    ...     "k": 4,
    ...     "samples_s": [1.0, 2.0],
    ... }
    >>> cases = [Record(**known, best_s=s, noisy=s == 1, stable=s == 3) for s in (1.0, 2.0, 3.0)]
    >>> table, _ = select_usable(cases, Options())
    >>> doubts(rows(table))
    ['hollow: 1 noisy case, never ranked', '2 cases not stable: ...; intervals are compared']
    """
    drawn = list(drawn)
    noise, single, oversubscribed = (
        sum(bool(getattr(case, name)) for case in drawn)
        for name in ("hollow", "once", "oversubscribed")
    )
    alone = all(len(case.run) == 1 for case in drawn)
    unsure = alone * sum(case.stable is not None and not case.stable for case in drawn)
    counted = cases(noise, "noisy case") + f" ({single} measured once)" * bool(single)
    message = [f"{mark}: {counted}, never ranked"] if noise else []
    if unsure:
        message.append(f"{cases(unsure)} not stable: {NOT_STABLE}; intervals are compared")
    if oversubscribed:
        message.append(
            f"{cases(oversubscribed)} with more ranks than cores: compare them with each other only"
        )
    return message


def _throttled(table: DataFrame) -> Series:
    return table.transport.str.contains("throttled", na=False)


def _of_shape(table: DataFrame, shape: Shape | None) -> DataFrame:
    chosen = table if shape is None else table[table["shape"].map(shape.__eq__).astype(bool)]
    if chosen.empty and not table.empty:
        shapes = ["x".join(map(str, sizes)) for sizes in sorted(set(table["shape"]), key=rising)]
        raise SelectionError(
            f"no case of shape {'x'.join(map(str, shape))}; there are {names(shapes)}. Choose one."
        )
    return chosen


def quantity_of(table: DataFrame, asked: str = "auto") -> str:
    """The field to draw of some cases: the requested one, or for ``auto`` percent of peak if every
    case has it and none was measured with GEMM-only speed, which is measured between the repeats,
    so that drifts of the machine change both.

    Examples
    --------
    >>> from dataclasses import replace
    >>> from drbench.measure.record import Record
    >>> case = Record(mode="simulated", status="ok", best_s=1.0, percent_of_peak=50.0)
    >>> concurrent = replace(case, mode="measured", percent_of_gemm_only=60.0)
    >>> (
    ...     [quantity_of(frame([row])) for row in (case, concurrent)],
    ...     quantity_of(frame([concurrent]), "peak"),
    ... )
    (['percent_of_peak', 'percent_of_gemm_only'], 'percent_of_peak')
    """
    peak, gemm_only = QUANTITIES.values()
    timed = (table["mode"] == "measured") & table[gemm_only].notna()
    auto = peak if isfinite(table[peak]).all() and not timed.any() else gemm_only
    return QUANTITIES.get(asked, auto)


def groups(table: DataFrame, by: str | list[str]) -> list[tuple[Any, DataFrame]]:
    """The cases of each key, keys in rising order of their texts, numbers as numbers."""
    return sorted(table.groupby(by, sort=False, observed=True), key=lambda group: rising(group[0]))


def shown(table: DataFrame, most: int) -> tuple[list[tuple[tuple, DataFrame]], list[str]]:
    """The cases of each source and shape, at most some of them, and a note on the others."""
    every = groups(table, ["source", "shape"])
    left = [shape_text(*shape) for (_, shape), _ in every[most:]]
    return every[:most], not_shown(left, "shapes")


def not_shown(left: Sequence[str], what: str) -> list[str]:
    """Return a note on the panels that are not drawn."""
    if not left:
        return []
    return [f"not drawn: {len(left)} {what} more ({names(left)}); --shape chooses one"]


@dataclass(frozen=True)
class Line:
    """One line of the figure: the best case of each batch size, by rising batch size; ``why`` is
    the reason if it has none.

    A point is the row of its case with more values: ``value``, the drawn percentage, ``low`` and
    ``high``, the ends of its interval if it is drawn, and ``factor``, the replication factor as
    text, empty for a baseline. ``quantity`` is the drawn
    column; ``stationary`` the matrix that does not move, ``"B"`` or ``"C"``, empty for a baseline.
    """

    name: str
    quantity: str
    stationary: str = ""
    points: tuple = ()
    why: str = ""

    @property
    def legend(self) -> str:
        """The text of the legend, e.g. ``UA - Row (S-B)``."""
        return f"{self.name} (S-{self.stationary})" if self.stationary else self.name


def select(records: Records, layer: str, quantity: str = "auto") -> list[Line]:
    """Choose the lines of one layer's figure: one per row of :data:`LEGEND`, in that order.

    What is drawn is the field that :func:`quantity_of` names; the best case is the fastest that is
    not noisy.

    Parameters
    ----------
    records : iterable of Record
        May hold other layers, other algorithms and cases that are not ok.
    layer : str
        ``"mlp1"`` or ``"mlp2"``.
    quantity : str
        ``peak``, ``gemm_only`` or ``auto``.

    Raises
    ------
    SelectionError
        If the universal cases come from more than one machine, number of ranks, dtype or problem,
        which one figure cannot compare.

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
    ...     (line.legend, [(p.m, p.value, p.factor) for p in line.points])
    ...     for line in lines
    ...     if line.points
    ... ]
    [('UA - Column (S-C)', [(32, 50.0, '2'), (64, 50.0, '1')])]
    >>> lines[0].legend, lines[0].why, lines[-1].why
    ('UA - Row', 'no record', '')
    """
    table = frame(records)
    table = merged(table[table.layer == layer])
    own, chosen, why = table.algorithm == UNIVERSAL, table.line.notna(), {}

    def keep(reason: str, mask: Series) -> None:
        nonlocal chosen
        left = chosen & mask
        why.update(dict.fromkeys({*table.line[chosen]} - {*table.line[left]}, reason))
        chosen = left

    keep("no case is ok", (table.status == "ok") & (table.m > 0).fillna(False))
    for name in why:
        text = _statuses(table[table.line == name])
        why[name] += ": " * bool(text) + text
    keep("only throttled transports", ~_throttled(table))
    for reason, mask in _direct(table, layer):
        keep(reason, ~own | mask)
    _check_comparable(
        table[chosen & own], ("mode", "label", "machine", "ranks", "nodes", "threads", "dtype", "k")
    )
    for k, dtype in table.loc[chosen & own, ["k", "dtype"]][:1].itertuples(index=False):
        # a baseline's cases of another machine stay, and the legend names it
        same = (table.k == k) & (table["dtype"] == dtype)
        keep(f"no case with k = {k} in {dtype}", own | same)
    _check_comparable(table[chosen & ~own], ("mode", "label", "ranks", "dtype", "k"))

    # baselines alone can still make a figure
    decides = chosen & own if (chosen & own).any() else chosen
    quantity = quantity_of(table[decides], quantity)
    keep(f"no {quantity} in its records", table[quantity].notna())

    drawn = table.loc[chosen, ["line", "m", *BY_TIME]]
    drawn["matrix"] = table.stationary.where(own, "").str.upper()
    # the largest batch size decides even if one movement has no case there
    falling = [False, True, True, True]
    matrix_of = drawn.sort_values(["m", *BY_TIME], ascending=falling).groupby("line").matrix.first()
    drawn = drawn[drawn.matrix == drawn.line.map(matrix_of)].sort_values(["m", *BY_TIME])
    best = table.loc[drawn.drop_duplicates(["line", "m"]).index]
    best["value"] = best[quantity]
    # those of predictions would cover each other: the small print has them
    known = (best["mode"] == "measured") & (quantity == QUANTITIES["gemm_only"])
    for end in ("low", "high"):
        best[end] = best[f"percent_of_gemm_only_{end}"].where(known)
    best["factor"] = [factor_text(case) for case in rows(best[["a", "b", "c"]])]
    best["factor"] = best.factor.where(own, "")
    points = rows(best)
    return [
        Line(
            name,
            quantity,
            matrix_of.get(name, ""),
            tuple(point for point in points if point.line == name),
            "" if name in matrix_of else why.get(name, "no record" if LEGEND[name] else ""),
        )
        for name in LEGEND
    ]


def missing(lines: Sequence[Line]) -> list[str]:
    """Return a note on omitted lines for each reason: whole lines, then single batch sizes.

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
    message = [f"not drawn: {', '.join(names)} ({why})" for why, names in reasons.items()]
    batches = sorted({point.m for line in lines for point in line.points})
    for line in lines:
        absent = [str(m) for m in batches if all(point.m != m for point in line.points)]
        if line.points and absent:
            message.append(f"{line.legend} has no case at batch {', '.join(absent)}")
    return message


def _direct(table: DataFrame, layer: str) -> list[tuple[str, Series]]:
    """The rules for our own cases in the order they apply, each with the reason for a line without
    cases."""
    return [
        (
            "only lowered programs, and the paper's figures are of direct execution",
            table.schedule.isna() | (table.schedule == "direct"),
        ),
        ("bytes not recorded", table.moved_bytes.notna()),
        ("eliminates communication", communicates(table)),
        ("no Stationary B or C case", table.stationary.str.upper().isin(["B", "C"])),
        (
            "no case with an admitted replication factor",
            table.factors.map(partial(_admitted, layer)).astype(bool),
        ),
    ]


def communicates(table: DataFrame) -> Series:
    """Which partitionings "do not entirely eliminate communication" (§5.2.1): bytes are moved,
    other than by collectives, which are no part of direct execution; and A and B are not on all
    ranks, where only sums of C would move.

    Examples
    --------
    >>> from drbench.measure.record import Record
    >>> known = {"mode": "simulated", "status": "ok", "best_s": 1.0, "ranks": 4}
    >>> texts = ["row"] * 3, ["row/c4", "row/c4", "row"], ["row/c4", "row/c2", "row"]
    >>> rows = [Record(**known, **dict(zip("abc", abc)), replica_bytes=8) for abc in texts]
    >>> communicates(frame([*rows, Record(**known, replica_bytes=0)])).tolist()
    [True, False, True, False]
    """
    moved = table.moved_bytes > table.collective_bytes.fillna(0)
    fewest = table.factors.map(lambda factors: min(factors[:2]))
    return moved.fillna(False) & ~(fewest == table.ranks).fillna(False)


def _admitted(layer: str, factors: tuple[int, int, int]) -> bool:
    a, b, c = factors
    return a == b and (b == c or layer == "mlp2")


def _statuses(table: DataFrame, sort: bool = True) -> str:
    counts = table.status[table.status != "ok"].value_counts(sort=sort)
    return ", ".join(f"{count} {status}" for status, count in counts.items() if count)


def _check_comparable(table: DataFrame, columns: Sequence[str]) -> None:
    for name in columns:
        values = sorted(set(map(str, table[name].unique())))
        if len(values) > 1:
            raise SelectionError(
                f"one figure compares cases of one {name}; got {', '.join(values)}. Give it the "
                "records of one of them."
            )
