"""``drbench.chain`` answers as ``drbench chain`` does, and refuses what that
refuses."""

import doctest
import json
import subprocess
import sys

import pytest
from starting import ROOT

import drbench
from drbench.errors import OutOfMemory, UnsupportedError, UsageError
from drbench.launch.commands.cli import main

MLP = "llama3-8b:mlp"


def test_a_choice_is_that_of_the_command(capsys):
    def printed(*more):
        assert main([*command, *more]) == 0
        return capsys.readouterr().out

    words = "--mesh dp=2,tp=2 -m 4Ki --backward --layers 2 --micro-batches 3 --recompute"
    words += " --dtype float16 --memory 40GiB --transport auto --effort 0 --fix X=row"
    command = ["chain", "--preset", MLP, *"--machine h100x8".split(), *words.split()]
    choice = drbench.chain(
        MLP,
        "h100x8",
        mesh="dp=2,tp=2",
        tokens=4096,
        backward=True,
        layers=2,
        micro_batches=3,
        recompute="full",
        dtype="float16",
        memory=40 << 30,
        effort=0,
        fix=["X=row"],
    )
    wanted = json.loads(printed("--json"))
    assert choice.to_dict() == wanted and wanted["training"]["micro_batches"] == 3
    best = wanted["best"]
    assert (choice.time_s, choice.interval_s) == (best["time_s"], (best["low_s"], best["high_s"]))
    assert (choice.mesh, choice.layouts, choice.memory) == (
        *("dp=2,tp=2", best["layouts"]),
        best["memory"],
    )
    assert choice.rows() == [best, *wanted["contenders"]][best["name"] != "chosen" :]
    assert printed().startswith(f"{choice}\n")
    script = printed("--placements", "TP x FSDP")
    assert f"{choice.script('tp x fsdp')}\n" == script != f"{choice.script()}\n"


@pytest.mark.parametrize(
    "preset, words, error, why",
    [
        ("llama3-8b:mlpp", {}, UsageError, "no preset and no file"),
        (MLP, {"machine": "h100"}, UsageError, "Did you mean h100x8"),
        (MLP, {"ranks": 9}, UsageError, "has 8 devices"),
        (MLP, {"ranks": 2, "mesh": "tp=4"}, UsageError, "has 4 ranks, got -p 2"),
        (MLP, {"fix": ["W9=row"]}, UsageError, "names no matrix"),
        (MLP, {"dtype": "int8"}, UnsupportedError, "are predicted in float32"),
        (MLP, {"layers": 0}, UsageError, "at least 1"),
        (MLP, {"recompute": "full"}, UsageError, "belong to backward=True"),
        (MLP, {"micro_batches": 2}, UsageError, "belong to backward=True"),
        (MLP, {"memory": 1 << 20}, OutOfMemory, "fits"),
    ],
)
def test_what_the_command_refuses_is_refused(preset, words, error, why):
    with pytest.raises(error, match=why):
        drbench.chain(preset, **{"machine": "h100x8", "effort": 0} | words)


def test_the_example_of_the_page_prints_what_it_shows():
    page = str(ROOT / "docs/how-to/layer-chains.md")
    tried = doctest.testfile(page, module_relative=False)
    assert tried.attempted > 3 and tried.failed == 0


def test_the_package_loads_nothing_that_computes_or_draws():
    heavy = "{'numpy', 'rich', 'click', 'matplotlib', 'mpi4py', 'drbench.launch'}"
    check = f"import sys, drbench.chains\nassert not {heavy} & {{*sys.modules}}"
    assert subprocess.run([sys.executable, "-c", check], cwd=ROOT).returncode == 0
