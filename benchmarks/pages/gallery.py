"""The committed figures of docs/images."""

import re
from pathlib import Path

from plots.committed import Committed, committed
from plots.registry import figures

from .tables import block

#: A shorter title names no finding.
_LEAST = 20


@block
def gallery(folder: str) -> str:
    """Each figure of a folder, and the command that draws it."""
    found = []
    for each in committed():
        if Path(each.file).parent != Path(folder):
            continue
        name, summary = Path(each.file).name, figures()[each.figure].summary
        found.append(
            f"## {name}\n![{_finding(each) or summary}](../images/{name}.svg)\n\n"
            f"`python -m plots.committed {each.file}`"
        )
    return "".join(f"{each}\n" for each in found)


def _finding(figure: Committed) -> str:
    """The title of a figure: the first of the texts that it has; empty if it names no finding."""
    lines = figure.description().splitlines()
    text = lines[lines.index("texts:") + 1].strip() if "texts:" in lines else ""
    return "" if len(text) < _LEAST else _first_phrases(text)


def _first_phrases(text: str, most: int = 90) -> str:
    """
    Examples
    --------
    >>> _first_phrases("One row a GEMM; each on its best mesh", 20)
    'One row a GEMM'
    """
    if len(text) <= most:
        return text
    heads = [text[: found.start()] for found in re.finditer(r"[;,.] ", text[: most + 1])]
    return heads[-1] if heads else text[:most].rpartition(" ")[0]
