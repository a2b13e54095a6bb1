"""Advice is what searching says: the best for the layouts of today, the best other ones, and after
how many products leaving has paid, counted product by product."""

import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from drbench.errors import OutOfMemory
from drbench.measure.record_file import read_csv
from drbench.model.machine import Machine
from launch.cases.case import Case
from launch.cases.machine_models import find_machine
from launch.host.environment import processor_name
from launch.models.advise import advise, cost, how_sure
from launch.models.candidates import TuneRequest
from launch.models.tune import tune

CALIBRATED = Path(__file__).parents[3] / "results/measured/spr-2core/model/rma/here.toml"
DEVICE = Machine.from_dict(
    {
        "name": "device",
        "compute": {"peak_flops": 1e9, "launch_s": 1e-6},
        "links": {"wire": {"bandwidth_bytes_per_s": 2e7, "latency_s": 1e-6}},
    }
)
TODAY = ("row", "tiles:5x7@2x2", "block")
REQUEST = TuneRequest(
    Case(96, 128, 64), 4, ("universal", "summa"), replication="equal", today=TODAY, products=50
)


@pytest.fixture(scope="module", params=[None, DEVICE], ids=["bytes", "time"])
def advised(request):
    """A machine, or none, and the advice for it."""
    return request.param, advise(REQUEST, request.param)


def test_both_layouts_are_those_of_searching(advised):
    machine, found = advised
    a, b, c = TODAY
    fixed = replace(REQUEST, case=replace(REQUEST.case, a=a, b=b, c=c), today=(None,) * 3)
    assert cost(found.mine) == cost(tune(fixed, machine).ranking[0])
    assert found.better.case == tune(REQUEST, machine).ranking[0].case
    assert found.times_better is None or found.times_better > 1


def test_it_pays_after_so_many_products_and_not_one_earlier(advised):
    machine, found = advised
    moving = found.better.moving
    price = moving.busiest_bytes if machine is None else moving.seconds
    assert price > 0
    stays, goes = 0.0, price
    products = 0
    while goes > stays * (1 + 1e-12):
        products += 1
        stays, goes = stays + cost(found.mine), goes + cost(found.better)
    assert found.pays_after == products


def test_the_best_layout_is_left_alone():
    """Whoever has it already, under another name too, is told so."""
    request = replace(REQUEST, case=Case(64, 64, 64), today=("row/c4", "block:1x4", "column"))
    found = advise(request)
    assert (found.better, found.times_better, found.pays_after) == (None, None, None)
    assert cost(found.mine) == 0


def test_without_layouts_there_is_only_the_best():
    found = advise(replace(REQUEST, today=(None,) * 3))
    assert found.mine is None and found.better.moving.moved_bytes == 0
    assert "no layouts" in found.why_not


def test_layouts_that_do_not_fit_the_memory_are_said_to():
    tight = replace(REQUEST, today=("R", "R", "R"), memory=60_000)
    found = advise(tight)
    assert found.mine is None and "candidates fits" in found.why_not
    assert found.better.memory <= 60_000
    with pytest.raises(OutOfMemory):
        advise(replace(tight, memory=1000))


def test_how_sure_it_is():
    calibrated = replace(find_machine(str(CALIBRATED)), calibrated={})  # of an earlier drbench
    known = {"ranks": 2, "threads": 1, "date": "2026-01-01", "processor": processor_name()}
    here = replace(calibrated, calibrated=known)
    levels = [
        how_sure(machine, ranks).level
        for machine, ranks in (
            (None, 2),
            (find_machine("h100x8"), 8),
            (calibrated, 2),
            (here, 2),
            (here, 3),
            (replace(here, calibrated=known | {"processor": "an abacus"}), 2),
        )
    ]
    assert levels == ["counted", "published", "beyond", "calibrated", "beyond", "elsewhere"]


WORDS = ["advise", "-p", "4", "-m", "96", "-n", "128", "-k", "64", "--effort", "3"]
WORDS += ["--replication", "equal"]


def test_the_answer_comes_first_and_says_how_sure_it_is(say):
    given = [*WORDS, "--preset", "row", "--b", "column"]
    said = say(*given).stdout.splitlines()
    assert said[0].startswith("Your layouts, A row, B column, C row: ")
    assert said[1].startswith("Better, ") and "fewer bytes" in said[1] or "0 B" in said[1]
    assert "pays after" in said[2] and said[3].startswith("Run: drbench run -p 4 -m 96")
    assert any(line.startswith("How sure: bytes and FLOPs are counted") for line in said)
    told = say(*given, "--json").json()
    assert said[3] == f"Run: {told['mine']['command']}"
    assert told["mine"]["layouts"] == ["row", "column", "row"] and told["machine"] is None
    assert told["pays_after_products"] >= 1 and told["sure"]["level"] == "counted"
    timed = say(*given, "--machine", "pvc12").stdout
    assert "% of peak" in timed and "% of the roof" in timed and "published constants" in timed


def test_percent_of_peak_goes_by_the_peaks_of_the_machine_file(say, tmp_path):
    path = tmp_path / "mine.toml"
    calibrated = '[model.calibrated]\nranks = 4\nthreads = 1\nprocessor = "x"\ndate = "today"\n'
    peak = '\n[peak.float32]\ncore_gflops = 200.0\nsource = "test"\n'
    of_two, others = r"\[model\.calibrated\]\n(.+\n)+", CALIBRATED.read_text()
    path.write_text(re.sub(of_two, calibrated, others) + peak)
    told = say(*WORDS, "--machine", path, "--json").json()["better"]["record"]
    assert told["peak_gflops"] == 800.0
    assert told["percent_of_peak"] == pytest.approx(100 * told["gflops"] / 800.0)
    plain = say(*WORDS, "--machine", CALIBRATED, "--json").json()["better"]["record"]
    assert plain["percent_of_peak"] is None


def test_records_of_the_advice_are_appended(say, tmp_path):
    path = tmp_path / "advice.csv"
    given = [*WORDS, "--preset", "row", "--csv", path]
    told = say(*given, "--machine", "pvc12", "--json").json()
    found = [place["record"]["best_s"] for place in (told["mine"], told["better"]) if place]
    assert [record.best_s for record in read_csv(path)] == found
    assert "Name a --machine" in say(*given).refusal()


@pytest.mark.parametrize(
    "more, says",
    [
        (["--a", "colum"], "did you mean"),
        (["--a", "block:3x3"], "block:3x3 needs 9 ranks"),
        (["--only", "canon"], "no algorithm 'canon'"),
        (["--machine", "pvc21"], "no machine model"),
        (["--memory", "lots"], "--memory"),
        (["--products", "0"], "--products"),
        (["-p", "0"], "-p"),
    ],
)
def test_what_makes_no_sense_is_one_line(say, more, says):
    assert says.lower() in say(*WORDS, *more).refusal().lower()


@pytest.mark.mpi
def test_the_commands_of_the_advice_run(drbench):
    given = [*WORDS[1:], "-p", 2, "--a", "row", "--b", "row", "--c", "R"]
    told = drbench("advise", *given, "--json").json()
    for name in ("mine", "better"):
        words = shlex.split(told[name]["command"])[1:]
        ran = drbench(*words, "--iters", 1, "-o", "roof=false", "--json").json()
        assert (ran["status"], ran["error"]) == ("ok", 0)
        assert [ran[each] for each in "abc"] == told[name]["layouts"]
