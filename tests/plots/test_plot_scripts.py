"""Step T4 of the artifact: ``python plots/plot_mlp1.py < mlp1.txt``, from any folder, with nothing
installed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from figure_records import sweep

from drbench.measure.record_file import append_csv

ROOT = Path(__file__).parents[2]


def script(name, data, folder, *arguments):
    """Run the script as a process of its own, without the path of the packages."""
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
def rows(tmp_path_factory):
    path = tmp_path_factory.mktemp("rows") / "mlp.txt"
    append_csv(path, *[r for r in sweep(ranks=2, h=64) if r.mode != "published"])
    return path.read_bytes()


def test_records_on_standard_input_become_the_figure(rows, tmp_path):
    ended = script("plot_mlp1.py", rows, tmp_path)
    assert (ended.returncode, ended.stdout.split()) == (
        0,
        [b"figure:", b"mlp1.pdf", b"figure:", b"mlp1.png"],
    )
    assert (tmp_path / "mlp1.pdf").read_bytes()[:5] == b"%PDF-"
    assert b"not drawn" not in ended.stderr  # baselines without a record are no loss


def test_the_second_layer_has_its_own_script_and_takes_published_lines(rows, tmp_path):
    ended = script(
        "plot_mlp2.py", rows, tmp_path, ROOT / "results" / "published" / "h100.csv", "-o", "two.png"
    )
    assert (ended.returncode, ended.stdout.split()) == (0, [b"figure:", b"two.png"])
    assert [path.name for path in tmp_path.iterdir()] == ["two.png"]


def test_a_file_without_records_is_refused_in_one_line(tmp_path):
    ended = script("plot_mlp1.py", b"hello\n", tmp_path)
    assert ended.returncode == 2 and ended.stderr.count(b"\n") == 1
    assert b"standard input has another header: 'hello'" in ended.stderr
    assert list(tmp_path.iterdir()) == []
