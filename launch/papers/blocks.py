"""The time of a transformer's block with tensor parallelism, by collectives alone and with kernels
that overlap with them (FLUX, 5.2).

Megatron-LM overlaps in the backward pass, too (``core/tensor_parallel/layers.py``): if a weight is
divided by columns, its gradient needs the gathered input again, which arrives during the GEMM of
the input's gradient; and the sums of this are scattered during the GEMM of the weight's. If it is
divided by rows, what is gathered serves both GEMMs. Left out are the pipeline, data parallelism,
the optimizer, norms, the cache of keys and values, and the host's work.
"""

from collections.abc import Callable

from drbench.chains.model.costs import LayoutCosts
from drbench.chains.model.description import Chain, LocalMap, read
from drbench.chains.model.published import contender
from drbench.chains.model.transformers import MODELS, read_config


def block_of(model: str, tokens: int, sequence: int, backward: bool, **sizes: int) -> Chain:
    """The chain of a block of a preset's model, with sequences of this length and with these sizes
    of its config.json.

    Examples
    --------
    >>> chain = block_of("gpt3", 64, 32, False, hidden_size=1536)
    >>> chain.matrices["X"].shape, chain.operations[1].function.rows
    ((64, 1536), 32)
    """
    config = MODELS[model] | {"max_position_embeddings": sequence} | sizes
    return read(read_config(model, config, tokens)[0]["block"], model, backward=backward)


def block_s(
    chain: Chain, costs: LayoutCosts, name: str, fused_s: Callable[[str, tuple], float]
) -> tuple[float, float]:
    """(seconds, seconds without communication) of a block in the layouts of a contender.

    Parameters
    ----------
    costs : LayoutCosts
        Of a mesh of one dimension.
    name : str
        Of :data:`drbench.chains.model.published.CONTENDERS`.
    fused_s : callable
        ``fused_s(operation, shape)``: seconds of a kernel with communication, ``ag`` or ``rs``,
        which is used where it is faster; inf if there is none.
    """
    layouts, stationary = contender(chain, costs.mesh, name)
    total_s = alone_s = again_s = weight_s = 0.0
    for operation in chain.operations:
        layout = lambda matrix: layouts[chain.variable(matrix)]
        if isinstance(operation, LocalMap):
            seconds = costs.map_s(chain, operation, layout(operation.c))
            total_s, alone_s = total_s + seconds, alone_s + seconds
            continue
        (way,) = costs.ways(
            chain, operation, [layout(x) for x in (*operation.takes, operation.c)], stationary
        )
        move_s = sum(use.program.times.seconds for use in way.moves)
        gemm_s = way.gemm.program.times.seconds
        alone_s += gemm_s
        if "a" in operation.transpose:  # a weight's gradient, before that of its input
            again_s, weight_s = move_s, gemm_s
            continue
        scatters = any(use.matrix == "C" for use in way.moves)
        if not scatters:
            again_s = 0.0
        after_s = max(move_s, weight_s) if scatters else move_s + weight_s
        plain_s = max(again_s, gemm_s) + after_s
        kernel_s = fused_s("rs" if scatters else "ag", chain.extents(operation))
        total_s += min(plain_s, max(again_s, kernel_s) + weight_s)
        again_s = weight_s = 0.0
    return total_s, alone_s
