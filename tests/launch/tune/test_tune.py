"""Choosing by the model: the ranking is that of simulating everything, within the memory, and the
chosen cases are measured."""

import itertools
import json
import re
from collections import Counter
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from time import process_time

import pytest
from starting import within

from drbench.clock import Clock
from drbench.errors import OutOfMemory, UnsupportedError, UsageError
from drbench.launch.cases.case import Case, bind_case
from drbench.launch.cases.machine_models import find_machine
from drbench.launch.models.predict import predict_with
from drbench.launch.sweeps.rounds import round_of
from drbench.launch.tune.costs import EVEN
from drbench.launch.tune.counts import count_case
from drbench.launch.tune.enumerate import (
    list_layouts,
    list_movements,
    list_others,
    on_triple,
    replicated,
    with_copies,
)
from drbench.launch.tune.rank import tune
from drbench.launch.tune.request import TuneRequest
from drbench.model.machine import Machine
from drbench.partitions import flows, partition

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


def candidates(request, movements):
    """Every case to consider, one by one."""
    named = list_layouts(request)
    for triple in itertools.product(*named.values()) if named else ():
        if replicated(request, [factor for _, factor in triple]):
            for stationary, movement in itertools.product("CBA", movements):
                yield on_triple(request.case, [text for text, _ in triple], stationary, movement)
    yield from list_others(request, movements)


def everything(request, machine, tiles=()):
    """Seconds of every candidate that is ok, simulated one by one: the best of its look-aheads, and
    of pushed partial sums with these communication tiles."""
    for case in candidates(request, list_movements(True, "auto", "none")):
        try:
            case, algorithm, problem, options = with_copies(case, request.ranks)
            pushes = algorithm.resolve(problem, False, **options).get("sums")
        except UnsupportedError:
            continue
        cut = [case]
        if pushes:
            pushed = case.options | {"sums": pushes}
            cut = [replace(case, options=pushed | tile) for tile in ({}, *tiles)]
        alike = pushes or case.algorithm in OVERLAPPED
        found = [
            predict_with(replace(each, prefetch=ahead), machine, request.ranks, pool=True)[0]
            for each, ahead in itertools.product(cut, (None, 1 if alike else "all"))
        ]
        if times := [record.best_s for record in found if record.status == "ok"]:
            yield min(times)


OVERLAPPED = ("ag_gemm", "gemm_rs", "ag2", "rs2", "te_chunks")
OTHERS = ("universal", "summa", "collective", "cannon")
FREE = replace(SMALL, algorithms=OTHERS, case=replace(BASE, b="row"))


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(FREE, marks=pytest.mark.thorough),
        replace(FREE, replication="none"),
        replace(FREE, case=replace(BASE, a="column", c="block")),
        replace(SMALL, case=Case(7, 300, 33), algorithms=("wang", "meshslice")),
        replace(SMALL, case=Case(1024, 40, 48), algorithms=OVERLAPPED, top=200),
    ],
)
def test_the_ranking_is_that_of_simulating_every_candidate(request_):
    found = tune(request_, DEVICE)
    times = [place.record.best_s for place in found.ranking]
    every = sorted(set(everything(request_, DEVICE)))
    assert times == sorted(times) and times[0] == every[0]
    if request_.algorithms == OVERLAPPED:  # each program has one place, with its best look-ahead
        assert {place.case.algorithm for place in found.ranking} > {"ag_gemm", "gemm_rs"}
        programs = {repr(replace(place.case, prefetch=None)) for place in found.ranking}
        assert len(programs) == len(found.ranking)
        assert set(times) <= set(every)
    else:
        assert set(times) == set(every[: len(set(times))])
    for place in found.ranking:
        assert max(place.bound) <= place.record.best_s * (1 + 1e-9)


