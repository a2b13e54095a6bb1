"""Parts of transformers, as chains: of published models, or of a ``config.json`` of Hugging Face
transformers.

==============  =====================================================================
GPT-3 175B      Brown et al., 2020, Table 2.1: d_model 12288, 96 heads of 128, 2048 tokens;
                the inner layer is 4 · d_model; the vocabulary is that of GPT-2
GPT 22B         Korthikanti et al., 2022, Table 3
Llama 3         Grattafiori et al., 2024 (The Llama 3 Herd of Models), Table 3: 8B, 70B and 405B;
                8 key/value heads, sequences of 8192 tokens in pre-training
Mistral 7B      Jiang et al., 2023, Table 1
Mixtral 8x7B    Jiang et al., 2024, Table 1
Gemma 2, 3      config.json of google/gemma-2-9b, 2024, and google/gemma-3-27b-it, 2025
Qwen2.5 72B     config.json of Qwen/Qwen2.5-72B, 2024
Qwen3           config.json of Qwen/Qwen3-30B-A3B and Qwen/Qwen3-235B-A22B, 2025
gpt-oss 120B    config.json of openai/gpt-oss-120b, 2025
DeepSeek-V3     DeepSeek-AI, 2024, §4.2, and config.json; 4096 tokens in pre-training
Kimi K2         config.json of moonshotai/Kimi-K2-Instruct, 2025
==============  =====================================================================
"""

import json
import re
import tomllib
from collections import Counter
from collections.abc import Mapping
from os.path import isfile
from pathlib import Path
from typing import NamedTuple

from drbench.errors import UsageError, did_you_mean, shown

from .description import Chain, lines, read

#: Name -> its config.json.
MODELS = tomllib.loads(Path(__file__).with_name("models.toml").read_text("utf-8"))
#: The most tokens of a sequence by default.
_SEQUENCE = 8192
_REQUIRED = ("hidden_size", "intermediate_size", "num_attention_heads", "hidden_act")
#: Where a config of several models has that of the language model.
_LANGUAGE = ("text_config", "llm_config", "language_config", "thinker_config")
#: Model types whose MLP without silu is known to have no gate (None: a config without a type).
_NO_GATE = (None, "gpt_neox", "phi", "starcoder2")
#: Model types without windows unless use_sliding_window is true.
_NO_WINDOW = ("qwen2", "qwen2_moe", "qwen3", "qwen3_moe")
#: Every how many layers one sees all tokens, of model types whose configs need not say it.
_FULL_EVERY = {"cohere2": 4, "gemma2": 2, "gemma3_text": 6}
#: Model types whose MLP has the input of the attention, not its result.
_PARALLEL = ("cohere", "cohere2", "gpt_neox", "gptj", "phi")
#: Keys that change no shape, or only those of norms, routers, biases and embeddings.
_NO_SHAPE = re.compile(
    "token|vocab|vision|rope|switch|rotary|position|window|norm|drop|bias|init|dtype|loss|coef"
    "|version|quant|context|scal|multiplier|router|nextn|mtp|architectures|auto_map|topk_group"
    "|n_group|label|_tp$|^(num|n)(_hidden)?_layers?$|max_length|parallel_residual|ep_size"
    "|^output_|^return_|^top_k$|gated_act"
)
#: Words of keys that change a structure, even by true or a text.
_STRUCTURE = re.compile(
    "expert|moe|layer|gate|mlp|ffn|resid|hybrid|mamba|ssm|shared|share_|encoder|cross|linear|conv"
)
_KINDS = ("full_attention", "sliding_attention")


class ModelSizes(NamedTuple):
    """Sizes of a whole model.

    Attributes
    ----------
    layers : dict of str to int
        The number of layers that each part describes: of ``block``, ``block-window`` and the same
        with ``dense-`` before.
    width, vocab : int
        Columns and rows of the embedding.
    tied : bool
        Whether the output multiplies the embedding's own matrix.
    """

    layers: dict[str, int]
    width: int
    vocab: int
    tied: bool

    @property
    def words(self) -> int:
        """Parameters of embedding and head."""
        return self.vocab * self.width * (2 - self.tied)

    @property
    def part(self) -> str:
        """The part that describes most layers."""
        return max(self.layers, key=lambda part: self.layers[part])


