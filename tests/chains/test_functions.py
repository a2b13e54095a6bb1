"""Functions between multiplications, their gradients and their times; chains of presets."""

import itertools
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from whole_models import count_parameters, of_layer

from drbench.chains.model.costs import LayoutCosts, function_s
from drbench.chains.model.description import Chain, LocalMap
from drbench.chains.model.functions import (
    apply,
    attention,
    columns,
    function,
    function_seconds,
    functions,
    gradient,
    latent_attention,
)
from drbench.chains.model.mesh import DeviceMesh
from drbench.chains.model.transformers import MODELS, preset, presets
from drbench.errors import UnsupportedError, UsageError
from drbench.launch.cases.machine_models import find_machine
from drbench.model.gemm import Compute
from drbench.model.machine import Machine

TOY = Machine("toy", Compute(1e9, memory_bytes_per_s=1e9, launch_s=1e-6))


@pytest.mark.parametrize("name", ["relu", "gelu", "silu", "swiglu", "geglu", "add"])
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


@pytest.mark.parametrize("gated, of", [("swiglu", "silu"), ("geglu", "gelu")])
def test_a_gate_multiplies_the_other_of_each_pair_of_columns(gated, of):
    x = np.random.default_rng(1).normal(size=(3, 8))
    out, gate = np.empty((3, 4)), np.empty((3, 4))
    apply(function(gated), out, [x])
    apply(function(of), gate, [np.ascontiguousarray(x[:, ::2])])
    assert np.allclose(out, gate * x[:, 1::2])


def differences(of, x, g, step=1e-6, before=(), after=()):
    found = np.empty_like(x)
    for at in np.ndindex(x.shape):
        ends = []
        for sign in (1, -1):
            moved = x.copy()
            moved[at] += sign * step
            out = np.empty(g.shape)
            apply(of, out, [*before, moved, *after])
            ends.append((out * g).sum())
        found[at] = (ends[0] - ends[1]) / (2 * step)
    return found


