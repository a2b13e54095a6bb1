"""References: bounds of cases, by the label of what ran, in a file that is made from a sweep and
edited by hand; and the outcome of each case.

A reference is of the cases with its label and its ``case``, the text of all that was asked.
"""

from math import inf
from pathlib import Path
from typing import NamedTuple

from pandas import DataFrame

from drbench.measure.record import REQUEST, WHERE, RecordError

from .records import rows
from .typed_rows import RowFiles

_ASKED = [*REQUEST, *WHERE[1:]]
#: The columns that :func:`add_values` adds, and of which they are.
_VALUES = {
    "value": ("percent_of_gemm_only", "time_s"),
    "low": ("percent_of_gemm_only_low", "median_low_s"),
    "high": ("percent_of_gemm_only_high", "median_high_s"),
}
#: What each outcome is, the worst first; the first that is true counts. ``missing`` are references
#: without a case, or of a quantity that it does not have; ``new`` are cases without a reference.
OUTCOMES = {
    "failing": "status == status and status not in ['ok', 'unsupported']",
    "new": "quantity != quantity",
    "missing": "value != value or quantity not in ['gemm_only', 'time']",
    "inside": "lower * 0.99999 <= value <= upper * 1.00001",  # the file has six digits
    "noise": "hollow == True or mode == 'measured' and low <= upper and high >= lower",
    "outside": "value == value",
}

class Reference(NamedTuple):
    """Bounds of a case: percent of GEMM-only speed (quantity ``gemm_only``), or seconds
    (``time``); None is no bound."""

    label: str
    quantity: str
    lower: float | None
    upper: float | None
    case: str


FILES = RowFiles(Reference, "references", "drbench compare DIR --as-reference FILE")


def add_cases(table):
    """Records with the column ``case``: what was asked and where it ran, without the label.

    Examples
    --------
    >>> from drbench.measure.record import Record
    >>> from .records import frame
    >>> run = Record(mode="measured", status="ok", best_s=1.0, m=8, label="here", nodes=1)
    >>> list(add_cases(frame([run])).case)
    ['mode=measured m=8 nodes=1']
    """
    words = lambda row: [f"{name}={x}" for name, x in zip(_ASKED, row) if x is not None]
    values = table[_ASKED].to_numpy(object, na_value=None)
    return table.assign(case=[" ".join(words(row)) for row in values])


def short_cases(cases):
    """The words of each case that not all have, or all if it has no others.

    Examples
    --------
    >>> short_cases(["m=8 n=8", "m=8 n=9", "m=8"])
    {'m=8 n=8': 'n=8', 'm=8 n=9': 'n=9', 'm=8': 'm=8'}
    """
    words = {case: case.split() for case in cases}
    common = set.intersection(*map(set, words.values())) if words else ()
    return {case: " ".join(x for x in words[case] if x not in common) or case for case in words}


def add_values(table, quantity=None):
    """Records and their cases with the columns ``quantity``, ``value``, ``low`` and ``high``, the
    ends of the 95 % interval: percent of GEMM-only speed (without a quantity if all rows of a case
    have it), or seconds."""
    if quantity is None:
        cases = table.percent_of_gemm_only.isna().groupby(table.label + table.case)
        quantity = cases.transform("any").map({True: "time", False: "gemm_only"})
    table = table.assign(quantity=quantity)
    for name, (percent, seconds) in _VALUES.items():
        table[name] = table[percent].where(table.quantity == "gemm_only", table[seconds])
    return table


def read_references(path, labels):
    """The references of some labels in a file, as a table.

    Raises
    ------
    RecordError
        If it is no such file, or has none of these labels.
    """
    every = DataFrame(FILES.read([path]), columns=Reference._fields)
    mine = every[every.label.isin(labels)].fillna({"lower": 0.0, "upper": inf}).infer_objects()
    if mine.empty:
        raise RecordError(
            f"{path} has references of {sorted({*every.label})}, and none of {sorted(labels)}. Add "
            "some with drbench compare DIR --as-reference FILE."
        )
    return mine


def judge_references(references, table):
    """A row for each case and each of its references, with its outcome."""
    pairs = references.merge(add_cases(table), "outer", ["label", "case"])
    pairs = add_values(pairs, pairs.quantity).assign(outcome="")
    for outcome, rule in OUTCOMES.items():
        pairs.loc[pairs.eval(rule) & (pairs.outcome == ""), "outcome"] = outcome
    return pairs


def add_references(path, table, quantity, tolerance):
    """Write a reference of each case of a table that is ok and not noisy to a file, which keeps
    those of other labels; return their number. A case may be worse by the tolerance, and better.

    Parameters
    ----------
    path : path
    table : DataFrame of :func:`.records.read_records`
    quantity : str or None
        ``gemm_only`` or ``time``; None: ``gemm_only`` where that was measured.
    tolerance : float
        0.05 for 5 %.
    """
    sure = add_cases(table.query("status == 'ok' and not hollow"))
    new = add_values(sure, quantity).query("value > 0")
    share = new.quantity == "gemm_only"
    new["lower"] = (new.value / (1 + tolerance)).where(share)
    new["upper"] = (new.value * (1 + tolerance)).mask(share)
    others = [x for x in FILES.read([path] * Path(path).exists()) if x.label not in {*table.label}]
    FILES.write(path, [*others, *(row[1:] for row in rows(new[[*Reference._fields]]))])
    return len(new)
