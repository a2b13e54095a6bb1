"""The figure of layouts next to timelines, from the data of ``drbench explain``."""

import json
import shlex

import pytest
from starting import ROOT

from launch.commands.cli import main
from partitions.text import parse
from plots.figures.layouts import _tiles, read
from plots.select.cases import SelectionError

DATA = ROOT / "results/simulated/readings/layouts.json"


def test_the_committed_data_equals_the_output_of_its_command(tmp_path, capsys):
    committed = json.loads(DATA.read_text())
    words = shlex.split(committed["command"])[1:]
    words[words.index("--save") + 1] = str(tmp_path / "now.json")
    assert main(words) == 0
    assert json.loads((tmp_path / "now.json").read_text())["cases"] == committed["cases"]


@pytest.mark.parametrize("text", ["", "[]", '{"cases": [{"ranks": []}]}', '{"cases": 3}'])
def test_other_files_are_refused_with_the_remedy(tmp_path, text):
    (tmp_path / "other.json").write_text(text)
    with pytest.raises(SelectionError, match="drbench explain --save FILE.json"):
        read([tmp_path / "other.json"])


@pytest.mark.parametrize("text", ["row", "column", "block:2x3", "tiles:3x5@2x3", "block/c2", "R"])
@pytest.mark.parametrize("rank", [0, 3, 5])
def test_marked_tiles_are_those_that_the_rank_stores(tmp_path, capsys, text, rank):
    save = tmp_path / "x.json"
    size = "-m 12 -n 10 -k 8 -p 6 --b row --c row".split()
    assert main(["explain", *size, "--a", text, "--save", str(save)]) == 0
    matrix = json.loads(save.read_text())["cases"][0]["matrices"][0]
    marked = [box for box, _, own in _tiles(matrix, rank) if own]
    bound = parse(text).bind((12, 8), 6)
    bounds = [bound.tile_bounds(tile) for tile in bound.tiles_of(rank)]
    stored = [(c.start / 8, c.stop / 8, r.start / 12, r.stop / 12) for r, c in bounds]
    assert sorted(marked) == sorted(stored)
