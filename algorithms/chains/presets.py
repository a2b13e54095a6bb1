"""Parts of transformers, as chains: of published models, or of a ``config.json`` of Hugging Face
transformers.

==============  =====================================================================
GPT-3 175B      Brown et al., 2020, Table 2.1: d_model 12288, 96 heads of 128, 2048 tokens;
                the inner layer is 4 · d_model
Llama 3         Grattafiori et al., 2024 (The Llama 3 Herd of Models), Table 3: 8B, 70B and 405B;
                8 key/value heads, sequences of 8192 tokens in pre-training
Mistral 7B      Jiang et al., 2023, Table 1
Mixtral 8x7B    Jiang et al., 2024, Table 1
Qwen2.5 72B     config.json of Qwen/Qwen2.5-72B, 2024
DeepSeek-V3     DeepSeek-AI, 2024, §4.2, and config.json; 4096 tokens in pre-training
==============  =====================================================================
"""

import json
import re
from collections.abc import Mapping
from functools import partial
from os.path import isfile
from pathlib import Path
from textwrap import dedent

from drbench.errors import UsageError, did_you_mean, shown

from .description import Chain, lines, read

_KEYS = (
    *("hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads"),
    *("max_position_embeddings", "hidden_act", "num_experts", "num_experts_per_tok"),
    *("moe_intermediate_size", "n_shared_experts", "first_k_dense_replace", "q_lora_rank"),
    *("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"),
)
_DEEPSEEK = (7168, 18432, 128, 128, 4096, "silu", 256, 8, 2048, 1, 3, 1536, 512, 128, 64, 128)
#: Name -> its config.json.
MODELS = {
    name: dict(zip(_KEYS, sizes))
    for name, sizes in {
        "gpt3": (12288, 49152, 96, 96, 2048, "gelu"),
        "llama3-8b": (4096, 14336, 32, 8, 8192, "silu"),
        "llama3-70b": (8192, 28672, 64, 8, 8192, "silu"),
        "llama3-405b": (16384, 53248, 128, 8, 8192, "silu"),
        "mistral-7b": (4096, 14336, 32, 8, 8192, "silu"),
        "mixtral-8x7b": (4096, 14336, 32, 8, 8192, "silu", 8, 2),
        "qwen2.5-72b": (8192, 29568, 64, 8, 8192, "silu"),
        "deepseek-v3": _DEEPSEEK,
    }.items()
}
#: The most tokens of a sequence by default.
_SEQUENCE = 8192


