"""drbench simulate and calibrate from the command line."""

import json
from pathlib import Path

import pytest

from drbench.launch.cases.machine_models import find_machine

ROOT = Path(__file__).parents[3]
ONE = "simulate -m 1024 -n 4096 -k 1024 --machine pvc12 --preset column --stationary C".split()
SIZES = "-m 8 -n 8 -k 8".split()


def test_one_problem_is_one_record(run_cli):
    record = run_cli(*ONE, "--json").json()
    found = [record[name] for name in ("label", "mode", "machine", "ranks", "get_bytes")]
    assert found == ["pvc12", "simulated", "pvc12", 12, 11 * 1024 * 1024 * 4]
    assert 0 < record["percent_of_peak"] < 100


def test_a_changed_constant_changes_the_time(run_cli):
    slow, fast = (
        run_cli(*ONE, "--json", f"--machine=pvc12,links.xe.bandwidth_bytes_per_s={rate}").json()[
            "best_s"
        ]
        for rate in ("1e9", "1e12")
    )
    assert slow > 2 * fast


def test_a_prediction_reports_how_links_were_shared_and_none_is_the_models_own(run_cli):
    """With Stationary A on rows many accumulate into the same ranks."""
    case = [*ONE, *"--preset row --c column --stationary A --json --machine".split()]
    own, fair, fifo = (
        run_cli(*case, f"h100x8{rule}").json()
        for rule in ("", ",arbitration=fair", ",arbitration=fifo")
    )
    assert [each["arbitration"] for each in (own, fair, fifo)] == ["fair", "fair", "fifo"]
    assert own["best_s"] == fair["best_s"] != fifo["best_s"]
    assert fair["accumulate_bytes"] == fifo["accumulate_bytes"]
    assert find_machine("pvc12").arbitration == "fifo"  # as in its file


@pytest.mark.mpi
def test_the_first_places_of_the_ranking_are_run(drbench):
    machine = ROOT / "results/measured/spr-2core/model/rma/here.toml"
    words = "--only universal,summa --replication none --measure 2 --iters 2 --budget 0 --json"
    sizes = "-m 96 -n 128 -k 64 -p 2 --machine".split()
    ended = drbench("tune", *sizes, machine, *words.split(), timeout=60)
    first, second, *others = json.loads(ended.stdout)["ranking"]
    assert "2/2 cases, 2 ok" in ended.stderr and "/tmp" not in ended.stderr
    for planned, ran in ((place["record"], place["measured"]) for place in (first, second)):
        assert (ran["status"], ran["error"], ran["mode"]) == ("ok", 0, "measured")
        assert len(ran["samples_s"]) == 6
        names = "algorithm stationary dataflow a b c m n k".split()
        assert [ran[name] for name in names] == [planned[name] for name in names]
        moved = [each["get_bytes"] + each["direct_bytes"] for each in (ran, planned)]
        assert moved[0] == moved[1]
    assert all("measured" not in place for place in others)
