"""The committed figures of docs/images, each with its text."""

from pathlib import Path

from plots.committed import committed

from .records import ROOT
from .tables import block


@block
def gallery(folder: str) -> str:
    """Each figure of a folder, the text of all that it draws, and the command that draws it."""
    found = []
    for each in committed():
        if Path(each.file).parent != Path(folder):
            continue
        name = Path(each.file).name
        found.append(
            f"## {name}\n\n![{_finding(ROOT / each.file) or name}](../images/{name}.svg)\n\n"
            f"[Its text](../images/{name}.txt); `python -m plots.committed {each.file}`\n"
        )
    return "\n".join(found)


def _finding(file: Path) -> str:
    """The title of a figure: the first of the texts that it has."""
    lines = file.with_suffix(".txt").read_text(encoding="utf-8").splitlines()
    return lines[lines.index("texts:") + 1].strip()[:90] if "texts:" in lines else ""
