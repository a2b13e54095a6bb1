"""The committed figures of docs/images, with what each shows and the page that explains it."""

import os
import textwrap
from pathlib import Path

from drbench.plots.registry import figures

from ..figures import OWN_SUMMARIES, Committed, committed
from .records import ROOT

#: The page that explains a figure, by how its name begins, in the order of the gallery.
_PAGES = {
    "layouts": "README.md",
    "partitions": "docs/explanation/layouts-and-algorithms.md",
    "replicas": "docs/explanation/layouts-and-algorithms.md",
    "stationary": "docs/explanation/layouts-and-algorithms.md",
    "frames": "docs/explanation/layouts-and-algorithms.md",
    "timeline": "docs/explanation/one-sided-and-overlap.md",
    "overlap-timeline": "docs/explanation/one-sided-and-overlap.md",
    "libraries": "docs/results/libraries.md",
    "gpu": "docs/results/gpu-accuracy.md",
    "mlp": "docs/results/slicing.md",
    "llm": "docs/results/meshslice.md",
    "overlap-td": "docs/results/triton-distributed.md",
    "overlap": "docs/results/flux.md",
    "": "docs/reference/figures.md",
}
#: A shorter title names no finding.
_LEAST = 20


def gallery(folder: str) -> str:
    """Each figure of a folder below the page that explains it: its finding, and what it draws."""
    items_of: dict[str, str] = dict.fromkeys(_PAGES.values(), "")
    described: set[tuple[str, str]] = set()
    for figure in committed():
        name = Path(figure.file).name
        if Path(figure.file).parent == Path(folder):
            page = next(page for begin, page in _PAGES.items() if name.startswith(begin))
            picture, finding = f"../images/{name}.svg", _finding(figure)
            caption = f"**{finding}.** " * bool(finding)
            if not (finding and (page, figure.figure) in described):  # below a page once
                of = OWN_SUMMARIES.get(figure.figure)
                summary = of or figures()[figure.figure].summary.partition(", of drbench ")[0]
                caption += f"{summary[0].upper()}{summary[1:]}."
            described.add((page, figure.figure))
            lines = textwrap.wrap(caption, 118, break_on_hyphens=False)
            items_of[page] += f"- [![{name}]({picture})]({picture})\n"
            items_of[page] += textwrap.indent("\n".join(lines) + "\n", "  ")
    return "\n".join(
        f"## [{_title(page)}]({os.path.relpath(page, 'docs/results')})\n\n{items}"
        for page, items in items_of.items()
        if items
    )


def _title(page: str) -> str:
    """The first heading of a page."""
    first = (ROOT / page).read_text(encoding="utf-8").partition("\n")[0]
    return first.removeprefix("# ").replace("*", "")


def _finding(figure: Committed) -> str:
    """The title of a figure: the first of the texts that it has; empty if it names no finding."""
    lines = figure.description().splitlines()
    text = lines[lines.index("texts:") + 1].strip() if "texts:" in lines else ""
    return text if len(text) >= _LEAST else ""
