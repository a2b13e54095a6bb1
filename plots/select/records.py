"""Records as a table: result files, folders of sweeps, standard input and files of published
numbers become one pandas ``DataFrame``, a row a case.

A file of published numbers has the columns ``figure, system, devices, peak_tflops_per_device,
dtype, layer, series, m, n, k, gflops, source``, one row a point.
"""

import fcntl
import os
import re
import select
import stat
import sys
import termios
from collections import namedtuple
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from itertools import compress, count
from pathlib import Path
from typing import Any

from pandas import CategoricalDtype, DataFrame, Series

from drbench.measure.noise import measured_once
from drbench.measure.record import COUNTERS, HEADER, MODES, STATUSES, Record, RecordError
from drbench.measure.record_file import parse_columns, read_cells, read_csv

from .cases import NAMING, Source, factors, layer_of, line_of, series, variant

PUBLISHED_COLUMNS = (
    "figure system devices peak_tflops_per_device dtype layer series m n k gflops source"
).split()
_PUBLISHED = re.compile(b"figure[,;\t]system[,;\t]")
_DECIMAL = ("peak_tflops_per_device", "gflops")
Columns = dict[str, list]
#: The input of a selection: the table, or records that become one.
Records = DataFrame | Iterable[Record]
STDIN = "-"
_RECORDS = "records.csv"  # of a sweep's folder
_ROUNDS = "rounds"  # next to it: the rows of all rounds
_SWEEP = "sweep"  # the number of the file: rounds of two files were not interleaved
_READ = [*HEADER, _SWEEP]
_DTYPES = {int | None: "Int64", float | None: "float64", bool | None: "boolean", str | None: "str"}
_TYPES = {field.name: _DTYPES.get(field.type, "object") for field in fields(Record)} | {
    "mode": CategoricalDtype(MODES),
    "status": CategoricalDtype(STATUSES, ordered=True),
}
_Named = namedtuple("_Named", NAMING)
_NAMES = {
    "layer": layer_of,
    "line": line_of,
    "factors": factors,
    "series": series,
    "variant": variant,
}


def read_records(paths: Iterable[str | os.PathLike]) -> DataFrame:
    """Read result files and files of published numbers, distinguished by their headers, in order.

    Parameters
    ----------
    paths : iterable of path
        A folder means its ``records.csv`` and those of its parts (``part-1``, …), joined to one
        sweep, or without one all its CSV files; ``-`` is standard input. A file of another schema
        is refused.

    Returns
    -------
    DataFrame
        A row a case, numbered from 0, with the columns of
        :class:`drbench.measure.record.Record`, units in their names (``_s`` seconds, ``_bytes`` of
        all ranks together, ``gflops`` 1e9 a second, ``percent_`` 0 to 100). Integers are ``Int64``,
        floats ``float64`` (an empty cell is NaN), truths ``boolean``, texts ``str``; ``mode`` and
        ``status`` are categories, ``samples_s`` lists. The columns that are derived:

        ``time_s``
            The time of a case, as :attr:`Record.time_s`. ``gflops`` is of this time in all rows.
        ``hollow``
            Whether a case is known to be noisy, or was measured once: drawn hollow, never ranked.
        ``once``
            Whether it was measured once.
        ``moved_bytes``
            The sum of all kinds of bytes, as :attr:`Record.moved_bytes`.
        ``rounds``
            The records of a case by round, of a sweep that ran in rounds: round -> Record.
        ``source``, ``shape``
            The source of a case's numbers (:class:`drbench.plots.select.cases.Source`), and (m, n,
            k).
        ``layer``, ``line``, ``factors``, ``series``, ``variant``
            Results of the functions of :mod:`drbench.plots.select.cases` of these names; ``line``
            is the row of the MLP figures' legend.

    Raises
    ------
    RecordError
        If a file is neither, or a folder holds no CSV file.
    """
    columns: Columns = {name: [] for name in _READ}
    rounds: list[dict] = []
    number = count(1)
    for path in paths:
        files = [] if os.fspath(path) == STDIN else csv_files(path)
        data = [(file.read_bytes(), file) for file in files]
        data = data or [(_standard_input(), "standard input")]
        tables = [_parse(*file) for file in data]
        joined = _joined(
            [table | {_SWEEP: [next(number)] * len(table["case"])} for table in tables]
        )
        for column, values in joined.items():
            columns[column] += values
        turns = _rounds_next_to(files)
        rounds += [turns.get(case, {}) for case in joined["case"]]
    return _frame(columns, rounds)


