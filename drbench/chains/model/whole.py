"""What a training step of a whole model needs beside its layers: embedding, norms, head with loss,
and optimizer, one formula for each.

Weights that data-parallel ranks divide are gathered while other layers compute. Only the first
gather of a step and its last reduction, both of the embedding, hide behind nothing.
"""

from dataclasses import dataclass, replace
from math import prod
from typing import NamedTuple

from drbench.errors import UsageError
from drbench.model.machine import Machine
from drbench.program.problem import ITEMSIZES

from .choose import Solution
from .costs import OPTIMIZER_BYTES, LayoutCosts, Training, as_stored
from .description import Chain, LocalMap, read
from .functions import Function
from .mesh import cut
from .programs import CollectiveProgram, RankGroup
from .transformers import ModelSizes, model_sizes, text_of

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
    model: ModelSizes, share: StepShare, training: Training, machine: Machine, parameters: float
) -> dict[str, float]:
    """Seconds of a training step beside its layers, by part; without ``parameters`` of a forward
    pass, after which logits are read once.

    Parameters
    ----------
    model : ModelSizes
    share : StepShare
    training : Training
    machine : Machine
        With the element type of the head, which may be another than that of the layers.
    parameters : float
        Of the whole model; 0: nothing is trained.

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
    trains = parameters > 0
    head_s = sum(compute.gemm_s(*sizes, item) for sizes in gemms[: 3 if trains else 1])
    passes = (_FUSED_MOVED if fused else _MOVED) if trains else item
    head_s += compute.memory_s(passes * tokens * words)
    rows, weights = item * tokens * width, words * width
    embedding_s = compute.memory_s(2 * (1 + trains) * rows + 2 * trains * item * weights)
    # Forward the embedding is scattered and the input of the head gathered; backward the reverse.
    moved = [("gather", 1, tensor, rows // tensor, item), ("scatter", 1, tensor, rows, item)]
    moved *= 1 + trains
    if sharded:
        moved.append(("gather", tensor, data, item * weights // data, item))
    if trains:
        kind = "scatter" if sharded else "reduce"
        moved.append((kind, tensor, data, _FLOAT * weights, _FLOAT))
    for kind, stride, extent, nbytes, size in moved:
        if extent > 1:
            group = RankGroup(stride, extent, ranks)
            embedding_s += CollectiveProgram(kind, group, nbytes, machine, size).times.seconds
    forward, backward = _NORM_PASSES
    again = forward * (training.recompute in ("selective", "full"))
    norms = (2 * training.layers + 1) * (forward + trains * (again + backward))
    own = parameters / tensor / (data if sharded or training.zero else 1)
    return {
        "head": head_s,
        "embedding": embedding_s,
        "norms": norms * compute.memory_s(item * share.normed(model)),
    } | ({"optimizer": compute.memory_s(_ADAM * own)} if trains else {})


def rest_memory(
    model: ModelSizes,
    share: StepShare,
    training: Training,
    layer_parameters: int,
    trains: bool = True,
) -> dict[str, int]:
    """Bytes of a rank beside those of its layers, when it computes the loss, by what they are;
    ``gathered``: embedding and head, weights of two layers, and gradients of one in float32. If
    nothing is trained: weights, and logits as they are.

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
    gathered = (share.item * (own + 2 * layer) + _FLOAT * layer * trains) * share.sharded
    if not trains:
        logits = share.item * share.tokens * words
        return {"weights": share.item * parts[0], "logits": logits, "gathered": gathered}
    return {
        "weights": share.item * parts[0],
        "gradients": (ITEMSIZES.get(training.gradients) or share.item) * parts[1],
        "optimizer": OPTIMIZER_BYTES[share.item] * parts[2],
        "logits": held * share.tokens * words,
        "norms": stored * share.normed(model),
        "gathered": gathered,
    }


def functions_of(chain: Chain) -> list[Function]:
    """The functions of a chain, in order."""
    return [x.function for x in chain.operations if isinstance(x, LocalMap)]


