"""Kernels and collectives of GPUs: limits that follow from rates and from what is moved."""

from dataclasses import replace

import pandas as pd
import pytest

from benchmarks.model.tables import predict_file, summarise
from drbench.chains.model.choose import choose
from drbench.chains.model.costs import LayoutCosts, function_s
from drbench.chains.model.description import read
from drbench.chains.model.functions import attention, gradient
from drbench.chains.model.mesh import DeviceMesh
from drbench.chains.model.programs import CollectiveProgram, LocalProgram, RankGroup
from drbench.chains.model.transformers import text_of
from drbench.errors import UsageError
from drbench.launch.cases.machine_models import find_machine
from drbench.launch.models.intervals import vary_assumed
from drbench.model.gemm import Compute
from drbench.model.kernels.experts import count_groups
from drbench.model.machine import Machine
from drbench.transport import parse_transport

FITTED = ("dgxa100", "dgxh100", "dgxh200", "gb200nvl72", "dgxb200")


@pytest.fixture(scope="module", params=FITTED)
def machine(request):
    return find_machine(request.param).for_dtype("bfloat16")


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
def test_large_collectives_are_at_the_rate_of_rings_and_small_ones_at_that_of_hops(machine, ranks):
    nccl, large = machine.nccl, 1e12
    seconds = lambda operation, nbytes, **more: nccl.seconds(operation, nbytes, ranks, **more)
    rate = nccl.link_share * nccl.link_bytes_per_s
    for operation, passes in (("allgather", 1), ("reducescatter", 1), ("allreduce", 2)):
        moved = passes * (ranks - 1) + 0.45  # a rank's own part is a copy
        expected = large / ranks * moved / rate
        found = seconds(operation, large, itemsize=1)  # not in the switch
        assert found == pytest.approx(expected, rel=1e-3)
        hops = passes * (ranks - 1) * nccl.hop_s
        assert seconds(operation, 1) == pytest.approx(nccl.launch_s + hops, rel=1e-3)
    assert seconds("broadcast", large) == pytest.approx(large / rate, rel=1e-3)
    for operation in ("allgather", "allreduce", "alltoall", "shift"):
        times = [seconds(operation, 10**x) for x in range(12)]
        assert times == sorted(times) and times[0] < 1e-4
    assert seconds("allreduce", large) <= seconds("allreduce", large, itemsize=1)


def test_collectives_over_nodes_are_at_the_rate_of_their_cards(machine):
    nccl = machine.nccl
    rate = min(8 * nccl.network_bytes_per_s, nccl.link_share * nccl.link_bytes_per_s)
    seconds = machine.nccl.seconds("allgather", 1e12, 16, 2)
    assert seconds == pytest.approx(1e12 * 15 / 16 / rate, rel=0.05)
    assert machine.nccl_s("allgather", 1e6, range(8)) < machine.nccl_s(
        "allgather", 1e6, range(0, 8 * machine.node_ranks, machine.node_ranks)
    )


def test_an_engine_adds_small_matrices_itself_and_leaves_large_ones_to_nccl(machine):
    for kernel in machine.allreduces.values():
        graph_s, eager_s = (kernel.seconds(4096, 8, 1e-3, eager=eager) for eager in (False, True))
        assert graph_s < 10e-6 and eager_s >= max(graph_s, kernel.host_s)
        assert kernel.seconds(1e9, 8, 0.25) == 0.25
    small = CollectiveProgram("reduce", RankGroup(1, 8, 8), 16384, machine, 2)
    large = CollectiveProgram("reduce", RankGroup(1, 8, 8), 1 << 28, machine, 2)
    nccl_s = machine.nccl_s("allreduce", 16384, range(8), 2)
    assert small.by in machine.allreduces and small.times.seconds < nccl_s
    assert large.by == "NCCL"
    far = RankGroup(machine.node_ranks, 2, 2 * machine.node_ranks)
    assert CollectiveProgram("reduce", far, 16384, machine, 2).by == "NCCL"  # on several nodes


def test_gemms_read_cold_weights_unless_they_are_warm_and_reach_their_rates(machine):
    compute = machine.compute
    for m in (1, 64, 4096):
        assert compute.gemm_s(m, 2048, 2048, 2, warm=True) <= compute.gemm_s(m, 2048, 2048, 2)
    read_s = 2 * 16384 * 16384 / (compute.memory_bytes_per_s * compute.memory_share)
    assert read_s < compute.gemm_s(1, 16384, 16384, 2, warm=True) < 1.35 * read_s
    least_s = 2 * 16384**3 / (compute.peak_flops * compute.sustained)
    assert least_s < compute.gemm_s(16384, 16384, 16384, 2) < 1.1 * least_s


