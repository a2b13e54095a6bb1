"""What a training step of a whole model needs beside its layers: embedding, norms, head with loss,
and optimizer, one formula for each.

Weights that data-parallel ranks divide are gathered while other layers compute. Only the first
gather of a step and its last reduction, both of the embedding, hide behind nothing.
"""

from typing import NamedTuple

from drbench.model.machine import Machine
from drbench.program.problem import ITEMSIZES

from .costs import Training
from .programs import CollectiveProgram, RankGroup
from .transformers import ModelSizes

#: Bytes that a loss moves and holds for a logit: about ten passes in float32 by separate kernels,
#: which hold log-probabilities, two gradients and logits in 16 bits; or one compiled kernel, which
#: reads logits twice and writes gradients, all in 16 bits.
_MOVED, _HELD, _FUSED_MOVED, _FUSED_HELD = 40, 14, 8, 4
#: Cross entropy of a divided vocabulary holds one matrix in float32 more.
_HELD_IN_PARTS = 4
#: How often a norm reads or writes its rows, in the forward and the backward pass.
_NORM_PASSES = 2, 3
#: Bytes of float32: of reduced gradients, and that Adam reads and writes for a parameter: weight,
#: two moments; the gradient is read, clipped and read again.
_FLOAT, _ADAM = 4, 4 * (6 + 4)


class StepShare(NamedTuple):
    """The share of a rank in a training step.

    Attributes
    ----------
    tokens : int
        Of the ranks of a tensor-parallel group together.
    tensor, data : int
        Ranks of tensor and of data parallelism.
    sharded : bool
        Data-parallel ranks divide weights (FSDP).
    sequence : bool
        Tensor-parallel ranks divide the rows of norms.
    fused_loss : bool
        One compiled kernel computes the loss.
    dropout : bool
        Two masks of a byte an element are kept with the inputs of norms.
    item : int
        Bytes of an element.
    """

    tokens: int
    tensor: int = 1
    data: int = 1
    sharded: bool = False
    sequence: bool = True
    fused_loss: bool = False
    dropout: bool = False
    item: int = 2

    def words(self, model: ModelSizes) -> int:
        """Words of the vocabulary of a rank."""
        return -(-model.vocab // self.tensor)

    def normed(self, model: ModelSizes) -> int:
        """Elements of the input of a norm."""
        return self.tokens * model.width // (self.tensor if self.sequence else 1)


def rest_times(
    model: ModelSizes, share: StepShare, training: Training, machine: Machine, parameters: int
) -> dict[str, float]:
    """Seconds of a training step beside its layers, by part.

    Parameters
    ----------
    model : ModelSizes
    share : StepShare
    training : Training
    machine : Machine
        With the element type of the head, which may be another than that of the layers.
    parameters : int
        Of the whole model.

    Examples
    --------
    >>> from drbench.launch.cases.machine_models import find_machine
    >>> machine = find_machine("dgxh100").for_dtype("bfloat16")
    >>> share, llama = StepShare(16384, data=8, sharded=True), ModelSizes({}, 4096, 128256, False)
    >>> times = rest_times(llama, share, Training(32), machine, 8030000000)
    >>> print(*(f"{name} {1e3 * seconds:.1f} ms" for name, seconds in times.items()))
    head 95.0 ms embedding 9.2 ms norms 16.0 ms optimizer 14.0 ms
    """
    compute, (tokens, tensor, data, sharded, _, fused, _, item) = machine.compute, share
    words, width, ranks = share.words(model), model.width, tensor * data
    gemms = (tokens, words, width), (tokens, width, words), (width, words, tokens)
    head_s = sum(compute.gemm_s(*sizes, item) for sizes in gemms)
    head_s += compute.memory_s((_FUSED_MOVED if fused else _MOVED) * tokens * words)
    rows, weights = item * tokens * width, words * width
    embedding_s = compute.memory_s(4 * rows + 2 * item * weights)
    # Forward the embedding is scattered and the input of the head gathered; backward the reverse.
    moved = [("gather", 1, tensor, rows // tensor, item), ("scatter", 1, tensor, rows, item)] * 2
    if sharded:
        moved += [
            ("gather", tensor, data, item * weights // data, item),
            ("scatter", tensor, data, _FLOAT * weights, _FLOAT),
        ]
    for kind, stride, extent, nbytes, size in moved:
        if extent > 1:
            group = RankGroup(stride, extent, ranks)
            embedding_s += CollectiveProgram(kind, group, nbytes, machine, size).times.seconds
    forward, backward = _NORM_PASSES
    again = forward * (training.recompute in ("selective", "full"))
    norms = (2 * training.layers + 1) * (forward + again + backward)
    own = parameters / tensor / (data if sharded or training.zero else 1)
    return {
        "head": head_s,
        "embedding": embedding_s,
        "norms": norms * compute.memory_s(item * share.normed(model)),
        "optimizer": compute.memory_s(_ADAM * own),
    }


def rest_memory(
    model: ModelSizes, share: StepShare, training: Training, layer_parameters: int
) -> dict[str, int]:
    """Bytes of a rank beside those of its layers, when it computes the loss, by what they are;
    ``gathered``: embedding and head, weights of two layers, and gradients of one in float32.

    Parameters
    ----------
    model : ModelSizes
    share : StepShare
    training : Training
    layer_parameters : int
        Of one layer.

    Examples
    --------
    >>> share, llama = StepShare(16384, data=8, sharded=True), ModelSizes({}, 4096, 128256, False)
    >>> nbytes = rest_memory(llama, share, Training(32), 218103808)
    >>> print(*(f"{name} {count / 2**30:.2f}" for name, count in nbytes.items()))
    weights 0.24 gradients 0.24 optimizer 1.47 logits 27.40 norms 8.00 gathered 3.58
    """
    words, zero = share.words(model), 3 if share.sharded else training.zero
    own = words * model.width * (2 - model.tied)
    parts = [-(-own // (share.data if zero >= level else 1)) for level in (3, 2, 1)]
    held = _FUSED_HELD if share.fused_loss else _HELD + _HELD_IN_PARTS * (share.tensor > 1)
    stored = 2 * training.layers * (training.recompute in ("none", "attention"))
    stored *= share.item + share.dropout
    layer = layer_parameters // share.tensor
    gathered = share.item * (own + 2 * layer) + _FLOAT * layer
    return {
        "weights": share.item * parts[0],
        "gradients": ITEMSIZES[training.gradients or "bfloat16"] * parts[1],
        "optimizer": 12 * parts[2],
        "logits": held * share.tokens * words,
        "norms": stored * share.normed(model),
        "gathered": gathered * share.sharded,
    }
