"""Claims of a paper as data, and what records say of them."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

#: What a claim does.
HOLDS = {True: "holds", False: "does not hold", None: "undecided"}
#: Verdicts as files have them. KNOWN: the claim does not hold, and the documentation says so and
#: why. SKIP: its records are missing.
WORDS = ("PASS", "FAIL", "KNOWN", "SKIP")
#: Where our number of a claim comes from: ranks that ran, a machine model, counting (bytes, FLOPs,
#: constants of the paper), or other people's numbers alone.
SOURCES = ("measured", "simulated", "arithmetic", "published")


def shown(word: str) -> str:
    """A verdict as people read it.

    Examples
    --------
    >>> [shown(word) for word in WORDS]
    ['PASS', 'FAIL', 'NOT REPRODUCED (documented)', 'SKIP']
    """
    return "NOT REPRODUCED (documented)" if word == "KNOWN" else word


@dataclass(frozen=True)
class Claim:
    """A sentence of a paper, and how records are judged by it.

    Attributes
    ----------
    text : str
        What is claimed, and where the paper says it.
    check : callable
        Gets the records; returns whether the claim holds (None: they do not say), and our numbers.
    source : str
        One of :data:`SOURCES`.
    theirs : str
        The paper's number in short words, or what it says where it gives none.
    threshold : str
        By what the claim holds.
    records : str
        The files that it is judged on, and their machine.
    see : str
        Where the documentation says that the claim does not hold, and why; empty if it does.
    """

    text: str
    check: Callable[[Any], tuple[bool | None, str]]
    source: str = "simulated"
    theirs: str = ""
    threshold: str = ""
    records: str = ""
    see: str = ""


@dataclass(frozen=True)
class Verdict:
    """A claim and what the records say; the other fields are those of :class:`Claim`.

    Attributes
    ----------
    holds : bool or None
        None if the records cannot say.
    ours : str
        Our numbers: what decides it.
    """

    claim: str
    text: str
    holds: bool | None
    ours: str
    see: str = ""
    source: str = "simulated"
    theirs: str = ""
    threshold: str = ""
    records: str = ""

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
    claims: Mapping[str, Claim], found: Any, wanted: Callable[[str], bool] = bool
) -> list[Verdict]:
    """Check every claim whose name is ``wanted`` on what was found. A claim whose records are
    missing is undecided and says what is missing.

    Examples
    --------
    >>> claims = {"P0": Claim("it is there", lambda found: (found["it"] > 0, f"{found['it']}"))}
    >>> [(verdict.holds, verdict.ours) for verdict in verdicts(claims, {"it": 3})]
    [(True, '3')]
    >>> [(verdict.holds, verdict.ours) for verdict in verdicts(claims, {})]
    [(None, "records missing: 'it'")]
    >>> verdicts(claims, {"it": 3}, wanted=lambda name: name == "P1")
    []
    >>> verdicts({"P0": Claim("the best of none", lambda found: (min(found), ""))}, [])[0].ours
    'records missing: a case of the figure'
    """
    out = []
    for name, claim in claims.items():
        if not wanted(name):
            continue
        try:
            holds, ours = claim.check(found)
        except (KeyError, StopIteration, ValueError) as error:
            what = error if isinstance(error, KeyError) else "a case of the figure"
            holds, ours = None, f"records missing: {what}"
        holds = None if holds is None else bool(holds)
        about = (claim.see, claim.source, claim.theirs, claim.threshold, claim.records)
        out.append(Verdict(name, claim.text, holds, ours, *about))
    return out


def show(found: Iterable[Verdict]) -> None:
    """Print each claim with the paper's number, ours, where ours is from and by what the claim
    holds; and how many there are of each verdict."""
    found = list(found)
    for verdict in found:
        print(f"{verdict.claim:4} {shown(verdict.word)}: {verdict.text}")
        for name, text in (
            ("theirs", verdict.theirs),
            (f"ours, {verdict.source}", verdict.ours),
            ("holds if", verdict.threshold),
            ("judged on", verdict.records),
            ("why" if verdict.word == "KNOWN" else "it holds, unlike", verdict.see),
        ):
            if text:
                print(f"{'':10} {name}: {text}")
    counted_apart = [verdict.word for verdict in found if verdict.source == "arithmetic"]
    print(counted(verdict.word for verdict in found if verdict.source != "arithmetic"))
    if counted_apart:
        print(f"and by arithmetic alone, of the papers' own numbers: {counted(counted_apart)}")


def counted(words: Iterable[str]) -> str:
    """How many there are of each verdict.

    Examples
    --------
    >>> counted(["PASS", "KNOWN", "PASS"])
    '2 PASS, 0 FAIL, 1 NOT REPRODUCED (documented), 0 SKIP'
    """
    counts = Counter(words)
    return ", ".join(f"{counts[word]} {shown(word)}" for word in WORDS)


def named(values, digits: int = 1) -> str:
    """A Series with its names, as numbers of a verdict."""
    return ", ".join(f"{name} {value:.{digits}f}" for name, value in values.items())
