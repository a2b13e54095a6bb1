"""``drbench chain``: its report of a chain, how certain it is, and the run it compares with."""

import ast
import csv
import json
import os
import pty
import signal
import subprocess
import sys
from math import exp, log, sqrt
from statistics import fmean, stdev

import pytest
from starting import ROOT, clean_environ, read_terminal

#: A small chain, and a larger one.
FILES = ROOT / "tests" / "launch" / "commands"
SMALL = ["chain", "--preset", str(FILES / "small_layers.txt")]
LARGE = ["chain", "--preset", str(FILES / "large_layers.txt")]

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
    found = run_cli(*SMALL, "--machine", tmp_path / "toy.toml", "-p", 2, "--json").json()
    every = list(csv.DictReader(path.open()))
    rows = [row for row in every if row["algorithm"] == "chain"]
    assert {row["algorithm"] for row in every} == {"chain", "chain operation"}
    logs = [log(each) for each in (0.8, 0.9, 1.0, 1.1, 1.2)]
    middle, half = fmean(logs), 2.776 * stdev(logs) * sqrt(1 + 1 / 5)  # Student's t of 4
    assert described.returncode == 0 and len(rows) == 1 + len(found["contenders"]) >= 3
    for row, each in zip(rows, [found["best"], *found["contenders"]]):
        ends = float(row["median_low_s"]), float(row["median_high_s"])
        assert ends == pytest.approx((each["low_s"], each["high_s"]))
        wanted = [float(row["best_s"]) * exp(end) for end in (middle - half, middle + half)]
        assert ends == pytest.approx(wanted, rel=1e-3)
        us = [1e6 * each[name] for name in ("time_s", "low_s", "high_s")]
        assert "{:.3g} µs ({:.3g}-{:.3g})".format(*us) in described.stdout
    assert found["within_interval"] == [each["name"] for each in found["contenders"]]
    assert described.stdout.startswith("Tied for fastest: ")
    assert "= tied with the best" in described.stdout


def test_a_contender_that_takes_longer_than_the_interval_is_not_reported_as_within_it(run_cli, toy):
    path = toy([1.0, 1.0, 1.0])
    slow = path.read_text().replace("bandwidth_bytes_per_s = inf", "bandwidth_bytes_per_s = 1e6")
    path.write_text(slow)
    found = run_cli(*SMALL, "--machine", path, "-p", 2, "--json").json()
    slower = [each for each in found["contenders"] if each["time_s"] > found["best"]["time_s"]]
    assert slower and not {each["name"] for each in slower} & set(found["within_interval"])


def test_a_machine_without_residuals_has_no_interval(run_cli, toy):
    path = toy([1.0, 1.0])
    path.write_text(path.read_text().partition("[model.residuals]")[0])
    found = run_cli(*SMALL, "--machine", path, "-p", 2, "--json").json()
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
    found = run_cli(*one, "--json").json()
    first = run_cli(*one).stdout.splitlines()[0]
    assert found["decided"] == (found["gap"] <= 0) == ("optimality gap" not in first)
    slow = "chain --preset llama3-70b:mlp --machine dgxh100 -p 16 --effort 0".split()
    found = run_cli(*slow, "--json").json()
    described = run_cli(*slow).stdout
    assert not found["decided"] and not found["finished"]
    gap = f"optimality gap at most {100 * found['gap']:.0f} %"
    assert gap in described.splitlines()[0]
    assert found["gap"] == 1 - found["bound_s"] / found["best"]["time_s"]


@pytest.mark.parametrize("name, ranks", [("llama3-8b:mlp", 4), ("mixtral-8x7b:experts", 8)])
def test_printed_placements_are_one_python_script(run_cli, name, ranks):
    words = f"chain --preset {name} --machine h100x8 -p {ranks} -m 8192 --effort 0 --placements"
    ended = run_cli(*words.split(), "FSDP")
    assert ended.returncode == 0 and compile(ended.stdout, "placements", "exec")
    assert "from torch" in ended.stdout and "Shard(" in ended.stdout


TWO = [*LARGE, *"--machine h100x8 --mesh dp=2,tp=2 --effort 0".split()]


def test_a_layout_is_given_in_three_notations(run_cli):
    torch, jax = ("[Replicate(), Shard(1)]", "(Replicate(), Shard(dim=1))"), ("P", "PartitionSpec")
    for layout in ("R,S(1)", "R,S(1)@2x2", *torch, *(f"{name}(None, 'tp')" for name in jax)):
        found = run_cli(*TWO, "--fix", f"W1={layout}", "--json").json()
        assert found["best"]["layouts"]["W1"] == "R,S(1)@2x2"
        assert found["best"]["mesh"] == "dp=2,tp=2" and found["ranks"] == 4


