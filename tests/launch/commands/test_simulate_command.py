"""drbench simulate, calibrate and check-claims from the command line."""

import json
from pathlib import Path

import pytest

from drbench.measure.record_file import read_csv
from drbench.model.fit import spread
from launch.cases.machine_models import find_machine
from launch.models.advise import how_sure
from launch.studies import slicing_claims
from launch.studies.overlap import claims as overlap_claims

ROOT = Path(__file__).parents[3]
ONE = [
    "simulate",
    "-m",
    "1024",
    "-n",
    "4096",
    "-k",
    "1024",
    "--machine",
    "pvc12",
    "--preset",
    "column",
    "--stationary",
    "C",
]
SWEEP = ["simulate", "--machine", "pvc12"]
SIZES = ["-m", "8", "-n", "8", "-k", "8"]


def test_one_problem_is_one_record(say):
    record = say(*ONE, "--json").json()
    assert (record["mode"], record["machine"], record["ranks"], record["get_bytes"]) == (
        "simulated",
        "pvc12",
        12,
        11 * 1024 * 1024 * 4,
    )
    assert 0 < record["percent_of_peak"] < 100


def test_a_changed_constant_changes_the_time(say):
    slow, fast = (
        say(*ONE, "--json", "--machine", f"pvc12,links.xe.bandwidth_bytes_per_s={rate}").json()[
            "best_s"
        ]
        for rate in ("1e9", "1e12")
    )
    assert slow > 2 * fast


def test_a_sweep_goes_on_where_it_stopped_and_says_what_it_left_out(say, tmp_path):
    cases = [
        {"m": 64, "n": 64, "k": 64, "a": "row", "b": "row", "c": c}
        for c in ("row", "column", "block")
    ]
    path = tmp_path / "some.json"
    for count in (2, 3):
        path.write_text(json.dumps(cases[:count]))
        done = say("simulate", str(path), "--machine", "pvc12", "--out", str(tmp_path))
        assert done.returncode == 0
    assert (
        "3 cases (3 ok), 1 of them new" in done.stdout
        and len(read_csv(tmp_path / "some-pvc12.csv")) == 3
    )
    other = say("simulate", str(path), "--machine", "pvc12,fence_s=1e-3", "--out", str(tmp_path))
    assert "another version of the model" in other.refusal()