def _rounds_next_to(files: Iterable[Path]) -> dict[str, dict[int, Record]]:
    """The records of each case by round, of sweeps with rows of their rounds."""
    rounds: dict[str, dict[int, Record]] = {}
    for file in files:
        if file.name == _RECORDS and (inside := place_of_rows(file.parent)) != file.parent:
            for record in read_csv(inside / _RECORDS):
                turn, _, case = str(record.case).partition(" | ")
                if turn.isdecimal():
                    rounds.setdefault(case, {})[int(turn)] = record
    return rounds


def with_input(words: Sequence[str]) -> list[str]:
    """The words of a command line, and ``-`` where standard input is read too: if no word is a file
    of records, or if it is a file or a pipe with data. A pipe whose writer is silent is not waited
    for next to files; a line reports it."""
    given = [
        word
        for before, word in zip(("", *words), words)
        if before != "--save" and (word == STDIN or os.path.exists(word))
    ]
    if STDIN in given or (given and not _has_input()):
        return list(words)
    return [STDIN, *words]


def _has_input(patience_s: float = 1.0) -> bool:
    if sys.stdin is None or stat.S_ISCHR(os.fstat(sys.stdin.fileno()).st_mode):
        return False  # closed, a terminal, or nothing
    if not select.select([sys.stdin], [], [], patience_s)[0]:
        sys.stderr.write("standard input is not read: a pipe without data. Give - to wait for it\n")
        return False
    return any(fcntl.ioctl(sys.stdin, termios.FIONREAD, bytes(4)))  # reads nothing yet


def _standard_input() -> bytes:
    if sys.stdin is None:
        raise RecordError("standard input is closed. Give result files.")
    if sys.stdin.isatty():
        raise RecordError(
            "standard input is a terminal, which has no records. Give result files, or redirect "
            "one: < records.csv."
        )
    return sys.stdin.buffer.read()


def given(source: Iterable, read: Callable) -> Any:
    """Records, or other rows, unchanged; of paths the result of ``read``."""
    if isinstance(source, DataFrame):
        return source
    source = list(source)
    are_paths = all(isinstance(item, (str, os.PathLike)) for item in source)
    return read(source) if are_paths else source


def frame(records: Records) -> DataFrame:
    """The table of some records; a table is given back as it is.

    Examples
    --------
    >>> case = Record(mode="measured", status="ok", best_s=1.0, m=4, get_bytes=8, a="row/c2")
    >>> frame([case])[["m", "moved_bytes", "a", "stationary", "factors"]].values.tolist()
    [[4, 8, 'row/c2', nan, (2, 1, 1)]]
    """
    if isinstance(records, DataFrame):
        return records
    return _frame(_columns(list(records)))


def rows(table: DataFrame) -> list:
    """The rows as named tuples of plain values, ``None`` where a cell is empty; ``Index`` is the
    number of the row.

    Examples
    --------
    >>> (row,) = rows(frame([Record(mode="measured", status="failed", reason="-", n=3)]))
    >>> row.Index, row.n, row.m, row.best_s, row.algorithm, row.status
    (0, 3, None, None, None, 'failed')
    """
    case = namedtuple("Case", ["Index", *table.columns])
    columns = table.to_numpy(object, na_value=None).T.tolist()
    return list(map(case, table.index.tolist(), *columns))


def read_published(path: str | os.PathLike) -> list[Record]:
    """Read published numbers as records of mode ``published``.

    The series is the ``algorithm``, the system and its devices are the ``label`` (``h100x8``),
    the source is kept as the ``reason``; ``percent_of_peak`` is of all devices together.

    Raises
    ------
    RecordError
        If the columns are others, or a row does not parse; the message gives file and line.
    """
    return _parse_published(Path(path).read_bytes(), path)


def csv_files(path: str | os.PathLike) -> list[Path]:
    """The CSV files of a path: itself, or those of a folder; of a sweep in parts (``part-1``,
    ``part-2``, …) those of the parts."""
    path = Path(path)
    if not path.is_dir():
        return [path]
    files = [folder / _RECORDS for folder in (path, *parts(path)) if (folder / _RECORDS).is_file()]
    files = files or sorted(file for file in path.glob("*.csv") if file.is_file())
    if not files:
        raise RecordError(
            f"{path} holds no CSV file. Give it the --out folder of a sweep, or a file."
        )
    return files