def _changes_shapes(key: str, value: object) -> bool:
    """Whether a key that is not read may change the shape of a layer, or of some layers."""
    if not value or value in ("default", "local_attn_first") or _NO_SHAPE.search(key):
        return False
    if key == "layer_types" and isinstance(value, list):
        return any(kind not in _KINDS for kind in value)
    if re.search("(freq|frequency|interval|step|period)$", key):
        return value != 1
    is_size = type(value) is int and value != 1 or isinstance(value, (list, dict))
    return is_size or bool(_STRUCTURE.search(key))


class _Config:
    """The config of a language model, and the keys that were read."""

    def __init__(self, name: str, config: Mapping):
        while nested := [config[key] for key in _LANGUAGE if isinstance(config.get(key), dict)]:
            config = {"tie_word_embeddings": config.get("tie_word_embeddings"), **nested[0]}
        self.name, self.type = name, config.get("model_type")
        self.is_gemma = str(self.type).startswith("gemma")
        act = config.get("hidden_activation") or config.get("hidden_act")
        self.keys = {**config, "hidden_act": act or ("gelu" if self.is_gemma else None)}
        self.known = {"hidden_act", "model_type"}

    def refuse(self, why: str) -> UsageError:
        return UsageError(f"{self.name}: {why}. Describe the layer in a file of its own.")

    def size(self, *keys: str, default: int | None = None) -> int:
        """The value of the keys, names of the same size."""
        self.known.update(keys)
        given = {key: self.keys[key] for key in keys if self.keys.get(key) is not None}
        values = [*given.values()] or [default]
        if any(type(value) is not int or value < (default != 0) for value in values):
            raise UsageError(
                f"{self.name}: {' or '.join(given or keys)} must be an integer above 0, got "
                f"{shown(values[0])}. Correct the file."
            )
        if len({*values}) > 1:
            raise UsageError(f"{self.name}: {' and '.join(given)} differ. Leave one out.")
        return values[0]

    def between(self) -> str:
        """The function of the MLP."""
        act, no_gate = str(self.keys["hidden_act"]), self.type in _NO_GATE
        of = {"silu": "swiglu", "gelu": "gelu", "relu": "relu"}.get(act.partition("_")[0], "")
        if of == "gelu" and self.is_gemma:
            return "geglu"
        if not of or (of != "swiglu" and not no_gate):
            raise self.refuse(
                "hidden_act must be silu or, of gemma, gelu (with a gate), or gelu or relu "
                f"(without; of {', '.join(filter(None, _NO_GATE))}), got {act} of model_type "
                f"{shown(self.type)}"
            )
        return of

    def windows(self, dense: int) -> list[int]:
        """The tokens that a token of each layer sees; 0: all before it. Of an unknown number of
        layers there is one of each kind at least."""
        window, types = self.size("sliding_window", default=0), self.keys.get("layer_types") or []
        used = self.keys.get("use_sliding_window", self.type not in _NO_WINDOW)
        first = every = 0
        if not types and used and window:
            every = _FULL_EVERY.get(str(self.type), 0)
            names = ("sliding_window_pattern", "_sliding_window_pattern", "layer_switch")
            every = self.size(*names, default=every)
            if "use_sliding_window" in self.keys:
                first = self.size("max_window_layers", default=0)
        layers = self.size("num_hidden_layers", default=len(types) or dense + first + every + 1)
        if layers > 9999 or types and len(types) != layers:
            raise UsageError(
                f"{self.name}: num_hidden_layers must be the length of layer_types and below "
                f"10000, got {layers}. Correct the file."
            )
        has = [kind == _KINDS[1] for kind in types] or [
            x >= first and (not every or (x + 1) % every > 0) for x in range(layers)
        ]
        return [window if used and here else 0 for here in has]


