"""Every table of measurements on the pages is what its committed records give."""

import re

import pytest
from made_up import made_up
from pandas import DataFrame

from benchmarks.pages import __main__ as command
from benchmarks.pages import core, peers, records
from benchmarks.pages.tables import BLOCKS, make

PAGES = command.list_pages()


@pytest.fixture
def known(monkeypatch):
    """A table of the test's own."""
    made = lambda n=1: f"| a | rate |\n|---|---|\n| x | {n * 10.0} |\n"
    monkeypatch.setitem(BLOCKS, "rates", made)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_a_page_says_what_the_records_say(path):
    assert command.check(path.read_text("utf-8"), path.name) == []


def test_the_first_page_the_artifact_and_all_of_docs_are_checked():
    names = {path.name for path in PAGES}
    assert {"README.md", "ARTIFACT.md", "performance.md", "peers.md", "slicing.md"} <= names


def test_every_table_that_can_be_made_is_on_a_page():
    text = "".join(path.read_text("utf-8") for path in PAGES)
    assert {name for name in BLOCKS if f"<!-- docs: {name}(" not in text} == set()


@pytest.mark.parametrize(
    "text, described",
    [
        ("x\n<!-- docs: rates(2) -->\n| a | rate |\n|---|---|\n| x | 10.1 |\n<!-- docs: end -->\n",
         "page.md:2: rates(2) gives '| x | 20.0 |', the page says '| x | 10.1 |'"),
        ("<!-- docs: rates() -->\n<!-- docs: end -->\n", "gives 'other lines'"),
    ],
)  # fmt: skip
def test_a_table_that_differs_is_found(known, text, described):
    (found,) = command.check(text, "page.md")
    assert described in found


@pytest.mark.parametrize("call", ["none()", "rates", "rates(open('x'))", "rates.x()"])
def test_a_comment_that_is_no_table_with_constants_is_an_error(known, call):
    with pytest.raises(ValueError):
        make(call)


def test_writing_puts_tables_right_and_leaves_the_rest(known):
    text = "10 ms\n\n<!-- docs: rates() -->\nold\n<!-- docs: end -->\nend\n"
    made = command.fill(text)
    assert made == text.replace("old\n", make("rates()")) and command.fill(made) == made
    assert command.check(made, "page.md") == []


def test_a_changed_record_is_found(monkeypatch, tmp_path):
    """The times to plan of performance.md, with one number of the file changed."""
    name = f"{records.CORE}/performance/planning.csv"
    text = (records.RESULTS / name).read_text()
    (tmp_path / name).parent.mkdir(parents=True)
    was = records.only(records.core("planning"), case="512 x 512 tiles, S-C").median_s
    page = "<!-- docs: core_planning() -->\n" + make("core_planning()") + "<!-- docs: end -->\n"
    (tmp_path / name).write_text(text.replace(str(was), "0.131", 1))
    monkeypatch.setattr(records, "RESULTS", tmp_path)
    records.rows.cache_clear()
    try:
        assert re.search(r"131 ms", str(command.check(page, "page.md")))
    finally:
        records.rows.cache_clear()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_lines_fit_a_screen(path):
    """120 columns; a row of a table cannot be wrapped and has 160."""
    long = [
        number
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if len(line) > (160 if line.startswith("|") else 120)
    ]
    assert long == []


def test_bars_are_held_against_what_uneven_work_allows(monkeypatch):
    row = {"percent_of_roof_low": 79.0, "percent_of_roof_high": 82.0, "noisy": False, "bar": 0.93}
    made = DataFrame(
        [
            row | {"case": "even", "percent_of_roof": 92.0, "balance_limit": None},
            row | {"case": "uneven", "percent_of_roof": 81.0, "balance_limit": 0.855},
        ]
    )
    monkeypatch.setattr(core, "core", lambda section, **fields: made)
    lines = core.core_ratios("cube").splitlines()
    assert lines[0].split(" | ")[2] == "limit by balance"
    assert lines[2].endswith("|  | 0.93 | no |") and lines[3].endswith("| 0.85 | 0.93 | yes |")
    old = made.drop(columns="balance_limit")
    monkeypatch.setattr(core, "core", lambda section, **fields: old)
    assert "balance" not in core.core_layers(256)
    assert core.core_layers(256).count("| no |") == 2


def test_libraries_are_shown_as_they_come_and_at_their_best(monkeypatch):
    """Six rounds: cosma takes twice as long as it comes, and with a forced split 1.1 times."""
    made = []
    for turn in range(1, 7):
        for who, label, seconds in (
            ("drbench", "row", 1.0),
            ("cosma", "its own choice", 2.0),
            ("cosma", "pk2", 1.1),
        ):
            made.append(
                made_up(
                    case=f"{turn} | square 8 | {who} | {label}",
                    best_s=seconds,
                    median_s=seconds,
                    samples_s=[seconds],
                    gflops=1.0,
                )
            )
    monkeypatch.setattr(peers, "records", lambda name: made)
    assert peers.peers_best("here/peers-p2").splitlines()[2] == (
        "| square 8 | row 1000 ms | 2.00 (2.00–2.00), cosma | "
        "1.10 (1.10–1.10), cosma pk2 | 2000 ms | pk2 1100 ms | – / – |"
    )