def place_of_rows(folder: Path) -> Path:
    """Where a sweep has the rows of all rounds, and what they ran with: a folder in its own."""
    inside = folder / _ROUNDS
    return inside if (inside / _RECORDS).is_file() else folder


def parts(folder: Path) -> list[Path]:
    """The folders of the parts of a sweep, in order."""
    numbered = {re.fullmatch("part-([0-9]+)", part.name): part for part in folder.glob("part-*")}
    return [numbered[match] for match in sorted(filter(None, numbered), key=lambda m: int(m[1]))]


def _joined(tables: list[Columns]) -> Columns:
    """The rows of the parts of a sweep as those of one: the first row of a case is kept."""
    columns = {name: [value for table in tables for value in table[name]] for name in _READ}
    if len(tables) == 1:
        return columns
    known = set()
    is_first = [case is None or not (case in known or known.add(case)) for case in columns["case"]]
    return {name: list(compress(values, is_first)) for name, values in columns.items()}


def _columns(records: list[Record]) -> Columns:
    return {name: [getattr(record, name) for record in records] for name in HEADER}


def _frame(columns: Columns, rounds: Iterable[dict] | None = None) -> DataFrame:
    table = DataFrame({name: Series(columns[name], dtype=_TYPES[name]) for name in HEADER})
    counts = table[list(COUNTERS)]
    total = sum(counts[name].fillna(0) for name in COUNTERS).mask(counts.isna().all(axis=1))
    once = map(measured_once, columns["mode"], columns["samples_s"], columns["case"])
    once = Series(list(once), table.index, bool)
    named = [_Named(*values) for values in zip(*(columns[name] for name in NAMING))]
    derived = {
        "source": list(map(Source, *(columns[name] for name in Source._fields))),
        "shape": list(zip(columns["m"], columns["n"], columns["k"])),
    }
    for name, function in _NAMES.items():
        known = {case: function(case) for case in set(named)}
        derived[name] = [known[case] for case in named]
    return table.assign(
        time_s=table.median_s.fillna(table.best_s),
        hollow=table.noisy.fillna(False).astype(bool) | once,
        once=once,
        moved_bytes=total,
        sweep=columns.get(_SWEEP, 0),
        rounds=list(rounds) if rounds is not None else [{}] * len(table),
        **{name: Series(values, dtype=object) for name, values in derived.items()},
    )


def _parse(data: bytes, path: str | os.PathLike) -> Columns:
    if _PUBLISHED.match(data[:200].translate(None, b'\0\xef\xbb\xbf\xff\xfe"')):
        return _columns(_parse_published(data, path))
    return parse_columns(data, path)


def _parse_published(data: bytes, path: str | os.PathLike) -> list[Record]:
    header, rows = read_cells(data, path, _DECIMAL)
    if [*header] != PUBLISHED_COLUMNS:
        raise RecordError(
            f"{path} is no file of published numbers: its columns are {', '.join(header) or 'none'}"
            f". Use the columns {', '.join(PUBLISHED_COLUMNS)}."
        )
    records = []
    for number, row in rows:
        try:
            records.append(_published(row))
        except (ValueError, ArithmeticError) as error:
            raise RecordError(f"{path}, line {number}: {error}. Correct the row.") from None
    return records


def _published(row: dict[str, str]) -> Record:
    m, n, k, devices = (int(row[name]) for name in ("m", "n", "k", "devices"))
    gflops = float(row["gflops"])
    peak_gflops = float(row["peak_tflops_per_device"]) * 1e3 * devices
    return Record(
        mode="published",
        label=f"{row['system']}x{devices}",
        algorithm=row["series"],
        m=m,
        n=n,
        k=k,
        dtype=row["dtype"],
        ranks=devices,
        status="ok",
        reason=row["source"],
        best_s=2 * m * n * k / (gflops * 1e9),
        gflops=gflops,
        percent_of_peak=100 * gflops / peak_gflops,
        peak_gflops=peak_gflops,
        peak_source=row["source"],
    )
