"""Chains in every layout: their programs, run by an interpreter of steps on whole arrays, have the
results of NumPy; their costs are those of trying everything."""

import itertools
import time
import tracemalloc
from dataclasses import replace
from functools import cache
from math import isclose

import numpy as np
import pytest
from chains_by_numpy import by_numpy

from algorithms.chains.choose import choose, known_contenders
from algorithms.chains.costs import EVERYTHING, LAYOUTS, LIBRARY, Costs, function_s
from algorithms.chains.description import Chain, Map, layers
from algorithms.chains.functions import apply, attention, function, functions, gradient
from algorithms.chains.presets import MODELS, preset, presets
from algorithms.chains.search import search
from drbench.errors import OutOfMemory, UnsupportedError, UsageError
from drbench.model.gemm import Compute
from drbench.model.machine import Collective, Link, Machine
from launch.cases.machine_models import find_machine

TOY = Machine(
    "toy",
    Compute(1e9, memory_bytes_per_s=1e9, launch_s=1e-6),
    (Link("wire", 1e8, latency_s=1e-6),),
    memory_bytes=1e9,
    fence_s=1e-6,
    collectives={
        name: Collective(launch_s=1e-6, sync_s=1e-6)
        for name in ("allgather", "reducescatter", "broadcast", "reduce", "shift")
    },
)


def given_of(chain, seed=0, low=-2, high=3):
    rng = np.random.default_rng(seed)
    return {
        name: rng.integers(low, high, (each.rows, each.cols)).astype(float)
        for name, each in chain.matrices.items()
        if each.kind != "made"
    }


@pytest.mark.parametrize("name", ["relu", "gelu", "silu", "swiglu", "add"])
def test_gradients_equal_finite_differences(name):
    of = function(name)
    rng = np.random.default_rng(1)
    x = rng.normal(size=(3, 4 * of.takes[0]))
    g = rng.normal(size=(3, 4))
    if name == "add":
        out = np.empty((3, 4))
        apply(of, out, [x, g])
        assert np.array_equal(out, x + g)
        return
    made = np.empty_like(x)
    apply(gradient(of), made, [g, x])
    assert np.allclose(made, differences(of, x, g), atol=1e-6)


def differences(of, x, g, step=1e-6):
    found = np.empty_like(x)
    for at in np.ndindex(x.shape):
        ends = []
        for sign in (1, -1):
            moved = x.copy()
            moved[at] += sign * step
            out = np.empty(g.shape)
            apply(of, out, [moved])
            ends.append((out * g).sum())
        found[at] = (ends[0] - ends[1]) / (2 * step)
    return found


