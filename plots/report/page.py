"""One self-contained page about a folder of results: figures, table, provenance, failures. It loads
no other files.

Nothing in the records or the environment can run: the template escapes text, data is JSON without
``<``, the page's script writes text only as text, and a content security policy allows the page's
own scripts alone, by their hash.
"""

import json
import os
from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from pandas import DataFrame

from drbench.measure.record import HEADER, RecordError
from drbench.plots.draw.style import LIBRARIES
from drbench.plots.draw.svg import spots, svg_text
from drbench.plots.registry import figures
from drbench.plots.select.cases import Options, SelectionError, names
from drbench.plots.select.records import Records, frame, parts, place_of_rows, read_records, rows

from .verdict import verdict

_HERE = Path(__file__).parent
_MOST_PROVENANCE = 400  # rows of one environment file
_IN_OTHERS = ("mlp1", "mlp2")  # the panels of mlp
_DESCRIPTIONS = {"mode": "", "label": "", "ranks": "ranks ", "threads": "threads a rank "}


def build(paths: Sequence[str | os.PathLike]) -> str:
    """Build the page of folders of results, or of result files, on one page.

    Raises
    ------
    ValueError
        If they hold no records, or a file cannot be read.
    """
    records = read_records(paths)
    names = ", ".join(map(os.fspath, paths))
    if records.empty:
        raise RecordError(f"{names} holds no records. Run a sweep into it first.")
    folders = [path if path.is_dir() else path.parent for path in map(Path, paths)]
    provenance = [
        file | {"name": f"{folder.name}/{file['name']}" if len(folders) > 1 else file["name"]}
        for folder in dict.fromkeys(folders)
        for file in environments(folder)
    ]
    rows_of = [file["rows"] for file in provenance]
    provenance = [
        file
        for at, file in enumerate(provenance)
        if file["trouble"] or file["rows"] not in rows_of[:at]
    ]
    return page(records, provenance, ", ".join(Path(path).resolve().name for path in paths))


def environments(folder: Path) -> list[dict[str, Any]]:
    """Read ``environment.json`` and ``environments/*.json``, those of the parts of a sweep
    included: ``[{"name", "rows": [(key, value)], "trouble"}]``.

    A file that cannot be read is included: its ``trouble`` is the reason.
    """
    described, own = [], place_of_rows(folder) / "environment.json"
    within = [*map(place_of_rows, parts(folder))]
    files = [own] if own.is_file() or not within else []
    files += [part / own.name for part in within]
    for place in (own.parent, *within):
        files += sorted((place / "environments").glob("*.json"))
    for file in files:
        rows, trouble = [], f"no {file.name} next to the records"
        if file.is_file():
            try:
                rows = _flat("", json.loads(file.read_text(encoding="utf-8")))
                left = len(rows) - _MOST_PROVENANCE
                trouble = f"{left} more rows are in the file" * (left > 0)
            except (ValueError, OSError, RecursionError) as error:
                trouble = f"cannot be read: {error}"
        name = file.relative_to(folder).as_posix()
        described.append({"name": name, "rows": rows[:_MOST_PROVENANCE], "trouble": trouble})
    return described


def page(records: Records, provenance: list[dict[str, Any]], name: str) -> str:
    """Return the page of some records.

    Examples
    --------
    >>> from drbench.measure.record import Record
    >>> text = page(
    ...     [Record(mode="measured", status="failed", reason="</script><script>alert(1)</script>")],
    ...     [],
    ...     "<b>",
    ... )
    >>> "alert(1)</script>" in text, "<title>&lt;b&gt;" in text
    (False, True)
    """
    table = frame(records)
    figures, lacking = drawn(table)
    every = rows(table)
    script = (_HERE / "report.js").read_text(encoding="utf-8")
    return render_page(
        "report.html",
        script,
        name=name,
        caption=caption(table),
        verdict=verdict(table),
        total=len(every),
        figures=figures,
        lacking=lacking,
        failures=[row for row in every if row.status != "ok"],
        provenance=provenance,
        data=embed_json(
            {
                "count": len(every),
                "columns": columns(table),
                "spots": [figure["spots"] for figure in figures],
                "samples": [  # in thousandths of the median
                    [round(1e3 * seconds / row.time_s) for seconds in row.samples_s]
                    if row.mode == "measured" and row.time_s
                    else []
                    for row in every
                ],
            }
        ),
    )


