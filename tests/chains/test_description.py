"""What a chain is: read from a text, a config.json or a name; layers of experts and their
gradients."""

import json

import numpy as np
import pytest
from chains_by_numpy import by_numpy
from layer_chains import layers
from whole_models import count_parameters, of_layer

from drbench.algorithms.overlap.experts import ExpertProblem
from drbench.chains.model.description import LocalMap, read
from drbench.chains.model.transformers import model_sizes, preset, presets, read_config, text_of
from drbench.chains.order import Asked
from drbench.errors import UsageError

EXPERTS = """
    X = input({tokens}, 4)
    W1 = weight(4, 2 * 3, experts=3)
    Y1 = experts(X, W1, topk={topk})  # pairs
    H1 = swiglu(Y1)
    W2 = weight(3, 4, experts=3)
    Y2 = experts(H1, W2, topk={topk})  # tokens
    S = X + Y2
"""


def given_of(chain, rng):
    shape = lambda each: (each.count, *each.shape) if each.count > 1 else each.shape
    return {
        name: rng.normal(size=shape(each))
        for name, each in chain.matrices.items()
        if each.kind != "made"
    }


@pytest.mark.parametrize(
    "text",
    [
        *(EXPERTS.format(tokens=5, topk=topk) for topk in (1, 2, 3)),
        "X = input(4, 3)\nV = weight(3, 3)\nA = X @ V\nW = weight(3, 3)\nB = X @ W\nC = A + B\n"
        "U = weight(3, 3)\nD = X @ U\nE = C + D\nS = E + X",  # X is used four times
        "X = input(3, 3)\nY = X @ X\nS = Y + Y",
        # latent attention: X is used by queries, and by keys and values
        "X = input(4, 6)\nWq = weight(6, 6)\nQ = X @ Wq\nWkva = weight(6, 5)\nL = X @ Wkva\n"
        "C = columns(L, first=4)\nWkvb = weight(4, 8)\nKV = C @ Wkvb\n"
        "O = latent_attention(Q, KV, heads=2, head_dim=2, rotary=1, sequence=2)\n"
        "Wo = weight(4, 6)\nY = O @ Wo",
    ],
)
def test_gradients_of_a_chain_are_those_of_finite_differences(text):
    chain, rng = read(text, "some", backward=True), np.random.default_rng(3)
    given = given_of(chain, rng)
    values = by_numpy(chain, given)

    def total(name, at, step):
        moved = {each: value.copy() for each, value in given.items()}
        moved[name][at] += step
        found = by_numpy(chain, moved)
        return (found[result] * values[f"d{result}"]).sum()

    result = next(reversed(read(text, "some").matrices))
    for name in given.keys() - {f"d{result}"}:
        gradient = values[f"d{name}"]
        assert gradient.shape == given[name].shape
        for at in np.ndindex(gradient.shape):
            slope = (total(name, at, 1e-6) - total(name, at, -1e-6)) / 2e-6
            assert slope == pytest.approx(gradient[at], abs=1e-5)


@pytest.mark.parametrize("topk", [1, 2, 3])
def test_layers_of_experts_have_the_shapes_and_the_work_of_their_algorithms(topk):
    chain = read(EXPERTS.format(tokens=5, topk=topk), "experts", backward=True)
    dense = layers(5, (4, 3, 4), ("swiglu",), backward=True)
    assert chain.flops == topk * dense.flops
    for each, second in zip(chain.multiplications[:2], (False, True)):
        pairs, n, k = chain.extents(each)
        assert pairs == 5 * topk and str(each).endswith(f"(3 experts, {topk} a token)")
        known = ExpertProblem(5, n, k, 1, "R", "R", "R", experts=3, topk=topk, second=second)
        a, b, c = (chain.matrices[name] for name in (*each.takes, each.c))
        stacked = b.count * b.rows, b.cols
        assert known.shapes() == {"A": a.shape, "B": stacked, "C": c.shape}
        assert chain.matrices[f"d{each.b}"][1:3] == b[1:3] and chain.is_of_weight(f"d{each.b}")
        assert chain.matrices[f"d{each.b}"].count == 3
    assert chain.variable("S") == "X" and chain.variable("dX") == "X"


