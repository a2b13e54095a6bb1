"""Compare the tables of the pages with their records.

python -m benchmarks pages            exit 1 if a table differs from its records
python -m benchmarks pages --write    write the tables of the records into the pages

A table is between ``<!-- docs: MODULE.FUNCTION(constants) -->``, of a module of this folder, and
``<!-- docs: end -->``, each on a line of its own. Prose has no measured numbers: it points to a
table.
"""

import re
import sys
from difflib import unified_diff
from pathlib import Path

from benchmarks.__main__ import parser_of

# pages call functions of these
from . import core, gallery, gpu, libraries, model, papers, reference, release  # noqa: F401
from .records import ROOT

_BLOCK = re.compile(r"^(<!-- docs: (?!end)(.+?) -->\n).*?(^<!-- docs: end -->|\Z)", re.M | re.S)


def list_pages() -> list[Path]:
    """README.md, its neighbours, and the pages of docs/."""
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def fill(text: str) -> str:
    """A page with its tables from the records."""
    return _BLOCK.sub(lambda match: f"{match[1]}{eval(match[2])}<!-- docs: end -->", text)


def difference(text: str, name: str) -> list[str]:
    """The lines of a page that differ from those of the records, as a diff."""
    lines = text.splitlines(), fill(text).splitlines()
    return [*unified_diff(*lines, name, f"{name}, of the records", "", "", 0, "")]


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--write", action="store_true", help="write the tables into the pages")
    write, differ = parser.parse_args().write, False
    for path in list_pages():
        text = path.read_text(encoding="utf-8")
        if lines := difference(text, str(path.relative_to(ROOT))):
            print("\n".join(lines))
            if write:
                path.write_text(fill(text), encoding="utf-8")
            differ = differ or not write
    print(f"Tables of the pages {'differ from' if differ else 'are those of'} the records.")
    return int(differ)


if __name__ == "__main__":
    sys.exit(main())
