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
    from drbench.measure.record import append_csv

    append_csv(tmp_path / "mlp.csv", *(r for r in simulated if r.mode == "simulated"))
    assert main(["paper", "check-claims", str(tmp_path), "--extremes"]) == 0
    out = capsys.readouterr().out
    assert "no overlap                       P3 does not hold\n" in out
    with open(tmp_path / "readings/extremes.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    turned = [row for row in rows if row["unchanged"] != row["changed"]]
    assert {(row["change"], row["claim"]) for row in turned} == {("no overlap", "P3")}


def test_a_file_is_no_folder_to_write_into(simulated, tmp_path, capsys):
    from drbench.measure.record import append_csv

    path = tmp_path / "mlp.csv"
    append_csv(path, *(r for r in simulated if r.mode == "simulated"))
    assert main(["paper", "check-claims", str(path), "--extremes"]) == 2
    said = capsys.readouterr().err
    assert "--extremes" in said and said.count("\n") == 1
