"""Titles, the report and the lines of a sweep name the fastest by the one decision: records that
are noisy, share cores or were measured one after the other are not ranked. No title is contradicted
by the notes of its figure, nor by what is drawn."""

import pytest
from figure_records import KINDS, rounds, texts
from made_up import made_up, of_universal

from drbench.launch.host.show import console
from drbench.launch.views.problems import show_answer
from drbench.measure.record_file import append_csv
from drbench.plots.draw.description import describe_picture
from drbench.plots.figures.scaling import STRONG
from drbench.plots.figures.scaling import choose as choose_lines
from drbench.plots.figures.scaling import finding as scaling_finding
from drbench.plots.registry import find
from drbench.plots.report.verdict import headline, verdict
from drbench.plots.select.cases import Options
from drbench.plots.select.records import frame, read_records


def title(name, records):
    """The title of a figure, which is the first of its texts."""
    return texts(describe_picture(find(name).make(records, Options()).picture))[0]


#: Times of the three cases -> the titles of algorithms, best and mlp, and the line of a sweep.
TITLES = {
    (1.0, 1.3, 2.0): (
        "MLP-1, m = 64: Row is fastest, 90 % of GEMM-only speed",
        "Row S-C is fastest, 1.5 ms",
        "Universal S-C row is fastest: 1.5 ms, 90 % of GEMM-only speed",
    ),
    (1.3, 1.305, 2.0): (
        "MLP-1, m = 64: tied: Row, Column",
        "Tied: row S-C, column S-C",
        "Tied: universal S-C row, universal S-C column: 1.95 ms, 90 % of GEMM-only speed",
    ),
}


@pytest.mark.parametrize("times", TITLES)
def test_titles_name_the_fastest_or_the_tied_ones_of_interleaved_rounds(times):
    records = rounds(times)
    mlp, best, line = TITLES[times]
    assert title("mlp1", records) == mlp and title("best", records) == best
    found = verdict(frame(records))
    (shown,) = found.best  # of the report
    assert headline(found).startswith(line)
    assert line.lower().startswith(shown.answer.lower())
    # the time of the report is that of the figures
    moved = [row for row in records if row.a == "row"]
    (shown,) = verdict(frame(moved)).best
    assert shown.time in describe_picture(find("algorithms").make(moved, Options()).picture)


#: Why nothing is ranked -> what would decide.
DOUBTS = {"noisy": "a quiet machine", "oversubscribed": "a core for each rank"}


def test_a_sweep_of_doubtful_cases_names_none(dealt):
    """The title of mlp once ranked noisy cases at 111 % of the bound."""
    for turn, (doubt, needs) in enumerate(DOUBTS.items()):
        records = rounds((1.0, 1.3, 2.0), **{doubt: True})
        for name in dealt(("mlp1", "best", "algorithms", "libraries"), turn, 2):
            text = describe_picture(find(name).make(records, Options()).picture)
            assert "nothing is ranked" in texts(text)[0].lower()
            assert f"{needs} would decide" in text, name
        said = f"18 results correct, but no time can be used ({needs} would decide)."
        assert headline(verdict(frame(records))) == said
        grown = rounds((1.0, 1.3, 2.0)) + rounds((0.5, 0.6, 1.0), ranks=8, **{doubt: True})
        panels, _ = choose_lines(STRONG, grown, Options())
        assert scaling_finding(panels) == "On 8 ranks nothing is ranked"


