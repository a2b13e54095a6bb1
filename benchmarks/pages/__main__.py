"""Compare the tables of README.md, ARTIFACT.md and docs/ with their records.

python -m benchmarks pages            exit 1 if a table differs from its records
python -m benchmarks pages --write    write the tables of the records into the pages

A table is between ``<!-- docs: NAME(constants) -->`` and ``<!-- docs: end -->``, each on a line
of its own. Prose has no measured numbers: it points to a table.
"""

import re
import sys
from pathlib import Path

from benchmarks.__main__ import parser_of

from . import core as core  # of these the tables are registered
from . import gallery as gallery
from . import gpu as gpu
from . import libraries as libraries
from . import model as model
from . import papers as papers
from . import reference as reference
from .records import ROOT
from .tables import make

_BLOCK = re.compile(r"^<!-- docs: (?!end)(.+?) -->\n(.*?)^<!-- docs: end -->", re.M | re.S)


def list_pages() -> list[Path]:
    """README.md, ARTIFACT.md and the pages of docs/."""
    return [ROOT / "README.md", ROOT / "ARTIFACT.md", *sorted((ROOT / "docs").rglob("*.md"))]


def fill(text: str) -> str:
    """A page with its tables from the records."""
    made = lambda found: f"<!-- docs: {found[1]} -->\n{make(found[1])}<!-- docs: end -->"
    return _BLOCK.sub(made, text)


def check(text: str, name: str) -> list[str]:
    """The tables of a page that differ from their records, in one line each."""
    found = []
    if len(_BLOCK.findall(text)) < len(re.findall("^<!-- docs: (?!end)", text, re.M)):
        found.append(f"{name}: a block has no '<!-- docs: end -->' on a line of its own")
    for block in _BLOCK.finditer(text):
        if (made := make(block[1])) != block[2]:
            pairs = zip(block[2].splitlines(), made.splitlines())
            is_, wanted = next((each for each in pairs if each[0] != each[1]), ("", "other lines"))
            line = text.count("\n", 0, block.start()) + 1
            found.append(f"{name}:{line}: {block[1]} gives {wanted!r}, the page has {is_!r}")
    return found


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--write", action="store_true", help="write the tables into the pages")
    given, findings, count = parser.parse_args(), [], 0
    for path in list_pages():
        text = path.read_text(encoding="utf-8")
        name, count = str(path.relative_to(ROOT)), count + len(_BLOCK.findall(text))
        if not given.write:
            findings += check(text, name)
        elif (made := fill(text)) != text:
            path.write_text(made, encoding="utf-8")
            print(f"{name}: written")
    for finding in findings:
        print(finding, file=sys.stderr)
    print(f"{count} tables are those of the records; {len(findings)} differ")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
