"""The tutorials: their commands run as they are, in the order of the page, in an empty folder, and
print what the page shows. ``DRBENCH_WRITE_TUTORIALS=1`` writes what they print into the pages."""

import contextlib
import io
import os
import re
import shlex
import sys
import tomllib

import pytest
from starting import run_process
from tutorials import blocks_of, difference, rewritten

from benchmarks.pages.records import ROOT
from launch.commands.cli import main

FOLDER = ROOT / "docs/tutorials"
#: Whether to write what is printed into the pages; then all is measured as a reader does.
WRITE = bool(os.environ.get("DRBENCH_WRITE_TUTORIALS"))
#: Lines of a shell that are not run: what they make is here already.
BEFORE = ("python3 -m venv .venv", ". .venv/bin/activate", "pip install '.[mpich]'")


@pytest.fixture
def drbench(capsys, monkeypatch, tmp_path, fault):
    """``drbench(line)``: exit code and all that is printed; what starts no rank is called in this
    process."""
    quickly = ({} if WRITE else fault("in a hurry")) | {"COLUMNS": "120"}
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.chdir(tmp_path)

    def call(line: str) -> tuple[int, str]:
        words = shlex.split(line)[1:]
        ranks = words[0] in ("doctor", "run") or words[0] == "sweep" and "--simulate" not in words
        if ranks:
            done = run_process([sys.executable, "-m", "drbench", *words], tmp_path, quickly, 120)
            return done.returncode, done.stdout + done.stderr
        monkeypatch.setattr(sys, "argv", ["drbench", *words])
        return main(words), "".join(capsys.readouterr())

    return call


def consoles(text):
    """(command, what it shows) of each command of a console."""
    for each in re.split(r"^\$ ", text, flags=re.M)[1:]:
        command, _, shown = each.partition("\n")
        yield command, shown


def run_page(page, drbench, folder):
    """(block, what it shows, what was printed, command) of each block that shows something."""
    output, command = "", ""
    for block in blocks_of(page):
        if block.language == "toml":
            name = re.match(r"# (\S+)\n", block.text)[1]
            budget = "" if WRITE else "budget = 0.02\n"
            text = block.text.replace("[defaults]\n", f"[defaults]\n{budget}")
            (folder / name).write_text(text, encoding="utf-8")
        elif block.language == "sh":
            for line in block.text.splitlines():
                if line not in BEFORE:
                    code, output = drbench(line)
                    assert code == 0, (line, output)
                    command = line.split()[1]
                    # a sweep on a machine model is predicted
                    command = "simulate" if "--simulate" in line else command
        elif block.language == "python":
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(compile(block.text, "block", "exec"), {})
            output, command = printed.getvalue(), "python"
        elif block.language == "console":
            shown, printed = [], []
            for line, text in consoles(block.text):
                code, output = drbench(line)
                assert code != 0, line
                shown.append(f"$ {line}\n{text}")
                printed.append(f"$ {line}\n{output}")
            yield block, "".join(shown), "".join(printed), "refused"
        else:
            assert block.language == "text"
            yield block, block.text, output, command


def check(name, drbench, folder):
    page = (FOLDER / name).read_text("utf-8")
    fresh, wrong = page, []
    for block, shown, output, command in reversed([*run_page(page, drbench, folder)]):
        if what := difference(shown, output, command):
            wrong.append(f"after {command}: {what}")
            text = rewritten(shown, output, command)
            fresh = fresh[: block.start] + text + fresh[block.end :]
    if WRITE:
        (FOLDER / name).write_text(fresh, "utf-8")
    assert not wrong, "\n".join(wrong)


@pytest.mark.mpi
@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "name, made",
    [
        ("first-multiplication.md", ["first.png", "first.html"]),
        ("sweep-and-report.md", ["mine.html", "mine.pdf"]),
    ],
)
def test_a_tutorial_runs_and_prints_what_it_shows(name, made, drbench, tmp_path):
    check(name, drbench, tmp_path)
    assert all((tmp_path / each).stat().st_size for each in made)


@pytest.mark.timeout(120)
def test_the_tutorial_without_mpi_prints_the_same_numbers(drbench, tmp_path):
    check("predict-and-choose.md", drbench, tmp_path)
    assert (tmp_path / "why.html").stat().st_size


def test_what_a_tutorial_installs_exists():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert "mpich" in extras["optional-dependencies"]
    for path in FOLDER.glob("*.md"):
        lines = [
            line
            for block in blocks_of(path.read_text("utf-8"))
            if block.language == "sh"
            for line in block.text.splitlines()
        ]
        assert all(line.startswith("drbench ") or line in BEFORE for line in lines)
