"""The source and criterion of every claim, and how a paper is added."""

import re
from pathlib import Path

import pytest
from pandas import DataFrame

import drbench.launch.papers
from drbench.launch.commands.cli import main
from drbench.launch.host.files import ROOT
from drbench.launch.papers import papers
from drbench.launch.papers.claims import Paper, ResultRows
from drbench.launch.papers.vary import FIRST, vary
from drbench.plots.registry import find
from drbench.plots.select.cases import Options, SelectionError


@pytest.mark.parametrize("paper", papers().values(), ids=papers())
def test_every_claim_has_a_source_and_a_criterion(paper):
    assert paper.claims
    for claim in paper.claims:
        assert (
            claim.source in ("measured", "simulated", "arithmetic")
            and claim.theirs
            and claim.threshold
        ), claim.name
        for path in claim.records.split(" (")[0].split(", "):
            files = re.sub(r"\{(.*?)\}", "*", path)
            assert list(ROOT.glob(files)), (claim.name, path)
        assert (ROOT / claim.see.partition("#")[0]).exists()
        assert bool(claim.see) == bool(claim.why), claim.name


#: The files of a paper: its claims, its records being a number; and a figure.
CLAIMS = """
from drbench.launch.papers.claims import Claim, Paper

def check(rows):
    return rows > 2, f"{rows} of 3"

PAPER = Paper(
    "a paper of one's own",
    [Claim("Z1", "Table 9: it is three", check, "3", "more than 2", "results/claims.csv")],
    read=lambda folder: 3, machines={"a100pcie": ()}, factors=(2.0,),
    simulate=lambda changed: 1 if changed else 3,
)
"""
FIGURES = """
from drbench.plots.draw.chart import Axis, Chart, Marks
from drbench.plots.draw.figure import Figure
from drbench.launch.papers.claims import ResultRows
from drbench.launch.papers.drawing import draw_page, select_simulated

def make(rows, options):
    ours = select_simulated(rows, "nine")
    marks = [Marks("points", "ours", ours.m, ours.seconds)]
    chart = Chart("Table 9", "", Axis("m", (0, 4)), Axis("seconds", (0, 4)), marks)
    return draw_page([chart], {}, [], 1.0)

FIGURES = (Figure("own-nine", "Table 9", make, read=ResultRows),)
"""


def test_a_paper_is_added_by_one_folder(monkeypatch, capsys, tmp_path):
    """The new folder is found, checked and varied; and its figure is drawn."""
    (tmp_path / "own").mkdir()
    (tmp_path / "own/__init__.py").write_text(CLAIMS)
    (tmp_path / "own/figures.py").write_text(FIGURES)
    monkeypatch.setattr(
        drbench.launch.papers, "__path__", [*drbench.launch.papers.__path__, str(tmp_path)]
    )
    assert "own" in papers()
    given = ["artifact", "--only", "Z1"]
    assert main([*given, "--out", str(tmp_path / "out")]) == 1  # there is no committed verdict
    text = capsys.readouterr().out
    assert "PASS  Z1 Table 9: it is three" in text and "Z1 was none" in text
    assert main([*given, "--sensitivity"]) == 0
    first, *others = capsys.readouterr().out.splitlines()
    assert first == "own: unchanged: Z1 holds" and others
    assert all(line.endswith(": Z1 does not hold") for line in others)
    rows = ResultRows(
        DataFrame({"study": ["nine"], "mode": ["simulated"], "m": [1], "seconds": [2.0]})
    )
    picture = find("own-nine").make(rows, Options()).picture
    assert [each.get_text() for each in picture.texts][0] == "Table 9"
    with pytest.raises(SelectionError, match="python -m drbench.launch.papers DIR nine"):
        find("own-nine").make(ResultRows(rows.table[:0]), Options())


def test_claims_are_judged_with_the_constants_before_those_were_changed_too():
    """NCCL on H800 had 0.8 of the data sheet's 200 GB/s."""
    tried = []
    paper = Paper("", (), Path, machines={"h800": ()}, factors=(), simulate=tried.append)
    *_, first = vary("own", paper, Path())
    gathers = [each["h800"].collective("allgather").bandwidth_bytes_per_s for each in tried[1:]]
    assert (first.machine, first.change, gathers) == ("h800", FIRST, [164.8e9, 160e9])