def test_a_norm_adds_times_that_do_not_overlap_and_a_burst_ends_at_the_rate_of_all():
    plain = Compute(1e12, units=4, memory_bytes_per_s=1e9)
    seconds = [replace(plain, norm=norm).gemm_s(100, 100, 100, 4) for norm in (1, 2, float("inf"))]
    compute_s, memory_s = 2e6 / 1e12, 4 * 4e4 / 1e9
    expected = (compute_s + memory_s, (compute_s**2 + memory_s**2) ** 0.5, memory_s)
    assert seconds == pytest.approx(expected)
    fast = Compute(1e12, units=4, tiles=((64, 64),), burst=2.0)
    assert fast.gemm_s(64, 64, 1000) == pytest.approx(2 * 64 * 64 * 1000 / (2 * 1e12 / 4))
    assert fast.gemm_s(128, 128, 1000) == pytest.approx(2 * 128 * 128 * 1000 / 1e12)


def test_prefill_is_causal_windowed_and_moves_its_operands(machine):
    kernel, sheet = machine.prefill, machine.compute
    seconds = lambda *of, **more: kernel.attend_s(sheet, *of, **more)
    assert 3.3 < seconds(8, 8192, 32, 128) / seconds(8, 4096, 32, 128) < 4
    half = 4 * 8 * 32 * 8192**2 * 128 / 2
    assert 0.3 < half / (seconds(8, 8192, 32, 128) * sheet.peak_flops) < 0.75
    assert seconds(8, 8192, 32, 128, window=1024) < 0.45 * seconds(8, 8192, 32, 128)
    assert seconds(8, 1024, 32, 128, window=1024) == seconds(8, 1024, 32, 128)
    if kernel.fp8_flops:
        assert seconds(8, 8192, 32, 128, item=1) < seconds(8, 8192, 32, 128)
    few, many = (kernel.prepare_s(sheet, 8, 4096, 32, kv, 128) for kv in (1, 32))
    written = 8 * 4096 * 2 * 31 * 128 * (2 + 2)
    assert many - few == pytest.approx(written / (sheet.memory_bytes_per_s * kernel.memory_share))


def test_decode_reads_its_cache(machine):
    kernel, sheet = machine.decode, machine.compute
    seconds = lambda *of, **more: kernel.seconds(sheet, *of, **more)
    rate = sheet.memory_bytes_per_s * kernel.memory_share
    read_s = 64 * 8 * 2 * 128 * 2 * 32768 / rate
    assert read_s < seconds(64, 64, 8, 128, 32768) < 2.2 * read_s
    assert seconds(64, 64, 8, 128, 32768, window=4096) < 0.5 * seconds(64, 64, 8, 128, 32768)
    assert kernel.launch_s < seconds(1, 8, 8, 128, 1) < 4 * kernel.launch_s
    latent = machine.latent_decode.seconds(sheet, 64, 128, 1, 0, 32768)
    assert 64 * 576 * 2 * 32768 / rate < latent < seconds(64, 128, 128, 128, 32768)


@pytest.mark.parametrize("name", ["dgxa100", "dgxh100"])
def test_experts_read_the_weights_of_those_in_use_and_write_the_gradients(name):
    compute = find_machine(name).for_dtype("bfloat16").compute
    experts, rate = compute.experts, compute.memory_bytes_per_s * compute.experts.memory_share
    of = lambda rows, **more: experts.gemm_s(compute, rows, 2048, 4096, 2, **more)
    for used in (1, 8, 128):
        read_s = used * 2048 * 4096 * 2 / rate
        assert read_s <= of([1.0] * used) < 1.6 * read_s + 40e-6
    assert of([0.5] * 128) == pytest.approx(of([1.0] * 64), rel=0.35)
    written = 128 * 4096 * 2048 * 2 / rate
    one = LocalProgram((4096, 2048, 128 * 16), "a", "bfloat16", machine_of(name), 128)
    assert one.times.seconds > written
    dense = compute.gemm_s(128 * 4096, 2048, 4096, 2)
    assert 0.8 * dense < of([4096.0] * 128) < 2 * dense


def machine_of(name):
    return find_machine(name).for_dtype("bfloat16")


