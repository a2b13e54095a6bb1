"""Claims of a paper as data, and what records say of them."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: What a claim does.
HOLDS = {True: "holds", False: "does not hold", None: "undecided"}
#: Verdicts as files have them. KNOWN: the claim does not hold, and the documentation says so and
#: why. SKIP: its records are missing.
WORDS = ("PASS", "FAIL", "KNOWN", "SKIP")
#: Where our number of a claim comes from: ranks that ran, a machine model, counting (bytes, FLOPs,
#: constants of the paper), or other people's numbers alone.
SOURCES = ("measured", "simulated", "arithmetic", "published")
#: Machines that are changed, by name: :class:`~launch.models.simulate_sweeps.Variant`.
Changed = Mapping[str, Any]


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
    name, text : str
        As P7; what is claimed, and where the paper says it.
    check : callable
        Gets the rows of the paper; returns whether the claim holds (None: they do not say), and our
        numbers.
    theirs : str
        The paper's number in short words, or what it says where it gives none.
    threshold : str
        By what the claim holds.
    records : str
        The files that it is judged on, and their machine.
    see : str
        Where the documentation says that the claim does not hold, and why; empty if it does.
    source : str
        One of :data:`SOURCES`.
    """

    name: str
    text: str
    check: Callable[[Any], tuple[bool | None, str]]
    theirs: str = ""
    threshold: str = ""
    records: str = ""
    see: str = ""
    source: str = "simulated"


@dataclass(frozen=True)
class Verdict:
    """A claim and what the records say.

    Attributes
    ----------
    holds : bool or None
        None if the records cannot say.
    ours : str
        Our numbers: what decides it.
    """

    claim: Claim
    holds: bool | None
    ours: str

    @property
    def word(self) -> str:
        """One of :data:`WORDS`. A claim that holds although the documentation says it does not is a
        FAIL too: the documentation is wrong.

        Examples
        --------
        >>> why, none = (Claim("P0", "", bool, see=see) for see in ("page.md#p0", ""))
        >>> [Verdict(why, holds, "").word for holds in (True, False, None)]
        ['FAIL', 'KNOWN', 'SKIP']
        >>> [Verdict(none, holds, "").word for holds in (True, False, None)]
        ['PASS', 'FAIL', 'SKIP']
        """
        if self.holds is None:
            return "SKIP"
        if self.claim.see:
            return "FAIL" if self.holds else "KNOWN"
        return "PASS" if self.holds else "FAIL"


def check_claims(
    claims: Iterable[Claim], rows: Any, wanted: Callable[[str], bool] = bool
) -> list[Verdict]:
    """Check every claim whose name is ``wanted`` on rows. A claim whose rows are missing is
    undecided and says what is missing.

    Examples
    --------
    >>> claims = [Claim("P0", "it is there", lambda found: (found["it"] > 0, f"{found['it']}"))]
    >>> [(verdict.holds, verdict.ours) for verdict in check_claims(claims, {"it": 3})]
    [(True, '3')]
    >>> [(verdict.holds, verdict.ours) for verdict in check_claims(claims, {})]
    [(None, "records missing: 'it'")]
    >>> check_claims(claims, {"it": 3}, wanted=lambda name: name == "P1")
    []
    >>> check_claims([Claim("P0", "best of none", lambda found: (min(found), ""))], [])[0].ours
    'records missing: a case of the figure'
    """
    out = []
    for claim in claims:
        if not wanted(claim.name):
            continue
        try:
            holds, ours = claim.check(rows)
        except (KeyError, StopIteration, ValueError) as error:
            what = error if isinstance(error, KeyError) else "a case of the figure"
            holds, ours = None, f"records missing: {what}"
        out.append(Verdict(claim, None if holds is None else bool(holds), ours))
    return out


def each(cases: Callable[..., Iterable[tuple[bool, str]]], *given) -> Callable:
    """The check of a claim that holds if it holds in every case that a function yields, with the
    text of each; after the rows the function gets what is given."""

    def check(rows):
        held, texts = zip(*cases(rows, *given))
        return all(held), "; ".join(texts)

    return check


class Rows:
    """A table of rows, chosen by their values: records, rows of studies, published numbers.

    Attributes
    ----------
    table : DataFrame
    ranges : DataFrame
        What a text says of figures as a whole, if there is such a table.
    """

    def __init__(self, table, ranges=None):
        self.table, self.ranges = table, ranges

    def where(self, *, table=None, **values):
        """The rows with these values; of several values, in a list, any.

        Raises
        ------
        KeyError
            If there are none.

        Examples
        --------
        >>> from pandas import DataFrame
        >>> rows = Rows(DataFrame({"m": [8, 16, 32], "mode": ["simulated"] * 3}))
        >>> [len(rows.where(m=8)), len(rows.where(m=[8, 32], mode="simulated"))]
        [1, 2]
        >>> rows.where(m=64)
        Traceback (most recent call last):
        KeyError: 'rows with m 64'
        """
        found = self.table if table is None else table
        for name, value in values.items():
            column = found[name]
            found = found[column.isin(value) if isinstance(value, list) else column == value]
        if found.empty:
            words = ", ".join(f"{name} {value}" for name, value in values.items())
            raise KeyError(f"rows with {words}")
        return found

    def range(self, **values):
        """The published range with these values; KeyError if there is none."""
        return self.where(table=self.ranges, **values).iloc[0]


@dataclass(frozen=True)
class Paper:
    """What is reproduced of a paper: a module of :mod:`launch.papers` has one, ``PAPER``.

    Attributes
    ----------
    title : str
    claims : sequence of Claim
    read : callable
        ``read(folder)``: what is judged, as the simulated rows in ``results/simulated``.
    judged : callable
        ``judged(rows, results)``: what the checks get: these rows and published ones beside them.
    rows : Rows of :mod:`plots.select.typed_rows`
        What a row of a study is.
    studies : dict
        Name of a CSV file of rows -> what simulates them anew.
    folder : str
        Of these files in ``results/simulated``.
    quick : tuple of str
        Studies that take a few seconds.
    machines : tuple of str
        Machines whose assumed constants are varied, by each of ``factors``.
    changes : callable
        Further changes: pairs of words, and a machine's name -> its variant.
    simulate : callable
        ``simulate(changed)``: the simulated rows, some machines being replaced by variants.
    """

    title: str
    claims: Sequence[Claim]
    read: Callable[[Path], Any]
    judged: Callable[[Any, Path], Any] = lambda rows, results: rows
    rows: Any = None
    studies: Mapping[str, Callable[[], list]] = field(default_factory=dict)
    folder: str = ""
    quick: tuple[str, ...] = ()
    machines: tuple[str, ...] = ()
    factors: tuple[float, ...] = (0.75, 1.25)
    changes: Callable[[], Iterable[tuple[str, Changed]]] = tuple
    simulate: Callable[[Changed], Any] | None = None

    def verdicts(
        self, results: Path, wanted: Callable[[str], bool] = bool, folder: str = "simulated"
    ) -> list[Verdict]:
        """What committed records say of the claims that are wanted; for none they are not read."""
        claims = [claim for claim in self.claims if wanted(claim.name)]
        rows = self.judged(self.read(results / folder), results) if claims else None
        return check_claims(claims, rows)

    def write_study(self, name: str, path: Path) -> None:
        """Simulate a study anew, and write its rows."""
        self.rows.write(path, self.studies[name]())


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
