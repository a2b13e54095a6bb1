"""Chains in every layout: their programs, run by an interpreter of steps on whole arrays, make what
NumPy makes; their costs are those of trying everything."""

import time
import tracemalloc
from dataclasses import replace
from itertools import product
from math import isclose

import numpy as np
import pytest

from chains.choose import choose, known_contenders
from chains.costs import EVERYTHING, LAYOUTS, Allowed, Costs
from chains.description import Between, Chain, Product, layers
from chains.joints import fences
from chains.presets import MODELS, preset, presets
from chains.program import Bound, traces
from chains.search import search
from drbench.errors import OutOfMemory, UnsupportedError, UsageError
from drbench.host.kernels.elementwise import apply
from drbench.model.gemm import Compute
from drbench.model.machine import Collective, Link, Machine
from drbench.model.simulate import simulate
from drbench.program.elementwise import attention, function, functions
from drbench.program.steps import Accumulate, Block, Gemm, Get, Scratch
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


def by_numpy(chain, values):
    """Every matrix of a chain, from what is given."""
    values = dict(values)
    for each in chain.operations:
        c = chain.matrices[each.c]
        taken = [values[name] for name in each.takes]
        if isinstance(each, Product):
            a, b = (x.T if t in each.transpose else x for x, t in zip(taken, "ab"))
            values[each.c] = a @ b
        else:
            values[each.c] = np.empty((c.rows, c.cols))
            apply(each.function, values[each.c], taken)
    return values


@pytest.mark.parametrize("name", ["relu", "gelu", "silu", "swiglu", "add"])
def test_gradients_are_differences(name):
    of = function(name)
    rng = np.random.default_rng(1)
    x = rng.normal(size=(3, 4 * of.takes[0]))
    g = rng.normal(size=(3, 4))
    if name == "add":
        out = np.empty((3, 4))
        apply(of, out, [x, g])
        assert np.array_equal(out, x + g)
        return
    from drbench.program.elementwise import gradient

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


