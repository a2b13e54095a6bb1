"""Step T4 of the artifact: ``python plots/plot_mlp1.py < mlp1.txt``, from any folder, with nothing
installed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from drbench.measure.record_file import append_csv
from plots.from_stdin import main

ROOT = Path(__file__).parents[2]


def script(name, data, folder, *arguments):
    """The script as a process of its own that is told nothing of where the packages are."""
    environ = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return subprocess.run(
        [sys.executable, "-I", str(ROOT / "plots" / name), *map(str, arguments)],
        input=data,
        capture_output=True,
        cwd=folder,
        env=environ,
        timeout=300,
    )


@pytest.fixture(scope="module")
def rows(synthetic, tmp_path_factory):
    path = tmp_path_factory.mktemp("rows") / "mlp.txt"
    append_csv(path, *[r for r in synthetic.sweep(ranks=2, h=64) if r.mode != "published"])
    return path.read_bytes()


def test_records_on_standard_input_become_the_figure(rows, tmp_path):
    ended = script("plot_mlp1.py", rows, tmp_path)
    assert (ended.returncode, ended.stdout.split()) == (0, [b"mlp1.pdf", b"mlp1.png"])
    assert (tmp_path / "mlp1.pdf").read_bytes()[:5] == b"%PDF-"
    assert b"not drawn: DT - Row, DT - Column, COSMA-NCCL (no record)" in ended.stderr


def test_the_second_layer_has_its_own_script_and_takes_published_lines(rows, tmp_path):
    ended = script(
        "plot_mlp2.py", rows, tmp_path, ROOT / "results" / "published" / "h100.csv", "-o", "two.png"
    )
    assert (ended.returncode, ended.stdout.split()) == (0, [b"two.png"])
    assert [path.name for path in tmp_path.iterdir()] == ["two.png"]


@pytest.fixture
def piped(monkeypatch, capsys):
    """``piped(data, *arguments)``: the script's main in this process: (exit code, stderr)."""

    def call(data, *arguments, layer="mlp1"):
        read, write = os.pipe()
        os.write(write, data)
        os.close(write)
        with os.fdopen(read) as stdin:
            monkeypatch.setattr(sys, "stdin", stdin)
            code = main(layer, list(map(str, arguments)))
        return code, capsys.readouterr().err

    return call


@pytest.mark.parametrize(
    "data, said",
    [
        (b"", "no case of mlp1 in 0 records"),
        (b"hello\n", "standard input has another header: 'hello'"),
        (b"\xff\x00\n", "standard input has another header"),
    ],
)
def test_what_is_no_records_is_refused_in_one_line(piped, data, said, tmp_path):
    code, err = piped(data, "-o", tmp_path / "x")
    assert code == 2 and said in err and err.count("\n") == 1 and err.startswith("plot_mlp1.py: ")
    assert list(tmp_path.iterdir()) == []


def test_a_torn_last_line_is_said_and_left_out(piped, rows, tmp_path):
    code, err = piped(rows[:60000].rpartition(b",")[0], "-o", tmp_path / "x.png")
    assert code == 0 and "standard input: the last line has no newline and is left out" in err


def test_a_folder_that_is_not_there_is_refused(piped, rows, tmp_path):
    code, err = piped(rows[:60000], "-o", tmp_path / "no" / "x.png")
    assert code == 2 and err.count("No such file") == 1
