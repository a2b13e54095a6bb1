"""Parts of published transformers, as chains: shapes from their configurations.

==============  =====================================================================
GPT-3 175B      Brown et al., 2020, Table 2.1: d_model 12288, 96 heads of 128, 2048 tokens;
                the inner layer is 4 · d_model
Llama 3         Grattafiori et al., 2024 (The Llama 3 Herd of Models), Table 3: 8B, 70B and 405B;
                8 key/value heads, sequences of 8192 tokens in pre-training
DeepSeek-V3     DeepSeek-AI, 2024, §4.2: hidden 7168, 128 heads of 128, query rank 1536,
                key/value rank 512, rotary part 64; inner layer of the dense layers 18432, of the
                shared expert 2048 (config.json: intermediate_size, moe_intermediate_size);
                4096 tokens in pre-training
==============  =====================================================================
"""

from __future__ import annotations

from dataclasses import dataclass

from drbench.errors import UsageError, did_you_mean

from .description import Chain, finished, layers
from .functions import attention, function


@dataclass(frozen=True)
class Model:
    """Shapes of a transformer's layer: model width, inner width, heads, key/value heads, width of
    a head, tokens of a sequence, and the function inside its MLP."""

    width: int
    inner: int
    heads: int
    kv_heads: int
    head_dim: int
    sequence: int
    between: str = "swiglu"


MODELS = {
    "gpt3": Model(12288, 49152, 96, 96, 128, 2048, "gelu"),
    "llama3-8b": Model(4096, 14336, 32, 8, 128, 8192),
    "llama3-70b": Model(8192, 28672, 64, 8, 128, 8192),
    "llama3-405b": Model(16384, 53248, 128, 8, 128, 8192),
}
#: The dense parts of DeepSeek-V3: widths, and the functions between.
_DEEPSEEK = {
    "mlp": ((7168, 18432, 7168), "swiglu"),
    "shared-expert": ((7168, 2048, 7168), "swiglu"),
    "query": ((7168, 1536, 128 * (128 + 64)), "none"),
    "key-value": ((7168, 512, 128 * (128 + 128)), "none"),
    "output": ((128 * 128, 7168), "none"),
}
_PARTS = ("mlp", "attention", "block")
_DEEPSEEK_TOKENS = 4096


def presets() -> list[str]:
    """Names of all presets.

    Examples
    --------
    >>> "llama3-70b:mlp" in presets(), len(presets())
    (True, 17)
    """
    return [f"{model}:{part}" for model in MODELS for part in _PARTS] + [
        f"deepseek-v3:{part}" for part in _DEEPSEEK
    ]


def preset(name: str, tokens: int | None = None, *, backward: bool = False) -> Chain:
    """A chain of a transformer's layer.

    Parameters
    ----------
    name : str
        ``MODEL:PART``; a part is ``mlp``, ``attention`` (with its projections) or ``block``: both,
        each with its residual connection. Norms are left out.
    tokens : int, optional
        Rows: tokens of all sequences. By default one sequence.
    backward : bool

    Raises
    ------
    UsageError
        If the preset is unknown, or tokens are not whole sequences in a chain with attention.

    Examples
    --------
    >>> chain = preset("llama3-70b:attention")
    >>> [str(each) for each in chain.operations]
    ['QKV = X·Wqkv', 'O = attention(QKV)', 'Y = O·Wo']
    >>> chain.matrices["Wqkv"].cols
    10240
    """
    if name not in presets():
        raise UsageError(
            f"no preset {name!r}; there are {', '.join(presets())}.{did_you_mean(name, presets())}"
        )
    model, _, part = name.partition(":")
    if model == "deepseek-v3":
        widths, between = _DEEPSEEK[part]
        tokens = tokens or _DEEPSEEK_TOKENS
        return layers(tokens, widths, (between,), backward=backward, name=name)
    shape = MODELS[model]
    tokens = tokens or shape.sequence
    if part == "mlp":
        widths = shape.width, shape.inner, shape.width
        return layers(tokens, widths, (shape.between,), backward=backward, name=name)
    chain = Chain(name)
    x = chain.add("X", tokens, shape.width, "input")
    heads = attention(shape.heads, shape.kv_heads, shape.head_dim, min(shape.sequence, tokens))
    wide = (shape.heads + 2 * shape.kv_heads) * shape.head_dim
    chain.add("Wqkv", shape.width, wide, "weight")
    chain.add("Wo", shape.heads * shape.head_dim, shape.width, "weight")
    chain.multiply("QKV", x, "Wqkv")
    chain.between("O", heads, "QKV")
    y = chain.multiply("Y", "O", "Wo")
    if part == "block":
        x = chain.between("R", function("add"), x, y)
        made = function(shape.between)
        chain.add("W1", shape.width, shape.inner * made.takes[0], "weight")
        chain.add("W2", shape.inner, shape.width, "weight")
        chain.multiply("G", x, "W1")
        chain.between("H", made, "G")
        chain.multiply("Z", "H", "W2")
        y = chain.between("S", function("add"), x, "Z")
    return finished(chain, y, backward)
