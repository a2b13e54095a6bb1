"""Choosing by the model: the ranking is that of simulating everything, within the memory, and what
is measured is what was chosen."""

import json
from dataclasses import replace

import pytest

from drbench.errors import OutOfMemory, UnsupportedError, UsageError
from drbench.model.gemm import Compute
from drbench.model.machine import Collective, Link, Machine
from launch.cases.case import Case
from launch.cases.machine_models import find_machine
from launch.commands.cli import main
from launch.models.predict import predict_with
from launch.models.tune import TuneRequest, candidates, choose_stationary, tune

DEVICE = Machine.from_dict(
    {
        "name": "device",
        "memory_bytes": 1e9,
        "compute": {
            "peak_flops": 1e9,
            "launch_s": 1e-6,
            "memory_bytes_per_s": 1e9,
            "tiles": [[16, 16]],
            "units": 4,
        },
        "links": {"wire": {"bandwidth_bytes_per_s": 2e8, "latency_s": 1e-6}},
        "collectives": {"allgather": {"launch_s": 1e-5}, "shift": {"launch_s": 2e-5}},
    }
)
BASE = Case(96, 128, 64)
SMALL = TuneRequest(BASE, 4, replication="paired", top=5)


def everything(request, machine):
    """(seconds, bytes) of every candidate that is ok, simulated one by one."""
    for case in candidates(request, ("auto", "none")):
        record, _ = predict_with(case, machine, request.ranks, pool=True)
        if record.status == "ok":
            yield record.best_s


@pytest.mark.parametrize(
    "request_",
    [
        SMALL,
        replace(SMALL, case=replace(BASE, a="column", c="block")),
        replace(SMALL, case=Case(7, 300, 33), algorithms=("wang", "meshslice")),
    ],
)
def test_the_ranking_is_that_of_simulating_every_candidate(request_):
    found = tune(request_, DEVICE)
    times = [place.record.best_s for place in found.ranking]
    assert times == sorted(times) and times[0] == min(everything(request_, DEVICE))
    assert set(times) == set(sorted(set(everything(request_, DEVICE)))[: len(set(times))])


def _most(found):
    return max(place.memory for place in found.ranking)


def test_nothing_in_the_ranking_needs_more_than_the_memory():
    """All tiles once are 38 KiB a rank... with buffers more: a budget cuts off replication."""
    free, tight = tune(SMALL, DEVICE), tune(replace(SMALL, memory=60_000), DEVICE)
    assert _most(free) > 60_000 >= _most(tight) and tight.too_large
    assert tight.ranking[0].record.best_s >= free.ranking[0].record.best_s
    with pytest.raises(OutOfMemory, match="none of .* candidates fits 1000 bytes"):
        tune(replace(SMALL, memory=1000), DEVICE)


def test_what_is_fixed_stays_and_what_nothing_fits_is_refused():
    fixed = replace(SMALL, case=replace(BASE, b="row/c2"))
    found = tune(fixed, DEVICE)
    assert {place.case.b for place in found.ranking} == {"row/c2"}
    with pytest.raises(UnsupportedError, match="none of .* takes these partitions"):
        tune(replace(fixed, algorithms=("cannon",)), DEVICE)
    with pytest.raises(UsageError, match="no algorithm 'canon'"):
        tune(replace(SMALL, algorithms=("canon",)), DEVICE)


@pytest.mark.parametrize(
    "triple", [("row", "row", "row"), ("column", "row", "row"), ("row", "column", "column")]
)
def test_auto_model_is_the_fastest_of_the_three_data_movements(triple):
    times = {
        s: predict_with(Case(96, 128, 640, *triple, options={"stationary": s}), DEVICE, 4)[0].best_s
        for s in "ABC"
    }
    assert times[choose_stationary(Case(96, 128, 640, *triple), DEVICE, 4)] == min(times.values())


def test_auto_model_works_in_plan_and_simulate(capsys):
    words = [
        "-m",
        "1024",
        "-n",
        "4096",
        "-k",
        "1024",
        "--preset",
        "row",
        "--stationary",
        "auto:model",
        "--json",
        "--machine",
        "pvc12",
    ]
    assert main(["simulate", *words]) == 0 and main(["plan", "-p", "12", *words]) == 0
    first, second = (
        json.loads(line)["stationary"] for line in capsys.readouterr().out.splitlines()
    )
    assert (
        first
        == second
        == choose_stationary(Case(1024, 4096, 1024, "row", "row", "row"), find_machine("pvc12"), 12)
    )


TUNE = [
    "tune",
    "-m",
    "256",
    "-n",
    "512",
    "-k",
    "128",
    "-p",
    "2",
    "--machine",
    "here",
    "--transport",
    "rma",
    "--replication",
    "none",
]


def test_the_first_places_are_run_and_shown_beside_the_predictions(capsys, monkeypatch):
    """Stands in for the ranks: rows as a sweep writes them, twice as slow as predicted."""
    ran = []

    def run_cases(pairs, store, settings, watch):
        for name, case in pairs:
            record, _ = predict_with(case, find_machine("here"), settings.ranks)
            ran.append(case)
            twice = 2 * record.best_s
            store.add(replace(record, case=name, best_s=twice, mode="measured"))

    monkeypatch.setattr("launch.sweeps.sweep.run_cases", run_cases)
    assert main([*TUNE, "--measure-top", "3", "--json"]) == 0
    places = json.loads(capsys.readouterr().out)["ranking"]
    assert len(ran) == 3 and [place["place"] for place in places] == list(range(1, len(places) + 1))
    for place in places[:3]:
        assert place["measured"]["best_s"] == pytest.approx(2 * place["record"]["best_s"])
    assert all(place["moved_bytes"] >= 0 and place["exposed_s"] >= 0 for place in places)
    assert main([*TUNE, "--measure-top", "2"]) == 0
    said = capsys.readouterr().out
    assert "median error of the predictions 50.0 %" in said and "1 against 2:" in said


@pytest.mark.parametrize(
    "words, says",
    [
        (["--a", "colum"], "colum"),
        (["--only", "canon"], "no algorithm 'canon'"),
        (["--threads", "1"], "--threads belongs to --measure-top"),
        (["--memory", "1KiB"], "larger --memory"),
        (["--dtype", "bfloat16", "--measure-top", "1"], "machine models only"),
    ],
)
def test_what_makes_no_sense_is_one_line(capsys, words, says):
    assert main([*TUNE, *words]) in (2, 6)
    said = capsys.readouterr()
    assert says in said.err and said.err.count("\n") == 1 and not said.out


def test_collectives_count_in_the_choice():
    """A launch of a second makes the algorithm with fewer of them best."""
    slow = replace(
        DEVICE,
        collectives={
            name: Collective(1.0)
            for name in ("allgather", "reducescatter", "shift", "broadcast", "reduce")
        },
    )
    best = (
        tune(
            TuneRequest(
                Case(64, 64, 64), 4, algorithms=("cannon", "meshslice", "collective"), top=1
            ),
            slow,
        )
        .ranking[0]
        .record
    )
    assert (
        best.algorithm in ("collective", "meshslice")
        and best.slices in (None, 1)
        and best.best_s < 2.1
    )
    assert isinstance(slow.compute, Compute) and isinstance(slow.links[0], Link)