@dataclass(frozen=True)
class Whole:
    """A model of which a chain is a layer.

    Attributes
    ----------
    sizes : ModelSizes
    layers : int
        All layers.
    layer_parameters : int
        Of the chain.
    weight_layers, time_layers : float
        Layers of the chain's kind that have as many parameters, and model FLOPs, as all layers.
    windows : tuple of (int, int)
        The windows of attention (0: none) and the number of layers with each.
    unlike : float
        Layers of the chain's kind that have as many model FLOPs as those with, or without, experts,
        if the chain is without, or with.
    """

    sizes: ModelSizes
    layers: int
    layer_parameters: int
    weight_layers: float
    time_layers: float
    windows: tuple[tuple[int, int], ...] = ()
    unlike: float = 0.0

    @classmethod
    def of(cls, model: str, *lengths: int | None) -> "Whole":
        """The model of a name, with tokens, sequence and context as in :func:`text_of`.

        Raises
        ------
        UsageError
            If its config does not have the numbers of layers and of words.

        Examples
        --------
        >>> whole = Whole.of("deepseek-v3", 4096)
        >>> whole.sizes.part, whole.layers, round(whole.weight_layers, 2), whole.parameters // 10**9
        ('block', 61, 58.15, 670)
        """
        sizes = model_sizes(f"{model}:block")
        if sizes is None:
            raise UsageError(
                f"{model} does not say how many layers and words it has. Add num_hidden_layers and "
                "vocab_size to its config.json, or use a part and --layers."
            )
        chains = {part: read(text_of(f"{model}:{part}", *lengths), part) for part in sizes.layers}
        part, parameters, flops = sizes.part, {}, {}
        for name, chain in chains.items():
            matrices = chain.matrices.values()
            parameters[name] = sum(
                x.count * x.rows * x.cols for x in matrices if x.kind == "weight"
            )
            flops[name] = chain.model_flops
        every = lambda of: sum(count * of[name] for name, count in sizes.layers.items()) / of[part]
        layers, is_dense = sum(sizes.layers.values()), lambda name: name.startswith("dense-")
        window_of = lambda chain: next(x.window for x in functions_of(chain) if x.heads)
        alike = [name for name in sizes.layers if is_dense(name) == is_dense(part)]
        windows = tuple((window_of(chains[name]), sizes.layers[name]) for name in alike)
        others = {name: sizes.layers[name] for name in sizes.layers if name not in alike}
        unlike = sum(count * flops[name] for name, count in others.items()) / flops[part]
        sums = every(parameters), every(flops)
        return cls(sizes, layers, parameters[part], *sums, windows, unlike)

    @property
    def parameters(self) -> int:
        """Of all layers, the embedding and the head."""
        return round(self.weight_layers * self.layer_parameters) + self.sizes.words

    def count_seen(self, of: Function) -> int:
        """The tokens of a cache that attention of a new token sees, of all layers together."""
        others = self.layers - sum(count for _, count in self.windows)
        counted = *self.windows, (of.window, others)
        return sum(count * replace(of, window=window).seen for window, count in counted)

    def layers_s(self, solution: Solution) -> float:
        """Seconds of all layers: those with another window in the same layouts, those with or
        without experts by their FLOPs."""
        chain, seconds = solution.chain, self.unlike * solution.time_s
        for window, count in self.windows:
            operations = [
                operation._replace(function=replace(operation.function, window=window))
                if isinstance(operation, LocalMap) and operation.function.heads
                else operation
                for operation in chain.operations
            ]
            like = replace(solution, chain=replace(chain, operations=operations))
            seconds += count * like.time_s
        return seconds

    def head_flops(self, chain: Chain) -> float:
        """FLOPs of the head in all passes."""
        tokens = chain.matrices["X"].rows
        return 2 * tokens * self.sizes.vocab * self.sizes.width * (3 if chain.has_backward else 1)

    def share(self, solution: Solution) -> StepShare:
        """What a rank has of the embedding and the head: divided as weights of the layers are."""
        chain, mesh, item = solution.chain, solution.mesh, solution.costs.item
        weights = [x for x in chain.multiplications if chain.matrices[x.b].kind == "weight"]
        is_any = lambda layouts, x: any(layout[x] in ("S(0)", "S(1)") for layout in layouts)
        inner = [solution.inner[matmul.c][1] for matmul in weights]
        of = lambda dims: prod(mesh.extents[x] for x in dims)
        tensor = [x for x in range(len(mesh.extents)) if is_any(inner, x)]
        data = [x for x in range(len(mesh.extents)) if x not in tensor]
        stored = [solution.layout(matmul.b) for matmul in weights]
        sharded = [x for x in data if is_any(stored, x)]
        sequence = all(solution.layout("X")[x] == "S(0)" for x in tensor)
        tokens = -(-chain.matrices["X"].rows // of(data))
        parts = tokens, of(tensor), of(sharded or data), bool(sharded), sequence
        return StepShare(*parts, item=item)

    def memory(self, solution: Solution) -> dict[str, int]:
        """Bytes of a rank beside those of its layers (:func:`rest_memory`)."""
        share, chain, gathered = self.share(solution), solution.chain, 0
        for matmul in chain.multiplications:
            weight, to = chain.matrices[matmul.b], solution.way(matmul).inner[1]
            if weight.kind == "weight" and not chain.is_gradient(matmul.c):
                if to != solution.layout(matmul.b):
                    gathered += weight.count * prod(
                        cut(weight.shape[x], to, x, solution.mesh) for x in (0, 1)
                    )
        sizes = self.sizes, share, solution.costs.training, gathered * share.tensor
        return rest_memory(*sizes, chain.has_backward)

    def least_bytes(self, costs: LayoutCosts) -> int:
        """Bytes that a rank needs at least beside those of the layers."""
        return self.sizes.words * costs.item // costs.mesh.ranks

    def times(self, solution: Solution) -> dict[str, float]:
        """Seconds of a step, or of a pass without gradients, by part."""
        costs, passes = solution.costs, solution.costs.training.micro_batches
        machine = as_stored(costs.machine, costs.stored)
        share = self.share(solution)
        own = solution.memory["optimizer"] / OPTIMIZER_BYTES[share.item] * share.tensor
        own *= share.data if share.sharded or costs.training.zero else 1
        rest = rest_times(self.sizes, share, costs.training, machine, own)
        times = {"layers": self.layers_s(solution)} | rest
        return {
            name: time_s * (1 if name == "optimizer" else passes) for name, time_s in times.items()
        }