def parts(name: str, config: Mapping, tokens: int | None = None) -> dict[str, str]:
    """The text of each part of a model, from its config."""

    def size(*keys, default=None):
        value = next((config[key] for key in keys if config.get(key) is not None), default)
        if type(value) is not int or value < (default != 0):
            raise UsageError(
                f"{name}: {' or '.join(keys)} must be an integer above 0, got {shown(value)}. "
                "Correct the file."
            )
        return value

    act = str(config.get("hidden_act"))
    of = {"silu": "swiglu", "gelu": "gelu", "relu": "relu"}.get(act.partition("_")[0], "")
    if not of or "gemma" in str(config.get("model_type")):  # whose gelu has a gate
        raise UsageError(
            f"{name}: hidden_act must be silu (with a gate), gelu or relu (without), got {act}. "
            "Describe the layer in a file of its own."
        )
    width, heads, inner = map(size, ("hidden_size", "num_attention_heads", "intermediate_size"))
    kv_heads = size("num_key_value_heads", default=heads)
    head_dim = size("head_dim", default=width // heads)
    sequence = min(size("max_position_embeddings"), _SEQUENCE)
    tokens = tokens or sequence
    count = size("num_local_experts", "num_experts", "n_routed_experts", default=0)
    experts = count, size("num_experts_per_tok") if count else 0
    expert = size("moe_intermediate_size", default=inner)
    shared = expert * size("n_shared_experts", default=0)
    shared = size("shared_expert_intermediate_size", default=shared)
    add, found = partial(lines, "X", rows=tokens), {}
    if not count or size("first_k_dense_replace", default=0):
        found["mlp"] = add((width, inner, width), of)
    if count:
        found["experts"] = add((width, expert, width), of, experts)
    if shared:
        found["shared-expert"] = add((width, shared, width), of)
    if latent := size("kv_lora_rank", default=0):
        nope, rotary, value = map(size, ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"))
        query = size("q_lora_rank", default=0)
        return found | {
            "query": add((width, *[query][: query > 0], heads * (nope + rotary))),
            "key-value": add((width, latent, heads * (nope + value))),
            "output": add((heads * value, width)),
        }
    sizes = f"heads={heads}, kv_heads={kv_heads}, head_dim={head_dim}"
    found["attention"] = dedent(f"""\
        X = input({tokens}, {width})
        Wqkv = weight({width}, {(heads + 2 * kv_heads) * head_dim})
        QKV = X @ Wqkv
        O = attention(QKV, {sizes}, sequence={min(sequence, tokens)})
        Wo = weight({heads * head_dim}, {width})
        Y = O @ Wo""")
    if not shared:
        mlp = lines("Z", (width, expert, width), of, experts)
        found["block"] = f"{found['attention']}\nZ = X + Y\n{mlp}\nS = Z + Y2"
    return found


def presets() -> list[str]:
    """Names of all presets.

    Examples
    --------
    >>> "llama3-70b:mlp" in presets(), len(presets())
    (True, 27)
    """
    return [f"{model}:{part}" for model in MODELS for part in parts(model, MODELS[model])]


def text_of(name: str, tokens: int | None = None) -> str:
    """The text of a transformer's layer, or of a file, for
    :func:`algorithms.chains.description.read`.

    Parameters
    ----------
    name : str
        ``MODEL:PART``, or ``PATH.json:PART`` with the config.json of a model, or the path of a
        text. A part is ``mlp``, ``experts``, ``attention`` (with its projections) or ``block``:
        both, each with its residual connection; or a projection of latent attention. Norms, routers
        and biases are left out.
    tokens : int, optional
        Rows of X: tokens of all sequences. By default those of a file; of a model one sequence, of
        at most 8192 tokens.

    Raises
    ------
    UsageError
        If there is no such preset, or a file is wrong.

    Examples
    --------
    >>> print(text_of("llama3-70b:mlp", 64))
    X = input(64, 8192)
    W1 = weight(8192, 57344)
    Y1 = X @ W1
    H1 = swiglu(Y1)
    W2 = weight(28672, 8192)
    Y2 = H1 @ W2
    """
    model, _, part = (f"{name}:" if name.endswith(".json") else name).rpartition(":")
    try:
        if isfile(name) and model != name:
            text, rows = Path(name).read_text("utf-8"), tokens and rf"\g<1>{tokens}"
            return re.sub(r"(?m)^(\s*X\s*=\s*input\()[^,#]*", rows, text) if rows else text
        config = json.loads(Path(model).read_text("utf-8")) if isfile(model) else MODELS.get(model)
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{name} cannot be read: {error}. Use a text or a config.json.") from None
    found = parts(model, config, tokens) if isinstance(config, dict) else {}
    if part not in found:
        known = [f"{model}:{each}" for each in found] or presets()
        raise UsageError(
            f"no preset and no file of a chain {name!r}; there are {', '.join(known)}."
            f"{did_you_mean(name, known)}"
        )
    return found[part]


def preset(name: str, tokens: int | None = None, *, backward: bool = False) -> Chain:
    """The chain of :func:`text_of`.

    Raises
    ------
    UsageError
        If there is none, or tokens are not whole sequences in a chain with attention.

    Examples
    --------
    >>> chain = preset("llama3-70b:attention")
    >>> [str(each) for each in chain.operations]
    ['QKV = X·Wqkv', 'O = attention(QKV)', 'Y = O·Wo']
    >>> chain.matrices["Wqkv"].cols
    10240
    """
    return read(text_of(name, tokens), name, backward=backward)