def test_element_types_have_their_names_and_chains_are_in_bfloat16(run_cli):
    asked = [*LARGE, *"--machine h100x8 -p 2 --effort 0 --json".split()]
    assert run_cli(*asked).json()["dtype"] == "bfloat16"
    for name in ("float32", "float64", "bfloat16", "float16", "float8"):
        assert run_cli(*asked, "--dtype", name).json()["dtype"] == name


def test_the_json_has_the_choice_the_contenders_and_the_bound(run_cli):
    found = run_cli(*TWO, "--backward", "--layers", 4, "--json").json()
    described = run_cli(*TWO, "--backward", "--layers", 4).stdout
    keys = "chain ranks dtype flops best contenders within_interval refused bound_s gap decided"
    assert {*found} == {*f"{keys} bounded simulated finished measured training".split()}
    assert found["flops"] == 3 * 2 * 2 * 512 * 256 * 512 and found["measured"] is None
    for each in (found["best"], *found["contenders"]):
        keys = "name time_s low_s high_s mesh mfu total_s step_s parts_s operations memory_bytes"
        keys += " memory layouts how bytes"
        assert {*each} == {*keys.split()}
        assert sum(each["memory"].values()) == each["memory_bytes"]
        assert {*each["memory"]} == {*"weights gradients optimizer activations buffers".split()}
        assert {*each["layouts"]} == {"X", "W1", "Y1", "W2"}
        assert {*each["how"]} == {"Y1", "Y2", "dW1", "dW2", "dY1", "dX"}
        assert f"\n {each['name']}" in described
    names = {each["name"] for each in found["contenders"]} | {*found["refused"]}
    known = {"Megatron TP", "TP + SP", "FSDP", "HSDP", "TP × FSDP", "TP × DP"}
    assert names == known | {"Async TP", "Async TP × FSDP"}
    assert found["bound_s"] <= found["best"]["time_s"]


LONG = "chain --preset llama3-70b:mlp --backward --machine dgxh100 --mesh dp=8,tp=8".split()


def on_terminal(arguments, until=None):
    """The command with a terminal for standard error: (exit code, output, errors); interrupted as
    soon as the terminal shows a text."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "drbench", *map(str, arguments)]
    environ = clean_environ(PYTHONPATH=str(ROOT))
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, env=environ) as started:
        os.close(theirs)
        shown = b""
        for text in read_terminal(ours):
            shown += text
            if until and until in shown:
                started.send_signal(signal.SIGINT)
                until = None
        out = started.stdout.read().decode()
    os.close(ours)
    return started.returncode, out, shown.decode()


def test_progress_is_one_line_of_a_terminal_and_ctrl_c_leaves_the_best_so_far(run_cli):
    code, out, shown = on_terminal([*LONG, "--effort", 100], until=b" so far")
    assert code == 0, shown
    assert out.startswith("Best found: ") and "optimality gap at most" in out.splitlines()[0]
    lines = shown.split("\r\033[K")
    assert lines[-1] == "" and "programs simulated" in lines[1] and "\n" not in shown.strip()
    ended = run_cli(*TWO)
    assert ended.returncode == 0 and ended.stderr == ""


def test_a_picture_of_the_operations_is_saved_and_is_the_figure_of_the_csv(run_cli, tmp_path):
    picture, path = tmp_path / "picture.txt", tmp_path / "out.csv"
    ended = run_cli(*TWO, "--backward", "--csv", path, "--save", picture)
    assert ended.stdout.splitlines()[-1] == f"figure: {picture}"
    again = tmp_path / "again.txt"
    assert run_cli("plot", "operations", path, "--save", again).returncode == 0
    assert picture.read_text() == again.read_text() and " on dp=2,tp=2" in again.read_text()
    for flag, read in ("--json", json.loads), ("--placements", ast.parse):
        ended = run_cli(*TWO, flag, "--save", tmp_path / "x.svg")
        assert read(ended.stdout) and ended.stderr == f"figure: {tmp_path / 'x.svg'}\n"
    assert (tmp_path / "x.svg").read_text().startswith("<?xml")


@pytest.mark.parametrize("name", ["no/such/x.svg", "x.docx"])
def test_a_picture_that_cannot_be_saved_is_refused_before_the_search(run_cli, tmp_path, name):
    ended = run_cli(*LONG, "--effort", 1000, "--save", tmp_path / name)
    assert ended.returncode == 2 and "--save" in ended.stderr and ended.stdout == ""