def text_from(chain):
    """A chain in lines, made from what it holds."""
    made = {each.c: each for each in chain.operations}
    for name, matrix in chain.matrices.items():
        each = made.get(name)
        if each is None:
            more = f", experts={matrix.count}" if matrix.count > 1 else ""
            yield f"{name} = {matrix.kind}({matrix.rows}, {matrix.cols}{more})"
        elif isinstance(each, LocalMap) and each.function.heads:
            of = each.function
            units = matrix.cols // of.gives
            sizes = f"heads={units * of.heads}, sequence={of.rows}, head_dim={of.head_dim}"
            sizes += f", rotary={of.rotary}" if of.rotary else f", kv_heads={units}"
            sizes += f", window={of.window}" if of.window else ""
            yield f"{name} = {of.name}({', '.join(each.takes)}, {sizes})"
        elif isinstance(each, LocalMap) and each.function.name == "columns":
            yield f"{name} = columns({each.takes[0]}, first={matrix.cols})"
        elif isinstance(each, LocalMap):
            own = f"{each.function.name}({each.takes[0]})"
            yield f"{name} = {' + '.join(each.takes) if len(each.takes) > 1 else own}"
        elif each.experts[1]:
            yield f"{name} = experts({each.a}, {each.b}, topk={each.experts[1]})"
        else:
            yield f"{name} = {each.a} @ {each.b}"


@pytest.mark.parametrize("name", presets())
@pytest.mark.parametrize("backward", [False, True])
def test_the_text_of_a_preset_is_read_as_the_preset(name, backward, tmp_path):
    path = tmp_path / "layer.txt"
    path.write_text("\n".join(text_from(preset(name))))
    found, wanted = preset(str(path), backward=backward), preset(name, backward=backward)
    assert (found.matrices, found.operations) == (wanted.matrices, wanted.operations)
    assert found.variables == wanted.variables and found.name == str(path)
    assert Asked(str(path), path.read_text(), backward).chain() == found


START = "X = input(8, 4)\nW = weight(4, 6)\nE = weight(4, 6, experts=3)\n"


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "mine needs a line X = input"),
        ("X = input(8, 4)", "and a multiplication"),
        ("Z = input(8, 4)\nW = weight(4, 6)\nY = Z @ W", "needs a line X = input"),
        ("X = weight(8, 4)\nW = weight(4, 6)\nY = X @ W", "needs a line X = input"),
        ("# nothing\n\nX = input(8, 0)", "line 3 of mine: 0 is no size. Use integers"),
        ("X = input(8, 4.5)", "4.5 is no size"),
        ("X = input(8, 2 + 2)", "2 \\+ 2 is no size"),
        (START + "Y = X @ V", "line 4 of mine: no line above makes 'V'"),
        (START + "Y = X @ E", "E has 3 experts.* experts\\(X, E, topk=1 to 3\\)"),
        (START + "Y = experts(X, E, topk=4)", "E has 3 experts"),
        (START + "Y = experts(X, W, topk=2)", "W has 1 experts"),
        (START + "Y = experts(X, E)", "is not understood. Write NAME = one of input"),
        (START + "Y = relu(E)", "relu takes 1 columns a unit; got .*count=3"),
        (START + "Y = X @ W\nZ = Y @ W", "do not fit: the one gives 6 columns, 4 are needed"),
        (
            START + "V = input(5, 4)\nY = experts(V, E, topk=2)",
            "V 5 rows. Use experts.*the 8 rows of X",
        ),
        (START + "X = X @ W", "two matrices of a chain are called X"),
        (START + "Y = X @ W", "line 3 of mine: E is not used, and the result is Y"),
        (START + "Y = X @ W @ W", "line 4 of mine: 'Y = X @ W @ W' is not understood"),
        (START + "Y = __import__('os')", "is not understood"),
        (START + "Y = relu_grad(X)", "is not understood"),
        (START + "Y.a = X @ W", "is not understood"),
        (START + "Y = attention(X, heads=2)", "is not understood"),
        (START + "Y = X @ (W", "is not understood"),
        (START + "Y = columns(X, first=5)", "no 5 first columns of 4"),
        (START + "Y = columns(E, first=3)", "columns takes .* got .*count=3"),
        (START + "Y = attention(X, heads=2, kv_heads=1, head_dim=1)", "is not understood"),
        (
            START + "Y = attention(X, heads=2, kv_heads=1, head_dim=1, sequence=8, context=8)",
            "is not understood",
        ),
        (
            START + "Y = attention(X, heads=2, kv_heads=1, head_dim=1, sequence=8, rotary=1)",
            "is not understood",
        ),
        (
            START + "Y = attention(X, heads=4, kv_heads=2, head_dim=1, sequence=8)",
            "4 heads of 1 columns, but X 2",
        ),
        (
            START + "Y = latent_attention(X, X, heads=2, head_dim=2, rotary=3, sequence=8)",
            "rotary must be at most head_dim",
        ),
        (
            START + "Y = latent_attention(X, X, heads=1, head_dim=2, rotary=1, sequence=8)",
            "latent_attention takes 3 columns, 4 columns a unit",
        ),
        (START + "Y = attention(X, heads=3, kv_heads=2, head_dim=1, sequence=8)", "cannot share"),
        (
            START + "Y = attention(X, heads=2, kv_heads=1, head_dim=1, sequence=3)",
            "whole sequences",
        ),
    ],
)
def test_a_mistake_in_a_text_is_refused_in_one_line_with_its_number(text, message):
    with pytest.raises(UsageError, match=message) as refused:
        read(text, "mine")
    assert "\n" not in str(refused.value)


