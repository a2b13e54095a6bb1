"""Every table of measurements on the pages equals the one of its committed records."""

import shutil

import pytest
from made_up import made_up
from pandas import DataFrame

from benchmarks.pages import __main__ as command
from benchmarks.pages import core, libraries, papers, records
from drbench.plots.select.records import frame

PAGES = command.list_pages()


@pytest.fixture
def known(monkeypatch):
    """A table for tests."""
    made = lambda n=1: f"| a | rate |\n|---|---|\n| x | {n * 10.0} |\n"
    monkeypatch.setattr(command, "rates", made, raising=False)


@pytest.mark.papers
@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_the_tables_of_a_page_are_those_of_the_records(path):
    assert command.difference(path.read_text("utf-8"), path.name) == []


@pytest.mark.parametrize(
    "text, line",
    [
        ("x\n<!-- docs: rates(2) -->\n| a | rate |\n|---|---|\n| x | 10.1 |\n<!-- docs: end -->\n",
         "+| x | 20.0 |"),
        ("<!-- docs: rates() -->\n<!-- docs: end -->\n", "+| x | 10.0 |"),
        ("<!-- docs: rates() -->\n| a | rate |\n|---|---|\n| x | 10.0 |\n", "+<!-- docs: end -->"),
    ],
)  # fmt: skip
def test_a_table_that_differs_or_has_no_end_is_found(known, text, line):
    assert line in command.difference(text, "page.md")


@pytest.mark.parametrize("call", ["none()", "rates(open('x'))", "rates.x()"])
def test_a_comment_that_is_no_table_is_an_error(known, call):
    with pytest.raises((NameError, AttributeError, OSError)):
        command.fill(f"<!-- docs: {call} -->\n<!-- docs: end -->\n")


def test_writing_puts_tables_right_and_leaves_the_rest(known):
    text = "10 ms\n\n<!-- docs: rates() -->\nold\n<!-- docs: end -->\nend\n"
    made = command.fill(text)
    assert made == text.replace("old\n", command.rates())
    assert command.difference(made, "page.md") == []


def test_a_changed_record_is_found(monkeypatch, tmp_path):
    """The bars of the core, with the time of one plan changed."""
    for name in (f"{records.CORE}/performance", f"{records.HERE}/dtensor-p2"):
        shutil.copytree(records.RESULTS / name, tmp_path / name)
    page = command.fill("<!-- docs: core.missed_bars() -->\n<!-- docs: end -->\n")
    path = tmp_path / f"{records.CORE}/performance/planning.csv"
    was = records.core("planning", case="512 x 512 tiles, S-A").most_s.item()
    path.write_text(path.read_text().replace(str(was), "0.431", 1))
    monkeypatch.setattr(records, "RESULTS", tmp_path)
    records.rows.cache_clear()
    try:
        assert "431 ms" in str(command.difference(page, "page.md"))
    finally:
        records.rows.cache_clear()


def test_a_bar_is_multiplied_by_the_balance_limit_and_noisy_cases_do_not_count(monkeypatch):
    columns = (
        "percent_of_gemm_only_low",
        "percent_of_gemm_only_high",
        "balance_limit",
        "bar",
        "noisy",
    )
    made = DataFrame(
        [
            ("even", 94.0, 93.5, 94.5, None, 0.93, False),
            ("uneven", 79.4, 79.0, 82.0, 0.855, 0.93, False),
            ("shared", 12.0, 1.0, 70.0, None, 0.93, True),
        ],
        columns=("case", "percent_of_gemm_only", *columns),
    ).assign(percent_of_gemm_only_min=0.0, percent_of_gemm_only_max=200.0)
    bar = core.BarRows("here", "all", "GEMM-only", core._cases(made, "roof"))
    monkeypatch.setattr(core, "_bars", lambda: [bar])
    assert core.missed_bars().splitlines()[2] == (
        "| `here` | all | uneven | 0.79 (0.79–0.82) | ≥ 0.80 | 1 of 2, 1 noisy |"
    )


def test_libraries_are_compared_by_default_and_at_their_best(monkeypatch):
    """Seven rounds: COSMA takes twice as long by default, and about as long with a forced split;
    ScaLAPACK ran in one."""
    made = []
    for turn in range(1, 8):
        for who, label, seconds in (
            ("drbench", "row", 0.9),
            ("drbench", "block", 1.0),
            ("cosma", "its own choice", 2.0),
            ("cosma", "pk2", 0.9 + turn % 2 / 5),
            *([("scalapack", "as shipped", 3.0)] if turn == 1 else []),
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
    monkeypatch.setattr(libraries, "records", lambda name: frame(made))
    assert [line.split(" | ")[2:] for line in libraries.libraries("peers-p2").splitlines()[2:]] == [
        ["drbench", "block, 1000.0 ms", "1", "row, 900.0 ms", "0.90 (0.90–0.90) |"],
        [
            *("COSMA", "its own choice, 2000.0 ms", "2.00 (2.00–2.00)"),
            *("pk2, 1100.0 ms", "1.10 (0.90–1.10), undecided |"),
        ],
        [
            *("ScaLAPACK", "as shipped, 3000.0 ms", "3.00, undecided"),
            *("as shipped, 3000.0 ms", "3.00, undecided |"),
        ],
    ]


def test_claims_that_prove_little_are_counted_apart(monkeypatch):
    of = lambda name, verdict, reason, later=False: {
        "claim": name,
        "verdict": verdict,
        "reason": reason,
        "later": later,
    }
    verdicts = [of("P1", "PASS", None), of("P2", "PASS", "tied"), of("P3", "KNOWN", "slow links")]
    same = {"text": "a text", "theirs": "5", "ours": "4", "see": "page.md#p", "source": "simulated"}
    table = DataFrame([row | same for row in [*verdicts, of("M1", "PASS", None)]])
    monkeypatch.setattr(papers, "rows", lambda name: table)
    assert papers.answer("P") == (
        "**2 of 3 claims hold in our simulations**, 1 of which proves little (P2).\n"
    )
    assert papers.answer("M") == "**1 of 1 claims hold in our simulations**.\n"
    *_, yes, little, no = papers.claims("P").splitlines()
    assert yes == "| P1 | a text | 5 | 4 | yes |  |"
    assert little == "| P2 | a text | 5 | 4 | yes, proves little | tied |"
    assert no == "| P3 | a text | 5 | 4 | [no](#p) | slow links |"
    assert "| simulated | 2 | 1 | 1 | [slicing.md](x/slicing.md) |" in papers.claim_counts("x")
