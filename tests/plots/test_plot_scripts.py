"""Step T4 of the artifact: ``python plots/plot_mlp1.py < mlp1.txt``, from any folder, with nothing
installed."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from figure_records import sweep

from drbench.measure.record_file import append_csv

ROOT = Path(__file__).parents[2]


def script(name, data, folder, *arguments, **pipes):
    """Run the script as a process of its own, without the path of the packages."""
    environ = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return subprocess.run(
        [sys.executable, "-I", str(ROOT / "plots" / name), *map(str, arguments)],
        **({"input": data} if not pipes else pipes),
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
    published = ROOT / "results" / "published" / "h100.csv"
    ended = script("plot_mlp2.py", rows, tmp_path, published, "-o", "two.txt")
    assert (ended.returncode, ended.stdout.split()) == (0, [b"figure:", b"two.txt"])
    assert [path.name for path in tmp_path.iterdir()] == ["two.txt"]
    drawn = (tmp_path / "two.txt").read_text()
    assert "COSMA" in drawn and "Column" in drawn


def test_files_are_drawn_whatever_standard_input_is(rows, tmp_path):
    """The lines of the figure are those of the files, and of input that has data."""
    path, published = tmp_path / "x.csv", ROOT / "results" / "published" / "h100.csv"
    path.write_bytes(rows)
    idle, writer = os.pipe()
    ours, terminal = pty.openpty()
    drawn = set()
    with open(path, "rb") as whole:
        for files, source in [
            ((path, published), {"stdin": terminal}),
            ((path, published), {"stdin": idle}),
            ((path, published), {"preexec_fn": lambda: os.close(0)}),
            ((published,), {"stdin": whole}),
        ]:
            ended = script("plot_mlp1.py", b"", tmp_path, *files, "-o", "one.txt", **source)
            assert ended.returncode == 0, ended.stderr
            assert ended.stderr.count(b"not read") == (source.get("stdin") == idle)
            drawn.add((tmp_path / "one.txt").read_text())
    assert len(drawn) == 1
    for source in {"stdin": terminal}, {"preexec_fn": lambda: os.close(0)}:
        ended = script("plot_mlp1.py", b"", tmp_path, **source)
        assert ended.returncode == 2 and ended.stderr.count(b"\n") == 1
        assert b"standard input is " in ended.stderr
    for each in (idle, writer, ours, terminal):
        os.close(each)


def test_a_file_without_records_is_refused_in_one_line(tmp_path):
    ended = script("plot_mlp1.py", b"hello\n", tmp_path)
    assert ended.returncode == 2 and ended.stderr.count(b"\n") == 1
    assert b"standard input has another header: 'hello'" in ended.stderr
    assert list(tmp_path.iterdir()) == []
