"""``drbench compare``, ``plot`` and ``report``: compare, draw and summarise records."""

import json
from collections import Counter
from math import inf
from pathlib import Path

import click

from drbench.errors import EXIT_CODES, UsageError
from drbench.launch.cases.case import shape_of
from drbench.launch.host.files import check_output, write_output, write_table
from drbench.measure.record import IDENTITY
from drbench.texts import number, plural, time_text

from .completion import names_of
from .options import (
    FILE,
    PAGE,
    allow_option,
    checked,
    command,
    csv_option,
    expect_option,
    json_option,
    option,
    output_frame,
    printing,
    quantity_option,
    reading,
    save_option,
    tolerance_option,
    verbose_option,
)

#: Rows of changed cases.
_MOST_PAIRS = 20
_RATIOS = tuple("outcome best_ratio median_ratio median_ratio_low median_ratio_high".split())


@command(
    needs={
        "--tolerance": "NEW --by --as-reference",
        "--quantity": "--as-reference",
    },
    useless={
        "--expect": "NEW --by --as-reference --limit",
        "--as-reference": "NEW --by --allow --limit --json --csv",
    },
)
@click.argument("old", type=click.Path(exists=True))
@click.argument("NEW", required=False, type=click.Path(exists=True))
@option(
    "--by",
    multiple=True,
    metavar="KEY[=OLD,NEW]",
    help="Compare values of a column, as threads or mpi=MPICH,Open; also those in OLD alone. "
    "Repeatable.",
)
@tolerance_option(help="Slowdown that is accepted: 0.05 for 5 %.")
@allow_option()
@expect_option()
@option(
    "--as-reference",
    type=FILE,
    metavar="FILE",
    group="Output",
    help="Write bounds of the cases of OLD to this file, which keeps those of other labels: each "
    "may become worse by the tolerance.",
)
@quantity_option()
@option(
    "--limit",
    type=click.IntRange(0),
    help="Rows of a table; the others are counted. [default: 5 of each problem; 20 of NEW]",
)
@csv_option(help="Write the rows to this file, which is replaced.")
@json_option()
@verbose_option(help="Show all rows and columns.")
def compare(
    old,
    new,
    by,
    tolerance,
    allow,
    expect,
    as_reference,
    quantity,
    limit,
    csv_path,
    as_json,
    verbose,
):
    """Compare NEW with OLD, case by case: result files, or folders of sweeps. With OLD alone, list
    the cases of each problem, the fastest first.

    A case is slower if its best and its median time are both beyond the tolerance and noise,
    estimated from its samples, does not explain it. The exit code is 1 if a case is slower or no
    longer ok, if cases are missing or fail, or if all are noisy. The list exits like the sweep,
    with the largest code of its cases. With --expect it is 1 if a case is outside its bounds, if
    cases are missing or fail, or if all are noisy.

    \b
      drbench compare before/records.csv after/records.csv --tolerance 0.1
      drbench compare runs/threads --by threads=1,2
      drbench compare results/measured/here --limit 5
      drbench compare results/measured/here --as-reference bounds.csv --tolerance 0.1
      drbench compare results/measured/here --expect bounds.csv
    """
    check_output("--csv", csv_path)
    check_output("--as-reference", as_reference)
    from drbench.plots.select.records import read_records

    with reading():
        table, *others = [read_records([path]) for path in (old, new) if path is not None]
    if expect or as_reference:
        from drbench.plots.select.references import add_references, read_references

        with reading():
            if expect:
                references = read_references(expect, {*table.label})
                return check_references(references, table, allow, printing()[0], csv_path, as_json)
            count = add_references(as_reference, table, quantity, tolerance)
        rows = plural(len(table), "row")
        click.echo(f"references: {as_reference}, {count} of {rows}; others are noisy or not ok")
        return EXIT_CODES["ok" if count else "wrong"]
    if new is None and not by:
        return _list(table, old, limit, allow, csv_path, as_json, verbose)
    from drbench.launch.studies.compare import compare as judge
    from drbench.launch.studies.compare import list_failures, select_sides, summarise

    chosen = {name: values for name, _, values in (text.partition("=") for text in by)}
    pairs, notes = judge(*select_sides(table, *others or [None], chosen), tolerance, chosen)
    counts = summarise(pairs)
    fails = list_failures(counts, allow)
    rows = [_row(pair) for pair in pairs]
    if csv_path:
        write_table(csv_path, rows)
    for text in notes:
        click.echo(text, err=True)
    if as_json:
        values = {"tolerance": tolerance, "summary": counts, "fails": fails, "cases": rows}
        click.echo(json.dumps(values, allow_nan=False))
    else:
        _show(pairs, counts, tolerance, limit, chosen, verbose, rows)
        if fails:
            printing()[1](f"failed: {', '.join(fails)}")
    return EXIT_CODES["wrong" if fails else "ok"]


