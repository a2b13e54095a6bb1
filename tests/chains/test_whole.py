"""A training step beside its layers: every part counted by hand on machines where only one thing
takes time."""

import pytest

import drbench
from drbench.chains.model.costs import Training
from drbench.chains.model.transformers import ModelSizes, model_sizes
from drbench.chains.model.whole import StepShare, rest_memory, rest_times
from drbench.model.gemm import Compute
from drbench.model.machine import Link, Machine

MODEL = ModelSizes({}, width=8, vocab=60, tied=False)
FREE = Link("free", float("inf"))
#: Seconds of these machines are products of a GEMM, bytes of memory, bytes of a wire.
PRODUCTS = Machine("products", Compute(2.0), (FREE,))
MEMORY = Machine("memory", Compute(1e30, memory_bytes_per_s=1.0), (FREE,))
WIRE = Machine("wire", Compute(1e30), (Link("wire", 1.0),))
TRAINING = Training(layers=3)


def times(machine, share, training=TRAINING, parameters=1000, model=MODEL):
    return rest_times(model, share, training, machine, parameters)


@pytest.mark.parametrize("tensor, words", [(1, 60), (4, 15), (7, 9)])
def test_the_head_is_one_gemm_forward_and_two_backward_of_the_words_of_a_rank(tensor, words):
    found = times(PRODUCTS, StepShare(100, tensor))
    assert found.pop("head") == pytest.approx(3 * 100 * words * 8)
    assert found == dict.fromkeys(found, pytest.approx(0))


@pytest.mark.parametrize("fused, nbytes", [(False, 40), (True, 8)])
def test_memory_traffic_of_each_part(fused, nbytes):
    share = StepShare(100, tensor=4, data=2, fused_loss=fused)
    found = times(MEMORY, share)
    # each GEMM has all three matrices; its result is read and written
    gemms = 2 * 4 * (100 * 15 + 100 * 8 + 15 * 8)
    assert found["head"] == pytest.approx(gemms + nbytes * 100 * 15)
    # rows are read and written, forward and backward; the gradient of words is zeroed and added to
    assert found["embedding"] == pytest.approx(4 * 2 * 100 * 8 + 2 * 2 * 15 * 8)
    # seven norms, two passes forward and three backward, over a quarter of the rows
    assert found["norms"] == pytest.approx(7 * 5 * 2 * 100 * 8 / 4)
    assert found["optimizer"] == pytest.approx(40 * 1000 / 4)


def test_ranks_divide_norms_with_sequences_and_the_optimizer_with_zero():
    share = StepShare(100, tensor=4, data=2)
    whole = times(MEMORY, share._replace(sequence=False))["norms"]
    assert times(MEMORY, share)["norms"] == whole / 4
    for kind, passes in (("none", 5), ("attention", 5), ("selective", 7), ("full", 7)):
        norms = times(MEMORY, share, TRAINING._replace(recompute=kind))["norms"]
        assert norms == pytest.approx(7 * passes * 2 * 100 * 8 / 4)
    optimizer = lambda share, zero: times(MEMORY, share, TRAINING._replace(zero=zero))["optimizer"]
    assert [optimizer(share, zero) for zero in range(3)] == [10000, 5000, 5000]
    assert optimizer(share._replace(sharded=True), 0) == 5000


def test_only_rows_of_tensor_parallelism_and_the_embedding_s_weights_are_waited_for():
    rows, weights = 2 * 100 * 8, 60 * 8
    alone = times(WIRE, StepShare(100, data=4))
    assert alone["embedding"] == pytest.approx(2 * 4 * weights * 3 / 4)  # copies reduce gradients
    tensor = times(WIRE, StepShare(100, tensor=4))
    assert tensor["embedding"] == pytest.approx(4 * rows * 3 / 4)
    sharded = times(WIRE, StepShare(100, data=4, sharded=True))
    assert sharded["embedding"] == pytest.approx((2 + 4) * weights * 3 / 4)
    both = times(WIRE, StepShare(100, tensor=2, data=4, sharded=True))
    waits = 4 * rows / 2 + (2 + 4) * weights / 2 * 3 / 4
    assert both["embedding"] == pytest.approx(waits)
    others = [found[part] for found in (tensor, both) for part in ("head", "norms", "optimizer")]
    assert others == [pytest.approx(0)] * 6


@pytest.mark.parametrize(
    "zero, sharded, parts",
    [(0, False, (1, 1, 1)), (1, False, (1, 1, 4)), (2, False, (1, 4, 4)), (0, True, (4, 4, 4))],
)
@pytest.mark.parametrize("tied", [False, True])
def test_data_parallel_ranks_divide_what_zero_says_of_embedding_and_head(
    zero, sharded, parts, tied
):
    share = StepShare(100, tensor=2, data=4, sharded=sharded)
    training = TRAINING._replace(zero=zero, gradients="float32")
    found = rest_memory(MODEL._replace(tied=tied), share, training, 64)
    own = 30 * 8 * (1 if tied else 2)
    assert found["weights"] == 2 * own / parts[0]
    assert found["gradients"] == 4 * own / parts[1]
    assert found["optimizer"] == 12 * own / parts[2]
    # embedding and head, two layers of 32 parameters, and gradients of one in float32
    assert found["gathered"] == (2 * (own + 2 * 32) + 4 * 32 if sharded else 0)


