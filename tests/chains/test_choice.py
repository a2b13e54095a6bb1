"""The choice of a chain: next to trying everything, and to random layouts; its bound, its effort,
its memory."""

import os
import random
import subprocess
import sys
import time
from itertools import product

import pytest

from chains.choose import choose, known_contenders
from chains.costs import EVERYTHING, LAYOUTS, PRODUCTS, Allowed, Costs, Weights
from chains.description import layers
from chains.presets import preset
from chains.program import MOVES, Bound, Programs, traces
from chains.search import search
from drbench.errors import OutOfMemory
from drbench.model.simulate import simulate
from launch.cases.machine_models import find_machine
from launch.models.chains import seen

SMALL = layers(256, (512, 1024, 512), ("relu",))
BACK = layers(256, (512, 1024, 512), ("swiglu",), backward=True)
LLAMA = preset("llama3-70b:mlp", backward=True)


def machine(name):
    return seen(find_machine(name), "float32", "auto")


def whole_s(costs, chain, layouts, ways):
    """Seconds of a chain with every look-ahead, all ranks simulated."""
    found = traces(Bound(chain, costs.nprocs, layouts, ways, costs.dtype))
    return min(simulate(found, costs.machine, prefetch=each).time_s for each in (1, 4, "all"))


def ways_of(costs, chain, each, layouts):
    """The best way of a product by each algorithm."""
    domains = {name: [layout] for name, layout in layouts.items()}
    for name in PRODUCTS:
        factor = costs.factor(chain, each, domains, Allowed((name,), MOVES))
        for labels in factor.table.values():
            yield from (dict(label.notes) for label in labels)


@pytest.mark.thorough
def test_the_choice_is_as_fast_as_the_fastest_of_all_layouts_and_ways():
    few = "row", "column"
    found = choose(SMALL, machine("h100x8"), 2, layouts=few)
    costs = Costs(machine("h100x8"), 2, "float32", few)
    domains, times = costs.domains(SMALL), []
    for every in product(*domains.values()):
        layouts = dict(zip(domains, every))
        for ways in product(*(ways_of(costs, SMALL, x, layouts) for x in SMALL.products)):
            times.append(whole_s(costs, SMALL, layouts, {k: v for x in ways for k, v in x.items()}))
    assert len(times) > 200 and found.finished and not found.left
    assert found.best.time_s <= 1.001 * min(times)
    assert found.least_s <= min(times)


def drawn(costs, chain, rng):
    """A random layout of each variable, and a random way of each product that there is for it."""
    layouts = {name: rng.choice(each) for name, each in costs.domains(chain).items()}
    ways = {}
    for each in chain.products:
        ways |= rng.choice(list(ways_of(costs, chain, each, layouts)))
    return layouts, ways


CASES = [
    (SMALL, "h100x8", 4, LAYOUTS),
    (BACK, "h100x8", 4, ("row", "column", "R")),
    (BACK, "dgxh100", 16, ("row", "column")),
    (BACK, "pvc12", 12, ("row", "R")),
    (LLAMA, "a100pcie", 8, ("row", "column")),
]


@pytest.mark.parametrize("chain, name, p, few", CASES)
def test_neither_contenders_nor_random_chains_beat_the_choice_nor_its_bound(chain, name, p, few):
    rng, known = random.Random(p), machine(name)
    found, costs = choose(chain, known, p, layouts=few), Costs(known, p, layouts=few)
    costs.factors(chain)
    links = ["", *costs.links()]
    for _ in range(6):
        layouts, ways = drawn(costs, chain, rng)
        time_s = whole_s(costs, chain, layouts, ways)
        assert found.least_s <= time_s * (1 + 1e-9)
        assert found.best.time_s <= 1.02 * time_s
        weights = Weights(rng.choice([0.0, 0.3, 0.7, 1.0]), rng.choice(links))
        domains = {variable: [layout] for variable, layout in layouts.items()}
        bound, _ = search(domains, costs.factors(chain, EVERYTHING, weights, domains))
        assert bound.time_s <= time_s * (1 + 1e-9)
    assert set(known_contenders(chain)) == {x.name for x in found.contenders} | set(found.refused)
    assert found.least_s <= found.tried[0].time_s * (1 + 1e-9)
    assert found.best.time_s <= 1.001 * min(x.time_s for x in (*found.contenders, *found.tried))
    for each in found.tried:
        if each.time_s <= found.tried[0].time_s * 1.001:
            assert (each.moves, each.memory_bytes) >= (found.best.moves, found.best.memory_bytes)


