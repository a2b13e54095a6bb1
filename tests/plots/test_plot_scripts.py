"""Step T4 of the artifact: ``python plots/plot_mlp1.py < mlp1.txt``, from any folder, with nothing
installed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from drbench.measure.record_file import append_csv

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
    assert ended.returncode == 0 and b"figure: mlp1.pdf" in ended.stdout
    assert (tmp_path / "mlp1.pdf").read_bytes()[:5] == b"%PDF-"
    assert b"not drawn: DT - Row, DT - Column, COSMA-NCCL (no record)" in ended.stderr


def test_the_second_layer_takes_published_lines_and_says_what_is_torn(rows, tmp_path):
    published, torn = ROOT / "results" / "published" / "h100.csv", rows.rpartition(b",")[0]
    ended = script("plot_mlp2.py", torn, tmp_path, published, "-o", "two.png")
    assert ended.returncode == 0 and [path.name for path in tmp_path.iterdir()] == ["two.png"]
    assert b"standard input: the last line has no newline and is left out" in ended.stderr


def test_what_is_no_records_is_refused_in_one_line(tmp_path):
    ended = script("plot_mlp1.py", b"hello\n", tmp_path)
    assert ended.returncode == 2 and list(tmp_path.iterdir()) == []
    (line,) = ended.stderr.decode().splitlines()
    assert "standard input has another header: 'hello'" in line