@pytest.mark.parametrize("window", [0, 1, 3, 5, 9])
def test_attention_is_causal_softmax_and_its_gradient_is_that_of_differences(window):
    of, rng = attention(4, 2, 3, 5, window), np.random.default_rng(2)
    x, g = rng.normal(size=(10, 2 * 4 * 3)), rng.normal(size=(10, 12))
    out = np.empty((10, 12))
    apply(of, out, [x])
    for sequence, head in itertools.product(range(2), range(4)):
        here = x[5 * sequence : 5 * sequence + 5, 12 * (head // 2) : 12 * (head // 2) + 12]
        query, key, value = here[:, 3 * (head % 2) :][:, :3], here[:, 6:9], here[:, 9:]
        for t in range(5):
            seen = slice(max(0, t + 1 - (window or 5)), t + 1)
            weights = np.exp(query[t] @ key[seen].T / np.sqrt(3))
            wanted = weights @ value[seen] / weights.sum()
            at = out[5 * sequence + t, 3 * head : 3 * head + 3]
            assert np.allclose(at, wanted)
    made = np.empty_like(x)
    apply(gradient(of), made, [g, x])
    assert np.allclose(made, differences(of, x, g), atol=1e-5)


def test_latent_attention_is_softmax_of_wider_keys_and_its_gradients_are_those_of_differences():
    of, rng = latent_attention(2, 3, 2, 4), np.random.default_rng(2)
    q, kv, g = (rng.normal(size=(8, 2 * width)) for width in (5, 6, 3))
    out = np.empty((8, 6))
    apply(of, out, [q, kv])
    for sequence, head, t in itertools.product(range(2), range(2), range(4)):
        rows = slice(4 * sequence, 4 * sequence + t + 1)
        query, pair = q[rows, 5 * head :][-1, :5], kv[rows, 6 * head :]
        key = pair[:, [0, 1, 2, 0, 1]]
        weights = np.exp(key @ query / np.sqrt(5))
        wanted = weights @ pair[:, 3:6] / weights.sum()
        assert np.allclose(out[4 * sequence + t, 3 * head : 3 * head + 3], wanted)
    for position, x in enumerate((q, kv)):
        made, back = np.empty_like(x), gradient(of, position)
        assert back.takes == (3, 5, 6) and back.gives == (5, 6)[position]
        apply(back, made, [g, q, kv])
        others = {"before": [q] * position, "after": [kv] * (1 - position)}
        assert np.allclose(made, differences(of, x, g, **others), atol=1e-5)


def test_first_columns_are_a_view_and_their_gradient_pads_with_zeros():
    of, x = columns(5, 3), np.arange(10.0).reshape(2, 5)
    out, made = np.empty((2, 3)), np.empty((2, 5))
    apply(of, out, [x])
    apply(gradient(of), made, [out])
    assert out.tolist() == [[0, 1, 2], [5, 6, 7]]
    assert made.tolist() == [[0, 1, 2, 0, 0], [5, 6, 7, 0, 0]]
    assert function_s(TOY, of, (2, 3), 4) == function_s(TOY, gradient(of), (2, 5), 4) == 0
    assert columns(5, 5).gives == 5


@pytest.mark.parametrize(
    "of, scores",
    [
        (attention(8, 2, 16, 64), 64),
        (attention(8, 2, 16, 64, 24), 24),
        (attention(8, 2, 16, 64, 100), 64),
        (attention(8, 2, 16, context=1000), 1000),
        (attention(8, 2, 16, context=1000, window=100), 100),
    ],
)
def test_attention_multiplies_the_tokens_that_a_token_sees(of, scores):
    """Two GEMMs of a rank's heads, five of the gradient; one element a score."""
    cols = 2 * of.gives
    assert flops(of, 128, cols) == 2 * 2 * 128 * 8 * 16 * scores
    assert of.elements(128, cols) == 128 * 8 * scores
    if not of.context:
        back = gradient(of)
        assert flops(back, 128, 2 * back.gives) == 5 * 2 * 128 * 8 * 16 * scores
        assert back.elements(128, 2 * back.gives) == 128 * 8 * scores


def flops(of, rows, cols):
    return sum(2 * m * n * k for m, n, k in of.gemms(rows, cols))


def test_latent_attention_multiplies_wider_keys_or_the_cache():
    of, cached = latent_attention(4, 128, 64, 512), latent_attention(4, 128, 64, context=512)
    assert flops(of, 512, 4 * 128) == 2 * 512 * 4 * 512 * (192 + 128)
    assert flops(cached, 512, 4 * 128) == 2 * 512 * 4 * 512 * (576 + 512)
    back = [gradient(of, position) for position in (0, 1)]
    total = sum(flops(each, 512, 4 * each.gives) for each in back)
    assert total == 2 * 512 * 4 * 512 * (3 * 192 + 2 * 128)
    assert {each.elements(512, 4 * each.gives) for each in back} == {512 * 4 * 512}
    assert latent_attention(1, 64, 64, 512).takes == (128, 128)  # the widest rotary key


GPU = find_machine("dgxh100").for_dtype("bfloat16")
PREFILL, LATENT, SHEET = GPU.prefill, GPU.latent_prefill, GPU.compute


@pytest.mark.parametrize(
    "of, shape, expected",
    [
        (
            attention(32, 8, 128, 4096, 1024),
            (8192, 4096),
            PREFILL.prepare_s(SHEET, 2, 4096, 32, 8, 128)
            + PREFILL.attend_s(SHEET, 2, 4096, 32, 128, 1024),
        ),
        (
            latent_attention(128, 128, 64, 4096),
            (4096, 2048),  # 16 heads of a rank
            LATENT.prepare_s(SHEET, 1, 4096, 16, 1, 0) + LATENT.attend_s(SHEET, 1, 4096, 16, 0),
        ),
        (
            gradient(latent_attention(128, 128, 64, 4096), 0),
            (4096, 16 * 192),
            SHEET.launch_s + 0.5 * LATENT.attend_s(SHEET, 1, 4096, 16, 0),
        ),
        (
            gradient(latent_attention(128, 128, 64, 4096), 1),
            (4096, 16 * 256),
            SHEET.launch_s + 2.0 * LATENT.attend_s(SHEET, 1, 4096, 16, 0),
        ),
        (
            attention(64, 8, 128, context=8192),
            (32, 1024),  # of a key/value head
            GPU.decode.seconds(SHEET, 32, 8, 1, 128, 8192),
        ),
        (
            attention(64, 8, 128, context=8192, window=128),
            (32, 2048),
            GPU.decode.seconds(SHEET, 32, 16, 2, 128, 8192, 128),
        ),
        (
            latent_attention(128, 128, 64, context=8192),
            (32, 2048),
            GPU.latent_decode.seconds(SHEET, 32, 16, 1, 0, 8192),
        ),
    ],
)
def test_attention_of_a_gpu_takes_the_time_of_its_kernel(of, shape, expected):
    assert function_s(GPU, of, shape, 2) == pytest.approx(expected)


@pytest.mark.parametrize(
    "of, cols, cached",
    [
        (attention(32, 32, 128, context=8192), 4096, 32 * 256 * 8192),
        (attention(32, 32, 128, context=8192, window=128), 4096, 32 * 256 * 128),
        (latent_attention(16, 128, 64, context=8192), 2048, 576 * 8192),
    ],
)
def test_a_cache_without_a_kernel_is_read_while_gemms_run(of, cols, cached):
    read_s = function_s(
        replace(TOY, compute=replace(TOY.compute, peak_flops=1e15)), of, (4, cols), 4
    )
    assert read_s == pytest.approx(1e-6 + 4 * 4 * cached / 1e9)
    slow = Compute(1e6, memory_bytes_per_s=1e12)
    gemms_s = sum(slow.gemm_s(*sizes, 4) for sizes in of.gemms(4, cols))
    assert function_s(Machine("slow", slow), of, (4, cols), 4) == gemms_s > 0


def test_the_kernel_of_a_cache_needs_constants_and_at_most_16_bits():
    of, shape = attention(64, 8, 128, context=8192), (32, 1024)
    small = GPU.decode.seconds(SHEET, 32, 8, 1, 128, 8192, 0, 1)
    assert function_s(GPU, of, shape, 1) == pytest.approx(small)
    assert small < function_s(GPU, of, shape, 2)
    read_s = lambda item: SHEET.memory_s(item * 32 * 8192 * 256)
    assert function_s(GPU, of, shape, 4) == pytest.approx(read_s(4))
    assert function_s(replace(GPU, decode=None), of, shape, 2) == pytest.approx(read_s(2))


def test_a_cache_is_for_estimates_of_the_forward_pass():
    of = attention(4, 2, 3, context=5)
    with pytest.raises(UsageError, match="--decode has no backward pass"):
        gradient(of)
    with pytest.raises(UnsupportedError, match="cannot run"):
        apply(of, np.empty((1, 12)), [np.empty((1, 24))])


#: Parameters in billions.
PUBLISHED = {
    "gpt3": 174.6,
    "gpt-22b": 22.1,
    "llama3-8b": 8.03,
    "llama3-70b": 70.6,
    "llama3-405b": 405.9,
    "mistral-7b": 7.24,
    "mixtral-8x7b": 46.7,
    "gemma2-9b": 9.24,
    "gemma3-27b": 27.0,
    "qwen2.5-72b": 72.7,
    "qwen3-30b-a3b": 30.5,
    "qwen3-235b-a22b": 235,
    "gpt-oss-120b": 116.8,
    "deepseek-v3": 671,
    "kimi-k2": 1026,
}


def test_presets_have_the_published_shapes():
    """Of the whole model, without norms, routers and biases."""
    for name, billions in PUBLISHED.items():
        assert count_parameters(name) == pytest.approx(billions * 1e9, rel=0.01)
    assert PUBLISHED.keys() == MODELS.keys()
    assert of_layer("deepseek-v3:mlp") == 3 * 7168 * 18432
    assert of_layer("deepseek-v3:shared-expert") == 3 * 7168 * 2048
    assert of_layer("deepseek-v3:experts") == 256 * 3 * 7168 * 2048
    assert {each for each in presets() if each.startswith("gpt-oss")} == {
        f"gpt-oss-120b:{part}"
        for part in ("experts", "attention", "attention-window", "block", "block-window", "model")
    }


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


@pytest.mark.parametrize(
    "of", [*map(function, functions()), attention(4, 2, 3, 8), attention(4, 2, 3, 8, 5)]
)
def test_the_time_of_a_measured_function_follows_from_its_elements(of):
    """Attention takes the time of its scores and of its GEMMs."""
    compute = Compute(1e9, memory_bytes_per_s=1e9)
    machine = lambda **known: replace(TOY, compute=replace(compute, functions=known))
    seconds = lambda machine: function_s(machine, of, (16, 4 * of.gives), 4)
    gemms_s = sum(compute.gemm_s(*each) for each in of.gemms(16, 4 * of.gives))
    elements = 16 * 4 * of.gives if not of.heads else 16 * 2 * 4 * of.seen
    text = seconds(machine(**{of.name: 1e-3}))
    assert text == pytest.approx(1e-3 * elements + gemms_s)
    read = sum(16 * 4 * taken for taken in of.takes)
    assert seconds(machine()) == pytest.approx((read + 16 * 4 * of.gives) * 4e-9 + gemms_s)


def test_every_function_is_measured_but_views():
    counts = []

    def measure(call):
        call()
        counts.append(1)
        return 1.0

    heads = attention(4, 2, 3, 8), latent_attention(2, 3, 2, 8)
    wanted = {each.name for each in (*heads, *(gradient(heads[x], y) for x, y in GRADIENTS))}
    assert function_seconds(measure, "f4").keys() == {*functions(), *wanted}
    assert len(counts) == len(functions()) + 5 + 2 + 2 + 5 + 1 + 4  # functions, and their GEMMs


#: Of attention and of latent attention, by input.
GRADIENTS = (0, 0), (1, 0), (1, 1)


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
