"""No title of a figure, and no first line of a report, is contradicted by the notes below it or by
the marks that are drawn."""

import re
from collections import Counter
from dataclasses import replace

import pytest
from figure_records import KINDS, rounds, texts
from made_up import of_universal

from benchmarks.figures import committed
from drbench.plots.draw.description import describe_picture
from drbench.plots.registry import find
from drbench.plots.report.verdict import headline, verdict
from drbench.plots.select.cases import Options, SelectionError
from drbench.plots.select.records import frame

_MARKS = re.compile(r"^  (?:line|points), (.+) \(#\w+ \S+?( hollow)?\): (.*)$", re.M)
_ALL = re.compile(r"(fastest|ahead of.*|behind.*) on (\d+) of \2 ", re.I)


def contradictions(description):
    """What a described figure says against its title."""
    title, *notes = texts(description) or [""]
    head, small = title.lower(), " ".join(notes).lower()
    is_open = "undecided" in head or "nothing is ranked" in head
    if "would decide" in small and not is_open:
        yield "something is still to be decided"
    if is_open and "would decide" not in head + small:
        yield "it is open, and nothing would decide it"
    if _ALL.search(title) and re.search("undecided|nothing is ranked", small):
        yield "all are decided, and some are not"
    if "not stable" in small and "intervals are compared" not in small:
        yield "unstable cases are ranked"
    drawn, hollow = Counter(), Counter()  # a hollow mark is described twice
    for name, is_hollow, points in _MARKS.findall(description):
        for each in re.split(r"(?: \(S-.\))?(?:, |$)", name):
            (hollow if is_hollow else drawn)[each] += points.count("(")
    noisy = [name for name in drawn if name and hollow[name] == drawn[name] > 0]
    yield from (f"{name} is noisy" for name in noisy if re.search(rf"\b{name}\b", title, re.I))
    if hollow.total() and hollow == drawn and "nothing is ranked" not in head:
        yield "every case is noisy"


def one_after_the_other(low=1.0, **values):
    """Each case ran once, with an interval of some percent."""
    return [
        of_universal(
            **dict.fromkeys("abc", kind),
            best_s=s,
            median_s=s,
            samples_s=[s, s],
            gemm_only_gflops=9.0,
            percent_of_gemm_only=90 / s,
            percent_of_peak=40 / s,
            median_low_s=s * (1 - low / 100),
            median_high_s=s * (1 + low / 100),
            **values,
        )
        for kind, s in zip(KINDS, (1.0, 1.3, 2.0))
    ]


def with_library(ours, theirs):
    """drbench and another library in the same rounds, each with its factor on the times and more
    columns."""
    library = {"algorithm": "cosma", "stationary": None, **dict.fromkeys("abc")}
    every = []
    for (factor, more), known in ((ours, {}), (theirs, library)):
        for row in rounds((factor,)):
            case = f"{row.case} {known.get('algorithm', '')}"
            every.append(replace(row, **known, **more, case=case))
    return every


NOISY = {"noisy": True}
DATA = {
    "fastest": rounds((1.0, 1.3, 2.0)),
    "tied": rounds((1.3, 1.305, 2.0)),
    "noisy": rounds((1.0, 1.3, 2.0), **NOISY),
    "more ranks than cores": rounds((1.0, 1.3, 2.0), oversubscribed=True),
    "one noisy": rounds((2.0, 1.3)) + [replace(row, noisy=True) for row in rounds((1.0,))],
    "the best noisy": [replace(row, noisy=row.a == "row") for row in rounds((1.0, 1.3, 2.0))],
    "one case": rounds((1.0,)),
    "undecided": one_after_the_other(low=40),
    "one after the other": one_after_the_other(),
    "unstable": one_after_the_other(low=3, stable=False),
    "once": [replace(row, samples_s=row.samples_s[:1]) for row in one_after_the_other()],
    "two shapes": rounds((1.0, 1.3, 2.0)) + rounds((1.0, 1.3), m=128, **NOISY),
    "ahead": with_library((1.0, {}), (1.5, {})),
    "behind": with_library((1.5, {}), (1.0, {})),
    "a noisy library": with_library((1.5, {}), (1.0, NOISY)),
    "drbench noisy": with_library((1.0, NOISY), (1.5, {})),
}
FIGURES = ("mlp", "best", "algorithms", "libraries", "strong", "weak")


@pytest.mark.parametrize("kind", DATA)
def test_no_title_is_contradicted_by_its_figure(kind):
    records, drawn = DATA[kind], 0
    grown = [replace(row, ranks=2 * row.ranks, m=2 * row.m) for row in records]
    for name in FIGURES:
        several = {"strong": [replace(row, m=64) for row in grown], "weak": grown}.get(name, [])
        try:
            made = find(name).make([*records, *several], Options())
        except SelectionError:
            continue
        description = describe_picture(made.picture)
        assert [*contradictions(description)] == [], (name, description)
        drawn += 1
    assert drawn >= 3
    line = headline(verdict(frame(records)))
    if all(frame(records).hollow):
        assert "no time can be used" in line
    assert not (" is fastest:" in line and "would decide" in line)


@pytest.mark.parametrize("each", committed(), ids=lambda each: each.file)
def test_no_committed_title_is_contradicted_by_its_figure(each):
    assert [*contradictions(each.description())] == []


def test_contradictions_are_found():
    mark = "  points, universal ({} o{}): (1, 2)\n"
    solid, hollow = mark.format("#0072b2", ""), mark.format("#0072b2", " hollow")

    def found(title, *notes, marks=solid):
        lines = "".join(f"  {text}\n" for text in (title, *notes))
        return [*contradictions(f"panel: x\n{marks}texts:\n{lines}")]

    assert found("Universal is fastest") == []
    assert found("Universal is fastest", "Undecided: more rounds would decide.")
    assert found("Undecided: universal, summa")
    assert found("Universal is fastest", marks=solid + hollow)
    assert found(
        "Drbench is ahead of the fastest other library on 3 of 3 shapes", "8: undecided: a"
    )
    assert found("Universal is fastest", "2 cases not stable.")
    assert found("Nothing is ranked", "Undecided: a quiet machine would decide.") == []