@pytest.mark.parametrize("arbitration", ["fair", "fifo"])
@pytest.mark.parametrize(
    "name, p", [("h100x8", 4), ("dgxh100", 16), ("dgxh100", 12), ("pvc12", 12), ("lumic", 4)]
)
def test_one_rank_stands_for_all_where_all_do_the_same(name, p, arbitration):
    model = seen(find_machine(name, arbitration), "float32", "auto")
    found = choose(BACK, model, p, effort_s=0)
    folded = 0
    for each in found.contenders:
        programs = Programs(each.bound, model)
        folded += bool(programs.folded)
        every = simulate(traces(each.bound), model, prefetch=each.prefetch)
        assert programs.simulator(model).run(each.prefetch).time_s == pytest.approx(every.time_s)
        assert each.found.counters == every.counters
    if name in ("h100x8", "dgxh100") and p != 12:
        assert folded == len(found.contenders)


def test_a_spent_effort_leaves_what_people_use_and_a_wider_bound():
    began = time.process_time()
    none = choose(LLAMA, machine("dgxh100"), 16, effort_s=0)
    spent_s = time.process_time() - began
    assert spent_s < 3 and not none.finished and none.best in none.contenders
    assert {each.name for each in none.contenders} == set(known_contenders(LLAMA))
    began = time.process_time()
    some = choose(LLAMA, machine("dgxh100"), 16, effort_s=3)
    assert time.process_time() - began < 3 + spent_s + 3  # what was begun is ended
    assert some.best.time_s <= none.best.time_s
    assert none.least_s <= some.least_s <= some.best.time_s


def test_without_any_contender_one_chain_is_simulated_whatever_the_effort():
    found = choose(SMALL, machine("h100x8"), 4, fixed={"X": "column"}, effort_s=0)
    assert found.best.bound.layouts["X"] == "column" and found.best.name == "chosen"


def test_a_contender_that_cannot_be_is_named_with_what_it_needs():
    chain, known = preset("llama3-8b:attention", 4), machine("dgxh100")
    found = choose(chain, known, 16, layouts=("row", "column", "R", "block"), effort_s=0)
    assert "QKV" not in known_contenders(chain) and "whole units" in found.refused["fsdp"]
    assert "O cannot be laid out by column on 16 ranks" in found.refused["megatron"]
    limit = 0.9 * choose(SMALL, known, 4, effort_s=0).contenders[0].memory_bytes
    tight = choose(SMALL, known, 4, limit=limit)
    assert all("a rank would hold" in why for why in tight.refused.values()) and tight.refused
    with pytest.raises(OutOfMemory, match="Use more ranks"):
        choose(SMALL, known, 4, limit=1000)


@pytest.mark.thorough
@pytest.mark.parametrize("p, most_s", [(64, 60), (512, 120)])
def test_a_layer_of_llama_70b_on_many_nodes_stays_within_time_and_memory(p, most_s):
    """Half of these bars where nothing else runs."""
    asked = ["chain", "--preset", "llama3-70b:mlp", "--machine", "dgxh100", "--dtype", "bfloat16"]
    asked += ["--layers", "80", "--backward", "-p", str(p), "-m", str(1024 * p)]
    told = subprocess.run(
        [sys.executable, "-c", _MEASURED, *asked], capture_output=True, text=True, env=os.environ
    )
    assert told.returncode == 0, told.stderr
    cpu_s, kib = map(float, told.stdout.split()[-2:])
    assert cpu_s < most_s and kib < 2 << 20
    assert "may be" in told.stdout.splitlines()[0]


_MEASURED = """
import resource, subprocess, sys
code = subprocess.call([sys.executable, "-m", "drbench", *sys.argv[1:]])
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime, used.ru_maxrss)
sys.exit(code)
"""