def test_what_is_held_at_the_loss():
    share = StepShare(100, tensor=4)
    held = lambda share, kind="none": rest_memory(
        MODEL, share, TRAINING._replace(recompute=kind), 64
    )
    assert held(share)["logits"] == 18 * 100 * 15
    assert held(share._replace(tensor=1))["logits"] == 14 * 100 * 60
    assert held(share._replace(fused_loss=True))["logits"] == 4 * 100 * 15
    # two inputs of norms a layer
    assert held(share)["norms"] == held(share, "attention")["norms"] == 3 * 2 * 2 * 100 * 8 / 4
    assert held(share._replace(sequence=False))["norms"] == 3 * 2 * 2 * 100 * 8
    # with a mask of a byte an element each
    assert held(share._replace(dropout=True))["norms"] == 3 * 2 * (2 + 1) * 100 * 8 / 4
    assert held(share, "full")["norms"] == held(share, "selective")["norms"] == 0
    assert held(share)["gradients"] == held(share)["weights"]


@pytest.mark.parametrize("model", ["gemma3-27b", "gpt-oss-120b", "deepseek-v3"])
@pytest.mark.parametrize("context", [None, 131072])
def test_a_model_is_the_sum_of_its_kinds_of_layers(model, context):
    """Those of DeepSeek without experts are as long as their FLOPs say: 3 of 61."""
    words = {"mesh": "tp=8", "tokens": 64 if context else 16384, "context": context, "effort": 0}
    of = lambda part: (
        drbench.chain(f"{model}:{part}", "dgxh100,memory_bytes=1e13", programs="nccl", **words)
        .row("Megatron TP")
        .solution
    )
    whole, sizes = of("model"), model_sizes(f"{model}:block")
    parts = {part: of(part) for part in sizes.layers}
    layers_s = sum(count * parts[part].time_s for part, count in sizes.layers.items())
    assert whole.step["layers"] == pytest.approx(layers_s, rel=0.04 if "deep" in model else 1e-6)
    if context:
        cache = sum(count * parts[part].memory["cache"] for part, count in sizes.layers.items())
        assert whole.memory["cache"] == pytest.approx(cache, rel=1e-6)
    parameters = sum(count * parts[part].memory["weights"] for part, count in sizes.layers.items())
    words_bytes = 2 * (2 - sizes.tied) * sizes.vocab * sizes.width / 8
    assert whole.memory["weights"] == pytest.approx(parameters + words_bytes, rel=1e-3)


def test_a_model_that_does_not_fit_in_its_fastest_layouts_gets_others():
    words = {"mesh": "dp=2,tp=8", "tokens": 65536, "backward": True, "recompute": "full"}
    words["effort"] = 3
    of = lambda **more: drbench.chain("llama3-8b:model", "dgxh100", programs="nccl", **words | more)
    free = of().best.solution
    for share in (0.97, 0.9):
        tight = of(memory=int(share * free.memory_bytes)).best.solution
        assert tight.memory_bytes <= share * free.memory_bytes
        assert tight.total_s >= free.total_s * 0.999


def test_the_best_of_a_whole_model_has_the_shortest_step():
    words = {"tokens": 65536, "backward": True, "recompute": "full", "effort": 1}
    choice = drbench.chain("llama3-8b:model", "dgxh100", 16, **words)
    times = [row.solution.total_s for row in choice.ranking]
    assert times[0] <= min(times) * 1.001 and times[1:] == sorted(times[1:])
    assert [*choice.table["time_s"]] == [row.solution.total_s for row in choice.shown]


def test_shares_of_the_peak_are_those_of_the_data_sheet_at_any_clock():
    words = {"mesh": "tp=8", "tokens": 8192, "programs": "nccl", "effort": 0}
    full, slow = (
        drbench.chain("llama3-8b:model", f"dgxh100{clock}", **words).row("Megatron TP").solution
        for clock in ("", ",clock=0.5")
    )
    assert slow.mfu / full.mfu == pytest.approx(full.total_s / slow.total_s)
    assert slow.hfu / full.hfu == pytest.approx(full.total_s / slow.total_s)
    by_hand = (
        2 * 8192 * (8030261248 - 128256 * 4096 - 65 * 4096)
    )  # embedding and norms multiply nothing
    attention = 32 * 4 * 8192**2 * 4096  # scores and values, with the masked half
    peak = full.total_s * 8 * 989.4e12
    assert full.mfu == pytest.approx((by_hand + attention) / peak, rel=1e-3)
    assert full.hfu == pytest.approx((by_hand + attention / 2) / peak, rel=1e-3)
