"""Bounds of all triples of layouts at once: never above the time of a triple, and with the bytes of
its traces."""

import itertools
import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as at_most
from hypothesis import strategies as st

from drbench.launch.cases.case import Case, bind_case
from drbench.launch.models.predict import predict_with, programs_of, seen_by
from drbench.launch.tune.enumerate import change, list_settings, on_triple, with_copies
from drbench.launch.tune.rank import tune
from drbench.launch.tune.request import TuneRequest
from drbench.launch.tune.triples import bounds_of, rates_of
from drbench.model.gemm import Compute
from drbench.model.machine import Link, Machine, Rate
from drbench.partitions import layouts
from drbench.program.problem import Problem
from drbench.program.steps import Accumulate, Get

FOUR, MIXED = dict.fromkeys("ABC", 4), {"A": 2, "B": 2, "C": 4}
WIRE = Link("wire", 3e6, latency_s=1e-6)
MACHINES = {
    "one class": Machine("toy", Compute(1e9, tiles=((8, 8), (16, 4)), units=3), (WIRE,)),
    "nodes": Machine(
        "toy",
        Compute(1e9, tiles=((8, 8),), units=2, splits=(1, 2), k_ramp=3),
        (replace(WIRE, name="near", bandwidth_bytes_per_s=2e7, within=2), WIRE),
        accumulate_efficiency=0.5,
        fence_s=1e-6,
    ),
    "own links": Machine("toy", Compute(1e9), (replace(WIRE, shared="initiator"),)),
    "pairs": Machine("toy", Compute(1e9), (replace(WIRE, shared="pair"),), copy_streams=2),
    "cores": Machine(
        "toy",
        Compute(1e9, memory_bytes_per_s=1e8, pack_s=(1e-9, 1e-9, 1e-9)),
        (replace(WIRE, get=Rate(1e8)),),
        adds_on_core=True,
    ),
}


def operands(sizes, ranks, named, transpose=""):
    found = {name: [] for name in "ABC"}
    for text in named:
        problem = Problem(*sizes, ranks, text, text, text, transpose=transpose)
        for name in "ABC":
            found[name].append(problem.operand(name))
    return found


@pytest.mark.parametrize("name", MACHINES)
def test_no_program_of_a_triple_is_faster_than_its_bound(name):
    """Any layouts, factors and settings, one machine after another; and bounds are tight enough
    where no offset moves the interval of a replica."""
    draw, tight = random.Random(name), []
    for ranks, sizes, transpose, dtype in (
        (4, (24, 40, 32), "", "float32"),
        (6, (30, 17, 23), "ab", "bfloat16:float32"),
    ):
        machine = replace(MACHINES[name], dtype=dtype.partition(":")[0])
        named = [text for text, _ in layouts(ranks)]
        rates = rates_of(machine, FOUR if dtype == "float32" else MIXED, ranks)
        bounds, *_ = bounds_of(operands(sizes, ranks, named, transpose), sizes, rates)
        for _ in range(24):
            triple = [draw.randrange(len(named)) for _ in "ABC"]
            which = draw.randrange(3)
            base = Case(*sizes, transpose=transpose or None, dtype=dtype)
            way = draw.choice([{"chunk": "auto"}, {"chunk": 5}, {"sums": "push"}])
            if way == {"chunk": 5} and "CBA"[which] != "C":
                way = {"chunk": "none"}
            case = on_triple(base, [named[x] for x in triple], "CBA"[which], way)
            case, *_ = with_copies(case, ranks)
            made = programs_of(case, machine, ranks)
            found = made.simulator.run(draw.choice([1, 2, "all"]))
            least = bounds[(*triple, which)]
            assert 0 < least <= found.time_s * (1 + 1e-9), (case, least, found.time_s)
            still = made.problem.operand("CBA"[which]).partition
            if still.replicas == 1 or still.grid_shape == (1, 1):
                tight.append(least / found.time_s)
    assert np.median(tight) > 0.4


@pytest.mark.parametrize("items", [FOUR, MIXED])
def test_bytes_are_those_of_the_traces(items):
    """Bytes received and sent by the examined ranks, by their own steps and those of others; with
    replicas of the stationary matrix the bytes without an offset of their interval are the
    estimate, and no offset needs fewer than the bound."""
    sizes, ranks = (24, 36, 48), 12
    named = [text for text, _ in layouts(ranks)]
    rates = rates_of(None, items, ranks)
    bounds, guesses, _ = bounds_of(operands(sizes, ranks, named), sizes, rates)
    draw = random.Random(7)
    for _ in range(60):
        triple, which = [draw.randrange(len(named)) for _ in "ABC"], draw.randrange(3)
        offset = draw.choice(["axis", "interval"])
        options = {"stationary": "CBA"[which], "chunk": "none", "offset": offset}
        case = Case(*sizes, *(named[x] for x in triple), options=options)
        algorithm, problem, options = bind_case(case, ranks)
        resolved = algorithm.resolve(problem, False, **options)
        comes, goes = Counter(), Counter()
        for rank in range(ranks):
            seen = set()
            for step in algorithm.trace(problem, rank, **resolved).steps:
                for other, elements in step.moved(rank):
                    if type(step) is Accumulate:
                        source, target = rank, other
                    elif type(step) is Get and step.block.key not in seen:
                        source, target = other, rank
                    else:
                        continue
                    matrix = "C" if type(step) is Accumulate else step.block.matrix
                    nbytes = items[matrix] * elements
                    goes[source] += nbytes
                    comes[target] += nbytes
                if type(step) is Get:
                    seen.add(step.block.key)
        most = max(max(comes[rank], goes[rank]) for rank in rates.links)
        least, likely = (each[(*triple, which)] for each in (bounds, guesses))
        still = problem.operand(resolved["stationary"]).partition
        assert least <= most and (likely == most or offset == "axis")
        if still.replicas == 1 or still.grid_shape == (1, 1):
            assert least == likely == most


