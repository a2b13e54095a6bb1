"""The commands of the first tutorials run unchanged, in the order of the page, and print what it
shows; measurements are of smaller problems."""

import re
import shlex
import sys

import pytest
from starting import run_process

from benchmarks.pages.records import ROOT
from launch.commands.cli import main

PAGE = (ROOT / "docs/first-hour.md").read_text("utf-8")
#: Each block of code: its mark as an example or "", its language, its text.
BLOCKS = re.findall(r"^(<!-- all: example -->\n)?```(\w*)\n(.*?)^```", PAGE, re.M | re.S)
#: They start processes. What they print depends on the machine and the hour: only the labels of
#: their rows are compared.
MEASURED = ("doctor", "run", "sweep")
#: What a quiet machine does not print.
NOISE = re.compile(r"^\s+(noisy|not stable|->)|\badvice\b")


@pytest.fixture
def drbench(capsys, monkeypatch, tmp_path, fault):
    """``drbench(line)``: exit code and all that is printed; commands that start no
    process are called in this one."""
    quickly = fault("in a hurry")
    monkeypatch.chdir(tmp_path)

    def call(line: str) -> tuple[int, str]:
        words = shlex.split(line.partition(" #")[0])[1:]
        if words[0] in MEASURED:
            done = run_process([sys.executable, "-m", "drbench", *words], tmp_path, quickly, 120)
            return done.returncode, done.stdout + done.stderr
        monkeypatch.setattr(sys, "argv", ["drbench", *words])
        return main(words), "".join(capsys.readouterr())

    return call


def plain(line: str) -> str:
    """A line without numbers, units of time and blanks, cut where the page cut it."""
    return re.sub(r"[\d.+−-]+(\s*[mun]?s\b)?|\s+", "", line.partition("…")[0])


def smaller(text: str) -> str:
    """The same problem with smaller n and k, and fewer repeats."""
    text = text.replace("iters = 5", "iters = 2\nbudget = 0.02")
    return text.replace("3072", "384").replace("768", "96")


def missing(example: str, output: str, measured: bool) -> list[str]:
    """Lines of an example that the output does not have."""
    if measured:
        have = {row[0] for line in output.splitlines() if (row := line.split())}
        return [
            line
            for line in example.splitlines()
            if (row := line.split())
            and row[0].isalpha()
            and row[0] not in have
            and not NOISE.search(line)
        ]
    have = [plain(line) for line in output.splitlines()]
    return [
        line
        for line in example.splitlines()
        if plain(line) and not any(each.startswith(plain(line)) for each in have)
    ]


def test_an_example_that_differs_from_the_output_is_found():
    assert missing("0  Get(A[0:4]@0)\n…\n", "x\n0  Get(A[0:8]@1)   \n", False) == []
    assert missing("0  Put(A[0:4]@0)\n", "0  Get(A[0:8]@1)\n", False)
    assert missing("6 steps, planned in 185 us\n", "7 steps, planned in 5.29 ms\n", False) == []
    assert missing("6 steps, planned in 185 us\n", "7 GEMMs, planned in 5 s\n", False)
    assert missing(" result   ok\n  noisy: no\n", " result  ok, exact\n", True) == []
    assert missing(" results   ok\n", " result  ok, exact\n", True)


@pytest.mark.mpi
@pytest.mark.timeout(400)
def test_the_first_hour_runs_and_prints_what_the_page_shows(drbench, tmp_path):
    output, measured = "", False
    for example, language, text in BLOCKS:
        if language == "toml":
            (tmp_path / "mine.toml").write_text(smaller(text), encoding="utf-8")
        elif example and text.startswith("$ drbench"):  # a failing command and its error
            for command, described in zip(text.splitlines()[::2], text.splitlines()[1::2]):
                code, output = drbench(command[2:])
                assert code != 0
                assert missing(described, output, False) == []
        elif example:
            assert missing(text, output, measured) == [], output
        else:
            output = ""
            for line in text.splitlines():
                if line.startswith("drbench "):
                    measured = line.split()[1] in MEASURED
                    line = smaller(line) if measured else line
                    code, output = drbench(line)
                    assert code == 0, (line, output)
                    if "--out runs/mine" in line and "dry" not in line:
                        assert "12 done before" in drbench(line)[1]
    assert (tmp_path / "mine.html").is_file() and (tmp_path / "mine.png").is_file()
