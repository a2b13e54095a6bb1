"""Claims of a paper as data, and their verdicts from records."""

import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import nan
from pathlib import Path
from typing import Any

from numpy import array, maximum, minimum, triu_indices

from drbench.model.machine import Machine

#: Texts of verdicts.
HOLDS = {True: "holds", False: "does not hold", None: "undecided"}
#: Verdicts in files. KNOWN: the claim does not hold, and the documentation explains why. SKIP: its
#: records are missing.
WORDS = ("PASS", "FAIL", "KNOWN", "SKIP")
#: Changed machines, by the name of those that they replace.
Changed = Mapping[str, Machine]


def describe_word(word: str) -> str:
    """The text of a verdict for readers.

    Examples
    --------
    >>> [describe_word(word) for word in WORDS]
    ['PASS', 'FAIL', 'NOT REPRODUCED (documented)', 'SKIP']
    """
    return "NOT REPRODUCED (documented)" if word == "KNOWN" else word


@dataclass(frozen=True)
class Claim:
    """A sentence of a paper, and its check on records.

    Attributes
    ----------
    name, text : str
        As P7; the claim, and its place in the paper.
    check : callable
        Gets the rows of the paper and the query; returns whether the claim holds (None: undecided),
        and our numbers, or yields both for each of several cases, all of which must hold.
    theirs : str
        The paper's number, or its words without one.
    threshold : str
        The condition under which the claim holds.
    records : str
        The files that it is checked on, and their machine.
    see : str
        The place in the documentation that explains why the claim does not hold; empty if it does.
    query : sequence
        Arguments of the check after the rows: which of them, and which of their numbers.
    source : str
        The source of our number: ``measured`` (ranks that ran), ``simulated``, or ``arithmetic``
        (bytes, FLOPs, constants of the paper).
    why, little : str
        In a sentence why the claim does not hold, and why it proves little if it holds: such
        claims are named beside the count.
    later : bool
        Whether the claim was added after the first 69 of the papers: such claims are counted apart.
    """

    name: str
    text: str
    check: Callable[..., tuple[bool | None, str] | Iterable[tuple[bool, str]]]
    theirs: str = ""
    threshold: str = ""
    records: str = ""
    see: str = ""
    query: Sequence[Any] = ()
    source: str = "simulated"
    why: str = ""
    little: str = ""
    later: bool = False


@dataclass(frozen=True)
class ClaimVerdict:
    """A claim and its verdict.

    Attributes
    ----------
    holds : bool or None
        None if undecided.
    ours : str
        Our numbers, which decide it.
    """

    claim: Claim
    holds: bool | None
    ours: str

    @property
    def word(self) -> str:
        """One of :data:`WORDS`. A claim that holds contrary to the documentation is a FAIL too,
        since the documentation is wrong.

        Examples
        --------
        >>> why, none = (Claim("P0", "", bool, see=see) for see in ("page.md#p0", ""))
        >>> [ClaimVerdict(why, holds, "").word for holds in (True, False, None)]
        ['FAIL', 'KNOWN', 'SKIP']
        >>> [ClaimVerdict(none, holds, "").word for holds in (True, False, None)]
        ['PASS', 'FAIL', 'SKIP']
        """
        if self.holds is None:
            return "SKIP"
        if self.claim.see:
            return "FAIL" if self.holds else "KNOWN"
        return "PASS" if self.holds else "FAIL"

    @property
    def reason(self) -> str:
        """Why the claim does not hold, or why it proves little that it holds; otherwise empty.

        Examples
        --------
        >>> claim = Claim("P0", "", bool, why="links are slow", little="the limit is wide")
        >>> [ClaimVerdict(claim, holds, "").reason for holds in (True, False, None)]
        ['the limit is wide', 'links are slow', '']
        """
        return {True: self.claim.little, False: self.claim.why}.get(self.holds, "")


def check_claims(
    claims: Iterable[Claim], rows: Any, wanted: Callable[[str], bool] = bool
) -> list[ClaimVerdict]:
    """Check every claim whose name is ``wanted`` on rows. A claim with missing rows is undecided,
    and reports them.

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
            holds, ours = join_verdicts(claim.check(rows, *claim.query))
        except (KeyError, StopIteration, ValueError) as error:
            what = error if isinstance(error, KeyError) else "a case of the figure"
            holds, ours = None, f"records missing: {what}"
        out.append(ClaimVerdict(claim, holds, ours))
    return out


def join_verdicts(result) -> tuple[bool | None, str]:
    """What a check returns for one case, of what it returns or yields: all must hold.

    Examples
    --------
    >>> join_verdicts([(True, "a"), (False, "b")]), join_verdicts((None, "c"))
    ((False, 'a; b'), (None, 'c'))
    """
    verdicts, texts = zip(*[result] if isinstance(result, tuple) else result)
    return (None if None in verdicts else all(verdicts)), "; ".join(texts)


class ResultRows:
    """A table of rows, selected by their values: records, rows of studies, published numbers.

    Attributes
    ----------
    table : DataFrame
    ranges : ResultRows
        Published ranges of whole figures, if there is such a table.
    """

    def __init__(self, table, ranges=None):
        self.table, self.ranges = table, ranges

    def where(self, **values):
        """The rows with these values; a list matches any of its values.

        Raises
        ------
        KeyError
            If there are no such rows.

        Examples
        --------
        >>> from pandas import DataFrame
        >>> rows = ResultRows(DataFrame({"m": [8, 16, 32], "mode": ["simulated"] * 3}))
        >>> [len(rows.where(m=8)), len(rows.where(m=[8, 32], mode="simulated"))]
        [1, 2]
        >>> rows.where(m=64)
        Traceback (most recent call last):
        KeyError: 'rows with m 64'
        """
        table, mask = self.table, True
        for name, value in values.items():
            column = table[name]
            mask &= column.isin(value) if isinstance(value, list) else column == value
        table = table[mask] if values else table  # once: there may be a hundred columns
        if table.empty:
            words = ", ".join(f"{name} {value}" for name, value in values.items())
            raise KeyError(f"rows with {words}")
        return table

    def ours(self, **values):
        """The simulated rows with these values."""
        return self.where(mode="simulated", **values)

    def by(self, value: str, across: str, down: str | list[str], **values):
        """A table of a value of the simulated rows with these values, by columns ``across`` and
        ``down``.

        Examples
        --------
        >>> from pandas import DataFrame
        >>> table = DataFrame({"m": [8, 8, 16], "by": ["a", "b", "a"], "s": [1.0, 2.0, 4.0]})
        >>> rows = ResultRows(table.assign(mode="simulated"))
        >>> rows.by("s", "by", "m").to_dict("list")
        {'a': [1.0, 4.0], 'b': [2.0, nan]}
        """
        rows = self.ours(**values)
        return rows.pivot_table(value, down, across, aggfunc="first", sort=False)

    def paired(self, same: list[str], **values):
        """The published rows with these values, each joined with the simulated one of the same
        values: ``x`` is the paper's, ``x_ours`` ours."""
        theirs = self.where(mode="published")
        return ResultRows(theirs.merge(self.ours(), on=same, suffixes=("", "_ours"))).where(
            **values
        )


