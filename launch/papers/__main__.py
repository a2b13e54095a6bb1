"""Rewrite the committed files of the papers after a change of the model or the records.

.. code-block:: text

   python -m drbench.launch.papers claims            # results/claims.csv: today's verdicts and
   numbers python -m drbench.launch.papers results ledger    # results/ledger.csv: today's
   predictions python -m drbench.launch.papers DIR weak flux8    # rows of these studies, or of all
   without a name
"""

import sys
from operator import attrgetter
from pathlib import Path

from pandas import DataFrame, read_csv

from drbench.launch.host.files import CHECKOUT

from . import papers
from .artifact import EXPECTED
from .claims import describe_word


def write_claims(path: Path) -> None:
    """Write the current verdicts of all papers as the expected ones, and print which change."""
    before = dict(zip(*map(read_csv(path).get, ("claim", "verdict")))) if path.exists() else {}
    values = attrgetter(
        *("claim.name", "word", "claim.source", "claim.text", "claim.theirs", "ours"),
        *("claim.threshold", "claim.records", "reason", "claim.see", "claim.later"),
    )
    rows = [
        values(verdict)
        for paper in papers().values()
        for verdict in paper.verdicts(CHECKOUT / "results")
    ]
    columns = "claim verdict source text theirs ours threshold records reason see later".split()
    DataFrame(rows, columns=columns).to_csv(path, index=False)
    changes = [
        f"{name}: {describe_word(before.get(name, 'no verdict'))} before, "
        f"{describe_word(word)} now {see}".rstrip()
        for name, word, *_, see, _ in rows
        if word != before.get(name)
    ]
    print(*changes or [f"the verdicts of all {len(rows)} claims are as before"], sep="\n")


def write_studies(folder: Path, wanted: list[str]) -> None:
    """Simulate studies again, and write their rows."""
    for paper in papers().values():
        for name in paper.studies:
            if not wanted or name in wanted:
                path = folder / paper.folder / f"{name}.csv"
                path.parent.mkdir(parents=True, exist_ok=True)
                paper.write_study(name, path)
                print(path)


def main(words: list[str]) -> None:
    """Run the command of the arguments."""
    if words == ["claims"]:
        write_claims(CHECKOUT / "results" / EXPECTED)
    elif words:
        write_studies(Path(words[0]), words[1:])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
