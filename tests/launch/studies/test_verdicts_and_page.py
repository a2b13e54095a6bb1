"""The documentation says of each claim what the committed records say."""

import re

import pytest

from launch.host.files import ROOT
from launch.studies import meshslice_claims, slicing_claims
from launch.studies.verdicts import WORDS
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
    words = dict(re.findall(r"^\| ([PM]\d+a?) \| ([A-Z]+) \|", PAGE, re.MULTILINE))
    assert words == {name: verdict.word for name, verdict in found.items()}
    assert set(words.values()) == {"PASS", "KNOWN"} < set(WORDS)


def test_what_does_not_hold_is_explained_where_the_verdict_says(found):
    known = [verdict.see for verdict in found.values() if verdict.word == "KNOWN"]
    assert known and {see.partition("#")[0] for see in known} == {"docs/reproduction.md"}
    assert {see.partition("#")[2] for see in known} <= anchors(PAGE)
