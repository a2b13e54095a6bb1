"""``--format``: every table whole as Markdown, or as CSV alone on standard output."""

import csv
import io
import json
import re

import pytest
from made_up import of_universal

from drbench.launch.host.show import table
from drbench.measure.record_file import append_csv

HERE = "--machine=h100x8"


def tables_in(text):
    """The tables of Markdown: rows of cells as a reader of GitHub's dialect sees them."""
    blocks = re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE)
    split = lambda line: re.split(r"(?<!\\)(?:\\\\)*\|", line)[1:-1]
    return [[split(line) for line in block.splitlines()] for block in blocks]


COMMANDS = {
    "run": f"simulate -m 64 {HERE}",
    "scan": f"simulate -m 64,128 --preset row,column {HERE}",
    "list": "list algorithms",
    "kinds": "list",
    "plan": "plan -m 64 -p 4 --rank all",
    "cases": "compare old.csv",
    "pairs": "compare old.csv new.csv",
    "one": "list machines h100x8",
}


@pytest.fixture
def records(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = lambda m, best_s, **more: of_universal(m=m, ranks=2, best_s=best_s, **more)
    odd = {"reason": 'a|b\n"c", d_e_ <f>'.replace("\n", " "), "status": "failed"}
    append_csv(tmp_path / "old.csv", made(64, 1.0), made(128, 1.0), made(32, 1.0))
    append_csv(tmp_path / "new.csv", made(64, 2.0), made(128, None, **odd), made(32, 1.0))


@pytest.mark.parametrize(
    "name",
    [pytest.param(x, marks=[pytest.mark.thorough] * (x in ("scan", "cases"))) for x in COMMANDS],
)
def test_markdown_has_every_cell_and_csv_is_alone(run_cli, records, name, monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    text, markdown, rows = (
        run_cli(*COMMANDS[name].split(), "--format", form) for form in ("text", "md", "csv")
    )
    assert text.returncode == markdown.returncode == rows.returncode, rows.stderr
    found = tables_in(markdown.stdout)
    assert found
    for heads, rules, *lines in found:
        assert {*rules} == {" --- "} and lines
        assert all(len(line) == len(heads) for line in lines)
    *cells, end = csv.reader(io.StringIO(rows.stdout))  # an empty line ends a table
    assert not end
    assert len(cells) > 1 and {len(row) for row in cells} == {len(cells[0])}


@pytest.mark.thorough
def test_csv_and_json_have_the_same_values(run_cli, records):
    words = f"simulate -m 64 {HERE}".split()
    (row,) = csv.DictReader(io.StringIO(run_cli(*words, "--format", "csv").stdout))
    record = json.loads(run_cli(*words, "--format", "json").stdout)
    assert float(row["best_s"]) == record["best_s"] and int(row["m"]) == 64
    listed = json.loads(run_cli("compare", "old.csv", "--json").stdout)["tables"]
    rows = [*csv.DictReader(io.StringIO(run_cli("compare", "old.csv", "--format", "csv").stdout))]
    every = [row for each in listed for row in each["rows"]]
    assert [(int(row["m"]), float(row["median_s"])) for row in rows] == [
        (row["m"], row["median_s"]) for row in every
    ]
    run_cli("compare", "old.csv", "--csv", "rows.csv")
    with open("rows.csv", newline="") as file:
        assert [*csv.DictReader(file)] == rows


def test_cells_cannot_break_a_markdown_table():
    heads, _, line = tables_in(
        table(
            "a|b",
            [
                ("x|y\\|z", "1\n2"),
            ],
        )
        .written("md")
        .strip()
        + "\n"
    )[0]
    assert len(heads) == len(line) == 2 and "\\|" in line[0] and "<br>" in line[1]
    (back,) = csv.reader(io.StringIO(table("a|b", [('x,"y', "=1")]).written("csv").splitlines()[1]))
    assert back == ['x,"y', "'=1"]