def test_attention_is_softmax_of_what_came_before_and_its_gradient_differences():
    of, rng = attention(4, 2, 3, 5), np.random.default_rng(2)
    x, g = rng.normal(size=(10, 2 * 4 * 3)), rng.normal(size=(10, 12))
    out = np.empty((10, 12))
    apply(of, out, [x])
    for sequence, head in product(range(2), range(4)):
        here = x[5 * sequence : 5 * sequence + 5, 12 * (head // 2) : 12 * (head // 2) + 12]
        query, key, value = here[:, 3 * (head % 2) :][:, :3], here[:, 6:9], here[:, 9:]
        for t in range(5):
            weights = np.exp(query[t] @ key[: t + 1].T / np.sqrt(3))
            wanted = weights @ value[: t + 1] / weights.sum()
            at = out[5 * sequence + t, 3 * head : 3 * head + 3]
            assert np.allclose(at, wanted)
    from drbench.program.elementwise import gradient

    made = np.empty_like(x)
    apply(gradient(of), made, [g, x])
    assert np.allclose(made, differences(of, x, g), atol=1e-5)


def test_a_backward_pass_is_the_derivative_of_the_forward_one():
    chain = preset("llama3-8b:block", 1, backward=True)
    assert {"dX", "dW1", "dW2", "dWqkv", "dWo"} <= set(chain.matrices)
    small = layers(3, (4, 6, 5), ("silu",), backward=True, loops=False)
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
        each.rows * each.cols for each in preset(name).matrices.values() if each.kind == "weight"
    )
    # parameters of a layer without norms, times the layers: 175B, 8B, 70B, 405B but for embeddings
    for name, count, total in (
        ("gpt3", 96, 174e9),
        ("llama3-8b", 32, 6.98e9),
        ("llama3-70b", 80, 68.5e9),
        ("llama3-405b", 126, 401.6e9),
    ):
        assert count * parameters(f"{name}:block") == pytest.approx(total, rel=0.01)
    assert parameters("deepseek-v3:mlp") == 3 * 7168 * 18432
    assert parameters("deepseek-v3:shared-expert") == 3 * 7168 * 2048
    assert len(presets()) == 3 * len(MODELS) + 5


@pytest.fixture(scope="module")
def costs():
    return Costs(TOY, 2, "float64", LAYOUTS)  # a table is made once


@pytest.mark.parametrize("backward", [False, True])
def test_the_choice_is_that_of_trying_every_layout_of_every_matrix(costs, backward):
    chain = layers(8, (4, 8, 4), ("relu",), backward=backward)
    factors, domains = costs.factors(chain), costs.domains(chain)
    found, chosen = search(domains, factors)
    least = min(
        sum(
            min(label.time_s for label in each.table[tuple(known[name] for name in each.scope)])
            for each in factors
        )
        for known in (dict(zip(domains, every)) for every in product(*domains.values()))
    )
    assert isclose(found.time_s, least) and set(chosen) == set(domains)


def test_a_way_costs_what_its_moves_and_its_product_cost(costs):
    chain = layers(8, (4, 8), ())
    (each,) = chain.products
    factor = costs.factor(chain, each, costs.domains(chain), EVERYTHING)
    for key, labels in factor.table.items():
        known = dict(zip(factor.scope, key))
        least = np.inf
        for a, b, c in product(LAYOUTS, LAYOUTS, (*LAYOUTS, "P")):
            multiplied = costs._products_in(chain, each, (a, b, c), EVERYTHING)
            ways = [
                costs._moved(chain, name, one, two, EVERYTHING)
                for name, one, two in (
                    ("X", known["X"], a),
                    ("W1", known["W1"], b),
                    ("Y1", c, known["Y1"]),
                )
            ]
            if multiplied and all(ways):
                least = min(least, sum(min(x.time_s for x in y) for y in (multiplied, *ways)))
        assert isclose(min(label.time_s for label in labels), least), known


def test_no_contender_is_faster_than_the_choice_and_memory_is_kept():
    chain, few = layers(64, (16, 64, 16), ("gelu",)), ("row", "column", "R")
    free = choose(chain, TOY, 4, layouts=few)
    assert {each.name for each in free.contenders} == set(known_contenders(chain))
    assert all(free.best.time_s <= each.time_s for each in free.contenders)
    limit = int(0.9 * free.best.memory_bytes)
    tight = choose(chain, TOY, 4, layouts=few, limit=limit)
    assert tight.best.memory_bytes <= limit and tight.best.time_s >= free.best.time_s
    with pytest.raises(OutOfMemory, match="Use more ranks"):
        choose(chain, TOY, 4, layouts=("row",), limit=64)


def test_many_layers_weights_are_not_copied_where_one_layers_are():
    chain, few = layers(64, (16, 64, 16), ("relu",)), ("row", "R")
    one = choose(chain, TOY, 4, layouts=few, limit=60000)
    many = choose(chain, TOY, 4, layouts=few, limit=60000, layers=8)
    weights = lambda found: [found.best.bound.layouts[name] for name in ("W1", "W2")]
    assert weights(one) == ["R", "R"] and weights(many) != ["R", "R"]
    held = sum(  # 16·64 elements of 4 bytes each, on one rank or cut in four
        16 * 64 * 4 // (1 if layout == "R" else 4) for layout in weights(many)
    )
    assert 8 * held <= 60000


@pytest.mark.parametrize("name", ["megatron", "sequence parallel", "fsdp"])
def test_contenders_are_laid_out_as_they_are_published(name):
    known, _ = known_contenders(preset("llama3-70b:block"))[name]
    assert known == {
        "megatron": {"X": "R", "QKV": "column", "G": "column"},
        "sequence parallel": {"X": "row", "QKV": "column", "G": "column"},
        "fsdp": dict.fromkeys(("X", "QKV", "G"), "row"),
    }[name] | (
        dict.fromkeys(("Wqkv", "Wo", "W1", "W2"), "row")
        if name == "fsdp"
        else {"Wqkv": "column", "Wo": "row", "W1": "column", "W2": "row"}
    )


def test_the_next_products_weights_are_read_while_this_one_multiplies():
    """One program: the whole takes less time than its operations one after another."""
    chain = layers(256, (256, 256, 256), ("relu",))
    layouts = dict.fromkeys(("X", "Y1"), "row") | dict.fromkeys(("W1", "W2"), "row")
    found = Costs(TOY, 4, "float64", ("row",))
    gathered = found.factors(chain, Allowed(("gather B",), ()))
    label, chosen = search(found.domains(chain), gathered, fixed=layouts)
    bound = Bound(chain, 4, chosen, dict(label.notes), "float64")
    whole = simulate(traces(bound), TOY, prefetch=1)
    assert whole.time_s < 0.9 * label.time_s


def test_a_layout_that_does_not_hold_whole_heads_or_several_tiles_is_refused(costs):
    chain = preset("llama3-8b:attention", 4)
    assert "row" not in costs.domains(chain)["QKV"]  # a sequence is not cut
    assert "column" in costs.domains(chain)["QKV"]
    with pytest.raises(UnsupportedError, match="one with a tile a rank"):
        Costs(TOY, 2, layouts=("tiles:2x2@2x1",)).domains(layers(8, (4, 8), ()))


@pytest.mark.parametrize(
    "wrong, said",
    [
        (lambda: layers(4, (8,)), "at least two widths"),
        (lambda: layers(4, (8, 8, 8), ("relu", "relu")), "one for all"),
        (lambda: layers(4, (8, 8, 8), ("tanh",)), "no function 'tanh'"),
        (lambda: preset("llama3-70b:mpl"), "Did you mean llama3-70b:mlp"),
        (lambda: preset("gpt3:attention", 2050), "whole sequences"),
        (lambda: Chain("x").add("X", 0, 4), "at least one row"),
    ],
)
def test_a_mistake_is_one_line_with_the_way_out(wrong, said):
    with pytest.raises(UsageError, match=said):
        wrong()


def test_every_operation_of_a_backward_block_has_its_function():
    chain = preset("gpt3:block", 2048, backward=True)
    of = {each.function.name for each in chain.operations if isinstance(each, Between)}
    assert of == {"attention", "attention_grad", "add", "gelu", "gelu_grad"}


@pytest.mark.parametrize("of", [*map(function, functions()), attention(4, 2, 3, 8)])
def test_a_function_that_was_measured_takes_what_its_elements_do(of):
    """Of attention the scores count, beside its products."""
    compute = Compute(1e9, memory_bytes_per_s=1e9)
    chain = Chain("one")
    names = [chain.add(f"X{x}", 16, 4 * taken, "input") for x, taken in enumerate(of.takes)]
    chain.between("Y", of, *names)
    machine = lambda **known: replace(TOY, compute=replace(compute, functions=known))
    seconds = lambda machine: Costs(machine, 1).machine_s(chain.operations[0], (16, 4 * of.gives))
    products_s = sum(compute.gemm_s(*each) for each in of.products(16, 4 * of.gives))
    elements = 16 * 4 * of.gives if not of.heads else 16 * 2 * 4 * 8
    told = seconds(machine(**{of.name: 1e-3}))
    assert told == pytest.approx(1e-3 * elements + products_s)
    read = sum(16 * 4 * taken for taken in of.takes)
    assert seconds(machine()) == pytest.approx((read + 16 * 4 * of.gives) * 4e-9 + products_s)


@pytest.mark.parametrize("name", functions())
def test_a_function_holds_no_more_than_two_panels_on_the_way(name):
    """Arrays made for each step of a formula are given back and faulted in again."""
    of = function(name)
    out = np.empty((600, 512 * of.gives), np.float32)
    taken = [np.ones((600, 512 * each), np.float32) for each in of.takes]
    apply(of, out, taken)
    tracemalloc.start()
    apply(of, out, taken)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most <= 2 * 4 * (1 << 15) + 20000


def spent_s(*asked, **how):
    """Seconds of the processor that a choice takes, and the choice."""
    began = time.process_time()
    found = choose(*asked, **how)
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


def test_a_fence_comes_before_own_tiles_are_read_that_others_have_added_to():
    """Also if their owner has written them since: what others add may still be on its way."""
    tile = lambda: Block("X", 0, 0, (0, 0), 0, 4, 0, 4)

    def by_another():
        token = Scratch((4, 4))
        return [[], [token, Accumulate(token, tile())]]

    def by_itself():
        a, b = Scratch((4, 4)), Scratch((4, 4))
        return [[a, b, Gemm(a, b, into=tile())], []]

    def read():
        mine = Get(tile())
        return [[mine, Gemm(mine, mine)], []]

    def needed(*parts):
        return fences([[part[rank] for part in parts] for rank in range(2)])

    assert needed(by_itself(), read()) == [False, False]
    assert needed(by_another(), read()) == [False, True]
    assert needed(by_another(), by_itself(), read()) == [False, False, True]
