"""``drbench list``: what there is to predict on, and what it rests on."""

import json

import pytest

from algorithms import algorithms
from launch.commands.listing import KINDS
from launch.peers import PEERS
from partitions import PRESETS

NAMES = {
    "algorithms": [*algorithms()],
    "libraries": [*PEERS],
    "presets": [*PRESETS],
    "partitions": ["row", "block:3x2", "tiles:", "grid:", "/cN", "S(0)"],
    "transports": ["auto", "direct", "rma", "throttled:GBps,us"],
    "sweeps": ["exhaustive", "lowering"],
    "figures": ["algorithms", "best", "llm-weak", "--moving-only"],
    "launchers": ["slurm"],
    "chains": ["llama3-70b:mlp"],
}


@pytest.mark.parametrize("kind", NAMES)
def test_a_list_names_all_of_its_kind(say, kind):
    ended = say("list", kind)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert all(name in ended.stdout for name in NAMES[kind])
    assert all(json.loads(line) for line in say("list", kind, "--json").stdout.splitlines())


def test_without_a_kind_every_list_is_named(say):
    assert all(f" {kind} " in say("list").stdout for kind in KINDS)


@pytest.mark.parametrize("name", NAMES["algorithms"])
def test_an_algorithm_is_listed_with_each_option_and_its_default(say, name):
    printed = " ".join(say("list", "algorithms", name).stdout.split())
    for option in algorithms()[name].options.values():
        assert f"{option.flag}{' ' if option.group else '='}" in printed
        assert " ".join(option.help.split()[:4]) in printed
        assert not option.says or f"[default: {option.says}]" in printed
    assert "-o prefetch=N|all" in printed and "-o warmup=N" in printed


@pytest.mark.parametrize("words", [("algos",), ("libraries", "dtensr"), ("sweeps", "lowerin")])
def test_a_name_that_is_not_there_is_answered_with_the_one_that_is_meant(say, words):
    assert "Did you mean" in say("list", *words).refusal()


def test_one_without_options_is_its_row_and_any_one_is_json(say):
    assert "block-cyclic" in say("list", "partitions", "tiles").stdout
    assert "Raccumulate" in say("list", "transports", "rma").stdout
    [line] = say("list", "machines", "h100x8", "--json").stdout.splitlines()
    assert json.loads(line)["machine"] == "h100x8"


def test_a_library_takes_what_it_obeys(say):
    printed = say("list", "libraries", "dtensor").stdout
    assert "-o device=cpu|cuda" in printed and "prefetch" not in printed


def test_one_machine_is_shown_whole(say, tmp_path):
    said = say("list", "machines", "a100pcie").stdout
    assert "a100pcie.toml" in said and "ASSUMED" in said and "[model.links.pcie]" in said
    path = tmp_path / "mine.toml"
    path.write_text("[model]\n[model.compute]\npeak_flops = 5e12\n")
    assert "peak_flops = 5e12" in say("list", "machines", path).stdout


@pytest.mark.parametrize("words", [["nope"], ["/no/such.toml"]])
def test_a_machine_that_is_not_there_is_one_line(say, words):
    assert "Did you mean" in say("list", "machines", "dgxh10").refusal()
    assert say("list", "machines", *words).refusal()
