"""The tutorials and README: their commands run as they are, in the order of the page, in an empty
folder, and print what the page shows. ``DRBENCH_WRITE_TUTORIALS=1`` writes what they print into the
pages."""

import contextlib
import io
import os
import re
import shlex
import sys

import pytest
from starting import run_process
from tutorials import difference, rewritten, steps_of

from benchmarks.pages.records import ROOT
from drbench.launch.commands.cli import main

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


def run_step(step, drbench, folder):
    """What a step of a page prints, and the command that compares it."""
    if step.kind == "toml":
        budget = "" if WRITE else "budget = 0.02\n"
        text = step.text.replace("[defaults]\n", f"[defaults]\n{budget}")
        (folder / re.match(r"# (\S+)\n", text)[1]).write_text(text, encoding="utf-8")
        return "", "file"
    if step.kind == "python":
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(step.text, "block", "exec"), {})
        return printed.getvalue(), "python"
    assert step.kind == "console", step
    if step.text in BEFORE:
        return "", "shell"
    code, output = drbench(step.text)
    assert (code != 0) == step.shown.startswith("drbench: "), (step.text, output)
    simulated = "--simulate" in step.text
    return output, "simulate" if simulated else step.text.split()[1]


def check(name, drbench, folder):
    """Run a page, and compare."""
    page = (ROOT / name).read_text("utf-8")
    ran = [(step, *run_step(step, drbench, folder)) for step in steps_of(page)]
    fresh, wrong = page, []
    for step, output, command in reversed(ran):
        if what := difference(step.shown, output, command):
            wrong.append(f"{step.text}\n{what}")
        if WRITE:
            new = rewritten(step.shown, output, command)
            fresh = fresh[: step.start] + new + fresh[step.start + len(step.shown) :]
    if WRITE:
        (ROOT / name).write_text(fresh, "utf-8")
    assert not wrong, "\n".join(wrong)


@pytest.mark.apart
@pytest.mark.mpi
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    "name, made",
    [
        ("README.md", []),  # a search without a limit, of 20 s
        ("docs/tutorials/first-multiplication.md", ["first.png", "first.html"]),
        ("docs/tutorials/sweep-and-report.md", ["mine.html", "mine.pdf"]),
    ],
)
def test_a_tutorial_runs_and_prints_what_it_shows(name, made, drbench, tmp_path):
    check(name, drbench, tmp_path)
    assert all((tmp_path / each).stat().st_size for each in made)


@pytest.mark.apart
@pytest.mark.timeout(120)
def test_the_tutorial_without_mpi_prints_the_same_numbers(drbench, tmp_path):
    check("docs/tutorials/predict-and-choose.md", drbench, tmp_path)
    assert (tmp_path / "why.html").stat().st_size


