"""Choosing by the model: the ranking is that of simulating everything, within the memory, and what
is measured is what was chosen."""

import json
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from drbench.errors import OutOfMemory, UnsupportedError, UsageError
from drbench.model.gemm import Compute
from drbench.model.machine import Collective, Link, Machine
from launch.cases.case import Case, bound
from launch.cases.machine_models import find_machine
from launch.commands.cli import main
from launch.models.candidates import TuneRequest, candidates, everywhere, prefetches
from launch.models.counts import counted
from launch.models.predict import predict_with
from launch.models.tune import EVEN, choose_stationary, tune
from launch.sweeps.rounds import turn_of
from partitions import flows, partition

CALIBRATED = Path(__file__).parents[3] / "results/measured/spr-2core/model/rma/here.toml"

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
        try:
            case = everywhere(case, request.ranks)[0]
        except UnsupportedError:
            continue
        for each in prefetches(case):
            record, _ = predict_with(each, machine, request.ranks, pool=True)
            if record.status == "ok":
                yield record.best_s


OVERLAPPED = ("ag_gemm", "gemm_rs", "ag2", "rs2", "te_chunks")
OTHERS = ("universal", "summa", "collective", "cannon")


@pytest.mark.parametrize(
    "request_",
    [
        replace(SMALL, algorithms=OTHERS),
        replace(SMALL, algorithms=OTHERS, case=replace(BASE, a="column", c="block")),
        replace(SMALL, case=Case(7, 300, 33), algorithms=("wang", "meshslice")),
        replace(SMALL, case=Case(1024, 40, 48), algorithms=OVERLAPPED, top=200),
    ],
)
def test_the_ranking_is_that_of_simulating_every_candidate(request_):
    found = tune(request_, DEVICE)
    times = [place.record.best_s for place in found.ranking]
    every = sorted(set(everything(request_, DEVICE)))
    assert times == sorted(times) and times[0] == every[0]
    if request_.algorithms == OVERLAPPED:  # of a program the best look-ahead alone has a place
        assert {place.case.algorithm for place in found.ranking} > {"ag_gemm", "gemm_rs"}
        programs = {repr(replace(place.case, prefetch=None)) for place in found.ranking}
        assert len(programs) == len(found.ranking)
        assert set(times) <= set(every)
    else:
        assert set(times) == set(every[: len(set(times))])
    for place in found.ranking:
        assert max(place.bound) <= place.record.best_s * (1 + 1e-9)


#: Of fused overlap: gathers need A by rows, reductions A by columns.
AG, RS = ("row", "column", "column"), ("column", "row", "row")


@pytest.mark.parametrize("machine", [None, DEVICE])
@pytest.mark.parametrize("today, fits", [(AG, {"ag_gemm", "ag2"}), (RS, {"gemm_rs", "rs2"})])
def test_programs_of_fused_overlap_are_offered_where_their_layouts_fit(today, fits, machine):
    """They stand in the ranking on their own layouts, and on no others."""
    case, names = Case(1024, 40, 48), ("ag_gemm", "gemm_rs", "gemm_ar", "ag2", "rs2")
    request = TuneRequest(replace(case, **dict(zip("abc", today))), 4, names, top=100)
    found = tune(request, machine)
    offered = {place.case.algorithm for place in found.ranking}
    assert offered == fits if machine else offered <= fits  # by bytes they are the same
    assert found.judged < found.tried - found.refused  # tiles above a rank's rows are one program
    tiles = {place.case.options["tile"] for place in found.ranking}
    assert {128, 256} <= tiles
    with pytest.raises(UnsupportedError, match="takes these partitions"):
        tune(replace(request, case=replace(request.case, a="block")), machine)


def test_nodes_of_the_machine_decide_the_ranks_of_a_node():
    """Two nodes of eight: what crosses between them is handed on inside."""
    case = Case(4096, 12288, 4096, *AG, dtype="bfloat16")
    found = tune(TuneRequest(case, 16, ("ag_gemm", "ag2"), top=12), find_machine("h800"))
    best = found.ranking[0]
    assert best.case.algorithm == "ag2" and best.case.options["per_node"] in (4, 8)
    assert best.bound.links_s <= best.record.best_s
    fewer = [each for each in found.ranking if each.case.options.get("per_node", 1) < 4]
    assert fewer and min(each.record.best_s for each in fewer) > 1.5 * best.record.best_s


@pytest.mark.parametrize("best", ["all", 1])
def test_the_look_ahead_that_serves_a_program_best_is_chosen(best, monkeypatch):
    """Of all that its algorithm names, whichever is the fastest; one that is given is kept."""

    def slower(case, machine, ranks, **more):
        record, found = predict_with(case, machine, ranks, **more)
        return replace(record, best_s=record.best_s * (1 + (case.look_ahead != best))), found

    monkeypatch.setattr("launch.models.tune.predict_with", slower)
    request = TuneRequest(Case(512, 40, 48, *AG), 4, ("ag_gemm",), top=5)
    assert {place.case.look_ahead for place in tune(request, DEVICE).ranking} == {best}
    given = replace(request, case=replace(request.case, prefetch=0))
    assert {place.case.look_ahead for place in tune(given, DEVICE).ranking} == {0}


