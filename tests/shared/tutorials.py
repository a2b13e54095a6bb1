"""The tutorials of docs/tutorials: their blocks, run in the order of a page, and whether what they
print is what the page shows.

A block of ``console`` has commands after ``$``, each with its output; a block of ``toml`` is a file
whose name is in its first line; a block of ``python`` is a program, and the block of ``text`` after
it shows what it prints. In what is shown, ``…`` alone in a line replaces any lines, and at the
end of a line for the rest of it.
"""

import re
import sys
from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import NamedTuple

GAP = "…"
#: Commands that start processes: times, rates and versions in what they print are not compared.
MEASURED = ("doctor", "run", "sweep", "report", "explain")
#: Commands whose output has more lines on a noisy machine.
NOISY = ("doctor", "run", "sweep", "plot", "compare")
#: What a measured output has of numbers: its pattern, and what replaces it.
_NUMBER = r"-?\d+(?:\.\d+)?"
_UNITS = "%|[mµn]?s|min|[GT]FLOP/s|[GM]B"
_MASKS = [
    (re.compile(rf"(?<![\w.]){_NUMBER}(?:-{_NUMBER})? ?(?:{_UNITS})(?!\w)"), "#"),
    (re.compile(rf"(?<=process ){_NUMBER} [KMG]iB"), "#"),
    (re.compile(rf"(?<=time is that of ){_NUMBER} [GMTk]FLOP"), "#"),
    (re.compile(rf"(?<=\(){_NUMBER} [KM]iB(?=, (?:nothing|self))"), "#"),
    (re.compile(r"(?:MPICH|Open MPI) [\d.]+(?: \(MPI [\d.]+\))?"), "MPI #"),
    (re.compile(r"\S+ [\d.]+(?:,| \() ?\w+ kernels\)?"), "BLAS #"),
    (re.compile(r"(?<=launcher )\S+"), "#"),
    (re.compile(r" ± #"), ""),  # of few repeats there is none
    (re.compile(r"^( time spent +).*"), r"\1#"),
    (re.compile(r"^( slowest rank +).*"), r"\1#"),
    (re.compile(rf"(?<=takes ){_NUMBER}(?= × the time)"), "#"),
    (re.compile(r"^ ?(\d* )?[~±+=?]+ (?=#)"), r" \1"),  # marks of a noisy machine
]
#: A row of a table of measured times, which are in the order of these.
_ROW = re.compile(rf"^ +(?:[~±+=?]+ )?{_NUMBER} [mµn]?s .*$")
#: Times of the clock in outputs of which nothing else is measured.
_CLOCK = re.compile(r"(?<=planned in )[\d.]+ \w+|(?<= ok, )\d+ s$")
#: Lines that depend on how quiet the machine is, or on the hour: shown or not, they are the same.
_NOISE = [
    re.compile(r"^hollow: "),
    re.compile(r"^\d+ cases? not stable: "),
    re.compile(r"^\d+ × \d+ × \d+: (?:undecided|tied): "),
    re.compile(r"^[~±+=?0] (?:noisy|oversubscribed|not stable|moves nothing|tied|undecided)\b"),
    re.compile(r"^\d+/\d+ (?:cases|turns), .*(?: left\b|; now )"),
    re.compile(r"^this machine is busy: "),
    re.compile(r"^ (?:communication|GEMM-only) +\S"),
    re.compile(r"^ +(?:noisy|not stable|these GEMMs take)\b"),
    re.compile(r"^ +-> (?:measure again|stop other processes|--peak)"),
]
#: Where the noise begins in a row that a table wraps: the rest of the row belongs to it.
_DOUBTED = re.compile(r", while other processes ran.*")
#: What may be in a line of a noisy machine, and what a quiet one has there.
_INSTEAD = [
    (re.compile(r", \d+ (?:noisy|not stable)"), ""),
    (re.compile(r", \d+ to \d+ rounds$"), ", 6 rounds"),
    (re.compile(r"^(Result (?:exact|not verified|correct \(.*?\)))[.:].*"), r"\1"),
    (re.compile(r"^( (?:peak float\d\d|other load) +)advice"), r"\1ok    "),
    (re.compile(r"^( other load +ok ).*"), r"\1"),
    (re.compile(r"^Ready.*"), "Ready"),
    (
        re.compile(
            r"^(?!\d+ interleaved).*"
            r"(?:fastest|[Tt]ied|[Uu]ndecided|but no time can be used|^Only) ?.*[.…]$"
        ),
        "decision",
    ),
]
#: A line that continues a row of a table with names in its first column.
_WRAPPED = re.compile(r"^ {10,}\S")


