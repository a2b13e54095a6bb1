"""What a page says in numbers, and where it says that they come from.

A *number* is written in digits, with or without decimals and sign, and is no part of a word, a
power, a product of sizes or a version of three parts: ``80.8`` is one, ``float32``, ``4096^3``,
``2x3`` and ``5.0.2`` have none. Code, fenced or between backticks, targets of links and comments
are not looked at.

A number is *measured* if

1. it has decimals;
2. a unit follows: of time, rate, size or share (``%``, ``points``, ``times``);
3. it counts something: ``3 of 4``, or one of :data:`COUNTED` follows (``96 cases``);
4. a range or list joins it to a measured one that follows: ``20 to 30 %``, ``0.98-1.02``,
   ``7, 12 and 27 %``;
5. it stands in a table, not in the first column, in a cell of numbers and units alone.

Every measured number is *covered*, by one of

``<!-- = name(arguments); name -->``
    Values of :mod:`docs.check.values`. Each gives a number, or several. They are those of as many
    numbers right before the comment, measured or not, in order, at the precision printed; ``_``
    stands for a number that the comment says nothing of.
``<!-- limit -->``, with any kind of :data:`EXEMPT` and, after a colon, what it refers to
    No value of ours: the last number before the comment, with those that a range or list joins to
    it. ``<!-- limit*3 -->``: the three measured numbers before it.
``<!-- all: version -->``, on a line of its own
    The same for all numbers of the paragraph or table below. Before fenced code: that its numbers
    are an example.
``<!-- docs: NAME(arguments) -->`` to ``<!-- docs: end -->``, each on a line of its own
    Lines between them are made by :mod:`docs.check.tables`.
"""

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise

#: Why a number needs no record.
EXEMPT = {
    "limit": "set by the program or the text: a default, a bound, a bar, a size",
    "version": "of software",
    "example": "made up, or of one run that is shown as an example",
    "assumed": "a constant of a model that nobody has published",
    "arithmetic": "follows from sizes and counts in the sentence",
    "estimate": "roughly how long a step takes, for planning one's time",
}
#: What is counted.
COUNTED = (
    "cases",
    "points of the figures",
    "triples",
    "events",
    "shapes",
    "products",
    "pairs",
    "programs",
    "partitionings",
    "combinations",
)
_UNITS = (
    "%|percent|points?|ns|µs|us|ms|s|seconds?|minutes?|hours?|times|[KMGT]i?B/s|[kKMGT]i?B|bytes?"
    "|[MGT]FLOP/s|[MGT]FLOPs?"
)
_UNIT = re.compile(rf"\s*(?:(?:{_UNITS})(?![\w/])|%)")
_COUNTED = re.compile(rf"\s+(?:\w+\s+)?(?:{'|'.join(COUNTED)})\b")
_NUMBER = re.compile(
    r"(?<![\w.,^=§@#³²×:*])(?<![A-Za-z)]-)(?<!× )(?<!\d x )"
    r"[−+-]?\d+(?:\.\d+)?(?![\w^³²×*:]|[.,]\d|-[A-Za-z]| ?[×x] ?\d)"
)
#: Between the numbers of a range or list, and between those of a list before its last two.
_JOINED = re.compile(r"\s?[-–/·]\s?|\s+(?:to|and|or|against)\s+|\s+")
_COMMA = re.compile(r",\s+")
_OF = re.compile(r"\s+of\s+(?:the\s+|all\s+)?")
_COMMENT = re.compile(r"<!--\s*(.*?)\s*-->", re.S)
_BEGIN = re.compile(r"^<!-- docs: (?!end)(.+?) -->\n", re.M)
_END = "<!-- docs: end -->"
_HIDDEN = re.compile(
    r"^(?P<fence>```|~~~).*?^(?P=fence)[^\n]*$"  # fenced code
    r"|(?:(?<=\n\n)|\A)(?: {4}[^\n]*(?:\n|\Z))+"  # indented code
    r"|`[^`\n]+(?:\n[^`\n]+)?`|\]\([^)\s]*\)|https?://\S+",
    re.M | re.S,
)
_STARTS = r"\||\s*(?:[-*]|\d+\.) "  # a row, an item
_PART = re.compile(rf"^\|[^\n]*|^[^\n]+\n?(?:(?!{_STARTS}|\n)[^\n]+\n?)*", re.M)
_LABEL = re.compile(r"^\|[^|]*")
_CELL = re.compile(rf"(?:[\d.,()–/·\s~<>≤≥±×−+-]|{_UNITS})+")


class PageError(Exception):
    """A comment that says nothing, or nothing that is there."""


