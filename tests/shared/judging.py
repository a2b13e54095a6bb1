"""Verdicts on other rows than the committed ones."""

from drbench.launch.host.files import ROOT
from drbench.launch.papers import papers, slicing
from drbench.launch.papers.claims import check_claims
from drbench.plots.select.records import frame

RESULTS = ROOT / "results"


def judged(name):
    """The claims of a paper, and their committed rows."""
    paper = papers()[name]
    return paper.claims, paper.judged(paper.read(RESULTS / "simulated"), RESULTS)


def of_table(rows, table):
    """The same rows of another table."""
    other = type(rows)(table)
    other.ranges = rows.ranges
    return other


def of_slicing(records):
    return check_claims(slicing.CLAIMS, slicing.Figures(frame(records)))