RUN = """\
Result exact: 26.5 ms ± 3.6 %, 98 % of GEMM-only speed, 183 GFLOP/s.

 problem        1024 × 3072 × 768 (m × n × k), float32, 2 ranks
 time spent     ████████████████████····  █ GEMMs 82 %, · waiting in fences 18 %
 slowest rank   1, computes 2 % longer than the mean
 moved          get 1.5 MiB, accumulate 12 MiB
 memory         buffers 13.5 MiB, process 125.8 MiB (largest rank)
"""
DOCTOR = """\
 MPI            ok       MPICH 5.0.2 (MPI 5.0), launcher .venv/bin/mpiexec
 cores          ok       2 usable (2 physical); 2 ranks get 1 BLAS threads each by default
 peak float32   ok       133 GFLOP/s on one core, 129 on each of 2
 other load     ok       none: the processes had their cores for themselves

Ready: 2 ranks can run and be measured.
"""
SWEEP = """\
6/6 cases, 6 ok, 25 s
Universal S-C column is fastest: 58.1 ms, 98 % of GEMM-only speed.

    time   algorithm       layouts   GEMM-only          rate
 ───────────────────────────────────────────────────────────
 58.1 ms   universal S-C   column       98.2 %   83.2 GFLOP/s
 84.9 ms   universal S-B   row          71.9 %   56.9 GFLOP/s
"""
DECISION = SWEEP.splitlines()[1]
SIMULATED = """\
Predicted: 15.3 ms (13.5-18.9), 65 % of GEMM-only speed, 80.6 TFLOP/s.
 moved         get 40 MiB, accumulate 960 MiB
"""
WRAP = " " * 25
UNUSABLE = "Result exact. TIME NOT USABLE (the ranks had 67 % of their cores)"
ALL_NOISY = "6 results correct, but no time can be used (a quiet machine would decide)."
BUSY = f", while other processes ran\n{WRAP}-> measure again when nothing else runs"
LOAD = "advice   processes had 41 % of their cores: times will be wrong"
QUIET = "ok       none: the processes had their cores for themselves"
#: Outputs that are the same as what is shown: command, what is shown, and what is different.
SAME = [
    ("run", RUN, [("26.5 ms", "903 µs"), ("98 %", "109 %"), ("183 G", "1.83 T"), ("82 %", "2 %")]),
    ("run", RUN, [(" ± 3.6 %", ""), ("ss 125.8 MiB", "ss 1.2 GiB"), ("1, comp", "0, comp")]),
    # what a noisy machine has
    ("run", RUN, [("Result exact:", f"{UNUSABLE}:"), (" moved ", f"{WRAP}not stable: x\n moved ")]),
    ("doctor", DOCTOR, [("133", "71"), (".venv/bin/m", "/usr/bin/m"), ("2 ranks", "8 ranks")]),
    ("doctor", DOCTOR, [("ok       133", "advice   133"), ("each of 2", f"each of 2{BUSY}")]),
    ("doctor", DOCTOR, [(QUIET, LOAD), ("Ready: 2", "Ready, with 1 warning (other load): 2")]),
    ("sweep", SWEEP, [("58.1 ms", "158.1 ms"), ("98.2", "9"), ("83.2", "9.1"), ("25 s", "1 s")]),
    ("sweep", SWEEP, [(" 58.1 ms   u", " ~± 58.1 ms   u"), (" 84.9 ms   u", " = 84.9 ms   u")]),
    ("sweep", SWEEP, [("6 ok, 25", "6 ok, 2 noisy, 25"), (DECISION, ALL_NOISY)]),
    ("sweep", SWEEP, [("6/6", "2/6 cases, 2 ok, 10 s, 5 s left; now\n6/6")]),
    ("plot", "figure: x.png\n", [("figure", "8 × 8 × 8: undecided: S-C, S-B\nfigure")]),
    ("simulate", "first\n…\nlast …\n", [("…\n", "second\nthird\n"), ("last …", "last one")]),
]  # fmt: skip
#: Outputs that are not: a label, a line, an option, a row or a number that is planned has changed.
OTHER = [
    ("run", RUN, [(RUN.splitlines(keepends=True)[3], "")]),
    ("run", RUN, [("1.5 MiB", "1.6 MiB")]),
    ("run", RUN, [("exact", "correct (error 1e-07)")]),
    ("doctor", DOCTOR, [("MPI            ok", "MPI            advice")]),
    ("doctor", DOCTOR, [(DOCTOR.splitlines(keepends=True)[2], "")]),
    ("sweep", SWEEP, [(SWEEP.splitlines(keepends=True)[-1], "")]),
    ("sweep", SWEEP, [(f"{DECISION}\n", "")]),
    ("sweep", SWEEP, [("6 ok", "5 ok")]),
    ("simulate", SIMULATED, [("15.3", "15.4")]),
    ("simulate", "first\n…\nlast\n", [("last", "last\nmore")]),
    ("simulate", "first …\n", [("first", "zeroth")]),
]  # fmt: skip


def changed(text, changes):
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    return text


@pytest.mark.parametrize("command, shown, changes", SAME)
def test_what_is_measured_and_what_noise_adds_is_no_difference(command, shown, changes):
    assert difference(shown, shown, command) == ""
    assert difference(shown, changed(shown, changes), command) == ""


@pytest.mark.parametrize("command, shown, changes", OTHER)
def test_whatever_else_has_changed_is_found(command, shown, changes):
    assert difference(shown, changed(shown, changes), command)


def test_what_is_written_into_a_page_is_what_it_is_compared_with():
    shown = "first\n…\n last of 3\n"
    output = "first\nsecond\n\n last of 4\n" + "x " * 99 + "\n"
    assert rewritten(shown, output, "simulate") == "first\n…\n last of 4\n"
    whole = rewritten("", output, "simulate")
    assert max(map(len, whole.splitlines())) <= 120 and whole.endswith(" …\n")
    assert difference(whole, output, "simulate") == ""


def test_every_command_and_program_of_a_page_is_a_step():
    page = "```console\n$ a\n$ b\nshown\n\nmore\n$ c\n```\nwords\n"
    page += "```python\np\n```\n\n```text\nq\n```\n"
    found = [(step.kind, step.text, step.shown) for step in steps_of(page)]
    assert found == [
        ("console", "a", ""),
        ("console", "b", "shown\n\nmore\n"),
        ("console", "c", ""),
        ("python", "p\n", "q\n"),
    ]
    assert all(page.startswith(step.shown, step.start) for step in steps_of(page))
