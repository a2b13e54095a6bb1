"""Every committed figure is drawn from the committed records; its description has every mark."""

import shutil

import pytest
from figure_records import comparison
from matplotlib.figure import Figure as Picture

from benchmarks.figures import LIST, ROOT, committed, main
from drbench.plots.draw import style
from drbench.plots.draw.description import describe_picture, named
from drbench.plots.registry import find
from drbench.plots.select.cases import Options

EVERY = committed()


@pytest.mark.papers
@pytest.mark.parametrize("each", EVERY, ids=lambda each: each.file)
def test_the_description_of_a_committed_figure_has_its_marks(each):
    assert each.difference() == [], f"python -m benchmarks figures {each.file} draws it anew"


def test_a_figure_is_committed_once_as_svg_and_every_one_is_listed():
    there = {
        path.relative_to(ROOT).as_posix()
        for folder in ("docs/images", "results")
        for suffix in (".png", ".pdf", ".svg", ".txt")
        for path in (ROOT / folder).rglob(f"*{suffix}")
        if "here" not in path.parts
    }
    assert there == {f"{each.file}.svg" for each in EVERY}


def test_a_record_that_changes_is_a_difference(tmp_path):
    (each,) = [each for each in EVERY if each.file.endswith("libraries")]
    for path in (*each.inputs, f"{each.file}.svg"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        copy = shutil.copytree if (ROOT / path).is_dir() else shutil.copy
        copy(ROOT / path, tmp_path / path)
    assert each.difference(tmp_path) == []
    records = tmp_path / each.inputs[0] / "records.csv"
    header, *lines = records.read_text().splitlines(keepends=True)
    records.write_text("".join([header, *(line for line in lines if ",cosma," not in line)]))
    assert len(each.difference(tmp_path)) > 3
    (tmp_path / f"{each.file}.svg").unlink()
    assert any(line.startswith("+panel: ") for line in each.difference(tmp_path))


def test_a_list_with_an_unknown_key_is_refused(tmp_path):
    (tmp_path / "results").mkdir()
    (tmp_path / LIST).write_text('[[figure]]\nfigure = "best"\nplace = "x"\n')
    with pytest.raises(ValueError, match="figures.toml: .*'place'.* Its first lines"):
        committed(tmp_path)


def test_files_can_be_chosen_and_others_are_refused(capsys):
    assert main(["--check", "docs/images/llm-weak"]) == 0
    with pytest.raises(SystemExit) as ended:
        main(["--check", "docs/images/none"])
    assert ended.value.code == 2 and "has no file docs/images/none" in capsys.readouterr().err


def test_fonts_change_no_text(monkeypatch):
    records = comparison(shapes=((64, 768, 192),))
    described = lambda: describe_picture(find("algorithms").make(records, Options()).picture)
    before = described()
    monkeypatch.setitem(style.RC, "font.family", "DejaVu Serif")
    monkeypatch.setitem(style.RC, "font.size", 11)
    monkeypatch.setattr(
        "drbench.plots.draw.page.width_in", lambda text, size, bold=False: 0.1 * len(text)
    )
    assert described() == before


def test_the_description_shows_a_moved_point_bar_cell_and_text():
    def drawn(at):
        picture = Picture()
        axes = picture.add_axes((0, 0, 1, 1))
        named(axes.plot([at, 2], [1, 3], "s", markerfacecolor="white")[0], "points")
        named(axes.plot([2, at], [1, 3])[0], "line")
        named(axes.bar([1, at], [2, 3]), "bars")
        axes.pcolormesh([0, 1, 2], [0, 1], [[at, 5]])
        axes.annotate("here", (at, 1), (3, 3), textcoords="offset points")
        axes.axhline(at)
        axes.axvspan(0, at)
        axes.broken_barh([(at, 1)], (0, 1))
        axes.set(xlim=(0, 4), ylim=(0, 4))
        return describe_picture(picture).splitlines()

    one, other = drawn(1), drawn(1.5)
    kinds = "bars box cells line points rule spans text".split()
    assert [line.split()[0].strip(",:") for line in one[3:]] == kinds
    assert one[:3] == other[:3] and all(a != b for a, b in zip(one[3:], other[3:]))
    assert "points, points (#1f77b4 s hollow): (1, 1) (2, 3)" in one[7]
