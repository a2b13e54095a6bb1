"""Standard output and standard error that are full, closed, cut off by ``head``, a launcher's
terminal, or of another encoding; and folders that cannot be written."""

import json
import os
import pty
import sys
from pathlib import Path

import pytest
from made_up import of_universal
from starting import read_terminal

from drbench.launch.commands.cli import main
from drbench.launch.host.streams import stream
from drbench.measure.record_file import append_csv, read_csv

RUN = "run -m 16 -n 16 -k 16 --iters 1 --budget 0 -p 2".split()
SWEEP = """name = "tiny"
rounds = 1
[defaults]
iters = 1
budget = 0
[[cases]]
m = 12
n = 14
k = 8
a = "row"
b = "row"
c = "row"
"""
#: Neither UTF-8 nor changed to it by Python.
ASCII = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}

#: Runs each command with each standard output, in a process that has imported them.
BAD_STREAMS = """
import json, os, sys
import drbench.__main__
from drbench.launch.commands import cli, listing, results

found = []
for words in json.loads(sys.argv[1]):
    for way in "full", "closed", "cut", "errors":
        left_out = {"sweep": ("closed", "cut", "errors"), "run": ("closed", "errors")}
        starts_ranks = words[-1] != "0"  # a run of -m 0 is refused before
        if starts_ranks and way in left_out.get(words[0], ()):
            continue  # ranks take long to start
        errors, to_errors = os.pipe()
        if not os.fork():
            os.dup2(to_errors, 2)
            if way == "closed":
                os.close(1)
            elif way == "errors":
                os.dup2(os.open("/dev/full", os.O_WRONLY), 2)
                os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            else:
                reader, writer = os.pipe()
                os.close(reader)
                os.dup2(os.open("/dev/full", os.O_WRONLY) if way == "full" else writer, 1)
            sys.argv = ["drbench", *words]
            drbench.__main__.main()
        os.close(to_errors)
        with os.fdopen(errors) as text:
            found.append((words, way, text.read(), os.waitstatus_to_exitcode(os.wait()[1])))
print(json.dumps(found))
"""


@pytest.fixture
def records(tmp_path):
    path = tmp_path / "records.csv"
    append_csv(path, *(of_universal(m=m) for m in range(1, 40)))
    return path


@pytest.mark.mpi
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_no_standard_output_is_a_failure_a_reader_that_ends_is_none(process, records, tmp_path):
    """Exit codes were 1, which means slower or wrong, and 120, with tracebacks; a sweep named its
    folder."""
    commands = [["list", "presets"], ["--help"], ["compare", str(records), "--limit", "0"]]
    commands += [[*RUN, "--csv", "runs.csv"], ["sweep", "tiny.toml", "-p", "1", "--out", "o"]]
    (tmp_path / "tiny.toml").write_text(SWEEP)
    refused = [*RUN, "-m", "0"]
    ended = process(
        sys.executable, "-c", BAD_STREAMS, json.dumps([*commands, refused]), timeout=120
    )
    for words, way, errors, code in ended.json():
        if words == refused:
            assert code == 2 and errors.count("\n") == (way != "errors")
        elif way in ("cut", "errors"):
            assert (errors, code) == ("", 0), (words, way)
        else:
            assert code == 5, (words, way, errors)
            assert errors.startswith("drbench: standard output cannot be written: ")
            assert errors.count("\n") == 1
    assert len(read_csv(tmp_path / "runs.csv")) == 2  # what was measured is kept in any case


def test_a_stream_waits_for_a_slow_reader_that_made_it_non_blocking():
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    if not os.fork():
        stream(writer).write("é" * 200_000)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, encoding="utf-8") as text:
        assert text.read() == "é" * 200_000
    os.wait()