def check_references(references, records, allow, out, csv_path=None, as_json=False) -> int:
    """Print which cases of a table of records are not inside their bounds; return the exit code."""
    from drbench.launch.studies.compare import list_failures
    from drbench.plots.select.references import OUTCOMES, judge_references

    pairs = judge_references(references, records)
    counts = Counter(pairs.outcome)
    fails = list_failures(counts, allow)
    listed = [f"{counts[name]} {name}" for name in OUTCOMES if counts[name]]
    answer = f"{', '.join(listed)} of {plural(len(pairs), 'case')}."
    names = "case outcome quantity value lower upper reason".split()
    output_frame(pairs[names], answer, out, csv_path, as_json, pairs.outcome != "inside")
    if fails and not as_json:
        out.line(f"failed: {', '.join(fails)}")
    return EXIT_CODES["wrong" if fails else "ok"]


def _list(
    records,
    path: str,
    limit: int | None,
    allow: tuple,
    csv_path: str | None,
    as_json: bool,
    verbose: bool,
) -> int:
    """Print the decision on each problem of a table of records, then its cases, the best first and
    unreliable ones last, and what is not ok; return the exit code."""
    from drbench.launch.sweeps.sweep import choose_exit_code as exit_code
    from drbench.launch.views import list_cases, write_tables
    from drbench.launch.views.problems import show_answer
    from drbench.plots.report.verdict import verdict
    from drbench.plots.select.records import rows
    from drbench.plots.select.rounds import merged

    if records.empty:
        raise UsageError(f"{path} holds no records. Give it a result file or a sweep that ran.")
    every = rows(merged(records))
    tables = list_cases(every)
    write_tables(tables, path, as_json, csv_path)
    if not as_json:
        show_answer(verdict(records), tables, printing()[0], path, limit, verbose)
    return EXIT_CODES["ok"] if "failing" in allow else exit_code(every)


def _row(pair) -> dict:
    row = dict(zip(_RATIOS, pair[2:]))
    for name in ("best_s", "median_s", "status", "reason"):
        for side in ("old", "new"):
            row[f"{side}_{name}"] = getattr(getattr(pair, side), name, None)
    return row | {name: getattr(pair.new or pair.old, name) for name in IDENTITY}


def _show(
    pairs, counts: dict, tolerance: float, limit: int | None, by, verbose: bool, values: list
) -> None:
    from drbench.launch.host.show import FORM, table
    from drbench.launch.views.tables import find_varying

    unchanged = "same", "noise", "failing", "refused"
    listed = [pair for pair in pairs if pair.outcome not in unchanged]
    listed.sort(key=lambda pair: -max(pair.median or 0, 1 / (pair.median or inf)))
    every = [pair.new or pair.old for pair in pairs]
    names = [name for name in find_varying(every) if name not in (*by, "preset")] or ["algorithm"]
    out, print_line = printing()
    print_line(compare_answer(counts, len(pairs), tolerance))
    if listed or FORM.get() == "csv":
        limit = _MOST_PAIRS if limit is None else limit
        rows = [
            (
                _case_text(pair.new or pair.old, names),
                _seconds(pair.old, verbose),
                _seconds(pair.new, verbose),
                "" if pair.median is None else f"{100 * (pair.median - 1):+.0f} %",
                pair.outcome,
                _why(pair),
            )
            for pair in listed[:limit]
        ]
        out.print(table("!~case|>!before|>!after|>!change|!outcome|~why", rows, values))
        if left := len(listed) - len(rows):
            print_line(f"{left} more: --limit {len(listed)}")
    if counts["unknown_noise"]:
        print_line(
            f"noise unknown: {plural(counts['unknown_noise'], 'case')}, with fewer than 3 samples "
            "on a side"
        )


def compare_answer(counts: dict, pairs: int, tolerance: float) -> str:
    """What changed, in one sentence.

    Examples
    --------
    >>> counts = {
    ...     "slower": 1,
    ...     "same": 5,
    ...     "compared": 6,
    ...     "median": 1.0,
    ...     "best": 1.0,
    ...     "gemm_only": 0.98,
    ... }
    >>> compare_answer(counts, 6, 0.05).partition(". ")[2]
    "Times × 1.000; the machine's GEMM-only speed × 0.980 (medians)."
    """
    from drbench.launch.studies.compare import OUTCOMES

    listed = ", ".join(f"{counts[name]} {name}" for name in OUTCOMES if counts.get(name))
    text = f"{listed} of {plural(pairs, 'case')} (±{100 * tolerance:g} %)."
    if not counts["compared"]:
        return text
    middle, speed = counts["median"] or counts["best"], counts["gemm_only"]
    more = f"; the machine's GEMM-only speed × {speed:.3f}" if speed is not None else ""
    return f"{text} Times × {middle:.3f}{more} (medians)."