@pytest.mark.parametrize("name", ["dgxh100", "gb200nvl72"])
@pytest.mark.parametrize("kind", ["", "low_latency_"])
def test_an_exchange_sends_each_token_to_its_nodes_and_ranks(name, kind):
    machine = find_machine(name)
    link, call = machine.nccl.link_bytes_per_s, ("low_latency_s" if kind else "throughput_s")
    for kernel in ("dispatch", "combine"):
        exchange = machine.exchanges[f"{kind}{kernel}"]
        of = lambda tokens, nodes: getattr(exchange, call)(
            link, tokens, 7168, 8, 256, 8 * nodes, nodes, 24 if not kind else 132
        )
        times = [of(tokens, 1) for tokens in (1, 16, 128, 1024)]
        assert times == sorted(times) and of(128, 1) < of(128, 2) < of(128, 8)
        sent = 4096 * (count_groups(8, 256, 2) if not kind else 8) / 2 * 7168 * exchange.itemsize
        assert of(4096, 2) > sent / exchange.between_bytes_per_s


def test_attention_of_a_layer_is_one_kernel_where_it_was_measured(machine):
    of, compute = attention(32, 8, 128, 4096), machine.compute
    rows, cols = 2 * 4096, 8 * of.gives
    forward = function_s(machine, of, (rows, cols), 2)
    expected = machine.prefill.attend_s(compute, 2, 4096, 32, 128)
    prepared = machine.prefill.prepare_s(compute, 2, 4096, 32, 8, 128)
    assert forward == pytest.approx(prepared + expected)
    back = gradient(of)
    seconds = function_s(machine, back, (rows, 8 * back.gives), 2)
    assert seconds == pytest.approx(compute.launch_s + 2.5 * expected)
    assert function_s(machine, of, (rows, cols), 4) > 2 * forward  # no such kernel for float32
    unfused = replace(machine, prefill=None)
    assert function_s(unfused, of, (rows, cols), 2) > 1.5 * forward


ROWS = {
    "h100_sxm-gemm-gemm": {"gemm_dtype": "fp8", "m": 64, "n": 4096, "k": 4096},
    "h100_sxm-nccl-nccl": {
        "op_name": "all_gather",
        "nccl_dtype": "half",
        "num_gpus": 8,
        "message_size": 1 << 20,
    },
    "h100_sxm-vllm-custom_allreduce": {"mode": "eager", "num_gpus": 8, "message_size": 8192},
    "gb200-trtllm-custom_allreduce": {"num_gpus": 4, "message_size": 8192},
    "h200_sxm-attention-context_attention": {
        "batch_size": 2,
        "isl": 4096,
        "num_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "window_size": 0,
        "attn_dtype": "bfloat16",
        "kv_cache_dtype": "fp8",
    },
    "b200_sxm-attention-generation_attention": {
        "batch_size": 64,
        "num_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "window_size": 0,
        "kv_cache_dtype": "bfloat16",
        "step": 4096,
    },
    "a100_sxm-mla-context_mla": {
        "kv_cache_dtype": "bfloat16",
        "num_heads": 16,
        "batch_size": 4,
        "isl": 2048,
        "tp_size": 8,
    },
    "gb200-mla-generation_mla": {
        "kv_cache_dtype": "fp8",
        "num_heads": 16,
        "batch_size": 64,
        "tp_size": 8,
        "step": 4096,
    },
    "a100_sxm-moe-moe": {
        "num_tokens": 1024,
        "hidden_size": 4096,
        "inter_size": 1536,
        "topk": 8,
        "num_experts": 128,
        "moe_tp_size": 1,
        "moe_ep_size": 8,
        "distribution": "power_law_1.2",
    },
    "h100_sxm-deepep-normal": {
        "node_num": 2,
        "hidden_size": 7168,
        "num_token": 4096,
        "num_topk": 8,
        "num_experts": 256,
        "dispatch_sms": 24,
        "combine_sms": 24,
        "dispatch_us": 1.0,
        "combine_us": 1.0,
    },
    "h100_sxm-deepep-low_latency": {
        "node_num": 1,
        "hidden_size": 7168,
        "num_token": 64,
        "num_topk": 8,
        "num_experts": 256,
        "dispatch_us": 1.0,
        "combine_us": 1.0,
    },
}


@pytest.mark.parametrize("name", ROWS)
def test_every_kind_of_published_table_is_predicted(name, tmp_path):
    """By its columns and its name; these rows all take between 3 us and 5 ms."""
    path = tmp_path / f"{name}.csv.xz"
    pd.DataFrame([ROWS[name] | {"latency": 1.0}] * 3).to_csv(path, index=False)
    found = predict_file(path)
    kinds = ("dispatch", "combine") if "deepep" in name else ("",)
    assert len(found) == 3 * len(kinds) and found.predicted_s.between(3e-6, 5e-3).all()
    assert ((found.low < 1) & (found.high > 1)).all()
    (row, *_) = summarise(found, ["operation"]).itertuples()
    assert row.rows == 3 and row.half > 0