@pytest.mark.mpi
def test_text_is_utf_8_whatever_the_locale(drbench, tmp_path):
    env = ASCII | {"PYTHONIOENCODING": "ascii"}
    ended = drbench(*RUN, "--label", "é²", "--csv", "é.csv", env=env)
    assert (ended.returncode, ended.stderr) == (0, "") and " × " in ended.stdout
    assert [row.label for row in read_csv(tmp_path / "é.csv")] == ["é²"]
    assert all(line == line.rstrip() for line in ended.stdout.splitlines())


def test_no_file_is_opened_in_the_encoding_of_the_locale(process, records):
    """Also where drbench is imported into a program of such a locale."""
    commands = [
        "list machines",
        "list machines h100x8",
        "list sweeps square",
        "chain --preset llama3-8b:mlp --machine dgxh100 -p 4 --effort 0 --placements chosen",
        f"compare {records}",
    ]
    program = (
        "import json, sys, warnings\nfrom drbench.launch.commands.cli import main\nimport drbench\n"
        "kernel = 'drbench.host.cores|drbench.launch.host.memory'  # numbers\n"
        "ours = f'(?!{kernel})(drbench|launch|plots|algorithms|partitions)[.]'\n"
        "warnings.filterwarnings('error', category=EncodingWarning, module=ours)\n"
        "drbench.simulate(drbench.Case(64, 64, 64), 'h100x8', 2)\n"
        f"print([main(each.split()) for each in {commands}], file=sys.stderr)\n"
    )
    env = ASCII | {"PYTHONIOENCODING": "utf-8"}
    ended = process(sys.executable, "-X", "warn_default_encoding", "-c", program, env=env)
    assert ended.stderr.splitlines()[-1] == str([0] * len(commands)), ended.stderr


@pytest.mark.parametrize(
    "launcher", [{}, {"OMPI_COMM_WORLD_SIZE": "1", "OMPI_COMM_WORLD_RANK": "0"}]
)
def test_a_rank_writes_no_escape_sequences_to_a_terminal_of_its_launcher(monkeypatch, launcher):
    """Open MPI copies what ranks write there to its own standard output, perhaps a file."""
    ours, theirs = pty.openpty()
    monkeypatch.setenv("TERM", "xterm-256color")
    for name, value in launcher.items():
        monkeypatch.setenv(name, value)
    with os.fdopen(theirs, "w", encoding="utf-8") as terminal:
        monkeypatch.setattr(sys, "stdout", terminal)
        assert main("plan -m 8 -n 8 -k 8 -p 2 --rank all".split()) == 0
    text = b"".join(read_terminal(ours))
    os.close(ours)
    assert (b"\x1b" in text) == (b" \r\n" in text) == (not launcher) and b"rank" in text


def test_figures_need_no_folder_but_their_own(process, records):
    """HOME is unknown and there is no folder for temporary files."""
    program = (
        "import os, pwd, sys, tempfile\n"
        "def unknown(user):\n    raise KeyError(user)\n"
        "pwd.getpwuid = unknown\n"
        "tempfile._candidate_tempdir_list = lambda: [os.environ.get('TMPDIR', '/proc')]\n"
        "os.environ.pop('HOME', None)\n"
        "from drbench.launch.commands.cli import main\n"
        f"sys.exit(main(['plot', 'best', '{records}', '--save', 'figures/best.svg']))\n"
    )
    folder = Path(records).parent / "figures"
    folder.mkdir()
    ended = process(sys.executable, "-c", program)
    assert ended.returncode == 0 and "atplotlib" not in ended.stderr, ended.stderr
    assert os.listdir(folder) == ["best.svg"]


def test_python_without_docstrings_runs_every_command(process):
    program = (
        "from drbench.launch.commands.cli import _COMMANDS, main\n"
        "assert False, 'removed'\n"
        "print([main([name, '--help']) for name in _COMMANDS][-1])\n"
        "main('sweep square --dry-run -p 2 -o m=64 -o n=64 -o k=64'.split())\n"
    )
    ended = process(sys.executable, "-OO", "-c", program)
    assert (ended.returncode, ended.stderr) == (0, "") and "cases" in ended.stdout
