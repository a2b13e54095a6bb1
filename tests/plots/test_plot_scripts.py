"""Step T4 of the artifact: ``python plots/plot_mlp1.py < mlp1.txt``, from any folder, with nothing
installed."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from figure_records import sweep

from drbench.measure.record import RecordError
from drbench.measure.record_file import append_csv
from plots.select.records import read_records, with_input

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


def test_the_second_layer_is_drawn_of_files_and_of_standard_input_that_has_data(rows, tmp_path):
    published = ROOT / "results" / "published" / "h100.csv"
    (tmp_path / "rows.csv").write_bytes(rows)
    with open(tmp_path / "rows.csv", "rb") as whole:
        ended = script("plot_mlp2.py", None, tmp_path, published, "-o", "two.txt", stdin=whole)
    assert (ended.returncode, ended.stdout.split()) == (0, [b"figure:", b"two.txt"])
    assert {path.name for path in tmp_path.iterdir()} == {"two.txt", "rows.csv"}
    drawn = (tmp_path / "two.txt").read_text()
    assert "COSMA" in drawn and "Column" in drawn and "2 ranks" in drawn


def test_standard_input_is_read_without_files_and_next_to_files_if_it_has_data(
    tmp_path, monkeypatch, capfd
):
    (tmp_path / "x.csv").touch()
    (tmp_path / "data").write_text("data")
    idle, writer = os.pipe()
    ours, terminal = pty.openpty()
    files = [str(tmp_path / "x.csv"), "-o", "one.txt"]
    with (
        open(tmp_path / "data") as whole,
        os.fdopen(idle) as silent,
        os.fdopen(terminal) as keyboard,
    ):
        for source, reads in ((whole, True), (silent, False), (keyboard, False), (None, False)):
            monkeypatch.setattr(sys, "stdin", source)
            assert with_input(files) == ["-"] * reads + files
            assert with_input(files[1:]) == ["-", *files[1:]]
            assert with_input(["-", *files]) == ["-", *files]
            reported = capfd.readouterr().err.count("not read")
            assert reported == (source is silent)
            if source in (keyboard, None):
                with pytest.raises(RecordError, match="standard input is "):
                    read_records(["-"])
    os.close(ours)
    os.close(writer)


def test_a_closed_standard_input_is_refused_in_one_line(tmp_path):
    """In a process, because Python has no ``sys.stdin`` then."""
    ended = script("plot_mlp1.py", None, tmp_path, preexec_fn=lambda: os.close(0))
    assert ended.returncode == 2 and ended.stderr.count(b"\n") == 1
    assert b"standard input is " in ended.stderr


def test_a_file_without_records_is_refused_in_one_line(tmp_path):
    ended = script("plot_mlp1.py", b"hello\n", tmp_path)
    assert ended.returncode == 2 and ended.stderr.count(b"\n") == 1
    assert b"standard input has another header: 'hello'" in ended.stderr
    assert list(tmp_path.iterdir()) == []
