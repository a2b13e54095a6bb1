"""Two checkouts in alternating order: what a change did to their shares of GEMM-only speed.

    python -m benchmarks old_new OLD SECTION... [--new NEW] [--rounds 5] [--scale 3/4] [--only TEXT]
        [--out FILE.csv]

Sections are those of ``benchmarks/core.py`` that have a sweep file. Each case runs once a round in
each checkout, asked through the command line, the one thing that they have in common whatever their
modules are called. Compared are shares of GEMM-only speed of the same run, which a busy machine
moves less than times. Records of two sweeps that ran one after the other: ``drbench compare``.
"""

import statistics
from datetime import date
from pathlib import Path

from benchmarks.__main__ import parser_of
from benchmarks.core import BARS, cases, commit, interleave, print_row, ratios, write_rows
from drbench.launch.host.files import ROOT


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("old", type=Path)
    sections = sorted(path.stem for path in BARS.glob("*.toml"))
    parser.add_argument("sections", nargs="+", choices=sections)
    parser.add_argument("--new", type=Path, default=ROOT)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--scale", default="3/4", help="multiply all extents by this [3/4]")
    parser.add_argument("--only", default="", help="cases with this text in their name")
    parser.add_argument("--out", type=Path, help="write the rows to this CSV file")
    given, rows = parser.parse_args(), []
    roots = {"old": given.old.resolve(), "new": given.new.resolve()}
    commits = {"old_commit": commit(roots["old"]), "commit": commit(roots["new"])}
    for section in given.sections:
        for description, *case in cases(section, given.scale, iters=6, budget=0.0):
            if given.only in description["case"]:
                contenders = {name: (*case, root) for name, root in roots.items()}
                found = interleave(contenders, given.rounds)
                shares = {
                    name: statistics.median(each["percent_of_gemm_only"] for each in records) / 100
                    for name, records in found.items()
                }
                row = {"group": section, "case": description["case"]} | shares
                row |= ratios(found["new"], found["old"])
                rows.append(row | {"command": found["new"][0]["command"]})
                print_row(row)
    if given.out:
        made = {"date": date.today().isoformat()} | commits
        write_rows(given.out, [row | made for row in rows])


if __name__ == "__main__":
    main()