LLAMA = {
    "model_type": "llama",
    "hidden_act": "silu",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "max_position_embeddings": 8192,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
}
MIXTRAL = LLAMA | {
    "max_position_embeddings": 32768,
    "vocab_size": 32000,
    "head_dim": None,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
}
QWEN3 = {
    "hidden_act": "silu",
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "max_position_embeddings": 40960,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 768,
    "num_hidden_layers": 48,
    "vocab_size": 151936,
}
QWEN2 = QWEN3 | {
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_attention_heads": 28,
    "num_experts": 64,
    "moe_intermediate_size": 2560,
    "shared_expert_intermediate_size": 20480,
    "num_hidden_layers": 28,
}
DEEPSEEK = {
    "hidden_act": "silu",
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "max_position_embeddings": 163840,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 2048,
    "first_k_dense_replace": 3,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "num_hidden_layers": 61,
    "vocab_size": 129280,
}
LITE = DEEPSEEK | {
    "hidden_size": 2048,
    "intermediate_size": 10944,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "n_routed_experts": 64,
    "n_shared_experts": 2,
    "num_experts_per_tok": 6,
    "moe_intermediate_size": 1408,
    "first_k_dense_replace": 1,
    "q_lora_rank": None,
    "num_hidden_layers": 27,
    "vocab_size": 102400,
}
LING = QWEN3 | {
    "intermediate_size": 5632,
    "num_attention_heads": 16,
    "num_experts": 64,
    "num_shared_experts": 2,
    "num_experts_per_tok": 6,
    "moe_intermediate_size": 1408,
    "num_hidden_layers": 28,
    "vocab_size": 126464,
}
COMMAND_R = LLAMA | {
    "hidden_size": 8192,
    "num_attention_heads": 64,
    "model_type": "cohere",
    "intermediate_size": 22528,
    "num_key_value_heads": 64,
    "num_hidden_layers": 40,
    "vocab_size": 256000,
}
STARCODER2 = COMMAND_R | {
    "model_type": "starcoder2",
    "hidden_act": "gelu_pytorch_tanh",
    "hidden_size": 6144,
    "intermediate_size": 24576,
    "num_attention_heads": 48,
    "num_key_value_heads": 4,
    "vocab_size": 49152,
}
GRANITE_MOE = LLAMA | {
    "hidden_size": 1536,
    "intermediate_size": 512,
    "num_attention_heads": 24,
    "num_local_experts": 40,
    "num_experts_per_tok": 8,
    "tie_word_embeddings": True,
    "vocab_size": 49155,
}
#: Of Gemma 3 the language model in a config of several; its tokens of images are not here.
GEMMA3 = {
    "model_type": "gemma3",
    "mm_tokens_per_image": 256,
    "vision_config": {"hidden_size": 1152, "intermediate_size": 4304},
    "text_config": {
        "model_type": "gemma3_text",
        "head_dim": 128,
        "hidden_size": 5376,
        "intermediate_size": 21504,
        "num_attention_heads": 32,
        "num_hidden_layers": 62,
        "num_key_value_heads": 16,
        "query_pre_attn_scalar": 168,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
        "sliding_window": 1024,
        "vocab_size": 262208,
    },
}
GEMMA2 = {
    "model_type": "gemma2",
    "attn_logit_softcapping": 50.0,
    "cache_implementation": "hybrid",
    "head_dim": 256,
    "hidden_act": "gelu_pytorch_tanh",
    "hidden_activation": "gelu_pytorch_tanh",
    "hidden_size": 3584,
    "intermediate_size": 14336,
    "max_position_embeddings": 8192,
    "num_attention_heads": 16,
    "num_hidden_layers": 42,
    "num_key_value_heads": 8,
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
    "sliding_window_size": 4096,
    "vocab_size": 256000,
}
GPT_OSS = {
    "model_type": "gpt_oss",
    "experts_per_token": 4,
    "head_dim": 64,
    "hidden_act": "silu",
    "hidden_size": 2880,
    "initial_context_length": 4096,
    "intermediate_size": 2880,
    "layer_types": ["sliding_attention", "full_attention"] * 12,
    "max_position_embeddings": 131072,
    "num_attention_heads": 64,
    "num_experts_per_tok": 4,
    "num_hidden_layers": 24,
    "num_key_value_heads": 8,
    "num_local_experts": 32,
    "sliding_window": 128,
    "swiglu_limit": 7.0,
    "tie_word_embeddings": False,
    "vocab_size": 201088,
}
COHERE2 = COMMAND_R | {
    "model_type": "cohere2",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "layer_switch": 4,
    "order_of_interleaved_layers": "local_attn_first",
    "sliding_window": 4096,
    "use_gated_activation": True,
    "use_parallel_block": True,
    "vocab_size": 256000,
}
GLM4 = DEEPSEEK | {
    "model_type": "glm4_moe",
    "hidden_size": 5120,
    "num_attention_heads": 96,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 12288,
    "n_routed_experts": 160,
    "moe_intermediate_size": 1536,
    "num_hidden_layers": 92,
    "vocab_size": 151552,
    **dict.fromkeys(("kv_lora_rank", "q_lora_rank", "v_head_dim")),
    **dict.fromkeys(("qk_nope_head_dim", "qk_rope_head_dim")),
}
MISTRAL = LLAMA | {"model_type": "mistral", "sliding_window": 4096, "vocab_size": 32000}
PHI3 = {
    "model_type": "phi3",
    "hidden_act": "silu",
    "hidden_size": 3072,
    "intermediate_size": 8192,
    "max_position_embeddings": 4096,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 32,
    "sliding_window": 2047,
    "vocab_size": 32064,
}
#: Config -> parts beside attention and block, layers, and parameters in billions.
MODEL_CONFIGS = {
    "llama": (LLAMA, ("mlp",), {"block": 32}, 8.03),
    "mistral": (MISTRAL, ("mlp",), {"block": 32}, 7.24),
    "mixtral": (MIXTRAL, ("experts",), {"block": 32}, 46.7),
    "qwen3-moe": (QWEN3, ("experts",), {"block": 48}, 30.5),
    "qwen2-moe": (QWEN2, ("experts", "shared-expert"), {"block": 28}, 57.4),
    "ling": (LING, ("experts", "shared-expert"), {"block": 28}, 16.8),
    "command-r": (COMMAND_R, ("mlp",), {"block": 40}, 35.0),
    "cohere2": (COHERE2, ("mlp",), {"block": 8, "block-window": 24}, 8.03),
    "starcoder2": (STARCODER2, ("mlp",), {"block": 40}, 16.0),
    "granite": (GRANITE_MOE, ("experts",), {"block": 32}, 3.3),
    "granite-shared": (
        GRANITE_MOE | {"shared_intermediate_size": 1024},
        ("experts", "shared-expert"),
        {"block": 32},
        3.45,
    ),
    "phi3": (PHI3, ("mlp",), {"block": 32}, 3.82),
    "gemma2": (GEMMA2, ("mlp",), {"block": 21, "block-window": 21}, 9.24),
    "gemma3": (GEMMA3, ("mlp",), {"block": 10, "block-window": 52}, 27.0),
    "gpt-oss": (GPT_OSS, ("experts",), {"block": 12, "block-window": 12}, 20.9),
    "glm4-moe": (
        GLM4,
        ("mlp", "experts", "shared-expert"),
        {"block": 89, "dense-block": 3},
        353,
    ),
    "deepseek-v3": (
        DEEPSEEK,
        ("mlp", "experts", "shared-expert"),
        {"block": 58, "dense-block": 3},
        671,
    ),
    "deepseek-v2-lite": (
        LITE,
        ("mlp", "experts", "shared-expert"),
        {"block": 26, "dense-block": 1},
        15.7,
    ),
}


