"""What a chain is: read from a text, a config.json or a name; layers of experts and their
gradients."""

import json

import numpy as np
import pytest
from chains_by_numpy import by_numpy
from layer_chains import layers

from drbench.algorithms.overlap.experts import ExpertProblem
from drbench.chains.model.description import LocalMap, read
from drbench.chains.model.transformers import parts, preset, presets
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


def text_of(chain):
    """A chain in lines, made from what it holds."""
    made = {each.c: each for each in chain.operations}
    for name, matrix in chain.matrices.items():
        each = made.get(name)
        if each is None:
            more = f", experts={matrix.count}" if matrix.count > 1 else ""
            yield f"{name} = {matrix.kind}({matrix.rows}, {matrix.cols}{more})"
        elif isinstance(each, LocalMap) and each.function.name == "attention":
            of = each.function
            unit = made[name].function.gives
            kv_heads = matrix.cols // unit
            yield (
                f"{name} = attention({each.takes[0]}, heads={kv_heads * of.heads}, "
                f"kv_heads={kv_heads}, sequence={of.rows}, head_dim={of.head_dim})"
            )
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
    path.write_text("\n".join(text_of(preset(name))))
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
    "vocab_size": 128000,  # tied: once
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
    "vocab_size": 24578,
}
MOE = ("attention", "experts", "shared-expert")
DENSE, LATENT = ("block",), ("query", "key-value", "output")


@pytest.mark.parametrize(
    "config, every, sparse, billions",
    [
        (LLAMA, DENSE, (), 8.03),
        (MIXTRAL, DENSE, (), 46.7),
        (QWEN3, DENSE, (), 30.5),
        (QWEN2, MOE, (), 57.4),
        (LING, MOE, (), 16.8),
        (COMMAND_R, DENSE, (), 35.0),
        (STARCODER2, DENSE, (), 16.0),
        (GRANITE_MOE, DENSE, (), 3.3),
        (GRANITE_MOE | {"shared_intermediate_size": 1024}, MOE, (), 3.45),
        (DEEPSEEK, LATENT, ("experts", "shared-expert"), 671),
        (LITE, LATENT, ("experts", "shared-expert"), 15.7),
    ],
)
def test_parts_of_a_config_have_the_published_number_of_parameters(
    config, every, sparse, billions, tmp_path
):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    parameters = lambda part: sum(
        each.rows * each.cols * each.count
        for each in preset(f"{path}:{part}").matrices.values()
        if each.kind == "weight"
    )
    dense = config["first_k_dense_replace"] if sparse else 0
    total = 2 * config["vocab_size"] * config["hidden_size"]
    total += config["num_hidden_layers"] * sum(map(parameters, every))
    total += (config["num_hidden_layers"] - dense) * sum(map(parameters, sparse))
    total += dense * parameters("mlp") if dense else 0
    assert total == pytest.approx(billions * 1e9, rel=0.01)
    chain = preset(f"{path}:{every[0]}", backward=True)
    assert chain.matrices["X"].rows == 8192
    assert preset(f"{path}:{every[0]}", 64).matrices["X"].rows == 64


@pytest.mark.parametrize(
    "of, kind, act",
    [("swiglu", "phi3", "silu"), ("gelu", "phi", "gelu_new"), ("relu", None, "relu")],
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
    "layer_types": ["sliding_attention", "full_attention"],
    "num_hidden_layers": 32,
    "head_dim": 128,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "use_cache": True,
    "eos_token_id": [128001, 128009],
    "moe_layer_freq": 1,
    "sliding_window": 4096,
    "router_aux_loss_coef": 0.001,
    "quantization_config": {"fmt": "e4m3"},
    "num_nextn_predict_layers": 1,
    "tie_word_embeddings": True,
    "experts_per_token": None,
}


@pytest.mark.parametrize(
    "change",
    [
        {"moe_num_experts": 64},  # ERNIE 4.5
        {"attn_layer_period": 8},  # Jamba
        {"layer_types": ["mamba", "full_attention"]},  # Bamba, Granite 4
        {"layer_types": [{}]},
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
    assert parts("mine", LLAMA | HARMLESS) == parts("mine", LLAMA)
    with pytest.raises(UsageError, match=f"'{[*change][0]}' .* model_type 'llama'"):
        parts("mine", LLAMA | HARMLESS | change)


@pytest.mark.parametrize(
    "change, part, message",
    [
        ({"hidden_size": None, "hidden_act": None}, "mlp", "has no hidden_size, hidden_act"),
        ({"hidden_size": None, "text_config": LLAMA}, "mlp", "model is in text_config"),
        ({"num_experts": 2, "n_routed_experts": 4}, "mlp", "num_experts and n_routed_experts diff"),
        ({"num_attention_heads": "32"}, "mlp", "num_attention_heads must be .* got '32'"),
        ({"max_position_embeddings": 0}, "mlp", "max_position_embeddings must be .* got 0"),
        ({"num_local_experts": 8}, "block", "num_experts_per_tok .*must be"),
        ({"kv_lora_rank": 512}, "query", "qk_nope_head_dim must be"),
        ({"hidden_act": "tanh"}, "mlp", "hidden_act must be silu .* got tanh"),
        ({"model_type": "gemma2", "hidden_act": "gelu"}, "mlp", "hidden_act must .*type 'gemma2'"),
        ({"model_type": "grok-1", "hidden_act": "gelu"}, "mlp", "hidden_act must .*type 'grok-1'"),
        ({"num_key_value_heads": 5}, "block", "32 query heads cannot share 5 key/value heads"),
        (
            {"num_attention_heads": 30, "head_dim": None},
            "block",
            "no multiple of num_attention_heads 30. Add head_dim",
        ),
        ({}, "mpl", "config.json:block. Did you mean .*config.json:mlp"),
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
