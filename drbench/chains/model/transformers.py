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
import tomllib
from collections.abc import Mapping
from functools import partial
from os.path import isfile
from pathlib import Path
from textwrap import dedent

from drbench.errors import UsageError, did_you_mean, shown

from .description import Chain, lines, read

#: Name -> its config.json.
MODELS = tomllib.loads(Path(__file__).with_name("models.toml").read_text("utf-8"))
#: The most tokens of a sequence by default.
_SEQUENCE = 8192
_REQUIRED = (
    *("hidden_size", "intermediate_size", "num_attention_heads", "hidden_act"),
    "max_position_embeddings",
)
#: Where a config of several models has that of the language model.
_LANGUAGE = ("text_config", "llm_config", "language_config", "thinker_config")
#: Model types whose MLP without silu is known to have no gate (None: a config without a type).
_NO_GATE = (None, "gpt_neox", "phi", "starcoder2")
#: Model types whose MLP has the input of the attention, not its result.
_PARALLEL = ("cohere", "cohere2", "gpt_neox", "gptj", "phi")
#: Keys that change no shape, or only those of norms, routers, biases and embeddings.
_NO_SHAPE = re.compile(
    "token|vocab|rope|rotary|position|window|norm|drop|bias|init|dtype|loss|coef|version|quant"
    "|context|scal|multiplier|router|nextn|mtp|architectures|auto_map|topk_group|n_group|label|_tp$"
    "|^(num|n)(_hidden)?_layers?$|max_length|parallel_residual|ep_size|^output_|^return_"
)
#: Words of keys that change a structure, even by true or a text.
_STRUCTURE = re.compile(
    "expert|moe|layer|gate|mlp|ffn|resid|hybrid|mamba|ssm|shared|share_|encoder|cross|linear|conv"
)
_SAME = ("full_attention", "sliding_attention", "chunked_attention")


def _changes_shapes(key: str, value: object) -> bool:
    """Whether a key that is not read may change the shape of a layer, or of some layers."""
    if not value or value == "default" or _NO_SHAPE.search(key):
        return False
    if key == "layer_types" and isinstance(value, list):
        return any(kind not in _SAME for kind in value)
    if re.search("(freq|frequency|interval|step|period)$", key):
        return value != 1
    is_size = type(value) is int and value != 1 or isinstance(value, (list, dict))
    return is_size or bool(_STRUCTURE.search(key))


def parts(name: str, config: Mapping, tokens: int | None = None) -> dict[str, str]:
    """The text of each part of a model, from its config.

    Raises
    ------
    UsageError
        If sizes are missing or wrong, or a key may change shapes in a way that is not known.
    """
    kind, known = config.get("model_type"), {"hidden_act", "model_type"}
    if missing := [key for key in _REQUIRED if config.get(key) is None]:
        nested = [key for key in _LANGUAGE if isinstance(config.get(key), dict)]
        remedy = "Describe the layer in a file of its own."
        if nested:
            remedy = f"The language model is in {nested[0]}: use a file of that alone."
        raise UsageError(f"{name}: model_type {shown(kind)} has no {', '.join(missing)}. {remedy}")

    def size(*keys, default=None):
        known.update(keys)
        given = {key: config[key] for key in keys if config.get(key) is not None}
        values = [*given.values()] or [default]
        if any(type(value) is not int or value < (default != 0) for value in values):
            raise UsageError(
                f"{name}: {' or '.join(given or keys)} must be an integer above 0, got "
                f"{shown(values[0])}. Correct the file."
            )
        if len({*values}) > 1:
            raise UsageError(f"{name}: {' and '.join(given)} differ. Leave one out.")
        return values[0]

    act = str(config["hidden_act"])
    of = {"silu": "swiglu", "gelu": "gelu", "relu": "relu"}.get(act.partition("_")[0], "")
    if not of or (of != "swiglu" and kind not in _NO_GATE):
        raise UsageError(
            f"{name}: hidden_act must be silu (with a gate), or gelu or relu (without; of "
            f"{', '.join(filter(None, _NO_GATE))}), got {act} of model_type {shown(kind)}. "
            "Describe the layer in a file of its own."
        )
    width, heads, inner = map(size, ("hidden_size", "num_attention_heads", "intermediate_size"))
    kv_heads = size("num_key_value_heads", default=heads)
    if width % heads and config.get("head_dim") is None:
        raise UsageError(
            f"{name}: hidden_size {width} is no multiple of num_attention_heads {heads}. Add "
            "head_dim."
        )
    head_dim = size("head_dim", default=width // heads)
    sequence = min(size("max_position_embeddings"), _SEQUENCE)
    tokens = tokens or sequence
    dense = size("first_k_dense_replace", default=0)
    count = size("num_local_experts", "num_experts", "n_routed_experts", default=0)
    topk = size("num_experts_per_tok", "experts_per_token") if count else 0
    expert = size("moe_intermediate_size", default=inner) if count else inner
    shared = expert * size("n_shared_experts", "num_shared_experts", default=0)
    whole = size("shared_expert_intermediate_size", "shared_intermediate_size", default=0)
    shared = whole or shared
    if latent := size("kv_lora_rank", default=0):
        nope, rotary, value = map(size, ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"))
        query, head = size("q_lora_rank", default=0), size("qk_head_dim", default=nope + rotary)
    unknown = [
        shown(key) for key in config if key not in known and _changes_shapes(key, config[key])
    ]
    if unknown:
        raise UsageError(
            f"{name}: drbench does not know how {', '.join(unknown[:9])} change the layers of "
            f"model_type {shown(kind)}. Describe the layer in a file of its own."
        )
    add, texts, experts = partial(lines, "X", rows=tokens), {}, (count, topk)
    if not count or dense:
        texts["mlp"] = add((width, inner, width), of)
    if count:
        texts["experts"] = add((width, expert, width), of, experts)
    if shared:
        texts["shared-expert"] = add((width, shared, width), of)
    if latent:
        return texts | {
            "query": add((width, *[query][: query > 0], heads * head)),
            "key-value": add((width, latent, heads * (nope + value))),
            "output": add((heads * value, width)),
        }
    sizes = f"heads={heads}, kv_heads={kv_heads}, head_dim={head_dim}"
    texts["attention"] = dedent(f"""\
        X = input({tokens}, {width})
        Wqkv = weight({width}, {(heads + 2 * kv_heads) * head_dim})
        QKV = X @ Wqkv
        O = attention(QKV, {sizes}, sequence={min(sequence, tokens)})
        Wo = weight({heads * head_dim}, {width})
        Y = O @ Wo""")
    if not shared:
        is_parallel = config.get("use_parallel_residual", kind in _PARALLEL)
        mlp = lines("X" if is_parallel else "Z", (width, expert, width), of, experts)
        texts["block"] = f"{texts['attention']}\nZ = X + Y\n{mlp}\nS = Z + Y2"
    return texts


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
    :func:`drbench.chains.model.description.read`.

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
    texts = parts(model, config, tokens) if isinstance(config, dict) else {}
    if part not in texts:
        known = [f"{model}:{part}" for part in texts] or presets()
        hint = did_you_mean(name, known)
        listed = "" if hint and not texts else f"; there are {', '.join(known)}"
        raise UsageError(f"no preset and no file of a chain {name!r}{listed}.{hint}")
    return texts[part]


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
