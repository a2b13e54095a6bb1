"""The machine model against this machine: concordance and errors of predicted and measured times
of many cases.

    drbench calibrate -p 2 --save here.toml
    drbench sweep benchmarks/model/model.toml -p 2 -o model=here.toml --out measured
    drbench sweep benchmarks/model/model.toml -p 2 --simulate --machine here.toml --out predicted
    python -m benchmarks model.model measured/records.csv predicted/records.csv

Cases are the 27 partition triples of row, column and block × Stationary C, B, A at 2048³ and at
both MLP shapes with hidden size 1024. Wants a quiet machine; about a minute and a half a round.

On two virtual nodes of this machine (MPICH's ``MPIR_CVAR_NUM_CLIQUES=2
MPIR_CVAR_CLIQUES_BY_BLOCK=1``) four ranks take the place of the two, ``calibrate --nodes`` makes
the file, and both sweeps get ``-o transport=auto -o roof=true -o budget=0``: tiles are read in
place inside a node, and cross by RMA. The roof, local GEMMs alone, is timed between the repeats,
and shares of the roof are compared: a shared machine may be half as fast for minutes as when it was
calibrated, which no order of cases mends.

On two ranks block and column are the same partition, so that up to eight cases are one program. How
far apart these are measured is what the measurement cannot tell apart; so the pick is compared as a
program, with all its repeats, under whichever name they ran.
"""

from pathlib import Path
from typing import NamedTuple

from pandas import DataFrame

from benchmarks.__main__ import parser_of
from drbench.model.fit import spread
from launch.papers.accuracy import CASE, at_calibrated_pace, beside, concordance
from launch.papers.ledger import dealt
from plots.select.records import read_records


class Errors(NamedTuple):
    """How far predictions are from times: the share of pairs of cases in the right order, of how
    many; the median of the absolute errors, the median error, the least and the largest, percent.
    """

    concordance: float
    pairs: int
    median: float
    bias: float
    least: float
    most: float


class Picks(NamedTuple):
    """Going by the prediction, for the programs of one shape: how far the pick, the median one, and
    column with Stationary C are above the best measured, percent, counting all repeats of a program
    under whichever name they ran; and how far apart the same program was measured under eight
    names."""

    programs: int
    pick: float
    median: float
    column: float
    apart: float


def errors(pairs: DataFrame) -> Errors:
    right, total = concordance(zip(pairs.time_s, pairs.predicted_s))
    error = 100 * pairs.error
    return Errors(right, total, error.abs().median(), error.median(), error.min(), error.max())


class Held(NamedTuple):
    """Of so many cases the share whose time lies in the interval that the other half's residuals
    make, and the median of half these intervals, both in percent."""

    cases: int
    share: float
    half: float


def held(pairs: DataFrame) -> Held:
    """Programs are dealt to two halves by a coin that always falls the same."""
    ratios = pairs.time_s / pairs.predicted_s
    names = pairs[[*CASE]].astype(str).agg(" ".join, axis=1)
    half = names.map(dealt)
    ends = {each: spread(list(ratios[half != each])) for each in (False, True)}
    low, high = (half.map({each: pair[at] for each, pair in ends.items()}) for at in (0, 1))
    inside = (ratios >= low) & (ratios <= high)
    return Held(len(pairs), 100 * inside.mean(), 100 * ((high - low) / 2).median())


def picks(pairs: DataFrame) -> Picks:
    """What is in :class:`Picks`, of the cases of one shape."""
    forms = ["a", "b", "c"]
    same = pairs.assign(**pairs[forms].replace("block", "column"))  # on two ranks
    by = [*forms, "stationary"]
    programs = same.groupby(by, sort=False).agg(
        least=("time_s", "min"),
        most=("time_s", "max"),
        cases=("time_s", "size"),
        model=("predicted_s", "first"),
    )
    apart = (programs.most / programs.least)[programs.cases == 8].median()
    times = same.explode("samples_s").groupby(by, sort=False).samples_s.median()
    above = 100 * (times / times.min() - 1)
    return Picks(
        len(programs),
        above[programs.model.idxmin()],
        above.median(),
        above.get(("column", "column", "column", "C"), float("nan")),
        100 * (apart - 1),
    )


def report(measured: DataFrame, predicted: DataFrame) -> None:
    """Print how far the prediction of each case is from its time, and what comes of going by it."""
    pairs = beside(measured, predicted)
    several = pairs.nodes.gt(1).any()
    if several:
        print("of times:", describe(errors(pairs)), "; all below is of shares of the roof")
        pairs = beside(at_calibrated_pace(measured, predicted), predicted)
    print(f"{len(pairs)} cases measured and predicted, {len(measured) - len(pairs)} not ok")
    print("all:", describe(errors(pairs)), describe(held(pairs)))
    for shape, each in pairs.groupby(["m", "n", "k"], sort=False):
        print(*shape, describe(errors(each)), "" if several else describe(picks(each)))


def describe(numbers: NamedTuple) -> str:
    """Names and values.

    Examples
    --------
    >>> describe(Held(243, 91.23456, 4.0))
    'cases=243 share=91.23 half=4'
    """
    return " ".join(f"{name}={value:.4g}" for name, value in numbers._asdict().items())


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("measured", type=Path)
    parser.add_argument("predicted", type=Path)
    given = parser.parse_args()
    measured, predicted = (read_records([path]) for path in (given.measured, given.predicted))
    if measured.nodes.gt(1).any():  # measured rows name the transport that auto came to
        predicted["transport"] = measured.transport.dropna().iloc[0]
    report(measured, predicted)


if __name__ == "__main__":
    main()