def test_memory_of_programs_with_signals_counts_their_inbox():
    """What is pushed lies in slots: three quarters of A, beside the tiles."""
    case = Case(1024, 40, 48, *AG, algorithm="ag_gemm", options={"variant": "push"})
    record, _ = predict_with(case, DEVICE, 4, pool=True)
    assert record.pool_bytes >= 3 * 256 * 48 * 4
    slots = record.pool_bytes
    small = replace(DEVICE, memory_bytes=4 * (256 * 48 + 48 * 10 + 1024 * 10) + slots - 64)
    assert predict_with(case, small, 4)[0].status == "out_of_memory"


def _most(found):
    return max(place.memory for place in found.ranking)


def test_nothing_in_the_ranking_needs_more_than_the_memory():
    """All tiles once are 38 KiB a rank... with buffers more: a budget cuts off replication."""
    free, tight = tune(SMALL, DEVICE), tune(replace(SMALL, memory=60_000), DEVICE)
    assert _most(free) > 60_000 >= _most(tight) and tight.too_large
    assert tight.ranking[0].record.best_s >= free.ranking[0].record.best_s
    with pytest.raises(OutOfMemory, match="none of .* candidates fits 1000 B a rank"):
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
    str(CALIBRATED),
    "--transport",
    "rma",
    "--replication",
    "none",
]


RATIO = ("ratio", "ratio_low", "ratio_high")


def test_the_first_places_are_run_and_shown_beside_the_predictions(capsys, monkeypatch):
    """Stands in for the ranks: rows as a sweep writes them, twice as slow as predicted; the machine
    is slower in every round, and the second place half as fast again as the first."""
    ran = []

    def run_cases(pairs, store, settings, watch):
        for number, (name, case) in enumerate(pairs):
            record, _ = predict_with(case, find_machine(str(CALIBRATED)), settings.ranks)
            first = ran[0] if ran else case
            ran.append(case)
            twice = 2 * record.best_s * (1.5 if case == ran[min(1, number)] != first else 1)
            twice *= 1 + 0.001 * turn_of(name)
            times = {"best_s": twice, "median_s": twice, "samples_s": [twice]}
            store.add(replace(record, case=name, mode="measured", **times))

    monkeypatch.setattr("launch.sweeps.run_rounds.run_cases", run_cases)
    assert main([*TUNE, "--measure-top", "3", "--json"]) == 0
    places = json.loads(capsys.readouterr().out)["ranking"]
    assert len(ran) == 3 * 6 and {case.iters for case in ran} == {1}
    assert [place["place"] for place in places] == list(range(1, len(places) + 1))
    first = places[0]["record"]["best_s"]
    for place, slower in zip(places, (1, 1.5, 1)):
        measured, to_fastest = place["measured"], place["measured_to_fastest"]
        assert measured["best_s"] == pytest.approx(2 * slower * place["record"]["best_s"])
        assert measured["samples_s"] == sorted(measured["samples_s"])
        ratio = slower * place["record"]["best_s"] / first
        assert [to_fastest[name] for name in RATIO] == pytest.approx([ratio] * 3)
        assert to_fastest["fastest"] is (place is places[0])
    assert all(place["moved_bytes"] >= 0 and place["exposed_s"] >= 0 for place in places)
    assert main([*TUNE, "--measure-top", "2"]) == 0
    said = capsys.readouterr().out
    assert "the pick is the fastest of 2; median error of the predictions 66.7 %" in said
    assert "1 (the" in said and "fastest)" in said and "1 against 2:" in said


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


def by_hand(case, ranks):
    """(uneven, bytes of the busiest rank, bytes of all, transfers) of a case, step by step over all
    ranks."""
    case, algorithm, problem, options = everywhere(case, ranks)
    settled, itemsize = algorithm.settle(problem, False, **options), problem.itemsize
    into, out, flops, transfers = Counter(), Counter(), Counter(), 0
    for rank in range(ranks):
        for step in algorithm.trace(problem, rank, **settled).steps:
            flops[rank] += getattr(step, "flops", 0) or 0
            pushed = type(step).__name__ in ("Accumulate", "Put", "Reduce", "ReduceScatter")
            for other, count in step.moved(rank):
                transfers += 1
                source, target = (rank, other) if pushed else (other, rank)
                out[source] += count * itemsize
                into[target] += count * itemsize
    busiest = max([0, *into.values(), *out.values()])
    uneven = max(flops.values()) > EVEN * problem.flops / ranks
    return uneven, busiest, sum(into.values()), transfers


def test_without_a_machine_the_ranking_is_by_balance_and_bytes_of_all_candidates():
    shared = {"algorithms": ("universal", "cannon", "fsdp"), "replication": "equal"}
    request, keys = replace(SMALL, case=Case(10, 128, 64), **shared), []
    for case in candidates(request):
        with suppress(UnsupportedError):
            keys.append(by_hand(case, request.ranks))
    found = tune(request)
    told = [by_hand(place.case, request.ranks) for place in found.ranking]
    assert told == sorted(told) and told[0] == min(keys) and told[0][0] is False
    assert set(told) <= set(sorted(set(keys))[: len(set(told))])
    for place, (_, busiest, moved, _) in zip(found.ranking, told):
        assert (place.loads.busiest_bytes, place.loads.moved_bytes) == (busiest, moved)
        assert place.record is None and place.moving == (0, 0, None)
    assert {key[0] for key in keys} == {True, False}  # 10 rows are 3, 3, 3 and 1


