"""One self-contained page about a folder of results: figures, table, provenance, failures. It loads
nothing from anywhere.

Nothing in the records or the environment can run: text goes through the template's escaping, data
through JSON in which no ``<`` is left, the page's script writes text only as text, and a content
security policy admits the page's own scripts by their hash.
"""

import json
import math
import os
from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any

from drbench.measure.record import HEADER
from plots.select.records import Records, frame, parts, read_records, rows

from .interactive import specs
from .verdict import verdict

_HERE = Path(__file__).parent
_MOST_PROVENANCE = 400  # rows of one environment file


def build(paths: Sequence[str | os.PathLike]) -> str:
    """Build the page of folders of results, or of result files, on one page.

    Raises
    ------
    ValueError
        If there is no record in them, or a file does not read.
    """
    records = read_records(paths)
    names = ", ".join(map(os.fspath, paths))
    if records.empty:
        raise ValueError(f"{names} holds no records. Run a sweep into it first.")
    folders = [path if path.is_dir() else path.parent for path in map(Path, paths)]
    provenance = [
        file | {"name": f"{folder.name}/{file['name']}" if len(folders) > 1 else file["name"]}
        for folder in dict.fromkeys(folders)
        for file in environments(folder)
    ]
    return page(records, provenance, ", ".join(Path(path).resolve().name for path in paths))


def environments(folder: Path) -> list[dict[str, Any]]:
    """Read ``environment.json`` and ``environments/*.json``, those of the parts of a sweep
    included: ``[{"name", "rows": [(key, value)], "trouble"}]``.

    A file that does not read is not passed over: its ``trouble`` says why.
    """
    found, own = [], folder / "environment.json"
    within = parts(folder)
    files = [own] if own.is_file() or not within else []
    files += [each / "environment.json" for each in within]
    for place in (folder, *within):
        files += sorted((place / "environments").glob("*.json"))
    for file in files:
        rows, trouble = [], f"there is no {file.name} beside the records"
        if file.is_file():
            try:
                rows = _flat("", json.loads(file.read_text(encoding="utf-8")))
                left = len(rows) - _MOST_PROVENANCE
                trouble = f"{left} more rows are in the file" * (left > 0)
            except (ValueError, OSError, RecursionError) as error:
                trouble = f"does not read: {error}"
        name = file.relative_to(folder).as_posix()
        found.append({"name": name, "rows": rows[:_MOST_PROVENANCE], "trouble": trouble})
    return found


def page(records: Records, provenance: list[dict[str, Any]], name: str) -> str:
    """Write the page of some records.

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
    figures, lacking = specs(table)
    every = rows(table)
    used = [name for name in HEADER if any(getattr(row, name) not in (None, []) for row in every)]
    used.append("moved_bytes")
    scripts = [
        (files("plotly") / "package_data" / "plotly.min.js").read_text(encoding="utf-8"),
        (_HERE / "report.js").read_text(encoding="utf-8"),
    ]
    return rendered(
        "report.html",
        scripts,
        name=name,
        verdict=verdict(table),
        total=len(every),
        figures=figures,
        lacking=lacking,
        failures=[row for row in every if row.status != "ok"],
        provenance=provenance,
        plotly=scripts[0],
        script=scripts[1],
        data=embedded(
            {
                "fields": used,
                "rows": [[getattr(row, name) for name in used] for row in every],
                "figures": [panel["spec"] for figure in figures for panel in figure["panels"]],
            }
        ),
    )


def rendered(template: str, scripts: Sequence[str], **values: Any) -> str:
    """A page of a template of this folder, with a policy that admits these scripts alone."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    hashes = " ".join(
        f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'" for script in scripts
    )
    policy = (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: "
        "blob:; base-uri 'none'; form-action 'none'"
    )
    made = Environment(
        autoescape=True,
        loader=FileSystemLoader(_HERE),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return made.get_template(template).render(policy=policy, **values)


def embedded(value: Any) -> str:
    """JSON that is safe inside a script element: no ``<``, ``>`` or ``&`` is left in it.

    Examples
    --------
    >>> embedded({"a": "</script>"})
    '{"a":"\\\\u003c/script\\\\u003e"}'
    """
    text = json.dumps(_finite(value), ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: those become null."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


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
    text = (
        ", ".join(map(str, value))
        if isinstance(value, list)
        else ""
        if value is None
        else str(value)
    )
    return [(key, text)]
