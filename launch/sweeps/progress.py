"""How a sweep is going: a line that changes on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from collections import Counter

from rich.console import Console
from rich.live import Live
from rich.text import Text

from drbench.measure.noise import doubts
from drbench.measure.record import Record
from launch.cases.case import Case
from launch.host.units import plural

from .store import GOOD

#: Without a terminal: a line after so many seconds, and one for each case that is not fine.
_LINE_S = 10.0
_REFRESH_S = 0.25
#: Cases that are not fine and get a line of their own; the rest are in the records.
_MOST_LINES = 20


def progress_console(stderr: bool = False) -> Console:
    """Standard output (or error); long lines stay whole where it is not a terminal."""
    out = Console(highlight=False, stderr=stderr, soft_wrap=True)
    if not out.is_terminal:
        out.width = 100_000
    return out


def title(case: Case) -> str:
    """A case in a few words.

    Examples
    --------
    >>> title(
    ...     Case(
    ...         64,
    ...         3072,
    ...         768,
    ...         "row/c2",
    ...         "row/c2",
    ...         "row/c2",
    ...         options={"stationary": "C"},
    ...         preset="row",
    ...     )
    ... )
    '64x3072x768 row c2 S-C'
    """
    shape = f"{case.m}x{case.n}x{case.k}"
    texts = [text for text in (case.a, case.b, case.c) if text is not None]
    factors = [text.partition("/")[2] or "c1" for text in texts]
    if case.preset and texts:
        told = factors[:1] if len(set(factors)) == 1 else factors
        how = case.preset if told == ["c1"] else f"{case.preset} {','.join(told)}"
    else:
        how = " ".join(texts)
    options = dict(case.options)
    still = f"S-{options.pop('stationary')}" if options.get("stationary") else ""
    rest = " ".join(f"{name}={value}" for name, value in options.items() if value is not None)
    name = case.algorithm if case.algorithm != "universal" else ""
    form = f"transpose {case.transpose}" if case.transpose else ""
    form += "".join(
        f" {name} {value:g}"
        for name, value in (("alpha", case.alpha), ("beta", case.beta))
        if value is not None
    )
    return " ".join(part for part in (shape, name, how, still, form.strip(), rest) if part)


class SweepProgress:
    """Watches :func:`launch.sweeps.supervisor.run_cases` (a context manager).

    Parameters
    ----------
    total : int
        Cases of the sweep.
    done : iterable of Record
        Rows there are already.
    console : Console
        Where to say it.
    on_record : callable, optional
        Gets each new record.
    what : str
        ``case``; or ``turn``, one repeat of a case in a round: alone it is neither sure nor a best.

    Attributes
    ----------
    records : list of Record
        All that was told, those of earlier runs first.
    """

    def __init__(self, total: int, done, console: Console, on_record=None, what: str = "case"):
        self.counts, self.total, self.console, self.what = Counter(), total, console, what
        self.doubts: Counter = Counter()
        self._on_record, self.records = on_record, []
        self._current, self._lines = "", 0
        self._start = self._told = time.monotonic()
        for record in done:
            self._count(record)
        self._new = 0
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> SweepProgress:
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *exc) -> None:
        self._live.stop()

    @property
    def done(self) -> int:
        """Cases that have a row."""
        return sum(self.counts.values())

    # -- what run_cases tells
    # -----------------------------------------------------------------------------------

    def tick(self) -> None:
        now, terminal = time.monotonic(), self.console.is_terminal
        if now - self._told >= (_REFRESH_S if terminal else _LINE_S):
            self._told = now
            if terminal:
                told = Text(f"{self.line()}  {self._current}", no_wrap=True, overflow="ellipsis")
                self._live.update(told, refresh=True)
            else:
                self._say(self.line())

    def started(self, case: Case) -> None:
        self._current = title(case)

    def ended(self, case: Case, record: Record) -> None:
        self._count(record)
        self._new += 1
        if self._on_record is not None:
            self._on_record(record)
        if record.status not in GOOD:
            self._lines += 1
            if self._lines <= _MOST_LINES:
                self._say(f"{title(case)}: {record.status}: {record.reason}", "red")
            elif self._lines == _MOST_LINES + 1:
                self._say("further cases that are not ok are only in the records", "red")
        self.tick()

    def note(self, text: str) -> None:
        self._say(text, "yellow")

    # -- what it says
    # -------------------------------------------------------------------------------------------

    def line(self) -> str:
        """Where it stands, on one line: how many ended how, and how many times are in doubt."""
        spent = time.monotonic() - self._start
        left = (
            f", {(self.total - self.done) * spent / self._new:.0f} s left"
            if self._new and self.done < self.total
            else ""
        )
        counts = [f"{count} {word}" for word, count in (self.counts + self.doubts).items()]
        done = f"{self.done}/{plural(max(self.done, self.total), self.what)}"
        return f"{done}, {', '.join(counts) or 'none yet'}, {spent:.0f} s{left}"

    def _count(self, record: Record) -> None:
        self.counts[record.status] += 1
        if self.what == "turn":
            return
        self.doubts.update(doubts(record))
        self.records.append(record)

    def _say(self, text: str, style: str = "") -> None:
        self.console.print(Text(" ".join(text.split()), style))
