"""The time of each operation of a chain, programs that a framework has, recomputation, copies that
are shared, and recipes for 8 bits."""

from dataclasses import replace

import pandas
import pytest

import drbench
from drbench.chains.answer import PROGRAMS, records_of, seen, without_overlap
from drbench.chains.model.choose import PASSES, choose
from drbench.chains.model.costs import RECOMPUTED, LayoutCosts, Training
from drbench.chains.model.description import read
from drbench.chains.model.mesh import DeviceMesh
from drbench.chains.model.programs import LocalProgram
from drbench.chains.model.transformers import preset
from drbench.errors import UsageError
from drbench.launch.cases.machine_models import find_machine

BLOCK = preset("llama3-8b:block", 65536, sequence=2048, backward=True)


def answers(mesh="dp=2,tp=4", programs="nccl", dtype="bfloat16", chain=BLOCK, machine="", **step):
    """The known schemes on a mesh, by name."""
    model = seen(find_machine(f"dgxh100,memory_bytes=1e13{machine}"), dtype, "auto")
    costs = LayoutCosts(model, DeviceMesh.read(mesh), dtype, Training(**step), PROGRAMS[programs])
    return {known.name: known for known in choose(chain, [costs], effort_s=0).contenders}


@pytest.mark.parametrize("recompute", RECOMPUTED)
@pytest.mark.parametrize(
    "mesh, machine",
    [("dp=2,tp=4", ""), ("dp=2,tp=8", ""), ("dp=2,tp=8", ",nccl.network_bytes_per_s=1e9")],
)
def test_times_of_operations_add_up_to_the_answer(mesh, machine, recompute):
    for known in answers(mesh, "torch", machine=machine, recompute=recompute).values():
        rows = known.operations
        total = sum(row.compute_s + row.exposed_s for row in rows)
        assert total == pytest.approx(known.time_s, rel=1e-9)
        assert sum(known.parts.values()) == pytest.approx(known.time_s, rel=1e-9)
        assert {row.operation for row in rows} >= {str(x) for x in known.chain.operations}
        assert all(min(row.compute_s, row.exposed_s) >= 0 for row in rows)
        assert sum(row.received_bytes for row in rows) == pytest.approx(
            sum(known.counters.values()) / known.mesh.ranks, rel=1e-3
        )


def test_links_that_are_too_slow_are_waited_for():
    slow = answers("dp=16,tp=1", machine=",nccl.network_bytes_per_s=1e9")["FSDP"]
    waits = [row for row in slow.operations if row.kind == "waits"]
    assert [row.direction for row in waits] == ["forward", "backward"]
    assert slow.parts["communication"] > 0.5 * slow.time_s
    for direction in PASSES:  # as long as the links, which send one after the other
        rows = [row for row in slow.operations if row.direction == direction]
        moved = sum(row.hidden_s + row.exposed_s for row in rows)
        assert sum(row.compute_s + row.exposed_s for row in rows) == pytest.approx(moved)


def test_a_record_of_each_operation_follows_that_of_its_sharding():
    choice = drbench.chain("llama3-8b:mlp", "dgxh100", 8, programs="nccl", effort=0)
    records = records_of(choice)
    wholes = [record for record in records if record.algorithm == "chain"]
    parts = [record for record in records if record.algorithm == "chain operation"]
    assert [record.case for record in wholes] == [row.name for row in choice.ranking]
    for whole in wholes:
        own = [record for record in parts if record.case == whole.case]
        assert sum(record.best_s for record in own) == pytest.approx(whole.best_s)
        exposed = sum(record.phase_collective_wait_s for record in own)
        assert sum(record.phase_gemm_s for record in own) + exposed == pytest.approx(whole.best_s)


@pytest.mark.parametrize("programs", PROGRAMS)
def test_only_what_the_framework_has_is_used(programs):
    choice = drbench.chain(
        "llama3-8b:mlp", "dgxh100", mesh="tp=8", tokens=2048, programs=programs, effort=2
    )
    used = {x.name for row in choice.ranking for x in row.solution.programs} - {"local"}
    libraries = {x.by for row in choice.ranking for x in row.solution.programs} - {""}
    assert used <= PROGRAMS[programs]
    assert libraries <= ({"NCCL"} if programs != "all" else {"NCCL", "vllm", "trtllm"})
    assert ("Async TP" in [row.name for row in choice.ranking]) == (programs != "nccl")
    with pytest.raises(UsageError, match="nccl, torch, te, all, got 'gloo'"):
        drbench.chain("llama3-8b:mlp", "dgxh100", mesh="tp=8", programs="gloo")


def test_asynchronous_tensor_parallelism_has_the_layouts_of_the_scheme_and_rings():
    cases = ("tp=8", "Async TP", "TP + SP"), ("dp=2,tp=4", "Async TP × FSDP", "TP × FSDP")
    for mesh, name, plain in cases:
        known = answers(mesh, "torch")
        assert known[name].layouts == known[plain].layouts
        rings = {x.name for x in known[name].programs} - {x.name for x in known[plain].programs}
        assert rings and rings <= {"ring A", "ring C"}
        assert known[name].time_s < known[plain].time_s