def test_an_effort_limits_the_time_and_what_was_not_searched_is_reported(run_cli):
    """Four nodes of eight: the answer is not called the fastest. Before any bound is computed the
    gap is unknown: null, which is JSON, not Infinity."""
    asked = "tune -m 8Ki -n 18Ki -k 7Ki -p 32 --machine dgxh100 --effort 0.1".split()
    assert "effort exhausted, so others may be better" in run_cli(*asked).stdout.splitlines()[0]
    refuse = lambda name: pytest.fail(f"{name} is not JSON")
    json.loads(run_cli(*asked, "--json").stdout, parse_constant=refuse)
    start = process_time()
    request = TuneRequest(Case(8192, 18432, 7168), 32, replication="none", effort=0.5)
    found = tune(request, find_machine("dgxh100"))
    assert found.left and found.gap > 0 and within(process_time() - start, 3.0)
    whole = "tune -m 64 -n 64 -k 64 -p 2 --machine h100x8 --effort 0 --only collective,wang"
    assert run_cli(*whole.split()).stdout.startswith("Best: ")


#: Of fused overlap: gathers need A by rows, reductions A by columns.
AG, RS = ("row", "column", "column"), ("column", "row", "row")


@pytest.mark.parametrize("machine", [None, DEVICE])
@pytest.mark.parametrize("today, fits", [(AG, {"ag_gemm", "ag2"}), (RS, {"gemm_rs", "rs2"})])
def test_programs_of_fused_overlap_are_offered_where_their_layouts_fit(today, fits, machine):
    """They are ranked on their own layouts, and on no others."""
    case, names = Case(1024, 40, 48), ("ag_gemm", "gemm_rs", "gemm_ar", "ag2", "rs2")
    request = TuneRequest(replace(case, **dict(zip("abc", today))), 4, names, top=100)
    found = tune(request, machine)
    offered = {place.case.algorithm for place in found.ranking}
    # by bytes they are the same: that without two levels of ranks is kept
    assert offered == (fits if machine else fits - {"ag2", "rs2"})
    assert found.judged < found.tried - found.refused  # tiles above a rank's rows are one program
    tiles = {place.case.options["tile"] for place in found.ranking}
    assert 128 in tiles and len(tiles) == 2
    with pytest.raises(UnsupportedError, match="supports these partitions"):
        tune(replace(request, case=replace(request.case, a="block")), machine)


def test_nodes_of_the_machine_decide_the_ranks_of_a_node():
    """Two nodes of eight: data from another node is forwarded inside."""
    case = Case(4096, 12288, 4096, *AG, dtype="bfloat16")
    found = tune(TuneRequest(case, 16, ("ag_gemm", "ag2"), top=24), find_machine("h800"))
    best = found.ranking[0]
    assert best.case.algorithm == "ag2" and best.case.options["per_node"] in (4, 8)
    assert best.bound.links_s <= best.record.best_s
    fewer = [each for each in found.ranking if each.case.options.get("per_node", 1) < 4]
    assert fewer and min(each.record.best_s for each in fewer) > 1.5 * best.record.best_s


#: Slow links, and adds ten times as slow as copies, which slow GEMMs too.
SUMS = replace(
    DEVICE,
    links=(replace(DEVICE.links[0], bandwidth_bytes_per_s=1e7),),
    accumulate_efficiency=0.1,
    accumulate_slowdown=1.0,
)
TILES = [{"chunk": tile} for tile in (256, 1024, 4096)]


@pytest.mark.parametrize("texts", [("column", "row", "row"), ("block",) * 3])
def test_pushed_partial_sums_are_chosen_where_they_dominate_with_their_best_tile(texts):
    """C is far smaller than A: its terms move, not A."""
    request = TuneRequest(Case(2048, 64, 512, *texts), 4, ("universal",), top=2, refine=2)
    (best, second) = tune(request, SUMS).ranking
    assert best.case.options["sums"] == "push" and best.record.put_bytes > 0
    every = sorted(set(everything(request, SUMS, TILES)))
    assert best.record.best_s == every[0]
    assert second.record.best_s <= every[1]  # lowered, too
    for place in (best, second):
        assert max(place.bound) <= place.record.best_s * (1 + 1e-9)
    added = best.case.options | {"sums": "accumulate"}
    added.pop("chunk", None)
    without, _ = predict_with(replace(best.case, options=added, prefetch=None), SUMS, 4)
    assert without.accumulate_bytes > 0 and best.record.best_s < 0.5 * without.best_s


