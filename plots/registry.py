"""The figures by name. A module of :mod:`drbench.plots.figures` that has ``FIGURES`` adds them, and
so do the packages of :func:`~drbench.plots.summaries.add_figures`.

>>> names = [name for name in figures() if "-" not in name and name[:3] != "mlp"]
>>> print(*names)  # doctest: +NORMALIZE_WHITESPACE
algorithms bandwidth best frames history layouts libraries operations partitions stationary strong
timeline volume weak
"""

import os
import pkgutil
from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from importlib.util import find_spec
from itertools import chain, groupby
from pathlib import Path
from typing import NamedTuple

from drbench.measure.record import Record
from drbench.plots.draw.figure import Figure
from drbench.plots.draw.page import FORMATS, PRINTED, PageStyle, save
from drbench.plots.select.cases import Options, SelectionError
from drbench.plots.select.records import given
from drbench.plots.summaries import PACKAGES


class Drawn(NamedTuple):
    """The files that were written, and notes on what the figure omits."""

    paths: tuple[Path, ...]
    notes: list[str]


def figures() -> dict[str, Figure]:
    """Every figure, by name, in the order of names."""
    every = (getattr(import_module(module), "FIGURES", ()) for module in _modules())
    named = {figure.name: figure for figure in chain.from_iterable(every)}
    return dict(sorted(named.items()))


def _modules() -> Iterator[str]:
    """The modules that may have figures."""
    for package in PACKAGES:
        for module in pkgutil.iter_modules(import_module(package).__path__):
            name = f"{package}.{module.name}"
            if not module.ispkg:
                yield name
            elif find_spec(f"{name}.figures"):
                yield f"{name}.figures"


def find(name: str) -> Figure:
    """Look a figure up.

    Raises
    ------
    SelectionError
        If no figure has that name.
    """
    known = figures()
    if name not in known:
        raise SelectionError(f"no figure is called {name!r}. Choose one of {', '.join(kinds())}.")
    return known[name]


def kinds() -> list[str]:
    """The figures in a line that can be read: those that share the word before the hyphen as one.

    Examples
    --------
    >>> [kind for kind in kinds() if "-" in kind]
    ['llm-… (5)', 'overlap-… (3)']
    """
    texts = []
    for family, members in groupby(figures(), lambda name: name.partition("-")[0]):
        named = list(members)
        texts += named if len(named) < 3 else [f"{family}-… ({len(named)})"]
    return texts


def draw(
    name: str,
    source: Iterable[Record] | Iterable[str | os.PathLike],
    out: str | os.PathLike,
    formats: Sequence[str] = (),
    page_style: PageStyle = PRINTED,
    **options,
) -> Drawn:
    """Draw a figure from records or files into files.

    Parameters
    ----------
    name : str
        A figure of :func:`figures`.
    source : records, or paths
        As :func:`drbench.plots.select.records.read_records` takes them.
    out : path
        The suffix is the format: ``.pdf``, ``.png``, ``.svg``, or ``.txt``, a description of the
        figure; without one ``.pdf`` and ``.png`` are written.
    formats : sequence of str, optional
        Suffixes to write, instead of that of ``out``.
    page_style : PageStyle, optional
        Width, title and small print.
    options
        Fields of :class:`drbench.plots.select.cases.Options`. An option that the figure does not
        have is refused.

    Raises
    ------
    SelectionError
        If the figure, an option or the suffix is unknown, or without cases to draw. No file is
        written then.
    """
    figure = find(name)
    for option, value in options.items():
        if option not in figure.takes and value != getattr(Options(), option):
            takes = (
                ", ".join(f"--{name.replace('_', '-')}" for name in figure.takes) or "no options"
            )
            raise SelectionError(
                f"figure {name} has no use for --{option.replace('_', '-')}. It takes {takes}."
            )
    formats = formats or suffixes(out)
    drawn = figure.make(given(source, figure.read), Options(**options), page_style)
    return Drawn(save(drawn.picture, out, formats), drawn.notes)


def suffixes(out: str | os.PathLike) -> tuple[str, ...]:
    """Return the formats to write.

    Examples
    --------
    >>> suffixes("fig.pdf"), suffixes("out/fig")
    (('.pdf',), ('.pdf', '.png'))
    """
    suffix = Path(out).suffix
    if suffix and suffix not in FORMATS:
        raise SelectionError(
            f"a figure is written as .pdf, .png, .svg or .txt; got {suffix!r} in "
            f"{os.fspath(out)!r}. Leave the suffix out for .pdf and .png."
        )
    return (suffix,) if suffix else (".pdf", ".png")