def test_a_script_of_overlapped_programs_is_that_of_the_same_layouts_with_collectives():
    known = answers("dp=2,tp=4", "torch")
    alone = without_overlap(known["Async TP × FSDP"])
    assert alone.layouts == known["Async TP × FSDP"].layouts
    assert alone.time_s <= known["TP × FSDP"].time_s * (1 + 1e-9)
    assert not {x.name for x in alone.programs} & {"ring A", "ring C"}
    assert without_overlap(known["TP × FSDP"]) is None


@pytest.mark.parametrize("name", ["FSDP", "TP + SP", "TP × FSDP"])
def test_what_is_computed_again_is_its_share_of_the_forward_pass(name):
    for kind, (of_gemm, of_attention, of_others) in RECOMPUTED.items():
        unfused = kind == "attention"  # of fused attention no scores are stored
        plain = answers(unfused=unfused)[name]
        forward = [row for row in plain.operations if row.direction == "forward"]
        share = {"GEMM": of_gemm, "attention": of_attention, "element-wise": of_others}
        again = sum(share[row.kind] * (row.compute_s + row.exposed_s) for row in forward)
        other = answers(recompute=kind, unfused=unfused)[name]
        if unfused:
            fused = answers(recompute=kind)[name]
            assert fused.time_s == answers()[name].time_s
        assert other.time_s == pytest.approx(plain.time_s + again)
        assert other.mfu == pytest.approx(plain.mfu * plain.time_s / other.time_s)


def test_scores_are_stored_where_attention_is_not_fused_and_not_computed_again():
    """8 heads of 2048 tokens in 2 sequences, 5 bytes a score (Korthikanti et al., 2022, §4.1)."""
    text = (
        "X = input(4096, 512)\nW = weight(512, 1536)\nQKV = X @ W\nO = attention(QKV, heads=8, "
        "kv_heads=8, head_dim=64, sequence=2048)\nWo = weight(512, 512)\nY = O @ Wo"
    )
    chain = read(text, "attention", backward=True)
    memory = lambda **step: answers("tp=4", chain=chain, layers=3, **step)["Megatron TP"].memory
    scores = 8 * 2048 * 4096 // 4
    stored = {kind: memory(unfused=True, recompute=kind) for kind in ("none", "attention")}
    fused = memory()["activations"]
    assert stored["none"]["activations"] - fused == 3 * 5 * scores
    assert stored["attention"]["activations"] - fused == 5 * scores
    latent = preset("deepseek-v3:attention", 4096, backward=True)
    for chain in (BLOCK, latent):
        faster, slower = (
            answers("tp=4", unfused=x, chain=chain, layers=2)["Megatron TP"] for x in (False, True)
        )
        assert faster.parts["attention"] < 0.7 * slower.parts["attention"]
        assert faster.memory["activations"] < slower.memory["activations"]


def test_weights_of_all_experts_are_converted_and_all_tokens_for_their_gradients():
    machine = find_machine("dgxh100").for_dtype("float8")
    free = replace(machine, compute=replace(machine.compute, quantise_s=0.0, quantise_bytes=0.0))
    quantise_s = machine.compute.quantise_a_s
    for transpose, shapes in (("", [(96, 32), (8 * 64, 32)]), ("a", [(96, 32)])):
        times = [
            LocalProgram((96, 64, 32), transpose, "float8", of, experts=8).times.seconds
            for of in (machine, free)
        ]
        wanted = sum(quantise_s(*shape) for shape in shapes)
        assert times[0] - times[1] == pytest.approx(wanted)


def test_copies_share_optimizer_state_and_gradients():
    memory = {zero: answers("dp=4,tp=2", zero=zero)["TP × DP"].memory for zero in (0, 1, 2)}
    assert memory[1]["optimizer"] == memory[0]["optimizer"] // 4 == memory[2]["optimizer"]
    assert memory[2]["gradients"] == memory[0]["gradients"] // 4
    assert memory[1]["gradients"] == memory[0]["gradients"]
    assert memory[2]["weights"] == memory[0]["weights"]
    sharded = {zero: answers("dp=4,tp=2", zero=zero)["FSDP"].memory for zero in (0, 2)}
    assert sharded[0] == sharded[2]


def test_gradients_that_ranks_share_are_reduced_in_each_micro_batch():
    of = lambda zero: sum(
        row.hidden_s
        for row in answers("dp=4,tp=2", zero=zero, micro_batches=8)["TP × DP"].operations
        if row.operation.startswith("dW")
    )
    assert of(0) == of(1) and of(2) > 1.5 * of(0)


def test_gradients_in_float32_take_twice_the_memory_and_the_bytes():
    plain, wide = (answers(gradients=x)["FSDP"] for x in ("", "float32"))
    assert wide.memory["gradients"] == 2 * plain.memory["gradients"]
    of = lambda known: sum(
        row.received_bytes for row in known.operations if row.operation.startswith("dW")
    )
    assert of(wide) == pytest.approx(2 * of(plain), rel=1e-3)