@pytest.mark.parametrize("best", ["all", 1])
def test_the_best_look_ahead_of_a_program_is_chosen(best, monkeypatch):
    """The fastest of all that its algorithm offers; a given look-ahead is kept."""

    def slower(case, machine, ranks, **more):
        record, found = predict_with(case, machine, ranks, **more)
        return replace(
            record, best_s=record.best_s * (1 + (case.ahead(case.options) != best))
        ), found

    monkeypatch.setattr("drbench.launch.tune.costs.predict_with", slower)
    request = TuneRequest(Case(512, 40, 48, *AG), 4, ("ag_gemm",), top=5)
    given = replace(request, case=replace(request.case, prefetch=0))
    for asked, expected in ((request, best), (given, 0)):
        cases = [place.case for place in tune(asked, DEVICE).ranking]
        assert {case.ahead(case.options) for case in cases} == {expected}


def test_memory_of_programs_with_signals_counts_their_inbox():
    """Pushed values need slots: three quarters of A, in addition to the tiles."""
    case = Case(1024, 40, 48, *AG, algorithm="ag_gemm", options={"variant": "push"})
    record, _ = predict_with(case, DEVICE, 4, pool=True)
    assert record.pool_bytes >= 3 * 256 * 48 * 4
    slots = record.pool_bytes
    small = replace(DEVICE, memory_bytes=4 * (256 * 48 + 48 * 10 + 1024 * 10) + slots - 64)
    assert predict_with(case, small, 4)[0].status == "out_of_memory"


def test_nothing_in_the_ranking_needs_more_than_the_memory():
    """All tiles once are 38 KiB a rank... with buffers more: a budget cuts off replication."""
    asked = replace(SMALL, algorithms=("universal",), case=replace(BASE, b="block", c="block"))
    free, tight = tune(asked, DEVICE), tune(replace(asked, memory=60_000), DEVICE)
    most = [max(place.memory for place in found.ranking) for found in (free, tight)]
    assert most[0] > 60_000 >= most[1] and tight.too_large
    assert tight.ranking[0].record.best_s >= free.ranking[0].record.best_s
    # the tiles alone are too large in 9 candidates, with buffers in 44 more
    tighter = tune(replace(asked, memory=42_000), DEVICE)
    assert (tighter.tried, tighter.too_large, tighter.judged) == (63, 53, 4)
    with pytest.raises(OutOfMemory, match="none of .* candidates fits 1000 B per rank"):
        tune(replace(asked, memory=1000), DEVICE)


def test_fixed_layouts_stay_and_impossible_requests_are_refused():
    fixed = replace(SMALL, case=replace(BASE, a="row", b="row/c2"))
    found = tune(replace(fixed, algorithms=("universal", "summa")), DEVICE)
    assert {(place.case.a, place.case.b) for place in found.ranking} == {("row", "row/c2")}
    with pytest.raises(UnsupportedError, match="none of .* supports these partitions"):
        tune(replace(fixed, algorithms=("cannon",)), DEVICE)
    with pytest.raises(UsageError, match="max_gemms"):  # its bounds would not be bounds
        TuneRequest.of(replace(BASE, max_gemms=2), 4)


TUNE = "tune -m 256 -n 512 -k 128 -p 2 --transport rma --replication none --machine".split()
TUNE.append(str(CALIBRATED))


