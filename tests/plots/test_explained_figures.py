"""The figures of runs are drawn from the programs as they are now, in the colours and words of the
page of ``drbench explain``."""

import re

import pytest
from starting import ROOT

from benchmarks.figures import committed, explain
from drbench.launch.commands.cli import main
from drbench.partitions.text import parse
from drbench.plots.draw.description import describe_picture
from drbench.plots.draw.matrices import DOES as LOOKS
from drbench.plots.draw.matrices import tint
from drbench.plots.draw.page import PageStyle
from drbench.plots.figures.frames import lines_at, moments
from drbench.plots.figures.layouts import waits
from drbench.plots.registry import find
from drbench.plots.select.cases import Options, SelectionError
from drbench.plots.select.runs import owners_of, read, tiles
from drbench.program.steps import DOES

DRAWN = [each for each in committed() if each.explain]


def runs(tmp_path, *options):
    """The cases of some commands."""
    paths = [tmp_path / f"{at}.json" for at in range(len(options))]
    for words, path in zip(options, paths):
        explain(words, path)
    return read(paths)


@pytest.mark.parametrize("each", DRAWN, ids=lambda each: each.file)
def test_a_committed_drawing_is_that_of_the_programs_now(each):
    assert each.difference() == [], f"python -m benchmarks figures {each.file} draws it anew"


def test_a_command_writes_the_picture_that_is_committed_for_it(tmp_path, capsys):
    (hero,) = (each for each in DRAWN if each.figure == "layouts")
    explain(hero.explain[0], tmp_path / "picture.svg")
    assert (tmp_path / "picture.svg").read_bytes() == (ROOT / f"{hero.file}.svg").read_bytes()


def test_colours_and_words_are_those_of_the_page():
    script, page = (ROOT / f"plots/report/explain.{kind}" for kind in ("js", "html"))
    (words,) = re.findall(r"const VERBS = {(.*?)}", script.read_text("utf-8"))
    assert dict(re.findall(r'(\w+): "(.*?)"', words)) == {
        does: look.name for does, look in LOOKS.items()
    }
    light = page.read_text("utf-8").partition("[data-theme")[0]
    assert all(f"--{does}: {look.color};" in light for does, look in LOOKS.items())
    assert [*LOOKS] == [*DOES]
    hue, light = "(330 + ((owner * 123.6) % 200)) % 360", "35% ${93 - (owner % 3) * 4}%"
    assert hue in script.read_text("utf-8") and light in script.read_text("utf-8")
    assert tint(0) == "#f3e7ed"


@pytest.mark.parametrize("text", ["", "[]", '{"cases": [{"ranks": []}]}', '{"cases": 3}'])
def test_other_files_are_refused_with_the_remedy(tmp_path, text):
    (tmp_path / "other.json").write_text(text)
    with pytest.raises(SelectionError, match="drbench explain --save FILE.json"):
        read([tmp_path / "other.json"])


@pytest.mark.parametrize("text", ["row", "column", "block:2x3", "tiles:3x5@2x3", "block/c2", "R"])
def test_the_owners_of_tiles_are_those_that_store_them(tmp_path, text):
    (case,) = runs(tmp_path, f"-m 12 -n 10 -k 8 -p 6 --a {text} --b row --c row")
    bound = parse(text).bind((12, 8), 6)
    for rank in range(6):
        found = [(t.rows, t.cols) for t in tiles(case["matrices"][0]) if rank in t.owners]
        bounds = [bound.tile_bounds(tile) for tile in bound.tiles_of(rank)]
        assert found == [((r.start, r.stop), (c.start, c.stop)) for r, c in bounds]


def test_a_region_is_in_the_tiles_of_its_owners(tmp_path):
    (case,) = runs(tmp_path, "-m 64 -n 64 -k 64 -p 4 --preset column/c2 --stationary B")
    for bar in case["ranks"][2]:
        for source, _, _ in bar.moves:  # rank 2 fetches from its own replica
            assert [owners_of(case, region) for region in bar.writes] == [("A", [source])]


def test_a_rank_waits_where_nothing_computes(tmp_path):
    cases = runs(tmp_path, "-m 512 -n 512 -k 512 -p 4 --preset row --machine pvc12")
    for bars in cases[0]["ranks"]:
        idle = sum(stop - start for start, stop in waits(bars, cases[0]["time_s"]))
        busy = sum(bar.stop_s - bar.start_s for bar in bars if bar.computes)
        assert idle + busy == pytest.approx(cases[0]["time_s"])


@pytest.mark.parametrize("algorithm, most", [("cannon", 4), ("summa", 4), ("collective", 2)])
def test_moments_are_of_different_gemms_in_order(tmp_path, algorithm, most):
    (case,) = runs(tmp_path, f"-m 1536 -n 1536 -k 1536 -p 9 --algorithm {algorithm}")
    found = moments(case, 4)
    said = [lines_at(case, 4, t) for t in found]
    assert found == sorted(found) and len(found) == most
    assert len({str(lines) for lines in said}) == most and said[0][0][0] == "collective"


@pytest.mark.parametrize(
    "options",
    [
        "-m 8 -n 8 -k 8 -p 1",
        "-m 7 -n 5 -k 3 -p 12 --preset block/c2 --machine pvc12",
        "-m 64 -n 64 -k 64 -p 27 --preset optimal",
        "-m 4Ki -n 4Ki -k 4Ki -p 8 --algorithm gemm_rs --machine h100x8",
        "-m 64 -n 64 -k 64 -p 4 --a tiles:8x16 --b R --c P",
        "-m 64 -n 64 -k 64 -p 4 --algorithm ag_moe",
    ],
)
def test_any_run_is_drawn_and_the_same_at_any_width(tmp_path, options):
    cases = runs(tmp_path, options)
    for figure in ("layouts", "partitions", "stationary", "frames"):
        wide, narrow = (
            find(figure).make(cases, Options(), PageStyle(width)).picture for width in (7.0, 3.5)
        )
        assert describe_picture(wide) == describe_picture(narrow)
        ratio = wide.get_size_inches() / narrow.get_size_inches()
        assert ratio == pytest.approx([2, 2], rel=0.15)


def test_a_picture_is_written_by_explain_too(tmp_path):
    assert main(["explain", *"-m 64 -n 64 -k 64 -p 2 --save".split(), str(tmp_path / "x.svg")]) == 0
    assert "multiplies" in (tmp_path / "x.svg").read_text("utf-8")