def test_a_recipe_for_8_bits_stores_16_and_sends_8_of_what_is_multiplied():
    eight, sixteen = (answers(dtype=x)["TP × FSDP"] for x in ("float8", "bfloat16"))
    owned = ("weights", "gradients", "optimizer", "activations")
    assert [eight.memory[x] for x in owned] == [sixteen.memory[x] for x in owned]
    of_sums = lambda known: {use for use in known.uses if use.matrix == "C" and not use.hidden}
    assert of_sums(eight) and all(use.program.name == "scatter" for use in of_sums(eight))
    moved = lambda known: sum(use.program.nbytes for use in of_sums(known))
    assert moved(eight) == moved(sixteen) and sum(eight.counters.values()) < 0.75 * sum(
        sixteen.counters.values()
    )
    of = lambda known, kind: known.parts[kind]
    assert of(eight, "GEMM") < 0.9 * of(sixteen, "GEMM")
    assert of(eight, "attention") == pytest.approx(of(sixteen, "attention"))
    assert of(eight, "element-wise") == pytest.approx(of(sixteen, "element-wise"))


def test_of_refusals_on_several_meshes_the_smallest_shortfall_is_told():
    words = {"tokens": 65536, "layers": 32, "backward": True, "programs": "nccl", "effort": 0}
    machine = "dgxh100,memory_bytes=1e13"
    of = lambda **more: drbench.chain("llama3-8b:block", machine, **words | more)
    limit = 48 << 30
    refused = of(ranks=8, memory=limit).search.refused
    assert {"TP × DP", "Megatron TP"} <= {*refused}
    needs = {name: [] for name in refused}
    for mesh in ("ranks=8", "dp=2,tp=4", "dp=4,tp=2"):
        for row in of(mesh=mesh).ranking:
            if row.name in needs:
                needs[row.name].append((row.solution.memory_bytes, mesh))
    for name, (kind, nbytes, why) in refused.items():
        assert kind == 0
        assert (nbytes, why.partition(") on ")[2].partition(", ")[0]) in needs[name]
        assert nbytes == min(needs[name])[0] > limit
        assert f"{(nbytes - limit) / 2**30:.4g} GiB more than 48" in why


def test_the_result_in_python_is_a_table_and_its_operations():
    choice = drbench.chain("llama3-8b:mlp", "dgxh100", mesh="tp=8", programs="nccl", effort=0)
    assert choice.best.solution.time_s == choice.time_s
    assert isinstance(choice.table, pandas.DataFrame)
    assert [*choice.table["name"]] == [row["name"] for row in choice.rows()]
    operations = choice.operations
    total = operations["compute_s"].sum() + operations["exposed_s"].sum()
    assert total == pytest.approx(choice.time_s)
    html = choice._repr_html_()
    assert html.count("<tr") == 1 + len(choice.table) and str(choice).split(";")[0][:30] in html


@pytest.mark.parametrize(
    "words, why",
    [
        ({"tokens": 0}, "tokens must be a whole number of at least 1"),
        ({"ranks": 2.5}, "ranks must be a whole number"),
        ({"micro_batches": 1.5, "backward": True}, "micro_batches must be a whole number"),
        ({"memory": "80 things"}, "memory must be a whole number"),
        ({"effort": float("nan")}, "effort must be CPU seconds"),
        ({"mesh": 8}, "mesh must be a text"),
        ({"zero": 3, "backward": True}, "zero must be one of 0, 1, 2.*FSDP is ZeRO-3"),
        ({"sequence": 4096, "context": 8192}, "has a cache of 8192 tokens"),
    ],
)
def test_a_wrong_word_in_python_is_refused_in_one_line(words, why):
    with pytest.raises(UsageError, match=why) as error:
        drbench.chain("llama3-8b:block", "dgxh100", **{"ranks": 8, "effort": 0} | words)
    assert "\n" not in str(error.value)


def test_sizes_in_python_are_written_as_for_the_command():
    of = lambda **words: drbench.chain(
        "llama3-8b:mlp", "dgxh100", mesh="tp=8", effort=0, **words
    ).to_dict()
    texts = of(tokens="4Ki", memory="40GiB", fix="W1=column")
    assert texts == of(tokens=4096, memory=40 << 30, fix=["W1=column"])


def test_heads_are_repeated_where_a_mesh_has_more_ranks():
    """Qwen3 has 4 key/value heads: with tp=8 each is on two ranks, as vLLM has it."""
    choice = drbench.chain(
        "qwen3-235b-a22b:attention", "dgxh100", mesh="tp=8", tokens=8192, programs="nccl", effort=0
    )
    known = {row.name: row.solution for row in choice.ranking}
    assert known["Megatron TP"].chain.matrices["Wqkv"].cols == (64 + 2 * 8) * 128
    few = drbench.chain(
        "qwen3-235b-a22b:attention", "dgxh100", mesh="tp=4", tokens=8192, programs="nccl", effort=0
    )
    assert few.row("Megatron TP").solution.chain.matrices["Wqkv"].cols == (64 + 2 * 4) * 128
    assert replace(choice.asked).text == few.asked.text
