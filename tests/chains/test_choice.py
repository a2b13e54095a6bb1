"""The choice of a chain compared with trying everything, and with random layouts; its bound, its
effort, its memory."""

import os
import random
import subprocess
import sys
import time
from math import inf

import pytest

from algorithms.chains.choose import Solution, choose, known_contenders
from algorithms.chains.costs import EVERYTHING, LAYOUTS, Costs
from algorithms.chains.description import layers
from algorithms.chains.presets import preset
from algorithms.chains.search import search
from drbench.errors import OutOfMemory
from launch.cases.machine_models import find_machine
from launch.models.chains import seen

SMALL = layers(256, (512, 1024, 512), ("relu",))
BACK = layers(256, (512, 1024, 512), ("swiglu",), backward=True)
FEW = "row", "column", "R"
LLAMA = preset("llama3-70b:mlp", backward=True)


def machine(name):
    return seen(find_machine(name), "float32", "auto")


def of_layouts(costs, chain, layouts, programs=EVERYTHING):
    """The fastest chain in these layouts by its lower bounds, simulated."""
    domains = {name: [layout] for name, layout in layouts.items()}
    label = search(domains, costs.factors(chain, domains, programs))
    if label is None:
        return None
    found = Solution.of("one", chain, costs, label)
    for program in found.programs:
        program.simulate()
    return found


@pytest.mark.parametrize("name, p", [("h100x8", 2), ("dgxh100", 12), ("pvc12", 3)])
def test_the_choice_is_as_fast_as_the_fastest_of_all_layouts_and_programs(name, p):
    """With all programs simulated, whether a fastest chain needs them or not."""
    few = "row", "column"
    found, costs = (
        choose(SMALL, Costs(machine(name), p, layouts=few)),
        Costs(machine(name), p, "float32", few),
    )
    domains = costs.domains(SMALL)
    costs.factors(SMALL, domains)
    for program in costs.programs:
        before = program.seconds
        program.simulate()
        assert before <= program.seconds * (1 + 1e-9)
    least = search(domains, costs.factors(SMALL, domains))
    assert found.finished and found.simulated < len(costs.programs)
    assert least.time_s <= found.best.time_s <= 1.002 * least.time_s
    assert found.least_s <= least.time_s * (1 + 1e-9)


CASES = [
    (SMALL, "h100x8", 4, LAYOUTS),
    (BACK, "h100x8", 4, FEW),
    (BACK, "dgxh100", 16, ("row", "column")),
    (BACK, "pvc12", 12, ("row", "R")),
    (LLAMA, "a100pcie", 8, ("row", "column")),
]


@pytest.mark.parametrize("chain, name, p, few", CASES)
def test_neither_contenders_nor_random_chains_beat_the_choice_nor_its_bound(chain, name, p, few):
    rng, costs = random.Random(p), Costs(machine(name), p, layouts=few)
    found = choose(chain, costs, effort_s=inf)
    for _ in range(6):
        layouts = {name: rng.choice(each) for name, each in costs.domains(chain).items()}
        dropped = rng.sample(sorted(EVERYTHING), 4)
        one = of_layouts(costs, chain, layouts, EVERYTHING - {*dropped})
        if one is not None:
            assert found.least_s <= one.time_s * (1 + 1e-9)
            assert found.best.time_s <= 1.002 * one.time_s
    assert set(known_contenders(chain)) == {x.name for x in found.contenders} | set(found.refused)
    assert found.least_s <= found.tried[0].time_s * (1 + 1e-9)
    assert found.best.time_s <= 1.001 * min(x.time_s for x in (*found.contenders, *found.tried))
    for each in found.tried:
        if each.time_s <= found.tried[0].time_s * 1.001:
            assert (each.moves, each.memory_bytes) >= (found.best.moves, found.best.memory_bytes)


def test_the_time_on_another_machine_is_that_of_its_programs_there():
    one, other = machine("h100x8"), machine("a100pcie")
    found = choose(BACK, Costs(one, 4, layouts=FEW[:2]))
    again = found.best.times_on([one, other])
    assert again[0] == pytest.approx(found.best.time_s) and again[1] > again[0]


def test_a_spent_effort_leaves_the_usual_layouts_and_a_wider_bound():
    costs = lambda: Costs(machine("dgxh100"), 8, layouts=FEW)
    began = time.process_time()
    none = choose(BACK, costs(), effort_s=0)
    spent_s = time.process_time() - began
    assert spent_s < 5 and not none.finished and none.best in none.contenders
    assert {each.name for each in none.contenders} == set(known_contenders(BACK))
    began = time.process_time()
    some = choose(BACK, costs(), effort_s=0.5)
    assert time.process_time() - began < 0.5 + spent_s + 3  # a started step is finished
    assert some.best.time_s <= none.best.time_s
    assert none.least_s <= some.least_s <= some.best.time_s * (1 + 1e-9)


def test_without_any_contender_one_chain_is_simulated_whatever_the_effort():
    found = choose(SMALL, Costs(machine("h100x8"), 4), fixed={"X": "column"}, effort_s=0)
    assert found.best.layouts["X"] == "column" and found.best.name == "chosen"


def test_an_impossible_contender_is_named_with_its_requirement():
    chain, known = preset("llama3-8b:attention", 4), machine("dgxh100")
    found = choose(chain, Costs(known, 16, layouts=FEW), effort_s=0)
    assert "QKV" not in known_contenders(chain) and "whole units" in found.refused["fsdp"]
    assert "O cannot be laid out by column on 16 ranks" in found.refused["megatron"]
    costs = lambda: Costs(known, 4, layouts=FEW)
    known_to_fit = choose(SMALL, costs(), effort_s=0).contenders
    limit = 0.9 * min(each.memory_bytes for each in known_to_fit)
    tight = choose(SMALL, costs(), limit=limit)
    assert all("a rank would hold" in why for why in tight.refused.values()) and tight.refused
    with pytest.raises(OutOfMemory, match="Use more ranks"):
        choose(SMALL, costs(), limit=1000)


@pytest.mark.thorough
@pytest.mark.parametrize("p, most_s", [(64, 60), (512, 120)])
def test_a_layer_of_llama_70b_on_many_nodes_stays_within_time_and_memory(p, most_s):
    """Half of these limits on an idle machine."""
    asked = ["chain", "--preset", "llama3-70b:mlp", "--machine", "dgxh100", "--dtype", "bfloat16"]
    asked += ["--layers", "80", "--backward", "-p", str(p), "-m", str(1024 * p)]
    described = subprocess.run(
        [sys.executable, "-c", _MEASURED, *asked], capture_output=True, text=True, env=os.environ
    )
    assert described.returncode == 0, described.stderr
    cpu_s, kib = map(float, described.stdout.split()[-2:])
    assert cpu_s < most_s and kib < 2 << 20
    first = described.stdout.splitlines()[0]  # finished, or how far from the bound
    assert "by the bounds no chain is more than" in first or "may be" in first


_MEASURED = """
import resource, subprocess, sys
code = subprocess.call([sys.executable, "-m", "drbench", *sys.argv[1:]])
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime, used.ru_maxrss)
sys.exit(code)
"""
