"""Records as an older drbench wrote them."""

import csv
import io
from pathlib import Path

from drbench.measure.record import HEADER

#: Columns that schema 12 called otherwise. It had no column of the machine model.
NAMES = {
    "label": "machine",
    "gemm_only_gflops": "roof_gflops",
    "percent_of_gemm_only": "percent_of_roof",
    "percent_of_gemm_only_min": "percent_of_roof_min",
    "percent_of_gemm_only_max": "percent_of_roof_max",
    "percent_of_gemm_only_low": "percent_of_roof_low",
    "percent_of_gemm_only_high": "percent_of_roof_high",
}
#: Written by that version: a row of each mode, and one that failed.
FILE = Path(__file__).parents[1] / "measure" / "schema-12.csv"


#: Columns that no older version had, and what version 12 did not have either.
NEW = {"13": {"slowest_rank", "slowest_rank_s"}}
NEW["12"] = NEW["13"] | {"machine"}


def in_version(records, version: str) -> bytes:
    """A file of records in an older schema."""
    names, text = [name for name in HEADER if name not in NEW[version]], io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow([NAMES.get(name, name) if version == "12" else name for name in names])
    for record in records:
        cells = dict(zip(HEADER, record.to_row())) | {"schema_version": version}
        lines.writerow([cells[name] for name in names])
    return text.getvalue().encode()
