"""``drbench compare``, ``plot`` and ``report``: what records tell."""

import csv
import io
import json
import re
import sys
from pathlib import Path

import click

from drbench.errors import EXIT_CODES, MissingError, UsageError
from drbench.measure.record import FORMULA_STARTS, OPTION_COLUMNS
from launch.host.files import check_output, write_output
from launch.host.units import plural

from .options import command, csv_option, json_option, option, reading, save_option

#: Fields that tell one case from another at a glance, in the order they are printed.
_TOLD = ("algorithm", *OPTION_COLUMNS, *"m n k a b c ranks transport dtype".split())
_RATIOS = tuple("outcome best_ratio median_ratio median_ratio_low median_ratio_high".split())


@command()
@click.argument("old", type=click.Path(exists=True))
@click.argument("new", type=click.Path(exists=True))
@option(
    "--tolerance",
    type=click.FloatRange(0, 10),
    default=0.05,
    help="How much slower a case may be: 0.05 for 5 %.",
)
@option(
    "--limit",
    type=click.IntRange(0),
    default=40,
    help="Rows of the table; what is left out is counted.",
)
@csv_option()
@json_option()
def compare(old, new, tolerance, limit, csv_path, as_json):
    """Compare NEW with OLD, case by case: result files, or folders of sweeps.

    A case is slower if its best and its median time are both beyond the tolerance and noise,
    estimated from its samples, does not explain it. Exit code 1 if a case is slower or no longer
    ok, else 0.

    \b
      drbench compare results/measured/before results/measured/here --tolerance 0.1
    """
    check_output("--csv", csv_path)
    from launch.studies.compare import KEYS, REGRESSIONS, summary
    from launch.studies.compare import compare as judge
    from plots.select.records import read_records

    with reading() as caught:
        sides = [read_records([path]) for path in (old, new)]
    pairs, notes = judge(*sides, tolerance)
    found = summary(pairs)
    rows = [_row(pair, KEYS) for pair in pairs]
    if csv_path:
        _write(csv_path, rows)
    for text in [str(warning.message) for warning in caught] + notes:
        click.echo(text, err=True)
    if as_json:
        click.echo(
            json.dumps({"tolerance": tolerance, "summary": found, "cases": rows}, allow_nan=False)
        )
    else:
        _show(pairs, found, tolerance, limit)
    return (
        EXIT_CODES["wrong"] if any(found[outcome] for outcome in REGRESSIONS) else EXIT_CODES["ok"]
    )


def _row(pair, keys) -> dict:
    told = pair.new or pair.old
    return (
        dict(zip(_RATIOS, (pair.outcome, pair.best, pair.median, pair.low, pair.high)))
        | {
            f"{age}_{name}": getattr(side, name) if side else None
            for name in ("best_s", "median_s", "status", "reason")
            for age, side in (("old", pair.old), ("new", pair.new))
        }
        | {name: getattr(told, name) for name in keys}
    )


def _write(path: str, rows: list[dict]) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _cell(value) for name, value in row.items()} for row in rows)
    write_output("--csv", path, text.getvalue())


def _cell(value):
    """A value as a record's cell holds it: no text that a spreadsheet would run."""
    if isinstance(value, str) and value.startswith(FORMULA_STARTS):
        return "'" + value
    return str(value).lower() if isinstance(value, bool) else value


def _show(pairs, found: dict, tolerance: float, limit: int) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from launch.studies.compare import OUTCOMES

    listed = [pair for pair in pairs if pair.outcome not in ("same", "noise", "failing")]
    say = Console(
        file=sys.stdout, highlight=False, soft_wrap=True, width=400
    )  # a terminal wraps a long line better than a table its cells
    if listed:
        varying = [
            name
            for name in _TOLD
            if len({getattr(pair.new or pair.old, name) for pair in pairs}) > 1
        ] or ["algorithm"]
        table = Table(box=None, padding=(0, 1), pad_edge=False)
        for name in ("outcome", "best", "median", "99 % of median", *varying, "why"):
            table.add_column(
                name,
                justify="right" if name in ("best", "median", "m", "n", "k") else "left",
                no_wrap=True,
            )
        for pair in listed[:limit]:
            told = pair.new or pair.old
            span = "" if pair.low is None else f"{pair.low:.3f} to {pair.high:.3f}"
            why = _why(pair)
            cells = (
                pair.outcome,
                _ratio(pair.best),
                _ratio(pair.median),
                span,
                *(_plain(getattr(told, name)) for name in varying),
                why,
            )
            table.add_row(*(Text(cell) for cell in cells))
        say.print(table)
        if len(listed) > limit:
            say.print(f"... and {len(listed) - limit} more; --limit or --csv shows them")
    counts = ", ".join(f"{found[name]} {name}" for name in OUTCOMES if found[name])
    say.print(
        f"{plural(found['compared'], 'case')} compared at tolerance {100 * tolerance:g} %: {counts}"
    )
    if found["compared"]:
        middle = f", median times {found['median']:.3f}" if found["median"] is not None else ""
        roof = f"; roof {found['roof']:.3f}" if found["roof"] is not None else ""
        say.print(f"NEW / OLD, median over the cases: best times {found['best']:.3f}{middle}{roof}")
    if found["unknown_noise"]:
        say.print(
            f"noise unknown: {plural(found['unknown_noise'], 'case')}, with fewer than 3 samples "
            "on a side"
        )


