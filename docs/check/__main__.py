"""Hold the numbers of README.md, ARTIFACT.md and docs/ against the records that they come from.

python -m docs.check            exit 1 if a number differs or has neither record nor exemption
python -m docs.check --write    write the numbers and tables of the records into the pages
python -m docs.check --list     every exemption too, with its reason
"""

import argparse
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from . import beside as beside  # its tables are among the blocks
from . import chains as chains  # likewise
from . import tables, values
from .page import EXEMPT, Page, PageError, call
from .records import committed_figures

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Finding:
    """Something of a page that is not as the records say."""

    place: str
    what: str

    def __str__(self):
        return f"{self.place}: {self.what}"


def pages(root: Path = ROOT) -> list[Path]:
    """The pages that are checked: README.md, ARTIFACT.md and those of docs/."""
    return [root / "README.md", root / "ARTIFACT.md", *sorted((root / "docs").glob("*.md"))]


def numbers_of(expression: str) -> list[float]:
    """The numbers that an expression of a comment gives."""
    found = call(expression, values.FUNCTIONS)
    try:
        return [float(found)]
    except TypeError:
        return [float(each) for each in found]


def filled(text: str, name: str = "") -> str:
    """A page with generated blocks made anew, then with its values put right."""
    page = Page(text, name)
    for maker, start, stop in reversed(list(page.blocks())):
        text = text[:start] + call(maker, tables.FUNCTIONS) + text[stop:]
    page = Page(text, name)
    for number, wanted in sorted(page.hold(numbers_of), key=lambda found: -found[0].start):
        text = text[: number.start] + wanted + text[number.stop :]
    return text


def check(text: str, name: str = "") -> Iterator[Finding]:
    """What differs on a page, and measured numbers without record or exemption."""
    page = Page(text, name)
    for maker, start, stop in page.blocks():
        made = call(maker, tables.FUNCTIONS)
        for at, (is_, wanted) in enumerate(zip(text[start:stop].splitlines(), made.splitlines())):
            if is_ != wanted:
                place = f"{name}:{page.line(start) + at}"
                yield Finding(place, f"{maker} gives {wanted!r}, the page says {is_!r}")
                break
        else:
            if made != text[start:stop]:
                yield Finding(page.place(start), f"{maker} gives more lines, or fewer")
    for number, wanted in page.hold(numbers_of):
        if number.text != wanted:
            yield Finding(
                page.place(number.start),
                f"the page says {number.text}, the records {wanted} ({number.by.text})",
            )
    for image in re.finditer(r"!\[[^\]]*\]\(([^)]+)\)", text):
        path = f"docs/{image[1]}" if image[1].startswith("images/") else image[1]
        drawn = {
            figure["file"] + suffix
            for figure in committed_figures()
            for suffix in figure.get("formats", [".png"])
        }
        if path not in drawn:
            yield Finding(page.place(image.start()), f"{path} is not in results/figures.toml")
    for number in page.bare():
        line = text.splitlines()[page.line(number.start) - 1].strip()
        yield Finding(
            page.place(number.start), f"{number.text} has neither record nor exemption: {line}"
        )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m docs.check",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--write", action="store_true", help="put the pages right")
    parser.add_argument("--list", action="store_true", help="list every exemption")
    parser.add_argument("pages", nargs="*", type=Path, help="all, if none is named")
    chosen = parser.parse_args(arguments)
    findings: list = []
    exempt, held, blocks = Counter(), 0, 0
    for path in chosen.pages or pages():
        name = path.name
        text = path.read_text(encoding="utf-8")
        try:
            if chosen.write and (made := filled(text, name)) != text:
                path.write_text(made, encoding="utf-8")
                text = made
                print(f"{name}: written")
            findings += check(text, name)
            page = Page(text, name)
            held += sum(1 for _ in page.hold(numbers_of))
            blocks += sum(1 for _ in page.blocks())
        except PageError as error:
            findings.append(Finding(name, str(error)))
            continue
        for marker in page.markers:
            if marker.kind in EXEMPT:
                exempt[marker.kind] += len(marker.covers) or 1
                if chosen.list:
                    told = ", ".join(number.text for number in marker.covers) or "code"
                    print(f"{page.place(marker.start)}: {marker.text}: {told}")
    for finding in findings:
        print(finding, file=sys.stderr)
    told = ", ".join(f"{count} {kind}" for kind, count in sorted(exempt.items()))
    print(
        f"{held} numbers and {blocks} blocks are those of the records; exempt: {told or 'none'}; "
        f"{len(findings)} to mend"
    )
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
