"""Texts of users in labels, paths, launchers and environments are refused or arrive unchanged:
nothing executes them."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from drbench.errors import UsageError
from drbench.launch.cases.launchers import Launcher, load_launcher
from drbench.launch.cases.sweep_file import expand
from drbench.launch.host.kernels import KernelSpeed
from drbench.launch.sweeps.slurm import sbatch_script

#: Harmless in a quoted word, special in an unquoted one.
EVIL = r"""a; touch pwned
$(touch pwned)
`touch pwned`
../../pwned
=cmd()
@SUM(1)
-n 1 --wrap=touch
{{ 7*7 }}
a\
*
é""".split("\n")
LINES = ["a\nb", "a\r\nb", "a\x00b", "a\x1b[31m", "a\u2028b", "\n#SBATCH --wrap=x"]
ECHO = (
    "import json, os, sys; json.dump([sys.argv[1:], dict(os.environ)], open('arrived.json', 'w'))"
)


def write(path, **tables):
    """A machine file, written by hand since the standard library writes no TOML."""
    text = ""
    for name, table in tables.items():
        lines = (f"{json.dumps(key)} = {json.dumps(value)}\n" for key, value in table.items())
        text += f"[{name}]\n{''.join(lines)}"
    path.write_text(text)
    return str(path)


def test_a_job_script_passes_every_word_unchanged(tmp_path):
    variables = {f"DRBENCH_EVIL_{at}": text for at, text in enumerate(EVIL)}
    machine = Launcher("test", environment=variables, modules=tuple(EVIL))
    words = [*EVIL, *(f"--out={text}" for text in EVIL)]
    script = sbatch_script(
        machine,
        4,
        {},
        command=[sys.executable, "-c", ECHO, *words],
        folder=os.fspath(tmp_path),
        job="job",
        description="; ".join(EVIL),
        script="job.sbatch",
        parts=0,
    )
    loaded = tmp_path / "module"  # `module load` depends on the site; here it records its arguments
    loaded.write_text('#!/bin/sh\nprintf \'%s|\' "$#" "$@" >> loaded\necho >> loaded\n')
    loaded.chmod(0o755)
    done = subprocess.run(
        ["bash", "-s"],
        input=script,
        text=True,
        cwd=tmp_path,
        capture_output=True,
        timeout=300,
        env={**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    arguments, environment = json.loads((tmp_path / "arrived.json").read_text())
    assert arguments == words and variables.items() <= environment.items()
    assert (tmp_path / "loaded").read_text() == "".join(f"2|load|{text}|\n" for text in EVIL)
    assert {path.name for path in tmp_path.iterdir()} == {"arrived.json", "loaded", "module"}


def test_a_job_asks_for_the_cores_and_the_time_it_needs(run_cli, sweep_file, tmp_path, monkeypatch):
    """Where neither the machine file nor the sweep sets them."""
    monkeypatch.setattr(
        "drbench.launch.sweeps.estimate.measure_kernels", lambda: KernelSpeed("Test", 100e9)
    )
    block = "[[cases]]\nm = 8\nn = 8\nk = 8\n"
    launch = {"launcher": ["srun"], "ranks_per_node": 4}

    def lines(file, tables, *options):
        machine = write(tmp_path / "m.toml", **tables)
        words = ("sweep", file, "-p", 8, "--out", tmp_path / "out", "--launcher", machine)
        assert run_cli(*words, "--jobs", "slurm", *options).returncode == 0
        (script,) = (tmp_path / "out").glob("*.sbatch")
        text = script.read_text()
        return {line.removeprefix("#SBATCH --") for line in text.splitlines() if "#SBATCH" in line}

    file = Path(sweep_file(block))
    sized = {"launch": launch | {"cores_per_node": 64}}
    assert "cpus-per-task=1" in lines(file, sized)  # of the file
    file.write_text(file.read_text().replace("threads = 1\n", ""))
    assert {"cpus-per-task=16", "nodes=2", "ntasks-per-node=4"} <= lines(file, sized)
    assert "cpus-per-task=3" in lines(file, sized, "-o", "threads=3")
    assert "cpus-per-task=3" in lines(file, sized, "-o", "threads=1,3")
    assert "time=0-00:11:00" in lines(file, {"launch": launch})
    assert "time=0-00:11:00" not in lines(file, {"launch": launch}, "-o", "rounds=99999")
    own = {"time": "07:00:00", "cpus-per-task": "5", "account": "a", "partition": "b"}
    found = lines(file, sized | {"launch.sbatch": own})
    assert {f"{name}={text}" for name, text in own.items()} <= found
    assert not any(each.startswith("time=0-") or each == "cpus-per-task=16" for each in found)
    devices = lines(sweep_file(block.replace("k = 8", 'k = 8\nbackend = "cupy"')), sized)
    assert not any(each.startswith("time=") for each in devices)  # their speed is unknown here


@pytest.mark.parametrize("text", LINES)
def test_labels_with_more_than_a_line_are_refused(tmp_path, run_cli, sweep_file, text):
    with pytest.raises(UsageError, match="label"):
        expand({"name": "test", "cases": [{"m": 8, "n": 8, "k": 8, "label": text}]}, 2)
    if "\x00" not in text:
        file = sweep_file("[[cases]]\nm = 8\nn = 8\nk = 8\n")
        words = ("sweep", file, "-p", 2, "--out", tmp_path / "out", "--label", text)
        assert "--label" in run_cli(*words).refusal()


NAMES = ["A B", "A;B", "A=B", "1A", "", "A\nB", "$(A)"]
HARMLESS = re.compile(r"[\w./+=]+", re.ASCII)
REFUSED = [
    *(({"environment": {name: "1"}}, "not a variable name") for name in NAMES),
    ({"launch": {"launcher": "srun -n 4; rm -rf /"}}, "list of arguments"),
    ({"launch": {"launcher": ["srun", "{home}"]}}, "{home}"),
]
for text in LINES:
    REFUSED += [
        ({"environment": {"A": text}}, "environment: A"),
        ({"modules": {"load": [text]}}, "modules.load"),
        ({"launch": {"launcher": ["srun", text]}}, "launch.launcher"),
    ]
for text in EVIL:  # Slurm reads these lines itself, with rules of its own for quotes
    if not HARMLESS.fullmatch(text):
        REFUSED.append(({"launch.sbatch": {"comment": text}}, "launch.sbatch: comment"))


@pytest.mark.parametrize("tables, expected", REFUSED)
def test_machine_files_accept_only_values_that_cannot_be_executed(tmp_path, tables, expected):
    with pytest.raises(UsageError, match="m.toml: ") as caught:
        load_launcher(write(tmp_path / "m.toml", **tables))
    assert expected in str(caught.value)


def test_words_of_a_launcher_arrive_unchanged(tmp_path):
    words = ["srun", *(text for text in EVIL if "{" not in text)]
    launcher = load_launcher(write(tmp_path / "m.toml", launch={"launcher": words}))
    assert launcher.command(4) == words


@pytest.mark.parametrize("text", ["../evil", "/abs/evil", "a/b"])
def test_a_launcher_is_a_name_or_a_toml_file(text):
    with pytest.raises(UsageError, match="--launcher"):
        load_launcher(text)
