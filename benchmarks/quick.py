"""The bars of performance.md in three minutes: each with today's figure and the last committed one.
Not a test: it wants a quiet machine.

    python benchmarks/quick.py [--committed DIR] [--minutes 3] [--out FILE]      (make bench-quick)

A case is the command of its committed row (benchmarks/core.py, ``make bench``), run again with
fewer repeats; what is left out when the time is over is said. A bar is missed if the whole 95 %
interval of the median is beyond it, and today's run is not noisy; then the exit code is 1. Ratios
of ranks whose work is uneven are divided by what the busiest rank allows (``balance_limit``).
"""

# ruff: noqa: E402

import argparse
import csv
import json
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks import core
from launch.host.show import console, table

COMMITTED = ROOT / "results/measured/epyc-2core/performance"
#: Of a case: at least so many pairs, as an interval needs them, and seconds.
REPEATS = ("--iters", "6", "--budget", "2")
#: (section, case, columns that choose among its rows), those first that say most.
CASES: tuple[tuple[str, str, dict], ...] = (
    ("one_node", "row, S-C", {"table": "cube"}),
    ("one_node", "misaligned, S-C", {"table": "cube"}),
    ("one_node", "column, column, row, S-B", {"table": "cube"}),
    ("one_node", "misaligned, S-B", {"table": "cube"}),
    ("one_node", "MLP-1 row, S-B", {"table": "mlp"}),
    ("one_node", "MLP-1 outer, S-B", {"table": "mlp"}),
    ("one_node", "MLP-2 block, S-C", {"table": "mlp"}),
    ("layers", "MLP-1 column, S-C", {"m": "256"}),
    ("layers", "MLP-2 outer, S-B", {"m": "256"}),
    ("remote", "row, S-C", {"progress": "poll"}),
    ("remote", "column, column, row, S-B", {"progress": "poll"}),
    ("one_node", "row, S-C", {"table": "rma"}),
    ("one_node", "misaligned, S-B", {"table": "rma"}),
    ("one_node", "column, S-C", {"table": "cube"}),
    ("one_node", "outer, S-B", {"table": "cube"}),
)
#: Sections whose rows are times a step or a plan, which are to be below their bar.
TIMES = ("executor", "planning")


class Bar(NamedTuple):
    """A bar, today's figure with its interval, and the committed one.

    Attributes
    ----------
    name : str
    bar : float or None
        A ratio to reach, or with ``time`` seconds not to exceed.
    today, low, high : float or None
        None if it did not run, of the interval if there is none.
    committed : float or None
    noisy : bool
    reason : str
        Why there is no figure of today.
    """

    name: str
    bar: float | None
    today: float | None = None
    low: float | None = None
    high: float | None = None
    committed: float | None = None
    time: bool = False
    noisy: bool = False
    reason: str = ""

    @property
    def verdict(self) -> str:
        """``met``, ``missed``, or ``not told apart``: missed by less than the noise.

        Examples
        --------
        >>> Bar("a", 0.95, 0.93, 0.91, 0.96).verdict, Bar("a", 0.95, 0.93, 0.92, 0.94).verdict
        ('not told apart', 'missed')
        >>> Bar("a", 3e-6, 4e-6, time=True).verdict, Bar("a", 3e-6, 2e-6, time=True).verdict
        ('missed', 'met')
        """
        if self.today is None or self.bar is None:
            return self.reason or "no bar"
        if self.today <= self.bar if self.time else self.today >= self.bar:
            return "met"
        best = (self.low if self.time else self.high) or self.today
        beyond = best > self.bar if self.time else best < self.bar
        return "missed" if beyond and not self.noisy else "not told apart"


def committed_rows(folder: Path, section: str) -> list[dict]:
    """The committed rows of a section, cells as text; none if it has not been measured."""
    path = folder / f"{section}.csv"
    if not path.exists():
        return []
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _number(text: object) -> float | None:
    return float(text) if text not in ("", None) else None  # type: ignore[arg-type]


def again(command: str) -> dict:
    """Run the command of a committed row with fewer repeats; its record.

    Examples
    --------
    >>> split("MPIR_CVAR_NOLOCAL=1 drbench run -p 2 -m 8 --iters 5")
    ({'MPIR_CVAR_NOLOCAL': '1'}, 2, ['-m', '8', '--iters', '5'])
    """
    env, ranks, words = split(command)
    return core.run(ranks, *words, *REPEATS, env=env)


def split(command: str) -> tuple[dict, int, list[str]]:
    """The environment, ranks and further words of a recorded ``drbench run -p RANKS ...``."""
    words = shlex.split(command)
    told = list(takewhile(lambda word: "=" in word, words))
    rest = words[len(told) :]
    if rest[:3] != ["drbench", "run", "-p"]:
        raise ValueError(f"{command!r} is no drbench run -p RANKS")
    return dict(word.split("=", 1) for word in told), int(rest[3]), rest[4:]