def test_a_sweep_file_is_simulated_as_sweep_would_run_it(say, tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(
        'name = "tiny"\n[defaults]\nm = 1024\nn = 4096\nk = 1024\npreset = "column"\n'
        '[[cases]]\nstationary = "C"\nschedule = ["direct", "greedy"]\n[[cases]]\nalgorithm = '
        '["cannon", "dtensor"]\n[[cases]]\ntransport = "rma"\n'
    )
    done = say("simulate", str(path), "--machine", "pvc12", "--out", str(tmp_path))
    assert done.returncode == 0 and "5 cases (1 failed, 2 ok, 2 unsupported)" in done.stdout
    rows = read_csv(tmp_path / "tiny-pvc12.csv")
    assert [row.schedule for row in rows[:2]] == ["direct", "greedy"] and rows[0].best_s == say(
        *ONE, "--json"
    ).json()["best_s"]
    assert [row.status for row in rows[2:]] == [
        "unsupported",
        "unsupported",
        "failed",
    ] and "no model of the transport" in rows[4].reason


@pytest.mark.parametrize(
    "arguments, says",
    [
        (["simulate"], "-m is missing"),
        (["simulate", "lowrin", "--out", "x", "--machine", "pvc12"], "Did you mean lowering?"),
        (
            [*SWEEP, "lowering", "--out", "x", "-o", "prefetch=2", "--lines-only"],
            "-o prefetch, --lines-only are for mlp1 and mlp2",
        ),
        ([*SWEEP, "mlp1"], "needs --out"),
        (["simulate", "mlp1", "--out", "x"], "sweeps need a machine model"),
        (["simulate", *SIZES], "-p is missing"),
        ([*SWEEP, "mlp1", "--out", "x", "-m", "8"], "belong to one problem"),
        ([*ONE, "--out", "x"], "belongs to sweeps"),
        ([*ONE, "--machine", "pvc12,links.xe.speed=1"], "no constant 'speed'"),
        ([*ONE, "-p", "13"], "has 12 devices"),
        (
            ["simulate", *SIZES, "-p", "2", "--algorithm", "dtensor"],
            "no algorithm 'dtensor'",
        ),
        (["calibrate", "--save", "/no/such/folder/x.toml"], "no folder"),
    ],
)
def test_what_makes_no_sense_is_one_line_and_exit_2(say, arguments, says):
    assert says in say(*arguments).refusal()


def test_claims_are_checked_on_the_committed_rows(say):
    found = {
        verdict["claim"]: verdict["holds"]
        for verdict in say(
            "paper", "check-claims", str(ROOT / "results/simulated"), "--json"
        ).json()
    }
    papers = slicing_claims.CLAIMS, overlap_claims.CLAIMS
    assert list(found) == [name for claims in papers for name in claims]
    assert found["P1"] and found["P11"] is not None


def test_claims_without_records_are_undecided_and_say_so(say, tmp_path):
    say(*ONE, "--csv", str(tmp_path / "one.csv"))
    done = say("paper", "check-claims", str(tmp_path))
    assert (
        done.returncode == 0
        and done.stdout.count("SKIP") == len(slicing_claims.CLAIMS) + 1
        and "records missing" in done.stdout
    )


@pytest.mark.mpi
def test_a_calibrated_machine_predicts_chooses_and_other_sections_stay(
    drbench, say, fault, tmp_path
):
    path = tmp_path / "mine.toml"
    path.write_text(
        '[launch]\nranks = 2\n\n[model]\nname = "earlier"\n\n[model.compute]\npeak_flops = 1.0\n'
    )
    for rounds in (1, 3):  # on a machine with other work one may be disturbed
        words = ["calibrate", "-p", "2", "--rounds", rounds, "--save", path]
        assert drbench(*words, env=fault("small products"), timeout=100).returncode == 0
        made = find_machine(str(path))
        ratios = [ratio for ratios in made.residuals.values() for ratio in ratios]
        if sane := all(0.1 < ratio < 10 for ratio in ratios):
            break
    assert sane, ratios
    text = path.read_text()
    assert made.for_dtype("float64").compute.peak_flops < 2 * made.compute.peak_flops
    assert (made.calibrated["ranks"], how_sure(made, 2).level) == (2, "calibrated")
    # on a machine that drifted meanwhile each at both ends of the drift
    assert [*made.residuals] == ["direct", "rma", "throttled"]
    assert {len(ratios) for ratios in made.residuals.values()} in ({15}, {30})
    assert text.startswith("[launch]\nranks = 2\n") and "earlier" not in text
    case = [
        "-m",
        "256",
        "-n",
        "320",
        "-k",
        "1024",
        "-p",
        "2",
        "--preset",
        "row",
        "--stationary",
        "auto",
        "-o",
        "schedule=cost",
        "--transport",
        "rma",
        "--machine",
    ] + [str(path), "--json"]
    record = say("simulate", *case).json()
    assert record["best_s"] > 0 and record["percent_of_peak"] is None
    low, high = spread(made.residuals["rma"])
    ends = [record["best_s"] * low, record["best_s"] * high]
    assert [record["median_low_s"], record["median_high_s"]] == pytest.approx(ends)
    ran = drbench("run", *case, "--iters", "1", "--budget", 0, "-o", "roof=false").json()
    assert (ran["status"], ran["error"], ran["machine"], ran["schedule"]) == (
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
def test_devices_are_calibrated_by_what_runs_on_them(drbench, say, fault, tmp_path):
    path = tmp_path / "devices.toml"
    assert (
        drbench(
            "calibrate",
            "-p",
            "2",
            "--rounds",
            "2",
            "--backend",
            "numpy-async",
            "--save",
            str(path),
            env=fault("small products"),
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
    for words in ("--preset row --stationary B", "--algorithm meshslice --mesh 1x2"):
        record = say(
            "simulate",
            *["-m", "256", "-n", "320", "-k", "192", "-p", "2"],
            *words.split(),
            "--machine",
            str(path),
            "--json",
        ).json()
        assert record["status"] == "ok" and record["best_s"] > 0


@pytest.mark.mpi
def test_the_first_places_of_the_ranking_are_run(drbench):
    ended = drbench(
        "tune",
        *[
            "-m",
            "96",
            "-n",
            "128",
            "-k",
            "64",
            "-p",
            "2",
            "--machine",
            str(ROOT / "results/measured/spr-2core/model/rma/here.toml"),
            "--only",
            "universal,summa",
            "--replication",
            "none",
            "--measure-top",
            "2",
            "--iters",
            "2",
            "--budget",
            0,
            "--json",
        ],
        timeout=60,
    )
    places = json.loads(ended.stdout)["ranking"]
    assert (
        ended.returncode == 0 and "4/4 turns, 4 ok" in ended.stderr and "/tmp" not in ended.stderr
    )
    for place in places[:2]:
        planned, ran = place["record"], place["measured"]
        assert (ran["status"], ran["error"], ran["mode"]) == ("ok", 0, "measured") and len(
            ran["samples_s"]
        ) == 2
        assert all(
            ran[name] == planned[name]
            for name in ("algorithm", "stationary", "dataflow", "a", "b", "c", "m", "n", "k")
        )
        assert (
            ran["get_bytes"] + ran["direct_bytes"] == planned["get_bytes"] + planned["direct_bytes"]
        )
    assert all("measured" not in place for place in places[2:])
