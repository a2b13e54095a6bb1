"""``drbench list``: what there is to predict on, and what it rests on."""

import json

import pytest

from launch.cases.machine_models import find_machine, machine_names


def test_every_model_is_listed_with_its_peaks_and_tiers(say):
    said = say("list", "machines").stdout
    assert all(f" {name} " in said for name in machine_names())
    assert "nvlink 375, rail 45" in said and "float8 1979" in said
    told = [json.loads(line) for line in say("list", "machines", "--json").stdout.splitlines()]
    assert [each["machine"] for each in told] == machine_names()
    for each in told:
        name = each["machine"]
        machine = find_machine(f"{name}-4x4" if "tpu" in name else name)
        assert each["peaks"] == machine.peaks and each["assumed"] == list(machine.assumed)
        assert each["tiers"] and each["file"].endswith(f"{name}.toml")


def test_one_machine_is_shown_whole(say, tmp_path):
    said = " ".join(say("list", "machines", "a100pcie").stdout.split())
    assert "numa 8 ranks node 16 5 us pcie" in said and "19 constants assumed" in said
    assert "nvlink" not in said
    assert "in place" in say("list", "machines", "lumic").stdout
    path = tmp_path / "mine.toml"
    link = "[model.links.wire]\nbandwidth_bytes_per_s = 2e9\n"
    path.write_text(f"[model]\n[model.compute]\npeak_flops = 5e12\n{link}")
    (told,) = say("list", "machines", path, "--json").stdout.splitlines()
    told = json.loads(told)
    assert told["peaks"] == {"float32": 5e12} and told["tiers"][0]["bandwidth_bytes_per_s"] == 2e9


@pytest.mark.parametrize("words", [["nope"], ["/no/such.toml"]])
def test_a_machine_that_is_not_there_is_one_line(say, words):
    assert "Did you mean" in say("list", "machines", "dgxh10").refusal()
    assert say("list", "machines", *words).refusal()
