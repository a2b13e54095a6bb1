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
from drbench.plots.select.records import read_records, with_input

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


def test_files_and_records_on_standard_input_become_the_figure(tmp_path):
    """Published baselines are a file."""
    published = ROOT / "results" / "published" / "h100.csv"
    append_csv(tmp_path / "rows.csv", *[r for r in sweep(ranks=2, h=64) if r.mode != "published"])
    with open(tmp_path / "rows.csv", "rb") as whole:
        ended = script("plot_mlp2.py", None, tmp_path, published, stdin=whole)
    assert (ended.returncode, ended.stdout) == (0, b"figure: mlp2.pdf\nfigure: mlp2.png\n")
    assert (tmp_path / "mlp2.pdf").read_bytes()[:5] == b"%PDF-"


def test_standard_input_is_read_without_files_and_next_to_files_if_it_has_data(
    tmp_path, monkeypatch, capfd
):
    (tmp_path / "x.csv").touch()
    (tmp_path / "data").write_text("data")
    idle, writer = os.pipe()
    ours, terminal = pty.openpty()
    files = [str(tmp_path / "x.csv"), "--save", "one.txt"]
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