@dataclass
class Number:
    """A number of a page."""

    start: int
    stop: int
    text: str
    measured: bool = False
    joined: bool = False  # to the number before, as a range or list
    by: "Marker | None" = None  # what covers it

    @property
    def decimals(self) -> int:
        return len(self.text.partition(".")[2])

    def written(self, value: float) -> str:
        """A value as this number writes it.

        Examples
        --------
        >>> Number(0, 4, "80.8").written(80.849), Number(0, 2, "+1").written(2.5)
        ('80.8', '+2')
        >>> Number(0, 2, "−3").written(-0.2), Number(0, 2, "−3").written(-4.6)
        ('0', '−5')
        """
        text = f"{value:.{self.decimals}f}"
        if float(text) == 0:
            text = text.lstrip("-")
        if self.text[0] == "+" and float(text) > 0:
            return "+" + text
        return text.replace("-", "−") if self.text[0] == "−" else text


@dataclass
class Marker:
    """A comment that says where numbers come from."""

    start: int
    stop: int
    text: str
    covers: list[Number] = field(default_factory=list)
    code: bool = False  # a fenced block below

    @property
    def kind(self) -> str:
        """``=``, or a word of :data:`EXEMPT`."""
        return "=" if self.text.startswith("=") else re.split(r"[*:]", self.text)[0].strip()

    @property
    def reason(self) -> str:
        return self.text.partition(":")[2].strip()


@dataclass
class Page:
    """The text of a page, its numbers, comments and generated blocks.

    Examples
    --------
    >>> page = Page("On 4 ranks it takes 20 to 30 ms<!-- limit -->, 1.5 times as long.")
    >>> [(number.text, number.measured, bool(number.by)) for number in page.numbers]
    [('4', False, False), ('20', True, True), ('30', True, True), ('1.5', True, False)]
    """

    text: str
    name: str = ""

    def __post_init__(self):
        self._seen = _hidden(self.text)
        self.numbers = list(self._find_numbers())
        self.markers = [
            Marker(*found.span(), found[1])
            for found in _COMMENT.finditer(_without_code(self.text))
            if not found[1].startswith("docs:") and not self._generated(found.start())
        ]
        for marker in self.markers:
            self._cover(marker)

    def line(self, at: int) -> int:
        return self.text.count("\n", 0, at) + 1

    def blocks(self) -> Iterator[tuple[str, int, int]]:
        """Each generated block: what makes it, and where its lines begin and end."""
        for begin in _BEGIN.finditer(self.text):
            stop = self.text.find(_END, begin.end())
            if stop < 0:
                raise PageError(f"{self.place(begin.start())}: no {_END} follows docs: {begin[1]}")
            yield begin[1], begin.end(), stop

    def place(self, at: int) -> str:
        return f"{self.name}:{self.line(at)}"

    def _generated(self, at: int) -> bool:
        return any(start <= at < stop for _, start, stop in self.blocks())

    def _find_numbers(self) -> Iterator[Number]:
        for start, stop in _lines_or_paragraphs(self._seen):
            text = self._seen[start:stop]
            row = text.startswith("|")
            label = _LABEL.match(text).end() if row else 0
            found = [
                Number(start + each.start(), start + each.end(), each[0])
                for each in _NUMBER.finditer(text)
            ]
            flat = text.replace("\n", " ")
            for number in found:
                after = flat[number.stop - start :].lstrip("\0")
                number.measured = bool(
                    number.decimals or _UNIT.match(after) or _COUNTED.match(after)
                ) or (row and number.start - start >= label and _alone(text, number, start))
            self._join(found, flat, start)
            for number in found:
                if not self._generated(number.start):
                    yield number

    @staticmethod
    def _join(found: list[Number], flat: str, start: int) -> None:
        """Ranges, lists and ``N of N``, from right to left."""
        inside = False
        for before, after in reversed(list(pairwise(found))):
            between = flat[before.stop - start : after.start - start].replace("\0", "")
            if _OF.fullmatch(between) and not (before.decimals or after.decimals):
                before.measured = after.measured = True
                after.joined = True
                inside = False
                continue
            joins = _JOINED.fullmatch(between) or (inside and _COMMA.fullmatch(between))
            inside = bool(joins and after.measured)
            if inside:
                before.measured = after.joined = True

    def _cover(self, marker: Marker) -> None:
        if marker.text.startswith("all:"):
            marker.text = marker.text.removeprefix("all:").strip()
            start = marker.stop + 1
            marker.code = self.text.startswith("```", start)
            stop = self._seen.find("\n\n", start)
            stop = len(self._seen) if stop < 0 else stop
            marker.covers = [
                number
                for number in self.numbers
                if start <= number.start < stop and number.measured
            ]
        elif marker.kind != "=":
            marker.covers = self._exempt(marker)
        if marker.kind != "=":
            if marker.kind not in EXEMPT:
                raise PageError(
                    f"{self.place(marker.start)}: <!-- {marker.text} --> says neither where a "
                    f"value comes from (= name) nor why it has none ({', '.join(EXEMPT)})."
                )
            if not marker.covers and not marker.code:
                raise PageError(
                    f"{self.place(marker.start)}: no number stands before <!-- {marker.text} -->."
                )
        for number in marker.covers:
            number.by = number.by or marker

    def _before(self, marker: Marker) -> list[Number]:
        """Numbers between the marker and the marker or the empty line before, last first."""
        start = max(self._seen.rfind("\n\n", 0, marker.start), 0)
        return [number for number in reversed(self.numbers) if start <= number.start < marker.start]

    def _exempt(self, marker: Marker) -> list[Number]:
        before = self._before(marker)
        if times := re.match(r"\w+\*(\d+)", marker.text):
            return [number for number in before if number.measured][: int(times[1])]
        count = next((at for at, number in enumerate(before) if not number.joined), 0)
        return before[: count + 1]

    def hold(self, values: Callable[[str], list[float] | None]) -> Iterator[tuple[Number, str]]:
        """Cover numbers by the values that comments name; each number of them, and what it should
        say.

        Parameters
        ----------
        values : callable
            The numbers of one expression; ``None`` for ``_``.
        """
        for marker in self.markers:
            if marker.kind != "=":
                continue
            wanted: list[float | None] = []
            for expression in split(marker.text[1:]):
                wanted += [None] if expression == "_" else values(expression)
            marker.covers = list(reversed(self._before(marker)[: len(wanted)]))
            if len(marker.covers) < len(wanted):
                raise PageError(
                    f"{self.place(marker.start)}: <!-- {marker.text} --> gives {len(wanted)} "
                    f"numbers, and {len(marker.covers)} stand before it."
                )
            for number, value in zip(marker.covers, wanted):
                if value is not None:
                    number.by = marker
                    yield number, number.written(value)

    def bare(self) -> list[Number]:
        """Measured numbers that nothing covers; after :meth:`hold`."""
        return [number for number in self.numbers if number.measured and number.by is None]


