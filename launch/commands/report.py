"""``drbench report``: one page about a folder of results."""

from __future__ import annotations

import warnings
from pathlib import Path

import click

from drbench.errors import MissingError, UsageError
from drbench.measure.record import TornRowWarning

__all__ = ["report"]


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(exists=True))
@click.option(
    "-o",
    "--out",
    type=click.Path(dir_okay=False),
    default=None,
    help="The page. [default: report.html in DIR]",
)
def report(folder, out):
    """Write one self-contained HTML page about DIR, the folder of a sweep (or one result file).

    Interactive figures, a table that filters and sorts, where the numbers come from, and what
    failed and why. The page loads nothing from the network.

    \b
      drbench report results/measured/here -o report.html
    """
    try:
        import jinja2  # noqa: F401
        import plotly  # noqa: F401
    except ImportError as error:
        raise MissingError(
            f"a report needs {error.name}, which is not installed. Run: pip install jinja2 plotly."
        ) from None
    from plots.report.page import build

    folder = Path(folder)
    out = Path(out) if out else (folder if folder.is_dir() else folder.parent) / "report.html"
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", TornRowWarning)
            page = build(folder)
        out.write_text(page, encoding="utf-8", errors="replace")
    except ValueError as error:
        raise UsageError(str(error)) from None
    except OSError as error:
        raise UsageError(
            f"{error.filename or out}: {error.strerror}. Use a path that can be read, and "
            "written with -o."
        ) from None
    for warning in caught:
        click.echo(str(warning.message), err=True)
    click.echo(
        f"report: {out} ({out.stat().st_size / 2**20:.1f} MiB, nothing outside it is loaded)"
    )
    return 0