def test_attention_is_causal_softmax_and_its_gradient_is_that_of_differences():
    of, rng = attention(4, 2, 3, 5), np.random.default_rng(2)
    x, g = rng.normal(size=(10, 2 * 4 * 3)), rng.normal(size=(10, 12))
    out = np.empty((10, 12))
    apply(of, out, [x])
    for sequence, head in itertools.product(range(2), range(4)):
        here = x[5 * sequence : 5 * sequence + 5, 12 * (head // 2) : 12 * (head // 2) + 12]
        query, key, value = here[:, 3 * (head % 2) :][:, :3], here[:, 6:9], here[:, 9:]
        for t in range(5):
            weights = np.exp(query[t] @ key[: t + 1].T / np.sqrt(3))
            wanted = weights @ value[: t + 1] / weights.sum()
            at = out[5 * sequence + t, 3 * head : 3 * head + 3]
            assert np.allclose(at, wanted)
    made = np.empty_like(x)
    apply(gradient(of), made, [g, x])
    assert np.allclose(made, differences(of, x, g), atol=1e-5)


def test_a_backward_pass_is_the_derivative_of_the_forward_one():
    chain = preset("llama3-8b:block", 1, backward=True)
    assert {"dX", "dW1", "dW2", "dWqkv", "dWo"} <= set(chain.matrices)
    small = layers(3, (4, 6, 5), ("silu",), backward=True)
    values = by_numpy(small, given_of(small))
    made = lambda name, at, step: _moved_sum(small, values, name, at, step)
    for name in ("X", "W1", "W2"):
        for at in ((0, 0), (2, 3)):
            slope = (made(name, at, 1e-6) - made(name, at, -1e-6)) / 2e-6
            assert slope == pytest.approx(values[f"d{name}"][at], abs=1e-4)


def _moved_sum(chain, values, name, at, step):
    moved = {each: values[each].copy() for each in ("X", "W1", "W2", "dY2")}
    moved[name][at] += step
    return (by_numpy(chain, moved)["Y2"] * values["dY2"]).sum()


def test_presets_have_the_published_shapes():
    parameters = lambda name: sum(
        each.rows * each.cols * each.count
        for each in preset(name).matrices.values()
        if each.kind == "weight"
    )
    # parameters of a layer without norms, times the layers: 175B, 8B, 70B, 405B but for embeddings
    for name, count, total in (
        ("gpt3", 96, 174e9),
        ("llama3-8b", 32, 6.98e9),
        ("llama3-70b", 80, 68.5e9),
        ("llama3-405b", 126, 401.6e9),
        ("mistral-7b", 32, 6.98e9),
        ("mixtral-8x7b", 32, 46.4e9),
        ("qwen2.5-72b", 80, 70.2e9),
    ):
        assert count * parameters(f"{name}:block") == pytest.approx(total, rel=0.01)
    assert parameters("deepseek-v3:mlp") == 3 * 7168 * 18432
    assert parameters("deepseek-v3:shared-expert") == 3 * 7168 * 2048
    assert parameters("deepseek-v3:experts") == 256 * 3 * 7168 * 2048
    assert len(presets()) == 3 * (len(MODELS) - 1) + 6


@pytest.fixture(scope="module")
def costs():
    return Costs(TOY, 2, "float64", LAYOUTS)  # a table is made once


@pytest.mark.parametrize("backward", [False, True])
def test_the_search_is_that_of_trying_every_layout_of_every_matrix(costs, backward):
    chain = layers(8, (4, 8, 4), ("relu",), backward=backward)
    domains = costs.domains(chain)
    factors = costs.factors(chain, domains)
    found = search(domains, factors)
    least = min(
        sum(
            min(label.serial_s for label in each.table[tuple(known[name] for name in each.scope)])
            for each in factors
        )
        for known in (dict(zip(domains, every)) for every in itertools.product(*domains.values()))
    )
    assert isclose(found.serial_s, least) and set(domains) <= set(dict(found.chosen))


def test_a_multiplication_costs_what_its_redistributions_and_its_program_cost():
    chain, costs = layers(8, (4, 8), ()), Costs(replace(TOY, adds_on_core=True), 2, "float64")
    (each,) = chain.multiplications
    domains = costs.domains(chain)
    factor = costs.factors(chain, domains)[-1]
    inner = list(itertools.product(LAYOUTS, LAYOUTS, (*LAYOUTS, "P")))
    programs = {made: list(costs._multiplications(chain, each, made)) for made in inner}

    @cache
    def moved_s(name, one, two):
        moves = costs._moved(chain, name, one, two, EVERYTHING, (each.c, name))
        return min((way.serial_s for way in moves), default=np.inf)

    for key, labels in factor.table.items():
        known = dict(zip(factor.scope, key))
        least = min(
            min(program.seconds for program in programs[a, b, c])
            + moved_s("X", known["X"], a)
            + moved_s("W1", known["W1"], b)
            + moved_s("Y1", c, known["Y1"])
            for a, b, c in inner
            if programs[a, b, c]
        )
        assert isclose(min(label.serial_s for label in labels), least), known


def test_no_contender_is_faster_than_the_choice_and_memory_is_limited():
    chain, few = layers(64, (16, 64, 16), ("gelu",)), ("row", "column", "R")
    free = choose(chain, Costs(TOY, 4, layouts=few))
    assert {each.name for each in free.contenders} == set(known_contenders(chain))
    assert all(free.best.time_s <= each.time_s for each in free.contenders)
    limit = int(0.9 * free.best.memory_bytes)
    tight = choose(chain, Costs(TOY, 4, layouts=few), limit=limit)
    assert tight.best.memory_bytes <= limit and tight.best.time_s >= free.best.time_s
    with pytest.raises(OutOfMemory, match="Use more ranks"):
        choose(chain, Costs(TOY, 4, layouts=("row",)), limit=64)


def test_many_layers_weights_are_not_copied_where_one_layers_are():
    chain, few = layers(64, (16, 64, 16), ("relu",)), ("row", "R")
    one = choose(chain, Costs(TOY, 4, layouts=few), limit=60000)
    many = choose(chain, Costs(TOY, 4, layouts=few, layers=8), limit=60000)
    weights = lambda found: [found.best.layouts[name] for name in ("W1", "W2")]
    assert weights(one) == ["R", "R"] and weights(many) != ["R", "R"]
    held = sum(  # 16·64 elements of 4 bytes each, on one rank or cut in four
        16 * 64 * 4 // (1 if layout == "R" else 4) for layout in weights(many)
    )
    assert 8 * held <= 60000


@pytest.mark.parametrize("name", ["megatron", "sequence parallel", "fsdp"])
def test_contenders_are_laid_out_as_they_are_published(name):
    known, _ = known_contenders(preset("llama3-70b:block"))[name]
    assert known == {
        "megatron": {"X": "R", "QKV": "column", "Y1": "column"},
        "sequence parallel": {"X": "row", "QKV": "column", "Y1": "column"},
        "fsdp": dict.fromkeys(("X", "QKV", "Y1"), "row"),
    }[name] | (
        dict.fromkeys(("Wqkv", "Wo", "W1", "W2"), "row")
        if name == "fsdp"
        else {"Wqkv": "column", "Wo": "row", "W1": "column", "W2": "row"}
    )


def test_gathers_of_weights_are_hidden_by_other_operations_unless_the_core_moves_data():
    chain = layers(256, (256, 256, 256), ("relu",))
    fixed = dict.fromkeys(("X", "W1", "Y1", "W2"), "row")
    hidden = choose(chain, Costs(TOY, 4, layouts=("row", "R")), fixed=fixed)
    serial = choose(
        chain, Costs(replace(TOY, adds_on_core=True), 4, layouts=("row", "R")), fixed=fixed
    )
    (fsdp,) = (each for each in hidden.contenders if each.name == "fsdp")
    assert any(use.hidden for use in fsdp.uses)
    serial_s = sum(use.program.seconds for use in fsdp.uses)
    assert fsdp.time_s < 0.95 * serial_s
    assert not any(use.hidden for each in serial.tried for use in each.uses)


def test_chains_of_the_library_are_chosen_from_programs_it_can_run():
    chain = layers(64, (16, 64, 16), ("relu",), backward=True)
    few = ("row", "column", "R")
    found, free = (
        choose(chain, Costs(TOY, 4, layouts=few), programs=programs)
        for programs in (LIBRARY, EVERYTHING)
    )
    assert all(use.program.name in LIBRARY for use in found.best.uses)
    assert found.best.time_s >= free.best.time_s * (1 - 1e-9)


def test_a_layout_with_cut_heads_or_with_several_tiles_is_refused(costs):
    chain = preset("llama3-8b:attention", 4)
    assert "row" not in costs.domains(chain)["QKV"]  # a sequence is not cut
    assert "column" in costs.domains(chain)["QKV"]
    with pytest.raises(UnsupportedError, match="one with a tile a rank"):
        Costs(TOY, 2, layouts=("tiles:2x2@2x1",)).domains(layers(8, (4, 8), ()))


@pytest.mark.parametrize(
    "wrong, message",
    [
        (lambda: layers(4, (8,)), "at least two widths"),
        (lambda: layers(4, (8, 8, 8), ("relu", "relu")), "one for all"),
        (lambda: layers(4, (8, 8, 8), ("tanh",)), "no function 'tanh'"),
        (lambda: preset("llama3-70b:mpl"), "Did you mean llama3-70b:mlp"),
        (lambda: preset("gpt3:attention", 2050), "whole sequences"),
        (lambda: Chain("x").add("X", 0, 4), "at least one row"),
    ],
)
def test_a_mistake_is_refused_in_one_line_with_the_remedy(wrong, message):
    with pytest.raises(UsageError, match=message):
        wrong()


def test_every_operation_of_a_backward_block_has_its_function():
    chain = preset("gpt3:block", 2048, backward=True)
    of = {each.function.name for each in chain.operations if isinstance(each, Map)}
    assert of == {"attention", "attention_grad", "add", "gelu", "gelu_grad"}


@pytest.mark.parametrize("of", [*map(function, functions()), attention(4, 2, 3, 8)])
def test_the_time_of_a_measured_function_follows_from_its_elements(of):
    """Attention takes the time of its scores and of its GEMMs."""
    compute = Compute(1e9, memory_bytes_per_s=1e9)
    machine = lambda **known: replace(TOY, compute=replace(compute, functions=known))
    seconds = lambda machine: function_s(machine, of, (16, 4 * of.gives), 4)
    gemms_s = sum(compute.gemm_s(*each) for each in of.gemms(16, 4 * of.gives))
    elements = 16 * 4 * of.gives if not of.heads else 16 * 2 * 4 * 8
    text = seconds(machine(**{of.name: 1e-3}))
    assert text == pytest.approx(1e-3 * elements + gemms_s)
    read = sum(16 * 4 * taken for taken in of.takes)
    assert seconds(machine()) == pytest.approx((read + 16 * 4 * of.gives) * 4e-9 + gemms_s)


@pytest.mark.parametrize("name", functions())
def test_a_function_allocates_no_more_than_eight_temporary_panels(name):
    """Arrays as large as the matrix would be returned to the system and page-faulted again."""
    of = function(name)
    out = np.empty((600, 512 * of.gives), np.float32)
    taken = [np.ones((600, 512 * each), np.float32) for each in of.takes]
    apply(of, out, taken)
    tracemalloc.start()
    apply(of, out, taken)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most <= 8 * 4 * (1 << 15) + 20000


def spent_s(chain, *asked, **how):
    """CPU seconds of a choice, and the choice."""
    began = time.process_time()
    found = choose(chain, Costs(*asked, **how))
    return time.process_time() - began, found


def test_a_search_takes_a_second_of_the_processor():
    """0.4 s on an EPYC of 2026: as many programs as that of the whole layer below, on four ranks of
    two layouts."""
    chain = preset("llama3-70b:mlp")
    seconds, found = spent_s(chain, find_machine("h100x8"), 4, layouts=("row", "R"))
    assert found.best.time_s > 0 and seconds < 4


@pytest.mark.thorough
def test_a_layer_of_llama_70b_is_laid_out_within_half_a_minute():
    """3 s of the processor, on an EPYC; no contender is faster."""
    seconds, found = spent_s(preset("llama3-70b:mlp"), find_machine("h100x8"), 8)
    assert seconds < 20
    assert found.best.time_s <= min(each.time_s for each in found.contenders)
