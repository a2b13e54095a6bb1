"""What the claims rest on at extremes: each change is the one it is called, and what it turns is
told."""

import csv

import pytest
from made_up_figures import pvc1, records

from launch.cases.machine_models import find_machine
from launch.commands.cli import main
from launch.studies import extremes


@pytest.mark.parametrize("name, other", [("pvc12", "h100x8"), ("h100x8", "pvc12")])
def test_each_change_is_what_it_is_called(name, other):
    machine = find_machine(name)
    changed = dict(extremes.changes(machine))
    rates = [link.bandwidth_bytes_per_s for link in machine.links]
    for factor in (0.1, 0.5, 2, 10):
        links = changed.pop(f"bandwidth x {factor:g}").machine.links
        assert [link.bandwidth_bytes_per_s for link in links] == pytest.approx(
            [factor * rate for rate in rates]
        )
    assert changed["no overlap"] == (machine, {"prefetch": 0})
    swapped = changed["links swapped"].machine
    assert swapped.links == find_machine(other).links and swapped.compute == machine.compute


@pytest.fixture
def simulated(monkeypatch):
    """Made-up records instead of simulated ones, of two changes: without overlap Block worsens."""
    block = pvc1("Block", "C", "1-1-1", 40, 39, 50)
    few = [("links swapped", {}), ("no overlap", {"prefetch": 0})]

    def run_variants(cases, variants, ranks):
        name = variants[0].machine.name
        return [
            [r for r in records(block if fields else None, schedules=None) if r.machine == name]
            for _, fields in variants
        ]

    monkeypatch.setattr(extremes, "run_variants", run_variants)
    monkeypatch.setattr(
        extremes,
        "changes",
        lambda machine: [(name, extremes.Variant(machine, fields)) for name, fields in few],
    )
    return records()


def test_what_a_change_turns_is_told(simulated):
    published = [r for r in simulated if r.mode == "published"]
    found = extremes.extremes(published)
    assert extremes.told(found) == {
        "links swapped": "",
        "no overlap": "P3 does not hold",
    }
    assert {row.unchanged for row in found} == {"holds", "undecided"}  # P11 needs lowerings


def test_the_command_writes_the_rows(simulated, tmp_path, capsys):
    from drbench.measure.record_file import append_csv

    append_csv(tmp_path / "mlp.csv", *(r for r in simulated if r.mode == "simulated"))
    assert main(["paper", "check-claims", str(tmp_path), "--extremes"]) == 0
    out = capsys.readouterr().out
    assert "no overlap                       P3 does not hold\n" in out
    with open(tmp_path / "readings/extremes.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    turned = [row for row in rows if row["unchanged"] != row["changed"]]
    assert {(row["change"], row["claim"]) for row in turned} == {("no overlap", "P3")}


@pytest.mark.parametrize("words", [["--extremes"], ["--sensitivity", "0.25"]], ids=lambda x: x[0])
def test_a_file_is_no_folder_to_write_into(simulated, tmp_path, capsys, words):
    from drbench.measure.record_file import append_csv

    path = tmp_path / "mlp.csv"
    append_csv(path, *(r for r in simulated if r.mode == "simulated"))
    assert main(["paper", "check-claims", str(path), *words]) == 2
    said = capsys.readouterr().err
    assert words[0] in said and said.count("\n") == 1


def test_what_a_constant_turns_is_written_for_both_machines(monkeypatch, tmp_path, capsys):
    """Made-up records instead of simulated ones: with other ramps Block of PVC worsens."""
    from drbench.measure.record_file import append_csv
    from launch.commands.paper import claims

    def of(machine, block=None):
        found = [r for r in records(block, schedules=None) if r.machine == machine.name]
        return [r for r in found if r.mode == "simulated"]

    block = pvc1("Block", "C", "1-1-1", 40, 39, 50)
    monkeypatch.setattr(claims, "_candidates", lambda machine, say: ([], of(machine)))
    changed = lambda machine, share: [("ramp x 1.25", machine.vary("compute.k_ramp", 1.25))]
    monkeypatch.setattr(claims, "_variants", changed)
    monkeypatch.setattr(
        "launch.models.simulate_sweeps.run_variants",
        lambda cases, variants, ranks: [of(each.machine, block) for each in variants],
    )
    append_csv(tmp_path / "mlp.csv", *(r for r in records() if r.mode == "simulated"))
    words = ["paper", "check-claims", str(tmp_path), "--sensitivity", "0.25"]
    assert main([*words, "--machine", "h100x8"]) == 0
    assert not (tmp_path / "readings").exists()  # of one machine alone it is only told
    assert main(words) == 0
    assert "pvc12    ramp x 1.25" in capsys.readouterr().out
    with open(tmp_path / "readings/sensitivity.csv", newline="") as file:
        told = {row["machine"]: row["changed_claims"] for row in csv.DictReader(file)}
    assert told == {"pvc12": "P3 does not hold", "h100x8": ""}
