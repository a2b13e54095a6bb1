"""``drbench list``: algorithms, machines and other names, with their options and sources."""

import json

import pytest

from drbench.algorithms import algorithms
from drbench.chains.model.transformers import preset
from drbench.launch.commands.listing import KINDS
from drbench.launch.libraries import LIBRARIES
from drbench.partitions import PRESETS

NAMES = {
    "algorithms": [*algorithms()],
    "libraries": [*LIBRARIES],
    "presets": [*PRESETS],
    "partitions": ["row", "block:3x2", "tiles:", "grid:", "/cN", "S(0)"],
    "transports": ["auto", "direct", "rma", "throttled:GBps,us"],
    "sweeps": ["exhaustive", "lowering"],
    "figures": ["algorithms", "best", "llm-weak"],
    "launchers": ["slurm"],
    "chains": ["llama3-70b:mlp"],
}


@pytest.mark.parametrize("kind", NAMES)
def test_a_list_names_all_of_its_type(run_cli, kind):
    ended = run_cli("list", kind)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert all(name in ended.stdout for name in NAMES[kind])
    assert all(json.loads(line) for line in run_cli("list", kind, "--json").stdout.splitlines())


def test_without_a_type_every_list_is_named(run_cli):
    lines = run_cli("list").stdout.splitlines()
    assert [line.split()[0] for line in lines] == [*KINDS]


@pytest.mark.parametrize("name", NAMES["algorithms"])
def test_an_algorithm_is_listed_with_each_option_and_its_default(run_cli, name):
    printed = " ".join(run_cli("list", "algorithms", name).stdout.split())
    for option in algorithms()[name].options.values():
        assert f"{option.flag}{' ' if option.group else '='}" in printed
        assert " ".join(option.help.split()[:4]) in printed
        assert not option.shown_default or f"[default: {option.shown_default}]" in printed
    assert "-o prefetch=N|all" in printed and "-o warmup=N" in printed


def test_a_name_without_options_is_one_row_and_every_name_is_json(run_cli):
    assert "block-cyclic" in run_cli("list", "partitions", "tiles").stdout
    assert "Raccumulate" in run_cli("list", "transports", "rma").stdout
    [line] = run_cli("list", "machines", "h100x8", "--json").stdout.splitlines()
    assert json.loads(line)["machine"] == "h100x8"


def test_a_listed_chain_is_a_file_for_the_command(run_cli, tmp_path):
    path = tmp_path / "layer.txt"
    path.write_text(run_cli("list", "chains", "mixtral-8x7b:block").stdout)
    found, wanted = preset(str(path)), preset("mixtral-8x7b:block")
    assert (found.matrices, found.operations) == (wanted.matrices, wanted.operations)


def test_a_library_lists_the_options_it_uses(run_cli):
    printed = run_cli("list", "libraries", "dtensor").stdout
    assert "-o device=cpu|cuda" in printed and "prefetch" not in printed


def test_one_machine_is_shown_whole(run_cli, tmp_path):
    text = run_cli("list", "machines", "a100pcie").stdout
    assert "a100pcie.toml" in text and "ASSUMED" in text and "[model.links.pcie]" in text
    path = tmp_path / "mine.toml"
    path.write_text("[model]\n[model.compute]\npeak_flops = 5e12\n")
    assert "peak_flops = 5e12" in run_cli("list", "machines", path).stdout
