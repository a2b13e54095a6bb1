"""Whatever a user writes into labels, paths, launchers and environments is refused or arrives as it
is: nothing runs it."""

import json
import os
import subprocess
import sys

import pytest

from drbench.errors import UsageError
from launch.cases.launchers import Launcher, load_launcher
from launch.cases.sweep_file import expand
from launch.sweeps.slurm import sbatch_script

#: Harmless in a quoted word, and each of them something in an unquoted one.
EVIL = [
    "a; touch pwned",
    "$(touch pwned)",
    "`touch pwned`",
    "../../pwned",
    "=cmd()",
    "@SUM(1)",
    "-n 1 --wrap=touch",
    "{{ 7*7 }}",
    "a\\",
    "*",
    "é",
]
LINES = ["a\nb", "a\r\nb", "a\x00b", "a\x1b[31m", "a\u2028b", "\n#SBATCH --wrap=x"]
ECHO = (
    "import json, os, sys; json.dump([sys.argv[1:], dict(os.environ)], open('arrived.json', 'w'))"
)


def write(path, **tables):
    """A machine file, written by hand since the standard library writes no TOML."""
    path.write_text(
        "\n".join(
            f"[{name}]\n"
            + "\n".join(f"{key} = {json.dumps(value)}" for key, value in table.items())
            for name, table in tables.items()
        )
    )
    return str(path)


@pytest.mark.parametrize("text", EVIL)
def test_a_job_script_hands_every_word_on_as_it_is(tmp_path, text):
    machine = Launcher("test", environment={"DRBENCH_EVIL": text}, modules=(text,))
    script = sbatch_script(
        machine,
        4,
        {},
        command=[sys.executable, "-c", ECHO, text, f"--out={text}"],
        folder=os.fspath(tmp_path),
        job="job",
        about=text,
        script="job.sbatch",
    )
    loaded = tmp_path / "module"  # what `module load` does is the site's; here it notes its words
    loaded.write_text(
        f"#!{sys.executable}\nimport json, sys\njson.dump(sys.argv[1:], "
        f"open({os.fspath(tmp_path / 'loaded.json')!r}, 'w'))\n"
    )
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
    assert arguments == [text, f"--out={text}"] and environment["DRBENCH_EVIL"] == text
    assert json.loads((tmp_path / "loaded.json").read_text()) == ["load", text]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "arrived.json",
        "loaded.json",
        "module",
    ]


def test_a_job_asks_for_the_cores_and_the_time_it_needs(say, sweep_file, tmp_path):
    """Where neither the machine file nor --threads says so itself."""
    block = "[[cases]]\nm = 8\nn = 8\nk = 8\n"
    launch = {"launcher": ["srun"], "ranks_per_node": 4}

    def lines(file, tables, *options):
        machine = write(tmp_path / "m.toml", **tables)
        words = ("sweep", file, "-p", 8, "--out", tmp_path / "out", "--launcher", machine)
        assert say(*words, "--jobs", "slurm", *options).returncode == 0
        (script,) = (tmp_path / "out").glob("*.sbatch")
        text = script.read_text()
        return {line.removeprefix("#SBATCH --") for line in text.splitlines() if "#SBATCH" in line}

    file = sweep_file(block)
    sized = {"launch": launch | {"cores_per_node": 64}}
    assert {"cpus-per-task=16", "nodes=2", "ntasks-per-node=4"} <= lines(file, sized)
    assert "cpus-per-task=3" in lines(file, sized, "-o", "threads=3")
    assert "time=0-00:11:00" in lines(file, {"launch": launch})
    own = {"time": "07:00:00", "cpus-per-task": "5", "account": "a", "partition": "b"}
    found = lines(file, sized | {"launch.sbatch": own})
    assert {f"{name}={text}" for name, text in own.items()} <= found
    assert not any(each.startswith("time=0-") or each == "cpus-per-task=16" for each in found)
    devices = lines(sweep_file(block.replace("k = 8", 'k = 8\nbackend = "cupy"')), sized)
    assert not any(each.startswith("time=") for each in devices)  # nobody here knows their speed


@pytest.mark.parametrize("text", LINES)
def test_files_and_labels_with_more_than_a_line_are_refused(tmp_path, say, sweep_file, text):
    for tables in (
        {"environment": {"A": text}},
        {"modules": {"load": [text]}},
        {"launch": {"launcher": ["srun", text]}},
    ):
        with pytest.raises(UsageError, match="m.toml: "):
            load_launcher(write(tmp_path / "m.toml", **tables))
    with pytest.raises(UsageError, match="machine"):
        expand({"name": "test", "cases": [{"m": 8, "n": 8, "k": 8, "machine": text}]}, 2)
    if "\x00" not in text:
        file = sweep_file("[[cases]]\nm = 8\nn = 8\nk = 8\n")
        assert (
            "--label"
            in say("sweep", file, "-p", 2, "--out", tmp_path / "out", "--label", text).refusal()
        )


@pytest.mark.parametrize("name", ["A B", "A;B", "A=B", "1A", "", "A\nB", "$(A)"])
def test_names_of_variables_are_names(tmp_path, name):
    (tmp_path / "m.toml").write_text(f'[environment]\n{json.dumps(name)} = "1"\n')
    with pytest.raises(UsageError, match="no name of a variable"):
        load_launcher(str(tmp_path / "m.toml"))


@pytest.mark.parametrize(
    "text",
    [
        text
        for text in EVIL
        if not text.replace(".", "").replace("/", "").replace("+", "").replace("=", "").isalnum()
        or text == "é"
    ],
)
def test_options_of_sbatch_take_only_harmless_characters(tmp_path, text):
    """Slurm reads these lines itself, with rules of its own for quotes."""
    path = tmp_path / "m.toml"
    path.write_text(f"[launch]\n[launch.sbatch]\ncomment = {json.dumps(text)}\n")
    with pytest.raises(UsageError, match="m.toml: launch.sbatch: comment"):
        load_launcher(str(path))


def test_a_launcher_is_a_list_of_arguments_never_a_line(tmp_path):
    with pytest.raises(UsageError, match="list of arguments"):
        load_launcher(write(tmp_path / "m.toml", launch={"launcher": "srun -n 4; rm -rf /"}))
    with pytest.raises(UsageError, match="{home}"):
        load_launcher(write(tmp_path / "m.toml", launch={"launcher": ["srun", "{home}"]}))
    words = [text for text in EVIL if "{" not in text]
    assert load_launcher(write(tmp_path / "m.toml", launch={"launcher": ["srun", *words]})).command(
        4
    ) == ["srun", *words]


@pytest.mark.parametrize("text", ["../evil", "/abs/evil", "a/b"])
def test_a_launcher_is_a_name_or_a_toml_file(say, sweep_file, tmp_path, text):
    file = sweep_file("[[cases]]\nm = 8\nn = 8\nk = 8\n")
    assert (
        "--launcher"
        in say("sweep", file, "-p", 2, "--out", tmp_path / "out", "--launcher", text).refusal()
    )
