"""On several nodes, predictions are of the program that a run executes there."""

import json
from dataclasses import replace

import pytest

from drbench.launch.cases.case import Case, blocks_in_place
from drbench.launch.cases.machine_models import find_machine
from drbench.launch.models.predict import predict, programs_of
from drbench.launch.sweeps.dry_run import plan_needs
from drbench.launch.tune.rank import tune
from drbench.launch.tune.request import TuneRequest
from drbench.model.bounds import carried_by_links
from drbench.plan.schedule import pool_bytes

LUMIC = find_machine("lumic")  # eight ranks a node
READS = Case(512, 512, 512, "row", "row", "row", options={"stationary": "C"})
SUMS = Case(512, 512, 512, "block", "block", "block", options={"stationary": "B"})


def resolved(case, ranks):
    return programs_of(case, LUMIC, ranks).resolved


@pytest.mark.parametrize("transport", ["auto", "rma"])
def test_ranks_of_several_nodes_fetch_rows_and_push_sums(transport):
    reads, sums = (replace(case, transport=transport) for case in (READS, SUMS))
    assert resolved(reads, 16)["fetch"] == "rows" and resolved(sums, 16)["sums"] == "push"
    assert "fetch" not in resolved(reads, 8) and "sums" not in resolved(sums, 8)
    far, near = (predict(sums, LUMIC, ranks) for ranks in (16, 8))
    assert far.put_bytes > 0 == far.accumulate_bytes
    assert near.accumulate_bytes > 0 == near.put_bytes


def test_words_with_flags_are_twice_the_bytes_only_where_they_are_sent():
    """Cores send a message to a rank whose memory they do not share, with either protocol."""
    case = Case(4096, 512, 4096, algorithm="ag2", transport="rma", options={"per_node": 4})
    times_s, rates = [], set()
    for protocol in ("ll", "signal"):
        of = replace(case, options=case.options | {"protocol": protocol})
        times_s.append(predict(of, LUMIC, 8).best_s)
        gpus = programs_of(replace(of, transport="auto"), find_machine("h800"), 8)
        (first, *_) = carried_by_links(gpus.traces, gpus.machine)
        rates.add(round(first.nbytes / first.seconds))
    assert times_s[0] == times_s[1]
    assert len(rates) == 1


@pytest.mark.parametrize("asked", [{"chunk": 64}, {"fetch": "tile"}, {"sums": "accumulate"}])
def test_a_given_option_is_used_and_the_others_keep_their_defaults(asked):
    for case in (READS, SUMS):
        usual, found = resolved(case, 16), resolved(replace(case, options=case.options | asked), 16)
        assert {name: found.get(name, "accumulate") for name in asked} == asked
        if "sums" not in asked:
            assert found.get("sums") == usual.get("sums")


def test_tune_ranks_the_programs_that_its_cases_run():
    """Each place, simulated separately, has the time in the ranking; rows are fetched."""
    case = Case(512, 768, 640, "row", "row")
    request = TuneRequest(case, 16, ("universal",), replication="none", top=3, effort=5.0)
    ranking = tune(request, LUMIC).ranking
    assert len(ranking) == 3
    assert any("fetch=rows" in (place.record.options or "") for place in ranking)
    for place in ranking:
        again = predict(place.case, LUMIC, 16)
        assert again.best_s == pytest.approx(place.record.best_s)
        assert again.options == place.record.options
        assert place.bound.seconds <= again.best_s


@pytest.mark.parametrize("ranks", [8, 16])
def test_the_program_planned_for_a_machine_is_the_one_predicted_on_it(run_cli, ranks):
    words = "plan -m 512 -n 512 -k 512 --preset block --stationary B --rank all --json".split()
    planned = json.loads(run_cli(*words, "-p", ranks, "--machine", "lumic").stdout)
    found = predict(SUMS, LUMIC, ranks)
    assert planned["get_bytes"] == found.get_bytes + (found.direct_bytes or 0)
    for name in ("steps", "put_bytes", "accumulate_bytes"):
        assert planned[name] == getattr(found, name)
    assert ("signals" in planned) == (ranks == 16)


def test_a_dry_run_counts_the_memory_of_the_program_that_runs_on_its_nodes():
    node_of = [rank // 8 * 8 for rank in range(16)]
    made = programs_of(SUMS, LUMIC, 16)
    assert made.resolved["sums"] == "push"
    ahead, expected = SUMS.ahead(made.resolved), 0
    for rank, trace in enumerate(made.traces):
        expected += sum(made.problem.tile_bytes(rank).values())
        expected += pool_bytes(trace, ahead, blocks_in_place(SUMS, node_of, rank))
    assert plan_needs(SUMS, 16, node_of).total_bytes == expected != plan_needs(SUMS, 16).total_bytes
