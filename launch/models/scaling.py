"""``drbench scaling``: one problem on more and more ranks, or one that grows with them, measured in
rounds so that a drifting machine hurts all alike, or predicted on a machine model."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from statistics import median

from rich.console import Console

from drbench.errors import UnsupportedError, UsageError
from drbench.measure.noise import doubts, median_interval
from drbench.measure.record import Record, by_balance
from drbench.model.machine import Machine
from launch.cases.case import Case, bound
from launch.cases.launchers import Launcher
from launch.cases.peaks import Peaks
from launch.host.kernels import without_pins
from launch.host.show import predicted_text, table
from launch.host.units import between, seconds
from launch.peers import PEERS
from launch.sweeps.folder import opened
from launch.sweeps.rounds import pooled, turn_name, turn_of, turned
from launch.sweeps.store import GOOD, case_id, write_csv
from launch.sweeps.supervisor import Settings, Watch, run_cases
from partitions import LayoutError

from .predict import predict, with_interval

#: The rows that table and figure are made of, one for each number of ranks, in the folder.
POINTS = "scaling.csv"


def doubling(most: int) -> tuple[int, ...]:
    """1, 2, 4, … up to a number of ranks, which is the last.

    Examples
    --------
    >>> doubling(6), doubling(1)
    ((1, 2, 4, 6), (1,))
    """
    return (*(1 << step for step in range((most - 1).bit_length())), most)


def grown(case: Case, ranks: int, grow: str | None) -> Case:
    """The problem on so many ranks: the same (strong scaling, ``grow`` None), or with the extent
    ``grow`` times as long as on one rank (weak).

    Examples
    --------
    >>> grown(Case(64, 32, 16), 4, "m").m, grown(Case(64, 32, 16), 4, None).m
    (256, 64)
    """
    return case if grow is None else replace(case, **{grow: ranks * getattr(case, grow)})


def fitting(
    base: Callable[[int], Case], counts: Iterable[int], grow: str | None
) -> tuple[dict[int, Case], list[str]]:
    """The cases that can be run, by number of ranks, and why the others cannot.

    Parameters
    ----------
    base : callable
        ``base(ranks)``: the case there, which has not grown yet.
    counts : iterable of int
        Numbers of ranks.
    grow : str or None
        The extent that grows with the ranks; None for strong scaling.

    Raises
    ------
    UsageError, UnsupportedError, LayoutError
        If fewer than two can: nothing can be said of scaling then.
    """
    kept, refused = {}, {}
    for ranks in counts:
        try:
            case = grown(base(ranks), ranks, grow)
            taker, problem, options = bound(case, ranks)
            if case.algorithm not in PEERS:
                taker.resolve(problem, **options)
            kept[ranks] = case
        except (UsageError, UnsupportedError, LayoutError) as error:
            refused.setdefault(str(error), (error, []))[1].append(ranks)
    lines = [
        f"not on {', '.join(map(str, where))} rank{'s' * (where != [1])}: {error}"
        for error, where in refused.values()
    ]
    if len(kept) < 2:
        if not kept and len(refused) == 1:  # it is nothing of how many there are
            raise next(iter(refused.values()))[0]
        raise UnsupportedError(
            f"fewer than two of these numbers of ranks take this case: {' '.join(lines)} Use a "
            "partitioning that fits several, such as --preset column."
        )
    return kept, lines


def rounds_of(cases: dict[int, Case], rounds: int) -> list[list[tuple[str, int, Case]]]:
    """(name, ranks, case) by round: each visits all numbers of ranks, in changing order.

    Examples
    --------
    >>> rounds = rounds_of({1: Case(8, 8, 8), 2: Case(8, 8, 8)}, 2)
    >>> [[ranks for _, ranks, _ in each] for each in rounds]
    [[1, 2], [2, 1]]
    """
    return [
        [
            (turn_name(turn, case_id(case, ranks)), ranks, case)
            for ranks, case in turned(list(cases.items()), turn)
        ]
        for turn in range(rounds)
    ]


def measure(
    cases: dict[int, Case],
    *,
    folder: Path,
    say: Console,
    rounds: int,
    fresh: bool,
    launcher: Launcher,
    timeout_s: float | None,
    peaks: Peaks,
) -> dict[int, list[Record]]:
    """Run what has no row in the folder yet; the records of each number of ranks, by round."""
    turns = rounds_of(cases, rounds)
    wanted = [name for turn in turns for name, _, _ in turn]
    environ = without_pins()

    def on_record(ranks: int, record: Record) -> None:
        told = record.reason if record.status != "ok" else seconds(record.time_s)
        turn = turn_of(record.case) + 1
        say.print(f"{turn} of {rounds}, {ranks} rank{'s' * (ranks > 1)}: {told}")

    most = max(cases)
    with opened(folder, "scaling", most, wanted, say, fresh=fresh, keep=True) as store:
        before = len(store.done.keys() & set(wanted))
        if before:
            say.print(f"{before} of {len(wanted)} runs are there already")
        for name, ranks, case in chain.from_iterable(turns):
            settings = Settings(ranks, launcher, timeout_s, environ=environ, peaks=peaks)
            run_cases([(name, case)], store, settings, Watch(say, partial(on_record, ranks)))
        return {
            ranks: [store.done[name] for turn in turns for name, each, _ in turn if each == ranks]
            for ranks in cases
        }


@dataclass(frozen=True)
class Point:
    """One number of ranks.

    Attributes
    ----------
    record : Record
        Of all rounds.
    speedup : tuple of three float, or None
        Middle, low and high: how many times the rate of the fewest ranks; None if it has no time.
    efficiency : tuple of three float, or None
        In percent: of the rate a rank that the fewest ranks have.
    predicted : tuple of three float, or None
        Seconds: middle, low and high; the ends None where nothing is known of how sure it is.
    """

    record: Record
    speedup: tuple | None = None
    efficiency: tuple | None = None
    predicted: tuple | None = None


def points(runs: dict[int, list[Record]], predicted: dict[int, tuple] | None = None) -> list[Point]:
    """The points of some runs by number of ranks, each round compared with the same round of the
    fewest ranks that are ok.

    Examples
    --------
    >>> make = lambda ranks, seconds: Record(
    ...     mode="simulated", status="ok", best_s=seconds, m=8, n=8, k=8, ranks=ranks
    ... )
    >>> found = points({1: [make(1, 8.0), make(1, 9.0)], 4: [make(4, 4.0), make(4, 3.0)]})
    >>> found[1].speedup, found[1].efficiency
    ((2.5, 2.0, 3.0), (62.5, 50.0, 75.0))
    """
    out, base = [], None
    for ranks, records in sorted(runs.items()):
        time = (predicted or {}).get(ranks)
        if any(record.status != "ok" for record in records):
            out.append(Point(pooled(records), predicted=time))
            continue
        rates = [record.m * record.n * record.k / record.time_s for record in records]
        base = base or (ranks, rates)
        ratios = [rate / first for rate, first in zip(rates, base[1])]
        low, high = median_interval(ratios) or (min(ratios), max(ratios))
        speedup = median(ratios), low, high
        share = 100 * base[0] / ranks
        efficiency = tuple(share * each for each in speedup)
        out.append(Point(pooled(records), speedup, efficiency, time))
    return out


def simulated(cases: dict[int, Case], machine: Machine) -> dict[int, list[Record]]:
    """Each case on a machine model, as far as that has the devices; what is refused is a record
    with its reason."""
    most = machine.devices or max(cases)
    return {
        ranks: [with_interval(predict(case, machine, ranks), case, machine, ranks)]
        for ranks, case in cases.items()
        if ranks <= most
    }


def show(found: list[Point], say: Console) -> None:
    """Print the table of some points."""
    measured = found[0].record.mode == "measured"
    peak = any(point.record.percent_of_peak is not None for point in found)
    predicted = any(point.predicted is not None for point in found)
    rows = [_row(point, measured, peak, predicted) for point in found]
    columns = ">ranks|>m x n x k|>time|>speed-up|>efficiency|>% of roof"
    columns += ("|>% of peak" if peak else "") + ("|>predicted" if predicted else "")
    say.print(table(columns + ("|~in doubt" if measured else ""), rows))
    first = next((point.record.ranks for point in found if point.speedup), None)
    if first is not None:
        rounds = "; in brackets: over the rounds" if measured else ""
        say.print(f"Speed-up and efficiency are against {first} rank{'s' * (first > 1)}{rounds}.")
    for point in found:
        if point.speedup is None:
            say.print(f"{point.record.ranks} ranks: {point.record.status}: {point.record.reason}")


def _row(point: Point, measured: bool, peak: bool, predicted: bool) -> list[str]:
    record = point.record
    cells = [str(record.ranks), f"{record.m} x {record.n} x {record.k}"]
    if point.speedup is None:
        cells += [record.status, "-", "-", "-", *(["-"] if peak else [])]
    else:
        roof = record.percent_of_roof
        cells += [
            seconds(record.time_s) if measured else predicted_text(record),
            _spread(point.speedup, "", measured),
            _spread(point.efficiency, " %", measured),
            "-" if roof is None else f"{roof:.0f}{by_balance(record)}",
        ]
        if peak:
            share = record.percent_of_peak
            cells.append("-" if share is None else f"{share:.0f}")
    if predicted:
        cells.append("-" if point.predicted is None else between(*point.predicted))
    return cells + ([", ".join(doubts(record))] if measured else [])


def _predicted(record: Record) -> tuple | None:
    ok = record.status == "ok"
    return (record.best_s, record.median_low_s, record.median_high_s) if ok else None


def _spread(values: tuple, unit: str, measured: bool) -> str:
    middle, low, high = (f"{value:.3g}" for value in values)
    return f"{middle}{unit} ({low}-{high})" if measured and low != high else f"{middle}{unit}"


def worst(found: Iterable[Point]) -> int:
    """The exit code: that of the worst row."""
    from drbench.errors import EXIT_CODES

    bad = {point.record.status for point in found}.difference(GOOD)
    return max((EXIT_CODES[status] for status in bad), default=0)


def run(
    cases: dict[int, Case],
    folder: Path,
    say: Console,
    *,
    machine: Machine | None,
    simulate: bool,
    **how,
) -> list[Point]:
    """Measure, or simulate, the case of each number of ranks, print the table, and keep its rows in
    the folder.

    Parameters
    ----------
    how
        Further arguments of :func:`measure`.
    """
    if simulate:
        found = points(simulated(cases, machine))
    else:
        runs = measure(cases, folder=folder, say=say, **how)
        told = simulated(cases, machine) if machine else {}
        found = points(runs, {ranks: _predicted(each) for ranks, (each,) in told.items()})
    show(found, say)
    write_csv(folder / POINTS, [point.record for point in found])
    return found