def caption(table: DataFrame) -> str:
    """The labels and threads of the cases, with the dates of the first and the last.

    Examples
    --------
    >>> from drbench.measure.record import Record
    >>> caption(frame([Record(mode="measured", status="ok", best_s=1.0, label="here", ranks=2)]))
    'measured, here, ranks 2'
    """
    days = sorted({str(time)[:10] for time in table.timestamp.dropna()})
    texts = [
        names([str(value) for value in table[name].dropna().unique()]) for name in _DESCRIPTIONS
    ]
    named = [text and f"{what}{text}" for text, what in zip(texts, _DESCRIPTIONS.values())]
    return ", ".join(filter(None, [*named, " to ".join(dict.fromkeys(days[:1] + days[-1:]))]))


def drawn(table: DataFrame) -> tuple[list[dict[str, Any]], list[str]]:
    """Draw every figure that the records allow: ``[{"name", "title", "notes", "svg", "spots"}]``,
    and the reasons for omitted ones. A figure with one mark compares nothing."""
    pictures, lacking = [], []
    # a row a library, or a row a data movement
    libraries = table.algorithm.isin(LIBRARIES).any()
    left_out = *_IN_OTHERS, "algorithms" if libraries else "libraries"
    for figure in figures().values():
        if figure.read is not read_records or figure.name in left_out:
            continue
        if figure.name == "mlp" and (table.groupby("layer").m.nunique() < 2).all():
            lacking.append("mlp: only one batch size of each layer.")
            continue
        try:
            picture, notes = figure.make(table, Options())
        except SelectionError as error:
            lacking.append(f"{figure.name}: {error}")
            continue
        marks = spots(picture)
        if len(marks) < 2:
            lacking.append(f"{figure.name}: only one mark, and nothing to compare it with.")
            continue
        title = figure.summary[:1].upper() + figure.summary[1:]
        described = {"name": figure.name, "title": title, "notes": notes}
        pictures.append({**described, "svg": svg_text(picture), "spots": marks})
    return pictures, lacking


def columns(table: DataFrame) -> dict[str, list]:
    """The columns with values: ``[values]``, or for a column of few distinct values ``[values,
    places]``: these values, and the position of each row's value. Samples are beside the columns.

    Examples
    --------
    >>> from drbench.measure.record import Record
    >>> of = lambda m: Record(mode="measured", status="ok", best_s=1 / 3, label="here", m=m)
    >>> by_name = columns(frame([of(1), of(2)]))
    >>> by_name["m"], by_name["label"], by_name["best_s"]
    ([[1, 2]], [['here'], [0, 0]], [[0.333333], [0, 0]])
    """
    values_of = {}
    for name in (*HEADER, "moved_bytes"):
        values = [_short(value) for value in table[name].to_numpy(object, na_value=None)]
        known = {value: place for place, value in enumerate(dict.fromkeys(values))}
        if name != "samples_s" and known.keys() - {None}:
            few = len(known) <= max(1, len(values) // 3)
            values_of[name] = [list(known), [known[value] for value in values]] if few else [values]
    return values_of


def _short(value: Any) -> Any:
    if isinstance(value, list):
        return " ".join(map(str, value))
    return float(f"{value:.6g}") if isinstance(value, float) else value


def render_page(template: str, script: str, **values: Any) -> str:
    """A page from a template of this folder, with a policy that allows this script alone."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    digest = b64encode(sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; "
        "img-src data: blob:; base-uri 'none'; form-action 'none'"
    )
    templates = Environment(
        autoescape=True,
        loader=FileSystemLoader(_HERE),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return templates.get_template(template).render(policy=policy, script=script, **values)


def embed_json(value: Any) -> str:
    """JSON that is safe inside a script element: without ``<``, ``>`` and ``&``.

    Examples
    --------
    >>> embed_json({"a": "</script>"})
    '{"a":"\\\\u003c/script\\\\u003e"}'
    """
    # NaN and infinity, which JSON has not, become null
    finite = json.loads(json.dumps(value), parse_constant=lambda name: None)
    text = json.dumps(finite, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _flat(key: str, value: Any) -> list[tuple[str, str]]:
    """Nested values as rows of dotted keys.

    Examples
    --------
    >>> _flat("", {"mpi": {"version": 4}, "hosts": ["a", "b"], "ranks": [{"host": "a"}]})
    [('mpi.version', '4'), ('hosts', 'a, b'), ('ranks.0.host', 'a')]
    """
    if isinstance(value, dict):
        return [
            row
            for name, item in value.items()
            for row in _flat(f"{key}.{name}" if key else str(name), item)
        ]
    if isinstance(value, list) and any(isinstance(item, (dict, list)) for item in value):
        return [row for number, item in enumerate(value) for row in _flat(f"{key}.{number}", item)]
    text = ", ".join(map(str, value)) if isinstance(value, list) else value
    return [(key, "" if text is None else str(text))]
