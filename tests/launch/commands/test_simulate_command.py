"""drbench simulate and calibrate from the command line."""

import json
from pathlib import Path

import pytest

from drbench.model.fit import spread
from launch.cases.machine_models import find_machine
from launch.models.beyond import how_sure

ROOT = Path(__file__).parents[3]
ONE = "simulate -m 1024 -n 4096 -k 1024 --machine pvc12 --preset column --stationary C".split()
SIZES = "-m 8 -n 8 -k 8".split()


def test_one_problem_is_one_record(run_cli):
    record = run_cli(*ONE, "--json").json()
    assert record["label"] == "pvc12"
    assert (record["mode"], record["machine"], record["ranks"], record["get_bytes"]) == (
        "simulated",
        "pvc12",
        12,
        11 * 1024 * 1024 * 4,
    )
    assert 0 < record["percent_of_peak"] < 100


def test_a_changed_constant_changes_the_time(run_cli):
    slow, fast = (
        run_cli(*ONE, "--json", "--machine", f"pvc12,links.xe.bandwidth_bytes_per_s={rate}").json()[
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
def test_a_calibrated_machine_predicts_chooses_and_other_sections_stay(
    drbench, run_cli, fault, tmp_path
):
    path = tmp_path / "mine.toml"
    path.write_text(
        '[launch]\nranks = 2\n\n[model]\nname = "earlier"\n\n[model.compute]\npeak_flops = 1.0\n'
    )
    for rounds in (1, 3):  # on a machine with other work one may be disturbed
        words = ["calibrate", "-p", "2", "--rounds", rounds, "--save", path]
        assert drbench(*words, env=fault("small GEMMs"), timeout=100).returncode == 0
        made = find_machine(str(path))
        ratios = [ratio for ratios in made.residuals.values() for ratio in ratios]
        if sane := all(0.1 < ratio < 10 for ratio in ratios):
            break
    assert sane, ratios
    text = path.read_text()
    assert made.for_dtype("float64").compute.peak_flops < 2 * made.compute.peak_flops
    assert (made.calibrated["ranks"], how_sure(made).level) == (2, "calibrated")
    # on a machine that drifted meanwhile each at both ends of the drift
    assert [*made.residuals] == ["direct", "rma", "throttled"]
    assert {len(ratios) for ratios in made.residuals.values()} in ({15}, {30})
    assert text.startswith("[launch]\nranks = 2\n") and "earlier" not in text
    case = (
        "-m 256 -n 320 -k 1024 -p 2 --preset row --stationary auto -o schedule=cost "
        "--transport rma --machine"
    ).split() + [str(path), "--json"]
    record = run_cli("simulate", *case).json()
    assert record["best_s"] > 0 and record["percent_of_peak"] is None
    low, high = spread(made.residuals["rma"])
    ends = [record["best_s"] * low, record["best_s"] * high]
    assert [record["median_low_s"], record["median_high_s"]] == pytest.approx(ends)
    ran = drbench("run", *case, *"--iters 1 --budget 0 -o gemm_only=false".split()).json()
    assert (ran["status"], ran["error"], ran["label"], ran["schedule"]) == (
        "ok",
        0,
        "here",
        "cost",
    )
    assert all(
        ran[name] == record[name]
        for name in ("stationary", "chunk", "get_bytes", "accumulate_bytes", "steps")
    )


@pytest.mark.mpi
def test_gpus_are_calibrated_by_programs_that_run_on_them(drbench, run_cli, fake_gpus, tmp_path):
    path = tmp_path / "devices.toml"
    assert (
        drbench(
            *"calibrate -p 2 --rounds 2 --backend cupy --save".split(),
            str(path),
            env=fake_gpus(2),
            timeout=100,
        ).returncode
        == 0
    )
    machine = find_machine(str(path))
    link = machine.links[0]
    assert (
        link.bandwidth_bytes_per_s > 0
        and 0 < machine.accumulate_efficiency <= 1
        and set(machine.collectives) == {"allgather", "reducescatter", "shift"}
    )
    case = "simulate -m 256 -n 320 -k 192 -p 2 --algorithm meshslice --mesh 1x2 --json --machine"
    record = run_cli(*case.split(), path).json()
    assert record["status"] == "ok" and record["best_s"] > 0


@pytest.mark.mpi
def test_the_first_places_of_the_ranking_are_run(drbench):
    ended = drbench(
        "tune",
        *[
            *"-m 96 -n 128 -k 64 -p 2 --machine".split(),
            str(ROOT / "results/measured/spr-2core/model/rma/here.toml"),
            *(
                "--only universal,summa --replication none --measure 2 --iters 2 --budget 0 --json"
            ).split(),
        ],
        timeout=60,
    )
    places = json.loads(ended.stdout)["ranking"]
    assert (
        ended.returncode == 0 and "2/2 cases, 2 ok" in ended.stderr and "/tmp" not in ended.stderr
    )
    for place in places[:2]:
        planned, ran = place["record"], place["measured"]
        assert (ran["status"], ran["error"], ran["mode"]) == ("ok", 0, "measured") and len(
            ran["samples_s"]
        ) == 6
        assert all(
            ran[name] == planned[name]
            for name in ("algorithm", "stationary", "dataflow", "a", "b", "c", "m", "n", "k")
        )
        assert (
            ran["get_bytes"] + ran["direct_bytes"] == planned["get_bytes"] + planned["direct_bytes"]
        )
    assert all("measured" not in place for place in places[2:])