def test_the_first_places_are_run_and_shown_next_to_the_predictions(run_cli, monkeypatch):
    """Made-up rows replace the ranks: twice as slow as predicted, slower in every round, and the
    second place slower again by half."""
    ran = []

    def measure(job):
        name, ranks, case = job[:3]
        record, _ = predict_with(case, find_machine(str(CALIBRATED)), ranks)
        ran.append(name.partition(" | ")[2])
        twice = 2 * record.best_s * (1.5 if len(ran) > 1 and ran[-1] == ran[1] else 1)
        twice *= 1 + 0.001 * round_of(name)
        times = {"best_s": twice, "median_s": twice, "samples_s": [twice]}
        return replace(record, mode="measured", **times)

    monkeypatch.setattr(
        "drbench.launch.sweeps.experiment.supervised", lambda *_: nullcontext(measure)
    )
    places = json.loads(run_cli(*TUNE, "--measure", 3, "--json").stdout)["ranking"]
    assert len(ran) == 3 * 6 and len({*ran}) == 3
    assert [place["place"] for place in places] == list(range(1, len(places) + 1))
    first = places[0]["record"]["best_s"]
    for place, slower in zip(places, (1, 1.5, 1)):
        predicted, to_best = place["record"]["best_s"], place["measured_to_best"]
        assert place["measured"]["best_s"] == pytest.approx(2 * slower * predicted)
        if place is not places[0]:
            ratios = [to_best[name] for name in ("ratio", "ratio_low", "ratio_high")]
            assert ratios == pytest.approx([slower * predicted / first] * 3)
        assert slower == 1 or to_best["state"] == "slower"
    assert places[0]["measured_to_best"]["state"] == "fastest"
    shown = run_cli(*TUNE, "--measure", 2, "--budget", 7).stdout
    assert "Run the best: drbench run -p 2" in shown and "--budget" not in shown
    assert "Measured here: tied: " in shown


def test_variants_that_may_be_as_fast_are_one_row_and_top_limits_the_rows(run_cli):
    asked = "tune -m 1024 -n 512 -k 512 -p 4 --only ag_gemm --machine h100x8 --top 6".split()
    found = run_cli(*asked, "--json").json()
    near = {1, *found["within_interval"]}
    text = run_cli(*asked).stdout
    shown = [int(place) for place in re.findall(r"^ *(\d+) +(?:= )?[\d.]+ .s ", text, re.MULTILINE)]
    assert len(found["ranking"]) == 6
    assert shown == [*range(1, 8 - len(near))]
    assert f", {len(near) - 1} more" in text


def by_hand(case, ranks):
    """(uneven, bytes of the busiest rank, bytes of all, transfers) of a case, step by step over all
    ranks."""
    case, algorithm, problem, options = with_copies(case, ranks)
    resolved, itemsize = algorithm.resolve(problem, False, **options), problem.itemsize
    into, out, flops, transfers = Counter(), Counter(), Counter(), 0
    for rank in range(ranks):
        for step in algorithm.trace(problem, rank, **resolved).steps:
            flops[rank] += 2 * getattr(step, "products", 0)
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
    for case in candidates(request, list_movements(False)):
        with suppress(UnsupportedError):
            keys.append(by_hand(case, request.ranks))
    found = tune(request)
    described = [by_hand(place.case, request.ranks) for place in found.ranking]
    assert described == sorted(described) and described[0] == min(keys) and described[0][0] is False
    assert set(described) <= set(sorted(set(keys))[: len(set(described))])
    for place, (_, busiest, moved, _) in zip(found.ranking, described):
        loads = place.counts.loads
        assert (loads.busiest_bytes, loads.moved_bytes) == (busiest, moved)
        assert place.record is None and place.moving == (0, 0, None)
    assert {key[0] for key in keys} == {True, False}  # 10 rows are 3, 3, 3 and 1