@pytest.mark.parametrize("machine", [None, DEVICE])
def test_a_result_with_replicas_is_finished_on_all_of_them(machine):
    """It was finished on the first alone, and so looked cheaper than one everywhere."""
    request = replace(SMALL, case=replace(BASE, c="R"), replication="none")
    places = tune(request, machine).ranking
    alone = {place.case.algorithm for place in places} - {"gemm_ar"}  # which can nothing else
    assert alone and {"gemm_ar"} == {
        place.case.algorithm for place in places if not place.case.options.get("replicate_result")
    }
    for place in (place for place in places if place.case.algorithm != "gemm_ar"):
        partial = replace(place.case, options={**place.case.options, "replicate_result": False})
        c_bytes = 4 * BASE.m * BASE.n
        more = counted(place.case, 4).loads.moved_bytes - counted(partial, 4).loads.moved_bytes
        assert more == 3 * c_bytes


@pytest.mark.parametrize("machine", [None, DEVICE])
def test_leaving_the_layout_of_today_is_charged_by_its_bytes(machine):
    """Elements that a rank lacks, one by one; the more products share them, the less they count."""
    today, ranks = ("row", "tiles:5x7@2x2", "block"), 4
    request = replace(SMALL, today=today, algorithms=("universal", "summa"), top=3)
    for place in tune(request, machine).ranking:
        _, problem, _ = bound(place.case, ranks)
        expected = 0
        for operand, text in zip(problem.operands, today):
            held = partition(text, operand.partition.shape, ranks)
            ends = (operand.partition, held) if operand.name == "C" else (held, operand.partition)
            expected += sum(count for _, _, count in flows(*ends))
        assert place.moving.moved_bytes == 4 * expected
        assert (place.moving.seconds is None) is (machine is None)
    dear, shared = (
        tune(replace(request, products=products), machine).ranking[0].moving.moved_bytes
        for products in (1, 1_000_000)
    )
    free = tune(replace(request, today=(None,) * 3), machine).ranking[0]
    assert dear <= shared and free.moving.moved_bytes == 0
    if machine is not None:
        best = tune(request, machine).ranking[0]
        stays = tune(
            replace(request, case=replace(BASE, a="row", b="tiles:5x7@2x2", c="block")), machine
        ).ranking[0]
        assert best.record.best_s + best.moving.seconds <= stays.record.best_s


def test_a_layout_of_today_that_is_none_is_refused():
    with pytest.raises(UsageError, match="the layout of B today"):
        tune(replace(SMALL, today=(None, "colum", None)), DEVICE)


def test_auto_model_without_a_machine_moves_least():
    for triple in (("row",) * 3, ("column", "row", "row"), ("row", "column", "column")):
        case = Case(96, 128, 640, *triple)
        keys = {s: by_hand(replace(case, options={"stationary": s}), 4) for s in "CBA"}
        assert keys[choose_stationary(case, None, 4)] == min(keys.values())


def test_bfloat16_is_not_predicted_with_another_types_peak(say):
    for command in ("simulate", "tune"):
        ended = say(command, *TUNE[1:9], "--machine", "h100x8", "--dtype", "bfloat16")
        told = " ".join((ended.stdout + ended.stderr).split())
        assert ended.returncode == 3 and "TFLOP" not in told
        assert "[model.dtypes.bfloat16]" in told and "for float32" in told


def test_tune_without_a_machine_says_what_it_ranks_by_and_prints_a_command(say):
    words = [*TUNE[:9], "--top", "3"]
    said = say(*words).stdout
    assert "No machine model" in said and "drbench calibrate -p 2 --save mine.toml" in said
    told = say(*words, "--json").json()
    assert told["ranked_by"] == "bytes" and told["machine"] is None
    first = told["ranking"][0]
    assert f"Run the first: {first['command']}\n" in said and "record" not in first
    assert "--csv takes times" in say(*words, "--csv", "x.csv").refusal()
    assert "-p is missing" in say(*words[:7]).refusal()


def test_what_does_not_fit_a_device_names_the_way_out(say):
    """Without replicas a smaller replication factor is none."""
    sizes = ["-m", "1024Ki", "-n", "1024Ki", "-k", "1024Ki", "--machine", "h100x8"]
    for preset, replicas in (("row", False), ("row/c2", True)):
        ended = say("simulate", *sizes, "--preset", preset)
        told = " ".join(ended.stdout.split())
        assert ended.returncode == 6 and "GiB" in told and "Use more ranks" in told
        assert ("replication factor" in told) is replicas and "e+1" not in told


def test_no_calibration_of_another_machine_is_shipped():
    from launch.cases.machine_models import machine_names

    assert "here" not in machine_names()