NEAR = Link("near", 1.0, within=2)


@pytest.mark.parametrize(
    "links, busy",
    [
        ((Link("near", 1.0),), 48),
        ((Link("near", 1.0, shared="pair"),), 16),
        ((NEAR, Link("far", 1.0)), 32),
        ((NEAR, Link("far", 1.0, through=("near",))), 48),
    ],
)
def test_the_bound_is_that_of_the_busiest_link(links, busy):
    """Each of four ranks fetches three quarters of A, 16 elements each, an element a second on
    each link: its own or that of a pair; on two nodes two quarters through a card, which may use
    the link of the node too."""
    problem = Problem(8, 8, 8, 4, "column", "column", "column")
    one = {name: [problem.operand(name)] for name in "ABC"}
    rates = rates_of(Machine("toy", Compute(1e9), links), dict.fromkeys("ABC", 1), 4)
    assert bounds_of(one, (8, 8, 8), rates)[0][0, 0, 0, 0] == busy


@at_most(max_examples=40)
@given(
    m=st.integers(1, 600),
    n=st.integers(1, 600),
    k=st.integers(1, 400),
    axis=st.sampled_from("mn"),
    data=st.data(),
)
def test_gemms_cut_anyhow_are_no_faster_than_full_tiles(m, n, k, axis, data):
    """As separate GEMMs, and as parts of one kernel."""
    large = Compute(1e9, tiles=((64, 32), (32, 32)), units=5, splits=(1, 2, 4), k_ramp=9, edge=3)
    for compute in (MACHINES["nodes"].compute, large):
        cuts = lambda extent: sorted(data.draw(st.lists(st.integers(0, extent), max_size=3)))
        of = {name: [0, *cuts(extent), extent] for name, extent in zip("mnk", (m, n, k))}
        lengths = {
            name: [b - a for a, b in zip(ends, ends[1:]) if b > a] for name, ends in of.items()
        }
        apart = sum(
            compute.gemm_s(*each) for each in itertools.product(*(lengths[name] for name in "mnk"))
        )
        parts = Counter(itertools.product(lengths["m"], lengths["n"]))
        tiling = compute.tiling(m, n, k, parts=parts)
        tiles = sum(tiling.tiles(*part) * count for part, count in parts.items())
        least = compute.tiles_s(m, n, k, axis)
        assert least <= apart * (1 + 1e-9)
        assert least <= tiles * tiling.tile_s / tiling.units * (1 + 1e-9)


def test_an_effort_ends_the_search_and_reports_what_it_did_not_exclude():
    """The gap holds: no candidate of the whole search is faster than it allows."""
    machine = MACHINES["nodes"]
    whole = TuneRequest(Case(64, 48, 96), 4, ("universal",), replication="none", top=1)
    best = tune(whole, machine)
    assert best.left == 0 and best.gap == 0
    found = tune(replace(whole, effort=0.0), machine)
    first = found.ranking[0].record.best_s
    assert found.left > 0 and found.judged < best.judged
    assert first / (1 + found.gap) <= best.ranking[0].record.best_s <= first
    compute = seen_by(whole.case, machine).compute
    least_s = 2 * 64 * 48 * 96 / (4 * compute.peak_flops * compute.sustained)
    assert found.gap <= first / least_s - 1 + 1e-9  # GEMMs alone take as long
    assert found.tried < best.tried  # tiles are cut as a refinement only


@pytest.mark.parametrize(
    "factors, fits", [("none", {1}), ("equal", {1, 2, 4}), ("paired", {1, 2, 4})]
)
def test_replication_factors_vary_as_requested(factors, fits):
    request = TuneRequest(
        Case(64, 64, 64), 4, ("universal",), replication=factors, top=200, effort=0.0
    )
    for place in tune(request, None).ranking:
        _, problem, _ = bind_case(place.case, 4)
        of_a, of_b, of_c = (operand.partition.replicas for operand in problem.operands)
        assert {of_a, of_b, of_c} <= fits
        assert of_a == of_b and (factors == "paired" or of_b == of_c)


def test_the_first_places_are_refined_to_the_fastest_of_their_settings():
    """No setting of a place is faster than the refined one, and some place gains."""
    gains = []
    for sizes in ((256, 16, 2048), (64, 64, 2048), (512, 512, 64)):
        machine = MACHINES["nodes"]
        case = Case(*sizes, "block", "block", "block")
        request = TuneRequest(case, 4, ("universal",), top=2)
        plain, found = tune(request, machine), tune(replace(request, refine=2), machine)
        before, after = plain.ranking[0], found.ranking[0]
        again, _ = predict_with(after.case, machine, 4)
        assert again.best_s == after.record.best_s <= before.record.best_s
        settings = list_settings(before.case, before.record.chunk).items()
        for kind, value in [(kind, value) for kind, values in settings for value in values]:
            if value == "exhaustive":
                continue
            record, _ = predict_with(change(before.case, kind, value), machine, 4)
            assert record.status == "unsupported" or record.best_s >= after.record.best_s
        gains += [before.record.best_s / after.record.best_s]
    assert max(gains) > 1.01, gains