def test_a_setting_that_ran_only_while_the_machine_was_fast_does_not_represent_its_series():
    """A sweep dropped it after six rounds; its median is the smallest all the same."""

    def case(layout, ratio, turns, jitter=0.0, **more):
        times = [1e-3 * ratio * (1 + turn // 6) * (1 + jitter * (-1) ** turn) for turn in turns]
        known = {
            "percent_of_gemm_only": 90.0,
            "percent_of_peak": 40.0,
            **dict.fromkeys("abc", layout),
        }
        return [
            of_universal(
                **known | more, median_s=s, gemm_only_gflops=100.0 + turn % 2, case=f"{turn} | x"
            )
            for turn, s in enumerate(times)
        ]

    rival = lambda **more: case("column", 1.0, range(20), 0.03, **more)
    same_series = case("row", 1.1, range(6)) + case("row/c2", 1.0, range(20))
    same_cell = case("row", 1.1, range(6)) + case("row", 1.0, range(20), a="row/c2", b="row/c2")
    assert "undecided" in title("mlp1", same_series + rival())
    assert "undecided" in title("best", same_cell + rival()).lower()


def test_equal_rounds_of_two_sweeps_were_not_interleaved(tmp_path):
    """One ran an hour after the other, while the machine was slower."""
    row, column = (rounds((1.0, 1.3))[at : at + 6] for at in (0, 6))
    for name, records in (("both", row + column), ("first", row), ("later", column)):
        append_csv(tmp_path / f"{name}.csv", *records)
    read = lambda *names: headline(
        verdict(read_records([tmp_path / f"{name}.csv" for name in names]))
    )
    assert "row is fastest" in read("both")
    line = read("first", "later")
    assert line.startswith("Undecided: universal S-C row, universal S-C column")
    assert line.endswith("(interleaved rounds would decide).")


def test_a_case_alone_is_not_the_fastest():
    alone, two = rounds((1.0,)), rounds((1.0, 1.3), m=128)
    assert title("mlp1", alone) == "MLP-1, m = 64: only Row, 90 % of GEMM-only speed"
    assert title("algorithms", alone) == "Only universal S-C"
    one, other = sorted(each.answer for each in verdict(frame(alone + two)).best)
    assert other == "universal S-C row is fastest" and one == "only universal S-C row"


def test_several_problems_have_one_answer_and_a_row_each(capsys):
    """One shape in two element types, and stored in two ways; rows that have no rival are problems
    too. A small layer has its own sizes as its name."""
    one = lambda **more: [
        of_universal(**dict.fromkeys("abc", kind), samples_s=[1.0, 1.0], **more) for kind in KINDS
    ]
    found = verdict(frame(one() + one(dtype="float64") + one(transpose="a")))
    assert {each.problem for each in found.best} == {"64 × 256 × 64"}
    said, _, most = headline(found).partition("; most often among the fastest: ")
    assert said == "Undecided on 3 of 3 problems (interleaved rounds would decide)"
    assert {*most.removesuffix(", on 2.").split(", ")} <= {f"universal S-C {x}" for x in KINDS}
    show_answer(found, [], console(width=100), "runs")
    text = capsys.readouterr().out
    assert text.count("64 × 256 × 64") == 3 and text.count("float64") == text.count("Aᵀ·B") == 1
    many = verdict(frame([row for m in range(1, 20) for row in one(m=m)]))
    show_answer(many, [], console(), "runs")
    assert "11 problems more: drbench compare runs -v" in capsys.readouterr().out


def test_a_case_of_one_repeat_is_hollow_and_not_ranked_and_a_round_is_not():
    """Single times were once drawn solid, at 39 to 148 percent of the roof."""
    found = [of_universal(a=kind, samples_s=[1e-3], case=kind) for kind in KINDS[:2]]
    assert list(frame(found).hollow) == [True, True] and verdict(frame(found)).best == []
    described = " ".join(describe_picture(find("best").make(found, Options()).picture).split())
    assert "Grey: 2 noisy cases (2 measured once), never ranked" in described
    interleaved = made_up(m=8, n=8, k=8, case="1 | s | x | y", samples_s=[1.0])
    assert not frame([interleaved]).hollow.any()


def test_the_ideal_is_of_ranks_with_cores_of_their_own_and_a_lost_baseline_has_a_remedy():
    """Of two cases on one rank the faster shared its core; one rank had more threads than two."""
    lone = lambda time, **more: of_universal(
        samples_s=[time] * 8, median_s=time, best_s=time, **{"ranks": 1, "threads": 1, **more}
    )
    column = dict.fromkeys("abc", "column")
    found = [lone(1.0, oversubscribed=True), lone(1.5, **column), lone(0.6, ranks=2)]
    panels, _ = choose_lines(STRONG, found, Options())
    assert scaling_finding(panels) == "On 2 ranks only UA - Row with 125 % of the ideal"
    found = [lone(1.0, threads=2), lone(0.6, ranks=2), lone(0.4, ranks=4)]
    _, notes = choose_lines(STRONG, found, Options())
    assert "1 case" in notes[-1] and notes[-1].endswith("the same --threads.")
