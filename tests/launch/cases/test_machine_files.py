"""Machine files: an edit changes one section, whatever the contents of the others."""

import os

import pytest

from drbench.errors import CaseFailed, UsageError
from drbench.launch.cases.launchers import load_launcher
from drbench.launch.cases.machine_models import write_model
from drbench.model.machine import Machine

OTHERS = '# my lab\n[launch]\nlauncher = []\n\n[environment]\nX = "1"  # keep\n'
REST = OTHERS.partition("\n")[2]
MODEL = {"#": "measured", "name": "new", "compute": {"peak_flops": (1.23456789e11, "fitted")}}


@pytest.fixture
def file(tmp_path):
    """``file(text)``: a machine file."""

    def write(text):
        (tmp_path / "mine.toml").write_text(text)
        return tmp_path / "mine.toml"

    return write


def test_a_list_over_several_lines_is_replaced_whole(file):
    """A line of the list that begins with a bracket is no table."""
    path = file("[model]\nname = 'old'\n[model.compute]\ntiles = [\n[1, 2],\n[3, 4]\n]\n" + REST)
    write_model(path, MODEL)
    assert path.read_text().startswith(REST) and "tiles" not in path.read_text()
    assert Machine.load(path).compute.peak_flops == 1.23457e11


@pytest.mark.parametrize("name", ['lab "A"', "a\\b", "x'y", "ü # no comment"])
def test_any_name_is_accepted(file, name):
    path = file("")
    write_model(path, MODEL | {"name": name})
    assert Machine.load(path).name == name


def test_tables_between_those_of_the_model_stay_unchanged(file):
    head, tail = "# my lab\n[launch]\nlauncher = []\n", '[environment]\nX = "1"  # keep\n'
    path = file(f"{head}[model]\nname = 'old'\n{tail}[model.compute]\npeak_flops = 1.0\n")
    text = write_model(path, MODEL)
    assert path.read_text() == f"{head}{tail}\n{text}\n"
    assert load_launcher(str(path)).environment == {"X": "1"}


def test_a_failed_write_leaves_the_file_unchanged(file, monkeypatch):
    path = file(OTHERS)
    monkeypatch.setattr(
        os, "fsync", lambda handle: (_ for _ in ()).throw(OSError(28, "No space left on device"))
    )
    with pytest.raises(CaseFailed, match="No space left"):
        write_model(path, MODEL)
    assert path.read_text() == OTHERS and list(path.parent.iterdir()) == [path]


def test_a_file_that_is_no_toml_is_refused_and_left_unchanged(file):
    path = file("[model\n")
    with pytest.raises(UsageError, match="mine.toml is not TOML"):
        write_model(path, MODEL)
    assert path.read_text() == "[model\n"
