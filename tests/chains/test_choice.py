"""The choice of a chain compared with random layouts and with published ones; its bound, its
effort, its memory."""

import os
import random
import subprocess
import sys
import time
from functools import cache
from math import inf

import pytest
from layer_chains import layers

from drbench.chains.answer import seen
from drbench.chains.model.choose import choose
from drbench.chains.model.costs import LayoutCosts, Training
from drbench.chains.model.description import read
from drbench.chains.model.mesh import DeviceMesh, meshes
from drbench.chains.model.programs import COLLECTIVES, EVERYTHING
from drbench.chains.model.published import CONTENDERS, contender
from drbench.chains.model.transformers import preset
from drbench.errors import OutOfMemory, UsageError
from drbench.launch.cases.machine_models import find_machine
from drbench.model.gemm import Compute
from drbench.model.machine import Link, Machine

SMALL = layers(256, (512, 1024, 512), ("relu",))
BACK = layers(256, (512, 1024, 512), ("swiglu",), backward=True)
FEW = COLLECTIVES | {"ring A", "ring C", "gemm_rs"}


def machine(name, dtype="float32"):
    return seen(find_machine(name), dtype, "auto")


@cache
def costs_of(name, mesh, programs=FEW, **training):
    """Of a machine and a mesh: tests share what they have simulated."""
    return LayoutCosts(
        machine(name), DeviceMesh.read(mesh), "float32", Training(**training), programs
    )


@pytest.mark.parametrize(
    "chain, name, mesh, programs",
    [
        (SMALL, "pvc12", "tp=2", EVERYTHING),
        (SMALL, "h100x8", "dp=2,tp=2", FEW),
        (BACK, "pvc12", "tp=4", FEW),
        (SMALL, "a100pcie", "dp=2,tp=4", COLLECTIVES | {"ring A"}),
    ],
    ids=["library of programs", "two dimensions", "training", "two nodes"],
)
def test_no_random_layouts_beat_the_choice_nor_its_bound(chain, name, mesh, programs, dealt):
    rng, costs = random.Random(1), costs_of(name, mesh, programs)
    found = choose(chain, [costs], effort_s=inf)
    assert found.finished and found.gap < (0.7 if name == "a100pcie" else 0.3)  # two nodes
    assert found.least_s <= found.best.time_s <= 1.001 * min(x.time_s for x in found.tried)
    domains = costs.domains(chain)
    for _ in dealt(range(200), 0, 20):
        fixed = {each: costs.mesh.text(rng.choice(domains[each])) for each in domains}
        one = choose(chain, [costs], fixed=fixed, effort_s=inf).best
        assert {each: costs.mesh.text(x) for each, x in one.layouts.items()} == fixed
        assert found.least_s <= one.time_s * (1 + 1e-9)
        assert found.best.time_s <= 1.03 * one.time_s


def test_the_choice_is_never_slower_than_published_layouts():
    tried = [costs_of("h100x8", str(mesh)) for mesh in meshes(4, 8)]
    found = choose(BACK, tried, effort_s=2)
    assert {each.name for each in found.contenders} == {*CONTENDERS} - {"EP × FSDP", "EP × DP"}
    assert not found.refused
    times = [each.time_s for each in found.contenders]
    assert times == sorted(times) and found.best.time_s <= times[0]
    for each in found.contenders:  # on its best mesh, in its own layouts
        known, stationary = contender(BACK, each.mesh, each.name)
        assert each.layouts == known
        for way in each.ways:
            for use in way.moves:
                one = BACK.multiplications[[x.c for x in BACK.multiplications].index(way.operation)]
                name = (*one.takes, one.c)["ABC".index(use.matrix)]
                kind = "weight" if BACK.is_of_weight(name) else "made"
                stride, extent = use.program.group[:2]
                moved = [
                    d for d, s in enumerate(each.mesh.strides) if stride <= s < stride * extent
                ]
                assert not any(kind in stationary[d] for d in moved)
    equal = [x for x in found.tried if x.time_s <= 1.001 * found.tried[0].time_s]
    rank = lambda each: (each.moves, each.memory_bytes)
    assert found.best in equal and rank(found.best) == min(map(rank, equal))


