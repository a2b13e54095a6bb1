"""Claims of a paper, and what records say of them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

#: What a claim does.
WORDS = {True: "holds", False: "does not hold", None: "undecided"}


@dataclass(frozen=True)
class Verdict:
    """A claim and what the records say: ``holds`` is None if they cannot say."""

    claim: str
    text: str
    holds: bool | None
    numbers: str


def verdicts(
    claims: dict[str, tuple[str, Callable[[Any], tuple[bool | None, str]]]], found: Any
) -> list[Verdict]:
    """Check every claim: its words, and a check that gets what was found and says whether it holds,
    and the numbers. One whose records are missing is undecided and says what is missing.

    Examples
    --------
    >>> claims = {"P0": ("it is there", lambda found: (found["it"] > 0, f"it is {found['it']}"))}
    >>> [(verdict.holds, verdict.numbers) for verdict in verdicts(claims, {"it": 3})]
    [(True, 'it is 3')]
    >>> [(verdict.holds, verdict.numbers) for verdict in verdicts(claims, {})]
    [(None, "records missing: 'it'")]
    >>> verdicts({"P0": ("the best of none", lambda found: (min(found), ""))}, [])[0].numbers
    'records missing: a case of the figure'
    """
    out = []
    for name, (text, check) in claims.items():
        try:
            holds, numbers = check(found)
        except (KeyError, StopIteration, ValueError) as error:
            what = error if isinstance(error, KeyError) else "a case of the figure"
            holds, numbers = None, f"records missing: {what}"
        out.append(Verdict(name, text, None if holds is None else bool(holds), numbers))
    return out


def show(found: Iterable[Verdict]) -> None:
    """Print each claim, and the numbers below it."""
    for verdict in found:
        print(f"{verdict.claim:4} {WORDS[verdict.holds]:14} {verdict.text}")
        print(f"{'':19} {verdict.numbers}")


def named(values, digits: int = 1) -> str:
    """A Series with its names, as numbers of a verdict."""
    return ", ".join(f"{name} {value:.{digits}f}" for name, value in values.items())