def test_a_table_that_is_not_understood_is_refused(tmp_path):
    path = tmp_path / "h100_sxm-x.csv"
    path.write_text("speed\n1\n")
    with pytest.raises(SystemExit, match="no kernel has the columns speed"):
        predict_file(path)
    path.write_text("op_name,nccl_dtype,num_gpus,message_size,latency\nalltoall,half,2,8,1\n")
    with pytest.raises(SystemExit, match="pvc12 has no constants"):
        predict_file(path, "pvc12")


@pytest.mark.parametrize("name", ["dgxh100", "gb200nvl72"])
@pytest.mark.parametrize("sequence", [8192, 131072])
def test_no_chain_of_attention_is_faster_than_its_bound(name, sequence):
    """Fused kernels skip the masked half of the scores, which the FLOPs of a chain count."""
    text = text_of("llama3-8b:attention", 131072).replace("sequence=8192", f"sequence={sequence}")
    costs = LayoutCosts(machine_of(name), DeviceMesh.read("tp=8"), "bfloat16")
    found = choose(read(text, "attention"), [costs], effort_s=2)
    assert found.tried and found.least_s <= min(each.time_s for each in found.tried)


@pytest.mark.parametrize(
    "name, sizes", [("gb200nvl72", (8192, 17408, 16)), ("dgxh100", (134144, 9216, 32))]
)
def test_parts_of_a_gemm_may_fit_into_a_cache_that_the_whole_does_not(name, sizes):
    text = "X = input({0}, {2})\nW = weight({2}, {1})\nY = X @ W".format(*sizes)
    chain = read(text, "thin")
    costs = LayoutCosts(machine_of(name), DeviceMesh.read("tp=8"), "bfloat16")
    placed = ("S(0)",), ("S(1)",), ("S(0)",)
    for way in costs.ways(chain, chain.multiplications[0], placed):
        bound_s = way.gemm.program.times.seconds
        costs.simulate(way.gemm.program)
        assert way.gemm.program.times.seconds >= bound_s * (1 - 1e-9)


def test_a_throttled_machine_has_no_nccl():
    seen = find_machine("dgxh100").for_transport(parse_transport("throttled:1,5"))
    program = CollectiveProgram("gather", RankGroup(1, 8, 8), 10**9, seen, 2)
    assert program.times.seconds >= 7.0


@pytest.mark.parametrize("ranks", [9, 10, 12, 15])
def test_the_node_with_the_fewest_ranks_sets_the_rate_between_nodes(ranks):
    machine = find_machine("dgxh100")
    moved = 1e9 * (ranks - 1) / ranks / (ranks - 8) / machine.nccl.network_bytes_per_s
    for operation in ("allgather", "alltoall"):
        assert machine.nccl_s(operation, 1e9, range(ranks)) > 0.5 * moved


def test_an_all_reduce_is_at_one_end_of_one_interval():
    machine = machine_of("dgxh100")
    for nbytes in (1 << 14, 1 << 30):
        of = lambda end, nbytes=nbytes: (
            CollectiveProgram("reduce", RankGroup(1, 8, 8), nbytes, end, 2).times.seconds
        )
        low, high = (of(machine.at_end(end)) / of(machine) for end in ("low", "high"))
        assert 0.8 < low < 1 < high < 1.25


def test_measured_times_have_an_interval_where_nothing_is_assumed():
    rows = {"any": ((0, 0.5, 2.0),)}
    machine = Machine.from_dict({"compute": {"peak_flops": 1e12, "intervals": rows}})
    low, high = (end.compute.gemm_s(64, 64, 64) for end in vary_assumed(machine))
    assert high == pytest.approx(4 * low)
    assert vary_assumed(Machine.from_dict({"compute": {"peak_flops": 1e12}})) == []
    with pytest.raises(UsageError, match="end must be low or high"):
        Compute(1e12, end="middle")


@pytest.mark.parametrize("rows", [[[0, 1.2, 1.5]], [[0, 0, 1.1]], [[5, 0.9, 1.1], [1, 0.9, 1.1]]])
def test_intervals_that_contain_no_prediction_are_refused(rows):
    with pytest.raises(UsageError, match="low above 0 and at most 1"):
        Compute(1e12, intervals={"any": tuple(map(tuple, rows))})


def test_a_class_without_rows_has_the_widest_interval_and_small_groups_are_counted():
    kernel = find_machine("dgxa100").prefill
    low, high = kernel.interval("64", 1024)
    assert (low, high) == (
        min(kernel.interval("128", x)[0] for x in (1, 64, 128, 256, 512, 1024, 2048, 4096)),
        max(kernel.interval("128", x)[1] for x in (1, 64, 128, 256, 512, 1024, 2048, 4096)),
    )
    assert count_groups(9, 8, 4) == 4 and count_groups(2, 8, 16) == pytest.approx(2)