@pytest.mark.parametrize("model", MODEL_CONFIGS)
def test_parts_of_a_config_have_the_published_number_of_parameters(model, tmp_path):
    config, others, layers, billions = MODEL_CONFIGS[model]
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    sizes = model_sizes(f"{path}:block")
    assert sizes.layers == layers
    assert count_parameters(path) == pytest.approx(billions * 1e9, rel=0.01)
    suffixes = {part.removeprefix("dense-").removeprefix("block") for part in layers}
    assert set(read_config("mine", config)[0]) == {
        *("model", *others, *layers),
        *(f"attention{suffix}" for suffix in suffixes),
    }
    for part in read_config("mine", config)[0]:
        chain = preset(f"{path}:{part}", backward=True)
        assert chain.matrices["X"].rows == (4096 if model == "phi3" else 8192)
        assert preset(f"{path}:{part}", 64).matrices["X"].rows == 64


def test_the_layers_of_a_block_add_up(tmp_path):
    """Attention, then experts and the shared expert beside each other, both on its result."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(DEEPSEEK))
    assert of_layer(f"{path}:block") == sum(
        of_layer(f"{path}:{part}") for part in ("attention", "experts", "shared-expert")
    )
    assert of_layer(f"{path}:dense-block") == sum(
        of_layer(f"{path}:{part}") for part in ("attention", "mlp")
    )
    chain = preset(f"{path}:block")
    *_, first, second, third, fourth, both, last = map(str, chain.operations)
    assert (first, third, fourth) == (
        "Y2 = H1·W2 (256 experts, 8 a token)",
        "H3 = swiglu(Y3)",
        "Y4 = H3·W4",
    )
    assert (second, both, last) == ("Y3 = Z·W3", "M = add(Y2, Y4)", "S = add(Z, M)")


WINDOWED = LLAMA | {"sliding_window": 1000, "num_hidden_layers": 8}
EIGHT, QWEN = ["full_attention"] * 8, {"model_type": "qwen2"}


@pytest.mark.parametrize(
    "change, layers",
    [
        ({}, {"block": 8}),
        ({"model_type": "gemma2", "hidden_act": "gelu"}, {"block": 4, "block-window": 4}),
        ({"model_type": "gemma3_text", "hidden_act": "gelu"}, {"block": 1, "block-window": 7}),
        ({"sliding_window_pattern": 4}, {"block": 2, "block-window": 6}),
        ({"_sliding_window_pattern": 3}, {"block": 2, "block-window": 6}),
        ({"use_sliding_window": True, "max_window_layers": 3}, {"block": 3, "block-window": 5}),
        (QWEN | {"use_sliding_window": True, "max_window_layers": 8}, {"block": 8}),
        ({"layer_types": ["sliding_attention", *EIGHT[1:]]}, {"block": 7, "block-window": 1}),
        (  # layers are counted from 1, and the first three have no experts
            MIXTRAL
            | {"sliding_window_pattern": 4, "num_hidden_layers": 8, "sliding_window": 1000}
            | {"first_k_dense_replace": 3},
            {"block": 2, "block-window": 3, "dense-block-window": 3},
        ),
    ],
)
def test_layers_have_windows_as_the_config_says(change, layers):
    texts, sizes = read_config("mine", WINDOWED | change)
    assert sizes.layers == layers
    for part in layers:
        has = "window=1000" in texts[part]
        assert has == ("-window" in part or len(layers) == 1 and "max_window_layers" not in change)
    windowed = "attention-window" if len(layers) > 1 else "attention"
    full = read(texts["attention"], "full").operations[1].function
    assert full.window == (0 if len(layers) > 1 or "use_sliding_window" in change else 1000)
    assert windowed in texts


@pytest.mark.parametrize(
    "change",
    [
        QWEN,
        {"use_sliding_window": False},
        {"sliding_window": None},
        {"layer_types": EIGHT},
        {"layer_types": ["sliding_attention"] * 8, "sliding_window": None},
    ],
)
def test_a_window_that_is_not_used_changes_nothing(change):
    plain = LLAMA | {"num_hidden_layers": 8}
    assert read_config("mine", WINDOWED | change) == read_config("mine", plain)


def test_a_config_without_layers_has_no_sizes_but_a_part_of_each_kind(tmp_path):
    config = GLM4 | {"num_hidden_layers": None, "sliding_window": 9, "sliding_window_pattern": 2}
    texts, sizes = read_config("mine", config)
    blocks = {part for part in texts if "block" in part}
    assert sizes is None
    assert blocks == {"block", "block-window", "dense-block", "dense-block-window"}
    assert read_config("mine", LLAMA | {"vocab_size": None})[1] is None
    path = tmp_path / "layer.txt"
    path.write_text("X = input(8, 4)\nW = weight(4, 4)\nY = X @ W")
    assert model_sizes(str(path)) is None
    assert model_sizes("llama3-70b:block") == ({"block": 80}, 8192, 128256, False)


@pytest.mark.parametrize(
    "config, tied",
    [
        (LLAMA, False),
        (GEMMA2, True),
        (COHERE2, True),
        (GEMMA2 | {"tie_word_embeddings": False}, False),
        (LLAMA | {"tie_word_embeddings": True}, True),
        ({"text_config": LLAMA, "tie_word_embeddings": True}, True),
        ({"thinker_config": {"text_config": LLAMA | {"tie_word_embeddings": True}}}, True),
    ],
)
def test_embeddings_are_tied_as_the_config_or_its_type_says(config, tied):
    assert read_config("mine", config)[1].tied is tied


def test_latent_attention_has_a_query_of_low_rank_or_of_full(tmp_path):
    texts = [read_config("mine", config, 16)[0]["attention"] for config in (DEEPSEEK, LITE)]
    chains = [read(text, "mine") for text in texts]
    shape = lambda chain: {each.name: each.shape for each in chain.matrices.values()}
    assert shape(chains[0]) == {
        "X": (16, 7168),
        "Wqa": (7168, 1536),
        "A": (16, 1536),
        "Wqb": (1536, 128 * 192),
        "Q": (16, 128 * 192),
        "Wkva": (7168, 512 + 64),
        "L": (16, 576),
        "C": (16, 512),
        "Wkvb": (512, 128 * 256),
        "KV": (16, 128 * 256),
        "O": (16, 128 * 128),
        "Wo": (128 * 128, 7168),
        "Y": (16, 7168),
    }
    assert shape(chains[1])["Wq"] == (2048, 16 * 192)
    odd = read_config("mine", LITE | {"num_attention_heads": 15, "qk_head_dim": 192})
    assert "weight(1920, 2048)" in odd[0]["attention"]  # the width is no multiple of the heads
    of = chains[0].operations[-2].function
    assert (of.rows, of.rotary, of.head_dim) == (16, 64, 128)


@pytest.mark.parametrize(
    "name", ["llama3-70b:block", "deepseek-v3:block", "gpt-oss-120b:block-window"]
)
def test_sequences_and_caches_replace_those_of_a_preset(name):
    of = lambda chain: next(x.function for x in chain.operations if "attention" in str(x))
    long, cached = preset(name, sequence=300), preset(name, context=9000)
    assert long.matrices["X"].rows == 300 and of(long).rows == 300 and of(long).context == 0
    assert cached.matrices["X"].rows == 1 and of(cached).rows == 1 and of(cached).context == 9000
    assert preset(name, 64, context=9000).matrices["X"].rows == 64
    assert preset(name, 600, 300).matrices["X"].rows == 600
    assert of(cached).window == of(long).window == of(preset(name)).window
    with pytest.raises(UsageError, match="whole sequences of 300 rows"):
        preset(name, 200, 300)


def test_sequences_and_caches_replace_those_of_a_file(tmp_path):
    path = tmp_path / "layer.txt"
    path.write_text(
        "# attention(sequence=8)\nX = input(16, 4)\n"
        "O = attention(X, heads=2, kv_heads=1, sequence = 4 * 2, head_dim=1)  # sequence=8\n"
        "W = weight(2, 4)\nY = O @ W"
    )
    of = lambda *sizes: (lambda c: (c.matrices["X"].rows, c.operations[0].function))(
        preset(str(path), *sizes)
    )
    for sizes, expected in (
        ((), (16, 8, 0)),
        ((None, 4), (16, 4, 0)),
        ((8, 4), (8, 4, 0)),
        ((None, None, 50), (1, 1, 50)),
        ((3, None, 50), (3, 1, 50)),
    ):
        rows, function = of(*sizes)
        assert (rows, function.rows, function.context) == expected
    assert text_of(str(path), context=5).startswith("# attention(sequence=8)\n")
    assert text_of(str(path), context=5).count("# sequence=8\n") == 1
    path.write_text(text_of(str(path), context=50))
    assert of(None, None, 60)[1].context == 60 and of(None, None, None)[1].context == 50
    for name in (str(path), "llama3-70b:mlp"):
        path.write_text("X = input(8, 4)\nW = weight(4, 4)\nY = X @ W  # sequence=3")
        with pytest.raises(UsageError, match="has no attention for sequence=4"):
            preset(name, sequence=4)
        with pytest.raises(UsageError, match="has no attention for context=4"):
            preset(name, context=4)


@pytest.mark.parametrize(
    "of, kind, act",
    [
        ("swiglu", "phi3", "silu"),
        ("gelu", "phi", "gelu_new"),
        ("relu", None, "relu"),
        ("geglu", "gemma", "gelu"),
        ("geglu", "gemma2", "gelu_pytorch_tanh"),
    ],
)
def test_the_function_of_an_mlp_is_that_of_the_config(of, kind, act, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA | {"hidden_act": act, "model_type": kind}))
    assert [each.function.name for each in preset(f"{path}:mlp").operations[1:2]] == [of]
    takes = preset(f"{path}:block").operations[4].takes[0]
    assert takes == ("X" if kind == "phi" else "Z")


#: Of published models, and what transformers adds to every file.
HARMLESS = {
    "architectures": ["LlamaForCausalLM"],
    "rope_scaling": {"factor": 8.0},
    "layer_types": ["full_attention"] * 32,
    "num_hidden_layers": 32,
    "head_dim": 128,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "use_cache": True,
    "eos_token_id": [128001, 128009],
    "moe_layer_freq": 1,
    "sliding_window": None,
    "top_k": 50,
    "vision_config": {"hidden_size": 1152},
    "router_aux_loss_coef": 0.001,
    "quantization_config": {"fmt": "e4m3"},
    "num_nextn_predict_layers": 1,
    "tie_word_embeddings": False,
    "experts_per_token": None,
}


@pytest.mark.parametrize(
    "change",
    [
        {"moe_num_experts": 64},  # ERNIE 4.5
        {"attn_layer_period": 8},  # Jamba
        {"layer_types": ["mamba", "full_attention"]},  # Bamba, Granite 4
        {"layer_types": [{}]},
        {"layer_types": "full_attention"},
        {"layer_types": 7},
        {"layer_types": ["chunked_attention", "full_attention"]},  # Llama 4
        {"attention_chunk_size": 8192},
        {"linear_num_value_heads": 32},  # Qwen3-Next
        {"attn_output_gate": True},
        {"parallel_attn_mlp_res": True},  # Arctic
        {"use_residual": True},
        {"intermediate_size_mlp": 16384},  # Llama 4
        {"hybrid_override_pattern": "M-M*"},  # Nemotron-H
        {"decoder_sparse_step": 2},
        {"mlp_only_layers": [0]},
        {"moe_layer_freq": [0, 1]},
        {"num_shared_expert": 1},  # Hunyuan
        {"attention_head_dim": 96},
        {"v_head_dim": 64},
        {"cross_attention_layers": [3]},  # Llama 3.2 Vision
        {"block_configs": [{"ffn": {}}]},  # DeciLM
        {"is_encoder_decoder": True},
        {"embedding_size": 128},  # ALBERT: one layer for all
    ],
)
def test_a_config_whose_shapes_are_not_known_is_refused_by_its_type_and_key(change):
    assert read_config("mine", LLAMA | HARMLESS) == read_config("mine", LLAMA)
    with pytest.raises(UsageError, match=f"'{[*change][0]}' .* model_type 'llama'"):
        read_config("mine", LLAMA | HARMLESS | change)


@pytest.mark.parametrize(
    "change, part, message",
    [
        ({"hidden_size": None, "hidden_act": None}, "mlp", "has no hidden_size, hidden_act"),
        ({"text_config": {"model_type": "gemma3_text"}}, "mlp", "has no hidden_size"),
        ({"layer_types": ["full_attention"]}, "mlp", "length of layer_types .* got 32"),
        ({"num_hidden_layers": 10**12}, "mlp", "below 10000, got 1000000000000"),
        ({"sliding_window": "9"}, "mlp", "sliding_window must be an integer"),
        ({"vocab_size": "9"}, "mlp", "vocab_size must be an integer"),
        (DEEPSEEK | {"qk_head_dim": 191}, "mlp", "must be equal"),
        (
            DEEPSEEK | {"v_head_dim": 64},
            "mlp",
            "qk_nope_head_dim and v_head_dim must be equal, got 128 and 64",
        ),
        ({"model_type": "gemma", "hidden_act": "tanh"}, "mlp", "hidden_act must .*type 'gemma'"),
        ({"num_experts": 2, "n_routed_experts": 4}, "mlp", "num_experts and n_routed_experts diff"),
        ({"num_attention_heads": "32"}, "mlp", "num_attention_heads must be .* got '32'"),
        ({"max_position_embeddings": 0}, "mlp", "max_position_embeddings must be .* got 0"),
        ({"num_local_experts": 8}, "block", "num_experts_per_tok .*must be"),
        ({"kv_lora_rank": 512}, "attention", "qk_nope_head_dim must be"),
        ({"hidden_act": "tanh"}, "mlp", "hidden_act must be silu .* got tanh"),
        ({"model_type": "grok-1", "hidden_act": "gelu"}, "mlp", "hidden_act must .*type 'grok-1'"),
        ({"num_key_value_heads": 5}, "block", "32 query heads cannot share 5 key/value heads"),
        (
            {"num_attention_heads": 30, "head_dim": None},
            "block",
            "no multiple of num_attention_heads 30. Add head_dim",
        ),
        ({}, "mpl", "config.json:model. Did you mean .*config.json:mlp"),
        ({}, "", "no preset and no file"),
    ],
)
def test_a_wrong_config_is_refused_in_one_line_that_names_the_key(change, part, message, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA | change))
    with pytest.raises(UsageError, match=message) as refused:
        preset(f"{path}:{part}")
    assert "\n" not in str(refused.value) and str(path) in str(refused.value)


@pytest.mark.parametrize("content", [b"{", b"[1]", b"\xff\xfe"])
def test_a_file_that_is_no_config_is_refused(content, tmp_path):
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="config.json"):
        preset(f"{path}:mlp")
    with pytest.raises(UsageError, match="config.json"):
        preset(str(path))


def test_a_config_without_a_part_is_answered_with_its_parts(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(MIXTRAL))
    with pytest.raises(UsageError, match=f"there are {path}:experts, {path}:attention"):
        preset(str(path))


def test_the_tokens_of_a_file_can_be_replaced(tmp_path):
    path = tmp_path / "layer.txt"
    path.write_text(
        "# X = input(1, 4)\n X =input(2 * 4, 4) # input(8, 4)\nW = weight(4, 4)\nY = X @ W"
    )
    assert preset(str(path)).matrices["Y"].shape == (8, 4)
    assert preset(str(path), 16).matrices["Y"].shape == (16, 4)
    with pytest.raises(UsageError, match="no preset and no file of a chain"):
        preset(str(tmp_path / "other.txt"))
