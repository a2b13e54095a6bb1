"""Ranks that stand for others in one-sided programs: the same times, bytes and bounds as all of
them, and nobody stands for a rank that does something else."""

import random
from collections import Counter
from dataclasses import replace

import pytest
from any_machines import any_machine, with_lanes

from algorithms import get_algorithm
from drbench.common import PHASES
from drbench.model.bounds import bound_of
from drbench.model.folding.alike import Alike, fold
from drbench.model.gemm import Compute
from drbench.model.links import ARBITRATIONS
from drbench.model.machine import Link, Machine
from drbench.model.native import loop
from drbench.model.simulate import simulate
from drbench.program.problem import Problem
from drbench.program.steps import Accumulate, Block, Gemm, Get
from drbench.program.trace import trace
from launch.cases.case import Case
from launch.cases.machine_models import find_machine
from launch.models import predict as predictions
from launch.models.candidates import TuneRequest
from launch.models.predict import predict, programs_of
from launch.models.tune import tune
from partitions import layouts

UNIVERSAL = get_algorithm("universal")
WAITS = [phase for phase in PHASES if phase != "gemm"]


def any_program(seed):
    """(problem, settled options, machine, look-ahead) with sizes that most grids divide; layouts
    with any replication, any option, any way in which machines differ."""
    rng = random.Random(seed)
    p = rng.choice([2, 4, 4, 6, 8, 8, 12, 16])
    texts = [text for text, _ in layouts(p)]
    m, n, k = (p * rng.choice([1, 1, 2]) for _ in "mnk")
    options = {
        "stationary": rng.choice("ABC"),
        "chunk": rng.choice(["auto", "none", 2, 3]),
        "replicate_result": rng.random() < 0.5,
    }
    kind = rng.random()
    if kind < 0.15:
        options |= {"signals": "always", "chunk": "auto"}
    elif kind < 0.2:
        options |= {"schedule": "greedy"}
    elif kind < 0.3:
        options |= {"fetch": rng.choice(["tile", "rows"])}
    elif kind < 0.35:
        options |= {"order": "cheapest"}
    elif kind < 0.4:
        options |= {"reduce": "push"}
    problem = Problem(
        m + (rng.random() < 0.1),
        n,
        k,
        p,
        *(rng.choice(texts) for _ in "ABC"),
        transpose=rng.choice(["", "", "", "a", "b", "ab"]),
        updates=rng.random() < 0.2,
    )
    return problem, UNIVERSAL.settle(problem, False, **options), *_machine(rng, p)