class Step(NamedTuple):
    """Something to do on a page: a command line, a program, or a file to write, what kind of it,
    what is shown of its output, and where that begins in the page."""

    kind: str
    text: str
    shown: str
    start: int


def steps_of(page: str) -> Iterator[Step]:
    """All that a page does, in its order."""
    program = ""
    for block in re.finditer(r"^```(\w*)\n(.*?)^```$", page, re.M | re.S):
        kind, text = block[1], block[2]
        if kind in ("sh", "bibtex"):  # for a reader's own folder, or a paper
            continue
        if kind == "console":
            for each in re.finditer(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", text, re.M):
                yield Step(kind, each[1], each[2], block.start(2) + each.start(2))
        elif kind == "text":
            yield Step("python", program, text, block.start(2))
        elif kind == "python":
            program = text
        else:
            yield Step(kind, text, "", block.start(2))


def quiet(text: str, command: str, compared: bool = True) -> list[str]:
    """The lines of an output without what a quiet machine does not print, and without blanks around
    them; if they are ``compared``, what differs between machines is replaced."""
    lines = "\n".join(map(str.rstrip, text.splitlines())).strip("\n").splitlines()
    if command not in NOISY:
        return lines
    found, doubted = [], False
    for line in [x for x in lines if not any(y.search(x) for y in _NOISE)]:
        if doubted and _WRAPPED.match(line):
            continue
        doubted = bool(_DOUBTED.search(line))
        line = _DOUBTED.sub("", line)
        for pattern, instead in _INSTEAD if compared else ():
            line = pattern.sub(instead, line)
        if line or not doubted:
            found.append(line)
    return found


def masked(line: str, command: str) -> str:
    """A line without what differs from run to run."""
    if command not in MEASURED:
        return _CLOCK.sub("#", line)
    if command == "doctor":
        line = re.sub(r"\d+(?:\.\d+)?", "#", line) if not line.startswith(" BLAS ") else line
    if command == "sweep" and _ROW.match(line):
        return "row"  # which of the cases are the best five depends on the noise
    for pattern, instead in _MASKS:
        line = pattern.sub(instead, line)
    return " ".join(re.sub("─+", "─", line).split())


def _comparable(text: str, command: str) -> list[str]:
    """Masked lines, without blank ones; rows that a table wraps in one line, and rows of measured
    times in an order of their own."""
    lines = []
    for line in filter(str.strip, quiet(text, command)):
        if lines and command in ("doctor", "run") and _WRAPPED.match(line):
            lines[-1] += " " + line.strip()
        else:
            lines.append(line)
    if command in MEASURED:
        rows = iter(sorted((x for x in lines if _ROW.match(x)), key=lambda x: masked(x, command)))
        lines = [next(rows) if _ROW.match(line) else line for line in lines]
    return [masked(line, command) for line in lines]


def difference(shown: str, output: str, command: str) -> str:
    """Where an output is not what is shown, in words; empty if it is."""
    have, gap = _comparable(output, command), False
    for line in _comparable(shown, command):
        if line.strip() == GAP:
            gap = True
            continue
        same = lambda got: got.startswith(line[:-1].rstrip()) if line[-1] == GAP else got == line
        at = next((x for x, got in enumerate(have) if same(got)), None)
        if at is None or at and not gap:
            return f"shown: {line}\nprinted: {(have or ['nothing'])[0]}"
        have, gap = have[at + 1 :], False
    return f"not shown: {have[0]}" if have and not gap else ""


def rewritten(shown: str, output: str, command: str, width: int = 120) -> str:
    """What the page is to show instead: the output without noise, cut where it was cut, and at the
    width of a page."""
    lines = quiet(output.replace(sys.prefix, ".venv"), command, False)
    if any(line.strip() == GAP for line in shown.splitlines()):
        kept, left = [], lines
        for line in quiet(shown, command, False):
            if line.strip() == GAP:
                kept.append(line)
                continue
            alike = lambda x: SequenceMatcher(None, line, left[x]).ratio()
            at = max(range(len(left)), key=alike, default=None)
            if at is not None:
                kept.append(left[at])
                left = left[at + 1 :]
        lines = kept
    cut = lambda line: (
        line if len(line) <= width else f"{line[: width - 2].rsplit(' ', 1)[0]} {GAP}"
    )
    return "".join(f"{cut(line)}\n" for line in lines)
