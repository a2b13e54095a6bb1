"""``drbench chain``: its report of a chain, how certain it is, and the run it compares with."""

import csv
import json
from math import exp, log, sqrt
from statistics import fmean, stdev

import pytest

SMALL = "chain -m 64 --widths 32,64,32 --between relu".split()

#: Two ranks that share memory, whose GEMMs are slow.
MODEL = """
[model]
name = "toy"
adds_on_core = true
fence_s = 1e-6
[model.compute]
peak_flops = {peak}
memory_bytes_per_s = 1e12
[model.transports.direct]
shared = "initiator"
reads_in_place = true
bandwidth_bytes_per_s = inf
[model.residuals]
direct = {residuals}
"""


@pytest.fixture
def toy(tmp_path):
    """``toy(residuals, peak)``: a file of a machine."""

    def write(residuals, peak=1e9):
        path = tmp_path / "toy.toml"
        path.write_text(MODEL.format(residuals=residuals, peak=peak))
        return path

    return write


def test_every_predicted_time_has_its_interval_in_the_table_the_csv_and_the_json(
    run_cli, toy, tmp_path
):
    path = tmp_path / "out.csv"
    described = run_cli(*SMALL, "--machine", toy([0.8, 0.9, 1.0, 1.1, 1.2]), "-p", 2, "--csv", path)
    found = json.loads(
        run_cli(*SMALL, "--machine", tmp_path / "toy.toml", "-p", 2, "--json").stdout
    )
    rows = list(csv.DictReader(path.open()))
    logs = [log(each) for each in (0.8, 0.9, 1.0, 1.1, 1.2)]
    middle, half = fmean(logs), 2.776 * stdev(logs) * sqrt(1 + 1 / 5)  # Student's t of 4
    assert described.returncode == 0 and len(rows) == 1 + len(found["contenders"]) >= 3
    for row, each in zip(rows, [found["best"], *found["contenders"]]):
        ends = float(row["median_low_s"]), float(row["median_high_s"])
        assert ends == pytest.approx((each["low_s"], each["high_s"]))
        wanted = [float(row["best_s"]) * exp(end) for end in (middle - half, middle + half)]
        assert ends == pytest.approx(wanted, rel=1e-3)
        us = [1e6 * each[name] for name in ("time_s", "low_s", "high_s")]
        assert "{:.3g} us ({:.3g}-{:.3g})".format(*us) in described.stdout
    assert found["within_interval"] == [each["name"] for each in found["contenders"]]
    assert f"Within the interval of the chosen: {', '.join(found['within_interval'])}." in (
        described.stdout
    )


def test_a_contender_that_takes_longer_than_the_interval_is_not_reported_as_within_it(run_cli, toy):
    narrow = ["--machine", toy([1.0, 1.0, 1.0]), "-p", 2, "--json"]
    found = json.loads(run_cli(*SMALL, *narrow).stdout)
    slower = [each for each in found["contenders"] if each["time_s"] > found["best"]["time_s"]]
    assert slower and not {each["name"] for each in slower} & set(found["within_interval"])


def test_a_machine_without_residuals_has_no_interval(run_cli, toy):
    path = toy([1.0, 1.0])
    path.write_text(path.read_text().partition("[model.residuals]")[0])
    found = json.loads(run_cli(*SMALL, "--machine", path, "-p", 2, "--json").stdout)
    assert found["best"]["low_s"] is None and found["within_interval"] == []


@pytest.mark.mpi
@pytest.mark.parametrize("peak, verdict", [(1e9, "in"), (1e3, "not in")])
def test_a_run_reports_whether_it_is_in_the_interval(drbench, toy, peak, verdict):
    wide = [1e-4, 1e-2, 1.0, 1e2, 1e4] if verdict == "in" else [1.0, 1.0, 1.0]
    asked = [*SMALL, "--machine", toy(wide, peak), *"-p 2 --run --iters 2 --budget 0".split()]
    ended = drbench(*asked, timeout=60)
    assert ended.returncode == 0, ended.stderr
    (line,) = [each for each in ended.stdout.splitlines() if each.startswith("measured")]
    assert f"), {verdict} " in line and "every operation verified, exact" in line


def test_the_first_line_reports_how_much_faster_another_chain_could_be(run_cli, toy):
    one = [*SMALL, "--machine", toy([1.0, 1.0, 1.0]), "-p", 2]
    words = {True: "; by the bounds no chain is more than", False: ", may be "}
    found = json.loads(run_cli(*one, "--json").stdout)
    first = run_cli(*one).stdout.splitlines()[0]
    assert found["decided"] == (found["gap"] <= 0) and words[found["decided"]] in first
    slow = "chain --preset llama3-70b:mlp --machine dgxh100 -p 16 --effort 0".split()
    found = json.loads(run_cli(*slow, "--json").stdout)
    described = run_cli(*slow).stdout
    assert not found["decided"] and not found["finished"]
    assert f"may be {100 * found['gap']:.1f} % off" in described.splitlines()[0]
    assert described.startswith("best found: ") and "until the effort was spent" in described
    assert (
        "fastest" not in described
        and found["gap"] == 1 - found["bound_s"] / found["best"]["time_s"]
    )


def test_printed_placements_are_python(run_cli):
    words = "chain --preset llama3-8b:mlp --machine h100x8 -p 4 -m 256 --effort 0 --placements"
    text = run_cli(*words.split()).stdout.partition("from torch")
    assert compile(text[1] + text[2], "placements", "exec") and "Shard(" in text[2]
