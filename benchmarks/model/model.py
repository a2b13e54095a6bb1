"""The machine model against this machine: concordance and errors of predicted and measured times
of many cases.

    drbench calibrate -p 2 --save here.toml
    drbench sweep benchmarks/model/model.toml -p 2 -o machine=here.toml --out measured
    drbench sweep benchmarks/model/model.toml -p 2 --simulate --machine here.toml --out predicted
    python -m benchmarks model.model measured/records.csv predicted/records.csv

Cases are the 27 partition triples of row, column and block × Stationary C, B, A at 2048³ and at
both MLP shapes with hidden size 1024. Wants a quiet machine; about a minute and a half a round.

On two virtual nodes of this machine (MPICH's ``MPIR_CVAR_NUM_CLIQUES=2
MPIR_CVAR_CLIQUES_BY_BLOCK=1``) four ranks take the place of the two, ``calibrate --nodes`` makes
the file, and both sweeps get ``-o transport=auto -o gemm_only=true -o budget=0``: tiles are read in
place inside a node, and cross by RMA. GEMM-only time is taken between the repeats, and shares of
GEMM-only speed are compared: a shared machine may be half as fast for minutes as when it was
calibrated, which no order of cases corrects.

The columns are those of docs/results/model-accuracy.md.
"""

from pathlib import Path

from pandas import DataFrame

from benchmarks.__main__ import parser_of
from benchmarks.pages.tables import table
from drbench.launch.papers.claims import concordance
from drbench.launch.papers.ledger import choose_half, in_intervals, time_errors
from drbench.model.fit import spread
from drbench.plots.select.records import read_records
from drbench.texts import shape_text

#: Columns in which a measured and a predicted row of one case agree.
CASE = ["m", "n", "k", "a", "b", "c", "stationary", "transport", "ranks"]
#: What is compared, and its unit in the ledger: of GEMM-only speed the percentage.
UNITS = {"time_s": "s", "percent_of_gemm_only": "%"}
#: Columns of :func:`summary`.
SUMMARY = ("numbers", "pairs in order", "mean error", "bias", "range", "in interval")


def summary(rows: DataFrame) -> tuple:
    """How far predictions are from times: how many there are; the share of pairs of cases in the
    right order, of how many; the mean of the absolute errors, the median error and the ends of all;
    the share of times in their intervals, and half the width of the median interval.

    Parameters
    ----------
    rows : DataFrame
        With the columns ``unit``, ``value``, ``predicted``, ``low`` and ``high`` of the ledger
        (:class:`drbench.launch.papers.ledger.LedgerRow`).

    Examples
    --------
    >>> rows = {"value": [1.0, 2.0], "predicted": [1.1, 1.8], "low": 1.0, "high": 1.5, "unit": "s"}
    >>> summary(DataFrame(rows))
    (2, '1.000 of 1', '10.0 %', '+0.0 %', '−10 to +10 %', '50 % in ±18 %')
    """
    of_time = rows.unit == "s"  # a share of GEMM-only speed is inverse to a time
    times = (rows[name].where(of_time, 1 / rows[name]) for name in ("value", "predicted"))
    right, count = concordance(*times)
    percent = 100 * time_errors(rows)
    ends = f"{percent.min():+.0f} to {percent.max():+.0f} %"
    cells = f"{percent.abs().mean():.1f} %", f"{percent.median():+.1f} %", ends
    inside, half = in_intervals(rows)
    return (
        len(rows),
        f"{right:.3f} of {count}" if count else "",
        *(cell.replace("-", "−") for cell in cells),
        f"{100 * inside:.0f} % in ±{half:.0f} %" if inside >= 0 else "",
    )


def paired(measured, predicted, column: str = "time_s"):
    """The measured rows that are ok and were predicted, with the column ``predicted_s``: times, or
    another predicted ``column``.

    Parameters
    ----------
    measured, predicted : DataFrame of :func:`drbench.plots.select.records.read_records`
        Of the measured, several rows may be of one case (:data:`CASE`).
    """
    values = predicted[[*CASE, column]].rename(columns={column: "predicted_s"})
    pairs = measured[measured.status == "ok"].merge(values, on=CASE)
    return pairs[pairs[column].notna()]


def with_intervals(pairs: DataFrame, column: str = "time_s") -> DataFrame:
    """The pairs as rows of the ledger, with intervals from the residuals of the other half of the
    programs: these are distributed to two halves, pseudo-randomly but always the same."""
    value, predicted = pairs[column], pairs.predicted_s
    half = pairs[CASE].astype(str).agg(" ".join, axis=1).map(choose_half)
    ends = {
        is_first: spread(list((value / predicted)[half != is_first])) for is_first in (False, True)
    }
    low, high = (half.map({is_first: pair[at] for is_first, pair in ends.items()}) for at in (0, 1))
    unit, intervals = UNITS[column], {"low": low * predicted, "high": high * predicted}
    return pairs.assign(unit=unit, value=value, predicted=predicted, **intervals)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("measured", type=Path)
    parser.add_argument("predicted", type=Path)
    given = parser.parse_args()
    measured, predicted = (read_records([path]) for path in (given.measured, given.predicted))
    columns = ["time_s"]
    if measured.nodes.gt(1).any():  # measured rows name the transport that auto came to
        predicted["transport"] = measured.transport.dropna().iloc[0]
        columns.append("percent_of_gemm_only")
    tables = {
        column: with_intervals(paired(measured, predicted, column), column) for column in columns
    }
    pairs = tables[columns[-1]]
    shapes = pairs.groupby(["m", "n", "k"], sort=False)
    tables |= {shape_text(*shape): rows for shape, rows in shapes}
    print(table(["", *SUMMARY], [(name, *summary(rows)) for name, rows in tables.items()]), end="")
    print(f"{len(measured) - len(pairs)} cases are not ok, or were not predicted")


if __name__ == "__main__":
    main()
