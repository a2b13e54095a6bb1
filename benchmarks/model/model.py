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
calibrated, which no order of cases corrects.

On two ranks block and column are the same partition, so that up to eight cases are one program. The
spread of these is the resolution of the measurement; so the pick is compared as a program, with all
its repeats, under whichever name they ran.
"""

from pathlib import Path
from typing import NamedTuple

from pandas import DataFrame

from benchmarks.__main__ import parser_of
from drbench.model.fit import spread
from launch.papers.claims import concordance
from launch.papers.ledger import dealt
from plots.select.records import read_records

#: Columns in which a measured and a predicted row of one case agree.
CASE = ["m", "n", "k", "a", "b", "c", "stationary", "transport", "ranks"]


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


def at_calibrated_speed(measured, predicted):
    """The measured rows with the times they would have had, had the machine been as fast as when it
    was calibrated.

    The local GEMMs between the repeats of a case, its roof, are the same work as those that the
    model predicts. So a time is the predicted roof over the measured share of the roof, the median
    of pairs: the comparison is then of shares of the roof. Rows without a roof, or without a
    prediction, are left out.

    Parameters
    ----------
    measured, predicted : DataFrame
        As of :func:`paired`.

    Examples
    --------
    The machine was half as fast in the second case as in the first, and as the model has it.

    >>> from drbench.measure.record import Record
    >>> from plots.select.records import frame
    >>> case = {"m": 8, "n": 8, "k": 8, "a": "row", "b": "row", "stationary": "C", "ranks": 2}
    >>> case |= {"status": "ok", "transport": "rma"}
    >>> ran = [("row", 2.0, 50.0), ("column", 8.0, 25.0)]
    >>> measured = frame(
    ...     [
    ...         Record(mode="measured", c=c, best_s=time, percent_of_roof=share, **case)
    ...         for c, time, share in ran
    ...     ]
    ... )
    >>> predicted = frame(
    ...     [Record(mode="simulated", c=c, best_s=3.0, local_gemm_s=1.0, **case) for c, *_ in ran]
    ... )
    >>> list(at_calibrated_speed(measured, predicted).time_s)
    [2.0, 4.0]
    """
    roofs = predicted[[*CASE, "local_gemm_s"]].rename(columns={"local_gemm_s": "roof_s"})
    found = measured.merge(roofs, on=CASE)
    found = found.assign(time_s=100 * found.roof_s / found.percent_of_roof)
    return found[found.time_s.notna()]


def paired(measured, predicted):
    """The measured rows that are ok and were predicted, with the columns ``predicted_s`` and
    ``error``, its share above the measured time, the median of the repeats.

    Parameters
    ----------
    measured, predicted : DataFrame of :func:`plots.select.records.read_records`
        Of the measured, several rows may be of one case (:data:`CASE`).
    """
    times = predicted[[*CASE, "time_s"]].rename(columns={"time_s": "predicted_s"})
    pairs = measured[measured.status == "ok"].merge(times, on=CASE)
    return pairs.assign(error=pairs.predicted_s / pairs.time_s - 1)


def errors(pairs: DataFrame) -> Errors:
    right, total = concordance(pairs.time_s, pairs.predicted_s)
    error = 100 * pairs.error
    return Errors(right, total, error.abs().median(), error.median(), error.min(), error.max())


class Held(NamedTuple):
    """Number of cases, the share with times in the interval from the other half's residuals, and
    the median of half these intervals, both in percent."""

    cases: int
    share: float
    half: float


def held(pairs: DataFrame) -> Held:
    """Deal programs to two halves, pseudo-randomly but always the same."""
    ratios = pairs.time_s / pairs.predicted_s
    names = pairs[[*CASE]].astype(str).agg(" ".join, axis=1)
    half = names.map(dealt)
    ends = {each: spread(list(ratios[half != each])) for each in (False, True)}
    low, high = (half.map({each: pair[at] for each, pair in ends.items()}) for at in (0, 1))
    inside = (ratios >= low) & (ratios <= high)
    return Held(len(pairs), 100 * inside.mean(), 100 * ((high - low) / 2).median())


def picks(pairs: DataFrame) -> Picks:
    """The :class:`Picks` of the cases of one shape."""
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
    """Print the error of each case's prediction, and the result of choosing by predictions."""
    pairs = paired(measured, predicted)
    several = pairs.nodes.gt(1).any()
    if several:
        print("of times:", describe(errors(pairs)), "; all below is of shares of the roof")
        pairs = paired(at_calibrated_speed(measured, predicted), predicted)
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
