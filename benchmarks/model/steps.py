"""Published training steps and their memory against predictions: all layers, as ``drbench chain``
predicts them, with embedding, norms, head and optimizer.

    python -m benchmarks model steps [--write results/simulated/readings/steps.csv] [--fit]

Prints the parts of each predicted step, and each published number with its prediction
(results/published/steps/steps.csv). One constant is fitted, the clock of torchtitan's machine in
steps.toml, to the first row, which does not count; ``--fit`` finds it again.
"""

from collections.abc import Iterator
from functools import cache
from math import prod
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from benchmarks.__main__ import parser_of
from benchmarks.pages.tables import table
from drbench.chains.answer import seen
from drbench.chains.model.choose import choose
from drbench.chains.model.costs import LayoutCosts, Training
from drbench.chains.model.description import read
from drbench.chains.model.mesh import DeviceMesh
from drbench.chains.model.transformers import MODELS, read_config
from drbench.chains.model.whole import Whole, rest_memory, rest_times
from drbench.launch.cases.machine_models import find_machine
from drbench.launch.cases.sweep_values import read_toml
from drbench.launch.host.files import ROOT

PUBLISHED = ROOT / "results/published/steps/steps.csv"
FILE = read_toml(Path(__file__).with_suffix(".toml"))
#: What all GPT models have.
_GPT = {"max_position_embeddings": 2048, "hidden_act": "gelu", "vocab_size": 51200}
_GPT |= {"tie_word_embeddings": True}
#: Parts of a step that are no part of its layers.
_REST = ("head", "embedding", "optimizer")
#: Memory that is owned, and that a layer keeps for its backward pass.
_OWNED, _KEPT = ("weights", "gradients", "optimizer"), ("activations", "norms")


class PublishedStep(NamedTuple):
    """A training step as steps.csv has it: dimensions of the mesh between semicolons, sequences of
    a tensor-parallel group, and whether the loss is ``compiled`` or ``eager``."""

    machine: str
    model: str
    mesh: str
    scheme: str
    batch: int
    dtype: str
    recompute: str
    loss: str


class StepPrediction(NamedTuple):
    """Seconds of a training step and bytes of a rank, by part; and tokens of a rank."""

    times: dict[str, float]
    memory: dict[str, int]
    tokens: float

    @property
    def time_s(self) -> float:
        return sum(self.times.values())

    @property
    def rest_s(self) -> float:
        """Seconds that no layer takes."""
        return sum(self.times[part] for part in _REST)

    def gib(self, *kinds: str) -> float:
        """GiB of these kinds."""
        return sum(self.memory[kind] for kind in kinds) / 2**30


@cache
def predict(step: PublishedStep, layers: int = 0, clock: float = 0.0) -> StepPrediction:
    """The prediction of a step, by default with all layers and the clock of steps.toml."""
    config, is_gpt = MODELS.get(step.model), step.model.startswith("gpt")
    config = config or _GPT | FILE["models"][step.model]
    mesh = DeviceMesh.read(step.mesh.replace(";", ","))
    tokens = step.batch * config["max_position_embeddings"]
    tokens *= dict(zip(mesh.names, mesh.extents)).get("dp", 1)
    texts, model = read_config(step.model, config, tokens)
    layers = layers or sum(model.layers.values())
    chain = read(texts["block"], step.model, backward=True)
    name = f"{FILE['machines'][step.machine]},memory_bytes=1e15"
    machine = find_machine(f"{name},clock={clock}" if clock else name)
    training = Training(layers, 1, step.recompute, 0, "float32", is_gpt)
    costs = LayoutCosts(seen(machine, step.dtype, "auto"), mesh, step.dtype, training)
    search = choose(chain, [costs], effort_s=0)
    solution = next(known for known in search.contenders if known.name == step.scheme)
    layer = sum(prod(x.shape) for x in chain.matrices.values() if x.kind == "weight")
    whole = Whole(model, layers, layer, layers, layers)
    share = whole.share(solution)
    share = share._replace(fused_loss=step.loss == "compiled", dropout=is_gpt)
    of_head = seen(machine, costs.stored, "auto")
    times = {part: layers * seconds for part, seconds in solution.parts.items()}
    times |= rest_times(model, share, training, of_head, whole.parameters)
    rest = rest_memory(model, share, training, layer)
    memory = {f"{kind} of words": rest.pop(kind) for kind in _OWNED}
    return StepPrediction(times, solution.memory | memory | rest, share.tokens / share.tensor)


def predict_quantity(step: PublishedStep, quantity: str, clock: float = 0.0) -> float:
    """A number that is published, by its words in steps.csv. Those "of TP" are relative to the same
    model with tensor parallelism alone and without recomputation."""
    if quantity.endswith(" of TP"):
        base, what = step._replace(scheme="Megatron TP", recompute="none"), quantity[:-6]
        return predict_quantity(step, what) / predict_quantity(base, what)
    predicted = predict(step, clock=clock)
    match quantity:
        case "tokens/s":
            return predicted.tokens / predicted.time_s
        case "s":
            return predicted.time_s
        case "layer":
            return predicted.time_s - predicted.rest_s
        case "GiB":
            return predicted.gib(*predicted.memory)
        case "parameters GiB":
            return predicted.gib(*_OWNED)
        case "kept":  # by each layer
            return predict(step, 2).gib(*_KEPT) - predict(step, 1).gib(*_KEPT)
        case _:
            return predicted.gib(*_KEPT)


def compare() -> Iterator[dict]:
    """The rows of steps.csv with their predictions."""
    for row in pd.read_csv(PUBLISHED).to_dict("records"):
        step = PublishedStep(*(row[name] for name in PublishedStep._fields))
        predicted = predict_quantity(step, row["quantity"])
        is_time = row["quantity"] in ("tokens/s", "s")
        share = predict(step).rest_s / predict(step).time_s if is_time else None
        yield row | {"predicted": predicted, "rest_share": share}


def fit_clock() -> float:
    """The clock with which the first row is met."""
    row = pd.read_csv(PUBLISHED).iloc[0]
    step, low, high = PublishedStep(*row[[*PublishedStep._fields]]), 0.1, 1.0
    while high - low > 1e-4:
        clock = (low + high) / 2
        slow = predict_quantity(step, row.quantity, clock) < row.published
        low, high = (clock, high) if slow else (low, clock)
    return round(high, 3)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--write", type=Path, help="the rows of the page")
    parser.add_argument("--fit", action="store_true", help="find the clock")
    given = parser.parse_args()
    if given.fit:
        print(f"clock = {fit_clock()}")
        return
    rows = pd.DataFrame(compare())
    steps = rows[rows.rest_share.notna()][[*PublishedStep._fields]]
    for step in map(PublishedStep._make, steps.itertuples(index=False)):
        predicted = predict(step)
        print(*step)
        print("   s:", *(f"{part} {seconds:.3f}" for part, seconds in predicted.times.items()))
        print("   GiB:", *(f"{kind} {predicted.gib(kind):.2f}" for kind in predicted.memory))
    heads = ["model", "mesh", "scheme", "dtype", "recompute", "quantity", "published"]
    ratios = rows.predicted / rows.published
    lines = [
        [*row, f"{predicted:.4g}", f"{ratio:.2f}"]
        for row, predicted, ratio in zip(
            rows[heads].itertuples(index=False), rows.predicted, ratios
        )
    ]
    print(table([*heads, "predicted", "ratio"], lines))
    if given.write:
        rows.round(4).to_csv(given.write, index=False)


if __name__ == "__main__":
    main()
