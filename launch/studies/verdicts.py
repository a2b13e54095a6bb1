"""Claims of a paper, and what records say of them."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

#: What a claim does.
HOLDS = {True: "holds", False: "does not hold", None: "undecided"}
#: What is said of it. KNOWN: it does not hold, and the documentation says so and why. SKIP: what it
#: needs is not at hand.
WORDS = ("PASS", "FAIL", "KNOWN", "SKIP")


@dataclass(frozen=True)
class Verdict:
    """A claim and what the records say.

    Attributes
    ----------
    holds : bool or None
        None if the records cannot say.
    numbers : str
        What decides it.
    see : str
        Where the documentation says that it does not hold, and why; empty if it is expected to.
    """

    claim: str
    text: str
    holds: bool | None
    numbers: str
    see: str = ""

    @property
    def word(self) -> str:
        """One of :data:`WORDS`. A claim that holds although the documentation says it does not is a
        FAIL too: the documentation is wrong.

        Examples
        --------
        >>> [Verdict("P0", "", holds, "", "page.md#p0").word for holds in (True, False, None)]
        ['FAIL', 'KNOWN', 'SKIP']
        >>> [Verdict("P0", "", holds, "").word for holds in (True, False, None)]
        ['PASS', 'FAIL', 'SKIP']
        """
        if self.holds is None:
            return "SKIP"
        if self.see:
            return "FAIL" if self.holds else "KNOWN"
        return "PASS" if self.holds else "FAIL"


def verdicts(
    claims: dict[str, tuple[str, Callable[[Any], tuple[bool | None, str]]]],
    found: Any,
    known: Mapping[str, str] = {},
    wanted: Callable[[str], bool] = bool,
) -> list[Verdict]:
    """Check every claim whose name is ``wanted``: its words, and a check that gets what was found
    and says whether it holds, and the numbers. One whose records are missing is undecided and says
    what is missing. ``known`` has the claims that do not hold, and where the documentation says so.

    Examples
    --------
    >>> claims = {"P0": ("it is there", lambda found: (found["it"] > 0, f"it is {found['it']}"))}
    >>> [(verdict.holds, verdict.numbers) for verdict in verdicts(claims, {"it": 3})]
    [(True, 'it is 3')]
    >>> [(verdict.holds, verdict.numbers) for verdict in verdicts(claims, {})]
    [(None, "records missing: 'it'")]
    >>> verdicts(claims, {"it": 3}, wanted=lambda name: name == "P1")
    []
    >>> verdicts({"P0": ("the best of none", lambda found: (min(found), ""))}, [])[0].numbers
    'records missing: a case of the figure'
    """
    out = []
    for name, (text, check) in claims.items():
        if not wanted(name):
            continue
        try:
            holds, numbers = check(found)
        except (KeyError, StopIteration, ValueError) as error:
            what = error if isinstance(error, KeyError) else "a case of the figure"
            holds, numbers = None, f"records missing: {what}"
        holds = None if holds is None else bool(holds)
        out.append(Verdict(name, text, holds, numbers, known.get(name, "")))
    return out


def show(found: Iterable[Verdict]) -> None:
    """Print each claim, the numbers below it, and how many there are of each word."""
    found = list(found)
    for verdict in found:
        print(f"{verdict.claim:4} {verdict.word:5} {verdict.text}")
        print(f"{'':10} {verdict.numbers}")
        if verdict.word == "KNOWN":
            print(f"{'':10} it does not hold: {verdict.see}")
        elif verdict.see and verdict.holds:
            print(f"{'':10} it holds, and {verdict.see} says that it does not")
    print(counted(verdict.word for verdict in found))


def counted(words: Iterable[str]) -> str:
    """How many there are of each word.

    Examples
    --------
    >>> counted(["PASS", "KNOWN", "PASS"])
    '2 PASS, 0 FAIL, 1 KNOWN, 0 SKIP'
    """
    counts = Counter(words)
    return ", ".join(f"{counts[word]} {word}" for word in WORDS)


def named(values, digits: int = 1) -> str:
    """A Series with its names, as numbers of a verdict."""
    return ", ".join(f"{name} {value:.{digits}f}" for name, value in values.items())
