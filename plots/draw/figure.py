"""One kind of figure: what a module of :mod:`drbench.plots.figures` lists as ``FIGURES``."""

import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import matplotlib
from matplotlib.font_manager import findfont

from drbench.plots.select.cases import Options, SelectionError
from drbench.plots.select.records import read_records
from drbench.plots.summaries import SUMMARIES

from .page import PAGE_STYLE, PRINTED, PageStyle
from .style import RC


class Made(NamedTuple):
    """A figure and notes on what it omits: ``picture`` is matplotlib's, each note a line of
    text."""

    picture: Any
    notes: list[str]


class Figure(NamedTuple):
    """One kind of figure: its name, a line about it, the function that draws it, its options, and
    the function that reads its files."""

    name: str
    summary: str
    page: Callable[[Any, Options], Made]
    takes: tuple[str, ...] = ()
    read: Callable[[Sequence[str | os.PathLike]], Any] = read_records

    @classmethod
    def listed(cls, name: str, *how: Any, **more: Any) -> "Figure":
        """A figure with its line of :mod:`drbench.plots.summaries`, and its other fields."""
        return cls(name, SUMMARIES[name], *how, **more)

    def make(self, source: Any, options: Options, page_style: PageStyle = PRINTED) -> Made:
        """Draw the figure in the style of all figures.

        Raises
        ------
        SelectionError
            If there is no such font, or no case to draw.
        """
        try:
            findfont(page_style.font, fallback_to_default=False)
        except ValueError:
            raise SelectionError(
                f"no font {page_style.font!r} is installed. Use serif, STIXGeneral or another one."
            ) from None
        before = PAGE_STYLE.set(page_style._replace(panel_in=options.height))
        try:
            with matplotlib.rc_context(RC | {"font.family": page_style.font}):
                return self.page(source, options)
        finally:
            PAGE_STYLE.reset(before)