def split(text: str) -> list[str]:
    """Expressions between semicolons outside of quotes.

    Examples
    --------
    >>> split('peers(2, "a; b"); _')
    ['peers(2, "a; b")', '_']
    """
    parts = re.findall(r"(?:\"[^\"]*\"|'[^']*'|[^;])+", " ".join(text.split()))
    return [part.strip() for part in parts if part.strip()]


def call(text: str, functions: dict[str, Callable]):
    """What a name, or a call of it with constants, gives.

    Examples
    --------
    >>> call("twice(4)", {"twice": lambda n: 2 * n})
    8

    Raises
    ------
    PageError
        If it is anything else, or there is no such name.
    """
    try:
        tree = ast.parse(text, mode="eval").body
        name = tree.func.id if isinstance(tree, ast.Call) else tree.id
        arguments = [ast.literal_eval(each) for each in getattr(tree, "args", ())]
        named = {each.arg: ast.literal_eval(each.value) for each in getattr(tree, "keywords", ())}
    except (AttributeError, SyntaxError, ValueError):
        raise PageError(f"{text!r} is no name(constants).") from None
    if name not in functions:
        raise PageError(f"there is no {name!r}; there are {', '.join(sorted(functions))}.")
    try:
        return functions[name](*arguments, **named)
    except (KeyError, IndexError, TypeError, ValueError, OSError) as error:
        raise PageError(f"{text}: {type(error).__name__}: {error}") from None


def _without_code(text: str) -> str:
    """The text with blanks for code and links, of the same length."""
    return _HIDDEN.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)


def _hidden(text: str) -> str:
    """The same without comments."""
    blank = lambda found: re.sub(r"[^\n]", " ", found[0])
    return _COMMENT.sub(lambda found: "\0" * len(found[0]), _HIDDEN.sub(blank, text))


def _lines_or_paragraphs(text: str) -> Iterator[tuple[int, int]]:
    """Where the rows of tables, and the paragraphs and items between, begin and end."""
    for part in _PART.finditer(text):
        yield part.span()


def _alone(row: str, number: Number, start: int) -> bool:
    at = number.start - start
    cell = row[row.rfind("|", 0, at) + 1 : row.find("|", at)] if "|" in row[at:] else row[at:]
    return _CELL.fullmatch(cell.replace("\0", " ")) is not None