def read_config(
    name: str, config: Mapping, tokens: int | None = None
) -> tuple[dict[str, str], ModelSizes | None]:
    """The text of each part of a model, from its config; and the sizes of the whole model, if the
    config has them.

    Raises
    ------
    UsageError
        If sizes are missing or wrong, or a key may change shapes in a way that is not known.
    """
    read_from = _Config(name, config)
    config, kind, size = read_from.keys, read_from.type, read_from.size
    if missing := [key for key in _REQUIRED if config.get(key) is None]:
        raise read_from.refuse(f"model_type {shown(kind)} has no {', '.join(missing)}")
    of = read_from.between()
    width, heads, inner = map(size, ("hidden_size", "num_attention_heads", "intermediate_size"))
    kv_heads, latent = size("num_key_value_heads", default=heads), size("kv_lora_rank", default=0)
    if width % heads and config.get("head_dim") is None and not (latent or read_from.is_gemma):
        raise UsageError(
            f"{name}: hidden_size {width} is no multiple of num_attention_heads {heads}. Add "
            "head_dim."
        )
    usual = 256 if read_from.is_gemma else max(1, width // heads)  # of Hugging Face transformers
    head_dim = size("head_dim", default=usual)
    sequence = min(size("max_position_embeddings", default=_SEQUENCE), _SEQUENCE)
    tokens = tokens or sequence
    count = size("num_local_experts", "num_experts", "n_routed_experts", default=0)
    dense = size("first_k_dense_replace", default=0) if count else 0
    topk = size("num_experts_per_tok", "experts_per_token") if count else 0
    expert = size("moe_intermediate_size", default=inner) if count else inner
    shared = expert * size("n_shared_experts", "num_shared_experts", default=0)
    whole = size("shared_expert_intermediate_size", "shared_intermediate_size", default=0)
    shared, query, rotary = whole or shared, 0, 0
    if latent:
        head_dim, rotary, value = map(size, ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"))
        query = size("q_lora_rank", default=0)
        if size("qk_head_dim", default=head_dim + rotary) != value + rotary:
            raise read_from.refuse(
                f"qk_nope_head_dim and v_head_dim must be equal, got {head_dim} and {value}"
            )
    unknown = [
        shown(key)
        for key in config
        if key not in read_from.known and _changes_shapes(key, config[key])
    ]
    if unknown:
        raise read_from.refuse(
            f"drbench does not know how {', '.join(unknown[:9])} change the layers of "
            f"model_type {shown(kind)}"
        )

    def attend(window: int) -> str:
        sizes = f"heads={heads}, kv_heads={kv_heads}, head_dim={head_dim}"
        if latent:
            sizes = f"heads={heads}, head_dim={head_dim}, rotary={rotary}"
        sizes += f", sequence={min(sequence, tokens)}" + f", window={window}" * (window > 0)
        wide = heads * (head_dim + rotary)
        queries = [f"Wq = weight({width}, {wide})", "Q = X @ Wq"]
        if query:
            queries = [f"Wqa = weight({width}, {query})", "A = X @ Wqa"]
            queries += [f"Wqb = weight({query}, {wide})", "Q = A @ Wqb"]
        inputs = [
            *queries,
            f"Wkva = weight({width}, {latent + rotary})",
            "L = X @ Wkva",
            f"C = columns(L, first={latent})",
            f"Wkvb = weight({latent}, {heads * 2 * head_dim})",
            "KV = C @ Wkvb",
            f"O = latent_attention(Q, KV, {sizes})",
        ]
        if not latent:
            inputs = [
                f"Wqkv = weight({width}, {(heads + 2 * kv_heads) * head_dim})",
                "QKV = X @ Wqkv",
                f"O = attention(QKV, {sizes})",
            ]
        start, end = f"X = input({tokens}, {width})", f"Wo = weight({heads * head_dim}, {width})"
        return "\n".join([start, *inputs, end, "Y = O @ Wo"])

    mlp, sparse = ((width, inner, width), of), ((width, expert, width), of, (count, topk))
    beside, texts, layers = ((width, shared, width), of), {}, {}
    if not count or dense:
        texts["mlp"] = lines("X", *mlp, rows=tokens)
    if count:
        texts["experts"] = lines("X", *sparse, rows=tokens)
    if shared:
        texts["shared-expert"] = lines("X", *beside, rows=tokens)
    x = "X" if config.get("use_parallel_residual", kind in _PARALLEL) else "Z"
    windows = read_from.windows(dense)
    kinds = Counter((layer < dense, window) for layer, window in enumerate(windows))
    for (is_dense, window), number in sorted(kinds.items()):
        suffix = "-window" if window and not all(windows) else ""
        text = texts[f"attention{suffix}"] = attend(window)
        text += f"\nZ = X + Y\n{lines(x, *(mlp if is_dense else sparse))}"
        if shared and not is_dense:
            text += f"\n{lines(x, *beside, first=3)}\nM = Y2 + Y4\nS = Z + M"
        else:
            text += "\nS = Z + Y2"
        part = f"{'dense-' * is_dense}block{suffix}"
        texts[part], layers[part] = text, number
    if not (config.get("vocab_size") and config.get("num_hidden_layers")):
        return texts, None
    tied = config.get("tie_word_embeddings")
    if tied is None:
        tied = read_from.is_gemma or str(kind).startswith("cohere")
    sizes = ModelSizes(layers, width, size("vocab_size"), bool(tied))
    return texts | {"model": texts[sizes.part]}, sizes


def presets() -> list[str]:
    """Names of all presets.

    Examples
    --------
    >>> "llama3-70b:mlp" in presets(), len(presets())
    (True, 72)
    """
    return [f"{model}:{part}" for model in MODELS for part in read_config(model, MODELS[model])[0]]


def _find(name: str) -> tuple[str, str, object]:
    """The model, the part, and the model's config; of the path of a text no part, and the text."""
    model, _, part = (f"{name}:" if name.endswith(".json") else name).rpartition(":")
    try:
        if isfile(name) and model != name:
            return name, "", Path(name).read_text("utf-8")
        if isfile(model):
            return model, part, json.loads(Path(model).read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{name} cannot be read: {error}. Use a text or a config.json.") from None
    return model, part, MODELS.get(model)


def text_of(
    name: str, tokens: int | None = None, sequence: int | None = None, context: int | None = None
) -> str:
    """The text of a transformer's layer, or of a file, for
    :func:`drbench.chains.model.description.read`.

    Parameters
    ----------
    name : str
        ``MODEL:PART``, or ``PATH.json:PART`` with the config.json of a model, or the path of a
        text. A part is ``mlp``, ``experts``, ``shared-expert``, ``attention`` (with its
        projections) or ``block``: both, each with its residual connection. Of a model with several
        kinds of layers, ``attention-window`` and ``block-window`` are those with a window,
        ``dense-block`` those without experts, and ``model`` is that of most layers. Norms, routers
        and biases are left out.
    tokens : int, optional
        Rows of X: tokens of all sequences. By default those of a file; of a model one sequence.
    sequence : int, optional
        Tokens of a sequence; of a model by default the longest, or 8192.
    context : int, optional
        Instead of sequences, each row of X, one by default, is the new token of a sequence with a
        cache of so many tokens.

    Raises
    ------
    UsageError
        If there is no such preset, or a file is wrong, or there is no attention for a sequence or
        a cache.

    Examples
    --------
    >>> print(text_of("llama3-70b:mlp", 64))
    X = input(64, 8192)
    W1 = weight(8192, 57344)
    Y1 = X @ W1
    H1 = swiglu(Y1)
    W2 = weight(28672, 8192)
    Y2 = H1 @ W2
    >>> print(text_of("llama3-70b:attention", 64, context=4096).splitlines()[3])
    O = attention(QKV, heads=64, kv_heads=8, head_dim=128, context=4096)
    """
    model, part, config = _find(name)
    rows = tokens or (1 if context else None)
    if isinstance(config, str):
        text, start = config, r"(?m)^(\s*X\s*=\s*input\()[^,#]*"
        text = re.sub(start, rf"\g<1>{rows}", text) if rows else text
    else:
        texts = read_config(model, config, rows or sequence)[0] if isinstance(config, dict) else {}
        if part not in texts:
            known = [f"{model}:{part}" for part in texts] or presets()
            hint = did_you_mean(name, known)
            listed = "" if hint and not texts else f"; there are {', '.join(known)}"
            raise UsageError(f"no preset and no file of a chain {name!r}{listed}.{hint}")
        text = texts[part]
    if sequence and context:
        raise UsageError(
            f"a new token has a cache of {context} tokens, got a sequence of {sequence}, too. Give "
            "its length as --context."
        )
    if sequence or context:
        length = f"context={context}" if context else f"sequence={sequence}"
        given = r"(?m)^([^#\n]*\b)(?:sequence|context)\s*=[^,)#\n]*"
        text, count = re.subn(given, rf"\g<1>{length}", text)
        if not count:
            raise UsageError(f"{name} has no attention for {length}. Leave that out.")
    return text


def model_sizes(name: str) -> ModelSizes | None:
    """The sizes of the whole model of a part, ``MODEL:PART``; None of a text, and of a config
    without num_hidden_layers or vocab_size.

    Examples
    --------
    >>> model_sizes("gpt-oss-120b:block").layers
    {'block': 18, 'block-window': 18}
    """
    model, _, config = _find(name)
    return read_config(model, config)[1] if isinstance(config, dict) else None


def preset(
    name: str,
    tokens: int | None = None,
    sequence: int | None = None,
    context: int | None = None,
    *,
    backward: bool = False,
) -> Chain:
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
    return read(text_of(name, tokens, sequence, context), name, backward=backward)
