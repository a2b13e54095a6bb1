"""Functions between multiplications, their gradients and their times; chains of presets."""

import itertools
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from drbench.chains.model.costs import LayoutCosts, function_s
from drbench.chains.model.description import Chain, LocalMap
from drbench.chains.model.functions import apply, attention, function, functions, gradient
from drbench.chains.model.mesh import DeviceMesh
from drbench.chains.model.transformers import MODELS, preset, presets
from drbench.errors import UsageError
from drbench.model.gemm import Compute
from drbench.model.machine import Machine

TOY = Machine("toy", Compute(1e9, memory_bytes_per_s=1e9, launch_s=1e-6))


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


@pytest.mark.parametrize("extents", [(4,), (8,), (16,), (2, 8), (8, 2)])
def test_sequences_and_heads_are_not_cut(extents):
    """4 sequences, 8 key/value heads: rows in 2 or 4 parts, columns in 2, 4 or 8."""
    mesh = DeviceMesh(("dp", "tp")[-len(extents) :], extents)
    chain = preset("llama3-8b:attention", 4 * 8192)
    parts = lambda layout, side: np.prod(
        [n for n, one in zip(extents, layout) if one == f"S({side})"], dtype=int
    )
    wanted = [x for x in mesh.layouts() if 4 % parts(x, 0) == 0 and 8 % parts(x, 1) == 0]
    assert LayoutCosts(TOY, mesh).domains(chain)[chain.variable("QKV")] == wanted


@pytest.mark.parametrize(
    "wrong, message",
    [
        (lambda: function("tanh"), "no function 'tanh'"),
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
    of = {each.function.name for each in chain.operations if isinstance(each, LocalMap)}
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