def test_of_equal_times_that_with_the_fewest_redistributions_is_chosen():
    """GEMMs take so long that others differ by less than a thousandth; each rank of Megatron's
    group adds all rows, which takes longest."""
    text = "X = input(64, 64)\nW1 = weight(64, 64)\nY1 = X @ W1\nW2 = weight(64, 64)\nY2 = Y1 @ W2"
    compute = Compute(1e6, memory_bytes_per_s=1e9)
    machine = Machine("toy", compute, (Link("wire", 1e9),), memory_bytes=1e9)
    costs = LayoutCosts(machine, DeviceMesh.read("tp=4"), "float32", programs=COLLECTIVES)
    found = choose(read(f"{text}\nS = X + Y2", "block"), [costs], effort_s=0)
    assert found.best.name == "Megatron TP" and found.best.moves == 1
    first = found.tried[0]
    assert first.time_s < found.best.time_s < 1.001 * first.time_s and first.moves > 1


LAYER = {  # variable -> placement in a group that does each
    "tp": {"X": "R", "QKV": "S(1)", "Y1": "S(1)", "Wqkv": "S(1)", "Wo": "S(0)", "W1": "S(1)"},
    "sp": {"X": "S(0)", "QKV": "S(1)", "Y1": "S(1)", "Wqkv": "S(1)", "Wo": "S(0)", "W1": "S(1)"},
    "fsdp": dict.fromkeys(("X", "QKV", "Y1", "Wqkv", "Wo", "W1", "W2"), "S(0)"),
    "dp": dict.fromkeys(("X", "QKV", "Y1"), "S(0)"),
}


@pytest.mark.parametrize(
    "name, outer, inner",
    [
        ("Megatron TP", "tp", "tp"),
        ("TP + SP", "sp", "sp"),
        ("FSDP", "fsdp", "fsdp"),
        ("HSDP", "dp", "fsdp"),
        ("TP × FSDP", "fsdp", "sp"),
        ("TP × DP", "dp", "sp"),
    ],
)
def test_contenders_are_laid_out_as_they_are_published(name, outer, inner):
    known, stationary = contender(preset("llama3-70b:block"), DeviceMesh.read("dp=2,tp=4"), name)
    assert {*known} == {"X", "Wqkv", "QKV", "Wo", "W1", "Y1", "W2"}
    for variable, layout in known.items():
        one, two = (
            LAYER[kind].get(variable, "S(0)" if kind in ("tp", "sp") else "R")
            for kind in (outer, inner)
        )
        # FSDP of TP cuts the other side of weights that TP cuts by rows
        if outer == "fsdp" and two == "S(0)" and variable in ("Wo", "W2") and inner == "sp":
            one = "S(1)"
        assert layout == (one, two), variable
    kept = {"tp": ("weight",), "sp": ("weight",), "fsdp": ("made",), "dp": ("made",)}
    assert stationary == (kept[outer], kept[inner])


def test_a_spent_effort_leaves_published_layouts_and_a_wider_gap():
    began = time.process_time()
    none = choose(BACK, [costs_of("dgxh100", "dp=2,tp=4", EVERYTHING)], effort_s=0)
    spent_s = time.process_time() - began
    assert spent_s < 5 and not none.finished
    assert {each.name for each in none.contenders} == {*CONTENDERS} - {"EP × FSDP", "EP × DP"}
    assert none.best.time_s <= none.contenders[0].time_s and 0 < none.gap < 1
    assert none.gap == pytest.approx(1 - none.least_s / none.best.time_s)
    began = time.process_time()
    some = choose(BACK, [costs_of("dgxh100", "dp=2,tp=4", EVERYTHING)], effort_s=1)
    assert time.process_time() - began < 1 + spent_s + 3  # a started step is finished
    assert some.best.time_s <= none.best.time_s and none.least_s <= some.least_s


@pytest.mark.parametrize("interrupted", [1, 3])
def test_an_interrupt_leaves_the_best_so_far(interrupted):
    tried, lines = [costs_of("pvc12", mesh) for mesh in ("tp=4", "dp=2,tp=2")], []

    def progress(line):
        lines.append(line)
        if len(lines) == interrupted:
            raise KeyboardInterrupt

    found = choose(SMALL, tried, progress=progress)
    assert not found.finished and len(lines) == interrupted
    best_ms = 1e3 * found.contenders[0].time_s
    assert lines[0].endswith(f" simulated; {best_ms:.4g} ms so far")
    assert found.best.time_s <= found.contenders[0].time_s and found.gap > 0
    whole = choose(SMALL, tried, progress=lines.append)
    assert whole.finished and whole.gap < found.gap and whole.least_s >= found.least_s
    assert any("mesh dp=2,tp=2" in line for line in lines)


def test_an_interrupt_before_anything_is_found_is_no_lack_of_memory():
    def progress(line):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        choose(SMALL, [costs_of("pvc12", "tp=4")], fixed={"X": "column"}, progress=progress)


