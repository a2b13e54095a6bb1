"""Report the progress of a sweep: a line that is replaced on a terminal, else one now and then; and
one for each case that is not ok."""

import time
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from statistics import median

from rich.console import Console
from rich.text import Text

from drbench.launch.cases.case import GOOD, Case
from drbench.measure.noise import LEAST_SHARE, doubts
from drbench.measure.record import Record
from drbench.texts import layouts_text, plural, shape_text

#: Seconds between lines, and between those that replace each other on a terminal.
_LINE_S, _REPLACED_S = 10.0, 0.5
#: Goes to the start of the line of a terminal, and clears it.
_CLEARED = "\r\033[K"
#: Most cases that are not ok with their own line; the others are only in the records.
_MOST_LINES = 20
#: The machine is busy if in half of this many runs a rank lacked its core.
_LAST = 10


def title(case: Case) -> str:
    """A short description of a case.

    Examples
    --------
    >>> title(Case(64, 3072, 768, "row/c2", "row/c2", "row/c2", options={"stationary": "C"}))
    '64 × 3072 × 768 S-C row/c2'
    >>> title(Case(64, 3072, 768, "row", "column", "row", algorithm="collective"))
    '64 × 3072 × 768 collective AC row · B column'
    """
    own = {name: getattr(case, name) for name in ("transpose", "alpha", "beta")}
    options = dict(case.options)
    stationary = options.pop("stationary", None)
    words = [shape_text(case.m, case.n, case.k)]
    words += [case.algorithm] * (case.algorithm != Case.algorithm)
    words += [f"S-{stationary}"] * bool(stationary)
    words += [layouts_text((case.a, case.b, case.c))] * any((case.a, case.b, case.c))
    words += [f"{name}={value}" for name, value in (own | options).items() if value is not None]
    return " ".join(words)


class SweepProgress:
    """Count the cases of a sweep and report its progress.

    Parameters
    ----------
    total : int
        Cases of the sweep.
    done : iterable of Record
        Existing rows.
    console : Console
        Gets the lines.
    what : str
        ``case``; or ``turn``, one repeat of a case in a round, which alone is not a result.
    """

    def __init__(self, total: int, done: Iterable[Record], console: Console, what: str = "case"):
        self._total, self._console, self._what = total, console, what
        self._counts, self._doubts = Counter(), Counter()
        self._current, self._bad, self._shown = "", 0, False
        self._shares: deque[float] | None = deque(maxlen=_LAST)
        self._start = self._reported_at = time.monotonic()
        for record in done:
            self._count(record)
        self._before = self._counts.total()

    def tick(self) -> None:
        """Print a line now and then, on a terminal over the one before; called often."""
        live = self._console.is_terminal
        if time.monotonic() - self._reported_at < (_REPLACED_S if live else _LINE_S):
            return
        self._reported_at = time.monotonic()
        line = f"{self.line()}; now {self._current}"
        if live:
            self._console.file.write(f"{_CLEARED}{line[: self._console.width - 1]}")
            self._console.file.flush()
            self._shown = True
        else:
            self.note(line, "")

    def started(self, case: Case) -> None:
        """Note that a case starts."""
        self._current = title(case)

    def ended(self, record: Record) -> None:
        """Count the record of a case. Say once if the machine is busy."""
        self._count(record)
        if record.core_share is not None and self._shares is not None:
            self._shares.append(record.core_share)
            if 2 * sum(share < LEAST_SHARE for share in self._shares) >= _LAST:
                self.note(
                    f"this machine is busy: a rank had {100 * median(self._shares):.0f} % of its "
                    "core. Nothing will be ranked by these times. Stop other processes (top shows "
                    "them), then measure again (a sweep: with --fresh)"
                )
                self._shares = None
        if record.status not in GOOD:
            self._bad += 1
            if self._bad <= _MOST_LINES:
                self.note(f"{self._current}: {record.status}: {record.reason}", "red")
            elif self._bad == _MOST_LINES + 1:
                self.note("further cases that are not ok are only in the records", "red")
        self.tick()

    def note(self, text: str, style: str = "yellow") -> None:
        """Print a line that is not replaced."""
        if self._shown:
            self._console.file.write(_CLEARED)
            self._shown = False
        self._console.print(Text(" ".join(text.split()), style))

    def close(self, rows: Iterable[Record], total: int, rounds: Sequence[int]) -> None:
        """Print the last line, with the rows of all cases; ``rounds`` are the numbers of their
        rounds."""
        self._what, self._total = "case", total
        self._counts, self._doubts = Counter(), Counter()
        for row in rows:
            self._count(row)
        text = ""
        if rounds:
            few, many = min(rounds), max(rounds)
            text = f", {f'{few} to ' * (few < many)}{plural(many, 'round')}"
        self.note(self.line(text), "")

    def line(self, more: str | None = None) -> str:
        """The progress in one line: the number of cases by status, and of doubtful times; and
        ``more``, by default the time left."""
        spent, done = time.monotonic() - self._start, self._counts.total()
        new, left = done - self._before, self._total - done
        if more is None:
            more = f", {left * spent / new:.0f} s left" if new > 0 and left > 0 else ""
        counts = [f"{count} {word}" for word, count in (self._counts + self._doubts).items()]
        where = f"{done}/{plural(max(done, self._total), self._what)}"
        return f"{where}, {', '.join(counts) or 'none yet'}, {spent:.0f} s{more}"

    def _count(self, record: Record) -> None:
        self._counts[record.status] += 1
        if self._what == "case":
            self._doubts.update(doubts(record))