def _why(pair) -> str:
    if pair.old is None or pair.new is None:
        return "only in NEW" if pair.old is None else "only in OLD"
    if pair.old.status == pair.new.status == "ok":
        return ""
    reason = pair.new.reason or pair.old.reason or ""
    return f"{pair.old.status} -> {pair.new.status}: {reason[:120]}"


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _plain(value) -> str:
    return "" if value is None else str(value)[:40]


class Shape(click.ParamType):
    """Three sizes, as ``64x3072x768``."""

    name = "shape"

    def convert(self, value, param, ctx):
        """(m, n, k) of the text."""
        if isinstance(value, tuple):
            return value
        found = re.fullmatch(r"([1-9]\d{0,11})x([1-9]\d{0,11})x([1-9]\d{0,11})", value, re.ASCII)
        if not found:
            self.fail(f"a shape is MxNxK, as 64x3072x768; got {value!r}.", param, ctx)
        return tuple(map(int, found.groups()))


@command()
@click.argument("name", required=False)
@click.argument("files", nargs=-1, type=click.Path(exists=True, allow_dash=True))
@save_option()
@option(
    "--moving-only",
    is_flag=True,
    help="Leave out cases that move no bytes at all, as the paper does.",
)
@option(
    "--quantity",
    type=click.Choice(["auto", "peak", "roof"]),
    default="auto",
    help="Percent of what; auto: of the roof where it was measured, else of peak.",
)
@option(
    "--axis",
    type=click.Choice(["fitted", "paper"]),
    default="fitted",
    help="Of the MLP figures: fitted to the data, or 0 to 100 as in the paper.",
)
@option("--shape", type=Shape(), metavar="MxNxK", help="Only this shape.")
def plot(name, files, save, **options):
    """Draw figure NAME from result files, folders of a sweep, published numbers, or - (standard
    input).

    \b
      drbench list figures
      drbench plot mlp1 results/measured/here results/published/h100.csv -o mlp1.pdf
      drbench plot best results/measured/here/records.csv --shape 64x768x192
    """
    if name is None:
        raise UsageError("which figure? Name one of those that drbench list figures shows.")
    from plots.registry import draw, find

    check_output("--save", save)
    with reading("Use files that can be read and a folder that can be written.") as caught:
        find(name)
        if not files:
            raise UsageError(
                f"what shall {name} be drawn from? Give it result files, or - for standard input."
            )
        drawn = draw(name, files, name if save is None else save, **options)
    for text in [str(warning.message) for warning in caught] + drawn.notes:
        click.echo(text, err=True)
    for path in drawn.paths:
        click.echo(f"figure: {path}")
    return 0


@command()
@click.argument("folders", metavar="DIR...", nargs=-1, required=True, type=click.Path(exists=True))
@save_option()
def report(folders, save):
    """Write one self-contained HTML page about each DIR, the folder of a sweep (or a result file).

    On top how many cases ended how, and the fastest one of each problem; then interactive figures,
    a table that filters and sorts, where the numbers come from, and what failed and why. Parts of a
    sweep (--parts) in one DIR are joined. The page loads nothing from the network.

    \b
      drbench report results/measured/here -o report.html
    """
    check_output("--save", save)
    try:
        import jinja2  # noqa: F401
        import plotly  # noqa: F401
    except ImportError as error:
        raise MissingError(
            f"a report needs {error.name}, which is not installed. Run: pip install jinja2 plotly."
        ) from None
    from plots.report.page import build

    one = Path(folders[0])
    beside = one if one.is_dir() else one.parent
    out = Path(save) if save else (beside if len(folders) == 1 else Path()) / "report.html"
    with reading("Use a path that can be read.") as caught:
        page = build(folders)
    write_output("--save", out, page)
    for warning in caught:
        click.echo(str(warning.message), err=True)
    click.echo(
        f"report: {out} ({out.stat().st_size / 2**20:.1f} MiB, nothing outside it is loaded)"
    )
    return 0