def ratio_bar(name: str, row: dict, record: dict) -> Bar:
    """A bar of a ratio to the roof, of the committed row and of today's record.

    Examples
    --------
    >>> row = {"bar": "0.95", "percent_of_roof": "97.0"}
    >>> record = {"status": "ok", "percent_of_roof": 80.0, "balance_limit": 0.8}
    >>> ratio_bar("uneven", row, record)[1:6]
    (0.95, 1.0, None, None, 0.97)
    """
    bar, before = _number(row["bar"]), _number(row.get("percent_of_roof"))
    if before is not None:
        before /= 100 * (_number(row.get("balance_limit")) or 1.0)
    if record.get("status") != "ok":
        return Bar(name, bar, committed=before, reason=str(record.get("reason")))
    share = 100 * (record.get("balance_limit") or 1.0)
    columns = ("percent_of_roof", "percent_of_roof_low", "percent_of_roof_high")
    today, low, high = (
        None if record.get(column) is None else record[column] / share for column in columns
    )
    return Bar(name, bar, today, low, high, before, noisy=bool(record.get("noisy")))


def ratios(
    folder: Path,
    left_s: Callable[[], float],
    rerun: Callable[[str], dict] = again,
    cases: Iterable[tuple[str, str, dict]] = CASES,
) -> Iterator[Bar]:
    """The bars of ratios, as long as time is left; what has no committed row is said."""
    for section, case, fields in cases:
        name = ", ".join([section.replace("_", " "), *map(str, fields.values()), case])
        rows = committed_rows(folder, section)
        found = [
            row
            for row in rows
            if row["case"] == case and all(row.get(key) == value for key, value in fields.items())
        ]
        if not found:
            yield Bar(name, None, reason="no committed row: make bench")
        elif left_s() <= 0:
            before = _number(found[0]["percent_of_roof"])
            committed = None if before is None else before / 100
            yield Bar(name, _number(found[0]["bar"]), committed=committed, reason="no time left")
        else:
            yield ratio_bar(name, found[0], rerun(found[0]["command"]))


def times(folder: Path, sections: dict[str, Callable] = core.SECTIONS) -> Iterator[Bar]:
    """The bars of times: the executor's own cost of a step, and planning."""
    for section in TIMES:
        before = {row["case"]: _number(row["median_s"]) for row in committed_rows(folder, section)}
        for row in sections[section](4096, ""):
            low, high = row.get("least_s"), row.get("most_s")
            yield Bar(
                f"{section}, {row['case']}",
                row["bar_s"],
                row["median_s"],
                low,
                high,
                before.get(row["case"]),
                time=True,
            )


def cells(bar: Bar) -> tuple[str, ...]:
    """A line of the table.

    Examples
    --------
    >>> cells(Bar("a", 0.95, 0.972, 0.96, 0.98, 0.95))
    ('a', '0.95', '0.97 (0.96-0.98)', '0.95', '+2 %', 'met')
    >>> cells(Bar("b", 3e-6, 2.5e-6, time=True))
    ('b', '3 us', '2.5 us', '', '', 'met')
    """
    say = _time if bar.time else lambda value: f"{value:.2f}"
    told = lambda value: "" if value is None else say(value)
    today = told(bar.today)
    if bar.low is not None and bar.high is not None:
        today += f" ({told(bar.low)}-{told(bar.high)})"
    change = ""
    if bar.today and bar.committed:
        change = f"{100 * (bar.today / bar.committed - 1):+.0f} %"
    return bar.name, told(bar.bar), today, told(bar.committed), change, bar.verdict


def _time(seconds: float) -> str:
    return f"{1e6 * seconds:.3g} us" if seconds < 1e-3 else f"{1e3 * seconds:.3g} ms"


def shown(bars: list[Bar]):
    """All bars as a table."""
    return table("case|>bar|>today|>committed|>change|verdict", map(cells, bars))


def exit_code(bars: Iterable[Bar]) -> int:
    """1 if a bar is missed beyond noise.

    Examples
    --------
    >>> exit_code([Bar("a", 0.9, 0.95)]), exit_code([Bar("a", 0.9, 0.8, 0.79, 0.81)])
    (0, 1)
    """
    return int(any(bar.verdict == "missed" for bar in bars))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--committed", type=Path, default=COMMITTED, help="folder of its CSV files")
    parser.add_argument("--minutes", type=float, default=3.0, help="begin no case after these")
    parser.add_argument("--out", type=Path, help="write the bars to this file as JSON")
    chosen = parser.parse_args(arguments)
    out, end = console(), time.monotonic() + 60 * chosen.minutes
    bars = []
    for found in (
        times(chosen.committed),
        ratios(chosen.committed, lambda: end - time.monotonic()),
    ):
        for bar in found:
            bars.append(bar)
            out.print("  ".join(filter(None, cells(bar))), markup=False, highlight=False)
    out.print(shown(bars))
    if chosen.out:
        told = [bar._asdict() | {"verdict": bar.verdict} for bar in bars]
        chosen.out.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    return exit_code(bars)


if __name__ == "__main__":
    sys.exit(main())
