"""``drbench plot``: figures by name, from records."""

from __future__ import annotations

import re
import warnings

import click

from drbench.errors import UsageError
from drbench.measure.record import TornRowWarning

__all__ = ["plot"]


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


@click.command()
@click.argument("name", required=False)
@click.argument("files", nargs=-1, type=click.Path(exists=True, allow_dash=True))
@click.option(
    "-o",
    "--out",
    default=None,
    help="The figure; .pdf or .png say the format, without a suffix both are written. [default: "
    "NAME]",
)
@click.option("--list", "list_", is_flag=True, help="List the figures.")
@click.option(
    "--moving-only",
    is_flag=True,
    help="Leave out cases that move no bytes at all, as the paper does.",
)
@click.option(
    "--quantity",
    type=click.Choice(["auto", "peak", "roof"]),
    default="auto",
    show_default=True,
    help="Percent of what; auto: of peak if every case has it.",
)
@click.option("--shape", type=Shape(), default=None, metavar="MxNxK", help="Only this shape.")
def plot(name, files, out, list_, **options):
    """Draw figure NAME from result files, folders of a sweep, published numbers, or - (standard
    input).

    \b
      drbench plot --list
      drbench plot mlp1 results/measured/here results/published/h100.csv -o mlp1.pdf
      drbench plot best results/measured/here/records.csv --shape 64x768x192
    """
    if list_:
        if name:
            raise UsageError("--list takes no figure. Leave one of the two out.")
        from plots.registry import figures

        for figure in figures().values():
            takes = " ".join(f"--{each.replace('_', '-')}" for each in figure.takes)
            click.echo(f"{figure.name:<15}{figure.summary}{f'  [{takes}]' if takes else ''}")
        return 0
    if name is None:
        raise UsageError("which figure? Name one of those that drbench plot --list shows.")
    from plots.registry import draw, find

    try:
        find(name)
        if not files:
            raise UsageError(
                f"what shall {name} be drawn from? Give it result files, or - for standard input."
            )
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", TornRowWarning)
            drawn = draw(name, files, name if out is None else out, **options)
    except ValueError as error:
        raise UsageError(str(error)) from None
    except OSError as error:
        raise UsageError(
            f"{error.filename}: {error.strerror}. Use files that can be read and a folder that "
            "can be written."
        ) from None
    for text in [str(warning.message) for warning in caught] + drawn.notes:
        click.echo(text, err=True)
    for path in drawn.paths:
        click.echo(f"figure: {path}")
    return 0