def test_a_given_layout_is_kept_whatever_the_effort():
    costs = costs_of("h100x8", "tp=4")
    found = choose(SMALL, [costs], fixed={"X": "column", "W1": "P(None,'tp')"}, effort_s=0)
    assert found.best.name == "chosen" and found.best.layouts["X"] == ("S(1)",)
    assert found.best.layouts["W1"] == ("S(1)",)
    with pytest.raises(UsageError, match="does not fit mesh tp=4"):
        choose(SMALL, [costs], fixed={"X": "R,S(0)"}, effort_s=0)
    # of meshes that are tried, those that it fits
    both = [costs, costs_of("h100x8", "dp=2,tp=2")]
    assert choose(SMALL, both, fixed={"X": "R,S(0)"}, effort_s=0).best.mesh is both[1].mesh
    heads = preset("llama3-8b:attention", 8192)
    with pytest.raises(UsageError, match="4 parts of the rows need 4 sequences of 8192"):
        choose(heads, [costs], fixed={"QKV": "row"})


def test_layouts_that_fit_are_chosen_and_others_are_named_with_what_they_need():
    chain = layers(64, (1024, 1024, 1024), ("relu",))
    free = choose(chain, [costs_of("h100x8", "tp=4")])
    need = {each.name: each.memory_bytes for each in free.contenders}
    last = free.best.memory_bytes
    for limit in (0.9 * last, 0.9 * max(need.values()), 1.01 * min(need.values())):
        tight = choose(chain, [costs_of("h100x8", "tp=4")], limit=limit)
        assert all(each.memory_bytes <= limit for each in tight.tried)
        assert tight.best.time_s >= free.best.time_s * (1 - 1e-9)
        for name, nbytes in need.items():
            if nbytes > limit:
                assert f"{nbytes / 2**30:.4g} GiB" in tight.refused[name].why
                assert tight.refused[name].why.endswith(f" {limit / 2**30:.4g}")
    assert last >= tight.best.memory_bytes
    with pytest.raises(OutOfMemory, match="--layers.*--recompute") as error:
        choose(BACK, [costs_of("h100x8", "tp=4", layers=80)], limit=1 << 20)
    assert "\n" not in str(error.value)
    with pytest.raises(OutOfMemory, match="with X row"):
        choose(SMALL, [costs_of("h100x8", "tp=4")], fixed={"X": "row"}, limit=1000)


def test_many_layers_weights_are_not_copied_where_one_layers_are():
    """2 MiB of weights a layer."""
    limit = 6 << 20
    one, many = (
        choose(layers(64, (512, 512, 512)), [costs_of("h100x8", "tp=4", layers=x)], limit=limit)
        for x in (1, 8)
    )
    weights = lambda found: [found.best.layouts[name] for name in ("W1", "W2")]
    assert ("R",) in weights(one) and ("R",) not in weights(many)
    assert many.best.memory["weights"] == 8 * 2 * 512 * 512 * 4 // 4 <= limit


def test_an_impossible_contender_is_named_with_its_requirement():
    chain = preset("llama3-8b:attention", 8192)
    refused = choose(chain, [costs_of("dgxh100", "tp=16")], effort_s=0).refused
    needs = {"FSDP": "sequences of", "Megatron TP": "key/value heads", "TP × DP": "dp=2,tp=4"}
    assert all(text in refused[name].why for name, text in needs.items())


@pytest.mark.thorough
@pytest.mark.parametrize("p, most_s", [(64, 30), (512, 120)])
def test_a_block_of_llama_70b_on_many_nodes_stays_within_time_and_memory(p, most_s):
    asked = ["chain", "--preset", "llama3-70b:block", "--machine", "dgxh100", "--backward"]
    asked += ["--layers", "80", "-p", str(p), "-m", str(8192 * p // 8)]
    ended = subprocess.run(
        [sys.executable, "-c", _MEASURED, *asked], capture_output=True, text=True, env=os.environ
    )
    assert ended.returncode == 0, ended.stderr
    cpu_s, kib = map(float, ended.stdout.split()[-2:])
    assert cpu_s < most_s and kib < 2 << 20
    first = ended.stdout.splitlines()[0]  # finished, or how far from the bound
    assert first.startswith(("Fastest", "Tied for")) or "optimality gap at most" in first


_MEASURED = """
import resource, subprocess, sys
code = subprocess.call([sys.executable, "-m", "drbench", *sys.argv[1:]])
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print(used.ru_utime + used.ru_stime, used.ru_maxrss)
sys.exit(code)
"""