@dataclass(frozen=True)
class Paper:
    """A reproduced paper: the ``PAPER`` of a module of :mod:`drbench.launch.papers`.

    Attributes
    ----------
    title : str
    claims : sequence of Claim
    read : callable
        ``read(folder)``: the rows to check, such as the simulated rows in ``results/simulated``.
    judged : callable
        ``judged(rows, results)``: the argument of the checks: these rows with published ones.
    rows : RowFiles of :mod:`drbench.plots.select.typed_rows`
        The type of rows of a study.
    studies : dict
        Name of a CSV file of rows -> function that simulates them.
    folder : str
        Folder of these files below ``results``.
    quick : tuple of str
        Studies that take a few seconds.
    machines : dict
        Machine -> its constants that are varied, by each of ``factors``; empty for the assumed
        ones.
    alternatives : dict
        Another assumption, in words -> machine -> the machine that replaces it; that transfers
        share links fairly is one of every paper.
    simulate : callable
        ``simulate(changed)``: the simulated rows with some changed machines.
    """

    title: str
    claims: Sequence[Claim]
    read: Callable[[Path], Any]
    judged: Callable[[Any, Path], Any] = lambda rows, results: rows
    rows: Any = None
    studies: Mapping[str, Callable[[], list]] = field(default_factory=dict)
    folder: str = ""
    quick: tuple[str, ...] = ()
    machines: Mapping[str, Sequence[str]] = field(default_factory=dict)
    factors: tuple[float, ...] = (0.75, 1.25)
    alternatives: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    simulate: Callable[[Changed], Any] | None = None

    def verdicts(self, results: Path, wanted: Callable[[str], bool] = bool) -> list[ClaimVerdict]:
        """The verdicts of the wanted claims on committed records, which are not read for none."""
        claims = [claim for claim in self.claims if wanted(claim.name)]
        rows = self.judged(self.read(results / "simulated"), results) if claims else None
        return check_claims(claims, rows)

    def write_study(self, name: str, path: Path) -> None:
        """Simulate a study again, and write its rows."""
        self.rows.write(path, self.studies[name]())


def read_claims(paper: str, checks: Mapping[str, tuple]) -> tuple[Claim, ...]:
    """The claims of a paper, as ``launch/data/claims`` has their words, each with its check and the
    arguments of that after the rows."""
    path = Path(__file__).parents[1] / f"data/claims/{paper}.toml"
    return tuple(
        Claim(name, check=check, query=query, **words)
        for name, words in tomllib.loads(path.read_text("utf-8")).items()
        for check, *query in [checks[name]]
    )


def concordance(
    times: Sequence[float], predicted: Sequence[float], factor: float = 1.10
) -> tuple[float, int]:
    """(share of pairs in the predicted order, number of pairs), of pairs of cases whose times
    differ by more than ``factor``. Without such pairs the share is NaN.

    Examples
    --------
    >>> concordance([1.0, 2.0, 4.0, 4.1], [1.1, 2.2, 2.0, 2.1])
    (0.6, 5)
    >>> concordance([1.0, 1.05], [1.1, 2.2])
    (nan, 0)
    """
    first, other = triu_indices(len(times), 1)
    (t, u), (p, q) = ((values[first], values[other]) for values in map(array, (times, predicted)))
    right = ((t < u) == (p < q))[maximum(t, u) > factor * minimum(t, u)]
    return float(right.mean()) if len(right) else nan, len(right)


def count_words(words: Iterable[str]) -> str:
    """A text with the number of each verdict.

    Examples
    --------
    >>> count_words(["PASS", "KNOWN", "PASS"])
    '2 PASS, 0 FAIL, 1 NOT REPRODUCED (documented), 0 SKIP'
    """
    counts = Counter(words)
    return ", ".join(f"{counts[word]} {describe_word(word)}" for word in WORDS)


def name_values(values, digits: int = 1) -> str:
    """A text of a Series with its names, for a verdict."""
    return ", ".join(f"{name} {value:.{digits}f}" for name, value in values.items())
