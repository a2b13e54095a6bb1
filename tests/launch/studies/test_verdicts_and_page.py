"""The documentation says of each claim what the committed records say."""

import re

import pytest

from launch.host.files import ROOT
from launch.studies import measured_claims, meshslice_claims, slicing_claims
from launch.studies.overlap import claims as overlap
from launch.studies.verdicts import SOURCES, WORDS, Verdict, show, shown
from plots.select.llm_rows import read_rows
from plots.select.records import frame, read_published, read_records

PAGE = (ROOT / "docs/reproduction.md").read_text()
RESULTS = ROOT / "results"


def anchors(page: str) -> set[str]:
    """Names of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in headings}


@pytest.fixture(scope="module")
def found():
    import pandas

    records = read_records(sorted((RESULTS / "simulated").glob("*.csv")))
    theirs = frame(read_published(RESULTS / "published/h100.csv"))
    rows = read_rows(sorted((RESULTS / "simulated/tpuv4-llm").glob("*.csv")))
    return {
        verdict.claim: verdict
        for verdict in (
            *slicing_claims.check_claims(pandas.concat([records, theirs], ignore_index=True)),
            *meshslice_claims.check(rows),
        )
    }


def test_the_page_has_the_word_of_every_claim(found):
    words = dict(re.findall(r"^\| ([PM]\d+[a-z]?) \| ([A-Z]{2}[^|]+) \|", PAGE, re.MULTILINE))
    assert words == {name: shown(verdict.word) for name, verdict in found.items()}
    assert {verdict.word for verdict in found.values()} == {"PASS", "KNOWN"} < set(WORDS)


@pytest.mark.parametrize("claims", [slicing_claims, meshslice_claims, overlap, measured_claims])
def test_every_claim_says_where_its_numbers_are_from_and_by_what_it_holds(claims):
    assert claims.CLAIMS
    for name, claim in claims.CLAIMS.items():
        assert claim.source in SOURCES and claim.theirs and claim.threshold, name
        for path in claim.records.split(" (")[0].split(", "):
            files = re.sub(r"\{(.*?)\}", "*", path)
            assert list(ROOT.glob(files)), (name, path)


def test_people_read_that_a_claim_is_not_reproduced_with_both_numbers(capsys):
    claim = {"source": "simulated", "theirs": "5 %", "threshold": "within 2 points"}
    show([Verdict("P0", "It is 5 %.", False, "9 %", "page.md#why", **claim)])
    said = capsys.readouterr().out
    assert "NOT REPRODUCED (documented): It is 5 %." in said and "KNOWN" not in said
    for line in ("theirs: 5 %", "ours, simulated: 9 %", "holds if: within 2", "page.md#why"):
        assert line in said


def test_what_is_arithmetic_is_counted_apart(capsys):
    show([Verdict("P0", "", True, ""), Verdict("P1", "", True, "", source="arithmetic")])
    one, other = [line for line in capsys.readouterr().out.splitlines() if "PASS, " in line]
    assert one.startswith("1 PASS") and "arithmetic" in other and "1 PASS" in other


def test_what_does_not_hold_is_explained_where_the_verdict_says(found):
    known = [verdict.see for verdict in found.values() if verdict.word == "KNOWN"]
    assert known and {see.partition("#")[0] for see in known} == {"docs/reproduction.md"}
    assert {see.partition("#")[2] for see in known} <= anchors(PAGE)
