"""References: bounds of cases, by the label of what ran, in a file that is made from a sweep and
edited by hand; and the outcome of each case.

A reference is of the cases with its label and its ``case``, the text of all that was asked.
"""

import re
from collections.abc import Collection, Iterable
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

from pandas import DataFrame

from drbench.measure.record import REQUEST, WHERE, RecordError

from .records import rows
from .rounds import completed
from .typed_rows import RowFiles

_ASKED = [*REQUEST, *WHERE[1:]]
_WORDS = re.compile(f" (?=(?:{'|'.join(_ASKED)})=)")
#: What each outcome is; the first that is true counts. ``missing`` are references without a case,
#: or of a quantity that it does not have; ``new`` are cases without a reference. The file has six
#: digits. Intervals of predictions are no noise.
OUTCOMES = {
    "failing": "status == status and status not in ['ok', 'unsupported']",
    "new": "quantity != quantity",
    "missing": "value != value or quantity not in ['gemm_only', 'time']",
    "inside": "lower * 0.99999 <= value <= upper * 1.00001",
    "noise": "hollow == True or mode == 'measured' and ("
    "quantity == 'time' and median_low_s <= upper and median_high_s >= lower or "
    "quantity == 'gemm_only' and percent_of_gemm_only_low <= upper "
    "and percent_of_gemm_only_high >= lower)",
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


def add_cases(table: DataFrame) -> DataFrame:
    """Records with the column ``case``: what was asked and where it ran, without the label.

    Examples
    --------
    >>> from drbench.measure.record import Record
    >>> from .records import frame
    >>> run = Record(mode="measured", status="ok", best_s=1.0, m=8, label="here", nodes=1)
    >>> list(add_cases(frame([run])).case)
    ['mode=measured m=8 nodes=1']
    """
    values = table[_ASKED].to_numpy(object, na_value=None)
    return table.assign(case=[_text_of(row) for row in values])


def _text_of(values: Iterable) -> str:
    return " ".join(f"{name}={x}" for name, x in zip(_ASKED, values) if x is not None)


def _keys_of(table: DataFrame) -> list[tuple]:
    """The label and what was asked of each row of a table with cases, None where unknown."""
    known = [dict(word.partition("=")[::2] for word in _WORDS.split(case)) for case in table.case]
    return [(label, *map(of.get, _ASKED)) for label, of in zip(table.label, known)]


def add_values(table: DataFrame, quantity: Any = None) -> DataFrame:
    """Records and their cases with the columns ``quantity`` and ``value``: percent of GEMM-only
    speed, or seconds.

    Parameters
    ----------
    table : DataFrame of :func:`add_cases`
    quantity : str, Series of str, or None
        ``gemm_only`` or ``time``; None: percent if all rows of a case have it.
    """
    percent = table.percent_of_gemm_only
    if quantity is None:
        lacks = percent.isna().groupby(table.label + table.case).transform("any")
        quantity = lacks.map({True: "time", False: "gemm_only"})
    table = table.assign(quantity=quantity)
    return table.assign(value=percent.where(table.quantity == "gemm_only", table.time_s))


def shorten_cases(table: DataFrame) -> DataFrame:
    """A table with the words in each ``case`` that not all have, or all if it has no others.

    Examples
    --------
    >>> list(shorten_cases(DataFrame({"case": ["m=8 n=8", "m=8 n=9", "m=8"]})).case)
    ['n=8', 'n=9', 'm=8']
    """
    common = set.intersection(*map(set, table.case.str.split()))
    own = lambda case: " ".join(word for word in case.split() if word not in common) or case
    return table.assign(case=table.case.map(own))


def read_references(path: str | Path, labels: Collection[str]) -> DataFrame:
    """The references of some labels in a file, as a table.

    Raises
    ------
    RecordError
        If it is no such file, or has none of these labels.
    """
    every = DataFrame(FILES.read([path]), columns=Reference._fields)
    mine = every[every.label.isin(labels)].fillna({"lower": -inf, "upper": inf}).infer_objects()
    if mine.empty:
        raise RecordError(
            f"{path} has references of {', '.join({*every.label})}, and none of "
            f"{', '.join(map(str, labels))}. Add some with drbench compare DIR "
            "--as-reference FILE, or name --label."
        )
    return mine


def judge_references(references: DataFrame, table: DataFrame) -> DataFrame:
    """A row for each case and each of its references, with its outcome. Of a case that is not ok,
    which does not know what drbench would have chosen, the reference is the only one that agrees.

    Parameters
    ----------
    references : DataFrame of :func:`read_references`
    table : DataFrame of :func:`.records.read_records`
    """
    table = add_cases(table)
    is_ok = [*[True] * len(references), *(table.status == "ok")]
    keys = completed([*_keys_of(references), *_keys_of(table)], is_ok)[len(references) :]
    table = table.assign(case=[_text_of(values) for _, *values in keys])
    pairs = references.merge(table, "outer", ["label", "case"])
    pairs = add_values(pairs, pairs.quantity).assign(outcome="")
    for outcome, rule in OUTCOMES.items():
        pairs.loc[pairs.eval(rule) & (pairs.outcome == ""), "outcome"] = outcome
    return shorten_cases(pairs)


def add_references(
    path: str | Path, table: DataFrame, quantity: str | None, tolerance: float
) -> int:
    """Write a reference of each case of a table that is ok and not noisy to a file, which keeps
    those of other labels; return the number. A case may be worse by the tolerance, and better.

    Parameters
    ----------
    path : path
    table : DataFrame of :func:`.records.read_records`
    quantity : str or None
        As :func:`add_values` takes it.
    tolerance : float
        0.05 for 5 %.

    Raises
    ------
    RecordError
        If the path is no file, or one of another type.
    """
    known = Path(path).is_file()
    if Path(path).exists() and not known:
        raise RecordError(f"{path} is no file whose rows can stay. Use the name of a file.")
    sure = add_cases(table.query("status == 'ok' and not hollow"))
    new = add_values(sure, quantity).query("value > 0")
    share = new.quantity == "gemm_only"
    new["lower"] = (new.value / (1 + tolerance)).where(share)
    new["upper"] = (new.value * (1 + tolerance)).mask(share)
    others = [x for x in FILES.read([path] * known) if x.label not in {*new.label}]
    FILES.write(path, [*others, *(row[1:] for row in rows(new[[*Reference._fields]]))])
    return len(new)