@pytest.mark.parametrize("machine", [None, DEVICE])
def test_a_result_with_replicas_is_finished_on_all_of_them(machine):
    """A result on the first replica alone looked cheaper than one on all replicas."""
    request = replace(SMALL, case=replace(BASE, c="R"), replication="none")
    places = tune(request, machine).ranking
    alone = {place.case.algorithm for place in places} - {"gemm_ar"}  # which can nothing else
    assert alone and {"gemm_ar"} == {
        place.case.algorithm for place in places if not place.case.options.get("replicate_result")
    }
    for place in (place for place in places if place.case.algorithm != "gemm_ar"):
        partial = replace(place.case, options={**place.case.options, "replicate_result": False})
        c_bytes = 4 * BASE.m * BASE.n
        more = (
            count_case(place.case, 4).loads.moved_bytes - count_case(partial, 4).loads.moved_bytes
        )
        assert more == 3 * c_bytes


@pytest.mark.parametrize("machine", [None, DEVICE])
def test_leaving_the_layout_of_today_costs_its_redistribution(machine):
    """Elements that a rank lacks, one by one."""
    today, ranks = ("row", "tiles:25x36@2x2", "block"), 4
    request = replace(SMALL, today=today, algorithms=("universal", "summa"), top=3)
    if machine is not None:  # which tries them one by one
        request = replace(request, replication="none", case=replace(BASE, a="column"))
    ranking = tune(request, machine).ranking
    for place in ranking:
        _, problem, _ = bind_case(place.case, ranks)
        expected = 0
        for operand, text in zip(problem.operands, today):
            held = partition(text, operand.partition.shape, ranks)
            ends = (operand.partition, held) if operand.name == "C" else (held, operand.partition)
            expected += sum(count for _, _, count in flows(*ends))
        assert place.moving.moved_bytes == 4 * expected
        assert (place.moving.seconds is None) is (machine is None)


@pytest.mark.parametrize("command", ["simulate", "tune"])
@pytest.mark.parametrize("how, name", [("float8", "float8"), ("float32 -o compute=tf32", "tf32")])
def test_a_type_is_not_predicted_with_another_types_peak(run_cli, command, how, name):
    words = f"{command} -m 256 -n 512 -k 128 -p 2 --machine tpuv4-2x2 --dtype {how}"
    ended = run_cli(*words.split())
    described = " ".join((ended.stdout + ended.stderr).split())
    assert ended.returncode == 3 and "TFLOP" not in described
    assert f"[model.dtypes.{name}]" in described and "for bfloat16" in described


def test_layers_of_megatron_are_contenders_where_the_layouts_allow_them(run_cli):
    """An MLP's first GEMM gathers tokens, its second scatters partial sums: the bytes of both
    follow from the shapes."""
    asked = "tune -m 1024 -n 4096 -k 512 -p 4 --only dtensor_mm --machine h100x8 --json".split()
    by = {place["record"]["b"]: place for place in run_cli(*asked).json()["ranking"]}
    assert set(by) == {"row", "column"}
    # three others' quarters of A on each of four ranks, in bytes of float32
    assert by["column"]["moved_bytes"] == 3 * 1024 * 512 * 4
    given = run_cli(*asked, *"--c row --b row --fix bc".split()).json()["ranking"]
    assert {place["record"]["b"] for place in given} == {"row"}


def test_a_search_without_a_limit_is_the_same_at_any_speed(monkeypatch):
    """Programs that take as long have one place, whichever is traced faster."""
    case = Case(1024, 1024, 1024, dtype="bfloat16:float32", prefetch=1)
    names = "gemm_rs", "te_chunks", "universal"
    request = TuneRequest.of(case, 2, effort=0, algorithms=names, replication="none")
    rankings = []
    for tick_s in (0.0, 2e-3):
        ticks = itertools.count()
        monkeypatch.setattr(Clock, "cpu", lambda tick_s=tick_s, ticks=ticks: next(ticks) * tick_s)
        rankings.append([place.case for place in tune(request, find_machine("h100x8")).ranking])
    assert rankings[0] == rankings[1]