def _seconds(record, spread: bool) -> str:
    """The time of a record, with ``spread`` also the half of its interval."""
    if record is None or record.status != "ok":
        return "-"
    low, high = record.median_low_s, record.median_high_s
    half = f" ±{number(50 * (high - low) / record.time_s, 2)} %" if spread and low and high else ""
    return f"{time_text(record.time_s)}{half}"


def _why(pair) -> str:
    if pair.old is None or pair.new is None:
        return "only in NEW" if pair.old is None else "only in OLD"
    if pair.old.status == pair.new.status == "ok":
        return ""
    reason = pair.new.reason or pair.old.reason or ""
    return f"{pair.old.status} -> {pair.new.status}: {reason[:120]}"


def _case_text(record, names: list[str]) -> str:
    """The text of a case: its sizes if they differ, its algorithm and layouts, and other fields
    that differ."""
    from drbench.plots.select.cases import case_name

    sizes = [f"{name} {getattr(record, name)}" for name in "mnk" if name in names]
    known = {*"mnkabc", "algorithm", "stationary", "dataflow", "mesh", "slices", "preset"}
    values = ((name, getattr(record, name)) for name in names if name not in known)
    more = [f"{name} {str(value)[:40]}" for name, value in values if value is not None]
    return " ".join([*sizes, case_name(record), *more])


@command()
@click.argument("name", required=False, shell_complete=names_of("figures"))
@click.argument("files", nargs=-1, type=click.Path(exists=True, allow_dash=True))
@save_option()
@option(
    "--moving-only",
    is_flag=True,
    help="Leave out cases that move no bytes, as the paper does.",
)
@option(
    "--quantity",
    type=click.Choice(["auto", "peak", "gemm_only"]),
    default="auto",
    help="What percentages refer to; auto: GEMM-only speed if it was measured, else the peak.",
)
@option(
    "--axis",
    type=click.Choice(["paper", "fitted"]),
    default="paper",
    help="Of the MLP figures: 0 to 100 as in the paper, or fitted to the data.",
)
@option("--shape", type=checked(shape_of), metavar="MxNxK", help="Only this shape.")
@option(
    "--width",
    type=click.FloatRange(2, 20),
    default=7.0,
    metavar="INCHES",
    help="Width of the figure in inches; 3.4 is a paper's column.",
)
@option(
    "--height",
    type=click.FloatRange(0.5, 20),
    metavar="INCHES",
    help="Height of each panel in inches. [default: the figure's]",
)
@option("--font", default="DejaVu Sans", metavar="FAMILY", help="Font, as serif or STIXGeneral.")
@option("--title", default="", help="Title instead of the default one.")
@option("--no-title", "title", flag_value=" ", help="Leave the title out.")
@option("--notes/--no-notes", default=True, help="Print the notes under the figure.")
def plot(name, files, save, width, font, title, notes, **options):
    """Draw figure NAME from result files, folders of a sweep, published numbers, or - (standard
    input).

    \b
      drbench list figures
      drbench plot mlp1 results/measured/here --save mlp1.pdf
      drbench plot best results/measured/here/records.csv --shape 64x768x192
      drbench plot libraries results/measured/here --save rates.pdf --width 3.4 --no-title
    """
    if name is None:
        raise UsageError("NAME is missing. Give a figure of drbench list figures.")
    check_output("--save", save)
    import drbench.launch.papers  # noqa: F401  (its figures)
    from drbench.plots.draw.page import PageStyle
    from drbench.plots.registry import draw, find

    with reading("Use files that can be read and a folder that can be written."):
        find(name)
        if not files:
            raise UsageError(f"{name} has no data. Give result files, or - for standard input.")
        page_style = PageStyle(width, title, notes, font)
        drawn = draw(name, files, name if save is None else save, page_style=page_style, **options)
    for text in drawn.notes:
        click.echo(text, err=True)
    for path in drawn.paths:
        click.echo(f"figure: {path}")
    return 0


@command()
@click.argument("folders", metavar="DIR...", nargs=-1, required=True, type=click.Path(exists=True))
@save_option(type=PAGE, help="The page. [default: report.html in DIR]")
def report(folders, save):
    """Write one self-contained HTML page about each DIR, the folder of a sweep (or a result file).

    It shows the number of cases by status, the fastest case of each problem, figures with a tooltip
    at each mark, a table to filter and sort, failures and their reasons, and the source of the
    numbers. Parts of a sweep (--parts) in one DIR are joined. The page loads nothing from the
    network.

    \b
      drbench report results/measured/here --save report.html
    """
    path = Path(folders[0])
    folder = path if path.is_dir() else path.parent
    out = Path(save) if save else (folder if len(folders) == 1 else Path()) / "report.html"
    check_output("--save", out)
    import drbench.launch.papers  # noqa: F401  (its figures)
    from drbench.plots.report.page import build

    with reading("Use a path that can be read."):
        page = build(folders)
    write_output("--save", out, page)
    click.echo(f"report: {out} ({out.stat().st_size / 2**20:.2f} MiB, self-contained)")
    return 0