def _machine(rng, p):
    some = lambda *values: rng.choice(values)
    made = some(any_machine, with_lanes)(
        rng.randrange(10**9), arbitration=some("fair", "fair", "fair", "fifo")
    )
    grids = [(rows, p // rows) for rows in range(1, p + 1) if p % rows == 0]
    machine = replace(
        made,
        memory_shared=rng.random() < 0.3,
        copy_engines=some(0, 0, 1, 2),
        owner_slowdown=some(0, 0, 0.3),
        transfer_slowdown=some(0, 0, 0.1),
        accumulate_slowdown=some(0, 0, 0.2),
        step_s=some(0, 0, 0, 0.05),
        torus=some(None, None, None, some(*grids)),
    )
    return machine, some(0, 1, 2, "all")


def of_program(problem, settled, machine):
    """What is folded, if it is, and the traces that are left; what traces one rank."""
    alike = UNIVERSAL.alike(problem, **settled)
    traced = lambda rank: UNIVERSAL.trace(problem, rank, **settled)
    return alike and fold(alike, traced, machine), traced


def nudged(machine):
    """The same machine with links that are a rounding error faster."""
    links = (
        replace(each, bandwidth_bytes_per_s=each.bandwidth_bytes_per_s * (1 + at * 1e-14))
        for at, each in enumerate(machine.links, 1)
    )
    return replace(machine, links=tuple(links))


def compare(seed, said):
    """Folded and not; ``said`` counts what there was."""
    problem, settled, machine, depth = any_program(seed)
    found, traced = of_program(problem, settled, machine)
    if not found:
        said["refused"] += 1
        return
    folding, some = found
    everyone = [traced(rank) for rank in range(problem.nprocs)]
    all_of_them = simulate(everyone, machine, prefetch=depth)
    few = simulate(some, machine, prefetch=depth, folding=folding)
    what = f"seed {seed}: {problem.texts}, {settled}, {machine.arbitration}"
    assert few.counters == all_of_them.counters, what
    assert sum(folding.counts) == problem.nprocs and 2 * len(some) <= problem.nprocs
    for one, other in zip(bound_of(everyone, machine), bound_of(some, machine, folding.cost)):
        assert other == pytest.approx(one, rel=1e-9), what
    said[machine.arbitration, bool(sum(few.counters.values())), len(some) > 1] += 1
    if abs(few.time_s / all_of_them.time_s - 1) > 1e-9:
        # ranks that do the same fell out of step by rounding: then the least change is as much
        said["unsteady"] += 1
        other = simulate(everyone, nudged(machine), prefetch=depth)
        assert abs(other.time_s / all_of_them.time_s - 1) > 1e-9, what
        return
    # what a wait ended with is a matter of order, where two things end at one time
    two = few, all_of_them
    phases = [(each.phases["gemm"], sum(map(each.phases.get, WAITS))) for each in two]
    assert phases[0] == pytest.approx(phases[1], rel=1e-9, abs=1e-9 * few.time_s), what


@pytest.mark.parametrize("part", range(4))
def test_folded_simulations_equal_those_of_all_ranks(part):
    said = Counter()
    for seed in range(150 * part, 150 * part + 150):
        compare(seed, said)
    assert not said["unsteady"] and said["refused"] > 80
    assert said["fair", True, True] > 2 and said["fair", True, False] + said["fifo", False, False]


@pytest.mark.thorough
@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", range(10))
def test_folded_simulations_equal_those_of_all_ranks_twenty_thousand_times(part):
    said = Counter()
    for seed in range(1000 + 2000 * part, 3000 + 2000 * part):
        compare(seed, said)
    print(dict(said))
    assert said["unsteady"] <= 5


def shape(trace):
    """What of a trace does not depend on whom the rank deals with."""
    return [
        (
            type(step),
            step.shape,
            step.beta,
            step.uses,
            tuple(value.index for value in step.inputs),
            step.block and (step.block.matrix, step.block.shape, step.block.ld),
            bool(step.moved(trace.rank)),
        )
        for step in trace.steps
    ]


@pytest.mark.parametrize("part", range(4))
def test_ranks_of_one_kind_have_the_same_program_and_deal_with_whom_is_said(part):
    """Against the traces of all ranks: the layouts alone say what these are."""
    kinds = 0
    for seed in range(5000 + 100 * part, 5100 + 100 * part):
        problem, settled, *_ = any_program(seed)
        alike = UNIVERSAL.alike(problem, **settled)
        if alike is None or len(set(alike.kinds)) == problem.nprocs:
            continue
        kinds += 1
        traces = [UNIVERSAL.trace(problem, rank, **settled) for rank in range(problem.nprocs)]
        firsts = {kind: alike.kinds.index(kind) for kind in alike.kinds}
        for rank, kind in enumerate(alike.kinds):
            first = traces[firsts[kind]]
            assert shape(traces[rank]) == shape(first), (seed, rank)
            for step, like in zip(traces[rank].steps, first.steps):
                if like.moved(first.rank):
                    ((owner, _),) = step.moved(rank)
                    assert alike.others(like, first.rank)[rank] == owner, (seed, rank, step)
    assert kinds > 15


def test_what_the_layouts_do_not_tell_is_not_folded():
    how = {"stationary": "C", "chunk": "none"}
    told = lambda sizes, texts, **more: UNIVERSAL.alike(
        problem := Problem(*sizes, 4, *texts), **UNIVERSAL.settle(problem, **how | more)
    )
    columns, rows = ["column"] * 3, ["row"] * 3
    assert told((8, 8, 8), columns) and told((8, 8, 8), rows)
    assert told((8, 8, 9), columns) is None  # unequal tiles
    assert told((8, 12, 8), ["column", "block:4x1", "tiles:8x3@1x4"]) is not None
    assert told((8, 8, 8), ["column", "tiles:3x8@4x1", "column"]) is None
    assert told((8, 12, 12), ["tiles:2x12@4x1", "tiles:12x3@1x4", "tiles:8x3@1x4"]) is not None
    assert told((8, 12, 12), ["tiles:8x3@1x4", "tiles:6x6@2x2", "column"]) is not None
    assert told((8, 8, 8), ["column", "tiles:1x8@4x1", "column"]) is None  # two tiles a rank
    assert told((8, 8, 8), columns, steal=True) is None
    assert told((8, 8, 8), columns, grid="1x2x2") is None
    for more in ({"fetch": "tile"}, {"order": "cheapest"}, {"schedule": "greedy"}):
        assert told((8, 8, 8), columns, **more) is None
        assert told((8, 8, 8), ["R", "column", "column"], **more).kinds == [0] * 4
    assert len(set(told((8, 8, 8), ["block"] * 3).kinds)) == 4  # each begins elsewhere


def reading(owners, times=None):
    """(programs, whose ranks are alike): each rank reads from one other, and multiplies."""

    def program(rank):
        for each in owners if times is None else [owners] * times:
            a = yield Get(Block("A", each[rank], 0, (0, 0), 0, 4, 0, 4, 0, 4))
            yield Gemm(a, a)

    lists = owners if times is None else [owners] * times
    ranks = len(lists[0])
    alike = Alike([0] * ranks, lambda step, rank: lists[step.index // 2])
    return alike, lambda rank: trace(program(rank), None, rank, fresh=False)


def toy(**more):
    return Machine("toy", Compute(512.0), (Link("wire", 64.0),), **more)


def test_ranks_that_find_links_otherwise_do_not_stand_for_each_other():
    ring, hub = [1, 2, 3, 0, 5, 6, 7, 4], [4] * 4 + [0] * 4
    folding, traces = fold(*reading(ring, 3), toy())
    assert folding.counts == (8,) and len(traces) == 1
    # four read of one: each gets a quarter of what it sends
    folding, _ = fold(*reading(hub, 3), toy())
    assert folding.counts == (8,)
    assert sorted(folding.loads[0, 0][1]) == [1.0, 4.0]
    # 4 and 7 read of the same: they are slower, and nobody else is
    ring[7] = 5
    alike, traced = reading(ring, 3)
    folding, some = fold(alike, traced, toy())
    assert folding.counts == (6, 2) and folding.stand_in[7] == 4
    everyone = simulate([traced(rank) for rank in range(8)], toy())
    assert simulate(some, toy(), folding=folding) == everyone
    # of four ranks three kinds: that is not worth it
    assert fold(*reading([[1, 0, 0, 0], [1, 2, 1, 1]]), toy()) is None
    # the first two of each node are joined by another link
    near = replace(toy(), links=(Link("near", 256.0, within=4), Link("wire", 64.0)))
    folding, _ = fold(*reading([1, 2, 3, 4, 5, 6, 7, 0], 3), near)
    assert sorted(folding.counts) == [2, 6]


@pytest.mark.parametrize("rule", ARBITRATIONS)
def test_who_comes_first_to_a_link_is_not_folded(rule):
    """All ranks of one half read of one of the other half: one after another, or shared."""
    hub = [4] * 4 + [0] * 4
    found = fold(*reading(hub, 2), toy(arbitration=rule))
    assert bool(found) == (rule == "fair")
    _, traced = reading(hub, 2)
    ends = Counter(
        bar.stop_s if hasattr(bar, "stop_s") else bar.stop
        for bar in simulate(
            [traced(rank) for rank in range(8)], toy(arbitration=rule), timeline=True
        ).timeline
    )
    assert (len(ends) < 6) == (rule == "fair")  # in step, or not


def test_what_others_add_to_a_rank_tells_it_from_others():
    def program(rank):
        a = yield Get(Block("A", rank, 0, (0, 0), 0, 4, 0, 4, 0, 4))
        found = yield Gemm(a, a)
        owner = {0: 1, 1: 0, 2: 3, 3: 2}[rank]
        yield Accumulate(found, Block("C", owner, 0, (0, 0), 0, 4, 0, 4, 0, 4))

    traced = lambda rank: trace(program(rank), None, rank, fresh=False)
    pairs = Alike([0] * 4, lambda step, rank: [1, 0, 3, 2])
    machine = toy(owner_slowdown=0.5)
    folding, some = fold(pairs, traced, machine)
    everyone = simulate([traced(rank) for rank in range(4)], machine)
    assert folding.counts == (4,)
    assert simulate(some, machine, folding=folding).time_s == pytest.approx(everyone.time_s)
    compare(16474, said := Counter())  # of one kind, some add to one kind and some to another
    assert said["fair", True, True]


@pytest.mark.parametrize("seed", range(3))
def test_both_loops_fold_alike(seed, monkeypatch):
    try:
        monkeypatch.setenv(loop.VARIABLE, "compiled")
        loop.find_loop()
    except Exception:
        pytest.skip("the compiled loop is not there")
    folds = 0
    for at in range(40 * seed, 40 * seed + 40):
        problem, settled, machine, depth = any_program(at)
        found, _ = of_program(problem, settled, machine)
        if not found:
            continue
        folds += 1
        folding, some = found
        times = []
        for which in ("python", "compiled"):
            monkeypatch.setenv(loop.VARIABLE, which)
            times.append(simulate(some, machine, prefetch=depth, folding=folding))
        assert times[0].time_s == pytest.approx(times[1].time_s, rel=1e-9), at
        assert times[0].phases == pytest.approx(times[1].phases, rel=1e-9, abs=1e-9), at
        assert times[0].counters == times[1].counters
    assert folds > 1


CASES = [
    (("column", "column", "column"), {"stationary": "C"}),
    (("R", "column", "column"), {"stationary": "C", "signals": "always"}),
    (("row/c2", "R", "block:4x2"), {"stationary": "A"}),
    (("column", "row", "R"), {"stationary": "B", "replicate_result": True}),
]


@pytest.mark.parametrize("texts, options", CASES)
@pytest.mark.parametrize("name", ["h100x8", "dgxa100", "lumic"])
def test_records_say_the_same_as_those_of_all_ranks(texts, options, name, monkeypatch):
    case, machine = Case(1024, 1024, 2048, *texts, options=options), find_machine(name)
    for arbitration in ARBITRATIONS:
        seen = machine.with_value("arbitration", arbitration)
        few = predict(case, seen, 8)
        with monkeypatch.context() as all_of_them:
            all_of_them.setattr(predictions, "fold", lambda *on: None)
            whole = predict(case, seen, 8)
        for field in few.__dataclass_fields__:
            one, other = getattr(few, field), getattr(whole, field)
            if field not in ("plan_s", "at", "time") and not field.startswith("phase_"):
                assert (
                    one == pytest.approx(other, rel=1e-9)
                    if isinstance(one, float) or field == "samples_s"
                    else (one == other)
                ), field


def test_a_search_finds_the_same_with_few_ranks(monkeypatch):
    machine = find_machine("dgxa100")
    request = TuneRequest(Case(1024, 2048, 1024, a="R"), 8, ("universal",), effort=3.0, refine=1)
    few = tune(request, machine)
    assert any(programs_of(place.case, machine, 8).folding for place in few.ranking)
    monkeypatch.setattr(predictions, "fold", lambda *on: None)
    all_of_them = tune(request, machine)
    of = lambda found: [(place.case, place.memory, place.equals) for place in found.ranking]
    assert of(few) == of(all_of_them)
    for one, other in zip(few.ranking, all_of_them.ranking):
        assert one.record.best_s == pytest.approx(other.record.best_s, rel=1e-9)
        assert one.record.median_high_s == pytest.approx(other.record.median_high_s, rel=1e-9)
        assert one.bound == pytest.approx(other.bound, rel=1e-9)
